//! What the probes share: an actor that does what its test says, and ways to hold and watch it.
#![allow(clippy::expect_used, reason = "helpers of tests, outside the test functions")]

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// What a hook or handler answers.
pub(crate) type Outcome = Result<(), ActorProcessingErr>;

/// A message or hook of a [`Probe`]: the future that it runs, dropped unpolled if it never gets its turn.
pub(crate) struct Work(BoxFuture<'static, Outcome>);

pub(crate) fn work(future: impl Future<Output = ()> + Send + 'static) -> Work {
    Work(future.map(Ok).boxed())
}

pub(crate) fn fallible(future: impl Future<Output = Outcome> + Send + 'static) -> Work {
    Work(future.boxed())
}

/// The two ways for a hook to go wrong: an error and a panic, with the same text.
pub(crate) fn failures() -> [Work; 2] {
    #![allow(clippy::panic, reason = "the panic is what the probe is about")]
    [fallible(async { Err("no".into()) }), work(async { panic!("no") })]
}

/// How a [`Probe`] is to behave: what its hooks run and what its state keeps alive.
#[derive(Default)]
pub(crate) struct Plan {
    name: Option<String>,
    announce: Option<oneshot::Sender<ActorRef<Work>>>,
    pre_start: Option<Work>,
    memory: Memory,
    event_log: Option<Log>,
    part: Option<Note>,
}

impl Plan {
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn pre_start(mut self, work: Work) -> Self {
        self.pre_start = Some(work);
        self
    }

    pub(crate) fn post_start(mut self, work: Work) -> Self {
        self.memory.post_start = Some(work);
        self
    }

    pub(crate) fn post_stop(mut self, work: Work) -> Self {
        self.memory.post_stop = Some(work);
        self
    }

    /// Puts a thing into the actor's state.
    pub(crate) fn keep(mut self, thing: impl Any + Send) -> Self {
        self.memory.kept = Some(Box::new(thing));
        self
    }

    /// Puts a note into the actor value itself, beside its state.
    pub(crate) fn part(mut self, note: Note) -> Self {
        self.part = Some(note);
        self
    }

    /// Writes each supervision event into the log at the moment it is handled.
    pub(crate) fn log_events(mut self, log: &Log) -> Self {
        self.event_log = Some(log.clone());
        self
    }

    /// Gives the actor's reference away at the start of `pre_start`, before the spawn returns.
    pub(crate) fn announced(mut self) -> (Self, oneshot::Receiver<ActorRef<Work>>) {
        let (announce, announced) = oneshot::channel();
        self.announce = Some(announce);
        (self, announced)
    }

    /// The parts of a spawn: the name, the actor, and the receiver of the events that it will handle.
    pub(crate) fn actor(&mut self) -> (Option<String>, Probe, Events) {
        let (heard, events) = mpsc::unbounded_channel();
        (self.name.take(), Probe { heard, event_log: self.event_log.take(), _part: self.part.take() }, events)
    }

    pub(crate) async fn try_spawn(mut self) -> Result<Live, SpawnErr> {
        let (name, probe, events) = self.actor();
        let (actor, task) = Actor::spawn(name, probe, self).await?;
        Ok(Live { actor, task, events })
    }

    pub(crate) async fn spawn(self) -> Live {
        self.try_spawn().await.expect("the plan starts")
    }

    pub(crate) fn try_spawn_under(
        mut self,
        supervisor: &ActorCell,
    ) -> impl Future<Output = Result<Live, SpawnErr>> + Send + use<> {
        let supervisor = supervisor.clone();
        async move {
            let (name, probe, events) = self.actor();
            let (actor, task) = Actor::spawn_linked(name, probe, self, supervisor).await?;
            Ok(Live { actor, task, events })
        }
    }

    pub(crate) async fn spawn_under(self, supervisor: &Live) -> Live {
        self.try_spawn_under(&supervisor.actor).await.expect("the plan starts")
    }
}

/// The state of a [`Probe`]: the hooks still to run, and what dies with it.
#[derive(Default)]
pub(crate) struct Memory {
    post_start: Option<Work>,
    post_stop: Option<Work>,
    kept: Option<Box<dyn Any + Send>>,
}

impl Memory {
    /// Whether the state still holds what [`Plan::keep`] put into it.
    pub(crate) fn keeps_its_thing(&self) -> bool {
        self.kept.is_some()
    }
}

/// The events that a probe's `handle_supervisor_evt` was given, each with its state box.
pub(crate) type Events = mpsc::UnboundedReceiver<SupervisionEvent>;

/// An actor that runs what its plan and its messages say, and survives the end of its children.
pub(crate) struct Probe {
    heard: mpsc::UnboundedSender<SupervisionEvent>,
    event_log: Option<Log>,
    _part: Option<Note>,
}

async fn run(work: Option<Work>) -> Outcome {
    match work {
        Some(Work(future)) => future.await,
        None => Ok(()),
    }
}

impl Actor for Probe {
    type Msg = Work;
    type State = Memory;
    type Arguments = Plan;

    async fn pre_start(&self, myself: ActorRef<Work>, plan: Plan) -> Result<Memory, ActorProcessingErr> {
        if let Some(announce) = plan.announce {
            let _ = announce.send(myself);
        }
        run(plan.pre_start).await?;
        Ok(plan.memory)
    }

    async fn post_start(&self, _: ActorRef<Work>, memory: &mut Memory) -> Outcome {
        run(memory.post_start.take()).await
    }

    async fn post_stop(&self, _: ActorRef<Work>, memory: &mut Memory) -> Outcome {
        run(memory.post_stop.take()).await
    }

    async fn handle(&self, _: ActorRef<Work>, Work(future): Work, _: &mut Memory) -> Outcome {
        future.await
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Work>,
        event: SupervisionEvent,
        _: &mut Memory,
    ) -> Outcome {
        if let Some(log) = &self.event_log {
            log.note(tell(&event));
        }
        let _ = self.heard.send(event);
        Ok(())
    }
}

/// A spawned [`Probe`].
pub(crate) struct Live {
    pub(crate) actor: ActorRef<Work>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) events: Events,
}

