//! Claims runs and begins their attempts, as many at once as there is room for.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{
    Generation, OperationLease, OperationRequest, ProcessContext, ProcessResult, ReserveError,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, sleep_until};

use super::attempt::Job;
use super::live::LiveRun;
use super::pause::Pause;
use super::{Instance, figures};
use crate::model::{OverlapPolicy, Run, RunStatus};
use crate::rules::{self, Moment};
use crate::settings::Duty;
use crate::store::{ClaimRequest, Decision, Hint, Refusal, RunWrite, StoreError};

/// The most runs in one claim.
const BATCH: usize = 512;

/// The longest pause while the store does not answer (field G9).
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often it is asked whether something is due earlier.
const LISTENS_EVERY: Duration = Duration::from_millis(100);

/// How long a run waits whose operation was not to be had.
const BUSY: Duration = Duration::from_secs(1);

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    let mut claimer = Claimer::new(&instance, &context);
    let mut pause = Pause::up_to(LONGEST_PAUSE, &instance.outage, "nothing is claimed");
    loop {
        let wait = match claimer.claim_all(&context).await {
            Ok(wait) => {
                pause.reset();
                wait
            }
            Err(error) => pause.after_failure(&error),
        };
        tokio::select! {
            () = context.cancelled() => return Ok(()),
            () = instance.drained() => break,
            () = claimer.something_to_claim(wait) => {}
        }
    }
    pause.give_up();
    context.cancelled().await;
    Ok(())
}

