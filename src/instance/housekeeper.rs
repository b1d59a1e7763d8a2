//! Looks after runs that nobody brings to their end, and removes what was kept long enough.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_actors::{ProcessContext, ProcessResult};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::Instance;
use super::pause::Pause;
use crate::model::Run;
use crate::rules::{self, Moment, Verdict};
use crate::store::{Decision, Hint, PruneRequest, RenewRequest, StoreError};

/// The most runs that are looked at, or removed, in one call.
const PAGE: usize = 500;

/// The longest pause while the store does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often hints are listened to.
const LISTENS_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    // Side by side: however much is over, nobody whose owner is gone waits until it is removed.
    tokio::join!(instance.look_after(&context), instance.remove_what_is_over(&context));
    Ok(())
}

/// Waits for a hint that something is to be looked at earlier.
async fn moved(hints: &mut broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(hint) if !hint.agenda => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Instance {
    async fn look_after(&self, context: &ProcessContext) {
        let mut hints = self.store.watch();
        let mut pause = Pause::up_to(LONGEST_PAUSE, &self.outage, "lost runs are not looked for");
        loop {
            let wait = self.sweep_and_wait(&mut pause).await;
            tokio::select! {
                () = context.cancelled() => return,
                () = self.until_sweep(wait, &mut hints) => {}
            }
        }
    }

    async fn remove_what_is_over(&self, context: &ProcessContext) {
        loop {
            let every = self.settings().prune_every;
            tokio::select! {
                () = context.cancelled() => return,
                () = sleep_until(Instant::now() + every) => {}
            }
            tokio::select! {
                // Somebody else goes on: nothing is lost by that.
                () = context.cancelled() => return,
                () = self.reap() => {}
            }
            self.prune(context).await;
        }
    }

    /// How long to wait for the next sweep.
    async fn sweep_and_wait(&self, pause: &mut Pause<'_>) -> Duration {
        let asked = Instant::now();
        let swept = match self.sweep().await {
            Ok(()) => self.until_wake().await,
            Err(error) => Err(error),
        };
        match swept {
            Ok(wait) => {
                pause.reset();
                wait
            }
            Err(error) => {
                self.verdicts.failed(asked);
                pause.after_failure(&error)
            }
        }
    }

    /// How long until something has to be looked at, at most the usual time.
    async fn until_wake(&self) -> Result<Duration, StoreError> {
        let usual = self.verdicts.wait().unwrap_or(Duration::MAX).min(self.settings().sweep());
        let agenda = self.vitals.watch(self.store.agenda()).await?;
        let Some(wake) = agenda.wake else { return Ok(usual) };
        // A lease that has expired waits for its grace; what has waited for that was decided just now.
        let next = if wake > agenda.now { wake } else { wake.plus(self.settings().grace()) };
        Ok(if next > agenda.now { next.since(agenda.now).min(usual) } else { usual })
    }

    /// Waits so long, or less when something is to be looked at earlier by then. Hints come with every lease:
    /// the agenda is asked for many of them at once.
    async fn until_sweep(&self, wait: Duration, hints: &mut broadcast::Receiver<Hint>) {
        let mut until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = moved(hints) => {}
            }
            sleep_until(until.min(Instant::now() + LISTENS_EVERY)).await;
            if Instant::now() >= until {
                return;
            }
            // From before the look at the agenda: what changes after it makes a hint.
            *hints = hints.resubscribe();
            if let Ok(wait) = self.until_wake().await {
                until = until.min(Instant::now() + wait);
            }
        }
    }

    /// Decides about every run that somebody has to look at. Who else does so at the same time is refused by
    /// the store, or is first (field L22).
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let runs = self.vitals.watch(self.store.due_runs(after.take(), PAGE)).await?;
            let moment = self.moment().await?;
            self.verdicts.answered(moment.now, self.settings().grace());
            if self.verdicts.takes_nothing() {
                self.try_to_write(&runs, moment).await?;
            }
            let decisions: Vec<Decision> = runs
                .iter()
                .filter_map(|run| {
                    rules::sweep(run, self.grace_of(run), Moment { stamp: self.draw(), ..moment })
                })
                .map(Decision::from)
                .collect();
            if !decisions.is_empty() {
                let answers = self.commit(decisions).await;
                self.verdicts.wrote(&answers, self.settings().grace());
                for refusal in answers?.into_iter().filter_map(Result::err) {
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

    /// Whether the store takes something again, seen by a lease that lapsed: it is renewed for no time, which leaves it
    /// expired, and its owner the grace from now on.
    async fn try_to_write(&self, runs: &[Run], moment: Moment) -> Result<(), StoreError> {
        let settings = self.settings();
        let lapsed = runs.iter().find(|run| {
            let is_lapsed =
                |lease| matches!(rules::verdict(lease, moment.now, settings.grace()), Verdict::Lapsed(_));
            run.lease.as_ref().is_some_and(is_lapsed)
        });
        let Some((run, lease, token)) = lapsed.and_then(|run| Some((run, run.lease?, run.token()?))) else {
            return Ok(());
        };
        let leases = vec![(run.run_id.clone(), token)];
        let request = RenewRequest { instance: lease.owner, leases, lease: Duration::ZERO };
        let answer = self.vitals.watch_write(self.store.renew(request)).await;
        self.verdicts.wrote(&answer, settings.grace());
        answer.map(drop)
    }

    /// How long an expired lease of a run may still be renewed. One that is held here is alive whatever its lease
    /// says: after a pause of this host its heartbeat has its say before anybody here takes the run for lost. And
    /// nobody is taken for gone before all had the time to renew.
    fn grace_of(&self, run: &Run) -> Duration {
        if self.live.holds(run) || self.verdicts.wait().is_some() {
            Duration::MAX
        } else {
            self.settings().grace()
        }
    }

    /// Removes in bounded batches, so that nobody waits long behind one (field G2, G7).
    async fn prune(&self, context: &ProcessContext) {
        while !context.is_cancelled() {
            match self.prune_batch().await {
                Ok(true) => yield_now().await,
                Ok(false) => return,
                Err(error) => return self.outage.seldom("finished runs are kept", &error),
            }
        }
    }

    /// Expires what was owned and kept long enough.
    async fn reap(&self) {
        while self.hosts.load(Ordering::Relaxed) {
            match self.ownership.reap(self.settings().retain_owned).await {
                Ok(reaped) if reaped.more => yield_now().await,
                Ok(_) => return,
                Err(error) => return self.outage.seldom("what was owned is kept", &error),
            }
        }
    }

    async fn prune_batch(&self) -> Result<bool, StoreError> {
        let now = self.vitals.watch(self.store.now()).await?;
        let request = PruneRequest {
            before: now.minus(self.settings().retain_for),
            keep: self.settings().retain_runs,
            limit: PAGE,
        };
        let pruned = self.vitals.watch_write(self.store.prune(request)).await?;
        self.remove_folders(pruned.workspaces).await;
        Ok(pruned.more)
    }
}
