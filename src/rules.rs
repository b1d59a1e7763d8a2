//! What may happen to records, as plain functions: given a snapshot they make a decision, and know no store,
//! no clock and no dice (design.md, section 4).

mod approval;
mod attempt;
mod cancel;
mod change;
mod enqueue;
mod lease;
mod overlap;
mod retry;
mod sweep;
mod transition;

pub use approval::resume;
pub use attempt::{Outcome, claim, finish, progress, release, start};
pub use cancel::{Cancel, CancelRequest, cancel};
pub use change::{Moment, Moved};
pub use enqueue::{Wanted, enqueue, session_of, skip};
pub use lease::{Verdict, reinstate, renew, verdict};
pub use overlap::{Overlap, overlap};
pub use retry::{Retry, delay, retry};
pub use sweep::{sweep, wake_at};
pub use transition::{allowed, lawful};
/// stub
pub fn reschedule(
    task_id: &crate::model::TaskId,
    _s: &crate::model::Schedule,
    before: Option<(&crate::model::Schedule, &crate::model::ScheduleState)>,
    _now: crate::model::Timestamp,
) -> Result<Option<crate::model::ScheduleState>, crate::model::Invalid> {
    Ok(Some(crate::model::ScheduleState {
        task_id: task_id.clone(),
        version: before.map_or(0, |b| b.1.version) + 1,
        last_due: None,
        place: crate::model::SchedulePlace::Idle,
    }))
}
