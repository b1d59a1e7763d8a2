//! Removes what nobody needs any more, in bounded steps.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::fault::{Fault, Step};
use super::row::{Stored, flag};
use super::tx::Tx;
use crate::model::{RunId, RunStatus};
use crate::store::{PruneRequest, Pruned};

struct Ended {
    finished_at: i64,
    rid: i64,
    tid: i64,
    flags: i64,
    status: RunStatus,
    part: Option<i64>,
}

impl Tx<'_, '_> {
    /// Removes the runs that ended longest ago, and occurrences and events of tasks that are as old.
    pub(super) fn prune(&mut self, request: &PruneRequest) -> Step<Pruned> {
        let mut pruned = Pruned::default();
        let surplus = usize::try_from(self.finished()?.saturating_sub(request.keep)).unwrap_or(usize::MAX);
        let oldest = self.oldest(request.limit.saturating_add(1))?;
        for (n, ended) in oldest.iter().enumerate() {
            if ended.finished_at >= request.before.ms() && n >= surplus {
                break;
            }
            if n == request.limit {
                pruned.more = true;
                break;
            }
            let record = match self.load(ended.rid) {
                Err(Fault::Unreadable(_)) => None,
                record => record?,
            };
            pruned
                .workspaces
                .extend(record.as_ref().map(|record| Arc::clone(&record.run.spec.workspace_path)));
            self.remove(ended, record.map(|record| record.stored))?;
            pruned.runs += 1;
        }
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
        if pruned.runs > 0 {
            self.conn.prepare_cached(OLD_MARKS)?.execute([])?;
        }
        for sql in [OCCURRENCES, TASK_EVENTS, TASK_EVENT_ENTRIES] {
            let removed = self.conn.prepare_cached(sql)?.execute(params![request.before.ms(), limit])? as u64;
            if sql == OCCURRENCES {
                pruned.occurrences = removed;
            }
            pruned.more |= removed > 0 && removed >= request.limit as u64;
        }
        Ok(pruned)
    }

    /// Removes one that has ended; one that is gone already is none.
    pub(super) fn forget(&mut self, run_id: &RunId) -> Step<()> {
        self.known.forget(run_id);
        let Some(stored) = self.stored(run_id)? else { return Ok(()) };
        let Stored { rid, tid, flags, status, part, .. } = stored;
        self.remove(&Ended { finished_at: 0, rid, tid, flags, status, part }, Some(stored))
    }

    /// How many runs have ended, with what this transaction has counted so far left out.
    fn finished(&self) -> Step<u64> {
        let sql = "SELECT coalesce(sum(n), 0) FROM counters WHERE tid = 0 AND status BETWEEN ?1 AND ?2";
        let (first, last) = (RunStatus::Completed.number(), RunStatus::Skipped.number());
        let kept: i64 = self.conn.prepare_cached(sql)?.query_row([first, last], |row| row.get(0))?;
        let counted = RunStatus::ALL.into_iter().filter(|status| status.is_terminal());
        let counted: i64 = counted.map(|status| self.counted(status)).sum();
        Ok(u64::try_from(kept + counted).unwrap_or(0))
    }

    fn oldest(&self, limit: usize) -> Step<Vec<Ended>> {
        let mut select = self.conn.prepare_cached(ENDED)?;
        let mut found = Vec::new();
        for status in RunStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
            let most = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut rows = select.query(params![status.number(), most])?;
            while let Some(row) = rows.next()? {
                found.push(Ended {
                    finished_at: row.get(0)?,
                    rid: row.get(1)?,
                    tid: row.get(2)?,
                    flags: row.get(3)?,
                    part: row.get(4)?,
                    status,
                });
            }
        }
        found.sort_unstable_by_key(|ended| (ended.finished_at, ended.rid));
        found.truncate(limit);
        Ok(found)
    }

    fn remove(&mut self, ended: &Ended, stored: Option<Stored>) -> Step<()> {
        match stored {
            Some(stored) => self.remove_events(stored.told)?,
            // Where its events begin is not known: they are looked for.
            None => {
                self.conn.prepare_cached("DELETE FROM events WHERE subject = ?1")?.execute([ended.rid])?;
            }
        }
        for sql in REMOVE {
            self.conn.prepare_cached(sql)?.execute([ended.rid])?;
        }
        if ended.flags & flag::HAS_RESULT != 0 {
            self.conn.prepare_cached("DELETE FROM results WHERE rid = ?1")?.execute([ended.rid])?;
        }
        if ended.flags & flag::HAS_KEY != 0 {
            self.conn.prepare_cached("DELETE FROM idempotency WHERE rid = ?1")?.execute([ended.rid])?;
        }
        match ended.part {
            Some(part) => self.count_part(part, -1),
            None => {
                self.conn.prepare_cached("DELETE FROM specs WHERE rid = ?1")?.execute([ended.rid])?;
            }
        }
        self.count(ended.tid, ended.status, -1);
        Ok(())
    }

    fn remove_events(&mut self, last: i64) -> Step<()> {
        let mut select = self.conn.prepare_cached("SELECT prev FROM events WHERE cursor = ?1")?;
        let mut delete = self.conn.prepare_cached("DELETE FROM events WHERE cursor = ?1")?;
        let mut next = last;
        while next > 0 {
            let prev: Option<i64> = select.query_row([next], |row| row.get(0)).optional()?;
            let Some(prev) = prev else { return Ok(()) };
            delete.execute([next])?;
            next = prev;
        }
        Ok(())
    }
}

pub(super) const ENDED: &str = "SELECT finished_at, rid, tid, flags, part FROM runs INDEXED BY runs_ended
    WHERE status = ?1 AND finished_at IS NOT NULL ORDER BY finished_at, rid LIMIT ?2";

/// What every run has, or may have.
pub(super) const REMOVE: [&str; 2] =
    ["DELETE FROM attempts WHERE rid = ?1", "DELETE FROM runs WHERE rid = ?1"];

pub(super) const OCCURRENCES: &str = "DELETE FROM occurrences WHERE (tid, due_at) IN
    (SELECT tid, due_at FROM occurrences INDEXED BY occurrences_recorded WHERE recorded_at < ?1
     ORDER BY recorded_at LIMIT ?2)";

pub(super) const TASK_EVENTS: &str = "DELETE FROM events WHERE cursor IN
    (SELECT cursor FROM task_events INDEXED BY task_events_at WHERE at < ?1 ORDER BY at, tid, seq LIMIT ?2)";

/// After the events themselves.
pub(super) const TASK_EVENT_ENTRIES: &str = "DELETE FROM task_events WHERE (tid, seq) IN
    (SELECT tid, seq FROM task_events INDEXED BY task_events_at WHERE at < ?1 ORDER BY at, tid, seq LIMIT ?2)";

/// Marks of runs of which none is left.
pub(super) const OLD_MARKS: &str = "DELETE FROM marks WHERE mark < (SELECT min(rid) / 4096 FROM runs)";
