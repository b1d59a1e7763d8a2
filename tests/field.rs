//! Faults that users reported of other systems, impossible here: by the ids of docs/FIELD_FAULTS.md, on the store
//! in memory and a clock that the tests move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "support/kit.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod kit;

#[path = "field/cancel.rs"]
mod cancel;
#[path = "field/growth.rs"]
mod growth;
#[path = "field/leases.rs"]
mod leases;
#[path = "field/limits.rs"]
mod limits;
#[path = "field/schedules.rs"]
mod schedules;
