//! Background work for agent applications, under supervision: work that has lost its authority cannot change
//! anything.
//!
//! - [`model`]: the records, in the words of the field: task, schedule, occurrence, run, attempt, event.
//! - [`rules`]: what may happen to them, as plain functions.
//! - [`store`]: where they are kept, behind one port.
//! - [`Tenure`]: the facade; [`Agent`] is what executes.
//! - [`ownership`]: who owns what hosts execute themselves, across replicas.
//! - `agents`: agents that are configured and not written (feature `agents`).
//! - `http`: the HTTP interface, as a router (feature `http`).
//! - [`view`]: the shapes in which records are shown.
//! - [`workspace`]: the files of a run.
//! - [`actors`]: the supervision kernel: application, generation, registry, operations and the commit gate.
pub use tenure_actors as actors;

mod agent;
#[cfg(feature = "agents")]
pub mod agents;
pub mod clock;
mod error;
#[cfg(feature = "http")]
pub mod http;
mod instance;
pub mod model;
pub mod ownership;
pub mod rules;
mod settings;
pub mod store;
mod tenure;

pub use agent::{Agent, AgentError, AgentResult, Answer, WrittenResult};
pub use error::Error;
pub use instance::{AuthorityError, Health, RunContext, StoreHealth};
pub use settings::{Duty, Settings, WorkspaceFolder};
pub use tenure::{
    CancelFilter, Cancelled, Deletion, EventStream, RunRequest, RunState, Shutdown, Status, TaskStatus,
    Tenure,
};
mod tasks;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod view;
pub mod workspace;

/// The start that the README shows compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
