//! One transaction in progress: what it has read, what it has decided on that, what it will write.
//!
//! Records are read once, for all calls of a batch together ([`super::load`]); decisions are made on them here, one
//! after the other, each seeing what those before it did; what came of it is written once for all ([`super::flush`]).
//! Nobody else writes meanwhile: every transaction begins by locking the row of "meta".

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use foldhash::HashMap;
use uuid::Uuid;

use super::conn::{Conn, Flight, Say, with};
use super::fault::Step;
use super::known::Memory;
use super::lanes::{LaneEntry, Order};
use super::list::MARK;
use super::load::{Needs, runs_sql, texts};
use super::row::{CLOCK, Stored, get};
use crate::clock::Clock;
use crate::model::{
    AgentId, Attempt, Idempotency, NewEvent, Occurrence, Run, RunId, RunResult, RunStatus, ScheduleState,
    Task, TaskId, Timestamp,
};
use crate::store::Hint;

/// The most cancelled runs that a hint names; the others are found at the next heartbeat.
const MOST_CANCELS: usize = 1000;

/// Numbers that are given out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta {
    pub(super) rid: i64,
    pub(super) cursor: i64,
    pub(super) tid: i64,
    pub(super) aid: i64,
    pub(super) lid: i64,
    pub(super) lane_version: i64,
    /// Raised by every transaction that writes.
    pub(super) version: i64,
    /// Raised by those of them that know that they disturbed nobody.
    pub(super) harmless: i64,
}

impl Meta {
    /// How often a writer changed a run that another one may remember ([`super::known`]).
    pub(super) const fn disturbed(self) -> i64 {
        self.version - self.harmless
    }
}

/// Who remembers a run from an earlier transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Nobody,
    Here,
    Elsewhere,
}

/// A run that was read or made.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stored: Stored,
    /// Not in the table yet.
    pub(super) new: bool,
    /// It is written as a whole.
    pub(super) rest: Option<Rest>,
    /// Where it waits is written.
    pub(super) placed: bool,
    /// Its lease is written.
    pub(super) renewed: bool,
    pub(super) known: Known,
    /// This transaction has written it.
    pub(super) written: bool,
}

impl Entry {
    /// One that this writer does not remember: if it is held, another may.
    pub(super) fn read(stored: Stored) -> Self {
        let known = if stored.status.is_held() { Known::Elsewhere } else { Known::Nobody };
        Self { stored, new: false, rest: None, placed: false, renewed: false, known, written: false }
    }

    /// Whether nobody but this writer can remember it once the transaction is committed.
    pub(super) fn is_ours(&self) -> bool {
        self.written || self.known == Known::Here
    }
}

/// What is written of a run and decided on by nobody.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    pub(super) attempt: i32,
    pub(super) failures: i32,
    pub(super) interruptions: i32,
    pub(super) owner: Option<Uuid>,
    pub(super) claimed_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) attempt_started_at: Option<i64>,
    pub(super) finished_at: Option<i64>,
    pub(super) ended_at: Option<i64>,
    /// A result that is kept in the row.
    pub(super) small: Option<Vec<u8>>,
}

impl Rest {
    pub(super) fn of(run: &Run) -> Self {
        let ms = |at: Option<Timestamp>| at.map(Timestamp::ms);
        let ended = run.status.is_terminal().then(|| run.finished_at.unwrap_or(run.spec.queued_at));
        Self {
            attempt: run.attempt.cast_signed(),
            failures: run.failures.cast_signed(),
            interruptions: run.interruptions.cast_signed(),
            owner: run.lease.map(|lease| super::row::owner(lease.owner)),
            claimed_at: ms(run.claimed_at),
            started_at: ms(run.started_at),
            attempt_started_at: ms(run.attempt_started_at),
            finished_at: ms(run.finished_at),
            ended_at: ms(ended),
            small: run.result.as_ref().and_then(super::result::small),
        }
    }
}

