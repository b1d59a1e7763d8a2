//! A part of a store whose records lie elsewhere: what a batch of calls depends on is put in, decided on by the same
//! code as in the memory store, and what came of it is taken out.
//! What was not put in must not be needed: whoever needs it leaves a mark ([`Part::short`]), and the batch is made
//! again with more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::journal::Whose;
pub(in crate::store) use super::lanes::Order;
use super::lanes::{Elsewhere, LaneState};
use super::state::{Record, State, TaskEntry};
use crate::model::{
    AgentId, Attempt, NewEvent, Occurrence, Place, Run, RunId, RunStatus, ScheduleState, Task, TaskId,
    Timestamp,
};
use crate::store::{ClaimRequest, Decision, Hint, Refusal, RenewRequest, Renewal};

/// The numbers that were given last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Numbers {
    pub(in crate::store) run: u64,
    pub(in crate::store) cursor: u64,
    pub(in crate::store) lane: u64,
}

/// A lane as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct LaneRow {
    pub(in crate::store) version: u64,
    pub(in crate::store) held: u64,
    pub(in crate::store) total: u64,
}

/// Who waits for a lane, as far as it was read.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Waiters {
    /// For each agent of which more wait: the last that was read.
    pub(in crate::store) behind: BTreeMap<AgentId, Order>,
}

/// A part of a store.
pub(in crate::store) struct Part {
    state: State,
    hint: Hint,
    now: Timestamp,
    runs: BTreeMap<u64, Run>,
    tasks: BTreeMap<TaskId, (Task, ScheduleState)>,
    lanes: BTreeMap<Arc<str>, LaneRow>,
    recorded: BTreeSet<(TaskId, Timestamp)>,
    begun: BTreeSet<TaskId>,
}

/// What is to be read further.
#[derive(Debug, Default)]
pub(in crate::store) struct Short {
    /// Lanes, with who waits for them.
    pub(in crate::store) lanes: BTreeSet<Arc<str>>,
    /// Ready runs.
    pub(in crate::store) ready: bool,
}

/// An event with its cursor.
pub(in crate::store) struct Event {
    pub(in crate::store) cursor: u64,
    pub(in crate::store) of: Of,
    pub(in crate::store) event: NewEvent,
}

/// Whose an event is.
pub(in crate::store) enum Of {
    Run(RunId, Arc<crate::model::RunSpec>),
    /// Of a task; of a former one of its name if it was made anew since.
    Task {
        task_id: TaskId,
        agent_id: AgentId,
        former: bool,
    },
}

/// What came of a batch.
#[derive(Default)]
pub(in crate::store) struct Changes {
    pub(in crate::store) made: Vec<(u64, Run)>,
    /// As they were, and as they are.
    pub(in crate::store) moved: Vec<(u64, Run, Run)>,
    pub(in crate::store) gone: Vec<Run>,
    pub(in crate::store) attempts: Vec<(RunId, Attempt)>,
    pub(in crate::store) events: Vec<Event>,
    /// Tasks that were made anew: the events of former ones are no longer theirs.
    pub(in crate::store) begun: BTreeSet<TaskId>,
    pub(in crate::store) tasks: Vec<(TaskId, Option<(Task, ScheduleState)>)>,
    pub(in crate::store) lanes: Vec<(Arc<str>, Option<LaneRow>)>,
    pub(in crate::store) occurrences: Vec<Occurrence>,
}

impl Part {
    pub(in crate::store) fn new(numbers: Numbers, now: Timestamp) -> Self {
        let mut state = State::default();
        state.runs.last = numbers.run;
        state.journal.last = numbers.cursor;
        state.lanes = super::lanes::Lanes::after(numbers.lane);
        Self {
            state,
            hint: Hint::default(),
            now,
            runs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            lanes: BTreeMap::new(),
            recorded: BTreeSet::new(),
            begun: BTreeSet::new(),
        }
    }

