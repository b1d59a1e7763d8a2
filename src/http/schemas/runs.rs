//! Runs, as they are described.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::Unreadable;

/// How a run is wanted.
#[derive(ToSchema)]
pub(in crate::http) struct WantedRun {
    /// Another query than the task's.
    #[schema(required = false)]
    query: Option<String>,
    /// Whether to wait until it has settled.
    #[schema(required = false, nullable = false)]
    wait: Option<bool>,
    /// How long to wait at most. The run goes on.
    #[schema(required = false)]
    timeout_seconds: Option<f64>,
    /// Whether it runs though the task is paused.
    #[schema(required = false, nullable = false)]
    override_pause: Option<bool>,
}

/// How a run is done again.
#[derive(ToSchema)]
pub(in crate::http) struct WantedRetry {
    /// Another query than the run's.
    #[schema(required = false)]
    query: Option<String>,
    /// Whether to wait until it has settled.
    #[schema(required = false, nullable = false)]
    wait: Option<bool>,
    /// How long to wait at most. The run goes on.
    #[schema(required = false)]
    timeout_seconds: Option<f64>,
}

/// Where a run stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum RunStatus {
    Queued,
    Claimed,
    Running,
    Retrying,
    AwaitingApproval,
    Completed,
    Failed,
    Timeout,
    Cancelled,
    Skipped,
    Lost,
}

/// What wanted a run.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum Trigger {
    Manual,
    Schedule,
    Retry,
}

/// One life of a task.
#[derive(ToSchema)]
pub(in crate::http) struct Run {
    run_id: String,
    task_id: String,
    agent_id: String,
    status: RunStatus,
    /// Attempts begun.
    attempt: u32,
    /// The most it can come to as it stands.
    max_attempts: u32,
    query_snapshot: String,
    trigger_type: Trigger,
    #[schema(format = DateTime)]
    triggered_at: String,
    /// When it may be claimed.
    #[schema(format = DateTime)]
    due_at: String,
    late_by_seconds: f64,
    #[schema(required = true)]
    occurrence_id: Option<String>,
    #[schema(required = true)]
    idempotency_key: Option<String>,
    session_id: String,
    workspace_path: String,
    /// The instance that holds it.
    #[schema(required = true)]
    lease_owner: Option<String>,
    /// Rises with every grant and revocation.
    fence: u64,
    #[schema(required = true, format = DateTime)]
    lease_expires_at: Option<String>,
    #[schema(required = true, format = DateTime)]
    heartbeat_at: Option<String>,
    #[schema(format = DateTime)]
    queued_at: String,
    #[schema(required = true, format = DateTime)]
    claimed_at: Option<String>,
    #[schema(required = true, format = DateTime)]
    started_at: Option<String>,
    #[schema(required = true, format = DateTime)]
    finished_at: Option<String>,
    #[schema(required = true, format = DateTime)]
    cancel_requested_at: Option<String>,
    #[schema(required = true)]
    cancel_reason: Option<String>,
    #[schema(required = true)]
    cancelled_by: Option<String>,
    #[schema(required = true)]
    error: Option<RunError>,
    /// The first 1,000 characters of the result.
    #[schema(required = true)]
    result_preview: Option<String>,
    #[schema(required = true)]
    result: Option<RunResult>,
    #[schema(required = true)]
    progress: Option<Progress>,
    /// Attempts that were interrupted or lost.
    interruptions: u32,
    /// Attempts that failed or timed out.
    failures: u32,
    metadata: BTreeMap<String, Value>,
    priority: i32,
    /// Rises with every change.
    version: u64,
    #[schema(required = false, nullable = false)]
    timeout_seconds: Option<f64>,
    #[schema(required = false, nullable = false, format = DateTime)]
    deadline_at: Option<String>,
    /// The run that it does again.
    #[schema(required = false, nullable = false)]
    retry_of: Option<String>,
    /// The run because of which it was skipped.
    #[schema(required = false, nullable = false)]
    blocked_by: Option<String>,
    #[schema(required = false, nullable = false)]
    approval: Option<Approval>,
    #[schema(required = false, nullable = false)]
    waiting: Option<Waiting>,
}

/// Why an attempt did not complete.
#[derive(ToSchema)]
pub(in crate::http) struct RunError {
    class: String,
    message: String,
    #[schema(required = false, nullable = false)]
    retry_after_seconds: Option<f64>,
}

/// What a run answered: text, bytes in base 16, or the file that has it.
#[derive(ToSchema)]
pub(in crate::http) struct RunResult {
    media_type: String,
    #[schema(required = false, nullable = false)]
    text: Option<String>,
    #[schema(required = false, nullable = false)]
    hex: Option<String>,
    #[schema(required = false, nullable = false)]
    size: Option<u64>,
    /// Its path in the workspace.
    #[schema(required = false, nullable = false)]
    path: Option<String>,
    #[schema(required = false, nullable = false)]
    preview: Option<String>,
}

