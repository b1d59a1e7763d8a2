//! One attempt: a managed process that runs the agent within its limits, and hands on what it came to.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_actors::rules::Patience;
use tenure_actors::{OperationLease, ProcessContext, ProcessResult, ProcessSpec};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::context::{Held, RunContext};
use super::files::by_reference;
use super::live::{LiveRun, StopCause};
use super::outbox::What;
use super::{Instance, figures, ms};
use crate::agent::{AgentResult, Answer, ErasedAgent, WrittenResult};
use crate::model::{Payload, Run, RunError, RunResult, Timestamp};
use crate::rules::{self, Outcome};

/// A run that is held here, until what became of it is handed on. It may be dropped anywhere on its way, by
/// a service that fails or a registry that refuses: the run is then not left behind.
pub(super) struct Job {
    instance: Arc<Instance>,
    pub(super) live: Arc<LiveRun>,
    stage: Stage,
    /// When it was granted, then when its attempt began.
    since: Instant,
    /// What a host executes itself; else the agent of the run does.
    work: Option<Work>,
}

/// What a host executes itself.
pub(crate) struct Work {
    pub(crate) agent: Arc<dyn ErasedAgent>,
    /// Whether it is told to stop when its lease cannot be relied on any more; else its effects only wait (L12).
    pub(crate) stops_when_cut_off: bool,
    /// The most bytes of a checkpoint that it may leave.
    pub(crate) most_checkpoint: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Claimed: its lease ends, and others take over, if nothing else happens.
    Granted,
    /// Its attempt has begun, and comes to something.
    Begun,
    /// What it came to is on its way to the store.
    HandedOn,
}

impl Job {
    pub(super) fn new(instance: &Arc<Instance>, live: Arc<LiveRun>) -> Self {
        instance.live.insert(Arc::clone(&live));
        Self::of(instance, live)
    }

    fn of(instance: &Arc<Instance>, live: Arc<LiveRun>) -> Self {
        Self {
            instance: Arc::clone(instance),
            live,
            stage: Stage::Granted,
            since: Instant::now(),
            work: None,
        }
    }

    /// Work that a host executes itself; its run began with its grant. What is executed under that grant already is
    /// not executed twice.
    pub(super) fn owned(
        instance: &Arc<Instance>,
        live: Arc<LiveRun>,
        work: Work,
    ) -> Result<Self, Arc<LiveRun>> {
        instance.live.insert_once(&live)?;
        let mut job = Self::of(instance, live);
        (job.stage, job.work) = (Stage::Begun, Some(work));
        Ok(job)
    }

    /// The start of the attempt is stored.
    pub(super) fn begun(&mut self, run: Run) {
        self.live.set_run(run);
        self.stage = Stage::Begun;
        self.since = Instant::now();
    }

    /// The process that executes the attempt.
    pub(super) fn process(self, lease: Option<OperationLease>) -> ProcessSpec {
        // The kernel's patience begins when the process is told to stop, ours a little later: ours decides.
        let patience = Patience::Time(ms(self.instance.settings().patience).saturating_add(250));
        let token = self.live.token;
        let spec = ProcessSpec::function("run", move |context| execute(self, context))
            .patience(patience)
            .fence(token);
        match lease {
            Some(lease) => spec.holding(lease),
            None => spec,
        }
    }

