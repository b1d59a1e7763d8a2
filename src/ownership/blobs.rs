//! Outcomes that are too large for the store: a hook of the host keeps them elsewhere (P6), and removes them once the
//! records that name them are gone (P11).
//!
//! A record goes with one write, and in that write its session notes where the hook keeps what belonged to it. The
//! hook is asked after that, and what it has removed is struck off the list. So nobody finds a record whose content is
//! gone, and what could not be removed is asked for again, also after a restart and by another replica.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::answers::Held;
use super::key::{SessionKey, numbers};
use super::outcome::{Kept, Outcome};
use super::record::{Stored, put};
use super::{Ownership, TRIES, contended, derived, digest_of, draw};
use crate::error::Error;
use crate::model::{Payload, Run, RunResult, Token};
use crate::rules;
use crate::store::{Decision, RefusedKind, StoreError};

/// The longest name of a place, in bytes.
const MOST_PLACE_BYTES: usize = 1024;

/// How many places of a session may wait for the hook before the session keeps its records that name more.
pub(super) const MOST_UNREMOVED: usize = 1000;

/// How long the hook may take to remove one.
const REMOVES_WITHIN: Duration = Duration::from_secs(5);

/// For how long a call begins with one more: together ten seconds are spent on the hook, whatever it does.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);

/// How long after a failure the reaper asks the hook again for what a session notes.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where an outcome is that was too large to be kept with its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// As the hook that keeps it named it.
    pub location: Arc<str>,
    /// Bytes of result and snapshot together.
    pub size: u64,
    /// The first characters of the result.
    pub preview: Arc<str>,
}

/// Keeps outcomes that are too large for the store, where every replica finds them (P6). All replicas of a namespace
/// have the same.
pub trait Blobs: Send + Sync + 'static {
    /// Keeps result and snapshot of an outcome, and names the place in 1 to 1,024 bytes. The name begins with the id
    /// of the run, and is that of no other outcome; called again with it, this may keep the same again.
    ///
    /// # Errors
    /// Why it is not kept: it may be tried again.
    fn put(&self, name: String, outcome: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>>;

    /// Removes what lies in a place. Called after the record that named it is gone for all replicas; several may do so
    /// at once, and again: a place in which nothing lies is no error. What takes longer than five seconds is cut off,
    /// and counts as an error.
    ///
    /// # Errors
    /// Why it is still there. Of those of a session the first is told to the log, with how many there are; all are
    /// asked for again.
    fn remove(&self, location: Arc<str>) -> BoxFuture<'_, Result<(), String>>;
}

/// A hook, with the namespace it is for; none for all.
type Hook = (Option<Arc<str>>, Arc<dyn Blobs>);

/// The hooks of a host.
#[derive(Default)]
pub(super) struct Hooks {
    all: Mutex<Vec<Hook>>,
    /// The sessions of which something could not be removed, and when.
    failed: Mutex<HashMap<SessionKey, Instant>>,
}

impl Hooks {
    /// The last one for a namespace counts.
    pub(super) fn add(&self, namespace: Option<&Arc<str>>, hook: &Arc<dyn Blobs>) {
        let mut all = self.all.lock();
        all.retain(|(of, _)| of.as_ref() != namespace);
        all.push((namespace.cloned(), Arc::clone(hook)));
    }

    fn of(&self, namespace: &str) -> Option<Arc<dyn Blobs>> {
        let all = self.all.lock();
        let find = |wanted: Option<&str>| all.iter().find(|(of, _)| of.as_deref() == wanted);
        find(Some(namespace)).or_else(|| find(None)).map(|(_, hook)| Arc::clone(hook))
    }

    /// The hook was asked for what a session notes, and failed at some of it or not.
    fn asked(&self, session: &SessionKey, failed: bool) {
        let mut all = self.failed.lock();
        all.retain(|other, since| other != session && since.elapsed() < ASKED_AGAIN_AFTER);
        if failed {
            all.insert(session.clone(), Instant::now());
        }
    }

    fn failed_just_now(&self, session: &SessionKey) -> bool {
        self.failed.lock().get(session).is_some_and(|since| since.elapsed() < ASKED_AGAIN_AFTER)
    }
}

/// Until when the hook is asked to remove more, by who asks now.
pub(super) fn for_a_while() -> Instant {
    Instant::now() + BEGINS_WITHIN
}