/// A task that was looked for.
#[derive(Debug, Default)]
pub(super) struct TaskEntry {
    pub(super) row: Option<TaskRow>,
    /// The version of its schedule.
    pub(super) schedule: Option<u64>,
    /// Whether runs wait because it is paused.
    pub(super) has_paused: bool,
    /// The lowest number of an event of it, or of an earlier task of its name.
    pub(super) lowest: Option<i64>,
    pub(super) put: Option<Box<Task>>,
    pub(super) told: bool,
    pub(super) deleted: bool,
    pub(super) schedule_put: Option<ScheduleState>,
}

/// A task as far as decisions depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskRow {
    pub(super) aid: i64,
    pub(super) enabled: bool,
    pub(super) revision: u64,
    pub(super) last_event: i64,
}

/// How a run is in a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Membership {
    pub(super) pos: i32,
    pub(super) most: i64,
    pub(super) takes: bool,
    pub(super) sched: bool,
}

/// The specification of a new run, with the numbers of the run, its task and its agent, and its name.
pub(super) type NewSpec = (i64, i64, i64, Arc<crate::model::RunSpec>, RunId);

/// What is written beside runs, tasks and lanes.
#[derive(Default)]
pub(super) struct Out {
    pub(super) task_names: Vec<(i64, TaskId)>,
    pub(super) agent_names: Vec<(i64, AgentId)>,
    pub(super) specs: Vec<NewSpec>,
    pub(super) results: BTreeMap<i64, RunResult>,
    pub(super) attempts: BTreeMap<(i64, u32), Attempt>,
    pub(super) events: Vec<Told>,
    pub(super) occurrences: Vec<(i64, Occurrence)>,
    pub(super) keys: Vec<(i64, i64, Idempotency)>,
    pub(super) members: BTreeMap<(i64, i64), Option<Membership>>,
    pub(super) dead_lanes: Vec<i64>,
}

/// An event with its numbers.
pub(super) struct Told {
    pub(super) cursor: i64,
    pub(super) subject: i64,
    pub(super) seq: i64,
    pub(super) aid: Option<i64>,
    pub(super) event: NewEvent,
}

/// One transaction in progress.
pub(super) struct Tx<'c> {
    pub(super) conn: &'c Conn,
    pub(super) now: Timestamp,
    pub(super) hint: Hint,
    pub(super) memory: &'c mut Memory,
    pub(super) meta: Meta,
    pub(super) runs: HashMap<i64, Entry>,
    pub(super) by_id: HashMap<RunId, Option<i64>>,
    pub(super) tasks: HashMap<TaskId, TaskEntry>,
    pub(super) lanes: HashMap<i64, LaneEntry>,
    pub(super) lane_ids: HashMap<Arc<str>, Option<i64>>,
    /// Idempotency keys that are taken.
    pub(super) keys: HashMap<(TaskId, Arc<str>), (RunId, u64)>,
    /// Occurrences that have a record.
    pub(super) recorded: HashSet<(TaskId, i64)>,
    /// Where runs wait now that were not read.
    pub(super) moves: BTreeMap<i64, (i16, Option<i64>)>,
    pub(super) counts: BTreeMap<i64, [i64; RunStatus::ALL.len()]>,
    pub(super) out: Out,
    /// Between which instants new runs were queued, by their marks.
    pub(super) marks: BTreeMap<i64, (i64, i64)>,
    /// The cursor before it began.
    pub(super) before: i64,
    /// Something was written before its end.
    pub(super) wrote: bool,
    /// A run was written that another writer may remember.
    pub(super) disturbs: bool,
    /// What was sent before its end, and not waited for.
    pub(super) ahead: Flight<'c>,
    /// After how many events more of it is sent.
    pub(super) enough: usize,
    /// The first of the runs that lanes let go of, and that are ready.
    pub(super) freed: Option<Order>,
}

/// How many events the first part of a transaction has that is sent ahead; each that follows has twice as many.
const FIRST_PART: usize = 64;

const LOCK: &str =
    "SELECT next_rid, next_cursor, next_tid, next_aid, next_lid, lane_version, version, harmless FROM meta
    WHERE id = 0 FOR UPDATE";

