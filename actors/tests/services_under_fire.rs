//! Attempts to break the supervisor of services: races of restart, terminate, delete, close and crashes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is how a test fails")]

#[path = "peer/kit.rs"]
mod kit;

#[path = "under_fire/close.rs"]
mod close;
#[path = "under_fire/commands.rs"]
mod commands;
#[path = "under_fire/epochs.rs"]
mod epochs;
#[path = "under_fire/groups.rs"]
mod groups;
#[path = "under_fire/starts.rs"]
mod starts;
#[path = "under_fire/storm.rs"]
mod storm;
