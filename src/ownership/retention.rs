//! Outcomes that were delivered, tasks that are forgotten, and what is kept no longer.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::answers::{Acknowledgement, Forgotten, Reaped, Retention};
use super::blobs::{MOST_UNREMOVED, begin_anywhere, for_a_while, place_of};
use super::key::{SessionKey, TaskKey, is_session, numbers};
use super::record::{Acknowledged, MOST_CONSUMER_BYTES, Mark, Session, Stored, put};
use super::{Ownership, TRIES, contended, draw};
use crate::error::Error;
use crate::model::{Invalid, Run, RunId, RunStatus, Task, Timestamp};
use crate::rules::{self, Moment};
use crate::store::{Decision, PageRequest, RefusedKind, RunFilter, StoreError, TaskChange, TaskWrite};

/// The most sessions that are looked at in one call.
const PAGE: usize = 1000;

impl Ownership {
    /// Says that a consumer has had the outcome of a run: it is kept no longer than its retention then. The first
    /// acknowledgement counts.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the consumer's name is none; [`Error::Store`]: acknowledge it again.
    pub async fn ack(&self, key: &TaskKey, run: u32, consumer: &str) -> Result<Acknowledgement, Error> {
        check_consumer(consumer)?;
        let _turn = self.turn(&key.session).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(stored) = self.stored(&key.session).await? else { return Ok(Acknowledgement::NotFound) };
            match stored.session.mark(key.task) {
                Mark::None => return Ok(Acknowledgement::NotFound),
                Mark::Expired => return Ok(Acknowledgement::Expired),
                Mark::Run(latest) if latest > run => return Ok(Acknowledgement::Superseded),
                Mark::Run(latest) if latest < run => return Ok(Acknowledgement::NotFound),
                Mark::Run(_) => {}
            }
            if stored.session.is_acknowledged(key.task, run).is_some() {
                return Ok(Acknowledgement::Acknowledged);
            }
            match self.run(key, run).await? {
                None => return Ok(Acknowledgement::Expired),
                Some(found) if !found.status.is_terminal() => return Ok(Acknowledgement::NotTerminal),
                Some(_) => {}
            }
            let mut session = stored.session.clone();
            let acknowledged = Acknowledged { run, by: consumer.into(), at: moment.now };
            session.acknowledged.insert(key.task, acknowledged);
            if self.commit(written(&stored, &session, moment.now)?).await?.is_ok() {
                return Ok(Acknowledgement::Acknowledged);
            }
        }
        Err(contended(key))
    }

    /// Removes a task that nobody executes: its runs with their outcomes and snapshots are gone for every replica,
    /// in one step (P11, P12). What the hook of the host kept of them is removed after that: what it fails to remove is
    /// asked for again, when it is forgotten again, and by who looks after what is over. Where a thousand places of its
    /// session wait for that, the hook is asked for them first; if it removes none, the task is kept
    /// ([`Forgotten::HeldUp`]).
    ///
    /// # Errors
    /// [`Error::Store`]: it may have been forgotten; ask again.
    pub async fn forget(&self, key: &TaskKey) -> Result<Forgotten, Error> {
        let until = for_a_while();
        let mut forgotten = self.forget_record(key).await?;
        if matches!(forgotten, Forgotten::HeldUp { .. }) {
            // Here, for nobody else may look after it: the hook may work again.
            self.clear_now_or_later(key, until).await;
            forgotten = self.forget_record(key).await?;
        }
        if forgotten == Forgotten::Forgotten {
            self.clear_now_or_later(key, until).await;
        }
        Ok(forgotten)
    }

    async fn clear_now_or_later(&self, key: &TaskKey, until: Instant) {
        if let Err(error) = self.clear(&key.session, until).await {
            tracing::warn!(task = %key, %error, "what is over is removed later from where it was kept");
        }
    }

    async fn forget_record(&self, key: &TaskKey) -> Result<Forgotten, Error> {
        let _turn = self.turn(&key.session).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(stored) = self.stored(&key.session).await? else { return Ok(Forgotten::NotFound) };
            let latest = match stored.session.mark(key.task) {
                Mark::None => return Ok(Forgotten::NotFound),
                Mark::Expired => return Ok(Forgotten::Forgotten),
                Mark::Run(latest) => latest,
            };
            let mut session = stored.session.clone();
            session.expire(key.task);
            let mut decision = Decision::default();
            for number in 1..=latest {
                let Some(run) = self.run(key, number).await? else { continue };
                if run.status.is_held() {
                    let state = self.inspect(key).await?;
                    return Ok(Forgotten::StillRunning { state });
                }
                if let Ok(write) = rules::give_up(&run, "it was forgotten", again(moment)) {
                    decision.runs.push(write);
                }
                session.unremoved.extend(place_of(&run));
                decision.forget.push(run.run_id);
            }
            let waiting = stored.session.unremoved.len();
            // As long as the hook fails no more is left to it.
            if waiting >= MOST_UNREMOVED && session.unremoved.len() > waiting {
                return Ok(Forgotten::HeldUp { waiting });
            }
            decision.task = written(&stored, &session, moment.now)?.task;
            if self.commit(decision).await?.is_ok() {
                return Ok(Forgotten::Forgotten);
            }
        }
        Err(contended(key))
    }

    /// Removes what was kept long enough, a batch of sessions in each call: outcomes, then sessions of which nothing
    /// is left. Then hooks are asked for ten seconds to remove what they kept of those sessions. Several hosts may do
    /// so at once.
    ///
    /// # Errors
    /// [`Error::Store`]: some may have been removed; the next call goes on.
    pub async fn reap(&self, retention: Retention) -> Result<Reaped, Error> {
        let cursor = self.reaped.lock().clone();
        let limit = retention.batch.clamp(1, PAGE);
        let page = self.store.tasks(PageRequest { limit, cursor }).await?;
        let mut reaped = Reaped { more: page.next.is_some(), ..Reaped::default() };
        let mut waiting = Vec::new();
        for (task, _) in page.items.into_iter().filter(|(task, _)| is_session(&task.spec.task_id)) {
            waiting.extend(passed_over(self.reap_one(task, retention, &mut reaped).await)?.flatten());
        }
        *self.reaped.lock() = page.next;
        if reaped.undelivered > 0 {
            metrics::counter!("tenure_ownership_undelivered_total").increment(reaped.undelivered as u64);
        }
        self.clear_all(waiting).await?;
        Ok(reaped)
    }

    /// Has hooks remove what these sessions note, as many as there is time for. It begins anywhere among them: one for
    /// which a hook takes all the time keeps the others from their turn once, and not each time.
    async fn clear_all(&self, mut waiting: Vec<SessionKey>) -> Result<(), Error> {
        let until = for_a_while();
        begin_anywhere(&mut waiting);
        for key in waiting {
            passed_over(self.clear_in_turn(&key, until).await)?;
        }
        Ok(())
    }

    /// Answers the session, if hooks keep something of it that is over.
    async fn reap_one(
        &self,
        task: Task,
        retention: Retention,
        reaped: &mut Reaped,
    ) -> Result<Option<SessionKey>, Error> {
        let stored = Stored::read(task, None)?;
        let key = stored.session.key.clone();
        if self.admits(&key).is_err() {
            return Ok(None);
        }
        Ok(self.reap_session(stored, retention, reaped).await?.then_some(key))
    }

    /// Answers whether its session notes what is to be removed elsewhere.
    async fn reap_session(
        &self,
        stored: Stored,
        retention: Retention,
        reaped: &mut Reaped,
    ) -> Result<bool, Error> {
        let moment = self.moment().await?;
        let (session, key) = (&stored.session, &stored.session.key);
        let (mut found, mut kept, mut lost) = (Over::default(), BTreeSet::new(), Vec::new());
        let filter = RunFilter { task_id: Some(stored.task.spec.task_id.clone()), ..RunFilter::default() };
        self.each_run(filter, |run| {
            let Some((task, number)) = numbers(run.name()) else { return };
            // Also what cannot be read is kept: it is shown as such.
            kept.insert(task);
            match run.run() {
                Some(run) if run.status == RunStatus::Lost => lost.push(run),
                Some(run) => found.look(session, task, number, &run, retention, moment),
                None => {}
            }
        })
        .await?;
        for run in lost {
            let since = self.lost_since(&run).await?;
            if since.plus(retention.unacknowledged.duration()) <= moment.now {
                found.given_up.extend(rules::give_up(&run, "it stayed lost", again(moment)).ok());
            }
        }
        // What was pruned with all else that ended is expired as well.
        let pruned = session.tasks.keys().filter(|task| !kept.contains(task));
        found.expired.extend(pruned.map(|task| (*task, session.acknowledged.contains_key(task))));
        if !found.is_nothing() {
            return self.remove(&stored, found, moment, reaped).await;
        }
        if !session.unremoved.is_empty() {
            return Ok(true);
        }
        let empty = kept.is_empty() && session.tasks.is_empty();
        if empty && stored.task.updated_at.plus(retention.sessions.duration()) <= moment.now {
            let write = TaskWrite {
                task_id: key.id()?,
                expect: Some(stored.task.revision),
                change: TaskChange::Delete,
                events: Vec::new(),
            };
            let gone = self.commit(Decision { task: Some(write), ..Decision::default() }).await?;
            reaped.sessions += usize::from(gone.is_ok());
        }
        Ok(false)
    }

    /// Who continues a task meanwhile has changed the session: then nothing is removed now (P12).
    async fn remove(
        &self,
        stored: &Stored,
        found: Over,
        moment: Moment,
        reaped: &mut Reaped,
    ) -> Result<bool, Error> {
        let mut session = stored.session.clone();
        found.expired.iter().for_each(|(task, _)| session.expire(*task));
        session.unremoved.extend(found.places);
        let mut decision = written(stored, &session, moment.now)?;
        let given_up = found.given_up.len();
        decision.runs = found.given_up;
        decision.forget = found.forget;
        if self.commit(decision).await?.is_ok() {
            reaped.tasks += found.expired.len();
            reaped.undelivered += found.expired.iter().filter(|(_, delivered)| !delivered).count();
            reaped.given_up += given_up;
        }
        Ok(!session.unremoved.is_empty())
    }

    /// The revision of a session, as a start carries it; 0 if there is no such session.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn revision(&self, key: &SessionKey) -> Result<u64, Error> {
        Ok(self.stored(key).await?.map_or(0, |stored| stored.session.revision))
    }

    /// When a lost run was declared so: it may have run for longer than anything is kept.
    async fn lost_since(&self, run: &Run) -> Result<Timestamp, Error> {
        let attempt = self.store.attempts(&run.run_id).await?.pop();
        let declared = attempt.and_then(|attempt| attempt.finished_at);
        Ok(declared.or(run.attempt_started_at).unwrap_or(run.spec.queued_at))
    }
}

