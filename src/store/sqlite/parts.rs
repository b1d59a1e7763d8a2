//! What the runs of a task have in common is kept once. The first run of its kind keeps its specification for
//! itself; when another one like it comes, what they share becomes a part, and of those that follow only the
//! difference is kept.

use std::sync::Arc;

use foldhash::HashMap;
use rusqlite::{OptionalExtension, params};

use super::body::Stored;
use super::fault::Step;
use super::row::{at, flag, json, parsed, trigger, unreadable};
use super::tx::Tx;
use crate::model::{Limits, Run, RunSpec, Timestamp, Trigger};

/// Stands for the id of the run in names that contain it. No name of ours has one.
const ID: char = '\0';

/// The parts of a task that are looked through: of a task that changes all the time, the newest.
const LOOKED_THROUGH: usize = 4;

/// The most tasks whose parts are remembered.
const MOST: usize = 10_000;

/// The parts that are known. They never change; who else writes may remove them.
#[derive(Debug, Default)]
pub(super) struct Parts {
    by_task: HashMap<i64, Vec<i64>>,
    by_number: HashMap<i64, Arc<RunSpec>>,
    /// What the last run of a task that is like no other would share.
    alone: HashMap<i64, RunSpec>,
}

impl Tx<'_, '_> {
    /// The part that a new run shares with others, if it shares one.
    pub(super) fn part_for(&mut self, tid: i64, run: &Run) -> Step<Option<i64>> {
        let (spec, run_id) = (&*run.spec, run.run_id.as_str());
        if !self.parts.by_task.contains_key(&tid) {
            self.learn_parts(tid)?;
        }
        let known = self.parts.by_task.get(&tid).into_iter().flatten().copied();
        let like = |part: &i64| self.parts.by_number.get(part).is_some_and(|c| fits(c, spec, run_id));
        let found = known.rev().find(like);
        if let Some(part) = found {
            self.count_part(part, 1);
            return Ok(Some(part));
        }
        if self.parts.alone.get(&tid).is_some_and(|common| fits(common, spec, run_id))
            && let Some(common) = self.parts.alone.remove(&tid)
        {
            return self.new_part(tid, common).map(Some);
        }
        if let Some(common) = common(spec, run_id) {
            self.parts.alone.insert(tid, common);
        }
        Ok(None)
    }

    fn learn_parts(&mut self, tid: i64) -> Step<()> {
        if self.parts.by_task.len() >= MOST {
            *self.parts = Parts::default();
        }
        let mut select = self.conn.prepare_cached(PARTS_OF_TASK)?;
        let mut rows = select.query(params![tid, LOOKED_THROUGH as i64])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let part: i64 = row.get(0)?;
            // What cannot be read is shared with nobody new.
            if let Ok(common) = parsed("the specification", row.get_ref(1)?.as_str().unwrap_or_default()) {
                self.parts.by_number.insert(part, Arc::new(common));
                found.insert(0, part);
            }
        }
        self.parts.by_task.insert(tid, found);
        Ok(())
    }

    fn new_part(&mut self, tid: i64, common: RunSpec) -> Step<i64> {
        let mut insert =
            self.conn.prepare_cached("INSERT INTO parts (tid, runs, spec) VALUES (?1, 0, ?2)")?;
        let part = insert.insert(params![tid, json(&common)?])?;
        let of_task = self.parts.by_task.entry(tid).or_default();
        of_task.push(part);
        if of_task.len() > LOOKED_THROUGH {
            of_task.remove(0);
        }
        self.parts.by_number.insert(part, Arc::new(common));
        self.count_part(part, 1);
        Ok(part)
    }

    /// What the runs with this part share.
    pub(super) fn common(&mut self, part: i64) -> Step<Arc<RunSpec>> {
        if let Some(common) = self.parts.by_number.get(&part) {
            return Ok(Arc::clone(common));
        }
        let mut select = self.conn.prepare_cached("SELECT spec FROM parts WHERE part = ?1")?;
        let text: Option<String> = select.query_row([part], |row| row.get(0)).optional()?;
        let missing =
            || unreadable(format!("the specification cannot be read: part {part} of it is missing"));
        let common: Arc<RunSpec> = Arc::new(parsed("the specification", &text.ok_or_else(missing)?)?);
        if self.parts.by_number.len() >= MOST * LOOKED_THROUGH {
            *self.parts = Parts::default();
        }
        self.parts.by_number.insert(part, Arc::clone(&common));
        Ok(common)
    }

    /// Writes how many runs have each part; one that nobody has any more is gone.
    pub(super) fn write_parts(&mut self) -> Step<()> {
        for (part, by) in std::mem::take(&mut self.part_counts) {
            self.conn
                .prepare_cached("UPDATE parts SET runs = runs + ?2 WHERE part = ?1")?
                .execute([part, by])?;
            if by < 0 && self.conn.prepare_cached(UNUSED)?.execute([part])? > 0 {
                *self.parts = Parts::default();
            }
        }
        Ok(())
    }
}

