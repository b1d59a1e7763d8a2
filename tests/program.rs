//! The program as people and scripts meet it: the real binary, its output, its exit codes, its signals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "program/brief.rs"]
mod brief;
#[path = "program/chat.rs"]
mod chat;
#[path = "program/config.rs"]
mod config;
#[path = "support/copied.rs"]
mod copied;
#[path = "program/curl.rs"]
mod curl;
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
#[path = "agents/endpoint.rs"]
mod endpoint;
#[cfg(target_os = "linux")]
#[path = "program/janitor.rs"]
mod janitor;
#[path = "program/kill.rs"]
mod kill;
#[path = "program/kit.rs"]
mod kit;
#[path = "program/left.rs"]
mod left;
#[cfg(target_os = "linux")]
#[path = "program/orphans.rs"]
mod orphans;
#[path = "support/outside.rs"]
mod outside;
#[path = "program/owned.rs"]
mod owned;
#[path = "support/pattern.rs"]
mod pattern;
#[path = "program/permission.rs"]
mod permission;
#[path = "program/readme.rs"]
mod readme;
#[path = "program/reload.rs"]
mod reload;
#[path = "program/remote.rs"]
mod remote;
#[path = "program/run.rs"]
mod run;
#[path = "program/said.rs"]
mod said;
#[path = "program/secrets.rs"]
mod secrets;
#[path = "program/serve.rs"]
mod serve;
#[path = "support/servers.rs"]
mod servers;
#[path = "program/storm.rs"]
mod storm;
#[cfg(target_os = "linux")]
#[path = "program/terminal.rs"]
mod terminal;
#[path = "support/until.rs"]
mod until;
#[cfg(target_os = "linux")]
#[path = "program/volume.rs"]
mod volume;
#[path = "program/webhook.rs"]
mod webhook;
