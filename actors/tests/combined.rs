//! Operations and processes together: C1 to C8 of the supervision contract, with processes of every kind.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

#[path = "support/bench.rs"]
mod bench;

#[path = "support/traced.rs"]
mod traced;

#[path = "combined/kinds.rs"]
mod kinds;

#[path = "combined/starting.rs"]
mod starting;

#[path = "combined/ending.rs"]
mod ending;

#[path = "combined/crashing.rs"]
mod crashing;

#[path = "combined/cancelling.rs"]
mod cancelling;

#[path = "combined/observing.rs"]
mod observing;
