//! The rules as whole tables: one snapshot a grid.

#[path = "support/zones.rs"]
mod zones;

#[path = "rules/due.rs"]
mod due;
#[path = "rules/misfire.rs"]
mod misfire;
#[path = "rules/runs.rs"]
mod runs;
