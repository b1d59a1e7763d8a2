//! The events, in the order they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;
use serde_json::Value;

use crate::model::{AgentId, Event, NewEvent, RunId, RunSpec, TaskId, Timestamp};

/// Whose an event is.
pub(super) enum Whose {
    Run(RunId, Arc<RunSpec>),
    Task(TaskId, AgentId),
}

pub(super) struct Told {
    pub(super) whose: Whose,
    pub(super) event: NewEvent,
}

/// All events by cursor, and those of the tasks themselves.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) told: BTreeMap<u64, Told>,
    pub(super) last: u64,
    pub(super) by_task: HashMap<TaskId, Vec<u64>>,
    /// When the tasks' own events were told.
    recorded: BTreeSet<(Timestamp, u64)>,
}

impl Journal {
    /// The cursor of the newest event.
    pub(super) fn cursor(&self) -> u64 {
        self.last
    }

    /// Tells an event of a run; its cursor is kept with the run.
    pub(super) fn tell(&mut self, whose: Whose, event: NewEvent) -> u64 {
        self.last += 1;
        self.told.insert(self.last, Told { whose, event });
        self.last
    }

    /// Tells an event of a task itself.
    pub(super) fn tell_of_task(&mut self, task_id: &TaskId, agent_id: &AgentId, event: NewEvent) {
        let at = event.at;
        let cursor = self.tell(Whose::Task(task_id.clone(), agent_id.clone()), event);
        self.by_task.entry(task_id.clone()).or_default().push(cursor);
        self.recorded.insert((at, cursor));
    }

    /// A task that is made again begins to count anew: the events of its former self stay among all.
    pub(super) fn begin_task(&mut self, task_id: &TaskId) {
        self.by_task.remove(task_id);
    }

    pub(super) fn all(&self, after: u64, limit: usize) -> Vec<Event> {
        let Some(first) = after.checked_add(1) else { return Vec::new() };
        self.told.range(first..).take(limit).map(|(cursor, told)| told.read(*cursor)).collect()
    }

    /// Those of these cursors whose number is above one.
    pub(super) fn some(&self, cursors: &[u64], after: u64, limit: usize) -> Vec<Event> {
        let sequence = |cursor: &u64| self.told.get(cursor).map_or(0, |told| told.event.sequence);
        let begin = cursors.partition_point(|cursor| sequence(cursor) <= after);
        let found = cursors[begin..].iter().take(limit);
        found.filter_map(|cursor| Some(self.told.get(cursor)?.read(*cursor))).collect()
    }

    pub(super) fn of_task(&self, task_id: &TaskId, after: u64, limit: usize) -> Vec<Event> {
        self.some(self.by_task.get(task_id).map_or(&[], Vec::as_slice), after, limit)
    }

    pub(super) fn forget(&mut self, cursors: &[u64]) {
        for cursor in cursors {
            self.told.remove(cursor);
        }
    }

    /// Forgets the oldest of the tasks' own events, if it was told before an instant.
    pub(super) fn forget_oldest_of_task(&mut self, before: Timestamp) -> bool {
        let Some((at, cursor)) = self.recorded.first().copied() else { return false };
        if at >= before {
            return false;
        }
        if let Some(Told { whose: Whose::Task(task_id, _), .. }) = self.told.remove(&cursor)
            && let Some(cursors) = self.by_task.get_mut(&task_id)
        {
            cursors.retain(|kept| *kept != cursor);
            if cursors.is_empty() {
                self.by_task.remove(&task_id);
            }
        }
        self.recorded.remove(&(at, cursor))
    }

    pub(super) fn any_of_task_before(&self, before: Timestamp) -> bool {
        self.recorded.first().is_some_and(|(at, _)| *at < before)
    }
}

impl Told {
    fn read(&self, cursor: u64) -> Event {
        let (agent_id, task_id, run_id, session_id, occurrence) = match &self.whose {
            Whose::Task(task_id, agent_id) => (agent_id, task_id, None, None, None),
            Whose::Run(run_id, spec) => {
                let session = Some(Arc::clone(&spec.session_id));
                (&spec.agent_id, &spec.task_id, Some(run_id.clone()), session, spec.occurrence)
            }
        };
        Event {
            event: self.event.kind,
            timestamp: self.event.at,
            sequence: self.event.sequence,
            cursor,
            agent_id: agent_id.clone(),
            task_id: task_id.clone(),
            run_id,
            session_id,
            status: self.event.status,
            attempt: self.event.attempt,
            fence: self.event.fence,
            instance: self.event.instance,
            occurrence,
            data: self.event.data.as_deref().map_or(Value::Null, data),
        }
    }
}

/// JSON that is nested too deeply to be read is shown as its text: an event is never unreadable.
fn data(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