pub(super) const PARTS_OF_TASK: &str =
    "SELECT part, spec FROM parts INDEXED BY parts_of_task WHERE tid = ?1 ORDER BY part DESC LIMIT ?2";

/// The count alone is not trusted with it.
pub(super) const UNUSED: &str = "DELETE FROM parts WHERE part = ?1 AND runs <= 0 AND NOT EXISTS
    (SELECT 1 FROM runs r INDEXED BY runs_of_task WHERE r.tid = parts.tid AND r.part = parts.part)";

/// What a run would share with others like it; none if it is one of its kind.
fn common(spec: &RunSpec, run_id: &str) -> Option<RunSpec> {
    if spec.idempotency.is_some() || spec.retry_of.is_some() {
        return None;
    }
    let share = |name: &str| (!name.contains(ID)).then(|| name.replace(run_id, "\0").into());
    Some(RunSpec {
        trigger: Trigger::Manual,
        queued_at: Timestamp::default(),
        first_due_at: Timestamp::default(),
        late_by_ms: 0,
        occurrence: None,
        session_id: share(&spec.session_id)?,
        workspace_path: share(&spec.workspace_path)?,
        limits: Limits { deadline_at: None, ..spec.limits },
        override_pause: false,
        ..spec.clone()
    })
}

/// Whether a run has everything in common with a part but what is kept of each run.
fn fits(common: &RunSpec, spec: &RunSpec, run_id: &str) -> bool {
    // Named one by one: a new part of specifications has to be thought of here.
    let RunSpec {
        task_id,
        agent_id,
        query,
        trigger: _,
        queued_at: _,
        first_due_at: _,
        late_by_ms: _,
        occurrence: _,
        idempotency,
        session_id,
        workspace_path,
        write_run_json,
        write_events_jsonl,
        limits,
        retry_policy,
        overlap_policy,
        lanes,
        priority,
        retry_of,
        override_pause: _,
        metadata,
    } = spec;
    idempotency.is_none()
        && retry_of.is_none()
        && *task_id == common.task_id
        && *agent_id == common.agent_id
        && *query == common.query
        && *write_run_json == common.write_run_json
        && *write_events_jsonl == common.write_events_jsonl
        && limits.timeout == common.limits.timeout
        && *retry_policy == common.retry_policy
        && *overlap_policy == common.overlap_policy
        && *lanes == common.lanes
        && *priority == common.priority
        && *metadata == common.metadata
        && is_filled(&common.session_id, session_id, run_id)
        && is_filled(&common.workspace_path, workspace_path, run_id)
}

/// Whether a name is what a shared one becomes with this id.
pub(super) fn is_filled(shared: &str, name: &str, run_id: &str) -> bool {
    let mut pieces = shared.split(ID);
    let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else { return false };
    for piece in pieces {
        let Some(after) = rest.strip_prefix(run_id).and_then(|rest| rest.strip_prefix(piece)) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}

/// A shared name with the id of a run in it.
pub(super) fn filled(shared: &Arc<str>, run_id: &str) -> Arc<str> {
    if shared.contains(ID) { shared.replace(ID, run_id).into() } else { Arc::clone(shared) }
}

/// The specification of a run, from what it shares and what is kept of it.
pub(super) fn individual(common: &RunSpec, stored: &Stored, run_id: &str) -> Step<RunSpec> {
    Ok(RunSpec {
        trigger: trigger(stored.flags)?,
        queued_at: at(stored.queued_at),
        first_due_at: at(stored.first_due_at),
        late_by_ms: stored.late_by_ms,
        occurrence: stored.occurrence.map(at),
        session_id: filled(&common.session_id, run_id),
        workspace_path: filled(&common.workspace_path, run_id),
        limits: Limits { deadline_at: stored.deadline_at.map(at), ..common.limits },
        override_pause: stored.flags & flag::OVERRIDE_PAUSE != 0,
        ..common.clone()
    })
}