/// How far a run says it is.
#[derive(ToSchema)]
pub(in crate::http) struct Progress {
    #[schema(required = true)]
    percent: Option<u8>,
    message: String,
    #[schema(format = DateTime)]
    at: String,
}

/// What a run asked a person, and the answer.
#[derive(ToSchema)]
pub(in crate::http) struct Approval {
    question: String,
    data: Value,
    #[schema(format = DateTime)]
    asked_at: String,
    #[schema(required = true)]
    answer: Option<Answering>,
}

/// Why a run waits, since when.
#[derive(ToSchema)]
pub(in crate::http) struct Waiting {
    reason: WaitReason,
    #[schema(format = DateTime)]
    since: String,
}

/// Why a run waits.
#[derive(ToSchema)]
pub(in crate::http) struct WaitReason {
    /// `not_due`, `lane_full`, `busy`, `paused`, `no_agent`, `worker` or `approval`.
    reason: String,
    #[schema(required = false, nullable = false, format = DateTime)]
    until: Option<String>,
    #[schema(required = false, nullable = false)]
    lane: Option<String>,
    /// The runs that take the room.
    #[schema(required = false)]
    holders: Vec<String>,
    /// What its host was busy with when it gave the run back: the operation that has its session or its task.
    #[schema(required = false, nullable = false)]
    because: Option<String>,
    #[schema(required = false, nullable = false)]
    agent_id: Option<String>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Runs {
    runs: Vec<Run>,
    total: u64,
    /// That there may be more than `total`.
    #[schema(required = false)]
    total_estimated: bool,
    #[schema(required = true)]
    next_cursor: Option<String>,
    /// Records that could not be read.
    #[schema(required = false)]
    unreadable: Vec<Unreadable>,
}

/// One try within a run.
#[derive(ToSchema)]
pub(in crate::http) struct Attempt {
    attempt_id: String,
    run_id: String,
    /// Its number, from 1.
    attempt: u32,
    /// `running`, `completed`, `failed`, `timeout`, `cancelled`, `interrupted` or `lost`.
    status: String,
    instance: String,
    fence: u64,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(required = true, format = DateTime)]
    finished_at: Option<String>,
    #[schema(required = true)]
    duration_seconds: Option<f64>,
    #[schema(required = true)]
    error: Option<RunError>,
}

/// How insistently, and why.
#[derive(ToSchema)]
pub(in crate::http) struct Cancelling {
    #[schema(required = false, nullable = false)]
    mode: Option<CancelMode>,
    #[schema(required = false)]
    reason: Option<String>,
    /// Who cancels, as the caller tells it; kept with the run as `cancelled_by`. `http` if nothing is said.
    #[schema(required = false)]
    by: Option<String>,
}

/// Which runs, how insistently, and why.
#[derive(ToSchema)]
pub(in crate::http) struct CancellingMany {
    /// Of this task.
    #[schema(required = false)]
    task_id: Option<String>,
    /// Of this agent.
    #[schema(required = false)]
    agent_id: Option<String>,
    /// Of this session.
    #[schema(required = false)]
    session_id: Option<String>,
    /// In any of these states.
    #[schema(required = false)]
    status: Vec<RunStatus>,
    /// Wanted by this.
    #[schema(required = false)]
    trigger_type: Option<Trigger>,
    /// Queued at or after.
    #[schema(required = false, format = DateTime)]
    created_after: Option<String>,
    /// Queued before.
    #[schema(required = false, format = DateTime)]
    created_before: Option<String>,
    /// With this in the query, ignoring case of ASCII letters.
    #[schema(required = false)]
    text: Option<String>,
    #[schema(required = false, nullable = false)]
    mode: Option<CancelMode>,
    #[schema(required = false)]
    reason: Option<String>,
    /// Who cancels, as the caller tells it; kept with the runs as `cancelled_by`. `http` if nothing is said.
    #[schema(required = false)]
    by: Option<String>,
}

/// How many runs a request to cancel has met.
#[derive(ToSchema)]
pub(in crate::http) struct Cancelled {
    /// Ended by it.
    ended: u64,
    /// Asked to stop: their owners end them.
    requested: u64,
}

/// `cooperative` asks the owner to stop; `force` revokes its authority at once.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum CancelMode {
    Cooperative,
    Force,
}

/// What a person answers.
#[derive(ToSchema)]
pub(in crate::http) struct Answering {
    approved: bool,
    /// Anything else that the next attempt is to know.
    #[schema(required = false)]
    answer: Value,
}
