//! Applies decisions: first everything is read that must still stand, then everything is written. So a refused
//! decision has written nothing, and the others in the transaction need not be undone with it.

use rusqlite::{OptionalExtension, params};

use super::fault::Step;
use super::row::{self, STORED, Stored, json, signed, unsigned};
use super::tx::{Tx, lane_version};
use crate::model::{NewEvent, Occurrence, SchedulePlace};
use crate::store::{Decision, Expect, Refusal, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

pub(super) const FIND: &str = "FROM runs r WHERE r.run_id = ?1";

type Verdict = Result<(), Refusal>;

impl Tx<'_> {
    /// Applies a decision if what it was made on still stands.
    pub(super) fn apply(&mut self, decision: &Decision) -> Step<Verdict> {
        let mut stored = Vec::with_capacity(decision.runs.len());
        for write in &decision.runs {
            stored.push(self.stored(write.run.run_id.as_str())?);
        }
        // A decision is made as a whole: one run that carries its stamp says that it was.
        let made = |write: &RunWrite, stored: &Option<Stored>| {
            stored.as_ref().is_some_and(|s| s.version == write.run.version && s.stamp == write.run.stamp)
        };
        if decision.runs.iter().zip(&stored).any(|(write, stored)| made(write, stored)) {
            return Ok(Ok(()));
        }
        if let Err(refusal) = self.stands(decision, &stored)? {
            return Ok(Err(refusal));
        }
        if let Some(write) = &decision.task {
            self.write_task(write)?;
        }
        if let Some(write) = &decision.schedule {
            self.write_schedule(write)?;
        }
        for occurrence in &decision.occurrences {
            self.write_occurrence(occurrence)?;
        }
        for (write, stored) in decision.runs.iter().zip(stored) {
            match stored {
                Some(stored) => self.update_run(&stored, write)?,
                None => self.insert_run(write)?,
            }
        }
        Ok(Ok(()))
    }

    fn stands(&mut self, decision: &Decision, stored: &[Option<Stored>]) -> Step<Verdict> {
        let of_runs = decision.runs.iter().zip(stored).enumerate();
        for (n, (write, stored)) in of_runs {
            let twice = decision.runs[..n].iter().find(|other| other.run.run_id == write.run.run_id);
            if let Err(refusal) = run_stands(write, stored.as_ref(), twice) {
                return Ok(Err(refusal));
            }
        }
        if let Some(write) = &decision.task
            && let Err(refusal) = self.task_stands(write)?
        {
            return Ok(Err(refusal));
        }
        if let Some(write) = &decision.schedule
            && let Err(refusal) = self.schedule_stands(write)?
        {
            return Ok(Err(refusal));
        }
        for lane in &decision.lanes {
            let version = lane_version(self.conn, &lane.name)?;
            if version != lane.version {
                return Ok(Err(Refusal::StaleLane { name: lane.name.clone(), version }));
            }
        }
        if let Err(refusal) = self.occurrences_are_new(&decision.occurrences)? {
            return Ok(Err(refusal));
        }
        self.keys_are_free(&decision.runs)
    }

    fn task_stands(&mut self, write: &TaskWrite) -> Step<Verdict> {
        let mut select = self.conn.prepare_cached("SELECT revision FROM tasks WHERE task_id = ?1")?;
        let found: Option<i64> = select.query_row([write.task_id.as_str()], |row| row.get(0)).optional()?;
        let revision = found.map(unsigned);
        if revision == write.expect {
            return Ok(Ok(()));
        }
        Ok(Err(Refusal::StaleTask { task_id: write.task_id.clone(), revision }))
    }

    fn schedule_stands(&mut self, write: &ScheduleWrite) -> Step<Verdict> {
        let task_id = &write.state.task_id;
        let found: Option<i64> = match self.known_task(task_id)? {
            Some(tid) => self
                .conn
                .prepare_cached("SELECT version FROM schedules WHERE tid = ?1")?
                .query_row([tid], |row| row.get(0))
                .optional()?,
            None => None,
        };
        let version = found.map(unsigned);
        if version == write.expect {
            return Ok(Ok(()));
        }
        Ok(Err(Refusal::StaleSchedule { task_id: task_id.clone(), version }))
    }

    fn occurrences_are_new(&mut self, occurrences: &[Occurrence]) -> Step<Verdict> {
        let Some(first) = occurrences.first() else { return Ok(Ok(())) };
        let mut due_at = Vec::new();
        for (n, occurrence) in occurrences.iter().enumerate() {
            let same =
                |other: &Occurrence| other.task_id == occurrence.task_id && other.due_at == occurrence.due_at;
            let known = match self.known_task(&occurrence.task_id)? {
                Some(tid) => self
                    .conn
                    .prepare_cached("SELECT 1 FROM occurrences WHERE tid = ?1 AND due_at = ?2")?
                    .exists(params![tid, occurrence.due_at.ms()])?,
                None => false,
            };
            if known || occurrences[..n].iter().any(same) {
                due_at.push(occurrence.due_at);
            }
        }
        if due_at.is_empty() {
            return Ok(Ok(()));
        }
        Ok(Err(Refusal::OccurrenceExists { task_id: first.task_id.clone(), due_at }))
    }

    fn keys_are_free(&mut self, runs: &[RunWrite]) -> Step<Verdict> {
        for (n, write) in runs.iter().enumerate().filter(|(_, write)| write.expect == Expect::Absent) {
            let spec = &write.run.spec;
            let Some(key) = &spec.idempotency else { continue };
            let same = |other: &&RunWrite| {
                let taken = other.run.spec.idempotency.as_ref().is_some_and(|other| other.key == key.key);
                taken && other.expect == Expect::Absent && other.run.spec.task_id == spec.task_id
            };
            if let Some(other) = runs[..n].iter().find(same) {
                let digest = other.run.spec.idempotency.as_ref().map_or(0, |other| other.digest);
                return Ok(Err(Refusal::KeyExists { run_id: other.run.run_id.clone(), digest }));
            }
            let Some(tid) = self.known_task(&spec.task_id)? else { continue };
            let mut select = self.conn.prepare_cached(KEY)?;
            let found: Option<(String, i64)> =
                select.query_row(params![tid, &*key.key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            if let Some((run_id, digest)) = found {
                let run_id = crate::model::RunId::new(run_id)
                    .map_err(|invalid| row::unreadable(invalid.to_string()))?;
                return Ok(Err(Refusal::KeyExists { run_id, digest: unsigned(digest) }));
            }
        }
        Ok(Ok(()))
    }

    /// The hot part of a run.
    pub(super) fn stored(&self, run_id: &str) -> Step<Option<Stored>> {
        let mut select = self.conn.prepare_cached(&find())?;
        let mut rows = select.query([run_id])?;
        rows.next()?.map(Stored::read).transpose()
    }

    fn write_task(&mut self, write: &TaskWrite) -> Step<()> {
        let before: Option<(i64, i64, i64)> = self
            .conn
            .prepare_cached("SELECT tid, aid, last_event FROM tasks WHERE task_id = ?1")?
            .query_row([write.task_id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let tid = self.task(&write.task_id)?;
        let agent_before = before.map_or(0, |(_, aid, _)| aid);
        let aid = match &write.change {
            TaskChange::Put(task) => self.agent(&task.spec.agent_id)?,
            TaskChange::Keep | TaskChange::Delete => agent_before,
        };
        let last = before.map_or(0, |(.., last)| last);
        let last_event = self.write_task_events(tid, aid, last, &write.events)?;
        self.forget_paused(tid);
        match &write.change {
            TaskChange::Keep => {
                self.conn
                    .prepare_cached("UPDATE tasks SET last_event = ?2 WHERE tid = ?1")?
                    .execute([tid, last_event])?;
            }
            TaskChange::Put(task) => {
                let spec = json(&task.spec)?;
                self.conn.prepare_cached(PUT_TASK)?.execute(params![
                    tid,
                    write.task_id.as_str(),
                    aid,
                    task.spec.enabled,
                    signed(task.revision),
                    task.created_at.ms(),
                    task.updated_at.ms(),
                    last_event,
                    spec
                ])?;
                self.conn
                    .prepare_cached("UPDATE schedules SET enabled = ?2 WHERE tid = ?1")?
                    .execute(params![tid, task.spec.enabled])?;
                if task.spec.enabled {
                    self.unpause(tid)?;
                }
                self.hint.agenda = true;
            }
            TaskChange::Delete => {
                self.conn.prepare_cached("DELETE FROM tasks WHERE tid = ?1")?.execute([tid])?;
                self.conn.prepare_cached("DELETE FROM schedules WHERE tid = ?1")?.execute([tid])?;
                // Nothing of it is left that could be resumed: what waited for that may be claimed.
                self.unpause(tid)?;
                self.hint.agenda = true;
            }
        }
        Ok(())
    }

    /// Numbers go on where those of a deleted task of this name ended.
    fn write_task_events(&mut self, tid: i64, aid: i64, last: i64, events: &[NewEvent]) -> Step<i64> {
        if events.is_empty() {
            return Ok(last);
        }
        let told: Option<i64> = self
            .conn
            .prepare_cached("SELECT max(seq) FROM events WHERE subject = ?1")?
            .query_row([-tid], |row| row.get(0))?;
        let mut last = last.max(told.unwrap_or(0));
        for event in events {
            last += 1;
            self.write_event(-tid, last, Some(aid), event)?;
        }
        Ok(last)
    }

    /// Writes an event under the next cursor.
    pub(super) fn write_event(
        &mut self,
        subject: i64,
        seq: i64,
        aid: Option<i64>,
        event: &NewEvent,
    ) -> Step<()> {
        let cursor = self.new_cursor();
        let instance = event.instance.map(row::instance_bytes);
        self.conn
            .prepare_cached(
                "INSERT INTO events (cursor, subject, seq, kind, at, status, attempt, fence, instance, aid, data)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                cursor,
                subject,
                seq,
                event.kind.number(),
                event.at.ms(),
                event.status.map(crate::model::RunStatus::number),
                event.attempt,
                signed(event.fence),
                instance.as_ref().map(|bytes| &bytes[..]),
                aid,
                event.data.as_deref()
            ])?;
        Ok(())
    }

    fn write_schedule(&mut self, write: &ScheduleWrite) -> Step<()> {
        let state = &write.state;
        let tid = self.task(&state.task_id)?;
        let enabled = !self.is_paused(tid)?;
        self.conn.prepare_cached(PUT_SCHEDULE)?.execute(params![
            tid,
            enabled,
            signed(state.version),
            state.last_due.map(crate::model::Timestamp::ms),
            state.fire_at().map(crate::model::Timestamp::ms),
            json::<SchedulePlace>(&state.place)?
        ])?;
        self.hint.agenda = true;
        Ok(())
    }

    fn write_occurrence(&mut self, occurrence: &Occurrence) -> Step<()> {
        let tid = self.task(&occurrence.task_id)?;
        self.conn
            .prepare_cached(
                "INSERT INTO occurrences (tid, due_at, recorded_at, record) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![tid, occurrence.due_at.ms(), occurrence.recorded_at.ms(), json(occurrence)?])?;
        Ok(())
    }
}

/// Whether a run is as its write expects it.
fn run_stands(write: &RunWrite, stored: Option<&Stored>, twice: Option<&RunWrite>) -> Verdict {
    let run_id = &write.run.run_id;
    // Written once already by the same decision: what it leaves is not what this write was made on.
    if let Some(other) = twice {
        let (version, status) = (other.run.version, other.run.status);
        return Err(Refusal::StaleRun { run_id: run_id.clone(), version, status });
    }
    let stale = |stored: &Stored| Refusal::StaleRun {
        run_id: run_id.clone(),
        version: stored.version,
        status: stored.status,
    };
    match (write.expect, stored) {
        (Expect::Absent, None) => Ok(()),
        (Expect::Absent, Some(stored)) => Err(stale(stored)),
        (Expect::At { .. }, None) => Err(Refusal::NoRun { run_id: run_id.clone() }),
        (Expect::At { version, token }, Some(stored)) => {
            if token.is_some() && token != stored.token() {
                let (fence, status) = (stored.fence, stored.status);
                return Err(Refusal::Fenced { run_id: run_id.clone(), fence, status });
            }
            if version != stored.version || stored.status.is_terminal() {
                return Err(stale(stored));
            }
            Ok(())
        }
    }
}

/// The statement that finds the hot part of a run.
pub(super) fn find() -> String {
    format!("SELECT {STORED} {FIND}")
}

pub(super) const KEY: &str = "SELECT r.run_id, k.digest FROM idempotency k JOIN runs r ON r.rid = k.rid
    WHERE k.tid = ?1 AND k.key = ?2";

const PUT_TASK: &str = "INSERT INTO tasks
    (tid, task_id, aid, enabled, revision, created_at, updated_at, last_event, spec)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (tid) DO UPDATE SET aid = excluded.aid, enabled = excluded.enabled,
    revision = excluded.revision, created_at = excluded.created_at, updated_at = excluded.updated_at,
    last_event = excluded.last_event, spec = excluded.spec";

const PUT_SCHEDULE: &str = "INSERT INTO schedules (tid, enabled, version, last_due, fire_at, place)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (tid) DO UPDATE SET enabled = excluded.enabled, version = excluded.version,
    last_due = excluded.last_due, fire_at = excluded.fire_at, place = excluded.place";
