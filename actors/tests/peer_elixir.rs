//! What the supervisor, registry and task suites of Elixir assert, in our terms. `docs/PEER_CASES.md` lists
//! every case.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is how a test fails")]

#[path = "peer/kit.rs"]
mod kit;

#[path = "peer/elixir/dynamic.rs"]
mod dynamic;
#[path = "peer/elixir/registry.rs"]
mod registry;
#[path = "peer/elixir/tasks.rs"]
mod tasks;
