//! Claims runs and begins their attempts, as many at once as there is room for.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{
    Generation, OperationLease, OperationRequest, ProcessContext, ProcessResult, ReserveError,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep};

use super::Instance;
use super::attempt;
use super::live::LiveRun;
use crate::model::{OverlapPolicy, Run};
use crate::rules::{self, Moment};
use crate::store::{ClaimRequest, Decision, Hint, RunWrite, StoreError};

/// The most runs in one claim.
const BATCH: usize = 512;

/// The pauses while the store does not answer.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    let mut claimer = Claimer {
        instance: Arc::clone(&instance),
        generation: context.generation(),
        hints: None,
        again: None,
    };
    let mut pause = PAUSE;
    loop {
        let wait = match claimer.claim_all(&context).await {
            Ok(wait) => {
                pause = PAUSE;
                wait
            }
            Err(error) => {
                tracing::warn!(%error, "nothing can be claimed until the store answers");
                pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
        };
        tokio::select! {
            () = context.cancelled() => return Ok(()),
            () = instance.drained() => break,
            () = claimer.something_to_claim() => {}
            () = sleep(wait) => {}
        }
    }
    context.cancelled().await;
    Ok(())
}

struct Claimer {
    instance: Arc<Instance>,
    generation: Generation,
    hints: Option<tokio::sync::broadcast::Receiver<Hint>>,
    /// The nonce of a claim whose answer was lost: it is asked for again (L17).
    again: Option<u64>,
}

impl Claimer {
    /// Claims until nothing is ready, or there is no room. Answers how long nothing becomes due.
    async fn claim_all(&mut self, context: &ProcessContext) -> Result<Duration, StoreError> {
        // From before the look at the store: what changes after it makes a hint.
        self.hints.get_or_insert_with(|| self.instance.store.watch());
        loop {
            let poll = self.instance.settings.poll;
            let limit = self.instance.live.free().min(BATCH);
            let agents = self.instance.agents();
            let idle = limit == 0 || agents.is_empty();
            if idle || self.instance.is_draining() || context.is_cancelled() {
                return Ok(poll);
            }
            let asked = Instant::now();
            let nonce = self.again.unwrap_or_else(|| self.instance.draw());
            let request = ClaimRequest {
                instance: self.instance.id,
                nonce,
                agents,
                limit,
                lease: self.instance.settings.lease,
                repeat: self.again.is_some(),
            };
            self.again = Some(nonce);
            let granted = self.instance.vitals.watch(self.instance.store.claim(request)).await?;
            self.again = None;
            let all = granted.len() < limit;
            self.begin(granted, asked).await;
            if all {
                return self.until_due(poll).await;
            }
        }
    }

    async fn until_due(&self, poll: Duration) -> Result<Duration, StoreError> {
        let agenda = self.instance.vitals.watch(self.instance.store.agenda()).await?;
        Ok(agenda.run.map_or(poll, |due| due.since(agenda.now).min(poll)))
    }