/// Those that come first are not always the same.
pub(super) fn begin_anywhere<T>(all: &mut [T]) {
    let first = draw() % (all.len() as u64).max(1);
    all.rotate_left(usize::try_from(first).unwrap_or(0));
}

/// What a hook did about the places of a session.
#[derive(Default)]
struct Asked {
    removed: BTreeSet<Arc<str>>,
    /// How many it could not remove.
    failed: usize,
    /// The first of those, and why.
    first: Option<(Arc<str>, String)>,
}

impl Asked {
    /// Begins with nothing more when the time is up, and goes past what cannot be removed.
    async fn of(hook: &dyn Blobs, places: Vec<Arc<str>>, until: Instant) -> Self {
        let mut asked = Self::default();
        for place in places {
            if Instant::now() >= until {
                break;
            }
            let late = || Err(format!("it took longer than {} s", REMOVES_WITHIN.as_secs()));
            match timeout(REMOVES_WITHIN, hook.remove(Arc::clone(&place))).await.unwrap_or_else(|_| late()) {
                Ok(()) => {
                    asked.removed.insert(place);
                }
                Err(why) => {
                    metrics::counter!("tenure_ownership_unremoved_total").increment(1);
                    asked.failed += 1;
                    asked.first.get_or_insert((place, why));
                }
            }
        }
        asked
    }
}

/// Why there is no place for an outcome.
pub(super) enum Unkept {
    /// It is over this limit, and nobody keeps what is.
    TooLarge(usize),
    /// The hook says so.
    Failed(String),
}

/// Where the hook keeps what a run came to, if it does.
pub(super) fn place_of(run: &Run) -> Option<Arc<str>> {
    // What is in a file is the host's own.
    let inline = run.result.as_ref().filter(|result| matches!(result, RunResult::Inline(_)))?;
    Kept::read(inline).ok()?.blob.map(|blob| blob.location)
}

impl Ownership {
    fn hook(&self, namespace: &str) -> Option<Arc<dyn Blobs>> {
        self.settings.blobs.clone().or_else(|| self.hooks.of(namespace))
    }

    /// Finds a place for an outcome: with its run, or by the hook.
    pub(super) async fn keep(&self, held: &Held, outcome: &Outcome) -> Result<Kept, Unkept> {
        let (size, limit) = (outcome.size(), self.settings.outcome_limit);
        let Outcome { result, snapshot, .. } = outcome.clone();
        if size <= limit {
            return Ok(Kept { result, snapshot, ..Kept::default() });
        }
        let Some(blobs) = &self.settings.blobs else { return Err(Unkept::TooLarge(limit)) };
        let number = number_of(held, outcome);
        let run_id = held.key.run_id(held.run).map_err(|invalid| Unkept::Failed(invalid.to_string()))?;
        let location =
            blobs.put(format!("{run_id}.{number:016x}"), outcome.clone()).await.map_err(Unkept::Failed)?;
        if !(1..=MOST_PLACE_BYTES).contains(&location.len()) {
            let found = location.len();
            return Err(Unkept::Failed(format!(
                "its place has {found} bytes, expected 1 to {MOST_PLACE_BYTES}"
            )));
        }
        let preview = result.as_ref().map(Payload::preview).unwrap_or_default().into();
        let blob = Some(Blob { location, size: size as u64, preview });
        Ok(Kept { blob, number: Some(number), ..Kept::default() })
    }

    /// What was kept elsewhere was not published: unless it was by another call, it is removed.
    pub(super) async fn discard(&self, held: &Held, kept: &Kept) {
        self.note(held, kept).await;
        if let Err(error) = self.clear(&held.key.session, for_a_while()).await {
            tracing::warn!(task = %held.key, %error, "what was refused is removed later");
        }
    }

    /// Notes in its session that it is to be removed, by who looks after all sessions.
    async fn note(&self, held: &Held, kept: &Kept) {
        let Some(blob) = &kept.blob else { return };
        if let Err(error) = self.try_note(held, &blob.location).await {
            let place = &*blob.location;
            tracing::warn!(task = %held.key, place, %error, "what was refused may still lie where it was kept");
        }
    }

