//! Runs: asked for, waited for, done again, answered.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Decided, Tenure};
use crate::error::Error;
use crate::instance::Fate;
use crate::model::{
    ApprovalAnswer, Attempt, EventKind, Idempotency, Place, Run, RunId, RunStatus, Subject, Task, TaskId,
    Timestamp, Trigger, WaitReason, Waiting,
};
use crate::rules::{self, Moment, Wanted};
use crate::store::{Page, PageRequest, Refusal, RunFilter};

/// How often a run that may settle on another host is looked at.
const WAIT_POLL: Duration = Duration::from_secs(1);

/// How long a page of a listing is looked for: a list with its total is to take less than 50 ms.
const PAGE_TIME: Duration = Duration::from_millis(20);

/// What a caller asks of a task.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// Another query than the task's.
    pub query: Option<Arc<str>>,
    /// The same key within a task gives the same run.
    pub idempotency_key: Option<Arc<str>>,
    /// Run though the task is paused.
    pub override_pause: bool,
}

impl RunRequest {
    /// Tells two requests apart that come with the same key.
    fn digest(&self) -> u64 {
        // The seed is fixed: the digest is stored, and compared by other starts of the program.
        let mut hasher = foldhash::fast::FixedState::with_seed(0x7465_6e75).build_hasher();
        hasher.write(self.query.as_deref().unwrap_or_default().as_bytes());
        hasher.write_u8(u8::from(self.query.is_some()) | u8::from(self.override_pause) << 1);
        hasher.finish()
    }
}

/// A run, and whether it has settled.
#[derive(Debug, Clone)]
pub struct RunState {
    /// The run.
    pub run: Run,
    /// Whether it is terminal or waits for a person.
    pub settled: bool,
}

/// The filter, without what hosts execute themselves unless it names that.
pub(super) fn ordinary(filter: RunFilter) -> RunFilter {
    let named = filter.task_id.is_some() || filter.agent_id.is_some();
    RunFilter { owned: filter.owned.or(if named { None } else { Some(false) }), ..filter }
}

impl Tenure {
    /// Wants a run of a task now. Its overlap policy decides: the answer may be a skipped run.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Paused`], [`Error::KeyConflict`], [`Error::Draining`], [`Error::Store`].
    ///
    /// Cancel safety: the run may have been queued when the future is dropped; an idempotency key tells.
    pub async fn run_now(&self, task_id: &TaskId, request: RunRequest) -> Result<Run, Error> {
        let (task, _) = self.task(task_id).await?;
        if !task.spec.enabled && !request.override_pause {
            // Who asks again has their run, whatever became of the task meanwhile.
            let before = self.asked_before(task_id, &request).await?;
            return before.ok_or_else(|| Error::Paused { task_id: task_id.clone() });
        }
        self.want(task, request, Trigger::Manual, None).await
    }

    /// The run that was made for this request, if it has a key and is made again.
    async fn asked_before(&self, task_id: &TaskId, request: &RunRequest) -> Result<Option<Run>, Error> {
        let Some(key) = &request.idempotency_key else { return Ok(None) };
        let found = self.instance.store.run_by_key(task_id, key).await?;
        let of_another = |run: &Run| {
            let digest = run.spec.idempotency.as_ref().map(|idempotency| idempotency.digest);
            digest != Some(request.digest())
        };
        match found {
            Some(run) if of_another(&run) => Err(Error::KeyConflict { run_id: run.run_id }),
            found => Ok(found),
        }
    }

    /// Does an ended run again, as a new run of its task, by the task as it is now (rulings).
    ///
    /// # Errors
    /// [`Error::NotFound`] also when the task is gone; [`Error::WrongState`] when the run has not ended.
    pub async fn retry(&self, run_id: &RunId, request: RunRequest) -> Result<Run, Error> {
        let run = self.run(run_id).await?;
        if !run.status.is_terminal() {
            return Err(Error::WrongState {
                run_id: run_id.clone(),
                status: run.status,
                expected: "an ended run; cancel it first",
            });
        }
        let task_id = &run.spec.task_id;
        let (task, _) = self.task(task_id).await?;
        let query = request.query.clone().or_else(|| Some(Arc::clone(&run.spec.query)));
        let request = RunRequest { query, override_pause: true, ..request };
        self.want(task, request, Trigger::Retry, Some(run.run_id)).await
    }

