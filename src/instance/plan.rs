//! How a run that is wanted meets those that are there: the task's overlap policy, on its lane as it stands.

use std::sync::Arc;

use super::Instance;
use crate::model::{OverlapPolicy, Run, RunId, Task};
use crate::rules::{self, Cancel, CancelRequest, Moment, Overlap, Wanted};
use crate::store::{Decision, LaneExpect, LaneRun, LaneView, RunWrite, StoreError, TaskChange, TaskWrite};

/// What becomes of runs that are wanted of one task: one decision, which holds while the task and its lane
/// stand as they were read.
pub(crate) struct Plan<'a> {
    task: &'a Task,
    lane: LaneView,
    /// The runs that a policy may cancel.
    older: Vec<Run>,
    pub(crate) decision: Decision,
}

/// What becomes of a run that is wanted.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is queued, or recorded as skipped because of another.
    Run(Box<Run>),
    /// This run stands for it.
    Coalesced(RunId),
}

impl Instance {
    pub(crate) async fn plan<'a>(&self, task: &'a Task) -> Result<Plan<'a>, StoreError> {
        let mut decision = Decision {
            task: Some(TaskWrite {
                task_id: task.spec.task_id.clone(),
                expect: Some(task.revision),
                change: TaskChange::Keep,
                events: Vec::new(),
            }),
            ..Decision::default()
        };
        let policy = task.spec.overlap_policy;
        if policy == OverlapPolicy::AllowParallel {
            return Ok(Plan { task, lane: LaneView::default(), older: Vec::new(), decision });
        }
        let name: Arc<str> = format!("task:{}", task.spec.task_id).into();
        let lane = self.vitals.watch(self.store.lane(&name)).await?;
        decision.lanes.push(LaneExpect { name, version: lane.version });
        let mut older = Vec::new();
        if policy == OverlapPolicy::CancelPrevious {
            for run in &lane.active {
                older.extend(self.vitals.watch(self.store.run(&run.run_id)).await?);
            }
        }
        Ok(Plan { task, lane, older, decision })
    }
}

impl Plan<'_> {
    /// Adds a run that is wanted, after those that were added before.
    pub(crate) fn want(&mut self, wanted: Wanted, moment: Moment, patience: std::time::Duration) -> Fate {
        match rules::overlap(self.task.spec.overlap_policy, wanted.trigger, &self.lane) {
            Overlap::Queue => self.queue(wanted, moment),
            Overlap::Coalesce { into } => Fate::Coalesced(into),
            Overlap::Skip { blocked_by } => self.add(rules::skip(self.task, wanted, blocked_by, moment)),
            Overlap::Replace { .. } => {
                let reason = format!("replaced by run \"{}\"", wanted.run_id);
                self.cancel_older(&wanted, &reason, moment, patience);
                self.queue(wanted, moment)
            }
        }
    }

    fn queue(&mut self, wanted: Wanted, moment: Moment) -> Fate {
        let trigger = wanted.trigger;
        let write = rules::enqueue(self.task, wanted, moment);
        let (run_id, status) = (write.run.run_id.clone(), write.run.status);
        if trigger == crate::model::Trigger::Schedule {
            self.lane.scheduled_waiting = Some(run_id.clone());
        }
        self.lane.active.push(LaneRun { run_id, status, trigger });
        self.add(write)
    }

    fn add(&mut self, write: RunWrite) -> Fate {
        let run = write.run.clone();
        self.decision.runs.push(write);
        Fate::Run(Box::new(run))
    }

    fn cancel_older(&mut self, wanted: &Wanted, reason: &str, moment: Moment, patience: std::time::Duration) {
        let request = CancelRequest {
            mode: crate::model::CancelMode::Cooperative,
            reason: reason.into(),
            requested_by: "overlap policy".into(),
            force_after: Some(patience),
        };
        for (n, run) in self.older.drain(..).enumerate() {
            let moment = Moment { stamp: moment.stamp.wrapping_add(1 + n as u64), ..moment };
            if let Cancel::Write(write) = rules::cancel(&run, &request, moment) {
                self.decision.runs.push(write);
            }
        }
        // Wanted by the same decision, and replaced by it: never to run.
        for write in &mut self.decision.runs {
            if write.expect == crate::store::Expect::Absent && write.run.status.is_waiting() {
                let older = Wanted { run_id: write.run.run_id.clone(), ..wanted_again(&write.run) };
                *write = rules::skip(self.task, older, wanted.run_id.clone(), moment);
            }
        }
        self.lane.active.clear();
    }
}

/// What a run that is only planned was wanted as.
fn wanted_again(run: &Run) -> Wanted {
    Wanted {
        run_id: run.run_id.clone(),
        trigger: run.spec.trigger,
        query: Some(Arc::clone(&run.spec.query)),
        due_at: run.spec.first_due_at,
        not_before: run.due_at,
        occurrence: run.spec.occurrence,
        idempotency: run.spec.idempotency.clone(),
        retry_of: run.spec.retry_of.clone(),
        override_pause: run.spec.override_pause,
    }
}
