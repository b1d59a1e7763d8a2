//! Decisions: what they were made on is looked at first, and nothing is changed unless all of it stands.

use std::sync::Arc;

use super::index::key_of;
use super::journal::Whose;
use super::state::{State, TaskEntry};
use crate::model::{
    AgentId, Attempt, NewEvent, Place, Run, SchedulePlace, ScheduleState, TaskId, Timestamp, Token,
};
use crate::rules::wake_at;
use crate::store::{Decision, Expect, Hint, Refusal, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

impl State {
    /// Applies a decision as a whole, or refuses it.
    pub(super) fn commit(
        &mut self,
        decision: Decision,
        now: Timestamp,
        hint: &mut Hint,
    ) -> Result<(), Refusal> {
        if self.was_made(&decision) {
            return Ok(());
        }
        self.stands(&decision)?;
        let Decision { task, schedule, runs, lanes: _, occurrences, forget } = decision;
        let first_schedule = schedule.as_ref().map(|write| write.state.clone());
        if let Some(write) = task {
            self.write_task(write, first_schedule, now, hint);
        }
        if let Some(write) = schedule {
            self.write_schedule(write.state, hint);
        }
        for write in runs {
            self.write_run(write, now, hint);
        }
        for occurrence in occurrences {
            self.occurrences.add(occurrence);
        }
        for run_id in &forget {
            if let Some(number) = self.runs.number(run_id) {
                self.remove_run(number);
            }
        }
        Ok(())
    }

    /// Whether every run carries the stamp of this decision: it was applied, and its answer was lost.
    pub(super) fn was_made(&self, decision: &Decision) -> bool {
        let made = |write: &RunWrite| {
            let standing = self.runs.by_id(&write.run.run_id).map(|record| &record.run);
            standing.is_some_and(|run| run.version == write.run.version && run.stamp == write.run.stamp)
        };
        !decision.runs.is_empty() && decision.runs.iter().all(made)
    }

    fn stands(&self, decision: &Decision) -> Result<(), Refusal> {
        if let Some(write) = &decision.task {
            self.task_stands(write)?;
        }
        if let Some(write) = &decision.schedule {
            self.schedule_stands(write)?;
        }
        for (n, write) in decision.runs.iter().enumerate() {
            self.run_stands(write, &decision.runs[..n])?;
        }
        for lane in &decision.lanes {
            let version = self.lanes.get(&lane.name).map_or(0, |state| state.version);
            if version != lane.version {
                return Err(Refusal::StaleLane { name: Arc::clone(&lane.name), version });
            }
        }
        self.are_over(decision)?;
        self.occurrences_are_new(decision)
    }

    /// Whether the runs to be forgotten will have ended.
    fn are_over(&self, decision: &Decision) -> Result<(), Refusal> {
        for run_id in &decision.forget {
            let written = decision.runs.iter().rev().find(|write| write.run.run_id == *run_id);
            let standing =
                written.map(|write| &write.run).or_else(|| self.runs.by_id(run_id).map(|record| &record.run));
            if let Some(run) = standing.filter(|run| !run.status.is_terminal()) {
                return Err(stale(run));
            }
        }
        Ok(())
    }

    fn task_stands(&self, write: &TaskWrite) -> Result<(), Refusal> {
        let revision = self.tasks.get(&write.task_id).map(|entry| entry.task.revision);
        if revision == write.expect {
            return Ok(());
        }
        Err(Refusal::StaleTask { task_id: write.task_id.clone(), revision })
    }

    fn schedule_stands(&self, write: &ScheduleWrite) -> Result<(), Refusal> {
        let task_id = &write.state.task_id;
        let version = self.tasks.get(task_id).map(|entry| entry.schedule.version);
        if version == write.expect {
            return Ok(());
        }
        Err(Refusal::StaleSchedule { task_id: task_id.clone(), version })
    }

    /// A run stands as it is stored, or as the same decision has left it before.
    fn run_stands(&self, write: &RunWrite, earlier: &[RunWrite]) -> Result<(), Refusal> {
        let run_id = &write.run.run_id;
        let written = earlier.iter().rev().find(|before| before.run.run_id == *run_id);
        let standing =
            written.map(|before| &before.run).or_else(|| self.runs.by_id(run_id).map(|record| &record.run));
        match (standing, write.expect) {
            (None, Expect::Absent) => self.key_is_free(&write.run, earlier),
            (None, Expect::At { .. }) => Err(Refusal::NoRun { run_id: run_id.clone() }),
            (Some(run), Expect::Absent) => Err(stale(run)),
            (Some(run), Expect::At { version, token, unrenewed }) => {
                stands_at(run, version, token)?;
                is_unrenewed(run, unrenewed)
            }
        }
    }

    fn key_is_free(&self, run: &Run, earlier: &[RunWrite]) -> Result<(), Refusal> {
        let Some(key) = key_of(run) else { return Ok(()) };
        let stored = self.run_by_key(&key);
        let holder = stored.or_else(|| {
            earlier.iter().map(|write| &write.run).find(|other| key_of(other).as_ref() == Some(&key))
        });
        let taken = holder.map(|holder| Refusal::KeyExists {
            run_id: holder.run_id.clone(),
            digest: holder.spec.idempotency.as_ref().map_or(0, |idempotency| idempotency.digest),
        });
        taken.map_or(Ok(()), Err)
    }

    fn occurrences_are_new(&self, decision: &Decision) -> Result<(), Refusal> {
        let mut exist: Option<(TaskId, Vec<Timestamp>)> = None;
        for (n, occurrence) in decision.occurrences.iter().enumerate() {
            let (task_id, due_at) = (&occurrence.task_id, occurrence.due_at);
            let mut earlier = decision.occurrences[..n].iter();
            let twice = earlier.any(|other| other.task_id == *task_id && other.due_at == due_at);
            if twice || self.occurrences.exists(task_id, due_at) {
                let (of, due) = exist.get_or_insert_with(|| (task_id.clone(), Vec::new()));
                if of == task_id {
                    due.push(due_at);
                }
            }
        }
        match exist {
            Some((task_id, due_at)) => Err(Refusal::OccurrenceExists { task_id, due_at }),
            None => Ok(()),
        }
    }

    fn write_task(
        &mut self,
        write: TaskWrite,
        first_schedule: Option<ScheduleState>,
        now: Timestamp,
        hint: &mut Hint,
    ) {
        let TaskWrite { task_id, expect, change, events } = write;
        if expect.is_none() {
            self.journal.begin_task(&task_id);
        }
        if let TaskChange::Put(task) = &change {
            self.tell_of_task(&task_id, &task.spec.agent_id, events);
        } else if let Some(agent_id) = self.tasks.get(&task_id).map(|entry| entry.task.spec.agent_id.clone())
        {
            self.tell_of_task(&task_id, &agent_id, events);
        }
        let fired_at = self.tasks.get(&task_id).and_then(TaskEntry::fire_at);
        let released = match change {
            TaskChange::Keep => false,
            TaskChange::Put(task) => {
                let enabled = task.spec.enabled;
                let schedule = match self.tasks.remove(&task_id) {
                    Some(entry) => entry.schedule,
                    None => first_schedule.unwrap_or_else(|| idle(task_id.clone())),
                };
                self.tasks.insert(task_id.clone(), TaskEntry { task: *task, schedule });
                enabled
            }
            // Whose task is gone does not wait for it to go on.
            TaskChange::Delete => self.tasks.remove(&task_id).is_some(),
        };
        self.fires_again(&task_id, fired_at, hint);
        if released {
            self.unpause(&task_id, now, hint);
        }
    }

    fn tell_of_task(&mut self, task_id: &TaskId, agent_id: &AgentId, events: Vec<NewEvent>) {
        for event in events {
            self.journal.tell_of_task(task_id, agent_id, event);
        }
    }

    fn write_schedule(&mut self, state: ScheduleState, hint: &mut Hint) {
        let task_id = state.task_id.clone();
        if let Some(entry) = self.tasks.get_mut(&task_id) {
            let fired_at = entry.fire_at();
            entry.schedule = state;
            self.fires_again(&task_id, fired_at, hint);
        }
    }

    fn fires_again(&mut self, task_id: &TaskId, before: Option<Timestamp>, hint: &mut Hint) {
        let after = self.tasks.get(task_id).and_then(TaskEntry::fire_at);
        if let Some(at) = before {
            self.fires.remove(&(at, task_id.clone()));
        }
        if let Some(at) = after {
            self.fires.insert((at, task_id.clone()));
        }
        hint.agenda |= before != after;
    }

    /// Writes a run that stands as the write expects.
    pub(super) fn write_run(&mut self, write: RunWrite, now: Timestamp, hint: &mut Hint) -> u64 {
        let RunWrite { expect, mut run, attempt, events } = write;
        run.place = Place::Nowhere;
        let (number, before) = match self.runs.number(&run.run_id) {
            None => (self.runs.add(run.clone()), None),
            Some(number) => (number, self.replace(number, &mut run)),
        };
        if revokes(before.as_ref(), &run, expect) {
            hint.cancels.push(run.run_id.clone());
        }
        if let Some(before) = &before {
            self.take_out(number, before);
        }
        match &before {
            Some(before) => self.index.replace(number, before, &run),
            None => self.index.add(number, &run),
        }
        hint.agenda |= wake_at(&run).is_some();
        let moved = self.lanes.account(number, before.as_ref(), Some(&run));
        // Who goes on as it was leaves nobody more room, or less.
        if let Some(before) = before.as_ref().filter(|before| moved || before.place != Place::Nowhere) {
            self.wake_lanes_of(before, now, hint);
        }
        let place = self.place_for(&run, now);
        self.put_in(number, place, hint);
        self.tell(number, &run, attempt, events);
        number
    }

    /// Puts the run in its record; no fence is lowered, and the expiry of a lease does not move back while its
    /// token stands.
    fn replace(&mut self, number: u64, run: &mut Run) -> Option<Run> {
        let record = self.runs.get_mut(number)?;
        run.fence = run.fence.max(record.run.fence);
        let same = record.run.token().is_some() && record.run.token() == run.token();
        if let (true, Some(old), Some(new)) = (same, &record.run.lease, &mut run.lease) {
            new.expires_at = new.expires_at.max(old.expires_at);
            new.heartbeat_at = new.heartbeat_at.max(old.heartbeat_at);
        }
        Some(std::mem::replace(&mut record.run, run.clone()))
    }

    fn tell(&mut self, number: u64, run: &Run, attempt: Option<Attempt>, events: Vec<NewEvent>) {
        let Some(record) = self.runs.get_mut(number) else { return };
        if let Some(attempt) = attempt {
            record.attempts.insert(attempt.number, attempt);
        }
        for event in events {
            let whose = Whose::Run(run.run_id.clone(), Arc::clone(&run.spec));
            record.events.push(self.journal.tell(whose, event));
        }
    }
}

/// Whether a run stands at a version and under a token.
fn stands_at(run: &Run, version: u64, token: Option<Token>) -> Result<(), Refusal> {
    if token.is_some() && run.token() != token {
        let (run_id, fence, status) = (run.run_id.clone(), run.fence, run.status);
        return Err(Refusal::Fenced { run_id, fence, status });
    }
    if run.version != version || run.status.is_terminal() {
        return Err(stale(run));
    }
    Ok(())
}

/// Whether the lease of a run still expires when it did.
fn is_unrenewed(run: &Run, expires_at: Option<Timestamp>) -> Result<(), Refusal> {
    let renewed = expires_at.is_some() && run.lease.map(|lease| lease.expires_at) != expires_at;
    if renewed { Err(stale(run)) } else { Ok(()) }
}

fn stale(run: &Run) -> Refusal {
    Refusal::StaleRun { run_id: run.run_id.clone(), version: run.version, status: run.status }
}

/// Whether the holder of a run has to hear of a write that somebody else made.
fn revokes(before: Option<&Run>, after: &Run, expect: Expect) -> bool {
    let Some(before) = before.filter(|run| run.status.is_held()) else { return false };
    let by_another = matches!(expect, Expect::At { token: None, .. });
    by_another && (before.cancel != after.cancel || before.token() != after.token())
}

/// The schedule of a task that was made without one.
fn idle(task_id: TaskId) -> ScheduleState {
    ScheduleState { task_id, version: 0, last_due: None, place: SchedulePlace::Idle }
}
