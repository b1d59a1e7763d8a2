//! An event as it is shown.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::occurrence_id;
use crate::model::{AgentId, Event, EventKind, InstanceId, RunId, RunStatus, TaskId, Timestamp};

/// An event as it is shown; also a line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventView {
    /// What happened.
    pub event: EventKind,
    /// When, by the store's clock.
    pub timestamp: Timestamp,
    /// Its number within its run, or within its task if it concerns no run.
    pub sequence: u64,
    /// Its place among all events of the store.
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
    /// The occurrence that wanted the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrence_id: Option<String>,
    /// Its due time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// What is particular.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        Self {
            event: event.event,
            timestamp: event.timestamp,
            sequence: event.sequence,
            cursor: event.cursor,
            agent_id: event.agent_id.clone(),
            task_id: event.task_id.clone(),
            run_id: event.run_id.clone(),
            session_id: event.session_id.clone(),
            status: event.status,
            attempt: event.attempt,
            fence: event.fence,
            instance: event.instance,
            occurrence_id: event.occurrence.map(|due_at| occurrence_id(&event.task_id, due_at)),
            due_at: event.occurrence,
            data: event.data.clone(),
        }
    }
}
