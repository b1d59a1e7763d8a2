//! What the background tasks of a conversation answer.

use std::sync::Arc;

use crate::model::InstanceId;
use crate::ownership::answers::Inspection;

/// What became of a start.
#[derive(Debug, Clone, PartialEq)]
pub enum StartedTask {
    /// It runs here.
    Started {
        /// Its number.
        task: u64,
    },
    /// The same call has started it before.
    Already(Inspection),
    /// The same call has started another.
    InputConflict {
        /// That one.
        task: u64,
    },
    /// What it was to supersede is not lost, or has a successor.
    NotSuperseded(Inspection),
    /// There is no such agent here.
    UnknownAgent {
        /// The name.
        agent: Arc<str>,
        /// Those that there are.
        known: Vec<Arc<str>>,
    },
    /// The conversation was deleted meanwhile.
    SessionReleased,
}

/// What became of a continuation.
#[derive(Debug, Clone, PartialEq)]
pub enum Continued {
    /// It runs here.
    Started {
        /// The task.
        task: u64,
        /// Its new run.
        run: u32,
    },
    /// It is not over: nothing changed (S4.4).
    StillRunning(Inspection),
    /// Another replica continued it first.
    Conflict(Inspection),
    /// It is lost, expired or unknown: there is nothing to go on from.
    NotContinuable(Inspection),
    /// Its session was not stored: only the instance that has it can go on (S4.2).
    Unavailable {
        /// The task.
        task: u64,
        /// That instance.
        instance: Option<InstanceId>,
        /// Whether it is known to live: it holds another task of the conversation now.
        alive: bool,
    },
    /// Its agent is not here (V6).
    AgentUnavailable {
        /// The name.
        agent: Arc<str>,
    },
    /// The conversation was deleted meanwhile.
    SessionReleased,
}

/// What a wait came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Waited {
    /// Tasks that are over: ended, lost or expired. Empty when the limit came first: that is no error (S7.2).
    pub over: Vec<Inspection>,
    /// Tasks that run.
    pub running: Vec<Inspection>,
    /// Numbers of which nothing is known.
    pub unknown: Vec<u64>,
    /// Why nothing is known of the others: the store does not answer (S7.6).
    pub unavailable: Option<String>,
}
