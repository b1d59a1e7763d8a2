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
