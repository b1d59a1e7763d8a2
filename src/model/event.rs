//! Facts in the past tense, numbered from 1 without gaps for each run and each task.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentId, InstanceId, RunId, RunStatus, TaskId, Timestamp};

/// What happened (contract, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it; the contract's section 8 lists them")]
pub enum EventKind {
    #[serde(rename = "background_task_created")]
    TaskCreated,
    #[serde(rename = "background_task_updated")]
    TaskUpdated,
    #[serde(rename = "background_task_paused")]
    TaskPaused,
    #[serde(rename = "background_task_resumed")]
    TaskResumed,
    #[serde(rename = "background_task_deleted")]
    TaskDeleted,
    #[serde(rename = "background_task_scheduled")]
    TaskScheduled,
    #[serde(rename = "background_task_schedule_failing")]
    ScheduleFailing,
    #[serde(rename = "background_run_queued")]
    Queued,
    #[serde(rename = "background_run_claimed")]
    Claimed,
    #[serde(rename = "background_run_started")]
    Started,
    #[serde(rename = "background_run_heartbeat")]
    Heartbeat,
    #[serde(rename = "background_run_progress")]
    Progress,
    #[serde(rename = "background_run_retrying")]
    Retrying,
    #[serde(rename = "background_run_recovered")]
    Recovered,
    #[serde(rename = "background_run_interrupted")]
    Interrupted,
    #[serde(rename = "background_run_completed")]
    Completed,
    #[serde(rename = "background_run_failed")]
    Failed,
    #[serde(rename = "background_run_timeout")]
    Timeout,
    #[serde(rename = "background_run_cancel_requested")]
    CancelRequested,
    #[serde(rename = "background_run_cancelled")]
    Cancelled,
    #[serde(rename = "background_run_skipped")]
    Skipped,
    #[serde(rename = "background_run_lost")]
    Lost,
    #[serde(rename = "background_run_reinstated")]
    Reinstated,
    #[serde(rename = "background_run_awaiting_approval")]
    AwaitingApproval,
    #[serde(rename = "background_run_superseded")]
    Superseded,
    #[serde(rename = "background_run_handed_over")]
    HandedOver,
    #[serde(rename = "background_run_outcome_refused")]
    OutcomeRefused,
}

impl EventKind {
    /// Every kind, in the order of the number that stores keep.
    pub const ALL: [Self; 27] = [
        Self::TaskCreated,
        Self::TaskUpdated,
        Self::TaskPaused,
        Self::TaskResumed,
        Self::TaskDeleted,
        Self::TaskScheduled,
        Self::ScheduleFailing,
        Self::Queued,
        Self::Claimed,
        Self::Started,
        Self::Heartbeat,
        Self::Progress,
        Self::Retrying,
        Self::Recovered,
        Self::Interrupted,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::CancelRequested,
        Self::Cancelled,
        Self::Skipped,
        Self::Lost,
        Self::Reinstated,
        Self::AwaitingApproval,
        Self::Superseded,
        Self::HandedOver,
        Self::OutcomeRefused,
    ];

    /// The number that stores keep; never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// An event as a decision makes it. The store adds the ids of its subject and the cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its number within its run or task, from 1.
    pub sequence: u64,
    /// What happened.
    pub kind: EventKind,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The run's status afterwards.
    pub status: Option<RunStatus>,
    /// The attempt it concerns; 0 before the first.
    pub attempt: u32,
    /// The run's fence afterwards.
    pub fence: u64,
    /// The instance that held the run, or that did it.
    pub instance: Option<InstanceId>,
    /// What is particular: a JSON object, as text.
    pub data: Option<Box<str>>,
}

/// Whose events these are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A run's.
    Run(RunId),
    /// A task's own: created, paused ...; those of its runs are theirs.
    Task(TaskId),
    /// Everybody's.
    All,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub event: EventKind,
    /// When, by the store's clock.
    pub timestamp: Timestamp,
    /// Its number within its run, or within its task if it concerns no run.
    pub sequence: u64,
    /// Its place among all events of the store. Rises, with gaps.
    pub cursor: u64,
    /// The agent.
    pub agent_id: AgentId,
    /// The task.
    pub task_id: TaskId,
    /// The run.
    pub run_id: Option<RunId>,
    /// The run's session.
    pub session_id: Option<Arc<str>>,
    /// The run's status afterwards.
    pub status: Option<RunStatus>,
    /// The attempt; 0 before the first.
    pub attempt: u32,
    /// The run's fence afterwards.
    pub fence: u64,
    /// The instance that held the run, or that did it.
    pub instance: Option<InstanceId>,
    /// The due time of the occurrence that wanted the run.
    pub occurrence: Option<Timestamp>,
    /// What is particular.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
}
