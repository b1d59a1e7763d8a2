//! Tasks, as they are described.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::Run;

/// A durable instruction, as it is given.
#[derive(ToSchema)]
pub(in crate::http) struct NewTask {
    /// Its name: 1 to 255 of letters, digits, `_`, `.` and `-`.
    task_id: String,
    /// Who executes it.
    #[schema(required = false)]
    agent_id: Option<String>,
    /// What the agent is asked.
    query: String,
    #[schema(required = false)]
    schedule: Option<Schedule>,
    /// Whether it is dispatched. Default true.
    #[schema(required = false)]
    enabled: Option<bool>,
    /// The longest an attempt may take.
    #[schema(required = false)]
    timeout_seconds: Option<f64>,
    /// The longest a run may take from queued to final, waiting included.
    #[schema(required = false)]
    deadline_seconds: Option<f64>,
    #[schema(required = false)]
    retry_policy: Option<RetryPolicy>,
    #[schema(required = false)]
    overlap_policy: Option<OverlapPolicy>,
    #[schema(required = false)]
    session_policy: Option<SessionPolicy>,
    #[schema(required = false)]
    workspace_policy: Option<WorkspacePolicy>,
    /// Higher is claimed first. Default 0.
    #[schema(required = false)]
    priority: Option<i32>,
    /// Runs with the same key execute at most `concurrency_limit` at once.
    #[schema(required = false)]
    concurrency_key: Option<String>,
    /// Default 1.
    #[schema(required = false)]
    concurrency_limit: Option<u32>,
    /// Any JSON object, kept digit for digit.
    #[schema(required = false)]
    metadata: Option<BTreeMap<String, Value>>,
}

/// Fields of a task, each with what replaces it as a whole; `null` puts back its default.
#[derive(ToSchema)]
pub(in crate::http) struct TaskChange {
    #[schema(required = false)]
    agent_id: Option<String>,
    #[schema(required = false)]
    query: Option<String>,
    #[schema(required = false)]
    schedule: Option<Schedule>,
    #[schema(required = false)]
    enabled: Option<bool>,
    #[schema(required = false)]
    timeout_seconds: Option<f64>,
    #[schema(required = false)]
    deadline_seconds: Option<f64>,
    #[schema(required = false)]
    retry_policy: Option<RetryPolicy>,
    #[schema(required = false)]
    overlap_policy: Option<OverlapPolicy>,
    #[schema(required = false)]
    session_policy: Option<SessionPolicy>,
    #[schema(required = false)]
    workspace_policy: Option<WorkspacePolicy>,
    #[schema(required = false)]
    priority: Option<i32>,
    #[schema(required = false)]
    concurrency_key: Option<String>,
    #[schema(required = false)]
    concurrency_limit: Option<u32>,
    #[schema(required = false)]
    metadata: Option<BTreeMap<String, Value>>,
}

/// A durable instruction.
#[derive(ToSchema)]
pub(in crate::http) struct Task {
    task_id: String,
    agent_id: String,
    query: String,
    schedule: Schedule,
    enabled: bool,
    #[schema(required = true)]
    timeout_seconds: Option<f64>,
    #[schema(required = true)]
    deadline_seconds: Option<f64>,
    retry_policy: RetryPolicy,
    overlap_policy: OverlapPolicy,
    session_policy: SessionPolicy,
    workspace_policy: WorkspacePolicy,
    priority: i32,
    #[schema(required = true)]
    concurrency_key: Option<String>,
    #[schema(required = true)]
    concurrency_limit: Option<u32>,
    metadata: BTreeMap<String, Value>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    /// Rises with every change; 1 at first.
    revision: u64,
    /// Of a task in a list: how far its schedule has come.
    #[schema(required = false, nullable = false)]
    schedule_state: Option<ScheduleState>,
    /// Of a task that was just made or changed: what was taken, and is likely to be wrong. Left out if nothing is.
    #[schema(required = false, nullable = false)]
    warnings: Option<Vec<Warning>>,
}

