//! Operations: O1 to O24 and the guarantees H1 to H7 of the supervision contract.
//!
//! Most scenarios run twice, through the handle and through the actor's own messages.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

#[path = "support/bench.rs"]
mod bench;

#[path = "operations/via.rs"]
mod via;

#[path = "operations/reserving.rs"]
mod reserving;

#[path = "operations/releasing.rs"]
mod releasing;

#[path = "operations/dropping.rs"]
mod dropping;

#[path = "operations/listing.rs"]
mod listing;

#[path = "operations/closing.rs"]
mod closing;

#[path = "operations/sessions.rs"]
mod sessions;

#[path = "operations/racing.rs"]
mod racing;

#[path = "operations/model.rs"]
mod model;
