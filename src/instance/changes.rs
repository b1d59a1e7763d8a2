//! The one way in which this instance writes decisions: who waits here for a run, and the mirror of its files,
//! hear of each change of it.

use super::Instance;
use super::files::is_mirrored;
use crate::model::{Place, Run, RunId};
use crate::store::{Decision, Refusal, StoreError};

/// A run that is about to be changed, as far as anybody here has to know.
struct Change {
    /// The decision that changes it.
    place: usize,
    run_id: RunId,
    settles: bool,
    /// As it will be, if somebody waits for that.
    settled: Option<Run>,
    mirrored: bool,
}

impl Instance {
    /// Writes decisions; what was applied is told.
    pub(crate) async fn commit(
        &self,
        decisions: Vec<Decision>,
    ) -> Result<Vec<Result<(), Refusal>>, StoreError> {
        let mut changes = Vec::new();
        for (place, decision) in decisions.iter().enumerate() {
            changes.extend(decision.runs.iter().filter_map(|write| self.change(place, &write.run)));
        }
        let answers = self.vitals.watch_write(self.store.commit(decisions)).await?;
        for change in changes {
            if answers.get(change.place).is_some_and(Result::is_ok) {
                self.changed(change);
            }
        }
        Ok(answers)
    }

    /// Writes one.
    pub(crate) async fn commit_one(&self, decision: Decision) -> Result<Result<(), Refusal>, StoreError> {
        let mut answers = self.commit(vec![decision]).await?;
        answers.pop().ok_or_else(|| StoreError::unknown("no answer for the decision"))
    }

    fn change(&self, place: usize, run: &Run) -> Option<Change> {
        let settles = run.status.is_settled();
        let mirrored = self.files.is_some() && is_mirrored(run);
        let concerns = settles || mirrored;
        // Where it waited is the store's to say, and it waits nowhere any more.
        let stands = || Run { place: Place::Nowhere, ..run.clone() };
        let settled = (settles && self.waiters.any_for(&run.run_id)).then(stands);
        concerns.then(|| Change { place, run_id: run.run_id.clone(), settles, settled, mirrored })
    }

    fn changed(&self, change: Change) {
        if change.settles {
            self.waiters.settled(&change.run_id, change.settled.as_ref());
        }
        if let Some(files) = self.files.as_ref().filter(|_| change.mirrored) {
            files.queue.push(change.run_id);
        }
    }
}