/// The next hint; none when some were missed.
async fn heard(hints: &mut Option<broadcast::Receiver<Hint>>) -> Option<Hint> {
    let Some(hints) = hints else { return std::future::pending().await };
    match hints.recv().await {
        Ok(hint) => Some(hint),
        Err(RecvError::Lagged(_)) => None,
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

struct Claimer {
    instance: Arc<Instance>,
    generation: Generation,
    hints: Option<broadcast::Receiver<Hint>>,
    /// The nonce of a claim whose answer was lost, and when it was asked for first: it is asked for again (L17).
    again: Option<(u64, Instant)>,
    /// Whether the last claim ended for want of room: then more may be ready.
    cramped: bool,
}

impl Claimer {
    fn new(instance: &Arc<Instance>, context: &ProcessContext) -> Self {
        Self {
            instance: Arc::clone(instance),
            generation: context.generation(),
            hints: None,
            again: None,
            cramped: false,
        }
    }

    /// Claims until nothing is ready, or there is no room. Answers how long nothing becomes due.
    ///
    /// While the processes of one claim are started the store works on the next one.
    async fn claim_all(&mut self, context: &ProcessContext) -> Result<Duration, StoreError> {
        // From before the look at the store: what changes after it makes a hint.
        self.hints.get_or_insert_with(|| self.instance.store.watch());
        let mut begun = Vec::new();
        while let Some((request, asked)) = self.next_request(context) {
            let limit = request.limit;
            let claim = self.instance.grant(request);
            let (granted, ()) = tokio::join!(claim, self.start_all(std::mem::take(&mut begun)));
            let granted = granted?;
            figures::claimed(granted.len());
            self.again = None;
            let all = granted.len() < limit;
            begun = self.begin(granted, asked).await;
            if all {
                self.start_all(begun).await;
                return self.until_due().await;
            }
        }
        self.start_all(begun).await;
        Ok(self.instance.settings().poll)
    }

    /// The next claim, and when what it is granted may have been granted; none while there is no room, no agent, or
    /// nothing new is to begin.
    fn next_request(&mut self, context: &ProcessContext) -> Option<(ClaimRequest, Instant)> {
        let (instance, agents) = (&self.instance, self.instance.agents());
        let limit = instance.live.free().min(BATCH);
        // A generation that was sealed starts nothing: its successor claims.
        let ends = instance.is_draining() || context.is_cancelled() || !self.generation.is_open();
        self.cramped = limit == 0;
        if self.cramped || agents.is_empty() || ends {
            return None;
        }
        let repeat = self.again.is_some();
        let (nonce, asked) = *self.again.get_or_insert_with(|| (instance.draw(), Instant::now()));
        let lease = instance.settings().lease;
        let request = ClaimRequest { instance: instance.id, nonce, agents, limit, lease, repeat };
        Some((request, asked))
    }

    async fn until_due(&self) -> Result<Duration, StoreError> {
        let settings = self.instance.settings();
        let poll = settings.poll;
        if let Duty::OneRun(run_id) = &settings.duty {
            return Ok(self.instance.due_in(run_id).await?.map_or(poll, |next| next.min(poll)));
        }
        let agenda = self.instance.vitals.watch(self.instance.store.agenda()).await?;
        Ok(agenda.run.map_or(poll, |due| due.since(agenda.now).min(poll)))
    }

    /// Waits so long, or until there is an agent, room where there was none, or a hint that something is ready
    /// or due earlier. What is missed is found at the next poll.
    async fn something_to_claim(&mut self, wait: Duration) {
        let mut until = Instant::now() + wait;
        let mut look_at = None;
        loop {
            let live = &self.instance.live;
            tokio::select! {
                () = live.room.notified(), if self.cramped => return,
                () = self.instance.new_agent.notified() => return,
                () = sleep_until(until) => return,
                () = sleep_until(look_at.unwrap_or(until)) => {
                    look_at = None;
                    if let Ok(wait) = self.until_due().await {
                        until = until.min(Instant::now() + wait);
                    }
                }
                hint = heard(&mut self.hints) => match hint {
                    Some(hint) if !hint.ready => {
                        // Hints come with every lease: the agenda is asked for many of them at once.
                        if hint.agenda {
                            look_at.get_or_insert_with(|| Instant::now() + LISTENS_EVERY);
                        }
                    }
                    _ => return,
                }
            }
        }
    }

    // --- beginning --------------------------------------------------------------------------------------

    /// Reserves the operations of runs that were granted, at `asked` at the earliest, and stores that their attempts
    /// begin.
    async fn begin(&self, granted: Vec<Run>, asked: Instant) -> Vec<Begun> {
        let reliance = self.instance.reliance();
        let mut ready = Vec::with_capacity(granted.len());
        for run in granted {
            let Some(token) = run.token() else { continue };
            let reserved = self.reserve(&run).await;
            let job = Job::new(&self.instance, LiveRun::new(run, token, asked, reliance));
            ready.push(Granted { job, reserved });
        }
        if ready.is_empty() {
            return Vec::new();
        }
        let deadline = Instant::now() + self.instance.settings().lease;
        // If the store does not answer for as long as the leases last, others take over (L19).
        let stored = self.store_starts(&ready, deadline).await.unwrap_or_default();
        ready.into_iter().zip(stored).filter_map(|(granted, run)| granted.begun(run?)).collect()
    }

    async fn reserve(&self, run: &Run) -> Result<OperationLease, ReserveError> {
        self.generation.operations().reserve(request(run)?).await
    }

    /// Stores that attempts begin, or that runs are given back whose operation is not to be had. Answers the
    /// run of each that was stored; nothing if the store did not answer until the deadline.
    async fn store_starts(&self, granted: &[Granted], deadline: Instant) -> Option<Vec<Option<Run>>> {
        let look = || async { Ok((Instant::now(), self.instance.moment().await?)) };
        let (looked, moment) = self.until(deadline, look).await?;
        self.rely(granted, looked, moment);
        let writes = self.writes(granted, moment);
        let commit = || {
            let decisions = writes.iter().cloned().map(Decision::from).collect();
            self.instance.commit(decisions)
        };
        let answers = self.until(deadline, commit).await?;
        let mut stored = Vec::with_capacity(writes.len());
        for ((write, granted), answer) in writes.into_iter().zip(granted).zip(answers) {
            stored.push(match answer {
                Ok(()) => Some(write.run),
                Err(refusal) => self.begin_again(granted, refusal, deadline).await,
            });
        }
        Some(stored)
    }

    /// What is left of each lease by the store's clock, which was asked then: a grant that is heard of late may be
    /// younger than the first request for it.
    fn rely(&self, granted: &[Granted], looked: Instant, moment: Moment) {
        let settings = self.instance.settings();
        for live in granted.iter().map(|granted| &granted.job.live) {
            if let Some(lease) = live.run().lease {
                let left = lease.expires_at.since(moment.now).min(settings.lease);
                live.renewed(looked, left.saturating_sub(settings.margin()));
            }
        }
    }

    /// Decides again about a grant that others wrote to before its attempt began: somebody wants the run
    /// cancelled, and it is given back for that at once.
    async fn begin_again(&self, granted: &Granted, refusal: Refusal, deadline: Instant) -> Option<Run> {
        let live = &granted.job.live;
        tracing::debug!(run = %live.run_id, %refusal, "decided again");
        let vitals = &self.instance.vitals;
        let run = self.until(deadline, || vitals.watch(self.instance.store.run(&live.run_id))).await??;
        if run.token() != Some(live.token) {
            return None;
        }
        let moment = self.until(deadline, || self.instance.moment()).await?;
        let write = match (&granted.reserved, &run.cancel) {
            (Ok(_), None) => rules::start(&run, live.token, moment),
            _ => rules::release(&run, live.token, &refusal.to_string(), Duration::ZERO, moment),
        };
        let write = write.ok()?;
        let decision = || self.instance.commit_one(write.clone().into());
        self.until(deadline, decision).await?.is_ok().then_some(write.run)
    }

    /// Asks the store again and again, with the same words, until it answers or the deadline has passed.
    async fn until<T, F>(&self, deadline: Instant, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = Pause::up_to(LONGEST_PAUSE, &self.instance.outage, "attempts wait to begin");
        loop {
            match ask().await {
                Ok(answer) => {
                    pause.reset();
                    return Some(answer);
                }
                Err(error) if Instant::now() < deadline => sleep(pause.after_failure(&error)).await,
                Err(_) => return None,
            }
        }
    }

    fn writes(&self, granted: &[Granted], moment: Moment) -> Vec<RunWrite> {
        let write = |granted: &Granted| {
            let (run, token) = (granted.job.live.run(), granted.job.live.token);
            let moment = Moment { stamp: self.instance.draw(), ..moment };
            match &granted.reserved {
                Ok(_) => rules::start(&run, token, moment),
                Err(busy) => {
                    let wait = self.instance.settings().poll.min(BUSY);
                    rules::release(&run, token, &busy.to_string(), wait, moment)
                }
            }
        };
        // Granted just now, so that none of them can have moved by what is known here.
        granted.iter().filter_map(|granted| write(granted).ok()).collect()
    }

    async fn start_all(&self, begun: Vec<Begun>) {
        for Begun { job, lease } in begun {
            let live = Arc::clone(&job.live);
            let id = format!("run:{}:{}", live.run_id, live.run().attempt);
            match self.generation.registry().start(id, job.process(Some(lease))).await {
                Ok(process) => live.executes_in(process),
                // Its job was dropped on the way, and has handed on that it was interrupted.
                Err(error) => tracing::debug!(run = %live.run_id, %error, "an attempt was not started"),
            }
        }
    }
}

/// A run that was granted, and what became of its operation.
struct Granted {
    job: Job,
    reserved: Result<OperationLease, ReserveError>,
}

impl Granted {
    /// None if the run was given back.
    fn begun(mut self, run: Run) -> Option<Begun> {
        let lease = self.reserved.ok()?;
        if run.status != RunStatus::Running {
            return None;
        }
        self.job.begun(run);
        Some(Begun { job: self.job, lease })
    }
}

/// An attempt whose start is stored.
struct Begun {
    job: Job,
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
