//! A run that asked a person goes on once it is answered.

use serde_json::json;

use super::change::{Change, Moment, Moved};
use crate::model::{ApprovalAnswer, EventKind, Run, RunStatus};
use crate::store::RunWrite;

/// Queues a run that waits for a person, with the answer for its next attempt. It obeys its overlap policy
/// again (T24): it waits like any other until there is room in its lanes.
///
/// # Errors
/// [`Moved`] when the run does not wait for a person.
pub fn resume(run: &Run, answer: ApprovalAnswer, moment: Moment) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::AwaitingApproval {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, None, moment);
    let data = json!({ "resumed": true, "approved": answer.approved });
    let resumed = change.run();
    resumed.due_at = moment.now;
    if let Some(approval) = &mut resumed.approval {
        approval.answer = Some(answer);
    }
    change.to(RunStatus::Queued).event_with(EventKind::Queued, None, data);
    Ok(change.done())
}