    async fn want(
        &self,
        task: Task,
        request: RunRequest,
        trigger: Trigger,
        retry_of: Option<RunId>,
    ) -> Result<Run, Error> {
        if self.instance.is_draining() {
            return Err(Error::Draining);
        }
        let idempotency =
            request.idempotency_key.clone().map(|key| Idempotency { key, digest: request.digest() });
        let run_id = RunId::generate();
        let mut task = task;
        for refusals in 0..super::TRIES {
            super::step_aside(refusals).await;
            let mut plan = self.instance.plan(&task).await?;
            // After the look at the lane: what was seen there happened before.
            let moment = self.instance.moment().await?;
            let wanted = Wanted {
                trigger,
                query: request.query.clone(),
                idempotency: idempotency.clone(),
                retry_of: retry_of.clone(),
                override_pause: request.override_pause,
                ..Wanted::now(run_id.clone(), moment.now)
            };
            let run = match plan.want(wanted, moment, self.instance.settings().patience) {
                Fate::Run(run) => *run,
                // Only what a schedule wants is coalesced; the run that stands for it is the answer.
                Fate::Coalesced(into) => return self.run(&into).await,
            };
            match self.instance.commit_one(plan.decision).await? {
                Ok(()) => return Ok(run),
                Err(Refusal::KeyExists { run_id, digest }) => {
                    return match &idempotency {
                        Some(ours) if ours.digest == digest => self.run(&run_id).await,
                        _ => Err(Error::KeyConflict { run_id }),
                    };
                }
                Err(Refusal::StaleTask { task_id, .. }) => {
                    let found = self.instance.store.task(&task_id).await?;
                    task = found.ok_or_else(|| Error::no_task(&task_id))?.0;
                }
                Err(refusal) => tracing::debug!(%refusal, "decided again"),
            }
        }
        Err(Error::Contended { what: format!("task \"{}\"", task.spec.task_id) })
    }

    /// Answers a run that waits for a person; it is queued again, and its next attempt receives the answer.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::WrongState`] when it does not wait for a person; [`Error::Invalid`] for an answer
    /// of more than [`Approval::MOST_DATA_BYTES`](crate::model::Approval::MOST_DATA_BYTES).
    pub async fn resume_run(&self, run_id: &RunId, answer: ApprovalAnswer) -> Result<Run, Error> {
        rules::check_answer(&answer)?;
        self.decide(&format!("run \"{run_id}\""), |moment: Moment| {
            let answer = answer.clone();
            async move {
                let run = self.run(run_id).await?;
                let write = rules::resume(&run, answer, moment).map_err(|moved| Error::WrongState {
                    run_id: run_id.clone(),
                    status: moved.0,
                    expected: RunStatus::AwaitingApproval.as_str(),
                })?;
                let run = write.run.clone();
                Ok(Decided::write(write, run))
            }
        })
        .await
    }

    // --- reading ----------------------------------------------------------------------------------------

