//! The files of a run as they are shown.

use std::sync::Arc;

use serde::Serialize;

use crate::model::{AgentId, Run, RunId, TaskId};
use crate::workspace::{Entry, Listing};

/// The files of a run as they are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilesView {
    /// The run.
    pub run_id: RunId,
    /// The task.
    pub task_id: TaskId,
    /// Who executes it.
    pub agent_id: AgentId,
    /// The folder of its files below the workspace root.
    pub workspace_path: Arc<str>,
    /// What lies in it, sorted by path; the paths begin there.
    pub files: Vec<Entry>,
    /// Whether that is all; left out where it is.
    #[serde(skip_serializing_if = "is_yes")]
    pub complete: bool,
}

impl FilesView {
    /// What lies in the folder of this run.
    #[must_use]
    pub fn new(run: &Run, listing: Listing) -> Self {
        Self {
            run_id: run.run_id.clone(),
            task_id: run.spec.task_id.clone(),
            agent_id: run.spec.agent_id.clone(),
            workspace_path: Arc::clone(&run.spec.workspace_path),
            files: listing.entries,
            complete: listing.complete,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(flag: &bool) -> bool {
    *flag
}