    /// Waits for room or for a hint. What is missed is found at the next poll.
    async fn something_to_claim(&mut self) {
        let Some(hints) = &mut self.hints else { return self.instance.live.room.notified().await };
        loop {
            tokio::select! {
                () = self.instance.live.room.notified() => return,
                hint = hints.recv() => match hint {
                    Ok(hint) if !hint.ready => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        }
    }

    // --- beginning --------------------------------------------------------------------------------------

    /// Begins the attempts of runs that were granted: their operations are reserved, their starts stored,
    /// their processes started, in this order.
    async fn begin(&self, granted: Vec<Run>, asked: Instant) {
        if granted.is_empty() {
            return;
        }
        let reliance = self.instance.reliance();
        let mut ready = Vec::with_capacity(granted.len());
        for run in granted {
            let Some(token) = run.token() else { continue };
            let reserved = self.reserve(&run).await;
            let live = LiveRun::new(run, token, asked, reliance);
            self.instance.live.insert(Arc::clone(&live));
            ready.push(Granted { live, reserved });
        }
        for begun in self.store_starts(ready, asked).await {
            self.start(begun).await;
        }
    }

    async fn reserve(&self, run: &Run) -> Result<OperationLease, ReserveError> {
        self.generation.operations().reserve(request(run)?).await
    }

    /// Stores that attempts begin, or that runs are given back whose operation is not to be had. Tried again
    /// while the store does not answer, for as long as the leases may last.
    async fn store_starts(&self, mut granted: Vec<Granted>, asked: Instant) -> Vec<Begun> {
        let mut pause = PAUSE;
        let writes = loop {
            match self.instance.moment().await {
                Ok(moment) => break self.writes(&granted, moment),
                Err(error) if asked.elapsed() < self.instance.settings.lease => {
                    tracing::warn!(%error, "attempts wait to begin until the store answers");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(_) => return self.give_up(granted),
            }
        };
        let answers = loop {
            let decisions = writes.iter().cloned().map(Decision::from).collect();
            match self.instance.vitals.watch(self.instance.store.commit(decisions)).await {
                Ok(answers) => break answers,
                Err(error) if asked.elapsed() < self.instance.settings.lease => {
                    tracing::warn!(%error, "attempts wait to begin until the store answers");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(_) => return self.give_up(granted),
            }
        };
        let stored = writes.into_iter().zip(answers);
        granted
            .drain(..)
            .zip(stored)
            .filter_map(|(granted, (write, answer))| self.begun(granted, write, answer.is_ok()))
            .collect()
    }

    fn writes(&self, granted: &[Granted], moment: Moment) -> Vec<RunWrite> {
        let write = |granted: &Granted| {
            let (run, token) = (granted.live.run(), granted.live.token);
            let moment = Moment { stamp: self.instance.draw(), ..moment };
            match &granted.reserved {
                Ok(_) => rules::start(&run, token, moment),
                Err(busy) => {
                    rules::release(&run, token, &busy.to_string(), self.instance.settings.poll, moment)
                }
            }
        };
        // Granted just now, so that none of them can have moved by what is known here.
        granted.iter().filter_map(|granted| write(granted).ok()).collect()
    }

    fn begun(&self, granted: Granted, write: RunWrite, stored: bool) -> Option<Begun> {
        match granted.reserved {
            Ok(lease) if stored => {
                granted.live.set_run(write.run);
                Some(Begun { live: granted.live, lease })
            }
            // Given back; or cancelled or taken over before it began, so that it is never polled (X10).
            _ => {
                self.instance.live.remove(&granted.live);
                None
            }
        }
    }

    /// The store has not answered for as long as the leases last: they end, and others take over (L19).
    fn give_up(&self, granted: Vec<Granted>) -> Vec<Begun> {
        for granted in granted {
            self.instance.live.remove(&granted.live);
        }
        Vec::new()
    }

    async fn start(&self, begun: Begun) {
        let Begun { live, lease } = begun;
        let id = format!("run:{}:{}", live.run_id, live.run().attempt);
        let spec = attempt::process(&self.instance, &live, lease);
        match self.generation.registry().start(id, spec).await {
            Ok(process) => live.executes_in(process),
            // The job was dropped on its way and has said so already; this is said once only.
            Err(error) => tracing::debug!(run = %live.run_id, %error, "an attempt was not started"),
        }
    }
}

/// A run that was granted, and what became of its operation.
struct Granted {
    live: Arc<LiveRun>,
    reserved: Result<OperationLease, ReserveError>,
}

/// An attempt whose start is stored.
struct Begun {
    live: Arc<LiveRun>,
    lease: OperationLease,
}

/// The operation of an attempt: it holds the keys of its task and its session, unless its runs may be
/// parallel (rulings, durable plane).
fn request(run: &Run) -> Result<OperationRequest, ReserveError> {
    let spec = &run.spec;
    let operation = format!("run:{}:{}", run.run_id, run.attempt + 1);
    let request = OperationRequest::new(operation, format!("task:{}", spec.task_id))?;
    let session = spec.session_id.as_ref();
    if spec.overlap_policy == OverlapPolicy::AllowParallel {
        return Ok(request.session(session)?.without_exclusivity());
    }
    request.on_session(session)?.key(format!("task:{}", spec.task_id))
}