    /// A run.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn run(&self, run_id: &RunId) -> Result<Run, Error> {
        self.instance.store.run(run_id).await?.ok_or_else(|| Error::no_run(run_id))
    }

    /// Runs, the newest first. Those that hosts execute themselves are left out unless the filter asks for them,
    /// or for their task.
    ///
    /// A page may be shorter than its limit, even empty, while it has a cursor: of many runs that the filter does not
    /// let through no more are looked at than there is time for.
    ///
    /// # Errors
    /// [`Error::Store`]; refused as invalid for a cursor of another listing.
    pub async fn runs(&self, filter: RunFilter, page: PageRequest) -> Result<Page<Run>, Error> {
        let filter = ordinary(filter);
        let (until, limit) = (Instant::now() + PAGE_TIME, page.limit);
        let mut all = self.instance.store.runs(filter.clone(), page).await?;
        while let Some(cursor) = &all.next
            && let left = limit.saturating_sub(all.items.len() + all.corrupt.len())
            && left > 0
            && Instant::now() < until
        {
            let page = PageRequest { limit: left, cursor: Some(cursor.clone()) };
            let Page { items, next, corrupt } = self.instance.store.runs(filter.clone(), page).await?;
            all.items.extend(items);
            all.corrupt.extend(corrupt);
            all.next = next;
        }
        Ok(all)
    }

    /// The attempts of a run, in order.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn attempts(&self, run_id: &RunId) -> Result<Vec<Attempt>, Error> {
        self.run(run_id).await?;
        Ok(self.instance.store.attempts(run_id).await?)
    }

    /// Waits until a run is terminal or waits for a person; no longer than the limit, if there is one. The
    /// run goes on whoever waits.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn wait(&self, run_id: &RunId, limit: Option<Duration>) -> Result<RunState, Error> {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            // From before the look: what settles after it is told.
            let mut waiter = self.instance.waiters.wait_for(run_id);
            let run = tokio::select! {
                biased;
                told = waiter.settled() => match told {
                    Some(run) => run,
                    // The look may have begun before: another one sees it.
                    None => continue,
                },
                run = self.run(run_id) => run?,
            };
            let over = until.is_some_and(|until| until <= Instant::now());
            if run.status.is_settled() || over {
                return Ok(RunState { settled: run.status.is_settled(), run });
            }
            let poll = Instant::now() + self.instance.settings().poll.min(WAIT_POLL);
            let next = until.map_or(poll, |until| until.min(poll));
            tokio::select! {
                run = waiter.settled() => if let Some(run) = run {
                    return Ok(RunState { run, settled: true });
                },
                () = sleep(next.duration_since(Instant::now())) => {}
            }
        }
    }

    /// Why a run waits, and since when (T5); none if it does not wait.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn waiting(&self, run: &Run) -> Result<Option<Waiting>, Error> {
        let given_back = self.given_back(run).await?;
        let reason = match &run.place {
            _ if run.status == RunStatus::AwaitingApproval => WaitReason::Approval,
            Place::Nowhere => return Ok(None),
            Place::Future => match &given_back {
                Some((because, _)) => WaitReason::Busy { because: Arc::clone(because) },
                None => WaitReason::NotDue { until: run.due_at },
            },
            Place::Paused => WaitReason::Paused,
            Place::Lane { lane } => {
                WaitReason::LaneFull { lane: Arc::clone(lane), holders: self.holders(lane, run).await? }
            }
            Place::Ready if self.is_paused(run).await? => WaitReason::Paused,
            Place::Ready if self.instance.agent(&run.spec.agent_id).is_none() => {
                WaitReason::NoAgent { agent_id: run.spec.agent_id.clone() }
            }
            Place::Ready => self.full_lane(run).await?.unwrap_or(WaitReason::Worker),
        };
        let since = match &run.approval {
            Some(approval) if run.status == RunStatus::AwaitingApproval => approval.asked_at,
            // Of one that never began it is since it was due, however often it was given back since.
            _ => match given_back {
                Some(_) if run.attempt == 0 => run.spec.first_due_at,
                Some((_, at)) => at,
                None if run.place == Place::Future => run.spec.queued_at,
                None => run.due_at,
            },
        };
        Ok(Some(Waiting { reason, since }))
    }

    /// Why and when its last host gave it back before an attempt began, if nothing else happened to it since and
    /// it is not tried again yet.
    async fn given_back(&self, run: &Run) -> Result<Option<(Arc<str>, Timestamp)>, Error> {
        if run.status != RunStatus::Queued || run.place != Place::Future || run.fence == 0 {
            return Ok(None);
        }
        let before = run.last_event.saturating_sub(1);
        let events = self.instance.store.events(Subject::Run(run.run_id.clone()), before, 1).await?;
        Ok(events.first().and_then(|event| {
            let unstarted = event.event == EventKind::Interrupted && event.data["started"] == false;
            let because = event.data["reason"].as_str().filter(|_| unstarted)?;
            Some((Arc::from(because), event.timestamp))
        }))
    }

    /// Whether its task was paused after it became ready.
    async fn is_paused(&self, run: &Run) -> Result<bool, Error> {
        let task = self.instance.store.task(&run.spec.task_id).await?;
        Ok(!run.spec.override_pause && task.is_some_and(|(task, _)| !task.spec.enabled))
    }

    /// A lane that became full after the run became ready.
    async fn full_lane(&self, run: &Run) -> Result<Option<WaitReason>, Error> {
        for lane in &run.spec.lanes {
            let holders = self.holders(&lane.name, run).await?;
            if holders.len() >= usize::try_from(lane.limit).unwrap_or(usize::MAX) {
                return Ok(Some(WaitReason::LaneFull { lane: Arc::clone(&lane.name), holders }));
            }
        }
        Ok(None)
    }

    /// The other runs that take room in a lane.
    async fn holders(&self, lane: &str, run: &Run) -> Result<Vec<RunId>, Error> {
        let active = self.instance.store.lane(lane).await?.active.into_iter();
        let holders = active.filter(|other| other.status.takes_room()).map(|other| other.run_id);
        Ok(holders.filter(|holder| *holder != run.run_id).collect())
    }
}
