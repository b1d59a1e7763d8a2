//! Agents that are configured and not written: a program, a chat endpoint, a webhook (design.md, section 6).
//!
//! An [`AgentDefinition`] is what a file or a request says of one. The [`Directory`] of a host has them all, and
//! registers each with its [`Tenure`](crate::Tenure). What a program is given, and what its end means, is written at
//! [`CommandAgent`]; what the answers of endpoints mean, at [`ChatAgent`].
//!
//! Only for systems with process groups and Unix sockets.

mod chat;
mod check;
mod command;
mod definition;
mod directory;
mod mask;
mod output;
pub mod progress;
mod remote;
mod sse;
mod toolbox;
mod view;
mod webhook;

#[cfg(target_os = "linux")]
pub use command::Orphans;
pub use definition::{AgentDefinition, ChatAgent, CommandAgent, HttpAgent, KINDS};
pub use directory::Directory;
pub use view::{AgentSource, AgentView};

use crate::instance::RunContext;
use crate::model::{Seconds, Timestamp};

/// When an attempt has to have ended, by the store's clock.
fn deadline(context: &RunContext) -> Option<Timestamp> {
    let limits = context.spec().limits;
    let started_at = context.attempt_started_at();
    let timeout = limits.timeout.map(Seconds::duration);
    let by_timeout = started_at.zip(timeout).map(|(started_at, timeout)| started_at.plus(timeout));
    [by_timeout, limits.deadline_at].into_iter().flatten().min()
}
