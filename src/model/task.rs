//! Durable instructions and their policies.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AgentId, Schedule, Seconds, TaskId, Timestamp};

mod check;
mod fields;
mod patch;
mod read;
mod schedule_fields;

pub use patch::TaskPatch;
pub(super) use schedule_fields::ScheduleFields;

/// What a user says of a task. Checked: [`TaskSpec::parse`] is the way in for text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "fields::TaskFields", into = "fields::TaskFields")]
pub struct TaskSpec {
    /// Its name.
    pub task_id: TaskId,
    /// Who executes it.
    pub agent_id: AgentId,
    /// What the agent is asked; not blank, kept byte for byte.
    pub query: Arc<str>,
    /// When it wants runs.
    pub schedule: Schedule,
    /// Whether it is dispatched; a paused task is not.
    pub enabled: bool,
    /// The longest an attempt may take.
    pub timeout: Option<Seconds>,
    /// The longest a run may take from queued to final, waiting included.
    pub deadline: Option<Seconds>,
    /// What happens after a failure.
    pub retry_policy: RetryPolicy,
    /// What happens when a run is wanted while another is active.
    pub overlap_policy: OverlapPolicy,
    /// Which session its runs belong to.
    pub session_policy: SessionPolicy,
    /// Where its runs keep their files.
    pub workspace_policy: WorkspacePolicy,
    /// Higher is claimed first. Default 0.
    pub priority: i32,
    /// Runs with the same key execute at most `concurrency_limit` at once, whatever their tasks.
    pub concurrency_key: Option<Arc<str>>,
    /// At least 1. Default 1.
    pub concurrency_limit: u32,
    /// Any JSON object, kept digit for digit.
    pub metadata: Metadata,
}

/// JSON that is kept as it was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metadata(Arc<RawValue>);

impl Metadata {
    /// Keeps this text.
    #[must_use]
    pub fn new(json: Box<RawValue>) -> Self {
        Self(json.into())
    }

    /// The text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl Default for Metadata {
    fn default() -> Self {
        // An empty object is JSON; should that ever fail, null is what a raw value defaults to.
        Self(RawValue::from_string("{}".to_owned()).unwrap_or_default().into())
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

/// A task as it is stored.
#[derive(Debug, Clone, Serialize)]
pub struct Task {
    /// What the user says.
    #[serde(flatten)]
    pub spec: TaskSpec,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Rises with every change; 1 at first.
    pub revision: u64,
    /// The number of its last own event.
    #[serde(skip)]
    pub last_event: u64,
}

/// What happens after a failure. Interruptions and lost leases are no failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// How many failures are tried again. Default 0.
    pub max_retries: u32,
    /// The delay after the first failure. Default 30 s.
    pub initial_delay_seconds: Seconds,
    /// The longest delay. Default 300 s.
    pub max_delay_seconds: Seconds,
    /// How the delay grows.
    pub backoff: BackoffKind,
    /// How much longer than its minimum a delay may be, as a share of it; the full spread is kept at the
    /// cap, and none is shorter than promised (field G14). Default 0.2.
    pub jitter: f64,
    /// The error classes that are tried again. Default `exception` and `timeout`.
    pub retry_on: BTreeSet<Arc<str>>,
    /// How many interruptions and lost leases are put up with. Default 10.
    pub max_interruptions: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 0,
            initial_delay_seconds: Seconds::new(30),
            max_delay_seconds: Seconds::new(300),
            backoff: BackoffKind::default(),
            jitter: 0.2,
            retry_on: ["exception".into(), "timeout".into()].into(),
            max_interruptions: 10,
        }
    }
}

/// How the delay between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// Always the initial delay.
    #[default]
    Fixed,
    /// Twice as long after each failure.
    Exponential,
}

/// What happens when a run is wanted while another of the task is active (contract, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// It is recorded as skipped, with the run that blocked it.
    #[default]
    SkipIfRunning,
    /// It waits; of scheduled runs at most one waits.
    QueueNext,
    /// The older runs are cancelled; it starts when they have ended.
    CancelPrevious,
    /// It runs beside the others.
    AllowParallel,
}

/// Which session the runs of a task belong to. Also read from its bare word: `"task"`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionPolicy {
    /// One for the task: `background:{agent}:{task}`.
    #[default]
    Task,
    /// One for each run: `background:{run_id}`.
    Run,
    /// This one.
    Fixed {
        /// The session.
        session_id: Arc<str>,
    },
}

/// Where the runs of a task keep their files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspacePolicy {
    /// The folder of a run below the workspace root, with `{agent_id}`, `{task_id}` and `{run_id}` put in.
    pub namespace_template: String,
    /// Whether `run.json` is kept there. Default true.
    pub write_run_json: bool,
    /// Whether `events.jsonl` is kept there. Default true.
    pub write_events_jsonl: bool,
}

impl Default for WorkspacePolicy {
    fn default() -> Self {
        Self {
            namespace_template: "background/{agent_id}/{task_id}/{run_id}".to_owned(),
            write_run_json: true,
            write_events_jsonl: true,
        }
    }
}
