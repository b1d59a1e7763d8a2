//! Looking after the store: for who asks, beside what the housekeeper does by itself.

use super::Tenure;
use crate::error::Error;
use crate::model::{RunStatus, TaskId};
use crate::store::{PageRequest, PruneRequest, Pruned, RunFilter};

/// How many records are read at once.
const PAGE: usize = 1_000;

impl Tenure {
    /// Compares what the store derives from runs with them: counters, lanes, places. Answers what is wrong, and
    /// makes it good if asked (K7). Reads every run.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn check_store(&self, repair: bool) -> Result<Vec<String>, Error> {
        Ok(self.instance.store.check(repair).await?)
    }

    /// Removes finished runs with their files, and old occurrences: a bounded batch. Ask again while there is
    /// more.
    ///
    /// # Errors
    /// [`Error::Store`]: some may have been removed; ask again.
    pub async fn prune(&self, request: PruneRequest) -> Result<Pruned, Error> {
        let pruned = self.instance.store.prune(request).await?;
        self.instance.remove_folders(pruned.workspaces.clone()).await;
        Ok(pruned)
    }

    /// How much [`prune`](Self::prune) would remove if it were asked again and again with this now: nothing is removed.
    /// Occurrences of tasks that were deleted are left out, for nobody lists them. Reads every run from before.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn count_prunable(&self, request: PruneRequest) -> Result<(u64, u64), Error> {
        let counts = self.instance.store.counts(None).await?;
        let finished: u64 =
            counts.iter().filter(|(status, _)| status.is_terminal()).map(|(_, count)| count).sum();
        // The oldest go first, whichever the reason: what is too old is among what is too much, or the other way.
        let runs = self.ended_before(request).await?.max(finished.saturating_sub(request.keep));
        let (mut occurrences, mut page) = (0, PageRequest { limit: PAGE, cursor: None });
        loop {
            let tasks = self.tasks(page.clone()).await?;
            for (task, _) in &tasks.items {
                occurrences += self.recorded_before(&task.spec.task_id, request).await?;
            }
            match tasks.next {
                Some(next) => page.cursor = Some(next),
                None => return Ok((runs, occurrences)),
            }
        }
    }

    async fn ended_before(&self, request: PruneRequest) -> Result<u64, Error> {
        let terminal = RunStatus::ALL.into_iter().filter(|status| status.is_terminal());
        // What ended before was queued before.
        let filter = RunFilter {
            statuses: terminal.collect(),
            created_before: Some(request.before),
            ..RunFilter::default()
        };
        let (mut ended, mut page) = (0, PageRequest { limit: PAGE, cursor: None });
        loop {
            let runs = self.instance.store.runs(filter.clone(), page.clone()).await?;
            let is_old = |at: Option<_>| at.is_none_or(|at| at < request.before);
            ended += count(runs.items.iter().filter(|run| is_old(run.finished_at)));
            match runs.next {
                Some(next) => page.cursor = Some(next),
                None => return Ok(ended),
            }
        }
    }

    async fn recorded_before(&self, task_id: &TaskId, request: PruneRequest) -> Result<u64, Error> {
        let (mut recorded, mut page) = (0, PageRequest { limit: PAGE, cursor: None });
        loop {
            let found = self.instance.store.occurrences(task_id, page.clone()).await?;
            recorded += count(found.items.iter().filter(|found| found.recorded_at < request.before));
            match found.next {
                Some(next) => page.cursor = Some(next),
                None => return Ok(recorded),
            }
        }
    }
}

fn count(records: impl Iterator) -> u64 {
    u64::try_from(records.count()).unwrap_or(u64::MAX)
}
