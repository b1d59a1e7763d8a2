//! The HTTP interface, through a listener on loopback and a client as others have them (contract
//! durable-tasks.md, section 10).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by panicking")]
#![cfg(feature = "http")]

#[path = "http/support.rs"]
mod support;

#[path = "http/documentation.rs"]
mod documentation;
