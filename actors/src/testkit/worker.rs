//! Workers that act at given instants: processes, objects and services of a few words each.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::exit::ProcessResult;
use crate::id::RoleText;
use crate::process::{ManagedProcess, ProcessContext, ProcessSpec};
use crate::tasks;
use crate::testkit::{Door, Guards};

/// What a worker does, step by step. Instants are milliseconds on the clock of the scenario.
///
/// A script that is at its end answers ok. A refused commit ends no script: it is an event of its own.
///
/// ```
/// # use tenure_actors::testkit::Script;
/// // Commits at 60 ms, whatever happens, and ends 21 ms after it was told to stop.
/// let stubborn = Script::new().at(60).commit("3 rows").after_stop(21);
/// // Never ends by itself, and hears nothing.
/// let deaf = Script::new().hang();
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a script does nothing until a process runs it"]
pub struct Script {
    steps: Arc<Vec<Step>>,
}

#[derive(Debug, Clone)]
enum Step {
    At(u64),
    After(u64),
    AfterStop(u64),
    Wait(Door),
    Guard(Guards),
    Commit(Arc<str>),
    CommitOver(u64),
    CommitAfterwards(u64, Arc<str>),
    Progress(Option<u8>, Arc<str>),
    RemoveSelf,
    Fail(Arc<str>),
    Panic(Arc<str>),
    Hang,
}

impl Script {
    /// Ends at once.
    pub fn new() -> Self {
        Self::default()
    }

    fn then(mut self, step: Step) -> Self {
        Arc::make_mut(&mut self.steps).push(step);
        self
    }

    /// Waits for this instant; goes on at once if it has passed.
    pub fn at(self, ms: u64) -> Self {
        self.then(Step::At(ms))
    }

    /// Waits this long.
    pub fn after(self, ms: u64) -> Self {
        self.then(Step::After(ms))
    }

    /// Waits until it is told to stop.
    pub fn on_stop(self) -> Self {
        self.after_stop(0)
    }

    /// Waits until this long after it was told to stop, also if that was while it did something else.
    pub fn after_stop(self, ms: u64) -> Self {
        self.then(Step::AfterStop(ms))
    }

    /// Waits at a door.
    pub fn wait(self, door: &Door) -> Self {
        self.then(Step::Wait(door.clone()))
    }

    /// Holds a guard from here on, as long as the script is alive.
    pub fn guarded_by(self, guards: &Guards) -> Self {
        self.then(Step::Guard(guards.clone()))
    }

    /// Commits, with these words.
    pub fn commit(self, what: &str) -> Self {
        self.then(Step::Commit(what.into()))
    }

    /// Commits by an asynchronous effect that takes this long.
    pub fn commit_over(self, ms: u64) -> Self {
        self.then(Step::CommitOver(ms))
    }

    /// Leaves a result behind: at this instant it is committed by a task that outlives the process, as the
    /// answer of a provider might be. The script goes on at once.
    pub fn commit_afterwards(self, at_ms: u64, what: &str) -> Self {
        self.then(Step::CommitAfterwards(at_ms, what.into()))
    }

    /// Reports progress.
    pub fn progress(self, percent: impl Into<Option<u8>>, text: &str) -> Self {
        self.then(Step::Progress(percent.into(), text.into()))
    }

    /// Gives up its own id.
    pub fn remove_self(self) -> Self {
        self.then(Step::RemoveSelf)
    }

    /// Ends with this error.
    pub fn fail(self, error: &str) -> Self {
        self.then(Step::Fail(error.into()))
    }

    /// Panics with this text.
    pub fn panic(self, text: &str) -> Self {
        self.then(Step::Panic(text.into()))
    }

    /// Never goes on, told to stop or not.
    pub fn hang(self) -> Self {
        self.then(Step::Hang)
    }

    /// A process that is a function and does this.
    pub fn function(&self, role: impl Into<RoleText>) -> ProcessSpec {
        let script = self.clone();
        ProcessSpec::function(role, move |context| async move { script.play(&context).await })
    }

    async fn play(&self, context: &ProcessContext) -> ProcessResult {
        let stopped_ms = OnceLock::new();
        let watch = async {
            context.cancelled().await;
            let _ = stopped_ms.set(now_ms(context));
            pending::<Infallible>().await
        };
        tokio::select! {
            // The stop is seen first, so that the steps know when it was.
            biased;
            never = watch => match never {},
            result = self.perform(context, &stopped_ms) => result,
        }
    }

    async fn perform(&self, context: &ProcessContext, stopped_ms: &OnceLock<u64>) -> ProcessResult {
        let mut guards = Vec::new();
        for step in self.steps.iter() {
            match step {
                Step::At(ms) => until(context, *ms).await,
                Step::After(ms) => until(context, now_ms(context) + ms).await,
                Step::AfterStop(ms) => {
                    context.cancelled().await;
                    let stopped = stopped_ms.get().copied().unwrap_or_else(|| now_ms(context));
                    until(context, stopped + ms).await;
                }
                Step::Wait(door) => door.wait().await,
                Step::Guard(of) => guards.push(of.guard()),
                Step::Fail(error) => return Err(error.to_string().into()),
                Step::Hang => pending().await,
                act => act.perform(context).await,
            }
        }
        Ok(())
    }
}

