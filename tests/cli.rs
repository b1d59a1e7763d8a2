//! The commands of the program, against the real binary: on a store, and by a server.
#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by panicking")]

#[path = "cli/acting.rs"]
mod acting;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/told.rs"]
mod told;
#[path = "support/until.rs"]
mod until;
#[path = "cli/upkeep.rs"]
mod upkeep;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/ways.rs"]
mod ways;
#[path = "cli/writes.rs"]
mod writes;
