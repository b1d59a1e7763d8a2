//! Removes what nobody needs any more, in bounded steps.

use std::sync::Arc;

use serde::Deserialize;

use super::conn::with;
use super::fault::Step;
use super::row::{get, status};
use super::tx::Tx;
use crate::model::{RunId, RunStatus};
use crate::store::{PruneRequest, Pruned};

/// The part of a specification that says where the files of a run are.
#[derive(Deserialize)]
struct Shown {
    workspace_path: Arc<str>,
}

impl Tx<'_> {
    /// Removes the runs that ended longest ago, and occurrences and events of tasks that are as old.
    pub(super) async fn prune(&mut self, request: &PruneRequest) -> Step<Pruned> {
        let mut pruned = Pruned::default();
        let surplus = self.finished().await?.saturating_sub(request.keep);
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
        let terminal: Vec<i16> = RunStatus::ALL
            .into_iter()
            .filter(|status| status.is_terminal())
            .map(super::row::status_number)
            .collect();
        let oldest = self.ask(ENDED, with![terminal, limit.saturating_add(1)]).await?;
        let mut rids: Vec<i64> = Vec::new();
        for (n, row) in oldest.iter().enumerate() {
            let (ended_at, rid): (i64, i64) = (get(row, 0)?, get(row, 1)?);
            if ended_at >= request.before.ms() && n >= surplus {
                break;
            }
            if n == request.limit {
                pruned.more = true;
                break;
            }
            self.count(get(row, 2)?, status(get(row, 3)?)?, -1);
            rids.push(rid);
        }
        pruned.runs = rids.len() as u64;
        if !rids.is_empty() {
            pruned.workspaces = self.remove(rids).await?;
            self.ask(OLD_MARKS, Vec::new()).await?;
        }
        for sql in [OCCURRENCES, TASK_EVENTS] {
            let rows = self.ask(sql, with![request.before.ms(), limit]).await?;
            let removed: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
            if sql == OCCURRENCES {
                pruned.occurrences = removed.unsigned_abs();
            }
            pruned.more |= removed > 0 && removed >= limit;
        }
        Ok(pruned)
    }

    /// Removes runs that have ended, as they were decided to end; one that is not there is removed already.
    pub(super) async fn forget(&mut self, run_ids: &[RunId]) -> Step<()> {
        // What was decided of them is written first, so that nothing of it comes after their end.
        self.flush().await?;
        let mut rids = Vec::new();
        for run_id in run_ids {
            self.memory.take(run_id);
            let Some(rid) = self.by_id.insert(run_id.clone(), None).flatten() else { continue };
            if let Some(entry) = self.runs.remove(&rid) {
                self.count(entry.stored.tid, entry.stored.status, -1);
                rids.push(rid);
            }
        }
        self.keys.retain(|_, (holder, _)| !run_ids.contains(holder));
        if !rids.is_empty() {
            self.remove(rids).await?;
        }
        Ok(())
    }

    /// How many runs have ended.
    async fn finished(&mut self) -> Step<u64> {
        let rows = self.ask(FINISHED, Vec::new()).await?;
        let finished: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        Ok(u64::try_from(finished).unwrap_or(0))
    }

    /// Removes runs with all that they had, and answers the folders of their files.
    async fn remove(&mut self, rids: Vec<i64>) -> Step<Vec<Arc<str>>> {
        let mut folders = Vec::new();
        for row in &self.ask(SPECS, with![rids.clone()]).await? {
            // That of a record that cannot be read is not known.
            let shown = serde_json::from_str::<Shown>(get(row, 0)?).ok();
            folders.extend(shown.map(|shown| shown.workspace_path));
        }
        for sql in REMOVE {
            self.ask(sql, with![rids.clone()]).await?;
        }
        Ok(folders)
    }
}

const FINISHED: &str =
    "SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE tid = 0 AND status BETWEEN 5 AND 9";

pub(super) const ENDED: &str =
    "SELECT x.ended_at, x.rid, x.tid, x.status FROM unnest($1::smallint[]) AS k (status)
    CROSS JOIN LATERAL (SELECT r.ended_at, r.rid, r.tid, r.status FROM runs r
        WHERE r.resting = k.status AND r.ended_at IS NOT NULL ORDER BY r.ended_at, r.rid LIMIT $2) x
    ORDER BY x.ended_at, x.rid LIMIT $2";

pub(super) const SPECS: &str = "SELECT s.spec FROM unnest($1::bigint[]) WITH ORDINALITY AS x (rid, n)
    JOIN specs s ON s.rid = x.rid ORDER BY x.n";

/// Marks of runs of which none is left.
pub(super) const OLD_MARKS: &str =
    "DELETE FROM marks WHERE mark < (SELECT rid / 4096 FROM specs ORDER BY rid LIMIT 1)";

/// What a run has.
pub(super) const REMOVE: [&str; 6] = [
    "DELETE FROM events WHERE subject = ANY($1)",
    "DELETE FROM attempts WHERE rid = ANY($1)",
    "DELETE FROM results WHERE rid = ANY($1)",
    "DELETE FROM idempotency WHERE rid = ANY($1)",
    "DELETE FROM specs WHERE rid = ANY($1)",
    "DELETE FROM runs WHERE rid = ANY($1)",
];

pub(super) const OCCURRENCES: &str = "WITH old AS MATERIALIZED (
        SELECT tid, due_at FROM occurrences WHERE recorded_at < $1 ORDER BY recorded_at LIMIT $2),
    gone AS (DELETE FROM occurrences o USING old WHERE o.tid = old.tid AND o.due_at = old.due_at RETURNING 1)
    SELECT count(*) FROM gone";

pub(super) const TASK_EVENTS: &str = "WITH old AS MATERIALIZED (
        SELECT cursor FROM events WHERE subject < 0 AND at < $1 ORDER BY at LIMIT $2),
    gone AS (DELETE FROM events e USING old WHERE e.cursor = old.cursor RETURNING 1)
    SELECT count(*) FROM gone";