    fn hand_on(&mut self, outcome: Outcome) {
        let stage = std::mem::replace(&mut self.stage, Stage::HandedOn);
        if stage == Stage::Begun && !self.live.fenced.is_cancelled() {
            figures::ended(&outcome, self.since.elapsed());
            // What was told last may not have had its turn: an attempt that said "100 %" is not left at 90.
            if let Some(progress) = self.live.take_progress(self.instance.settings().progress_limit) {
                self.instance.outbox.push(Arc::clone(&self.live), progress);
            }
            self.instance
                .outbox
                .push(Arc::clone(&self.live), What::Ended(outcome, self.instance.draw_delay()));
        } else if stage != Stage::HandedOn {
            self.instance.live.remove(&self.live);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.live.has_begun(false);
        if self.stage != Stage::HandedOn {
            let cause = self.live.cause().unwrap_or(StopCause::Interrupted);
            let outcome = match judge(&self.live, Some(cause), None) {
                Judged::Known(outcome) => outcome,
                // Nothing was answered: there is nothing to keep.
                Judged::Answered(_) | Judged::Cancelled(_) => Outcome::Cancelled(None),
            };
            self.hand_on(outcome);
        }
    }
}

async fn execute(mut job: Job, context: ProcessContext) -> ProcessResult {
    job.live.has_begun(true);
    let ended = run(&job, &context).await;
    let held = Held { live: Arc::clone(&job.live), process: context.clone() };
    let outcome = job.instance.settle_result(held, judge(&job.live, job.live.cause(), ended)).await;
    // The first gate: a generation that was closed changes nothing any more, not even by its successes.
    if context.commit(|| job.hand_on(outcome)).is_err() {
        job.hand_on(interrupted());
    }
    Ok(())
}

/// How the agent's future ended: none when it was cut off.
type Ended = Option<Result<AgentResult, Box<dyn Any + Send>>>;

async fn run(job: &Job, context: &ProcessContext) -> Ended {
    let (instance, live) = (&job.instance, &job.live);
    let own = job.work.as_ref().map(|work| Arc::clone(&work.agent));
    let Some(agent) = own.or_else(|| instance.agent(&live.run().spec.agent_id)) else {
        live.stop(StopCause::Interrupted);
        return None;
    };
    let limits = Limits::of(live, instance);
    let held = Held { live: Arc::clone(live), process: context.clone() };
    let most_checkpoint = job.work.as_ref().map_or(0, |work| work.most_checkpoint);
    let given = RunContext::new(Arc::clone(instance), held, limits.earliest(), most_checkpoint);
    let future = AssertUnwindSafe(async move { agent.run(given).await }).catch_unwind();
    tokio::select! {
        biased;
        () = live.fenced.cancelled() => None,
        ended = future => Some(ended),
        () = limits.enforce(live, context) => None,
        () = store_progress(instance, live) => None,
        () = stop_when_cut_off(job) => None,
    }
}

/// Never ends: who is told to stop is cut off by its limits.
async fn stop_when_cut_off(job: &Job) {
    if job.work.as_ref().is_some_and(|work| work.stops_when_cut_off) {
        job.live.unrelied().await;
        job.live.stop(StopCause::CutOff);
    }
    std::future::pending().await
}

/// When an attempt has to end.
struct Limits {
    timeout: Option<Instant>,
    deadline: Option<Instant>,
    stall: Option<Duration>,
    patience: Duration,
}

impl Limits {
    fn of(live: &LiveRun, instance: &Instance) -> Self {
        let (run, now) = (live.run(), Instant::now());
        let limits = run.spec.limits;
        // The deadline is an instant of the store's clock, and so is the start: only their distance counts.
        let left = |deadline: Timestamp| run.attempt_started_at.map(|start| now + deadline.since(start));
        Self {
            timeout: limits.timeout.map(|timeout| now + timeout.duration()),
            deadline: limits.deadline_at.and_then(left),
            stall: instance.settings().stall,
            patience: instance.settings().patience,
        }
    }

    fn earliest(&self) -> Option<Instant> {
        [self.timeout, self.deadline].into_iter().flatten().min()
    }

    /// Tells the attempt to stop when it has to, and returns when it has to be cut off (T11).
    async fn enforce(&self, live: &LiveRun, context: &ProcessContext) {
        let cause = tokio::select! {
            biased;
            () = live.stop.cancelled() => live.cause().unwrap_or(StopCause::Interrupted),
            cause = self.reached(live, context) => cause,
        };
        live.stop(cause);
        if cause == StopCause::Cancelled {
            // Whose users asked it to stop may end in its own time, within its limits.
            live.stop(self.reached(live, context).await);
        }
        sleep(self.patience).await;
    }

    async fn reached(&self, live: &LiveRun, context: &ProcessContext) -> StopCause {
        tokio::select! {
            biased;
            () = context.cancelled() => StopCause::Interrupted,
            () = at(self.timeout) => StopCause::TimedOut,
            () = at(self.deadline) => StopCause::PastDeadline,
            () = self.stalled(live) => StopCause::Stalled,
        }
    }

