//! What is asked and answered, as the document describes it. Never made: the views and readers are what counts, and
//! `tests/http` holds every answer against these.
#![allow(dead_code, reason = "only described")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

// --- problems -----------------------------------------------------------------------------------------------

/// Why a request was not done (RFC 9457).
#[derive(ToSchema)]
pub(super) struct Problem {
    /// What kind of problem: `urn:tenure:problem:WORD`.
    r#type: String,
    /// The kind in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// This problem in words.
    detail: String,
    /// The path that was asked for.
    instance: String,
    /// What to do next.
    #[schema(required = false, nullable = false)]
    hint: Option<String>,
    /// Every field that cannot be taken.
    #[schema(required = false)]
    errors: Vec<FieldProblem>,
    /// When asking again may help.
    #[schema(required = false, nullable = false)]
    retry_after_seconds: Option<u64>,
    /// The run that is in the way.
    #[schema(required = false, nullable = false)]
    run_id: Option<String>,
    /// The instance that has the files.
    #[schema(required = false, nullable = false)]
    held_by: Option<String>,
}

/// A field that cannot be taken.
#[derive(ToSchema)]
pub(super) struct FieldProblem {
    /// Where, as a path: `schedule.expression`.
    field: String,
    /// What was expected there, with what was found.
    expected: String,
}

// --- queries ------------------------------------------------------------------------------------------------

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// How many entries, up to 1,000 unless the settings say otherwise; 100 if left out.
    limit: Option<u32>,
    /// Where to go on: the `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunQuery {
    /// Of this task.
    task_id: Option<String>,
    /// Of this agent.
    agent_id: Option<String>,
    /// Of this session.
    session_id: Option<String>,
    /// In this state; given several times, in any of them.
    #[param(inline)]
    status: Option<Vec<RunStatus>>,
    /// Wanted by this.
    #[param(inline)]
    trigger_type: Option<Trigger>,
    /// Queued at or after.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Queued before.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// With this in the query, ignoring case of ASCII letters.
    text: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// Whether to wait until it has settled.
    wait: Option<bool>,
    /// How long to wait at most.
    timeout_seconds: Option<f64>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// The place of the last event that was seen: the number of one of a run, the cursor of one of all.
    after: Option<u64>,
    /// How many at most, for a list; up to 1,000 unless the settings say otherwise.
    limit: Option<u32>,
}

// --- tasks --------------------------------------------------------------------------------------------------

/// A durable instruction, as it is given.
#[derive(ToSchema)]
pub(super) struct NewTask {
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
pub(super) struct TaskChange {
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
pub(super) struct Task {
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
}

/// When a task wants runs. Also taken as the bare word of its type: `"manual"`.
#[derive(ToSchema)]
pub(super) struct Schedule {
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
pub(super) enum ScheduleType {
    Manual,
    Interval,
    Cron,
    Once,
}

/// What happens to occurrences that nobody fired in time.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum MisfirePolicy {
    RunOnce,
    SkipMissed,
    QueueAll,
}

/// What a cron expression means in a local hour that does not exist.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum DstGap {
    Shift,
    Skip,
}

/// What a cron expression means in a local hour that is there twice.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum DstFold {
    Auto,
    First,
    Both,
}

/// What happens after a failure.
#[derive(ToSchema)]
pub(super) struct RetryPolicy {
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
pub(super) enum Backoff {
    Fixed,
    Exponential,
}

/// What happens when a run is wanted while another of the task is active.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum OverlapPolicy {
    SkipIfRunning,
    QueueNext,
    CancelPrevious,
    AllowParallel,
}