/// What was taken as it was given, and is likely to be wrong.
#[derive(ToSchema)]
pub(in crate::http) struct Warning {
    /// The field that it is about.
    field: String,
    /// What is likely to be wrong, for people.
    message: String,
}

/// When a task wants runs. Also taken as the bare word of its type: `"manual"`.
#[derive(ToSchema)]
pub(in crate::http) struct Schedule {
    r#type: ScheduleType,
    /// Of an interval: how often.
    #[schema(required = false, nullable = false)]
    seconds: Option<f64>,
    /// Of cron: five fields, or six with seconds.
    #[schema(required = false, nullable = false)]
    expression: Option<String>,
    /// Of once: the instant.
    #[schema(required = false, nullable = false, format = DateTime)]
    run_at: Option<String>,
    /// A zone of the IANA database. Default `UTC`.
    #[schema(required = false)]
    timezone: Option<String>,
    /// Nothing is due before.
    #[schema(required = false, nullable = false, format = DateTime)]
    start_at: Option<String>,
    /// Nothing is due at or after.
    #[schema(required = false, nullable = false, format = DateTime)]
    end_at: Option<String>,
    /// How much later than its due time an occurrence may fire.
    #[schema(required = false, nullable = false)]
    jitter_seconds: Option<f64>,
    #[schema(required = false, nullable = false)]
    misfire_policy: Option<MisfirePolicy>,
    /// How late an occurrence is still on time. Default 60.
    #[schema(required = false, nullable = false)]
    misfire_grace_seconds: Option<f64>,
    /// The most runs that catching up makes at once. Default 25.
    #[schema(required = false, nullable = false)]
    catch_up_limit: Option<u32>,
    #[schema(required = false, nullable = false)]
    catch_up_window_seconds: Option<f64>,
    #[schema(required = false, nullable = false)]
    catch_up_spread_seconds: Option<f64>,
    #[schema(required = false, nullable = false)]
    dst_gap: Option<DstGap>,
    #[schema(required = false, nullable = false)]
    dst_fold: Option<DstFold>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum ScheduleType {
    Manual,
    Interval,
    Cron,
    Once,
}

/// What happens to occurrences that nobody fired in time.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum MisfirePolicy {
    RunOnce,
    SkipMissed,
    QueueAll,
}

/// What a cron expression means in a local hour that does not exist.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum DstGap {
    Shift,
    Skip,
}

/// What a cron expression means in a local hour that is there twice.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum DstFold {
    Auto,
    First,
    Both,
}

/// What happens after a failure.
#[derive(ToSchema)]
pub(in crate::http) struct RetryPolicy {
    /// Default 0.
    #[schema(required = false)]
    max_retries: u32,
    /// Default 30.
    #[schema(required = false)]
    initial_delay_seconds: f64,
    /// Default 300.
    #[schema(required = false)]
    max_delay_seconds: f64,
    #[schema(required = false)]
    backoff: Backoff,
    /// How much longer a delay may be, as a share of it. Default 0.2.
    #[schema(required = false)]
    jitter: f64,
    /// The error classes that are tried again. Default `exception` and `timeout`.
    #[schema(required = false)]
    retry_on: Vec<String>,
    /// How many interruptions and lost leases are put up with. Default 10.
    #[schema(required = false)]
    max_interruptions: u32,
}

/// How the delay between attempts grows.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum Backoff {
    Fixed,
    Exponential,
}

/// What happens when a run is wanted while another of the task is active.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum OverlapPolicy {
    SkipIfRunning,
    QueueNext,
    CancelPrevious,
    AllowParallel,
}