    /// Waits until no progress was told for the stall limit.
    async fn stalled(&self, live: &LiveRun) {
        let Some(limit) = self.stall else { return std::future::pending().await };
        while timeout(limit, live.heard_of()).await.is_ok() {}
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Hands on what is told of progress, at most so often and so much. Never ends.
async fn store_progress(instance: &Instance, live: &Arc<LiveRun>) {
    loop {
        live.told.notified().await;
        if let Some(progress) = live.take_progress(instance.settings().progress_limit) {
            instance.outbox.push(Arc::clone(live), progress);
        }
        sleep(instance.settings().progress_every).await;
    }
}

/// What an attempt came to, by the first reason it was told to stop for, if it was.
fn judge(live: &LiveRun, cause: Option<StopCause>, ended: Ended) -> Judged {
    let late = |what: &str| RunError::new("timeout", what);
    match (cause, ended) {
        (Some(StopCause::TimedOut), _) => {
            let limit = live.run().spec.limits.timeout;
            let limit = limit.map_or_else(|| "its timeout".to_owned(), |limit| limit.to_string());
            Outcome::TimedOut(late(&format!("the attempt took longer than {limit}"))).into()
        }
        (Some(StopCause::PastDeadline), _) => {
            Outcome::PastDeadline(late("the deadline of the run has passed")).into()
        }
        (_, Some(Ok(Ok(answer)))) => Judged::Answered(answer),
        (Some(StopCause::Cancelled), Some(Ok(Err(error)))) => Judged::Cancelled(error.partial),
        (Some(StopCause::Cancelled), _) => Judged::Cancelled(None),
        (Some(StopCause::Interrupted), _) => interrupted().into(),
        (Some(StopCause::CutOff), _) => {
            let error = RunError::new("interrupted", "its host was cut off from the store");
            Outcome::Interrupted(error).into()
        }
        (Some(StopCause::Stalled), _) => {
            Outcome::Failed(RunError::new("stalled", "the attempt told no progress for too long")).into()
        }
        (None, Some(Ok(Err(error)))) => Outcome::Failed(error.error).into(),
        (None, Some(Err(panic))) => {
            Outcome::Failed(RunError::new("exception", first_line(panic.as_ref()))).into()
        }
        (None, None) => interrupted().into(),
    }
}

/// What an attempt came to, its result not yet kept anywhere.
enum Judged {
    Answered(Answer),
    Cancelled(Option<Payload>),
    Known(Outcome),
}

impl From<Outcome> for Judged {
    fn from(outcome: Outcome) -> Self {
        Self::Known(outcome)
    }
}

fn interrupted() -> Outcome {
    Outcome::Interrupted(RunError::new("interrupted", "its host was shut down or replaced"))
}

fn first_line(panic: &(dyn Any + Send)) -> String {
    let text = match panic.downcast_ref::<&str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("without a text", String::as_str),
    };
    format!("panicked: {}", text.lines().next().unwrap_or_default())
}

impl Instance {
    /// Finds a place for the result: with the run, or, past the limit, in its workspace.
    async fn settle_result(&self, held: Held, judged: Judged) -> Outcome {
        match judged {
            Judged::Known(outcome) => outcome,
            Judged::Answered(Answer::AwaitingApproval { question, data }) => rules::ask(question, data),
            Judged::Answered(Answer::Written(WrittenResult { media_type, size, path, preview })) => {
                Outcome::Completed(RunResult::File { media_type, size, path, preview })
            }
            Judged::Answered(Answer::Done(payload)) => match self.keep(held, payload).await {
                Ok(result) => Outcome::Completed(result),
                Err(error) => Outcome::Failed(error),
            },
            Judged::Cancelled(None) => Outcome::Cancelled(None),
            Judged::Cancelled(Some(partial)) => Outcome::Cancelled(self.keep(held, partial).await.ok()),
        }
    }

    async fn keep(&self, held: Held, payload: Payload) -> Result<RunResult, RunError> {
        let (size, limit) = (payload.bytes.len(), self.settings().result_limit);
        if size > limit {
            return Err(RunError::new(
                "result_too_large",
                format!("the result has {size} bytes, expected at most {limit}; write it to the workspace"),
            ));
        }
        // What others have to be able to read is never only in a folder of this machine.
        if held.live.owned {
            return Ok(RunResult::Inline(payload));
        }
        let written = self.write_output(held, &payload).await;
        if written && size > self.settings().result_inline {
            return Ok(by_reference(&payload));
        }
        Ok(RunResult::Inline(payload))
    }
}
