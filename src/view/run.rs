//! A run as it is shown.

use std::sync::Arc;

use serde::Serialize;

use super::occurrence_id;
use crate::model::{
    AgentId, Approval, ErrorClass, InstanceId, Metadata, Progress, Run, RunError, RunId, RunResult,
    RunStatus, Seconds, TaskId, Timestamp, Trigger, Waiting,
};

/// A run as it is shown (contract, section 2).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// The task.
    pub task_id: TaskId,
    /// Who executes it.
    pub agent_id: AgentId,
    /// Where it stands.
    pub status: RunStatus,
    /// Attempts begun.
    pub attempt: u32,
    /// The most attempts it can come to as it stands: the first, the retries, and one for each interruption.
    pub max_attempts: u32,
    /// What the agent is asked.
    pub query_snapshot: Arc<str>,
    /// What wanted it.
    pub trigger_type: Trigger,
    /// When that was.
    pub triggered_at: Timestamp,
    /// When it may be claimed; of a retry, when the delay is over.
    pub due_at: Timestamp,
    /// How long after the due time it was queued.
    pub late_by_seconds: Seconds,
    /// The occurrence that wanted it.
    pub occurrence_id: Option<String>,
    /// What makes a repeated request the same run.
    pub idempotency_key: Option<Arc<str>>,
    /// The session it belongs to.
    pub session_id: Arc<str>,
    /// The folder of its files below the workspace root.
    pub workspace_path: Arc<str>,
    /// The instance that holds it.
    pub lease_owner: Option<InstanceId>,
    /// Rises with every grant and revocation.
    pub fence: u64,
    /// Until when it is held.
    pub lease_expires_at: Option<Timestamp>,
    /// When the lease was granted or last renewed.
    pub heartbeat_at: Option<Timestamp>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it was last claimed.
    pub claimed_at: Option<Timestamp>,
    /// When its first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it became terminal.
    pub finished_at: Option<Timestamp>,
    /// When somebody first wanted it cancelled.
    pub cancel_requested_at: Option<Timestamp>,
    /// Why.
    pub cancel_reason: Option<Arc<str>>,
    /// By whom.
    pub cancelled_by: Option<Arc<str>>,
    /// Why its latest attempt did not complete.
    pub error: Option<ErrorView>,
    /// The first 1,000 characters of what it answered.
    pub result_preview: Option<String>,
    /// What it answered, or where that is kept.
    pub result: Option<RunResult>,
    /// How far it says it is.
    pub progress: Option<Progress>,
    /// Attempts that were interrupted or lost.
    pub interruptions: u32,
    /// Attempts that failed or timed out.
    pub failures: u32,
    /// The task's metadata when it was queued.
    pub metadata: Metadata,
    /// Higher is claimed first.
    pub priority: i32,
    /// Rises with every change.
    pub version: u64,
    /// The longest an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Seconds>,
    /// When it must be final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// The run that it does again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The run because of which it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<RunId>,
    /// What it asked a person, and the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Why it waits (T5), where that was looked up: a run alone does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

/// Why an attempt did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorView {
    /// Its kind, as retry policies name it.
    pub class: ErrorClass,
    /// A broader kind that it belongs to: a policy that names either tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<ErrorClass>,
    /// What it says.
    pub message: Arc<str>,
    /// How long the agent asked to wait before the next attempt, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<Seconds>,
}

impl From<&RunError> for ErrorView {
    fn from(error: &RunError) -> Self {
        Self {
            class: error.class.clone(),
            within: error.within.clone(),
            message: error.message.clone(),
            retry_after_seconds: error.retry_after,
        }
    }
}

impl RunView {
    /// The same with the reason why it waits.
    #[must_use]
    pub fn waiting(self, waiting: Option<Waiting>) -> Self {
        Self { waiting, ..self }
    }
}

impl From<&Run> for RunView {
    fn from(run: &Run) -> Self {
        let spec = &*run.spec;
        Self {
            run_id: run.run_id.clone(),
            task_id: spec.task_id.clone(),
            agent_id: spec.agent_id.clone(),
            status: run.status,
            attempt: run.attempt,
            max_attempts: max_attempts(run),
            query_snapshot: spec.query.clone(),
            trigger_type: spec.trigger,
            triggered_at: spec.queued_at,
            due_at: run.due_at,
            late_by_seconds: Seconds::from_ms(spec.late_by_ms),
            occurrence_id: spec.occurrence.map(|due_at| occurrence_id(&spec.task_id, due_at)),
            idempotency_key: spec.idempotency.as_ref().map(|idempotency| idempotency.key.clone()),
            session_id: spec.session_id.clone(),
            workspace_path: spec.workspace_path.clone(),
            lease_owner: run.lease.map(|lease| lease.owner),
            fence: run.fence,
            lease_expires_at: run.lease.map(|lease| lease.expires_at),
            heartbeat_at: run.lease.map(|lease| lease.heartbeat_at),
            queued_at: spec.queued_at,
            claimed_at: run.claimed_at,
            started_at: run.started_at,
            finished_at: run.finished_at,
            cancel_requested_at: run.cancel.as_ref().map(|cancel| cancel.requested_at),
            cancel_reason: run.cancel.as_ref().map(|cancel| cancel.reason.clone()),
            cancelled_by: run.cancel.as_ref().map(|cancel| cancel.requested_by.clone()),
            error: run.error.as_ref().map(ErrorView::from),
            result_preview: run.result.as_ref().map(RunResult::preview),
            result: run.result.clone(),
            progress: run.progress.clone(),
            interruptions: run.interruptions,
            failures: run.failures,
            metadata: spec.metadata.clone(),
            priority: spec.priority,
            version: run.version,
            timeout_seconds: spec.limits.timeout,
            deadline_at: spec.limits.deadline_at,
            retry_of: spec.retry_of.clone(),
            blocked_by: run.blocked_by.clone(),
            approval: run.approval.clone(),
            waiting: None,
        }
    }
}

/// The bound of T3 as the run stands.
fn max_attempts(run: &Run) -> u32 {
    run.spec.retry_policy.max_retries.saturating_add(1).saturating_add(run.interruptions)
}