    /// What a host kept that was fenced is removed later: its other outcomes do not wait for the hook.
    pub(super) async fn discard_late(&self, begun: &Run, token: Token, outcome: &rules::Outcome) {
        let result = match outcome {
            rules::Outcome::Completed(result) | rules::Outcome::Cancelled(Some(result)) => result,
            _ => return,
        };
        let kept = Kept::read(result).unwrap_or_default();
        // What has no number is a file of the host.
        if kept.number.is_none() {
            return;
        }
        let of = async {
            let found = self.store.task(&begun.spec.task_id).await?;
            found.map(|(task, _)| Stored::read(task, None)).transpose()
        };
        match (of.await, numbers(begun.run_id.as_str())) {
            (Ok(Some(stored)), Some((task, run))) => {
                let held = Held { key: stored.session.key.task(task), run, token };
                self.note(&held, &kept).await;
            }
            (Err(error), _) => {
                tracing::warn!(run = %begun.run_id, %error, "what was refused still lies where it was kept");
            }
            _ => {}
        }
    }

    async fn try_note(&self, held: &Held, place: &Arc<str>) -> Result<(), Error> {
        if let Some(run) = self.run(&held.key, held.run).await? {
            let may_yet_be = run.token() == Some(held.token);
            if may_yet_be || place_of(&run).as_ref() == Some(place) {
                return Ok(());
            }
        }
        let note = |unremoved: &mut BTreeSet<Arc<str>>| {
            if unremoved.contains(place) {
                return false;
            }
            if unremoved.len() >= MOST_UNREMOVED {
                let why = "too much is to be removed: what was refused stays where it was kept";
                tracing::warn!(task = %held.key, %place, "{why}");
                return false;
            }
            unremoved.insert(Arc::clone(place))
        };
        self.strike(&held.key.session, note).await
    }

    /// Removes what lies where a session notes it, and begins with nothing more when the time is up. It begins anywhere
    /// among them, and goes past what cannot be removed: that is in nobody's way.
    pub(super) async fn clear(&self, key: &SessionKey, until: Instant) -> Result<(), Error> {
        let Some(hook) = self.hook(key.namespace()) else { return Ok(()) };
        let Some(stored) = self.stored(key).await? else { return Ok(()) };
        let mut places: Vec<Arc<str>> = stored.session.unremoved.into_iter().collect();
        begin_anywhere(&mut places);
        let Asked { removed, failed, first } = Asked::of(&*hook, places, until).await;
        if let Some((place, why)) = first {
            // Once for all of them: there may be a thousand, each minute.
            let told = "what is over could not be removed; it is tried again";
            tracing::warn!(session = %key, %place, why, places = failed, "{told}");
        }
        self.hooks.asked(key, failed > 0);
        if removed.is_empty() {
            return Ok(());
        }
        let strike = |unremoved: &mut BTreeSet<Arc<str>>| {
            let before = unremoved.len();
            unremoved.retain(|place| !removed.contains(place));
            unremoved.len() != before
        };
        self.strike(key, strike).await
    }

    /// As [`Self::clear`], by who looks after all sessions: what failed just now is left alone for a while.
    pub(super) async fn clear_in_turn(&self, key: &SessionKey, until: Instant) -> Result<(), Error> {
        if Instant::now() >= until || self.hooks.failed_just_now(key) {
            return Ok(());
        }
        self.clear(key, until).await
    }

    /// Changes what a session notes of places. One that is gone notes nothing.
    async fn strike(
        &self,
        key: &SessionKey,
        change: impl Fn(&mut BTreeSet<Arc<str>>) -> bool + Send,
    ) -> Result<(), Error> {
        let _turn = self.turn(key).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(stored) = self.stored(key).await? else { return Ok(()) };
            let mut session = stored.session.clone();
            if !change(&mut session.unremoved) {
                return Ok(());
            }
            let write = put(Some(&stored), &session, moment.now)?;
            let decision = Decision { task: Some(write.task), ..Decision::default() };
            if self.commit(decision).await?.is_ok() {
                return Ok(());
            }
        }
        Err(contended(key))
    }
}

/// Tells what a grant came to from everything else, also from what another grant with the same fence came to (L19).
pub(super) fn number_of(held: &Held, outcome: &Outcome) -> u64 {
    let payload = |payload: &Option<Payload>| {
        payload.as_ref().map_or(0, |payload| digest_of(&[payload.media_type.as_bytes(), &payload.bytes]))
    };
    let content = derived([payload(&outcome.result), payload(&outcome.snapshot), 0, 0]);
    derived([held.token.fence, held.token.nonce, content, 0])
}

/// An outcome that was not kept is not published, and may be tried again.
pub(super) fn not_kept(why: &str) -> StoreError {
    StoreError::refused(RefusedKind::Unavailable, format!("the outcome is not kept: {why}"))
}