/// What of a session was kept long enough.
#[derive(Default)]
struct Over {
    /// Tasks, and whether their outcome was acknowledged.
    expired: Vec<(u64, bool)>,
    forget: Vec<RunId>,
    /// Where the hook keeps what belonged to them.
    places: BTreeSet<Arc<str>>,
    given_up: Vec<crate::store::RunWrite>,
}

impl Over {
    fn is_nothing(&self) -> bool {
        self.expired.is_empty() && self.forget.is_empty() && self.given_up.is_empty()
    }

    fn look(
        &mut self,
        session: &Session,
        task: u64,
        number: u32,
        run: &Run,
        retention: Retention,
        moment: Moment,
    ) {
        let Some(finished_at) = run.finished_at else { return };
        let acknowledged = session.is_acknowledged(task, number);
        let (since, length) = match acknowledged {
            Some(acknowledged) => (acknowledged.at, retention.acknowledged),
            None => (finished_at, retention.unacknowledged),
        };
        if since.plus(length.duration()) > moment.now {
            return;
        }
        if let Some(place) = place_of(run) {
            if session.unremoved.len() + self.places.len() >= MOST_UNREMOVED {
                // As long as the hook fails no more is left to it.
                return;
            }
            self.places.insert(place);
        }
        self.forget.push(run.run_id.clone());
        if session.tasks.get(&task) == Some(&number) {
            self.expired.push((task, acknowledged.is_some()));
        }
    }
}

