//! One life of a task: the run, its lease, its cancel intent and its outcome are one record (design.md,
//! section 5). What may happen to it is in [`crate::rules`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_actors::FencingToken;

use super::task::Metadata;
use super::{
    AgentId, AttemptId, InstanceId, OverlapPolicy, RetryPolicy, RunId, RunResult, Seconds, TaskId, Timestamp,
};

/// Shows that a run was granted: the run's fence, and a number drawn for the grant. Equality is on both.
pub type Token = FencingToken;

/// Where a run stands. The arrows are in [`crate::rules::allowed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Wanted, and waiting to be claimed.
    Queued,
    /// An instance holds it and has not begun.
    Claimed,
    /// An attempt is in progress.
    Running,
    /// It failed and waits for its next attempt.
    Retrying,
    /// It waits for a person.
    AwaitingApproval,
    /// Done.
    Completed,
    /// Given up after a failure.
    Failed,
    /// Given up because time ran out.
    Timeout,
    /// Given up on request.
    Cancelled,
    /// Never run, because of another.
    Skipped,
    /// Its owner is gone; declared so by the store.
    Lost,
}

impl RunStatus {
    /// Every status, in the order of the number that stores keep.
    pub const ALL: [Self; 11] = [
        Self::Queued,
        Self::Claimed,
        Self::Running,
        Self::Retrying,
        Self::AwaitingApproval,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Skipped,
        Self::Lost,
    ];

    /// Whether it will never change again (T2).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Timeout | Self::Cancelled | Self::Skipped)
    }

    /// Whether an instance may hold it.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Claimed | Self::Running)
    }

    /// Whether it waits to be claimed.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::Retrying)
    }

    /// Whether it takes its place in the lanes of its task: live, but not waiting for a person (T24).
    #[must_use]
    pub const fn is_active(self) -> bool {
        self.is_waiting() || self.is_held() || matches!(self, Self::Lost)
    }

    /// Whether it takes room in its lanes, so that others wait: it executes, or keeps its place for a retry.
    #[must_use]
    pub const fn takes_room(self) -> bool {
        self.is_held() || matches!(self, Self::Retrying | Self::Lost)
    }

    /// Whether a caller that waits for the run is answered: terminal, or waiting for a person (rulings).
    #[must_use]
    pub const fn is_settled(self) -> bool {
        self.is_terminal() || matches!(self, Self::AwaitingApproval)
    }

    /// The number that stores keep; never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The status with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run as it stands. Decisions replace it as a whole; see [`crate::store::RunWrite`].
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name.
    pub run_id: RunId,
    /// What never changes about it.
    pub spec: Arc<RunSpec>,
    /// Where it stands.
    pub status: RunStatus,
    /// Rises with every write but renewals of its lease. 1 when it was queued.
    pub version: u64,
    /// Drawn for the last write: who repeats a write finds out that it was made.
    pub stamp: u64,
    /// When it may be claimed; of a retry, when the delay is over.
    pub due_at: Timestamp,
    /// Where it waits. Kept by the store, which ignores what a write says of it.
    pub place: Place,
    /// Attempts begun.
    pub attempt: u32,
    /// Attempts that failed or timed out: what the retry policy counts.
    pub failures: u32,
    /// Attempts that were interrupted or lost: counted apart, they spend no retry.
    pub interruptions: u32,
    /// Rises with every grant and every revocation; never lowered, never used twice (I2).
    pub fence: u64,
    /// Who holds it.
    pub lease: Option<Lease>,
    /// The token that was lost, until somebody else is granted the run: its holder may be reinstated.
    pub lost_token: Option<Token>,
    /// That somebody wants it cancelled.
    pub cancel: Option<CancelIntent>,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When its first attempt began.
    pub started_at: Option<Timestamp>,
    /// When its latest attempt began.
    pub attempt_started_at: Option<Timestamp>,
    /// When it became terminal.
    pub finished_at: Option<Timestamp>,
    /// Why its latest attempt did not complete.
    pub error: Option<RunError>,
    /// What it answered; also what a cancelled run had so far (P7).
    pub result: Option<RunResult>,
    /// How far it says it is.
    pub progress: Option<Progress>,
    /// What it asked a person, and the answer.
    pub approval: Option<Approval>,
    /// The run because of which it was skipped, or that took its place after it was lost.
    pub blocked_by: Option<RunId>,
    /// The number of its last event.
    pub last_event: u64,
}

