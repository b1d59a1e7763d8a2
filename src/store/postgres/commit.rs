//! Applies decisions: first everything is looked at that must still stand, then everything is decided. So a refused
//! decision has changed nothing, and the others in the transaction need not be undone with it.

use super::conn::with;
use super::fault::Step;
use super::row::{Stored, signed, unsigned};
use super::tx::{TaskRow, Tx};
use crate::model::{
    NewEvent, Occurrence, Run, RunId, RunStatus, SchedulePlace, ScheduleState, TaskId, Timestamp, Token,
};
use crate::store::{Decision, Expect, Refusal, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

type Verdict = Result<(), Refusal>;

impl Tx<'_> {
    /// Applies a decision if what it was made on still stands.
    pub(super) async fn apply(&mut self, decision: &Decision) -> Step<Verdict> {
        // It was applied, and its answer was lost.
        let made = |write: &RunWrite| {
            let stored = self.found(&write.run.run_id);
            stored.is_some_and(|s| s.version == write.run.version && s.stamp == write.run.stamp)
        };
        if !decision.runs.is_empty() && decision.runs.iter().all(made) {
            return Ok(Ok(()));
        }
        if let Err(refusal) = self.stands(decision) {
            return Ok(Err(refusal));
        }
        if let Some(write) = &decision.task {
            self.write_task(write).await?;
        }
        if let Some(write) = &decision.schedule {
            self.write_schedule(write);
        }
        for occurrence in &decision.occurrences {
            self.write_occurrence(occurrence);
        }
        for write in &decision.runs {
            match self.found(&write.run.run_id).cloned() {
                Some(stored) => self.update_run(stored, write).await?,
                None => self.insert_run(write).await?,
            }
        }
        if !decision.forget.is_empty() {
            self.forget(&decision.forget).await?;
        }
        Ok(Ok(()))
    }

    fn stands(&self, decision: &Decision) -> Verdict {
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
            let lid = self.lane_ids.get(&lane.name).copied().flatten();
            let version = lid.and_then(|lid| self.lanes.get(&lid)).map_or(0, |entry| unsigned(entry.version));
            if version != lane.version {
                return Err(Refusal::StaleLane { name: lane.name.clone(), version });
            }
        }
        self.are_over(decision)?;
        self.occurrences_are_new(&decision.occurrences)
    }

    /// Whether the runs to be forgotten will have ended.
    fn are_over(&self, decision: &Decision) -> Verdict {
        for run_id in &decision.forget {
            let written = decision.runs.iter().rev().find(|write| write.run.run_id == *run_id);
            let standing = match written {
                Some(write) => Some((write.run.version, write.run.status)),
                None => self.found(run_id).map(|stored| (stored.version, stored.status)),
            };
            if let Some((version, status)) = standing.filter(|(_, status)| !status.is_terminal()) {
                return Err(Refusal::StaleRun { run_id: run_id.clone(), version, status });
            }
        }
        Ok(())
    }

    fn task_stands(&self, write: &TaskWrite) -> Verdict {
        let row = self.tasks.get(&write.task_id).and_then(|entry| entry.row);
        let revision = row.map(|row| row.revision);
        if revision == write.expect {
            return Ok(());
        }
        Err(Refusal::StaleTask { task_id: write.task_id.clone(), revision })
    }

    fn schedule_stands(&self, write: &ScheduleWrite) -> Verdict {
        let task_id = &write.state.task_id;
        let version = self.tasks.get(task_id).and_then(|entry| entry.schedule);
        if version == write.expect {
            return Ok(());
        }
        Err(Refusal::StaleSchedule { task_id: task_id.clone(), version })
    }

    fn occurrences_are_new(&self, occurrences: &[Occurrence]) -> Verdict {
        let mut exist: Option<(TaskId, Vec<Timestamp>)> = None;
        for (n, occurrence) in occurrences.iter().enumerate() {
            let (task_id, at) = (&occurrence.task_id, occurrence.due_at);
            let known = self.recorded.contains(&(task_id.clone(), at.ms()));
            let mut earlier = occurrences[..n].iter();
            if known || earlier.any(|other| other.task_id == *task_id && other.due_at == at) {
                let (of, due_at) = exist.get_or_insert_with(|| (task_id.clone(), Vec::new()));
                if of == task_id {
                    due_at.push(at);
                }
            }
        }
        match exist {
            Some((task_id, due_at)) => Err(Refusal::OccurrenceExists { task_id, due_at }),
            None => Ok(()),
        }
    }

    /// Whether a run is as its write expects it: as it is stored, or as the same decision has left it before.
    fn run_stands(&self, write: &RunWrite, earlier: &[RunWrite]) -> Verdict {
        let run_id = &write.run.run_id;
        let written = earlier.iter().rev().find(|before| before.run.run_id == *run_id);
        let written = written.map(|before| Standing::written(&before.run));
        match (written.or_else(|| self.found(run_id).map(Standing::stored)), write.expect) {
            (None, Expect::Absent) => self.key_is_free(&write.run, earlier),
            (None, Expect::At { .. }) => Err(Refusal::NoRun { run_id: run_id.clone() }),
            (Some(standing), expect) => standing.meets(run_id, expect),
        }
    }

    fn key_is_free(&self, run: &Run, earlier: &[RunWrite]) -> Verdict {
        let Some(key) = &run.spec.idempotency else { return Ok(()) };
        let task_id = &run.spec.task_id;
        if let Some((run_id, digest)) = self.keys.get(&(task_id.clone(), key.key.clone())) {
            return Err(Refusal::KeyExists { run_id: run_id.clone(), digest: *digest });
        }
        for other in earlier.iter().map(|write| &write.run).filter(|other| other.spec.task_id == *task_id) {
            if let Some(taken) = other.spec.idempotency.as_ref().filter(|taken| taken.key == key.key) {
                let (run_id, digest) = (other.run_id.clone(), taken.digest);
                return Err(Refusal::KeyExists { run_id, digest });
            }
        }
        Ok(())
    }

    async fn write_task(&mut self, write: &TaskWrite) -> Step<()> {
        let task_id = &write.task_id;
        let tid = self.task_number(task_id);
        let before = self.tasks.get(task_id).and_then(|entry| entry.row);
        let aid = match &write.change {
            TaskChange::Put(task) => self.agent_number(&task.spec.agent_id),
            TaskChange::Keep | TaskChange::Delete => before.map_or(0, |row| row.aid),
        };
        if before.is_none() {
            self.begin_task_events(tid, task_id).await?;
        }
        let last = before.map_or(0, |row| row.last_event);
        let last_event = self.tell_of_task(tid, aid, last, task_id, &write.events);
        let entry = self.tasks.entry(task_id.clone()).or_default();
        let goes_on = match &write.change {
            TaskChange::Keep => {
                if let Some(row) = &mut entry.row {
                    entry.told |= row.last_event != last_event;
                    row.last_event = last_event;
                }
                return Ok(());
            }
            TaskChange::Put(task) => {
                let enabled = task.spec.enabled;
                entry.row = Some(TaskRow { aid, enabled, revision: task.revision, last_event });
                entry.put = Some(task.clone());
                if entry.schedule.is_none() {
                    // One that was made without a schedule has an idle one.
                    let place = SchedulePlace::Idle;
                    entry.schedule = Some(0);
                    let state = ScheduleState { task_id: task_id.clone(), version: 0, last_due: None, place };
                    entry.schedule_put = Some(state);
                }
                enabled
            }
            TaskChange::Delete => {
                (entry.row, entry.schedule, entry.put, entry.schedule_put) = (None, None, None, None);
                entry.deleted = true;
                // Nothing of it is left that could be resumed: what waited for that may be claimed.
                true
            }
        };
        let waits = entry.has_paused;
        self.hint.agenda = true;
        if goes_on && waits {
            self.unpause(tid).await?;
            if let Some(entry) = self.tasks.get_mut(task_id) {
                entry.has_paused = false;
            }
        }
        Ok(())
    }

    fn tell_of_task(&mut self, tid: i64, aid: i64, last: i64, task_id: &TaskId, events: &[NewEvent]) -> i64 {
        let mut last = last;
        for event in events {
            last += 1;
            self.tell(-tid, last, Some(aid), event);
        }
        if last > 0
            && let Some(entry) = self.tasks.get_mut(task_id)
        {
            entry.lowest = Some(entry.lowest.map_or(1, |lowest| lowest.min(1)));
        }
        last
    }

    /// A new task numbers its events from 1: those of the task that had its name before are put below.
    async fn begin_task_events(&mut self, tid: i64, task_id: &TaskId) -> Step<()> {
        let Some(lowest) = self.tasks.get(task_id).and_then(|entry| entry.lowest) else { return Ok(()) };
        self.flush().await?;
        let below = (1 - lowest.min(0).div_euclid(LIFE)) * LIFE;
        self.ask(PUT_BELOW, with![-tid, below]).await?;
        if let Some(entry) = self.tasks.get_mut(task_id) {
            entry.lowest = Some(lowest.min(1 - below));
        }
        Ok(())
    }

    fn write_schedule(&mut self, write: &ScheduleWrite) {
        let state = &write.state;
        let Some(entry) = self.tasks.get_mut(&state.task_id).filter(|entry| entry.row.is_some()) else {
            return;
        };
        entry.schedule = Some(state.version);
        entry.schedule_put = Some(state.clone());
        self.hint.agenda = true;
    }

    fn write_occurrence(&mut self, occurrence: &Occurrence) {
        let tid = self.task_number(&occurrence.task_id);
        self.recorded.insert((occurrence.task_id.clone(), occurrence.due_at.ms()));
        self.out.occurrences.push((tid, occurrence.clone()));
    }
}