fn written(stored: &Stored, session: &Session, now: Timestamp) -> Result<Decision, Error> {
    let write = put(Some(stored), session, now)?;
    Ok(Decision { task: Some(write.task), schedule: write.schedule, ..Decision::default() })
}

/// The same instant for another write.
fn again(moment: Moment) -> Moment {
    Moment { stamp: draw(), ..moment }
}

/// None if it concerns one record alone: others are looked after all the same.
fn passed_over<T>(looked: Result<T, Error>) -> Result<Option<T>, Error> {
    use RefusedKind::{Corrupt, Invalid, NewerSchema};
    match looked {
        Err(Error::Store(error @ StoreError::Refused { kind: Corrupt | Invalid | NewerSchema, .. })) => {
            tracing::warn!(%error, "a session is left as it is");
            Ok(None)
        }
        looked => looked.map(Some),
    }
}

fn check_consumer(consumer: &str) -> Result<(), Error> {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if (1..=MOST_CONSUMER_BYTES).contains(&consumer.len()) && consumer.chars().all(known) {
        return Ok(());
    }
    let shown: String = consumer.chars().take(MOST_CONSUMER_BYTES).collect();
    let expected =
        format!("1 to {MOST_CONSUMER_BYTES} of letters, digits, \"_\", \".\" and \"-\", found {shown:?}");
    Err(Error::Invalid(Invalid::one("consumer", expected)))
}