impl Run {
    /// The token of the current grant.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.lease.map(|lease| Token { fence: self.fence, nonce: lease.nonce })
    }

    /// Its latest attempt, if one has begun, as in progress.
    #[must_use]
    pub fn current_attempt(&self) -> Option<Attempt> {
        Some(Attempt {
            attempt_id: self.run_id.attempt(self.attempt),
            number: self.attempt,
            status: AttemptStatus::Running,
            instance: self.lease?.owner,
            fence: self.fence,
            started_at: self.attempt_started_at?,
            finished_at: None,
            error: None,
        })
    }
}

/// What never changes about a run: enough to execute it though its task is changed or gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The task.
    pub task_id: TaskId,
    /// Who executes it.
    pub agent_id: AgentId,
    /// What the agent is asked.
    pub query: Arc<str>,
    /// What wanted it.
    pub trigger: Trigger,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it was to run at first: the due time of its occurrence, or when it was asked for.
    pub first_due_at: Timestamp,
    /// How long after that it was queued, in milliseconds.
    pub late_by_ms: u64,
    /// The due time of the occurrence that wanted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<Timestamp>,
    /// What makes a repeated request the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// The session it belongs to.
    pub session_id: Arc<str>,
    /// The folder of its files below the workspace root.
    pub workspace_path: Arc<str>,
    /// Whether `run.json` is kept there.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub write_run_json: bool,
    /// Whether `events.jsonl` is kept there.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub write_events_jsonl: bool,
    /// Its limits.
    pub limits: Limits,
    /// What happens after a failure.
    pub retry_policy: RetryPolicy,
    /// What its task says of runs beside others.
    pub overlap_policy: OverlapPolicy,
    /// What it must have room in to be claimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<Lane>,
    /// Higher is claimed first.
    pub priority: i32,
    /// The run that this one does again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Whether it may be claimed while its task is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub override_pause: bool,
    /// The task's metadata at that time.
    #[serde(default)]
    pub metadata: Metadata,
}

impl RunSpec {
    /// Whether its host executes it and says itself what becomes of it ([`crate::ownership`]): nobody claims
    /// such a run, and when its owner is gone it stays lost.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.agent_id.is_host()
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(flag: &bool) -> bool {
    *flag
}

/// The time limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The longest an attempt may take.
    pub timeout: Option<Seconds>,
    /// When the run must be final, waiting included.
    pub deadline_at: Option<Timestamp>,
}

/// What wanted a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A caller.
    Manual,
    /// The schedule of its task.
    Schedule,
    /// A caller that wants an ended run done again.
    Retry,
}

/// What makes a repeated request the same run, within its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The caller's key.
    pub key: Arc<str>,
    /// A digest of the request: the same key with another request is a conflict.
    pub digest: u64,
}

/// Something of which at most so many runs execute at once: a task (`task:ID`), a session (`session:ID`), a
/// concurrency key (`key:TEXT`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lane {
    /// Its name.
    pub name: Arc<str>,
    /// How many runs may take room in it.
    pub limit: u32,
}

/// Where a run waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum Place {
    /// It does not wait to be claimed.
    #[default]
    Nowhere,
    /// It may be claimed now.
    Ready,
    /// It is not due.
    Future,
    /// A lane it needs is full.
    Lane {
        /// The lane.
        lane: Arc<str>,
    },
    /// Its task is paused.
    Paused,
}

/// Why a run waits, since when (T5, field D5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Why.
    pub reason: WaitReason,
    /// Since when.
    pub since: Timestamp,
}

