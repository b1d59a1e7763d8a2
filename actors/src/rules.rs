//! The rules of supervision, as plain functions over small values.
//!
//! | question | rule |
//! |---|---|
//! | a child ended: does it come back? | [`after_exit`] |
//! | who is stopped and started with it, in which order? | [`restart_plan`], [`stop_order`] |
//! | how often before its supervisor gives up? | [`Intensity`], [`RestartWindow`] |
//! | how long to wait before the next start? | [`Backoff`] |
//! | all of these at once | [`decide`] |
//! | how long may a child take to stop? | [`Patience`] |
//! | how is its end counted in the close report? | [`bucket`] |
//!
//! Nothing here acts, waits, reads a clock or draws a random number: instants come in as milliseconds since
//! an origin of the caller's choice that never goes back, and the one seed comes in with the question. The
//! actors are the shells that ask, perform and record.
//!
//! Where a rule follows a peer, its documentation names the case of that peer's own test suite (`OS` OTP,
//! `ES` and `ED` Elixir, `PS`, `PC` and `PB` Pekko); where it departs from one, it says so and why.

mod backoff;
mod close;
mod escalation;
mod intensity;
mod patience;
mod restart;
mod setting;
mod strategy;

pub use backoff::{Backoff, BackoffSettings};
pub use close::{Bucket, EndKind, ProcessKind, ToldToStop, bucket};
pub use escalation::{ChildEnd, ChildPolicy, Decision, RestartLimit, RestartState, Who, decide};
pub use intensity::{Admission, Intensity, RestartWindow};
pub use patience::Patience;
pub use restart::{ExitClass, Restart, Verdict, after_exit};
pub use setting::InvalidSetting;
pub use strategy::{ChildState, ChildView, Plan, Strategy, restart_plan, stop_order};
