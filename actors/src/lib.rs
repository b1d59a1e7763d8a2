//! The supervision kernel of tenure: background work that has lost its authority cannot change anything.
//!
//! ```text
//! application                      owns the current generation; replace() = seal n, open n+1, close n beside it
//! `- generation  (epoch n)         supervisor and parent of all below: strategies, intensity, ordered close
//!    |- registry                   admits, finds and removes processes
//!    |- operations                 active identities and exclusivity keys
//!    |- services                   restarted by their specs
//!    `- processes                  an actor, an object or an asynchronous function each
//! ```
//!
//! A plugin starts a process through the [`Registry`] of the current [`Generation`] and lets it have effects
//! only through [`ProcessContext::commit`], which refuses them, atomically with revocation, once the process
//! or its generation was closed. [`Operations`] keep two pieces of work on one session apart. Everything that
//! happens is an [`Event`] of the [`Journal`].
//!
//! Start at [`Application::open`].
//!
//! What is *not* here: persistence, schedules, retries of work, sessions, notifications, HTTP. This crate
//! knows no database, no environment and no wall clock.
#![doc = include_str!("sources.md")]

mod application;
mod chaos;
mod child;
mod contain;
mod error;
mod event;
mod exit;
mod gate;
mod generation;
mod id;
mod inside;
mod journal;
mod operations;
mod process;
mod registry;
pub mod rules;
mod runtime_store;
mod service;
mod settings;
mod sync;
mod tasks;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tree;

/// The actor library that the public protocols speak, in the one version this crate is made for.
pub use ractor;

pub use application::{Application, ApplicationEnd, OpenError, ReplaceError};
pub use error::{
    CloseError, CloseFailure, CommitError, Refused, ReserveError, ResourceError, RuntimeStoreClosed,
    StartError, StartFailure,
};
pub use event::{ActorName, Cause, ChildName, CloseReason, Event, EventId, EventKind, StopReason, Verb};
pub use exit::{BoxError, ExitReason, KillReason, PanicText, ProcessResult};
pub use generation::{CloseReport, CommitCounts, Generation};
pub use id::{
    Epoch, ExclusivityKey, FencingToken, IdProblem, InvalidId, MAX_ID_BYTES, OperationId, OwnerId, ProcessId,
    ResourceName, Role, RoleText, SessionId, session_key,
};
pub use journal::{Heard, Journal, Recorder, Subscription};
pub use operations::{
    OperationFilter, OperationLease, OperationRegistration, OperationRequest, Operations, OperationsMessage,
    OperationsNotice, SessionFilter,
};
pub use process::{
    ManagedProcess, Permit, ProcessContext, ProcessHandle, ProcessIdentity, ProcessInfo, ProcessKind,
    ProcessSpec, ProcessState, Progress,
};
pub use registry::{KernelNotice, Registry, RegistryMessage};
pub use runtime_store::{Resource, RuntimeStore};
pub use service::{ServiceError, ServiceInfo, ServiceSpec, ServiceState, Services};
pub use settings::{ApplicationSpec, GenerationSpec, Limits};
pub use tree::{ChildNode, GenerationNode, Tree};
