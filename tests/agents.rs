//! Configured agents do what their definitions say: real programs, and an endpoint on loopback that streams, stalls,
//! refuses and dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "agents/stage.rs"]
mod stage;

#[path = "agents/chat.rs"]
mod chat;
#[path = "agents/commands.rs"]
mod commands;
#[path = "agents/definitions.rs"]
mod definitions;
#[path = "agents/directory.rs"]
mod directory;
#[path = "agents/endpoint.rs"]
mod endpoint;
#[path = "agents/limits.rs"]
mod limits;
#[path = "agents/progress.rs"]
mod progress;
#[path = "agents/secrets.rs"]
mod secrets;
#[path = "agents/trees.rs"]
mod trees;
#[path = "agents/webhooks.rs"]
mod webhooks;
