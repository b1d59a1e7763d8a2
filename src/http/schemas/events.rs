//! Events and files, as they are described.

use serde_json::Value;
use utoipa::ToSchema;

use super::RunStatus;

/// What happened.
#[derive(ToSchema)]
pub(in crate::http) struct Event {
    /// `background_run_started` and so on.
    event: String,
    #[schema(format = DateTime)]
    timestamp: String,
    /// Its number within its run, or within its task if it concerns no run.
    sequence: u64,
    /// Its place among all events.
    cursor: u64,
    agent_id: String,
    task_id: String,
    #[schema(required = true)]
    run_id: Option<String>,
    #[schema(required = true)]
    session_id: Option<String>,
    /// The run's status afterwards.
    #[schema(required = true)]
    status: Option<RunStatus>,
    attempt: u32,
    fence: u64,
    #[schema(required = true)]
    instance: Option<String>,
    #[schema(required = false, nullable = false)]
    occurrence_id: Option<String>,
    #[schema(required = false, nullable = false, format = DateTime)]
    due_at: Option<String>,
    /// What is particular.
    #[schema(required = false)]
    data: Value,
}

#[derive(ToSchema)]
pub(in crate::http) struct RunEvents {
    run_id: String,
    events: Vec<Event>,
    count: u64,
    /// That there may be more after the last.
    more: bool,
}

#[derive(ToSchema)]
pub(in crate::http) struct AllEvents {
    events: Vec<Event>,
    count: u64,
    /// Where to go on.
    cursor: u64,
    /// That there may be more after the last.
    more: bool,
}

/// The files of a run.
#[derive(ToSchema)]
pub(in crate::http) struct Workspace {
    run_id: String,
    task_id: String,
    agent_id: String,
    workspace_path: String,
    files: Vec<WorkspaceFile>,
    /// False where that is not all.
    #[schema(required = false)]
    complete: bool,
}

/// A file or folder; its path is below the folder of the run.
#[derive(ToSchema)]
pub(in crate::http) struct WorkspaceFile {
    path: String,
    name: String,
    size: u64,
    #[schema(format = DateTime)]
    modified_at: String,
    is_dir: bool,
}