/// Which session runs belong to. Also taken as the bare word of its type: `"task"`.
#[derive(ToSchema)]
pub(super) struct SessionPolicy {
    r#type: SessionType,
    /// Of a fixed one.
    #[schema(required = false, nullable = false)]
    session_id: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum SessionType {
    Task,
    Run,
    Fixed,
}

/// Where runs keep their files.
#[derive(ToSchema)]
pub(super) struct WorkspacePolicy {
    /// The folder of a run, with `{agent_id}`, `{task_id}` and `{run_id}` put in.
    #[schema(required = false)]
    namespace_template: String,
    #[schema(required = false)]
    write_run_json: bool,
    #[schema(required = false)]
    write_events_jsonl: bool,
}

#[derive(ToSchema)]
pub(super) struct Tasks {
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
pub(super) struct Unreadable {
    id: String,
    reason: String,
}

/// What was done to a task.
#[derive(ToSchema)]
pub(super) struct Done {
    /// `paused`, `resumed` or `deleted`.
    status: String,
    task_id: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Running {
    Cancel,
    Keep,
}

#[derive(ToSchema)]
pub(super) struct TaskStatus {
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
pub(super) struct ScheduleState {
    task_id: String,
    version: u64,
    /// The due time of the last occurrence that has a record.
    #[schema(required = true, format = DateTime)]
    last_due: Option<String>,
    place: SchedulePlace,
}

/// Whether it goes on, and when.
#[derive(ToSchema)]
pub(super) struct SchedulePlace {
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
pub(super) struct Occurrences {
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
pub(super) struct Occurrence {
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
pub(super) struct NextOccurrence {
    #[schema(format = DateTime)]
    due_at: String,
}

// --- runs ---------------------------------------------------------------------------------------------------

/// How a run is wanted.
#[derive(ToSchema)]
pub(super) struct WantedRun {
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
pub(super) struct WantedRetry {
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
pub(super) enum RunStatus {
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
pub(super) enum Trigger {
    Manual,
    Schedule,
    Retry,
}

/// One life of a task.
#[derive(ToSchema)]
pub(super) struct Run {
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
pub(super) struct RunError {
    class: String,
    message: String,
    #[schema(required = false, nullable = false)]
    retry_after_seconds: Option<f64>,
}

/// What a run answered: text, bytes in base 16, or the file that has it.
#[derive(ToSchema)]
pub(super) struct RunResult {
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
pub(super) struct Progress {
    #[schema(required = true)]
    percent: Option<u8>,
    message: String,
    #[schema(format = DateTime)]
    at: String,
}

/// What a run asked a person, and the answer.
#[derive(ToSchema)]
pub(super) struct Approval {
    question: String,
    data: Value,
    #[schema(format = DateTime)]
    asked_at: String,
    #[schema(required = true)]
    answer: Option<Answering>,
}

/// Why a run waits, since when.
#[derive(ToSchema)]
pub(super) struct Waiting {
    reason: WaitReason,
    #[schema(format = DateTime)]
    since: String,
}

/// Why a run waits.
#[derive(ToSchema)]
pub(super) struct WaitReason {
    /// `not_due`, `lane_full`, `paused`, `no_agent`, `worker` or `approval`.
    reason: String,
    #[schema(required = false, nullable = false, format = DateTime)]
    until: Option<String>,
    #[schema(required = false, nullable = false)]
    lane: Option<String>,
    /// The runs that take the room.
    #[schema(required = false)]
    holders: Vec<String>,
    #[schema(required = false, nullable = false)]
    agent_id: Option<String>,
}

#[derive(ToSchema)]
pub(super) struct Runs {
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
pub(super) struct Attempt {
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
pub(super) struct Cancelling {
    #[schema(required = false, nullable = false)]
    mode: Option<CancelMode>,
    #[schema(required = false)]
    reason: Option<String>,
}

/// `cooperative` asks the owner to stop; `force` revokes its authority at once.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum CancelMode {
    Cooperative,
    Force,
}

/// What a person answers.
#[derive(ToSchema)]
pub(super) struct Answering {
    approved: bool,
    /// Anything else that the next attempt is to know.
    #[schema(required = false)]
    answer: Value,
}

// --- events and files ---------------------------------------------------------------------------------------

/// What happened.
#[derive(ToSchema)]
pub(super) struct Event {
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
pub(super) struct RunEvents {
    run_id: String,
    events: Vec<Event>,
    count: u64,
    /// That there may be more after the last.
    more: bool,
}

#[derive(ToSchema)]
pub(super) struct AllEvents {
    events: Vec<Event>,
    count: u64,
    /// Where to go on.
    cursor: u64,
    /// That there may be more after the last.
    more: bool,
}

/// The files of a run.
#[derive(ToSchema)]
pub(super) struct Workspace {
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
pub(super) struct WorkspaceFile {
    path: String,
    name: String,
    size: u64,
    #[schema(format = DateTime)]
    modified_at: String,
    is_dir: bool,
}

// --- agents and the host ------------------------------------------------------------------------------------

/// What executes queries. Secrets are names of variables of the environment; other values are shown masked.
#[derive(ToSchema)]
pub(super) struct Agent {
    agent_id: String,
    /// `command`, `chat`, `http`, or `function`.
    kind: String,
    /// `file`, `stored` (made by a request), or `host` (in its code).
    source: String,
    #[schema(required = false, nullable = false)]
    command: Option<Vec<String>>,
    #[schema(required = false, nullable = false)]
    env: Option<BTreeMap<String, String>>,
    #[schema(required = false, nullable = false)]
    working_directory: Option<String>,
    #[schema(required = false, nullable = false)]
    stop_grace_seconds: Option<f64>,
    #[schema(required = false, nullable = false)]
    base_url: Option<String>,
    #[schema(required = false, nullable = false)]
    model: Option<String>,
    #[schema(required = false, nullable = false)]
    api_key_env: Option<String>,
    #[schema(required = false, nullable = false)]
    system_instruction: Option<String>,
    #[schema(required = false, nullable = false)]
    url: Option<String>,
    #[schema(required = false, nullable = false)]
    headers_env: Option<BTreeMap<String, String>>,
}

/// An agent as it is made.
#[derive(ToSchema)]
pub(super) struct NewAgent {
    agent_id: String,
    /// `chat` or `http`.
    kind: String,
    /// Of chat: what comes before `/chat/completions`.
    #[schema(required = false, nullable = false)]
    base_url: Option<String>,
    /// Of chat.
    #[schema(required = false, nullable = false)]
    model: Option<String>,
    /// Of chat: the variable that holds the key.
    #[schema(required = false)]
    api_key_env: Option<String>,
    /// Of chat.
    #[schema(required = false)]
    system_instruction: Option<String>,
    /// Of http.
    #[schema(required = false, nullable = false)]
    url: Option<String>,
    /// Of http: headers, each with the variable that holds its value.
    #[schema(required = false, nullable = false)]
    headers_env: Option<BTreeMap<String, String>>,
}

#[derive(ToSchema)]
pub(super) struct Agents {
    agents: Vec<Agent>,
    total: u64,
}

/// What was done to an agent.
#[derive(ToSchema)]
pub(super) struct AgentDone {
    /// `deleted`.
    status: String,
    agent_id: String,
}

/// How a host is.
#[derive(ToSchema)]
pub(super) struct Manager {
    /// Whether it starts new attempts.
    running: bool,
    initialized: bool,
    /// This start of the host.
    worker_id: String,
    lease_seconds: f64,
    agents: u64,
    tasks: u64,
    runs: u64,
    active_runs: u64,
    /// Every status with its count.
    status_counts: BTreeMap<String, u64>,
    health: Health,
    version: String,
}

#[derive(ToSchema)]
pub(super) struct Health {
    store: StoreHealth,
    /// Whether it starts nothing new.
    draining: bool,
    /// Attempts that execute here.
    executing: u64,
    /// Outcomes that wait for the store.
    unstored: u64,
}

#[derive(ToSchema)]
pub(super) struct StoreHealth {
    /// `answering` or `failing`.
    state: String,
    #[schema(required = false, nullable = false)]
    for_ms: Option<u64>,
    #[schema(required = false, nullable = false)]
    error: Option<String>,
}

#[derive(ToSchema)]
pub(super) struct Alive {
    /// `ok`.
    status: String,
}

#[derive(ToSchema)]
pub(super) struct Ready {
    ready: bool,
    store: StoreHealth,
    /// Whether it starts nothing new.
    draining: bool,
    /// Attempts that execute here.
    executing: u64,
    /// Outcomes that wait for the store.
    unstored: u64,
}

/// The live supervision tree.
#[derive(ToSchema)]
pub(super) struct Tree {
    generations: Vec<Generation>,
}

#[derive(ToSchema)]
pub(super) struct Generation {
    epoch: u64,
    /// It still has its authority.
    open: bool,
    registry: bool,
    operations: bool,
    active_operations: u64,
    /// Its services and processes in start order.
    children: Vec<Child>,
}

#[derive(ToSchema)]
pub(super) struct Child {
    name: Value,
    /// Its id, if it is a process.
    #[schema(required = true)]
    process: Option<String>,
    /// It is found under its id.
    bound: bool,
    patience: Value,
}

/// Any JSON.
#[derive(ToSchema)]
pub(super) struct Anything(Value);
