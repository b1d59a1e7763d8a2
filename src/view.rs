//! The shapes in which records are shown: by HTTP, the command line and the files of a run (contract
//! durable-tasks.md, sections 2 and 10).
//!
//! A name that clients know is always there, with `null` where there is nothing to say; names that were added
//! to those are left out then. Times are RFC 3339 in UTC with milliseconds. Metadata keeps its digits, as long as
//! a view is written as text and not by way of [`serde_json::Value`].

mod attempt;
mod event;
mod files;
mod run;
mod task;

pub use attempt::AttemptView;
pub use event::EventView;
pub use files::FilesView;
pub use run::{ErrorView, RunView};
pub use task::TaskView;

use crate::model::{TaskId, Timestamp};

/// The name of an occurrence: unique, as task and due time are.
fn occurrence_id(task_id: &TaskId, due_at: Timestamp) -> String {
    format!("{task_id}@{due_at}")
}