impl<'c> Tx<'c> {
    /// Begins: waits until nobody else writes, and reads what is needed, in one round trip.
    pub(super) async fn begin(
        conn: &'c Conn,
        memory: &'c mut Memory,
        clock: Option<&Arc<dyn Clock>>,
        needs: &Needs,
    ) -> Step<Self> {
        // The clock is asked after the lock was waited for.
        let mut says = vec![Say::new(LOCK, Vec::new()), Say::new(format!("SELECT {CLOCK}"), Vec::new())];
        let (kinds, questions) = needs.questions(memory);
        says.extend(questions);
        let mut answers = conn.say(Some("BEGIN"), says, None).await?.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
        next()?;
        let (locked, time) = (next()?, next()?);
        let numbers = locked.first().ok_or_else(|| super::row::unreadable("the row of meta is missing"))?;
        let now = match (clock, time.first()) {
            (None, Some(row)) => super::row::at(get(row, 0)?),
            (clock, _) => clock.map_or_else(Timestamp::default, |clock| clock.now()),
        };
        let meta = Meta {
            rid: get(numbers, 0)?,
            cursor: get(numbers, 1)?,
            tid: get(numbers, 2)?,
            aid: get(numbers, 3)?,
            lid: get(numbers, 4)?,
            lane_version: get(numbers, 5)?,
            version: get(numbers, 6)?,
            harmless: get(numbers, 7)?,
        };
        let known: Vec<RunId> = needs.known(memory);
        let stands = memory.stands_at(meta.disturbed());
        let mut tx = Self::new(conn, memory, meta, now);
        tx.expect(needs);
        for kind in kinds {
            tx.take(kind, next()?)?;
        }
        if !stands && !known.is_empty() {
            // Somebody has disturbed meanwhile: they are read after all.
            for row in &conn.ask(runs_sql(), with![texts(&known)]).await? {
                tx.keep(Stored::read(row)?);
            }
        }
        for run_id in known.iter().filter(|_| stands) {
            if let Some(stored) = tx.memory.take(run_id) {
                tx.hold(Entry { known: Known::Here, ..Entry::read(stored) });
            }
        }
        Ok(tx)
    }

    fn new(conn: &'c Conn, memory: &'c mut Memory, meta: Meta, now: Timestamp) -> Self {
        Self {
            conn,
            now,
            hint: Hint::default(),
            memory,
            before: meta.cursor,
            meta,
            runs: HashMap::default(),
            by_id: HashMap::default(),
            tasks: HashMap::default(),
            lanes: HashMap::default(),
            lane_ids: HashMap::default(),
            keys: HashMap::default(),
            recorded: HashSet::new(),
            moves: BTreeMap::new(),
            counts: BTreeMap::new(),
            out: Out::default(),
            marks: BTreeMap::new(),
            wrote: false,
            disturbs: false,
            ahead: Flight::default(),
            enough: FIRST_PART,
            freed: None,
        }
    }

    pub(super) fn new_rid(&mut self) -> i64 {
        self.meta.rid += 1;
        self.meta.rid - 1
    }

    /// A new run was queued at this instant.
    pub(super) fn mark(&mut self, rid: i64, queued_at: Timestamp) {
        let at = queued_at.ms();
        let span = self.marks.entry(rid / MARK).or_insert((at, at));
        *span = (span.0.min(at), span.1.max(at));
    }

    pub(super) fn new_lane_version(&mut self) -> i64 {
        self.meta.lane_version += 1;
        self.meta.lane_version
    }

    /// The cursor of the newest event.
    pub(super) fn newest_cursor(&self) -> u64 {
        u64::try_from(self.meta.cursor - 1).unwrap_or(0)
    }

    /// What watchers are told; nothing if nothing changed for them.
    pub(super) fn take_hint(&mut self) -> Option<Hint> {
        self.hint.cursor = self.newest_cursor();
        let hint = std::mem::take(&mut self.hint);
        let changed = hint.ready
            || hint.agenda
            || hint.agents
            || !hint.cancels.is_empty()
            || self.meta.cursor != self.before;
        changed.then_some(hint)
    }

