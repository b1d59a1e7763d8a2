//! Cancelling runs, tasks and sessions, and releasing sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::answers::{Cancel, CancelAnswer, CancelScope, Release, Released, TaskState, WithParent};
use super::inspect::Live;
use super::key::{SessionKey, TaskKey};
use super::outcome::Finished;
use super::record::{Mark, OwnedSpec, Session, put};
use super::{Ownership, TRIES, contended, deadline};
use crate::error::Error;
use crate::model::{CancelMode, Run, RunId, RunStatus};
use crate::rules::{self, CancelRequest};
use crate::store::{Decision, RefusedKind, StoreError};

impl Ownership {
    /// Asks for runs to be cancelled, or by force ends them. The intent is part of each run's record: later runs are
    /// not met by it (I11), the first reason is kept (X7), and the owner hears of it by the next renewal at the
    /// latest.
    ///
    /// # Errors
    /// [`Error::Store`]: the caller must not believe that anything was cancelled (X12); ask again. Of a session one of
    /// whose runs cannot be read the others were asked to stop, and that one is named.
    pub async fn request_cancel(&self, scope: &CancelScope, cancel: &Cancel) -> Result<CancelAnswer, Error> {
        match scope {
            CancelScope::Run { key, run } => self.cancel_task(key, Some(*run), cancel).await,
            CancelScope::Task(key) => self.cancel_task(key, None, cancel).await,
            CancelScope::Session(key) => match self.stored(key).await? {
                Some(stored) => {
                    let live = self.live_until(key, stored.session.revision).await?;
                    let runs = self.cancel_all(&live.runs, &request(cancel), false).await?;
                    // The others are asked to stop. Of this one nobody must believe that it was.
                    match live.unreadable.into_iter().next() {
                        Some((name, why)) => Err(not_cancelled(&name, &why).into()),
                        None => Ok(CancelAnswer::Requested { runs }),
                    }
                }
                None => Ok(CancelAnswer::NotFound),
            },
        }
    }

    async fn cancel_task(
        &self,
        key: &TaskKey,
        run: Option<u32>,
        cancel: &Cancel,
    ) -> Result<CancelAnswer, Error> {
        let stored = self.stored(&key.session).await?;
        let latest = match stored.map_or(Mark::None, |stored| stored.session.mark(key.task)) {
            Mark::None => return Ok(CancelAnswer::NotFound),
            Mark::Expired => return Ok(CancelAnswer::Expired),
            Mark::Run(latest) => latest,
        };
        let number = run.unwrap_or(latest);
        if number == 0 || number > latest {
            return Ok(CancelAnswer::NotFound);
        }
        let run_id = key.run_id(number)?;
        let met = self.cancel_run(&run_id, &request(cancel)).await?;
        let children = match &met {
            // Also when it was done before: who did it may not have come to the children.
            Some(met) if is_cancelled(&met.run) => self.cancel_children(key, number, cancel).await?,
            _ => 0,
        };
        match met {
            None => Ok(CancelAnswer::Expired),
            Some(Met { run, at_once: _, had_ended: true }) => {
                Ok(CancelAnswer::AlreadyTerminal { outcome: Box::new(Finished::of(&run)?) })
            }
            Some(_) => Ok(CancelAnswer::Requested { runs: 1 + children }),
        }
    }

    /// Cancels what a run has started that runs, and what that has started, each by its policy (X11); answers how much
    /// that was.
    async fn cancel_children(&self, key: &TaskKey, run: u32, cancel: &Cancel) -> Result<usize, Error> {
        let live = self.live(&key.session).await?;
        let specs: Vec<(&Run, OwnedSpec)> =
            live.runs.iter().filter_map(|run| Some((run, OwnedSpec::of(run).ok()?))).collect();
        let mut parents = vec![(key.task, run, cancel.clone())];
        let (mut seen, mut met) = (BTreeSet::from([key.task]), 0);
        while let Some((task, latest, cancel)) = parents.pop() {
            for (run, spec) in &specs {
                let by = spec.parent.filter(|parent| parent.task == task && parent.run <= latest);
                let Some(cancel) = by.and_then(|parent| cancel_of_child(parent.policy, &cancel)) else {
                    continue;
                };
                if !seen.insert(spec.task) {
                    continue;
                }
                let found = self.cancel_run(&run.run_id, &request(&cancel)).await?;
                met += usize::from(found.is_some_and(|met| !met.had_ended));
                parents.push((spec.task, spec.run, cancel));
            }
        }
        Ok(met)
    }