impl Step {
    /// What takes no part in the flow of the script. A refusal is an event, and nothing to a script.
    #[allow(clippy::panic, reason = "what a test asked for")]
    async fn perform(&self, context: &ProcessContext) {
        match self {
            Self::Commit(what) => drop(context.commit_named(what, || ())),
            Self::CommitOver(ms) => {
                let effect = |_| tokio::time::sleep(Duration::from_millis(*ms));
                drop(context.commit_async(effect).await);
            }
            Self::CommitAfterwards(at_ms, what) => {
                let (context, at_ms, what) = (context.clone(), *at_ms, Arc::clone(what));
                tasks::spawn(async move {
                    until(&context, at_ms).await;
                    drop(context.commit_named(&what, || ()));
                });
            }
            Self::Progress(percent, text) => context.progress(*percent, Arc::clone(text)),
            Self::RemoveSelf => drop(context.remove_self()),
            Self::Panic(text) => panic!("{text}"),
            _ => {}
        }
    }
}

fn now_ms(context: &ProcessContext) -> u64 {
    context.generation().core().journal.now_ms()
}

async fn until(context: &ProcessContext, ms: u64) {
    let left = ms.saturating_sub(now_ms(context));
    tokio::time::sleep(Duration::from_millis(left)).await;
    // What happens at one instant may happen in any order: that is what a shuffled run tries.
    context.generation().core().chaos.pause().await;
}

/// An object whose start, work and close are scripts, and which counts their calls.
///
/// ```
/// # use tenure_actors::testkit::{Script, Worker};
/// let worker = Worker::new().on_start(Script::new().fail("no route")).on_close(Script::new().hang());
/// let worker = std::sync::Arc::new(worker);
/// let spec = worker.process("fetch");
/// assert_eq!((worker.starts(), worker.closes()), (0, 0));
/// ```
#[derive(Debug, Default)]
pub struct Worker {
    start: Script,
    work: Option<Script>,
    close: Script,
    starts: AtomicUsize,
    closes: AtomicUsize,
    context: OnceLock<ProcessContext>,
}

impl Worker {
    /// Starts at once, does nothing, closes at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Does this in its `start`.
    #[must_use]
    pub fn on_start(mut self, script: Script) -> Self {
        self.start = script;
        self
    }

    /// Does this beside, from the end of its `start` on.
    #[must_use]
    pub fn works(mut self, script: Script) -> Self {
        self.work = Some(script);
        self
    }

    /// Does this in its `close`.
    #[must_use]
    pub fn on_close(mut self, script: Script) -> Self {
        self.close = script;
        self
    }

    /// A process that is this object.
    #[must_use]
    pub fn process(self: &Arc<Self>, role: impl Into<RoleText>) -> ProcessSpec {
        ProcessSpec::object(role, Arc::clone(self))
    }

    /// How often `start` was called.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.starts.load(Ordering::Acquire)
    }

    /// How often `close` was called.
    #[must_use]
    pub fn closes(&self) -> usize {
        self.closes.load(Ordering::Acquire)
    }

    /// What it was given at its first start.
    #[must_use]
    pub fn context(&self) -> Option<&ProcessContext> {
        self.context.get()
    }
}

impl ManagedProcess for Worker {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        self.starts.fetch_add(1, Ordering::AcqRel);
        let _ = self.context.set(context.clone());
        self.start.play(&context).await?;
        if let Some(work) = self.work.clone() {
            // Nobody waits for it; what it does shows in its commits and its progress.
            tasks::spawn(async move { drop(work.play(&context).await) });
        }
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.closes.fetch_add(1, Ordering::AcqRel);
        match self.context.get() {
            Some(context) => self.close.play(context).await,
            None => Ok(()),
        }
    }
}

/// What a service is made of: its first incarnation does the first of these, and so on; the last one is
/// repeated. For `ServiceSpec::new`.
///
/// ```
/// # use tenure_actors::{ServiceSpec, testkit::{Script, incarnations}};
/// let poll = incarnations("poll", [Script::new().at(10).panic("no route"), Script::new().on_stop()]);
/// let service = ServiceSpec::new("poll", poll);
/// ```
pub fn incarnations(
    role: &str,
    scripts: impl IntoIterator<Item = Script>,
) -> impl Fn() -> ProcessSpec + Send + Sync + 'static {
    let (role, scripts): (Arc<str>, Vec<_>) = (role.into(), scripts.into_iter().collect());
    let made = AtomicUsize::new(0);
    move || {
        let which = made.fetch_add(1, Ordering::AcqRel).min(scripts.len().saturating_sub(1));
        scripts.get(which).cloned().unwrap_or_default().function(Arc::clone(&role))
    }
}