impl Live {
    pub(crate) fn cast(&self, work: Work) {
        self.actor.cast(work).expect("the mailbox is open");
    }

    /// Puts the actor into a handler that waits until the door is opened.
    pub(crate) async fn busy(&self) -> Door {
        let (mut door, hold) = gate();
        self.cast(work(hold.wait()));
        door.reached().await;
        door
    }

    /// Returns when all messages that were queued before have been handled, and on one thread all events too.
    pub(crate) async fn fence(&self) {
        let (passed, pass) = oneshot::channel();
        self.cast(work(async move {
            let _ = passed.send(());
        }));
        soon(pass).await.expect("the actor lives");
    }

    /// The events handled since the last look: behind a fence if the actor lives, all that were left if it is
    /// gone.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        if !self.task.is_finished() {
            self.fence().await;
        }
        std::iter::from_fn(|| self.events.try_recv().ok()).map(|event| tell(&event)).collect()
    }

    /// Returns when the actor's task has ended by itself.
    pub(crate) async fn ended(&mut self) {
        soon(&mut self.task).await.expect("the task ended by itself");
    }
}

pub(crate) fn tell(event: &SupervisionEvent) -> String {
    match event {
        SupervisionEvent::ActorStarted(_) => "started".to_owned(),
        SupervisionEvent::ActorTerminated(_, state, reason) => {
            let state = if state.is_some() { "with state" } else { "no state" };
            format!("terminated: {}, {state}", reason.as_deref().unwrap_or("no reason"))
        }
        SupervisionEvent::ActorFailed(_, error) => format!("failed: {error}"),
        SupervisionEvent::ProcessGroupChanged(_) => "group changed".to_owned(),
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Work that only writes a line.
    pub(crate) fn noting(&self, line: &'static str) -> Work {
        let log = self.clone();
        work(async move { log.note(line) })
    }

    /// A guard that writes a line when it is dropped.
    pub(crate) fn on_drop(&self, line: &'static str) -> Note {
        Note { log: self.clone(), line }
    }
}

/// Writes its line into the log when it is dropped.
pub(crate) struct Note {
    log: Log,
    line: &'static str,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.log.note(self.line);
    }
}

/// A place where an actor waits: the test holds the door, the actor the hold.
pub(crate) fn gate() -> (Door, Hold) {
    let (reach, reached) = oneshot::channel();
    let (open, opened) = oneshot::channel();
    (Door { reached, open }, Hold { reach, opened })
}

pub(crate) struct Door {
    reached: oneshot::Receiver<()>,
    open: oneshot::Sender<()>,
}

impl Door {
    /// Returns when the actor stands at the door.
    pub(crate) async fn reached(&mut self) {
        soon(&mut self.reached).await.expect("the actor comes to the door");
    }

    pub(crate) fn open(self) {
        self.open.send(()).expect("the actor stands at the door");
    }
}

pub(crate) struct Hold {
    reach: oneshot::Sender<()>,
    opened: oneshot::Receiver<()>,
}

impl Hold {
    pub(crate) async fn wait(self) {
        let _ = self.reach.send(());
        let _ = self.opened.await;
    }

    /// Waits at the door with a guard in hand, so that the log tells whether the future was dropped there.
    pub(crate) async fn wait_holding(self, note: Note) {
        self.wait().await;
        drop(note);
    }
}

/// A synchronous section: says that it has begun, then blocks its thread until told to leave.
pub(crate) fn section() -> (oneshot::Receiver<()>, Sender<()>, impl FnOnce() + Send + 'static) {
    let (begin, begun) = oneshot::channel();
    let (leave, may_leave) = std::sync::mpsc::channel();
    (begun, leave, move || {
        let _ = begin.send(());
        let _ = may_leave.recv();
    })
}

/// Waits for a fact. Under the paused clock the limit passes at once if nothing can bring it about any more.
pub(crate) async fn soon<T>(fact: impl Future<Output = T>) -> T {
    const LIMIT: Duration = Duration::from_secs(86_400);
    tokio::time::timeout(LIMIT, fact).await.expect("what the test waits for can still happen")
}

/// Lets this much time pass on the paused clock, and everything that is due in it happen.
pub(crate) async fn pass(time: Duration) {
    let nothing = tokio::time::timeout(time, std::future::pending::<()>()).await;
    assert!(nothing.is_err(), "nothing was waited for");
}

/// Returns when no task can go on without the test: the paused clock moves only then.
pub(crate) async fn quiet() {
    pass(Duration::from_millis(1)).await;
}