    /// A run that was read or made, by its name.
    pub(super) fn found(&self, run_id: &RunId) -> Option<&Stored> {
        let rid = self.by_id.get(run_id).copied().flatten()?;
        self.runs.get(&rid).map(|entry| &entry.stored)
    }

    /// A run of the task came to this status, or left it.
    pub(super) fn count(&mut self, tid: i64, status: RunStatus, by: i64) {
        for whose in [tid, 0] {
            let counts = self.counts.entry(whose).or_insert([0; RunStatus::ALL.len()]);
            counts[usize::from(status.number())] += by;
        }
    }

    /// Watchers are told that somebody wants this run cancelled, or that its authority was revoked.
    pub(super) fn tell_cancel(&mut self, run_id: &RunId) {
        if self.hint.cancels.len() < MOST_CANCELS && self.hint.cancels.last() != Some(run_id) {
            self.hint.cancels.push(run_id.clone());
        }
    }

    /// An event under the next cursor. The row of "meta" stays locked until it can be seen, so that whoever is given
    /// a higher one is seen after it.
    pub(super) fn tell(&mut self, subject: i64, seq: i64, aid: Option<i64>, event: &NewEvent) {
        let cursor = self.meta.cursor;
        self.meta.cursor += 1;
        self.out.events.push(Told { cursor, subject, seq, aid, event: event.clone() });
    }

    /// The number of a task that was asked for, given now if it has none.
    pub(super) fn task_number(&mut self, task_id: &TaskId) -> i64 {
        if let Some(tid) = self.memory.names.tasks.get(task_id) {
            return *tid;
        }
        let tid = self.meta.tid;
        self.meta.tid += 1;
        remember(&mut self.memory.names.tasks, task_id.clone(), tid);
        self.out.task_names.push((tid, task_id.clone()));
        tid
    }

    /// The number of an agent that was asked for, given now if it has none.
    pub(super) fn agent_number(&mut self, agent_id: &AgentId) -> i64 {
        if let Some(aid) = self.memory.names.agents.get(agent_id) {
            return *aid;
        }
        let aid = self.meta.aid;
        self.meta.aid += 1;
        remember(&mut self.memory.names.agents, agent_id.clone(), aid);
        self.out.agent_names.push((aid, agent_id.clone()));
        aid
    }

    /// Asks one thing of what this transaction has written so far.
    pub(super) async fn ask(
        &mut self,
        sql: impl Into<std::borrow::Cow<'static, str>>,
        with: Vec<super::conn::Param>,
    ) -> Step<Vec<tokio_postgres::Row>> {
        for answer in self.conn.land(&mut self.ahead).await {
            answer?;
        }
        self.conn.ask(sql, with).await
    }

    /// Writes where a run waits; its version does not rise.
    pub(super) fn move_to(&mut self, rid: i64, to: i16, lane: Option<i64>) {
        match self.runs.get_mut(&rid) {
            Some(entry) => {
                (entry.stored.place, entry.stored.lane) = (to, lane);
                entry.placed = true;
            }
            None => {
                self.moves.insert(rid, (to, lane));
            }
        }
    }

    /// A run that was read now stands as it was left.
    pub(super) fn keep(&mut self, stored: Stored) {
        let mut entry = Entry::read(stored);
        if self.memory.take(&entry.stored.run_id).is_some() {
            entry.known = Known::Here;
        }
        self.hold(entry);
    }

    fn hold(&mut self, entry: Entry) {
        let rid = entry.stored.rid;
        self.by_id.insert(entry.stored.run_id.clone(), Some(rid));
        let entry = self.runs.entry(rid).or_insert(entry);
        if let Some((to, lane)) = self.moves.remove(&rid) {
            (entry.stored.place, entry.stored.lane) = (to, lane);
            entry.placed = true;
        }
    }
}

pub(super) fn remember<K: Eq + std::hash::Hash>(names: &mut HashMap<K, i64>, name: K, number: i64) {
    names.insert(name, number);
}

/// What tells another session of a hint.
pub(super) fn notify(channel: String, payload: String) -> Say {
    Say::new("SELECT pg_notify($1, $2)", with![channel, payload])
}
