//! The flat form of a task that users write and stores keep: unknown fields are refused, and every problem
//! is told at once.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::check::Problems;
use super::read::{object, word_or_object};
use super::{
    AgentId, Metadata, OverlapPolicy, RetryPolicy, ScheduleFields, Seconds, SessionPolicy, TaskId, TaskSpec,
    WorkspacePolicy,
};
use crate::model::Invalid;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFields {
    pub(super) task_id: Option<String>,
    pub(super) agent_id: Option<String>,
    query: Option<Arc<str>>,
    #[serde(default, deserialize_with = "word_or_object")]
    schedule: ScheduleFields,
    #[serde(default = "yes")]
    enabled: bool,
    timeout_seconds: Option<Seconds>,
    deadline_seconds: Option<Seconds>,
    #[serde(default, deserialize_with = "object")]
    retry_policy: RetryPolicy,
    #[serde(default)]
    overlap_policy: OverlapPolicy,
    #[serde(default, deserialize_with = "word_or_object")]
    session_policy: SessionFields,
    #[serde(default, deserialize_with = "object")]
    workspace_policy: WorkspacePolicy,
    #[serde(default)]
    priority: i32,
    concurrency_key: Option<Arc<str>>,
    concurrency_limit: Option<u32>,
    metadata: Option<Box<RawValue>>,
}

/// The names of the fields, for what replaces some of them.
pub(super) const NAMES: [&str; 15] = [
    "task_id",
    "agent_id",
    "query",
    "schedule",
    "enabled",
    "timeout_seconds",
    "deadline_seconds",
    "retry_policy",
    "overlap_policy",
    "session_policy",
    "workspace_policy",
    "priority",
    "concurrency_key",
    "concurrency_limit",
    "metadata",
];

fn yes() -> bool {
    true
}

/// The flat form of a session policy.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionFields {
    #[serde(default, rename = "type")]
    kind: SessionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<Arc<str>>,
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SessionKind {
    #[default]
    Task,
    Run,
    Fixed,
}

impl SessionFields {
    fn check(self, problems: &mut Problems) -> Option<SessionPolicy> {
        let field = "session_policy.session_id";
        if let Some(session_id) = &self.session_id {
            problems.expect(self.kind == SessionKind::Fixed, field, "nothing unless the type is \"fixed\"");
            problems.name(field, session_id);
        }
        match self.kind {
            SessionKind::Task => Some(SessionPolicy::Task),
            SessionKind::Run => Some(SessionPolicy::Run),
            SessionKind::Fixed => {
                let session_id = problems.need(field, self.session_id, "the name of a session")?;
                Some(SessionPolicy::Fixed { session_id })
            }
        }
    }
}

impl From<SessionPolicy> for SessionFields {
    fn from(policy: SessionPolicy) -> Self {
        match policy {
            SessionPolicy::Task => Self { kind: SessionKind::Task, session_id: None },
            SessionPolicy::Run => Self { kind: SessionKind::Run, session_id: None },
            SessionPolicy::Fixed { session_id } => {
                Self { kind: SessionKind::Fixed, session_id: Some(session_id) }
            }
        }
    }
}

impl<'de> Deserialize<'de> for SessionPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields: SessionFields = word_or_object(deserializer)?;
        let mut problems = Problems::default();
        let policy = fields.check(&mut problems);
        problems.done(policy).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<TaskFields> for TaskSpec {
    type Error = Invalid;

    fn try_from(fields: TaskFields) -> Result<Self, Invalid> {
        let mut problems = Problems::default();
        let spec = fields.check(&mut problems);
        problems.done(spec)
    }
}

impl TaskFields {
    /// The task, if everything is there; what is wrong is noted, to the last field.
    fn check(self, problems: &mut Problems) -> Option<TaskSpec> {
        let task_id = problems.need("task_id", self.task_id, "the name of the task");
        let task_id = task_id.and_then(|id| problems.take("task_id", TaskId::new(id)));
        let agent_id = problems.need("agent_id", self.agent_id, "the name of an agent");
        let agent_id = agent_id.and_then(|id| problems.take("agent_id", AgentId::new(id)));
        let query = problems.need("query", self.query, "what the agent is asked");
        query.iter().for_each(|query| problems.query(query));
        let schedule = self.schedule.check(problems);
        problems.above_zero("timeout_seconds", self.timeout_seconds);
        problems.above_zero("deadline_seconds", self.deadline_seconds);
        problems.retry_policy(&self.retry_policy);
        let session_policy = self.session_policy.check(problems);
        let names =
            (agent_id.as_ref().map_or("", AgentId::as_str), task_id.as_ref().map_or("", TaskId::as_str));
        problems.workspace_policy(&self.workspace_policy, names.0, names.1);
        check_concurrency(self.concurrency_key.as_deref(), self.concurrency_limit, problems);
        self.metadata.iter().for_each(|json| problems.metadata(json.get()));
        Some(TaskSpec {
            task_id: task_id?,
            agent_id: agent_id?,
            query: query?,
            schedule: schedule?,
            enabled: self.enabled,
            timeout: self.timeout_seconds,
            deadline: self.deadline_seconds,
            retry_policy: self.retry_policy,
            overlap_policy: self.overlap_policy,
            session_policy: session_policy?,
            workspace_policy: self.workspace_policy,
            priority: self.priority,
            concurrency_key: self.concurrency_key,
            concurrency_limit: self.concurrency_limit.unwrap_or(1),
            metadata: self.metadata.map_or_else(Metadata::default, Metadata::new),
        })
    }
}

fn check_concurrency(key: Option<&str>, limit: Option<u32>, problems: &mut Problems) {
    key.iter().for_each(|key| problems.name("concurrency_key", key));
    problems.expect(limit != Some(0), "concurrency_limit", "at least 1, found 0");
    let alone = limit.is_some() && key.is_none();
    problems.expect(!alone, "concurrency_key", "the key that \"concurrency_limit\" is for, found nothing");
}

impl From<TaskSpec> for TaskFields {
    fn from(spec: TaskSpec) -> Self {
        Self {
            task_id: Some(spec.task_id.into()),
            agent_id: Some(spec.agent_id.into()),
            query: Some(spec.query),
            schedule: spec.schedule.into(),
            enabled: spec.enabled,
            timeout_seconds: spec.timeout,
            deadline_seconds: spec.deadline,
            retry_policy: spec.retry_policy,
            overlap_policy: spec.overlap_policy,
            session_policy: spec.session_policy.into(),
            workspace_policy: spec.workspace_policy,
            priority: spec.priority,
            concurrency_limit: spec.concurrency_key.as_ref().map(|_| spec.concurrency_limit),
            concurrency_key: spec.concurrency_key,
            metadata: RawValue::from_string(spec.metadata.as_json().to_owned()).ok(),
        }
    }
}
