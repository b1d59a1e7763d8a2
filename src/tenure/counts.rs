//! How many there are of what listings show.

use std::time::Duration;

use tokio::time::Instant;

use super::Tenure;
use super::runs::ordinary;
use crate::error::Error;
use crate::store::{PageRequest, RunFilter};

/// How many records are read at once to be counted.
const PAGE: usize = 1_000;

/// How long is counted: a list with its total is to take less than 50 ms.
const COUNT_TIME: Duration = Duration::from_millis(25);

impl Tenure {
    /// How many runs match, and whether that is exact: what no counter is kept of is counted up to `most`, as long as
    /// that does not take long.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn count_runs(&self, filter: RunFilter, most: u64) -> Result<(u64, bool), Error> {
        let filter = ordinary(filter);
        let RunFilter { task_id, statuses, owned, .. } = &filter;
        let (task, words) = (task_id.clone(), statuses.clone());
        let counted = RunFilter { task_id: task, statuses: words, owned: *owned, ..RunFilter::default() };
        // The counters count what hosts own as well.
        if filter == counted && (owned.is_none() || !self.owns_anything().await?) {
            let counts = self.instance.store.counts(task_id.as_ref()).await?;
            let wanted = counts.iter().filter(|(status, _)| statuses.is_empty() || statuses.contains(status));
            return Ok((wanted.map(|(_, count)| count).sum(), true));
        }
        let (mut total, mut cursor, until) = (0, None, Instant::now() + COUNT_TIME);
        while total < most && Instant::now() < until {
            let limit = PAGE.min(usize::try_from(most - total).unwrap_or(PAGE));
            let page = self.instance.store.runs(filter.clone(), PageRequest { limit, cursor }).await?;
            total += length(page.items.len() + page.corrupt.len());
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok((total, true)),
            }
        }
        Ok((total, false))
    }

    /// Whether any run in the store is executed by a host itself.
    async fn owns_anything(&self) -> Result<bool, Error> {
        let filter = RunFilter { owned: Some(true), ..RunFilter::default() };
        let page = PageRequest { limit: 1, cursor: None };
        let found = self.instance.store.runs(filter, page).await?;
        // Where not all was looked at there may be some.
        Ok(!found.items.is_empty() || !found.corrupt.is_empty() || found.next.is_some())
    }

    /// How many tasks there are, counted up to `most`, and whether that is exact.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn count_tasks(&self, most: u64) -> Result<(u64, bool), Error> {
        let (mut total, mut cursor) = (0, None);
        while total < most {
            let limit = PAGE.min(usize::try_from(most - total).unwrap_or(PAGE));
            let page = self.tasks(PageRequest { limit, cursor }).await?;
            total += length(page.items.len() + page.corrupt.len());
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok((total, true)),
            }
        }
        Ok((total, false))
    }
}

fn length(records: usize) -> u64 {
    u64::try_from(records).unwrap_or(u64::MAX)
}
