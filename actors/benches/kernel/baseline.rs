//! Bare ractor doing what the kernel does, as directly as it can be written, and no more; and tasks without actors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::life::{Begun, Clock, Life, settle};

// --- the supervisor of the children -----------------------------------------------------------------------

/// Bears the end of a child, which ractor's default does not, and counts the starts.
pub(crate) struct Supervisor;

pub(crate) struct Expected {
    missing: usize,
    all_started: Option<oneshot::Sender<()>>,
}

impl Actor for Supervisor {
    type Msg = ();
    type State = Expected;
    type Arguments = Expected;

    async fn pre_start(&self, _: ActorRef<()>, expected: Expected) -> Result<Expected, ActorProcessingErr> {
        Ok(expected)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        expected: &mut Expected,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorStarted(_) = event {
            expected.missing -= 1;
            if expected.missing == 0
                && let Some(all_started) = expected.all_started.take()
            {
                let _ = all_started.send(());
            }
        }
        Ok(())
    }
}

/// A supervisor that expects so many children.
pub(crate) struct Parent {
    pub(crate) actor: ActorRef<()>,
    task: JoinHandle<()>,
    all_started: oneshot::Receiver<()>,
}

impl Parent {
    pub(crate) async fn expecting(children: usize) -> Self {
        let (sender, all_started) = oneshot::channel();
        let expected = Expected { missing: children, all_started: Some(sender) };
        let (actor, task) = Actor::spawn(None, Supervisor, expected).await.expect("a supervisor");
        Self { actor, task, all_started }
    }

    pub(crate) async fn all_started(&mut self) {
        (&mut self.all_started).await.expect("all children start");
    }

    async fn stop(self) {
        self.actor.stop(None);
        self.task.await.expect("the supervisor ends");
    }
}

// --- children ---------------------------------------------------------------------------------------------

/// Nothing but an actor.
struct Idle;

impl Actor for Idle {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// An actor whose first message runs an asynchronous function and then stops it.
struct Job;

type Body = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The first message.
pub(crate) struct Begin;

impl Actor for Job {
    type Msg = Begin;
    type State = Option<Body>;
    type Arguments = Body;

    async fn pre_start(&self, _: ActorRef<Begin>, body: Body) -> Result<Option<Body>, ActorProcessingErr> {
        Ok(Some(body))
    }

    async fn handle(
        &self,
        myself: ActorRef<Begin>,
        _: Begin,
        body: &mut Option<Body>,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(body) = body.take() {
            body().await;
        }
        myself.stop(None);
        Ok(())
    }
}

/// An actor that answers for one below it: ends it when it is told to, and then itself.
struct Warden;

impl Actor for Warden {
    type Msg = ();
    type State = ActorRef<()>;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<()>, (): ()) -> Result<ActorRef<()>, ActorProcessingErr> {
        let (below, _) = Actor::spawn_linked(None, Idle, (), myself.get_cell()).await?;
        Ok(below)
    }

    async fn handle(
        &self,
        _: ActorRef<()>,
        (): (),
        below: &mut ActorRef<()>,
    ) -> Result<(), ActorProcessingErr> {
        below.stop(None);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        _: &mut ActorRef<()>,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorTerminated(..) = event {
            myself.stop(None);
        }
        Ok(())
    }
}

/// An actor that keeps an object: its first message starts it, and its stop closes it.
struct Keeper;

type Called<'o> = Pin<Box<dyn Future<Output = Result<(), ActorProcessingErr>> + Send + 'o>>;

/// What an object is asked, of whatever type it is.
trait Object: Send + Sync {
    fn start(&self) -> Called<'_>;
    fn close(&self) -> Called<'_>;
}

struct Plain;

impl Object for Plain {
    fn start(&self) -> Called<'_> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self) -> Called<'_> {
        Box::pin(async { Ok(()) })
    }
}

impl Actor for Keeper {
    type Msg = Begin;
    type State = Arc<dyn Object>;
    type Arguments = Arc<dyn Object>;

    async fn pre_start(
        &self,
        _: ActorRef<Begin>,
        object: Arc<dyn Object>,
    ) -> Result<Arc<dyn Object>, ActorProcessingErr> {
        Ok(object)
    }

    async fn handle(
        &self,
        _: ActorRef<Begin>,
        _: Begin,
        object: &mut Arc<dyn Object>,
    ) -> Result<(), ActorProcessingErr> {
        object.start().await
    }

    async fn post_stop(
        &self,
        _: ActorRef<Begin>,
        object: &mut Arc<dyn Object>,
    ) -> Result<(), ActorProcessingErr> {
        object.close().await
    }
}

/// A child, and how it is told to stop.
pub(crate) struct Started<S> {
    stop: S,
    task: JoinHandle<()>,
}

pub(crate) async fn start_idle(parent: &Parent) -> Started<ActorRef<()>> {
    let spawned = Actor::spawn_linked(None, Idle, (), parent.actor.get_cell()).await;
    let (stop, task) = spawned.expect("a child");
    Started { stop, task }
}