    /// A run whose parent was cancelled while it began is met here: who cancelled may not have seen it.
    pub(super) async fn follow_parent(&self, session: &SessionKey, run: &Run) -> Result<(), Error> {
        let Some(parent) = OwnedSpec::of(run)?.parent else { return Ok(()) };
        let Some(found) = self.run(&session.task(parent.task), parent.run).await? else { return Ok(()) };
        let asked = Cancel {
            mode: CancelMode::Cooperative,
            reason: "what started it was cancelled".into(),
            requested_by: "parent".into(),
            force_after: None,
        };
        if is_cancelled(&found)
            && let Some(cancel) = cancel_of_child(parent.policy, &asked)
        {
            self.cancel_run(&run.run_id, &request(&cancel)).await?;
        }
        Ok(())
    }

    async fn cancel_run(&self, run_id: &RunId, request: &CancelRequest) -> Result<Option<Met>, Error> {
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(run) = self.store.run(run_id).await? else { return Ok(None) };
            match rules::cancel(&run, request, moment) {
                rules::Cancel::AlreadyTerminal => {
                    return Ok(Some(Met { run, at_once: false, had_ended: true }));
                }
                rules::Cancel::AlreadyRequested => {
                    return Ok(Some(Met { run, at_once: false, had_ended: false }));
                }
                rules::Cancel::Write(write) => {
                    let after = write.run.clone();
                    if self.commit(write).await?.is_ok() {
                        let at_once = run.status.is_held() && after.status.is_terminal();
                        return Ok(Some(Met { run: after, at_once, had_ended: false }));
                    }
                }
            }
        }
        Err(contended(&run_id))
    }

    /// The runs of a session that have not ended and began when it was at this revision, or before (I11).
    async fn live_until(&self, key: &SessionKey, revision: u64) -> Result<Live, Error> {
        let mut live = self.live(key).await?;
        // When one began that cannot be read is not known: it goes with the others.
        live.runs.retain(|run| OwnedSpec::of(run).map_or(true, |spec| spec.revision <= revision));
        Ok(live)
    }

    /// Cancels runs of a session; answers how much that was. What was superseded is over but for its record: that
    /// ends with its session.
    async fn cancel_all(
        &self,
        live: &[Run],
        request: &CancelRequest,
        superseded: bool,
    ) -> Result<usize, Error> {
        let mut met = 0;
        for run in live.iter().filter(|run| superseded || run.blocked_by.is_none()) {
            let found = self.cancel_run(&run.run_id, request).await?;
            met += usize::from(found.is_some_and(|met| !met.had_ended));
        }
        Ok(met)
    }

    /// Releases a session: what was seen of it before begins nothing any more, what runs is cancelled. A later
    /// session of the same name is another (S6.4). Releasing again, or what never was, changes nothing (S6.6).
    ///
    /// # Errors
    /// [`Error::Store`]: the caller must not believe that it was released; release it again.
    ///
    /// Cancel safety: when the future is dropped it may have been released, and some runs not be asked to stop yet.
    pub async fn release_session(&self, key: &SessionKey, release: Release) -> Result<Released, Error> {
        let revision = match self.seal(key, release).await? {
            Sealed::Unknown => return Ok(Released::Released { revision: 0, still_running: 0 }),
            Sealed::Refused(running) => return Ok(Released::Refused { running }),
            Sealed::At(revision) => revision,
        };
        let wait = match release {
            Release::Cancel { wait } => wait.duration(),
            // Nothing ran. What was lost could still be given back, and would run in a session that is over (I9).
            Release::Refuse => Duration::ZERO,
        };
        // From before the look at what runs: what ends after it makes a hint.
        let (mut watch, deadline) = (self.watch(), deadline(wait));
        let asked = CancelRequest {
            mode: CancelMode::Cooperative,
            reason: "its session was released".into(),
            requested_by: "release".into(),
            // By who finds it, should this call not live to do so.
            force_after: Some(wait + self.settings.grace),
        };
        // Who starts something now has seen the session as the release left it: that is another one (S6.4).
        let before = revision.saturating_sub(1);
        self.cancel_all(&self.live_until(key, before).await?.runs, &asked, true).await?;
        while Instant::now() < deadline && !self.live_until(key, before).await?.runs.is_empty() {
            watch.changed_until(deadline).await;
        }
        let force = CancelRequest { mode: CancelMode::Force, ..asked };
        let left = self.live_until(key, before).await?;
        let mut revoked = 0;
        for run in left.runs {
            let met = self.cancel_run(&run.run_id, &force).await?;
            revoked += usize::from(met.is_some_and(|met| met.at_once));
        }
        if revoked > 0 {
            metrics::counter!("tenure_ownership_revoked_total").increment(revoked as u64);
            tracing::warn!(session = %key, revoked, "released while work goes on that has no authority");
        }
        for (run, why) in &left.unreadable {
            tracing::warn!(session = %key, run, why, "released, and a run was not cancelled that cannot be read");
        }
        Ok(Released::Released { revision, still_running: revoked + left.unreadable.len() })
    }

    /// Raises the revision of a session, unless nothing was started since that was done before.
    async fn seal(&self, key: &SessionKey, release: Release) -> Result<Sealed, Error> {
        let _turn = self.turn(key).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(stored) = self.stored(key).await? else { return Ok(Sealed::Unknown) };
            if release == Release::Refuse {
                let live = self.live(key).await?;
                let held = live.runs.iter().filter(|run| run.status.is_held()).count();
                // Whether somebody executes what cannot be read is not known.
                let running = held + live.unreadable.len();
                if running > 0 {
                    return Ok(Sealed::Refused(running));
                }
            }
            if stored.session.released {
                return Ok(Sealed::At(stored.session.revision));
            }
            let revision = stored.session.revision + 1;
            let session = Session { revision, released: true, ..stored.session.clone() };
            let write = put(Some(&stored), &session, moment.now)?;
            let decision = Decision { task: Some(write.task), ..Decision::default() };
            if self.commit(decision).await?.is_ok() {
                return Ok(Sealed::At(revision));
            }
        }
        Err(contended(key))
    }

    /// Whether somebody may be executing the task now.
    ///
    /// # Errors
    /// [`Error::Store`]: that is no evidence that nobody does.
    pub async fn is_alive(&self, key: &TaskKey) -> Result<bool, Error> {
        Ok(matches!(self.inspect(key).await?.state, TaskState::Running { .. } | TaskState::Suspect { .. }))
    }
}

