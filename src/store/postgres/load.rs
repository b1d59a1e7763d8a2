//! Reads what decisions depend on: all that a batch needs in one round trip.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio_postgres::Row;

use super::conn::{Say, with};
use super::fault::Step;
use super::known::Memory;
use super::lanes::{Heads, LaneEntry};
use super::row::{STORED, Stored, get, id, text, unreadable, unsigned};
use super::tx::{TaskEntry, TaskRow, Tx, remember};
use crate::model::{AgentId, RunId, TaskId};
use crate::store::{Decision, Expect, RenewRequest, TaskChange};

/// What has to be read.
#[derive(Debug, Default)]
pub(super) struct Needs {
    runs: Vec<RunId>,
    tasks: Vec<TaskId>,
    names: Vec<TaskId>,
    agents: Vec<AgentId>,
    lanes: Vec<Arc<str>>,
    keys: Vec<(TaskId, Arc<str>)>,
    occurrences: Vec<(TaskId, i64)>,
}

/// What an answer is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Runs,
    Tasks,
    Names,
    Agents,
    Lanes,
    Heads,
    Keys,
    Occurrences,
}

impl Needs {
    pub(super) fn of_decision(&mut self, decision: &Decision) {
        for write in &decision.runs {
            let spec = &write.run.spec;
            self.runs.push(write.run.run_id.clone());
            self.lanes.extend(spec.lanes.iter().map(|lane| Arc::clone(&lane.name)));
            if write.expect == Expect::Absent {
                self.names.push(spec.task_id.clone());
                self.agents.push(spec.agent_id.clone());
                self.keys
                    .extend(spec.idempotency.iter().map(|key| (spec.task_id.clone(), Arc::clone(&key.key))));
            }
        }
        self.runs.extend(decision.forget.iter().cloned());
        if let Some(write) = &decision.task {
            self.tasks.push(write.task_id.clone());
            if let TaskChange::Put(task) = &write.change {
                self.agents.push(task.spec.agent_id.clone());
            }
        }
        self.tasks.extend(decision.schedule.iter().map(|write| write.state.task_id.clone()));
        self.lanes.extend(decision.lanes.iter().map(|lane| Arc::clone(&lane.name)));
        for occurrence in &decision.occurrences {
            self.names.push(occurrence.task_id.clone());
            self.occurrences.push((occurrence.task_id.clone(), occurrence.due_at.ms()));
        }
    }

    pub(super) fn of_renewal(&mut self, request: &RenewRequest) {
        self.runs.extend(request.leases.iter().map(|(run_id, _)| run_id.clone()));
    }

    /// The runs that need not be read, unless somebody else has written.
    pub(super) fn known(&self, memory: &Memory) -> Vec<RunId> {
        self.runs.iter().filter(|run_id| memory.knows(run_id)).cloned().collect()
    }

    /// The statements that read the rest, and what each is about.
    pub(super) fn questions(&self, memory: &Memory) -> (Vec<Kind>, Vec<Say>) {
        let mut all: Vec<(Kind, Say)> = Vec::new();
        let names = &memory.names;
        let runs: Vec<&RunId> = self.runs.iter().filter(|run_id| !memory.knows(run_id)).collect();
        if !runs.is_empty() {
            all.push((Kind::Runs, Say::new(runs_sql(), with![texts(runs)])));
        }
        if !self.tasks.is_empty() {
            all.push((Kind::Tasks, Say::new(TASKS, with![texts(&self.tasks)])));
        }
        let unknown: Vec<&TaskId> =
            self.names.iter().filter(|name| !names.tasks.contains_key(*name)).collect();
        if !unknown.is_empty() {
            all.push((Kind::Names, Say::new(NAMES, with![texts(unknown)])));
        }
        let unknown: Vec<&AgentId> =
            self.agents.iter().filter(|name| !names.agents.contains_key(*name)).collect();
        if !unknown.is_empty() {
            all.push((Kind::Agents, Say::new(AGENTS, with![texts(unknown)])));
        }
        if !self.lanes.is_empty() {
            let mut lanes: Vec<Vec<u8>> = self.lanes.iter().map(|name| name.as_bytes().to_vec()).collect();
            lanes.sort_unstable();
            lanes.dedup();
            all.push((Kind::Lanes, Say::new(LANES, with![lanes.clone()])));
            all.push((Kind::Heads, Say::new(heads_sql(HEADS_BY_NAME), with![lanes])));
        }
        if !self.keys.is_empty() {
            let (tasks, keys): (Vec<String>, Vec<Vec<u8>>) =
                self.keys.iter().map(|(task, key)| (task.to_string(), key.as_bytes().to_vec())).unzip();
            all.push((Kind::Keys, Say::new(KEYS, with![tasks, keys])));
        }
        if !self.occurrences.is_empty() {
            let (tasks, due): (Vec<String>, Vec<i64>) =
                self.occurrences.iter().map(|(task, due)| (task.to_string(), *due)).unzip();
            all.push((Kind::Occurrences, Say::new(OCCURRENCES, with![tasks, due])));
        }
        all.into_iter().unzip()
    }
}

