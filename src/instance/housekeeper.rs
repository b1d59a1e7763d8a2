//! Looks after runs that nobody brings to their end, and removes what was kept long enough.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{ProcessContext, ProcessResult};
use tokio::time::{Instant, sleep};

use super::Instance;
use crate::rules::{self, Moment};
use crate::store::{Decision, PruneRequest, StoreError};

/// The most runs that are looked at, or removed, in one call.
const PAGE: usize = 500;

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    let mut prune_at = Instant::now() + instance.settings.prune_every;
    loop {
        let wait = instance.sweep_and_wait().await;
        if Instant::now() >= prune_at {
            instance.prune(&context).await;
            prune_at = Instant::now() + instance.settings.prune_every;
        }
        tokio::select! {
            () = context.cancelled() => return Ok(()),
            () = sleep(wait) => {}
        }
    }
}

impl Instance {
    /// How long to wait for the next sweep: until something has to be looked at, at most the usual time.
    async fn sweep_and_wait(&self) -> Duration {
        let usual = self.settings.sweep();
        if let Err(error) = self.sweep().await {
            tracing::warn!(%error, "lost runs cannot be looked for until the store answers");
            return usual;
        }
        let Ok(agenda) = self.vitals.watch(self.store.agenda()).await else { return usual };
        let Some(wake) = agenda.wake else { return usual };
        // A lease that has expired waits for its grace; what has waited for that was decided just now.
        let next = if wake > agenda.now { wake } else { wake.plus(self.settings.grace()) };
        if next > agenda.now { next.since(agenda.now).min(usual) } else { usual }
    }

    /// Decides about every run that somebody has to look at. Who else does so at the same time is refused by
    /// the store, or is first (field L22).
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let runs = self.vitals.watch(self.store.due_runs(after.take(), PAGE)).await?;
            let moment = self.moment().await?;
            let decisions: Vec<Decision> = runs
                .iter()
                .filter_map(|run| {
                    rules::sweep(run, self.settings.grace(), Moment { stamp: self.draw(), ..moment })
                })
                .map(Decision::from)
                .collect();
            if !decisions.is_empty() {
                for refusal in self.commit(decisions).await?.into_iter().filter_map(Result::err) {
                    tracing::debug!(%refusal, "swept by others, or alive after all");
                }
            }
            match runs.last() {
                Some(last) if runs.len() == PAGE => {
                    after = rules::wake_at(last).map(|wake| (wake, last.run_id.clone()));
                }
                _ => return Ok(()),
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes in bounded batches, so that nobody waits long behind one (field G2, G7).
    async fn prune(&self, context: &ProcessContext) {
        while !context.is_cancelled() {
            match self.prune_batch().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "finished runs could not be pruned"),
            }
        }
    }

    async fn prune_batch(&self) -> Result<bool, StoreError> {
        let now = self.vitals.watch(self.store.now()).await?;
        let request = PruneRequest {
            before: now.minus(self.settings.retain_for),
            keep: self.settings.retain_runs,
            limit: PAGE,
        };
        let pruned = self.vitals.watch(self.store.prune(request)).await?;
        self.remove_folders(pruned.workspaces).await;
        Ok(pruned.more)
    }
}
