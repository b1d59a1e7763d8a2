//! What a call of the facade can answer instead of a result. One type, few kinds: by what the caller does
//! next.

use std::sync::Arc;

use tenure_actors::{CloseError, OpenError, ReplaceError};

use crate::model::{InstanceId, Invalid, RunId, RunStatus, TaskId};
use crate::store::StoreError;
use crate::workspace::WorkspaceError;

/// Why a call did not do what was asked. Nothing is half done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// What was given cannot be taken. Correct it.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// There is no such thing. Look for its name.
    #[error("{kind} \"{id}\" does not exist")]
    NotFound {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// There is one already. Use another name, or change that one.
    #[error("{kind} \"{id}\" already exists")]
    Exists {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// The key was used for another request. Use another key.
    #[error("the idempotency key belongs to run \"{run_id}\", which was made for another request")]
    KeyConflict {
        /// That run.
        run_id: RunId,
    },
    /// The task is paused. Resume it, or ask to override.
    #[error("task \"{task_id}\" is paused: resume it, or ask for the run with override_pause")]
    Paused {
        /// The task.
        task_id: TaskId,
    },
    /// The run is in a state in which this cannot be done.
    #[error("run \"{run_id}\" is {status}, expected {expected}")]
    WrongState {
        /// The run.
        run_id: RunId,
        /// Its state.
        status: RunStatus,
        /// The states in which it can be done.
        expected: &'static str,
    },
    /// It was changed by others again and again while this was tried. Try again.
    #[error("{what} was changed by others at the same time, again and again; try again")]
    Contended {
        /// What.
        what: String,
    },
    /// This host is being shut down. Ask another, or wait for it to be back.
    #[error("this host is shutting down and starts nothing any more")]
    Draining,
    /// The store did not do it, or may have: see [`StoreError`]. Try again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files of the run are where it was executed. Ask that instance.
    #[error("the files of run \"{run_id}\" are not here but at instance \"{instance}\"; ask that one")]
    Elsewhere {
        /// The run.
        run_id: RunId,
        /// The instance that executed its latest attempt.
        instance: InstanceId,
    },
    /// The workspace could not be used.
    #[error("workspace: {0}")]
    Workspace(Arc<WorkspaceError>),
    /// The supervision tree could not be opened, replaced or closed.
    #[error("{0}")]
    Supervision(Arc<str>),
}

impl Error {
    pub(crate) fn no_task(task_id: &TaskId) -> Self {
        Self::NotFound { kind: "task", id: task_id.to_string() }
    }

    /// An id that only hosts give to work of their own.
    pub(crate) fn reserved(field: &str, id: &str) -> Self {
        let expected = "a name that does not begin with \"owned.\", as what hosts own does";
        Self::Invalid(Invalid::one(field, format!("{expected}, found {id:?}")))
    }

    pub(crate) fn no_run(run_id: &RunId) -> Self {
        Self::NotFound { kind: "run", id: run_id.to_string() }
    }
}

impl From<WorkspaceError> for Error {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::NotFound { path } => Self::NotFound { kind: "file", id: path },
            WorkspaceError::Path { .. } | WorkspaceError::Outside { .. } | WorkspaceError::Unfit { .. } => {
                Self::Invalid(Invalid::one("path", error.to_string()))
            }
            error => Self::Workspace(Arc::new(error)),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self::Supervision(error.to_string().into())
    }
}

impl From<ReplaceError> for Error {
    fn from(error: ReplaceError) -> Self {
        Self::Supervision(error.to_string().into())
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Self {
        Self::Supervision(error.to_string().into())
    }
}
