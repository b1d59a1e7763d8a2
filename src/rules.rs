//! What may happen to records, as plain functions: given a snapshot they make a decision, and know no store,
//! no clock and no dice (design.md, section 4).

mod approval;
mod attempt;
mod cancel;
mod change;
mod due;
mod enqueue;
mod lease;
mod misfire;
mod overlap;
mod owned;
mod retry;
mod sweep;
mod transition;

pub use approval::resume;
pub use attempt::{Outcome, claim, finish, progress, release, start};
pub use cancel::{Cancel, CancelRequest, cancel};
pub use change::{Moment, Moved};
pub use due::{DueError, Plan};
pub use enqueue::{Wanted, enqueue, session_of, skip};
pub use lease::{Verdict, reinstate, renew, verdict};
pub use misfire::{DueOccurrence, Fate, Firing, Look, MOST_RECORDS, begin, failing, fire, replace, upcoming};
pub use overlap::{Overlap, overlap};
pub use owned::{Grant, archive, give_up, grant, hand_over, lose, supersede};
pub use retry::{Retry, delay, retry};
pub(crate) use sweep::wake_at_of;
pub use sweep::{sweep, wake_at};
pub use transition::{allowed, lawful};
