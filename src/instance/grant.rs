//! Which runs this host is granted: those of its agents, by way of the store, or one run alone.
//!
//! A store claims by agent. One run is granted by a decision of its own, on its lanes as they stand, so that a store
//! need not know of the distinction.

use std::sync::Arc;
use std::time::Duration;

use super::Instance;
use crate::model::{Lease, Run, RunId, RunStatus, Timestamp};
use crate::rules::{self, Moment};
use crate::settings::Duty;
use crate::store::{ClaimRequest, Decision, LaneExpect, StoreError};

impl Instance {
    pub(super) async fn grant(&self, request: ClaimRequest) -> Result<Vec<Run>, StoreError> {
        match &self.settings().duty {
            Duty::OneRun(run_id) => Ok(self.grant_of(run_id, &request).await?.into_iter().collect()),
            Duty::Everything | Duty::Nothing => self.vitals.watch(self.store.claim(request)).await,
        }
    }

    async fn grant_of(&self, run_id: &RunId, request: &ClaimRequest) -> Result<Option<Run>, StoreError> {
        let Some(run) = self.vitals.watch(self.store.run(run_id)).await? else { return Ok(None) };
        if is_granted(&run, request) {
            return Ok(Some(run));
        }
        let moment = self.moment().await?;
        if !may_begin(&run, request, moment.now) {
            return Ok(None);
        }
        self.grant_one(&run, request, moment).await
    }

    /// How long until this run is due; none if it is, or does not wait.
    pub(super) async fn due_in(&self, run_id: &RunId) -> Result<Option<Duration>, StoreError> {
        let run = self.vitals.watch(self.store.run(run_id)).await?;
        let now = self.vitals.watch(self.store.now()).await?;
        let later = run.filter(|run| run.status.is_waiting() && run.due_at > now);
        Ok(later.map(|run| run.due_at.since(now)))
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

fn may_begin(run: &Run, request: &ClaimRequest, now: Timestamp) -> bool {
    run.status.is_waiting() && run.due_at <= now && request.agents.contains(&run.spec.agent_id)
}
