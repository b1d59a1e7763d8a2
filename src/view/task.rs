//! A task as it is shown.

use serde::Serialize;

use crate::model::{Task, TaskSpec, Timestamp};

/// A task as it is shown: what its user says of it, field by field, and what became of that.
#[derive(Debug, Clone, Serialize)]
pub struct TaskView {
    /// What the user says.
    #[serde(flatten)]
    pub spec: TaskSpec,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Rises with every change; 1 at first.
    pub revision: u64,
}

impl From<&Task> for TaskView {
    fn from(task: &Task) -> Self {
        Self {
            spec: task.spec.clone(),
            created_at: task.created_at,
            updated_at: task.updated_at,
            revision: task.revision,
        }
    }
}
