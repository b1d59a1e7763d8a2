//! What can be refused, and by whom. Error names are those of the supervision contract, section 2.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::exit::{BoxError, PanicText};
use crate::id::{Epoch, InvalidId, OperationId, ProcessId};
use crate::operations::OperationRegistration;
use crate::process::ProcessState;

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The id is no identifier.
    #[error(transparent)]
    Invalid(#[from] InvalidId),
    /// The id is reserved or running: neither `start` nor `close` of the refused process was called.
    #[error("process \"{id}\" already exists and is {state}; use another id, or wait until it is removed")]
    AlreadyExists {
        /// The id.
        id: ProcessId,
        /// What the existing process is doing.
        state: ProcessState,
    },
    /// The registry, its generation or its application closes or is closed.
    #[error(
        "process \"{id}\" was not started: the registry is closed; ask the application for its current generation"
    )]
    RegistryClosed {
        /// The id.
        id: ProcessId,
    },
    /// The generation runs as many processes as it may.
    #[error("process \"{id}\" was not started: {limit} processes run, which is the limit")]
    TooManyProcesses {
        /// The id.
        id: ProcessId,
        /// The limit.
        limit: usize,
    },
    /// The start failed or panicked, or its actor died in it. `close` was attempted, the id is free again.
    #[error("process \"{id}\" failed to start: {source}")]
    StartFailed {
        /// The id.
        id: ProcessId,
        /// Whether it answered an error or panicked.
        kind: StartFailure,
        /// The error, as the process answered it.
        source: BoxError,
        /// What the clean-up met; it never replaces the error.
        cleanup: Option<CloseFailure>,
    },
    /// The start exceeded its bound and was cut off. `close` was attempted, the id is free again.
    #[error("process \"{id}\" did not start within {limit:?}")]
    StartTimedOut {
        /// The id.
        id: ProcessId,
        /// The bound.
        limit: Duration,
        /// What the clean-up met.
        cleanup: Option<CloseFailure>,
    },
}

impl From<std::convert::Infallible> for StartError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// In which way a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailure {
    /// It answered an error.
    Error,
    /// It panicked; the source is a [`PanicText`].
    Panic,
    /// It was killed before it had started.
    Killed,
}

/// Why a close did not go through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloseFailure {
    /// It answered an error.
    #[error("close failed: {0}")]
    Failed(Arc<dyn Error + Send + Sync>),
    /// It panicked.
    #[error("close {0}")]
    Panicked(PanicText),
    /// It did not answer within its bound and was cut off.
    #[error("close did not answer within {0:?}")]
    TimedOut(Duration),
}

/// Why an effect was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The process, or its generation, was closed: nothing it does has an effect any more.
    #[error("process \"{process}\" of epoch {epoch} may not commit: its authority was revoked{}", now_open(*.current))]
    AuthorityRevoked {
        /// The process.
        process: ProcessId,
        /// The epoch it belongs to.
        epoch: Epoch,
        /// The epoch that is open now; none between generations.
        current: Option<Epoch>,
    },
    /// An asynchronous effect began and was cut off at an await, because its process was closed and the
    /// bound for effects in flight was reached. What it had done by then stands.
    #[error("an effect of process \"{process}\" of epoch {epoch} was cut off while it was in flight")]
    CutOff {
        /// The process.
        process: ProcessId,
        /// The epoch it belongs to.
        epoch: Epoch,
    },
}

fn now_open(current: Option<Epoch>) -> String {
    current.map_or_else(|| ", no generation is open".to_owned(), |epoch| format!(", epoch {epoch} is open"))
}

/// An effect that was refused, with the value it was to be run on given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<V> {
    /// The value.
    pub value: V,
    /// Why.
    pub error: CommitError,
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<V: fmt::Debug> Error for Refused<V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Why an operation was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// Another operation holds one of the keys. Its keys are not told.
    #[error("busy: {0} is active")]
    Busy(OperationRegistration),
    /// The operation id is active already, whatever its keys. Checked before [`ReserveError::Busy`].
    #[error("operation \"{}\" is already active", .0.operation)]
    DuplicateOperation(OperationRegistration),
    /// A field of the request cannot be used.
    #[error("field \"{field}\": {problem}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// Why not, and what was expected.
        problem: String,
    },
    /// The generation runs as many operations as it may.
    #[error("operation \"{operation}\" was not reserved: {limit} are active, which is the limit")]
    TooManyOperations {
        /// The operation.
        operation: OperationId,
        /// The limit.
        limit: usize,
    },
    /// The generation closes or is closed.
    #[error("operations are closed; ask the application for its current generation")]
    Closed,
}

/// The runtime store of a generation was asked after it had been closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the runtime store is closed; ask the application for its current generation")]
pub struct RuntimeStoreClosed;

/// Why a shared resource is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The name is none.
    #[error(transparent)]
    Invalid(#[from] InvalidId),
    /// The store is closed.
    #[error(transparent)]
    Closed(#[from] RuntimeStoreClosed),
    /// The name is taken by a resource of another type.
    #[error("resource \"{name}\" is a {is}, not a {wanted}")]
    OtherType {
        /// The name.
        name: Arc<str>,
        /// What it is.
        is: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// Making it failed. The next caller tries again.
    #[error("resource \"{name}\" could not be made: {source}")]
    Failed {
        /// The name.
        name: Arc<str>,
        /// The error, as it came.
        source: BoxError,
    },
    /// Making it did not end within the start bound. The next caller tries again.
    #[error("resource \"{name}\" was not made within {limit:?}")]
    TimedOut {
        /// The name.
        name: Arc<str>,
        /// The bound.
        limit: Duration,
    },
}

impl From<std::convert::Infallible> for ResourceError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// Why the end of a close cannot be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// Asked from inside a process or service of the generation that closes: the close goes on, but nothing
    /// can wait for its own end.
    #[error("the close of generation {epoch} goes on; one of its own processes cannot wait for it")]
    Inside {
        /// The generation.
        epoch: Epoch,
    },
    /// The runtime is shutting down and took the closing task with it. Authority is revoked all the same.
    #[error("the runtime ended before the close of generation {epoch} did; its authority is revoked")]
    RuntimeEnded {
        /// The generation.
        epoch: Epoch,
    },
}
