//! The life of an application and of its generations: opening, replacing, failing, closing, and what it tells.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

#[path = "support/bench.rs"]
mod bench;

#[path = "support/traced.rs"]
mod traced;

#[path = "application/opening.rs"]
mod opening;

#[path = "application/replacing.rs"]
mod replacing;

#[path = "application/failing.rs"]
mod failing;

#[path = "application/closing.rs"]
mod closing;

#[path = "application/telling.rs"]
mod telling;

#[path = "application/letting_go.rs"]
mod letting_go;

#[path = "application/storming.rs"]
mod storming;

#[path = "application/tree.rs"]
mod tree;
