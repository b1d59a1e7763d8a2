//! Cancelling one run, or all of a task, a session or a filter.

use super::runs::ordinary;
use super::{Decided, Tenure};
use crate::error::Error;
use crate::model::{Place, Run, RunId, RunStatus};
use crate::rules::{self, Cancel, CancelRequest, Moment};
use crate::store::{Decision, PageRequest, RunFilter};

/// Which runs to cancel: of those that match, the ones that have not ended.
pub type CancelFilter = RunFilter;

/// How many runs a request to cancel has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Cancelled {
    /// Ended by it.
    pub ended: u64,
    /// Asked to stop: their owners end them.
    pub requested: u64,
}

/// The most runs in one commit.
const BATCH: usize = 200;

impl Tenure {
    /// Cancels a run and answers it as it stands then: ended, or with the intent for its owner. One that had
    /// ended is answered as it is (T2, T40).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Store`]: the caller must not believe that it was cancelled (X12).
    pub async fn cancel_run(&self, run_id: &RunId, request: &CancelRequest) -> Result<Run, Error> {
        self.decide(&format!("run \"{run_id}\""), |moment: Moment| async move {
            let run = self.run(run_id).await?;
            Ok(match rules::cancel(&run, request, moment) {
                Cancel::Write(write) => {
                    let mut run = write.run.clone();
                    if run.status.is_terminal() {
                        run.place = Place::Nowhere;
                    }
                    Decided::write(write, run)
                }
                Cancel::AlreadyRequested | Cancel::AlreadyTerminal => Decided::Already(run),
            })
        })
        .await
    }

    /// Cancels every run that matches and has not ended. Runs that come to match meanwhile may be missed.
    ///
    /// # Errors
    /// [`Error::Store`]: some may have been cancelled; ask again.
    pub async fn cancel_runs(
        &self,
        filter: CancelFilter,
        request: &CancelRequest,
    ) -> Result<Cancelled, Error> {
        let mut met = Cancelled::default();
        let live = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal());
        let asked: Vec<RunStatus> = if filter.statuses.is_empty() {
            live.collect()
        } else {
            live.filter(|status| filter.statuses.contains(status)).collect()
        };
        if asked.is_empty() {
            return Ok(met);
        }
        let filter = RunFilter { statuses: asked, ..ordinary(filter) };
        let mut page = PageRequest { limit: BATCH, cursor: None };
        loop {
            let found = self.instance.store.runs(filter.clone(), page.clone()).await?;
            self.cancel_page(found.items, request, &mut met).await?;
            match found.next {
                Some(cursor) => page.cursor = Some(cursor),
                None => return Ok(met),
            }
        }
    }

    async fn cancel_page(
        &self,
        runs: Vec<Run>,
        request: &CancelRequest,
        met: &mut Cancelled,
    ) -> Result<(), Error> {
        let moment = self.instance.moment().await?;
        let mut decided = Vec::new();
        for run in &runs {
            let moment = Moment { stamp: self.instance.draw(), ..moment };
            if let Cancel::Write(write) = rules::cancel(run, request, moment) {
                decided.push(write);
            }
        }
        let decisions = decided.iter().cloned().map(Decision::from).collect();
        let answers = self.instance.commit(decisions).await?;
        for (write, answer) in decided.into_iter().zip(answers) {
            let run = match answer {
                Ok(()) => write.run,
                // It moved meanwhile: decided again, for itself.
                Err(_) => match self.cancel_run(&write.run.run_id, request).await {
                    Ok(run) => run,
                    Err(Error::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            if run.status == RunStatus::Cancelled {
                met.ended += 1;
            } else if !run.status.is_terminal() {
                met.requested += 1;
            }
        }
        Ok(())
    }
}
