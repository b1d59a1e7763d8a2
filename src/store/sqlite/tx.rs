//! One transaction in progress: what it has read once, what it has counted, what it will tell.

use foldhash::{HashMap, HashMapExt};
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Step;
use super::hot::{Known, Statements};
use super::lanes::{Book, Order};
use super::parts::Parts;
use super::probe::Probe;
use crate::model::{AgentId, RunId, RunStatus, TaskId, Timestamp};
use crate::store::Hint;

/// Numbers of names. They never change once they are committed, whoever wrote them.
#[derive(Debug, Default)]
pub(super) struct Names {
    tasks: HashMap<TaskId, i64>,
    agents: HashMap<AgentId, i64>,
}

/// How many cursors are passed over when a writer begins: more than the events that can be committed and not yet be on
/// the disk.
const PASSED_OVER: i64 = 1 << 20;

/// What a writer remembers from one transaction to the next.
#[derive(Default)]
pub(super) struct Memory {
    names: Names,
    known: Known,
    parts: Parts,
    /// What the database says of foreign commits, when this was last known to stand.
    version: i64,
    /// Whether a transaction has begun with it.
    begun: bool,
}

impl Memory {
    /// Others may have changed what they can, if the file is at another version. Names stay.
    fn stands_at(&mut self, version: i64) {
        if self.version != version {
            self.version = version;
            self.known.forget_all();
            self.parts = Parts::default();
        }
    }
}

/// Changes when another connection has written.
pub(super) fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// How many runs share a mark.
pub(super) const MARK: i64 = 4096;

/// A mark that says enough is left alone.
pub(super) const PUT_MARK: &str = "INSERT INTO marks (mark, first_at, last_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (mark) DO UPDATE
    SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
    WHERE first_at > excluded.first_at OR last_at < excluded.last_at";

/// The most names that are remembered: of more, the file is asked again.
const MOST_NAMES: usize = 100_000;

/// The most cancelled runs that a hint names; the others are found at the next heartbeat.
const MOST_CANCELS: usize = 1000;

/// One transaction in progress.
pub(super) struct Tx<'t, 'c> {
    pub(super) conn: &'c Connection,
    pub(super) hot: &'t Statements<'c>,
    pub(super) known: &'t mut Known,
    pub(super) parts: &'t mut Parts,
    pub(super) part_counts: HashMap<i64, i64>,
    pub(super) now: Timestamp,
    pub(super) hint: Hint,
    pub(super) probe: Probe,
    names: &'t mut Names,
    next_rid: i64,
    next_cursor: i64,
    lane_version: i64,
    /// The three of them, as they were when it began.
    begun_with: (i64, i64, i64),
    counts: HashMap<i64, [i64; RunStatus::ALL.len()]>,
    pub(super) lanes: Book,
    /// The first of the runs that lanes let go of, and that are ready.
    pub(super) freed: Option<Order>,
    paused: HashMap<i64, bool>,
    /// Between which instants new runs were queued, by their marks.
    marks: HashMap<i64, (i64, i64)>,
}

