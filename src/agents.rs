//! Agents that are configured and not written: a program, a chat endpoint, a webhook (design.md, section 6).
//!
//! An [`AgentDefinition`] is what a file or a request says of one.

mod definition;

pub use definition::{AgentDefinition, ChatAgent, CommandAgent, HttpAgent};
