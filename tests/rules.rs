//! The rules as whole tables: one snapshot a grid.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

#[path = "support/zones.rs"]
mod zones;

#[path = "rules/due.rs"]
mod due;
#[path = "rules/misfire.rs"]
mod misfire;
#[path = "rules/runs.rs"]
mod runs;