pub(super) fn texts<T: ToString>(names: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut texts: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

impl Tx<'_> {
    /// What was asked for is not there, unless an answer says so.
    pub(super) fn expect(&mut self, needs: &Needs) {
        self.by_id.extend(needs.runs.iter().map(|run_id| (run_id.clone(), None)));
        self.tasks.extend(needs.tasks.iter().map(|task_id| (task_id.clone(), TaskEntry::default())));
        self.lane_ids.extend(needs.lanes.iter().map(|name| (Arc::clone(name), None)));
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, kind: Kind, rows: Vec<Row>) -> Step<()> {
        for row in &rows {
            match kind {
                Kind::Runs => self.keep(Stored::read(row)?),
                Kind::Tasks => self.take_task(row)?,
                Kind::Names => remember(&mut self.memory.names.tasks, task_id(get(row, 0)?)?, get(row, 1)?),
                Kind::Agents => {
                    remember(&mut self.memory.names.agents, agent_id(get(row, 0)?)?, get(row, 1)?)
                }
                Kind::Lanes => self.take_lane(row, 0)?,
                Kind::Heads => self.take_head(row)?,
                Kind::Keys => {
                    let key = (task_id(get(row, 0)?)?, text(get(row, 1)?)?.into());
                    self.keys.insert(key, (id(get(row, 2)?)?, unsigned(get(row, 3)?)));
                }
                Kind::Occurrences => {
                    self.recorded.insert((task_id(get(row, 0)?)?, get(row, 1)?));
                }
            }
        }
        Ok(())
    }

    fn take_task(&mut self, row: &Row) -> Step<()> {
        let name = task_id(get(row, 0)?)?;
        remember(&mut self.memory.names.tasks, name.clone(), get(row, 1)?);
        let mut entry = TaskEntry {
            schedule: get::<Option<i64>>(row, 6)?.map(unsigned),
            has_paused: get(row, 7)?,
            lowest: get(row, 8)?,
            ..TaskEntry::default()
        };
        if let Some(aid) = get::<Option<i64>>(row, 2)? {
            entry.row = Some(TaskRow {
                aid,
                enabled: get(row, 3)?,
                revision: unsigned(get(row, 4)?),
                last_event: get(row, 5)?,
            });
        }
        self.tasks.insert(name, entry);
        Ok(())
    }

    /// A lane from five columns on; its heads are asked for with it. Of one that was read before, what was decided
    /// since stands.
    pub(super) fn take_lane(&mut self, row: &Row, from: usize) -> Step<()> {
        let lid: i64 = get(row, from)?;
        let name: Arc<str> = text(get(row, from + 1)?)?.into();
        self.lane_ids.insert(Arc::clone(&name), Some(lid));
        if self.lanes.contains_key(&lid) {
            return Ok(());
        }
        let (held, total): (i64, i64) = (get(row, from + 3)?, get(row, from + 4)?);
        let heads = Some(Heads::default());
        let version = get(row, from + 2)?;
        self.lanes.insert(lid, LaneEntry { name, version, held, total, stored: true, dirty: false, heads });
        Ok(())
    }

    /// One that waits for a lane. Lanes are read before their heads.
    pub(super) fn take_head(&mut self, row: &Row) -> Step<()> {
        let Some(lane) = self.lanes.get_mut(&get::<i64>(row, 0)?) else { return Ok(()) };
        let order = (Reverse(get::<i32>(row, 2)?), get(row, 3)?, get(row, 4)?);
        lane.heads.get_or_insert_default().read(get(row, 1)?, order, get(row, 5)?);
        Ok(())
    }
}