/// How a run stands, as far as a write can expect it to.
struct Standing {
    version: u64,
    status: RunStatus,
    fence: u64,
    token: Option<Token>,
    expires_at: Option<i64>,
}

impl Standing {
    fn stored(stored: &Stored) -> Self {
        let Stored { version, status, fence, expires_at, .. } = *stored;
        Self { version, status, fence, token: stored.token(), expires_at }
    }

    fn written(run: &Run) -> Self {
        let Run { version, status, fence, lease, .. } = *run;
        let expires_at = lease.map(|lease| lease.expires_at.ms());
        Self { version, status, fence, token: run.token(), expires_at }
    }

    fn meets(&self, run_id: &RunId, expect: Expect) -> Verdict {
        let stale =
            || Err(Refusal::StaleRun { run_id: run_id.clone(), version: self.version, status: self.status });
        let Expect::At { version, token, unrenewed } = expect else { return stale() };
        if token.is_some() && token != self.token {
            let (fence, status) = (self.fence, self.status);
            return Err(Refusal::Fenced { run_id: run_id.clone(), fence, status });
        }
        let renewed = unrenewed.is_some_and(|expires_at| self.expires_at != Some(expires_at.ms()));
        if version != self.version || self.status.is_terminal() || renewed {
            return stale();
        }
        Ok(())
    }
}

/// How far below the events of an earlier task of the same name are put: more than a task has events.
pub(super) const LIFE: i64 = 1 << 40;

const PUT_BELOW: &str = "UPDATE events SET seq = seq - $2 WHERE subject = $1 AND seq > 0";

/// The number of the last event after so many more.
pub(super) fn numbered(last: u64, events: usize) -> u64 {
    unsigned(signed(last).saturating_add(i64::try_from(events).unwrap_or(i64::MAX)))
}