impl<'t, 'c> Tx<'t, 'c> {
    /// Begins: waits until no other program writes.
    pub(super) fn begin(conn: &'c Connection, hot: &'t Statements<'c>, memory: &'t mut Memory) -> Step<Self> {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let meta = conn
            .prepare_cached("SELECT next_rid, next_cursor, lane_version FROM meta WHERE id = 0")
            .and_then(|mut meta| meta.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))))
            .and_then(|meta| Ok((meta, data_version(conn)?)));
        let (next_rid, next_cursor, lane_version) = match meta {
            Ok((meta, version)) => {
                memory.stands_at(version);
                meta
            }
            Err(error) => {
                roll_back(conn);
                return Err(error.into());
            }
        };
        // What was not on the disk may be lost with the machine's power, and another program may have seen its events.
        let begun_with = (next_rid, next_cursor, lane_version);
        let next_cursor: i64 = if memory.begun { next_cursor } else { next_cursor + PASSED_OVER };
        memory.begun = true;
        let Memory { names, known, parts, .. } = memory;
        Ok(Self {
            conn,
            hot,
            known,
            parts,
            part_counts: HashMap::new(),
            now: Timestamp::default(),
            hint: Hint::default(),
            probe: Probe::default(),
            names,
            next_rid,
            next_cursor,
            lane_version,
            begun_with,
            counts: HashMap::new(),
            lanes: Book::default(),
            freed: None,
            paused: HashMap::new(),
            marks: HashMap::new(),
        })
    }

    /// Writes what was counted; only the commit is left to do.
    pub(super) fn flush(&mut self) -> Step<()> {
        self.lanes.write(self.conn)?;
        self.write_parts()?;
        let mut count = self.conn.prepare_cached(
            "INSERT INTO counters (tid, status, n) VALUES (?1, ?2, ?3)
             ON CONFLICT (tid, status) DO UPDATE SET n = n + excluded.n",
        )?;
        let mut all = [0_i64; RunStatus::ALL.len()];
        for (tid, counts) in self.counts.drain() {
            for (status, n) in counts.into_iter().enumerate().filter(|(_, n)| *n != 0) {
                count.execute(params![tid, status as i64, n])?;
                all[status] += n;
            }
        }
        for (status, n) in all.into_iter().enumerate().filter(|(_, n)| *n != 0) {
            count.execute(params![0, status as i64, n])?;
        }
        for (mark, (first, last)) in self.marks.drain() {
            self.conn.prepare_cached(PUT_MARK)?.execute([mark, first, last])?;
        }
        let numbers = (self.next_rid, self.next_cursor, self.lane_version);
        // Who found nothing to do writes nothing, and waits for no disk.
        if numbers != self.begun_with {
            let sql = "UPDATE meta SET next_rid = ?1, next_cursor = ?2, lane_version = ?3 WHERE id = 0";
            self.conn.prepare_cached(sql)?.execute(<[i64; 3]>::from(numbers))?;
        }
        self.hint.cursor = self.newest_cursor();
        Ok(())
    }

    pub(super) fn new_rid(&mut self) -> i64 {
        self.next_rid += 1;
        self.next_rid - 1
    }

    /// A new run was queued at this instant.
    pub(super) fn mark(&mut self, rid: i64, queued_at: i64) {
        let span = self.marks.entry(rid / MARK).or_insert((queued_at, queued_at));
        *span = (span.0.min(queued_at), span.1.max(queued_at));
    }

    /// The cursor of the last of so many events that are told next.
    pub(super) fn cursor_after(&self, events: usize) -> i64 {
        self.next_cursor - 1 + i64::try_from(events).unwrap_or(i64::MAX)
    }

    /// A run came to have a part of its specification in common with others, or is gone.
    pub(super) fn count_part(&mut self, part: i64, by: i64) {
        *self.part_counts.entry(part).or_default() += by;
    }

    pub(super) fn new_cursor(&mut self) -> i64 {
        self.next_cursor += 1;
        self.next_cursor - 1
    }

    /// The cursor of the newest event.
    pub(super) fn newest_cursor(&self) -> u64 {
        u64::try_from(self.next_cursor - 1).unwrap_or(0)
    }

    pub(super) fn new_lane_version(&mut self) -> i64 {
        self.lane_version += 1;
        self.lane_version
    }

    /// A run of the task came to this status, or left it.
    pub(super) fn count(&mut self, tid: i64, status: RunStatus, by: i64) {
        let counts = self.counts.entry(tid).or_insert([0; RunStatus::ALL.len()]);
        counts[usize::from(status.number())] += by;
    }

    /// What was counted of a status so far, of all tasks.
    pub(super) fn counted(&self, status: RunStatus) -> i64 {
        self.counts.values().map(|counts| counts[usize::from(status.number())]).sum()
    }

    /// Watchers are told that somebody wants this run cancelled, or that its authority was revoked.
    pub(super) fn tell_cancel(&mut self, run_id: &RunId) {
        if self.hint.cancels.len() < MOST_CANCELS && self.hint.cancels.last() != Some(run_id) {
            self.hint.cancels.push(run_id.clone());
        }
    }

    /// Whether there is such a task, and it is paused.
    pub(super) fn is_paused(&mut self, tid: i64) -> Step<bool> {
        if let Some(paused) = self.paused.get(&tid) {
            return Ok(*paused);
        }
        let mut select = self.conn.prepare_cached("SELECT enabled FROM tasks WHERE tid = ?1")?;
        let enabled: Option<bool> = select.query_row([tid], |row| row.get(0)).optional()?;
        let paused = enabled == Some(false);
        self.paused.insert(tid, paused);
        Ok(paused)
    }

    /// The task was written or deleted.
    pub(super) fn forget_paused(&mut self, tid: i64) {
        self.paused.remove(&tid);
    }

    /// The number of a task, if it ever had one.
    pub(super) fn known_task(&mut self, task_id: &TaskId) -> Step<Option<i64>> {
        if let Some(tid) = self.names.tasks.get(task_id) {
            return Ok(Some(*tid));
        }
        let tid = task_number(self.conn, task_id)?;
        if let Some(tid) = tid {
            remember(&mut self.names.tasks, task_id.clone(), tid);
        }
        Ok(tid)
    }

    /// The number of a task, given now if need be.
    pub(super) fn task(&mut self, task_id: &TaskId) -> Step<i64> {
        if let Some(tid) = self.known_task(task_id)? {
            return Ok(tid);
        }
        let mut insert = self.conn.prepare_cached("INSERT INTO task_names (name) VALUES (?1)")?;
        let tid = insert.insert([task_id.as_str()])?;
        remember(&mut self.names.tasks, task_id.clone(), tid);
        Ok(tid)
    }

    /// The number of an agent, given now if need be.
    pub(super) fn agent(&mut self, agent_id: &AgentId) -> Step<i64> {
        if let Some(aid) = self.known_agent(agent_id)? {
            return Ok(aid);
        }
        let mut insert = self.conn.prepare_cached("INSERT INTO agent_names (name) VALUES (?1)")?;
        let aid = insert.insert([agent_id.as_str()])?;
        remember(&mut self.names.agents, agent_id.clone(), aid);
        Ok(aid)
    }

    /// The number of an agent, if it ever had one.
    pub(super) fn known_agent(&mut self, agent_id: &AgentId) -> Step<Option<i64>> {
        if let Some(aid) = self.names.agents.get(agent_id) {
            return Ok(Some(*aid));
        }
        let aid = agent_number(self.conn, agent_id)?;
        if let Some(aid) = aid {
            remember(&mut self.names.agents, agent_id.clone(), aid);
        }
        Ok(aid)
    }
}

/// The number of a task, if it ever had one.
pub(super) fn task_number(conn: &Connection, task_id: &TaskId) -> Step<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT tid FROM task_names WHERE name = ?1")?;
    Ok(select.query_row([task_id.as_str()], |row| row.get(0)).optional()?)
}

/// The number of an agent, if it ever had one.
pub(super) fn agent_number(conn: &Connection, agent_id: &AgentId) -> Step<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT aid FROM agent_names WHERE name = ?1")?;
    Ok(select.query_row([agent_id.as_str()], |row| row.get(0)).optional()?)
}

fn remember<K: Eq + std::hash::Hash>(names: &mut HashMap<K, i64>, name: K, number: i64) {
    if names.len() >= MOST_NAMES {
        names.clear();
    }
    names.insert(name, number);
}

/// Undoes what is in progress. If that fails there was nothing, or the connection is of no use any more.
pub(super) fn roll_back(conn: &Connection) {
    if !conn.is_autocommit() && conn.execute_batch("ROLLBACK").is_err() {
        tracing::warn!("a transaction could not be rolled back; the next one will say why");
    }
}
