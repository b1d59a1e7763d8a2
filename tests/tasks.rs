//! Hosts keep the promises of durable tasks, by the ids of the contract, on the store in memory and a clock that
//! the tests move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "support/kit.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod kit;
#[path = "../actors/tests/support/traced.rs"]
mod traced;

#[path = "tasks/cancel.rs"]
mod cancel;
#[path = "tasks/changes.rs"]
mod changes;
#[path = "tasks/duties.rs"]
mod duties;
#[path = "tasks/embedded.rs"]
mod embedded;
#[path = "tasks/events.rs"]
mod events;
#[path = "tasks/outage.rs"]
mod outage;
#[path = "tasks/overlap.rs"]
mod overlap;
#[path = "tasks/ownership.rs"]
mod ownership;
#[path = "tasks/peer.rs"]
mod peer;
#[path = "tasks/runs.rs"]
mod runs;
#[path = "tasks/schedules.rs"]
mod schedules;
#[path = "tasks/shutdown.rs"]
mod shutdown;
#[path = "tasks/waits.rs"]
mod waits;