pub(super) fn task_id(name: &str) -> Step<TaskId> {
    TaskId::new(name).map_err(|invalid| unreadable(invalid.to_string()))
}

pub(super) fn agent_id(name: &str) -> Step<AgentId> {
    AgentId::new(name).map_err(|invalid| unreadable(invalid.to_string()))
}

pub(super) fn runs_sql() -> String {
    format!("SELECT {STORED} FROM specs s JOIN runs r ON r.rid = s.rid WHERE s.run_id = ANY($1)")
}

pub(super) const NAMES: &str = "SELECT name, tid FROM task_names WHERE name = ANY($1)";

pub(super) const AGENTS: &str = "SELECT name, aid FROM agent_names WHERE name = ANY($1)";

pub(super) const LANES: &str = "SELECT lid, name, version, held, total FROM lanes WHERE name = ANY($1)";

pub(super) const TASKS: &str = "SELECT n.name, n.tid, t.aid, t.enabled, t.revision, t.last_event, c.version,
    EXISTS (SELECT 1 FROM runs r WHERE r.place = 4 AND r.tid = n.tid),
    (SELECT min(e.seq) FROM events e WHERE e.subject = -n.tid)
    FROM task_names n LEFT JOIN tasks t ON t.tid = n.tid LEFT JOIN schedules c ON c.tid = n.tid
    WHERE n.name = ANY($1)";

pub(super) const KEYS: &str = "SELECT x.task, x.key, s.run_id, k.digest
    FROM unnest($1::text[], $2::bytea[]) AS x (task, key)
    JOIN task_names n ON n.name = x.task JOIN idempotency k ON k.tid = n.tid AND k.key = x.key
    JOIN specs s ON s.rid = k.rid";

pub(super) const OCCURRENCES: &str =
    "SELECT x.task, x.due FROM unnest($1::text[], $2::bigint[]) AS x (task, due)
    JOIN task_names n ON n.name = x.task JOIN occurrences o ON o.tid = n.tid AND o.due_at = x.due";

/// How many of those who wait for a lane are read of each agent.
pub(super) const HEADS: usize = 16;

/// Whose turn it is in lanes, by agent: from one agent to the next in the index, not through all who wait.
pub(super) fn heads_sql(which: &str) -> String {
    format!(
        "WITH RECURSIVE heads AS (
             SELECT l.lid, (SELECT min(r.aid) FROM runs r WHERE r.place = 3 AND r.lane = l.lid) AS aid
             FROM lanes l WHERE {which}
             UNION ALL
             SELECT h.lid, (SELECT min(r.aid) FROM runs r WHERE r.place = 3 AND r.lane = h.lid AND r.aid > h.aid)
             FROM heads h WHERE h.aid IS NOT NULL)
         SELECT h.lid, h.aid, b.priority, b.due_at, b.rid, m.most FROM heads h CROSS JOIN LATERAL
             (SELECT r.priority, r.due_at, r.rid FROM runs r WHERE r.place = 3 AND r.lane = h.lid AND r.aid = h.aid
              ORDER BY r.priority DESC, r.due_at, r.rid LIMIT {HEADS}) b
         JOIN lane_runs m ON m.lid = h.lid AND m.rid = b.rid"
    )
}

pub(super) const HEADS_BY_NAME: &str = "l.name = ANY($1) AND l.total > l.held";
pub(super) const HEADS_OF: &str = "l.lid = ANY($1)";
