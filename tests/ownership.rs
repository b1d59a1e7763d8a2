//! Hosts that execute what they own, and the tasks of conversations, by the ids of the contract: several hosts on one
//! store, on a clock that the tests move. What the verbs promise on every store is in the conformance suite.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "ownership/blobs.rs"]
mod blobs;
#[path = "ownership/conversations.rs"]
mod conversations;
#[path = "ownership/faults.rs"]
mod faults;
#[path = "ownership/growth.rs"]
mod growth;
#[path = "ownership/hosts.rs"]
mod hosts;
#[path = "ownership/interleavings.rs"]
mod interleavings;
#[path = "ownership/journal.rs"]
mod journal;
#[path = "ownership/json.rs"]
mod json;
#[path = "ownership/replicas.rs"]
mod replicas;
#[path = "ownership/threads.rs"]
mod threads;
#[path = "../actors/tests/support/traced.rs"]
mod traced;
#[path = "ownership/verdicts.rs"]
mod verdicts;
