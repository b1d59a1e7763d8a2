//! All that the store holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;

use super::index::Index;
use super::journal::Journal;
use super::lanes::Lanes;
use super::places::Places;
use crate::model::{AgentId, Attempt, Occurrence, Run, RunId, ScheduleState, Task, TaskId, Timestamp};

/// What is behind the lock: the records, and what is derived from them.
#[derive(Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) tasks: BTreeMap<TaskId, TaskEntry>,
    /// When schedules fire, of tasks that are not paused.
    pub(super) fires: BTreeSet<(Timestamp, TaskId)>,
    pub(super) runs: Runs,
    pub(super) index: Index,
    pub(super) places: Places,
    pub(super) lanes: Lanes,
    pub(super) occurrences: Occurrences,
    pub(super) journal: Journal,
    /// What is said of agents.
    pub(super) agents: BTreeMap<AgentId, Arc<str>>,
}

/// A task and its schedule.
pub(super) struct TaskEntry {
    pub(super) task: Task,
    pub(super) schedule: ScheduleState,
}

impl TaskEntry {
    pub(super) fn read(&self) -> (Task, ScheduleState) {
        (self.task.clone(), self.schedule.clone())
    }

    /// When its schedule fires, unless it is paused.
    pub(super) fn fire_at(&self) -> Option<Timestamp> {
        self.schedule.fire_at().filter(|_| self.task.spec.enabled)
    }
}

/// A run with all that goes when it goes.
pub(super) struct Record {
    pub(super) run: Run,
    pub(super) attempts: BTreeMap<u32, Attempt>,
    /// The cursors of its events, in order.
    pub(super) events: Vec<u64>,
}

/// The runs, by the number they were given in the order they were queued.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) numbers: HashMap<RunId, u64>,
    pub(super) records: BTreeMap<u64, Record>,
    pub(super) last: u64,
}

impl Runs {
    pub(super) fn number(&self, run_id: &RunId) -> Option<u64> {
        self.numbers.get(run_id).copied()
    }

    pub(super) fn by_id(&self, run_id: &RunId) -> Option<&Record> {
        self.get(self.number(run_id)?)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Record> {
        self.records.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Record> {
        self.records.get_mut(&number)
    }

    pub(super) fn add(&mut self, run: Run) -> u64 {
        self.last += 1;
        self.numbers.insert(run.run_id.clone(), self.last);
        self.records.insert(self.last, Record { run, attempts: BTreeMap::new(), events: Vec::new() });
        self.last
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Record> {
        let record = self.records.remove(&number)?;
        self.numbers.remove(&record.run.run_id);
        Some(record)
    }

    /// In the order they were queued.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Record)> {
        self.records.iter().map(|(number, record)| (*number, record))
    }

    /// The numbers below one, from the highest.
    pub(super) fn below(&self, number: u64) -> impl Iterator<Item = u64> {
        self.records.range(..number).rev().map(|(number, _)| *number)
    }
}

/// The occurrences, also of tasks that are gone.
#[derive(Default)]
pub(super) struct Occurrences {
    pub(super) by_task: HashMap<TaskId, BTreeMap<Timestamp, Occurrence>>,
    recorded: BTreeSet<(Timestamp, TaskId, Timestamp)>,
}

impl Occurrences {
    pub(super) fn exists(&self, task_id: &TaskId, due_at: Timestamp) -> bool {
        self.by_task.get(task_id).is_some_and(|due| due.contains_key(&due_at))
    }

    pub(super) fn add(&mut self, occurrence: Occurrence) {
        let (task_id, due_at) = (occurrence.task_id.clone(), occurrence.due_at);
        self.recorded.insert((occurrence.recorded_at, task_id.clone(), due_at));
        self.by_task.entry(task_id).or_default().insert(due_at, occurrence);
    }

    /// Those of a task that were due before an instant, the newest first.
    pub(super) fn before(&self, task_id: &TaskId, due_at: Timestamp) -> impl Iterator<Item = &Occurrence> {
        let of_task = self.by_task.get(task_id).into_iter();
        of_task.flat_map(move |due| due.range(..due_at).rev().map(|(_, occurrence)| occurrence))
    }

    /// Removes the one that was recorded first, if that was before an instant.
    pub(super) fn remove_oldest(&mut self, before: Timestamp) -> bool {
        let Some((recorded_at, task_id, due_at)) = self.recorded.first().cloned() else { return false };
        if recorded_at >= before {
            return false;
        }
        if let Some(due) = self.by_task.get_mut(&task_id) {
            due.remove(&due_at);
            if due.is_empty() {
                self.by_task.remove(&task_id);
            }
        }
        self.recorded.remove(&(recorded_at, task_id, due_at))
    }

    pub(super) fn any_before(&self, before: Timestamp) -> bool {
        self.recorded.first().is_some_and(|(recorded_at, ..)| *recorded_at < before)
    }
}
