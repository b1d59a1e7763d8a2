//! Retention: what has ended goes, in bounded batches.

use std::sync::Arc;

use super::state::State;
use crate::store::{PruneRequest, Pruned};

impl State {
    pub(super) fn prune(&mut self, request: PruneRequest) -> Pruned {
        let mut pruned = Pruned::default();
        for _ in 0..request.limit {
            let Some(number) = self.oldest_to_remove(request) else { break };
            pruned.workspaces.extend(self.remove_run(number));
            pruned.runs += 1;
        }
        for _ in 0..request.limit {
            if !self.occurrences.remove_oldest(request.before) {
                break;
            }
            pruned.occurrences += 1;
        }
        for _ in 0..request.limit {
            if !self.journal.forget_oldest_of_task(request.before) {
                break;
            }
        }
        pruned.more = self.oldest_to_remove(request).is_some()
            || self.occurrences.any_before(request.before)
            || self.journal.any_of_task_before(request.before);
        pruned
    }

    fn oldest_to_remove(&self, request: PruneRequest) -> Option<u64> {
        let (finished_at, number) = self.index.finished.first().copied()?;
        let too_many = self.index.finished.len() as u64 > request.keep;
        (finished_at < request.before || too_many).then_some(number)
    }

    /// Answers the folder of its files.
    pub(super) fn remove_run(&mut self, number: u64) -> Option<Arc<str>> {
        let record = self.runs.remove(number)?;
        self.index.remove(number, &record.run);
        self.lanes.account(number, Some(&record.run), None);
        self.journal.forget(&record.events);
        Some(Arc::clone(&record.run.spec.workspace_path))
    }
}