    /// The numbers that were given last by now.
    pub(in crate::store) fn numbers(&self) -> Numbers {
        let State { runs, journal, lanes, .. } = &self.state;
        Numbers { run: runs.last, cursor: journal.cursor(), lane: lanes.last_version() }
    }

    /// Puts a lane in; before its runs. Of one whose waiters were not read it is not known whether there are any.
    pub(in crate::store) fn put_lane(&mut self, name: &Arc<str>, row: LaneRow, waiters: Option<&Waiters>) {
        let behind = waiters.map(|waiters| waiters.behind.clone()).unwrap_or_default();
        let elsewhere = Elsewhere {
            active: row.total,
            behind: behind.into_iter().collect(),
            unread: waiters.is_none() && row.total > row.held,
        };
        let (version, taken) = (row.version, row.held);
        let lane = LaneState { version, taken, elsewhere, ..LaneState::default() };
        self.state.lanes.by_name.insert(Arc::clone(name), lane);
        self.lanes.insert(Arc::clone(name), row);
    }

    /// Puts a run in, where its place says.
    pub(in crate::store) fn put_run(&mut self, number: u64, run: Run) {
        let state = &mut self.state;
        state.runs.numbers.insert(run.run_id.clone(), number);
        state.index.add(number, &run);
        state.lanes.hold(number, &run);
        state.places.add(number, &run);
        if let Place::Lane { lane } = &run.place {
            state.lanes.wait(lane, number, &run);
        }
        self.runs.insert(number, run.clone());
        state.runs.records.insert(number, Record { run, attempts: BTreeMap::new(), events: Vec::new() });
    }

    /// More ready runs of an agent are behind this one, and not put in.
    pub(in crate::store) fn more_ready(&mut self, agent_id: AgentId, last: Order) {
        self.state.places.behind.insert(agent_id, last);
    }

    pub(in crate::store) fn put_task(&mut self, task: Task, schedule: ScheduleState) {
        let task_id = task.spec.task_id.clone();
        self.tasks.insert(task_id.clone(), (task.clone(), schedule.clone()));
        self.state.tasks.insert(task_id, TaskEntry { task, schedule });
    }

    pub(in crate::store) fn put_occurrence(&mut self, occurrence: Occurrence) {
        self.recorded.insert((occurrence.task_id.clone(), occurrence.due_at));
        self.state.occurrences.add(occurrence);
    }

    /// Applies a decision, or refuses it.
    pub(in crate::store) fn commit(&mut self, decision: Decision) -> Result<(), Refusal> {
        let anew = decision.task.as_ref().filter(|write| write.expect.is_none());
        let anew = anew.map(|write| write.task_id.clone()).filter(|_| !self.state.was_made(&decision));
        self.state.commit(decision, self.now, &mut self.hint)?;
        self.begun.extend(anew);
        Ok(())
    }

    pub(in crate::store) fn claim(&mut self, request: &ClaimRequest) -> Vec<Run> {
        self.state.claim(request, self.now, &mut self.hint)
    }

    pub(in crate::store) fn renew(&mut self, request: &RenewRequest) -> Vec<Renewal> {
        self.state.renew(request, self.now)
    }

    /// A run that cannot be read is out of the way: whoever waits behind it in these lanes is let go of.
    pub(in crate::store) fn let_go(&mut self, lanes: &BTreeSet<Arc<str>>) {
        for lane in lanes {
            for number in self.state.lanes.to_wake(lane) {
                let due = self.state.runs.get(number).is_some_and(|record| record.run.due_at <= self.now);
                let place = if due { Place::Ready } else { Place::Future };
                self.state.move_to(number, place, &mut self.hint);
            }
        }
    }

    /// Compares what is derived from the runs with them; everything that has not ended was put in.
    pub(in crate::store) fn check(&mut self) -> Vec<String> {
        self.state.check(false, self.now)
    }

    /// Makes what is derived from the runs anew.
    pub(in crate::store) fn repair(&mut self) {
        self.state.repair(self.now);
    }

