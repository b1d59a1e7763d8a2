//! Tests of supervised code: scenarios on a virtual clock, their transcripts, and workers that do as they are
//! told.
//!
//! ```
//! use tenure_actors::testkit::{Scenario, Script};
//!
//! let transcript = Scenario::new("one process commits and ends").run(async |stage| {
//!     stage.registry().start("feed/42", Script::new().at(10).commit("3 rows").function("fetch")).await?;
//!     stage.at(20).await;
//!     Ok(())
//! });
//! assert_eq!(transcript.verdict().applied, 1);
//! // insta::assert_snapshot!(transcript);
//! ```
//!
//! What each part is for:
//!
//! | part | for |
//! |---|---|
//! | [`Scenario`], [`Stage`] | running a story several times, in several orders, on a virtual clock |
//! | [`Transcript`], [`Recording`], [`Verdict`] | what happened, as text that is compared, and whether it adds up |
//! | [`Script`], [`Worker`], [`incarnations`] | processes, objects and services that act at given instants |
//! | [`Door`], [`Guards`] | holding code where a test wants it, and knowing that it is gone |
//! | [`fail_supervisor`], [`fail_registry`], [`fail_operations`] | failures of the kernel itself |
//! | [`Balance`] | the same sums in a test that needs no transcript |
//! | [`open_shuffled`] | the same disorder in a test that is no scenario |
//!
//! The kit needs tokio's paused clock on a current-thread runtime, which [`Scenario`] makes itself. What it
//! cannot steer: threads and real I/O, under which the virtual clock may jump, and the branch that an unbiased
//! `tokio::select!` takes.

mod balance;
mod door;
mod faults;
mod idle;
mod quiet;
mod scenario;
mod shuffle;
mod transcript;
mod worker;

pub use balance::Balance;
pub use door::{Door, Guard, Guards};
pub use faults::{fail_operations, fail_registry, fail_supervisor};
pub use scenario::{Failure, Outcomes, Scenario, Stage};
pub use shuffle::open_shuffled;
pub use transcript::{FOLD_FROM, LedgerEntry, Recording, Transcript, Verdict};
pub use worker::{Script, Worker, incarnations};
