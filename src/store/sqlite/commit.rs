//! Applies decisions: first everything is read that must still stand, then everything is written. So a refused
//! decision has written nothing, and the others in the transaction need not be undone with it.

use rusqlite::{OptionalExtension, Row, params};

use super::fault::Step;
use super::hot::Hot;
use super::pack::Pack;
use super::row::{self, STORED, Stored, json, signed, unsigned};
use super::tx::Tx;
use crate::model::{NewEvent, Occurrence, Run, RunId, RunStatus, SchedulePlace, TaskId, Timestamp, Token};
use crate::store::{Decision, Expect, Refusal, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

pub(super) const FIND: &str = "FROM runs r WHERE r.run_id = ?1";

type Verdict = Result<(), Refusal>;

impl Tx<'_, '_> {
    /// Applies a decision if what it was made on still stands.
    pub(super) fn apply(&mut self, decision: &Decision) -> Step<Verdict> {
        let mut stored = Vec::with_capacity(decision.runs.len());
        for write in &decision.runs {
            stored.push(self.stored(&write.run.run_id)?);
        }
        // It was applied, and its answer was lost.
        let made = |write: &RunWrite, stored: &Option<Stored>| {
            stored.as_ref().is_some_and(|s| s.version == write.run.version && s.stamp == write.run.stamp)
        };
        let mut all = decision.runs.iter().zip(&stored);
        if !decision.runs.is_empty() && all.all(|(write, stored)| made(write, stored)) {
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
        for (n, (write, stored)) in decision.runs.iter().zip(stored).enumerate() {
            let again = decision.runs[..n].iter().any(|other| other.run.run_id == write.run.run_id);
            let stored = if again { self.stored(&write.run.run_id)? } else { stored };
            match stored {
                Some(stored) => self.update_run(&stored, write)?,
                None => self.insert_run(write)?,
            }
        }
        for run_id in &decision.forget {
            self.forget(run_id)?;
        }
        Ok(Ok(()))
    }

    fn stands(&mut self, decision: &Decision, stored: &[Option<Stored>]) -> Step<Verdict> {
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
        for (n, (write, stored)) in decision.runs.iter().zip(stored).enumerate() {
            if let Err(refusal) = self.run_stands(write, stored.as_ref(), &decision.runs[..n])? {
                return Ok(Err(refusal));
            }
        }
        for lane in &decision.lanes {
            let version = self.lane_version(&lane.name)?;
            if version != lane.version {
                return Ok(Err(Refusal::StaleLane { name: lane.name.clone(), version }));
            }
        }
        if let Err(refusal) = self.are_over(decision)? {
            return Ok(Err(refusal));
        }
        self.occurrences_are_new(&decision.occurrences)
    }

    /// Whether the runs to be forgotten will have ended.
    fn are_over(&mut self, decision: &Decision) -> Step<Verdict> {
        for run_id in &decision.forget {
            let written = decision.runs.iter().rev().find(|write| write.run.run_id == *run_id);
            let standing = match written {
                Some(write) => Some((write.run.version, write.run.status)),
                None => self.stored(run_id)?.map(|stored| (stored.version, stored.status)),
            };
            if let Some((version, status)) = standing.filter(|(_, status)| !status.is_terminal()) {
                return Ok(Err(Refusal::StaleRun { run_id: run_id.clone(), version, status }));
            }
        }
        Ok(Ok(()))
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
        let mut exist: Option<(TaskId, Vec<Timestamp>)> = None;
        for (n, occurrence) in occurrences.iter().enumerate() {
            let (task_id, at) = (&occurrence.task_id, occurrence.due_at);
            let known = match self.known_task(task_id)? {
                Some(tid) => self
                    .conn
                    .prepare_cached("SELECT 1 FROM occurrences WHERE tid = ?1 AND due_at = ?2")?
                    .exists(params![tid, at.ms()])?,
                None => false,
            };
            let mut earlier = occurrences[..n].iter();
            if known || earlier.any(|other| other.task_id == *task_id && other.due_at == at) {
                let (of, due_at) = exist.get_or_insert_with(|| (task_id.clone(), Vec::new()));
                if of == task_id {
                    due_at.push(at);
                }
            }
        }
        Ok(match exist {
            Some((task_id, due_at)) => Err(Refusal::OccurrenceExists { task_id, due_at }),
            None => Ok(()),
        })
    }

    /// Whether a run is as its write expects it: as it is stored, or as the same decision has left it before.
    fn run_stands(
        &mut self,
        write: &RunWrite,
        stored: Option<&Stored>,
        earlier: &[RunWrite],
    ) -> Step<Verdict> {
        let run_id = &write.run.run_id;
        let written = earlier.iter().rev().find(|before| before.run.run_id == *run_id);
        let standing = written.map(|before| Standing::written(&before.run)).or(stored.map(Standing::stored));
        Ok(match (standing, write.expect) {
            (None, Expect::Absent) => return self.key_is_free(&write.run, earlier),
            (None, Expect::At { .. }) => Err(Refusal::NoRun { run_id: run_id.clone() }),
            (Some(standing), expect) => standing.meets(run_id, expect),
        })
    }

    fn key_is_free(&mut self, run: &Run, earlier: &[RunWrite]) -> Step<Verdict> {
        let Some(key) = &run.spec.idempotency else { return Ok(Ok(())) };
        let task_id = &run.spec.task_id;
        if let Some(tid) = self.known_task(task_id)? {
            let mut select = self.conn.prepare_cached(KEY)?;
            let found: Option<(String, i64)> =
                select.query_row(params![tid, &*key.key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            if let Some((run_id, digest)) = found {
                let run_id = RunId::new(run_id).map_err(|invalid| row::unreadable(invalid.to_string()))?;
                return Ok(Err(Refusal::KeyExists { run_id, digest: unsigned(digest) }));
            }
        }
        for other in earlier.iter().map(|write| &write.run).filter(|other| other.spec.task_id == *task_id) {
            if let Some(taken) = other.spec.idempotency.as_ref().filter(|taken| taken.key == key.key) {
                let (run_id, digest) = (other.run_id.clone(), taken.digest);
                return Ok(Err(Refusal::KeyExists { run_id, digest }));
            }
        }
        Ok(Ok(()))
    }

    /// The row of a run.
    pub(super) fn stored(&self, run_id: &RunId) -> Step<Option<Stored>> {
        if let Some(known) = self.known.by_id(run_id) {
            return Ok(Some(known.stored.clone()));
        }
        let read = |row: &Row<'_>| Stored::read(row).map(|(stored, _)| stored);
        self.hot.first(Hot::Find, &[&run_id.as_str()], read)
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
        if before.is_none() {
            self.begin_task_events(tid)?;
        }
        let last_event = self.write_task_events(tid, aid, last, &write.events)?;
        self.forget_paused(tid);
        match &write.change {
            TaskChange::Keep => {
                self.conn
                    .prepare_cached("UPDATE tasks SET last_event = ?2 WHERE tid = ?1")?
                    .execute([tid, last_event])?;
            }
            TaskChange::Put(task) => {
                let (spec, idle) = (json(&task.spec)?, json(&SchedulePlace::Idle)?);
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
                // One that was made without a schedule has an idle one.
                self.conn.prepare_cached(IDLE_SCHEDULE)?.execute(params![tid, task.spec.enabled, idle])?;
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

    fn write_task_events(&mut self, tid: i64, aid: i64, last: i64, events: &[NewEvent]) -> Step<i64> {
        let mut last = last;
        for event in events {
            last += 1;
            let cursor = self.write_event(-tid, last, 0, Some(aid), event)?;
            self.conn.prepare_cached(TASK_EVENT)?.execute([tid, last, event.at.ms(), cursor])?;
        }
        Ok(last)
    }

    /// A new task numbers its events from 1: those of the task that had its name before are put below.
    fn begin_task_events(&mut self, tid: i64) -> Step<()> {
        let lowest: Option<i64> = self
            .conn
            .prepare_cached("SELECT min(seq) FROM task_events WHERE tid = ?1")?
            .query_row([tid], |row| row.get(0))?;
        let Some(lowest) = lowest else { return Ok(()) };
        let lives = 1 - lowest.min(0).div_euclid(LIFE);
        for sql in PUT_BELOW {
            self.conn.prepare_cached(sql)?.execute([tid, lives * LIFE])?;
        }
        Ok(())
    }

    /// Writes an event under the next cursor, and answers that. `prev`: the cursor of the one before it.
    pub(super) fn write_event(
        &mut self,
        subject: i64,
        seq: i64,
        prev: i64,
        aid: Option<i64>,
        event: &NewEvent,
    ) -> Step<i64> {
        let cursor = self.new_cursor();
        let mut pack = Pack::of_form(EVENT_FORM);
        pack.maybe(event.status.map(|status| status.number().into()));
        pack.number(event.attempt.into());
        pack.number(event.fence);
        pack.instance(event.instance);
        pack.maybe(aid);
        let (kind, at) = (event.kind.number(), event.at.ms());
        self.hot.execute(
            Hot::Event,
            params![cursor, subject, seq, prev, kind, at, pack.bytes(), event.data.as_deref()],
        )?;
        Ok(cursor)
    }

    fn write_schedule(&mut self, write: &ScheduleWrite) -> Step<()> {
        let state = &write.state;
        let Some(enabled) = self.enabled(&state.task_id)? else { return Ok(()) };
        let tid = self.task(&state.task_id)?;
        self.conn.prepare_cached(PUT_SCHEDULE)?.execute(params![
            tid,
            enabled,
            signed(state.version),
            state.last_due.map(Timestamp::ms),
            state.fire_at().map(Timestamp::ms),
            json::<SchedulePlace>(&state.place)?
        ])?;
        self.hint.agenda = true;
        Ok(())
    }

    /// Whether a task is dispatched; none if there is no such task.
    fn enabled(&self, task_id: &TaskId) -> Step<Option<bool>> {
        let mut select = self.conn.prepare_cached("SELECT enabled FROM tasks WHERE task_id = ?1")?;
        Ok(select.query_row([task_id.as_str()], |row| row.get(0)).optional()?)
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

/// How the bytes of an event are laid out.
pub(super) const EVENT_FORM: u8 = 1;

pub(super) const EVENT: &str = "INSERT INTO events (cursor, subject, seq, prev, kind, at, body, data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const TASK_EVENT: &str = "INSERT INTO task_events (tid, seq, at, cursor) VALUES (?1, ?2, ?3, ?4)";

pub(super) const PUT_BELOW: [&str; 2] = [
    "UPDATE events SET seq = seq - ?2
     WHERE cursor IN (SELECT cursor FROM task_events WHERE tid = ?1 AND seq > 0)",
    "UPDATE task_events SET seq = seq - ?2 WHERE tid = ?1 AND seq > 0",
];

/// The statement that finds the row of a run.
pub(super) fn find() -> String {
    format!("SELECT {STORED} {FIND}")
}

/// How far below the events of an earlier task of the same name are put: more than a task has events.
pub(super) const LIFE: i64 = 1 << 40;

pub(super) const KEY: &str = "SELECT r.run_id, k.digest FROM idempotency k JOIN runs r ON r.rid = k.rid
    WHERE k.tid = ?1 AND k.key = ?2";

const PUT_TASK: &str = "INSERT INTO tasks
    (tid, task_id, aid, enabled, revision, created_at, updated_at, last_event, spec)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (tid) DO UPDATE SET aid = excluded.aid, enabled = excluded.enabled,
    revision = excluded.revision, created_at = excluded.created_at, updated_at = excluded.updated_at,
    last_event = excluded.last_event, spec = excluded.spec";

const IDLE_SCHEDULE: &str =
    "INSERT OR IGNORE INTO schedules (tid, enabled, version, last_due, fire_at, place)
    VALUES (?1, ?2, 0, NULL, NULL, ?3)";

const PUT_SCHEDULE: &str = "INSERT INTO schedules (tid, enabled, version, last_due, fire_at, place)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (tid) DO UPDATE SET enabled = excluded.enabled, version = excluded.version,
    last_due = excluded.last_due, fire_at = excluded.fire_at, place = excluded.place";
