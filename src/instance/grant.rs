//! Which runs this host is granted: those of its agents, by way of the store, or those of one task alone.
//!
//! A store claims by agent. The runs of one task that wait are few: each is granted by a decision of its own,
//! on its lanes as they stand, so that a store need not know of the distinction.

use std::sync::Arc;
use std::time::Duration;

use super::Instance;
use crate::model::{Lease, Run, RunStatus, Task, TaskId, Timestamp};
use crate::rules::{self, Moment};
use crate::settings::Duty;
use crate::store::{ClaimRequest, Decision, LaneExpect, PageRequest, RunFilter, StoreError};

/// The most waiting runs of one task that are looked at: the newest of them.
const PAGE: usize = 500;

impl Instance {
    pub(super) async fn grant(&self, request: ClaimRequest) -> Result<Vec<Run>, StoreError> {
        match &self.settings().duty {
            Duty::OneTask(task_id) => self.grant_of_task(task_id, &request).await,
            Duty::Everything | Duty::Nothing => self.vitals.watch(self.store.claim(request)).await,
        }
    }

    async fn grant_of_task(&self, task_id: &TaskId, request: &ClaimRequest) -> Result<Vec<Run>, StoreError> {
        let Some((task, _)) = self.vitals.watch(self.store.task(task_id)).await? else {
            return Ok(Vec::new());
        };
        let waiting = self.waiting_of(task_id).await?;
        let moment = self.moment().await?;
        let mut granted = Vec::new();
        for run in waiting {
            if granted.len() == request.limit {
                break;
            }
            if is_granted(&run, request) {
                granted.push(run);
            } else if may_begin(&run, &task, request, moment.now) {
                granted.extend(self.grant_one(&run, request, moment).await?);
            }
        }
        Ok(granted)
    }

    /// How long until a run of this task is due; none if none is.
    pub(super) async fn next_of_task(&self, task_id: &TaskId) -> Result<Option<Duration>, StoreError> {
        let waiting = self.waiting_of(task_id).await?;
        let now = self.vitals.watch(self.store.now()).await?;
        let later = waiting.iter().map(|run| run.due_at).filter(|due_at| *due_at > now);
        Ok(later.min().map(|due_at| due_at.since(now)))
    }

    /// In the order in which they are claimed.
    async fn waiting_of(&self, task_id: &TaskId) -> Result<Vec<Run>, StoreError> {
        let filter = RunFilter {
            task_id: Some(task_id.clone()),
            statuses: vec![RunStatus::Queued, RunStatus::Retrying, RunStatus::Claimed],
            ..RunFilter::default()
        };
        let page = PageRequest { limit: PAGE, cursor: None };
        let mut runs = self.vitals.watch(self.store.runs(filter, page)).await?.items;
        runs.reverse();
        runs.sort_by_key(|run| (std::cmp::Reverse(run.spec.priority), run.due_at));
        Ok(runs)
    }

    /// Grants a run if its lanes have room; none if they have not, or others were first.
    async fn grant_one(
        &self,
        run: &Run,
        request: &ClaimRequest,
        moment: Moment,
    ) -> Result<Option<Run>, StoreError> {
        let mut lanes = Vec::with_capacity(run.spec.lanes.len());
        for lane in &run.spec.lanes {
            let view = self.vitals.watch(self.store.lane(&lane.name)).await?;
            let holding = view.active.iter();
            let holding = holding.filter(|other| other.status.takes_room() && other.run_id != run.run_id);
            if holding.count() >= usize::try_from(lane.limit).unwrap_or(usize::MAX) {
                return Ok(None);
            }
            lanes.push(LaneExpect { name: Arc::clone(&lane.name), version: view.version });
        }
        let moment = Moment { stamp: self.draw(), ..moment };
        let Ok(write) = rules::claim(run, self.id, request.nonce, request.lease, moment) else {
            return Ok(None);
        };
        let granted = write.run.clone();
        let answer = self.commit_one(Decision { lanes, ..Decision::from(write) }).await?;
        if let Err(refusal) = &answer {
            tracing::debug!(run = %run.run_id, %refusal, "not granted");
        }
        Ok(answer.is_ok().then_some(granted))
    }
}

/// Whether the same request was granted this run before, and its answer was lost.
fn is_granted(run: &Run, request: &ClaimRequest) -> bool {
    let ours = |lease: &Lease| lease.owner == request.instance && lease.nonce == request.nonce;
    request.repeat && run.status == RunStatus::Claimed && run.lease.as_ref().is_some_and(ours)
}

fn may_begin(run: &Run, task: &Task, request: &ClaimRequest, now: Timestamp) -> bool {
    run.status.is_waiting()
        && run.due_at <= now
        && (task.spec.enabled || run.spec.override_pause)
        && request.agents.contains(&run.spec.agent_id)
}
