//! What owned work came to, told to everybody: once, and only by who holds it.

use std::sync::Arc;

use serde_json::json;

use super::answers::{Held, Published};
use super::blobs::{Unkept, not_kept, number_of};
use super::key::TaskKey;
use super::outcome::{End, Finished, Kept, Outcome, ruled};
use super::record::{Late, Mark, OwnedSpec, Stored, put};
use super::{Ownership, TRIES, contended};
use crate::error::Error;
use crate::model::{Invalid, Payload, Run, Token};
use crate::rules::{self, Moment};
use crate::store::Decision;

impl Ownership {
    /// Publishes the outcome of a run under its token. Idempotent: the same outcome is published once.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Store`]: it may have been published; publish it again (P2, P4).
    pub async fn publish(&self, held: &Held, outcome: Outcome) -> Result<Published, Error> {
        let outcome = normal(outcome)?;
        self.admits(&held.key.session)?;
        let mut kept = None;
        let published = self.try_publish(held, &outcome, &mut kept).await?;
        if let (Some(kept), false) = (kept, published == Published::Committed) {
            self.discard(held, &kept).await;
        }
        Ok(published)
    }

    /// `kept` is what found a place for it, only while its grant stood: what was published before is never kept anew.
    async fn try_publish(
        &self,
        held: &Held,
        outcome: &Outcome,
        kept: &mut Option<Kept>,
    ) -> Result<Published, Error> {
        let key = &held.key;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(run) = self.run(key, held.run).await? else {
                return Ok(Published::Fenced { state: self.inspect(key).await? });
            };
            if run.status.is_terminal()
                && run.fence == held.token.fence
                && !self.went_on(key, held.run).await?
            {
                return already(&run, held, outcome);
            }
            if run.token() != Some(held.token) {
                self.refuse(held.token, &run, outcome, moment).await;
                return Ok(Published::Fenced { state: self.inspect(key).await? });
            }
            let found = match &*kept {
                Some(found) => found.clone(),
                None => match self.keep(held, outcome).await {
                    Ok(found) => kept.insert(found).clone(),
                    Err(Unkept::TooLarge(limit)) => return Ok(Published::TooLarge { limit }),
                    Err(Unkept::Failed(why)) => return Err(not_kept(&why).into()),
                },
            };
            let found = found.write();
            let Ok(mut write) = rules::finish(&run, held.token, ruled(outcome, found.clone()), 0, moment)
            else {
                return Ok(Published::Fenced { state: self.inspect(key).await? });
            };
            // Also what failed may be continued from where it was.
            write.run.result = write.run.result.or(found);
            if self.commit(write).await?.is_ok() {
                return Ok(Published::Committed);
            }
        }
        Err(contended(key))
    }

    /// Whether a later run of the task has begun (S4.5).
    async fn went_on(&self, key: &TaskKey, run: u32) -> Result<bool, Error> {
        let stored = self.stored(&key.session).await?;
        Ok(stored.is_some_and(|stored| match stored.session.mark(key.task) {
            Mark::Run(latest) => latest > run,
            Mark::None | Mark::Expired => false,
        }))
    }

    /// Keeps an outcome that came too late in the history of its session, once for each grant, and of so many grants
    /// of a task: whoever shows fences that nobody granted fills no store. What is not kept is told to the log: the
    /// answer to who published it does not depend on it.
    async fn refuse(&self, token: Token, run: &Run, outcome: &Outcome, moment: Moment) {
        if let Err(error) = self.try_refuse(token, run, outcome, moment).await {
            tracing::warn!(run = %run.run_id, %error, "a late outcome was refused, and is not kept");
        }
    }

    /// [`Ownership::refuse`] for a host that was fenced before it could store what its work came to. What it kept
    /// elsewhere is removed.
    pub(crate) async fn refuse_late(&self, begun: &Run, token: Token, outcome: &rules::Outcome) {
        self.discard_late(begun, token, outcome).await;
        let (run_id, Some(outcome)) = (&begun.run_id, Outcome::of(outcome)) else { return };
        match (self.store.run(run_id).await, self.moment().await) {
            (Ok(Some(run)), Ok(moment)) => self.refuse(token, &run, &outcome, moment).await,
            (Ok(None), _) => {}
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(run = %run_id, %error, "a late outcome was refused, and is not kept");
            }
        }
    }

    async fn try_refuse(
        &self,
        token: Token,
        run: &Run,
        outcome: &Outcome,
        moment: Moment,
    ) -> Result<(), Error> {
        let preview = outcome.result.as_ref().map(Payload::preview);
        let told = json!({
            "end": outcome.end, "result_preview": preview, "error": outcome.error, "bytes": outcome.size(),
        });
        let number = OwnedSpec::of(run)?.task;
        for _ in 0..TRIES {
            let Some((task, _)) = self.store.task(&run.spec.task_id).await? else { return Ok(()) };
            let stored = Stored::read(task, None)?;
            let Stored { task, mut session } = stored.clone();
            match session.refuse(number, token.fence) {
                Late::Told => return Ok(()),
                Late::TooMany => {
                    let (run, held) = (&run.run_id, token.fence);
                    tracing::warn!(%run, held, "one more late outcome was refused, and is not kept");
                    return Ok(());
                }
                Late::New => {}
            }
            let mut write = put(Some(&stored), &session, moment.now)?;
            let event = rules::archive(task.last_event + 1, run, token, &told, moment);
            write.tell(event);
            let decision = Decision { task: Some(write.task), ..Decision::default() };
            if self.commit(decision).await?.is_ok() {
                return Ok(());
            }
        }
        Err(contended(&run.run_id))
    }
}

/// What is answered about a run that has ended under the grant that is shown.
fn already(run: &Run, held: &Held, outcome: &Outcome) -> Result<Published, Error> {
    let finished = Finished::of(run)?;
    let number = run.result.as_ref().and_then(|result| Kept::read(result).ok()?.number);
    let same = finished.is_of(outcome) && number.is_none_or(|number| number == number_of(held, outcome));
    let outcome = Box::new(finished);
    Ok(if same { Published::AlreadyCommitted } else { Published::AlreadyTerminal { outcome } })
}

/// The longest name of a media type or of a class of errors.
const MOST_NAME_BYTES: usize = 255;

/// The outcome in the one form in which it is compared.
fn normal(outcome: Outcome) -> Result<Outcome, Error> {
    let payload = |payload: &Option<Payload>| payload.as_ref().map(|payload| Arc::clone(&payload.media_type));
    let class = outcome.error.as_ref().map(|error| Arc::clone(&error.class));
    let within = outcome.error.as_ref().and_then(|error| error.within.clone());
    for (field, name) in [
        ("result.media_type", payload(&outcome.result)),
        ("snapshot.media_type", payload(&outcome.snapshot)),
        ("error.class", class),
        ("error.within", within),
    ] {
        let odd =
            |name: &str| name.is_empty() || name.len() > MOST_NAME_BYTES || name.contains(char::is_control);
        if name.as_deref().is_some_and(odd) {
            let expected = format!("1 to {MOST_NAME_BYTES} bytes of text without control characters");
            return Err(Error::Invalid(Invalid::one(field, expected)));
        }
    }
    match outcome.end {
        End::Completed => {
            let result = outcome.result.or_else(|| Some(Payload::text("")));
            Ok(Outcome { result, error: None, ..outcome })
        }
        End::Failed if outcome.error.is_none() => {
            Err(Error::Invalid(Invalid::one("error", "what went wrong, found nothing")))
        }
        End::Failed => Ok(outcome),
        End::Cancelled => Ok(Outcome { error: None, ..outcome }),
    }
}