/// Which session runs belong to. Also taken as the bare word of its type: `"task"`.
#[derive(ToSchema)]
pub(in crate::http) struct SessionPolicy {
    r#type: SessionType,
    /// Of a fixed one.
    #[schema(required = false, nullable = false)]
    session_id: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum SessionType {
    Task,
    Run,
    Fixed,
}

/// Where runs keep their files.
#[derive(ToSchema)]
pub(in crate::http) struct WorkspacePolicy {
    /// The folder of a run, with `{agent_id}`, `{task_id}` and `{run_id}` put in.
    #[schema(required = false)]
    namespace_template: String,
    #[schema(required = false)]
    write_run_json: bool,
    #[schema(required = false)]
    write_events_jsonl: bool,
}

#[derive(ToSchema)]
pub(in crate::http) struct Tasks {
    tasks: Vec<Task>,
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

#[derive(ToSchema)]
pub(in crate::http) struct Unreadable {
    id: String,
    reason: String,
}

/// What was done to a task.
#[derive(ToSchema)]
pub(in crate::http) struct Done {
    /// `paused`, `resumed` or `deleted`.
    status: String,
    task_id: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum Running {
    Cancel,
    Keep,
}

#[derive(ToSchema)]
pub(in crate::http) struct TaskStatus {
    task_id: String,
    agent_id: String,
    enabled: bool,
    schedule: Schedule,
    schedule_state: ScheduleState,
    /// How many there are.
    runs: u64,
    active_runs: u64,
    /// Every status with its count.
    status_counts: BTreeMap<String, u64>,
    #[schema(required = true)]
    latest_run: Option<Run>,
}

/// How far a schedule has come.
#[derive(ToSchema)]
pub(in crate::http) struct ScheduleState {
    task_id: String,
    version: u64,
    /// The due time of the last occurrence that has a record.
    #[schema(required = true, format = DateTime)]
    last_due: Option<String>,
    place: SchedulePlace,
}

/// Whether it goes on, and when.
#[derive(ToSchema)]
pub(in crate::http) struct SchedulePlace {
    /// `idle`, `waiting` or `failing`.
    state: String,
    #[schema(required = false, nullable = false, format = DateTime)]
    due_at: Option<String>,
    #[schema(required = false, nullable = false, format = DateTime)]
    fire_at: Option<String>,
    #[schema(required = false, nullable = false)]
    error: Option<String>,
    #[schema(required = false, nullable = false, format = DateTime)]
    since: Option<String>,
    #[schema(required = false, nullable = false)]
    tries: Option<u32>,
    #[schema(required = false, nullable = false, format = DateTime)]
    retry_at: Option<String>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Occurrences {
    task_id: String,
    /// Nothing comes while it is paused.
    enabled: bool,
    /// The newest first.
    past: Vec<Occurrence>,
    next: Vec<NextOccurrence>,
    /// Where `past` goes on.
    #[schema(required = true)]
    next_cursor: Option<String>,
    #[schema(required = false)]
    unreadable: Vec<Unreadable>,
}

/// An instant that the schedule named, and what became of it.
#[derive(ToSchema)]
pub(in crate::http) struct Occurrence {
    task_id: String,
    #[schema(format = DateTime)]
    due_at: String,
    /// `ran`, `coalesced` or `skipped`.
    outcome: String,
    /// The run it has.
    #[schema(required = false, nullable = false)]
    run_id: Option<String>,
    /// The run that stands for it.
    #[schema(required = false, nullable = false)]
    into: Option<String>,
    /// Why it has none.
    #[schema(required = false, nullable = false)]
    reason: Option<Value>,
    late_by_ms: u64,
    #[schema(format = DateTime)]
    recorded_at: String,
    recorded_by: String,
    /// How many it stands for.
    count: u64,
}

#[derive(ToSchema)]
pub(in crate::http) struct NextOccurrence {
    #[schema(format = DateTime)]
    due_at: String,
    /// The same in the zone of the schedule, with its offset and its name: `2026-07-01T09:00:00+02:00[Europe/Berlin]`.
    due_at_local: String,
}