    /// What has to be read further before any of it can be relied on.
    pub(in crate::store) fn short(&self) -> Option<Short> {
        let lanes = self.state.lanes.short.borrow().clone();
        let ready = self.state.places.short.get();
        (ready || !lanes.is_empty()).then_some(Short { lanes, ready })
    }

    /// What watchers are told; nothing if nothing changed for them.
    pub(in crate::store) fn hint(&self, before: Numbers) -> Option<Hint> {
        let cursor = self.state.journal.cursor();
        let hint = Hint { cursor, ..self.hint.clone() };
        let told = hint.ready || hint.agenda || !hint.cancels.is_empty() || cursor > before.cursor;
        told.then_some(hint)
    }

    /// What came of it all.
    pub(in crate::store) fn changes(mut self) -> Changes {
        let mut changes = Changes { begun: std::mem::take(&mut self.begun), ..Changes::default() };
        self.runs_into(&mut changes);
        for (task_id, entry) in &self.state.tasks {
            let now = (&entry.task, &entry.schedule);
            let before = self.tasks.remove(task_id);
            if before.is_none_or(|(task, schedule)| !same(&task, now.0) || schedule != *now.1) {
                changes.tasks.push((task_id.clone(), Some(entry.read())));
            }
        }
        changes.tasks.extend(self.tasks.into_keys().map(|task_id| (task_id, None)));
        for (name, lane) in &self.state.lanes.by_name {
            let total = lane.active.len() as u64 + lane.elsewhere.active;
            let row = LaneRow { version: lane.version, held: lane.taken, total };
            if self.lanes.remove(name) != Some(row) {
                changes.lanes.push((Arc::clone(name), Some(row)));
            }
        }
        changes.lanes.extend(self.lanes.into_keys().map(|name| (name, None)));
        for (task_id, due) in self.state.occurrences.by_task {
            let new = due.into_iter().filter(|(at, _)| !self.recorded.contains(&(task_id.clone(), *at)));
            changes.occurrences.extend(new.map(|(_, occurrence)| occurrence));
        }
        let by_task = self.state.journal.by_task;
        for (cursor, told) in self.state.journal.told {
            let of = match told.whose {
                Whose::Run(run_id, spec) => Of::Run(run_id, spec),
                Whose::Task(task_id, agent_id) => {
                    let former = !by_task.get(&task_id).is_some_and(|own| own.contains(&cursor));
                    Of::Task { task_id, agent_id, former }
                }
            };
            changes.events.push(Event { cursor, of, event: told.event });
        }
        changes
    }

    fn runs_into(&mut self, changes: &mut Changes) {
        for (number, record) in std::mem::take(&mut self.state.runs.records) {
            let Record { run, attempts, .. } = record;
            let run_id = &run.run_id;
            changes.attempts.extend(attempts.into_values().map(|attempt| (run_id.clone(), attempt)));
            match self.runs.remove(&number) {
                None => changes.made.push((number, run)),
                Some(before) if before != run => changes.moved.push((number, before, run)),
                Some(_) => {}
            }
        }
        changes.gone.extend(std::mem::take(&mut self.runs).into_values());
    }
}

fn same(one: &Task, other: &Task) -> bool {
    one.spec == other.spec
        && (one.created_at, one.updated_at, one.revision, one.last_event)
            == (other.created_at, other.updated_at, other.revision, other.last_event)
}

/// How many of each status, of some runs.
pub(in crate::store) fn counted(changes: &Changes) -> BTreeMap<TaskId, [i64; RunStatus::ALL.len()]> {
    let mut counts: BTreeMap<TaskId, [i64; RunStatus::ALL.len()]> = BTreeMap::new();
    let mut count = |run: &Run, by: i64| {
        let counts = counts.entry(run.spec.task_id.clone()).or_insert([0; RunStatus::ALL.len()]);
        counts[usize::from(run.status.number())] += by;
    };
    changes.made.iter().for_each(|(_, run)| count(run, 1));
    changes.gone.iter().for_each(|run| count(run, -1));
    for (_, before, after) in &changes.moved {
        count(before, -1);
        count(after, 1);
    }
    counts
}