/// A run that a request to cancel has met.
struct Met {
    run: Run,
    /// Somebody held it, and it has ended all the same.
    at_once: bool,
    had_ended: bool,
}

fn not_cancelled(run: &str, why: &str) -> StoreError {
    let message = format!("run \"{run}\" was not cancelled, for it cannot be read: {why}");
    StoreError::refused(RefusedKind::Corrupt, message)
}

/// Whether somebody wants it cancelled, or it is.
fn is_cancelled(run: &Run) -> bool {
    run.status == RunStatus::Cancelled || (!run.status.is_terminal() && run.cancel.is_some())
}

/// How the child of a cancelled run is cancelled, if it is.
fn cancel_of_child(policy: WithParent, cancel: &Cancel) -> Option<Cancel> {
    match policy {
        WithParent::Cancel => Some(cancel.clone()),
        WithParent::Request => {
            Some(Cancel { mode: CancelMode::Cooperative, force_after: None, ..cancel.clone() })
        }
        WithParent::Abandon => None,
    }
}

enum Sealed {
    Unknown,
    Refused(usize),
    At(u64),
}

fn request(cancel: &Cancel) -> CancelRequest {
    CancelRequest {
        mode: cancel.mode,
        reason: cancel.reason.clone(),
        requested_by: cancel.requested_by.clone(),
        force_after: cancel.force_after.map(|after| after.duration()),
    }
}
