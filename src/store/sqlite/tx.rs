//! One transaction in progress: what it has read once, what it has counted, what it will tell.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Step;
use super::probe::Probe;
use super::row::signed;
use crate::model::{AgentId, RunId, RunStatus, TaskId, Timestamp};
use crate::store::Hint;

/// Numbers of names. They never change once they are committed, whoever wrote them.
#[derive(Debug, Default)]
pub(super) struct Names {
    tasks: HashMap<TaskId, i64>,
    agents: HashMap<AgentId, i64>,
}

/// The most names that are remembered: of more, the file is asked again.
const MOST_NAMES: usize = 100_000;

/// The most cancelled runs that a hint names; the others are found at the next heartbeat.
const MOST_CANCELS: usize = 1000;

/// One transaction in progress.
pub(super) struct Tx<'c> {
    pub(super) conn: &'c Connection,
    pub(super) now: Timestamp,
    pub(super) hint: Hint,
    pub(super) probe: Probe,
    names: &'c mut Names,
    next_rid: i64,
    next_cursor: i64,
    lane_version: i64,
    counts: HashMap<i64, [i64; RunStatus::ALL.len()]>,
    paused: HashMap<i64, bool>,
}

impl<'c> Tx<'c> {
    /// Begins: waits until no other program writes.
    pub(super) fn begin(conn: &'c Connection, names: &'c mut Names) -> Step<Self> {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let meta = conn
            .prepare_cached("SELECT next_rid, next_cursor, lane_version FROM meta WHERE id = 0")
            .and_then(|mut meta| meta.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))));
        let (next_rid, next_cursor, lane_version) = match meta {
            Ok(meta) => meta,
            Err(error) => {
                roll_back(conn);
                return Err(error.into());
            }
        };
        Ok(Self {
            conn,
            now: Timestamp::default(),
            hint: Hint::default(),
            probe: Probe::default(),
            names,
            next_rid,
            next_cursor,
            lane_version,
            counts: HashMap::new(),
            paused: HashMap::new(),
        })
    }

    /// Writes what was counted; only the commit is left to do.
    pub(super) fn flush(&mut self) -> Step<()> {
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
        self.conn
            .prepare_cached(
                "UPDATE meta SET next_rid = ?1, next_cursor = ?2, lane_version = ?3 WHERE id = 0",
            )?
            .execute(params![self.next_rid, self.next_cursor, self.lane_version])?;
        self.hint.cursor = self.newest_cursor();
        Ok(())
    }

    pub(super) fn new_rid(&mut self) -> i64 {
        self.next_rid += 1;
        self.next_rid - 1
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

/// The version of a lane; 0 when nothing is in it.
pub(super) fn lane_version(conn: &Connection, name: &Arc<str>) -> Step<u64> {
    let mut select = conn.prepare_cached("SELECT version FROM lanes WHERE name = ?1")?;
    let version: Option<i64> = select.query_row([&**name], |row| row.get(0)).optional()?;
    Ok(version.map_or(0, super::row::unsigned))
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

/// A token's parts, as the columns keep them.
pub(super) fn nonce_of(run: &crate::model::Run) -> Option<i64> {
    run.lease.map(|lease| signed(lease.nonce))
}
