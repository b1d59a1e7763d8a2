//! Renews the leases of the runs that this instance holds, all in one call, and passes on what the store
//! commands: go on, cancel, stop.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure_actors::{ProcessContext, ProcessResult};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Instance;
use super::live::{LiveRun, StopCause};
use crate::store::{Hint, RenewRequest, Renewal, StoreError, apart};

/// Watches over the loop, which runs on a thread of its own: agents that block every thread of the runtime
/// keep their leases (contract ownership.md, L14).
pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    if !instance.settings().heartbeat_thread {
        tokio::select! {
            () = beat(&instance) => {}
            () = context.cancelled() => {}
        }
        return Ok(());
    }
    let stop = CancellationToken::new();
    let _stops_with_this_process = stop.clone().drop_guard();
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name("tenure-heartbeat".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = beat(&instance) => {}
                () = stop.cancelled() => {}
            }
        });
        let _listened_to = ended.send(());
    })?;
    tokio::select! {
        () = context.cancelled() => Ok(()),
        // It ends only when it is told to: the thread has panicked, and this service starts another.
        _ = end => Err("the heartbeat thread has ended".into()),
    }
}

async fn beat(instance: &Instance) {
    let mut hints = instance.store.watch();
    // What was begun before this listened may have been cancelled before: it is asked for at once.
    let mut next = (instance.live.len() > 0).then(Instant::now);
    loop {
        // Who holds nothing has nothing to renew, and sleeps. What is wanted in between delays no heartbeat.
        let tick = async {
            instance.live.some().await;
            sleep_until(*next.get_or_insert_with(|| Instant::now() + pause(instance))).await;
        };
        let hurry = tokio::select! {
            () = tick => {
                next = None;
                None
            }
            live = wanted(instance, &mut hints) => Some(live),
        };
        let live = hurry.unwrap_or_else(|| instance.live.all());
        if !live.is_empty()
            && let Err(error) = instance.renew(live).await
        {
            // One failed renewal ends nothing: leases last for three (contract, section 12, 7).
            instance.outage.seldom("leases are not renewed", &error);
        }
    }
}

/// From one renewal to the next. A twentieth of the heartbeat is for the answer: what the store commands is heard
/// within a heartbeat, hint or not (contract durable-tasks.md, T40).
fn pause(instance: &Instance) -> Duration {
    let heartbeat = instance.settings().heartbeat();
    heartbeat - heartbeat / 20
}

/// Waits for a hint that something is wanted of runs that are held here.
async fn wanted(instance: &Instance, hints: &mut broadcast::Receiver<Hint>) -> Vec<Arc<LiveRun>> {
    loop {
        let live: Vec<_> = match hints.recv().await {
            Ok(hint) => hint.cancels.iter().filter_map(|run_id| instance.live.get(run_id)).collect(),
            Err(RecvError::Lagged(_)) => instance.live.all(),
            Err(RecvError::Closed) => std::future::pending().await,
        };
        if !live.is_empty() {
            return live;
        }
    }
}

impl Instance {
    /// How long a lease is relied on after it was asked for.
    pub(crate) fn reliance(&self) -> Duration {
        self.settings().lease.saturating_sub(self.settings().margin())
    }

    async fn renew(&self, live: Vec<Arc<LiveRun>>) -> Result<(), StoreError> {
        let ask = |part: Vec<Arc<LiveRun>>| async move {
            let asked = Instant::now();
            let request = RenewRequest {
                instance: self.id,
                leases: part.iter().map(|live| (live.run_id.clone(), live.token)).collect(),
                lease: self.settings().lease,
            };
            let answers = self.vitals.watch(self.store.renew(request)).await;
            self.verdicts.wrote(&answers, self.settings().grace());
            let answers = answers?;
            Ok(answers.into_iter().map(|answer| (answer, asked)).collect())
        };
        let mut failed = Ok(());
        for (live, answer) in live.iter().zip(apart::each(live.clone(), ask).await) {
            match answer {
                Ok((answer, asked)) => self.obey(live, answer, asked),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    fn obey(&self, live: &Arc<LiveRun>, command: Renewal, asked: Instant) {
        match command {
            Renewal::Renewed { cancel, .. } => {
                live.renewed(asked, self.reliance());
                if cancel.is_some() {
                    live.stop(StopCause::Cancelled);
                }
            }
            Renewal::Fenced { fence, status } => {
                // Its outcome may just have been stored, and the end of it be on its way here.
                tracing::debug!(run = %live.run_id, held = live.token.fence, fence, %status, "no longer held");
                live.fence();
            }
            Renewal::Gone => live.fence(),
        }
    }
}
