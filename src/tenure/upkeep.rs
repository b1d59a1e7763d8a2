//! Looking after the store: for who asks, beside what the housekeeper does by itself.

use super::Tenure;
use crate::error::Error;
use crate::store::{PruneRequest, Pruned};

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
}
