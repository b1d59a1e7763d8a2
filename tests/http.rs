//! The HTTP interface, through a listener on loopback and a client as others have them (contract
//! durable-tasks.md, section 10).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by panicking")]
#![cfg(feature = "http")]

#[path = "http/answers.rs"]
mod answers;
#[path = "http/bad_input.rs"]
mod bad_input;
#[path = "http/deletes.rs"]
mod deletes;
#[path = "http/documentation.rs"]
mod documentation;
#[path = "http/events.rs"]
mod events;
#[path = "http/files.rs"]
mod files;
#[path = "http/health.rs"]
mod health;
#[path = "http/many.rs"]
mod many;
#[path = "support/outside.rs"]
mod outside;
#[path = "http/ownership.rs"]
mod ownership;
#[path = "support/pattern.rs"]
mod pattern;
#[path = "http/runs.rs"]
mod runs;
#[path = "http/schema.rs"]
mod schema;
#[path = "support/servers.rs"]
mod servers;
#[path = "http/support.rs"]
mod support;
#[path = "http/tasks.rs"]
mod tasks;
#[path = "http/who.rs"]
mod who;