/// Why a run waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum WaitReason {
    /// It is not due.
    NotDue {
        /// When it is.
        until: Timestamp,
    },
    /// A lane it needs is full.
    LaneFull {
        /// The lane.
        lane: Arc<str>,
        /// Who takes the room.
        holders: Vec<RunId>,
    },
    /// Its host gave it back: other work has what it would exclude, most often its session. It is tried again.
    Busy {
        /// What has it, or what else was in the way.
        because: Arc<str>,
    },
    /// Its task is paused.
    Paused,
    /// No live instance is known to have the agent.
    NoAgent {
        /// The agent.
        agent_id: AgentId,
    },
    /// It may be claimed; every worker is busy.
    Worker,
    /// A person has to answer.
    Approval,
}

/// A claim on a run, judged by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The instance that holds it.
    pub owner: InstanceId,
    /// Drawn for the grant; with the run's fence it is the token.
    pub nonce: u64,
    /// Until when.
    pub expires_at: Timestamp,
    /// When it was granted or last renewed.
    pub heartbeat_at: Timestamp,
}

/// That somebody wants a run cancelled. The first one is kept (X7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelIntent {
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// Why.
    pub reason: Arc<str>,
    /// By whom.
    pub requested_by: Arc<str>,
    /// When the owner's authority is revoked if the run has not ended by itself.
    pub force_at: Option<Timestamp>,
}

/// How insistently a run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// The owner is asked to stop and decides how it ends.
    #[default]
    Cooperative,
    /// The owner's authority is revoked first; the run is cancelled at once (T41).
    Force,
}

/// The kind of an error, as retry policies name it: `exception`, `timeout`, `panic`, `lost`, or a word of the
/// agent's own.
pub type ErrorClass = Arc<str>;

/// Why an attempt did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// Its kind, as retry policies name it.
    pub class: ErrorClass,
    /// A broader kind that it belongs to: a policy that names either tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<ErrorClass>,
    /// What it says.
    pub message: Arc<str>,
    /// How long the agent asks to wait before the next attempt, at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Seconds>,
}

impl RunError {
    /// An error of this class.
    #[must_use]
    pub fn new(class: impl Into<ErrorClass>, message: impl Into<Arc<str>>) -> Self {
        Self { class: class.into(), message: message.into(), within: None, retry_after: None }
    }

    /// Whether a policy that names this class means it: by its own class or by the broader one.
    #[must_use]
    pub fn is_of(&self, class: &str) -> bool {
        &*self.class == class || self.within.as_deref() == Some(class)
    }
}

/// How far a run says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: Option<u8>,
    /// In words.
    pub message: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// What a run asked a person, and the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The question.
    pub question: Arc<str>,
    /// What belongs to it.
    #[serde(default)]
    pub data: Value,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// What the person said.
    pub answer: Option<ApprovalAnswer>,
}

impl Approval {
    /// The longest question. An attempt that asks for more fails, class `output_too_large`.
    pub const MOST_QUESTION_BYTES: usize = 4 * 1024;
    /// The most that belongs to a question, as JSON: past it the attempt fails like that. The most that is answered
    /// besides yes or no as well: programs find it in a variable of their environment, which a system bounds.
    pub const MOST_DATA_BYTES: usize = 64 * 1024;
}

/// What a person answered; the next attempt receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Yes or no.
    pub approved: bool,
    /// Anything else.
    #[serde(default)]
    pub answer: Value,
}

/// One try within a run, under one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its name.
    pub attempt_id: AttemptId,
    /// Its number, from 1.
    pub number: u32,
    /// How it stands.
    pub status: AttemptStatus,
    /// Who tried.
    pub instance: InstanceId,
    /// Under which fence.
    pub fence: u64,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it did not complete.
    pub error: Option<RunError>,
}

impl Attempt {
    /// How long it took, or has taken by then.
    #[must_use]
    pub fn took(&self, now: Timestamp) -> Duration {
        self.finished_at.unwrap_or(now).since(self.started_at)
    }
}

/// How an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// In progress.
    Running,
    /// It completed, or ended its part by asking a person.
    Completed,
    /// It failed.
    Failed,
    /// Its time ran out.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// Its host was shut down or replaced.
    Interrupted,
    /// Its host is gone.
    Lost,
}

impl AttemptStatus {
    /// Every status, in the order of the number that stores keep.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Interrupted,
        Self::Lost,
    ];

    /// The number that stores keep; never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The status with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}