pub(crate) async fn start_job(parent: &Parent) -> Started<CancellationToken> {
    let stop = CancellationToken::new();
    let told = stop.clone();
    let body: Body = Box::new(move || Box::pin(async move { told.cancelled().await }));
    let spawned = Actor::spawn_linked(None, Job, body, parent.actor.get_cell()).await;
    let (actor, task) = spawned.expect("a child");
    actor.cast(Begin).expect("the child runs");
    Started { stop, task }
}

pub(crate) async fn start_object(parent: &Parent) -> Started<ActorRef<Begin>> {
    let spawned = Actor::spawn_linked(None, Keeper, Arc::new(Plain), parent.actor.get_cell()).await;
    let (stop, task) = spawned.expect("a child");
    stop.cast(Begin).expect("the child runs");
    Started { stop, task }
}

pub(crate) async fn start_pair(parent: &Parent) -> Started<ActorRef<()>> {
    let spawned = Actor::spawn_linked(None, Warden, (), parent.actor.get_cell()).await;
    let (stop, task) = spawned.expect("a child");
    Started { stop, task }
}

// --- their lives ------------------------------------------------------------------------------------------

pub(crate) async fn life_of_idle(count: usize) -> Life {
    life(count, start_idle, |actor: &ActorRef<()>| actor.stop(None)).await
}

pub(crate) async fn life_of_jobs(count: usize) -> Life {
    life(count, start_job, CancellationToken::cancel).await
}

pub(crate) async fn life_of_objects(count: usize) -> Life {
    life(count, start_object, |keeper: &ActorRef<Begin>| keeper.stop(None)).await
}

pub(crate) async fn life_of_pairs(count: usize) -> Life {
    life(count, start_pair, |warden: &ActorRef<()>| warden.cast(()).expect("the warden runs")).await
}

/// Starts so many, waits until the supervisor has seen them all running, stops them in reverse start order and
/// awaits every one. The handles live beyond both clocks, as those of the kernel do.
async fn life<S>(
    count: usize,
    start: impl AsyncFn(&Parent) -> Started<S>,
    tell_to_stop: impl Fn(&S),
) -> Life {
    let mut parent = Parent::expecting(count).await;
    let mut children = Vec::with_capacity(count);
    let clock = Clock::start();
    for _ in 0..count {
        children.push(start(&parent).await);
    }
    parent.all_started().await;
    let start = clock.read();
    let close = stop_all(children, tell_to_stop).await;
    parent.stop().await;
    Life { start, close }
}

static BEGUN: Begun = Begun::new();

/// The same job on tasks that nobody knows: no id, no supervisor, no gate, no report.
pub(crate) async fn life_of_tasks(count: usize) -> Life {
    let clock = Clock::start();
    let tasks = start_tasks(count).await;
    let start = clock.read();
    let close = stop_all(tasks, CancellationToken::cancel).await;
    Life { start, close }
}

/// Until all have begun.
pub(crate) async fn start_tasks(count: usize) -> Vec<Started<CancellationToken>> {
    BEGUN.expect(count);
    let mut tasks = Vec::with_capacity(count);
    for _ in 0..count {
        let stop = CancellationToken::new();
        let told = stop.clone();
        let body: Body = Box::new(move || Box::pin(async move { told.cancelled().await }));
        let task = tokio::spawn(async move {
            BEGUN.one_more();
            body().await;
        });
        tasks.push(Started { stop, task });
        tokio::task::coop::consume_budget().await;
    }
    BEGUN.all().await;
    tasks
}

async fn stop_all<S>(mut children: Vec<Started<S>>, tell_to_stop: impl Fn(&S)) -> Duration {
    settle().await;
    let clock = Clock::start();
    children.iter().rev().for_each(|child| tell_to_stop(&child.stop));
    for child in &mut children {
        (&mut child.task).await.expect("the child ends");
    }
    clock.read()
}

// --- calls ------------------------------------------------------------------------------------------------

/// Answers what it is asked, and takes a word without an answer.
pub(crate) struct Echo;

pub(crate) enum EchoMessage {
    Ask(usize, RpcReplyPort<usize>),
    Tell(usize),
}

impl Actor for Echo {
    type Msg = EchoMessage;
    type State = usize;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<EchoMessage>, (): ()) -> Result<usize, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<EchoMessage>,
        message: EchoMessage,
        told: &mut usize,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            EchoMessage::Ask(value, reply) => drop(reply.send(value)),
            EchoMessage::Tell(value) => *told = told.wrapping_add(value),
        }
        Ok(())
    }
}

/// One call: as a user of ractor would ask.
pub(crate) async fn ask(echo: &ActorRef<EchoMessage>, value: usize) -> usize {
    let asked = echo.call(|reply| EchoMessage::Ask(value, reply), None).await;
    asked.expect("the actor runs").expect("the actor answers")
}
