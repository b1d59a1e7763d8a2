//! How many there are of what listings show.

use super::Tenure;
use super::runs::ordinary;
use crate::error::Error;
use crate::store::{Counted, PageRequest, RunFilter};

/// How many records are read at once to be counted.
const PAGE: usize = 1_000;

impl Tenure {
    /// How many runs match, and whether that is exact: what no counter is kept of is counted up to `most`, and no
    /// further than a page of a listing looks.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn count_runs(&self, filter: RunFilter, most: u64) -> Result<(u64, bool), Error> {
        let filter = ordinary(filter);
        let kept = RunFilter {
            task_id: filter.task_id.clone(),
            statuses: filter.statuses.clone(),
            owned: filter.owned,
            ..RunFilter::default()
        };
        let store = &self.instance.store;
        // The counters count what hosts own as well.
        if filter == kept && filter.owned != Some(true) {
            let owned = match filter.owned {
                Some(_) => store.count(RunFilter { owned: Some(true), ..kept }, most).await?,
                None => Counted { count: 0, exact: true },
            };
            if owned.exact {
                let counts = store.counts(filter.task_id.as_ref()).await?;
                let wanted = counts
                    .iter()
                    .filter(|(status, _)| filter.statuses.is_empty() || filter.statuses.contains(status));
                let all: u64 = wanted.map(|(_, count)| count).sum();
                // What is owned may have come between the two.
                return Ok((all.saturating_sub(owned.count), true));
            }
        }
        let Counted { count, exact } = store.count(filter, most).await?;
        Ok((count, exact))
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
