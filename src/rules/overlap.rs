//! What happens when a run is wanted while others of its task are active (contract, section 5).

use crate::model::{OverlapPolicy, RunId, RunStatus, Trigger};
use crate::store::LaneView;

/// What becomes of a run that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// It is queued; its lanes make it wait.
    Queue,
    /// It is recorded as skipped, because of this run.
    Skip {
        /// The run that blocks it.
        blocked_by: RunId,
    },
    /// It is not made: this queued run stands for it.
    Coalesce {
        /// That run.
        into: RunId,
    },
    /// It is queued, and these are cancelled.
    Replace {
        /// The older runs.
        cancel: Vec<RunId>,
    },
}

/// Decides on the lane of the task as it stands; the decision holds if the lane has not moved.
#[must_use]
pub fn overlap(policy: OverlapPolicy, trigger: Trigger, lane: &LaneView) -> Overlap {
    match policy {
        OverlapPolicy::AllowParallel => Overlap::Queue,
        OverlapPolicy::SkipIfRunning => match blocking(lane) {
            Some(blocked_by) => Overlap::Skip { blocked_by },
            None => Overlap::Queue,
        },
        OverlapPolicy::QueueNext => match &lane.scheduled_waiting {
            Some(into) if trigger == Trigger::Schedule => Overlap::Coalesce { into: into.clone() },
            _ => Overlap::Queue,
        },
        OverlapPolicy::CancelPrevious => {
            let cancel: Vec<RunId> = lane.active.iter().map(|run| run.run_id.clone()).collect();
            if cancel.is_empty() { Overlap::Queue } else { Overlap::Replace { cancel } }
        }
    }
}

/// The run that blocks others: one that executes before one that only waits.
fn blocking(lane: &LaneView) -> Option<RunId> {
    let executes = |status: RunStatus| status.takes_room();
    let first = lane.active.iter().find(|run| executes(run.status)).or(lane.active.first());
    first.map(|run| run.run_id.clone())
}
