//! The actor that every process and every service incarnation runs in: a child of the generation.
//!
//! It is ours, whatever the plugin brings: its `pre_start` does nothing that could hang, so it is linked,
//! visible and killable before any user code runs. Where the code of each kind runs:
//!
//! | kind     | start            | body             | stop                          | kill                |
//! |----------|------------------|------------------|-------------------------------|---------------------|
//! | function | none             | in `post_start`  | it is told, then it returns   | cut at its await    |
//! | object   | in `post_start`  | its own affair   | `close`, in `post_start` too  | `close` cut off     |
//! | actor    | its `pre_start`  | its own task     | ractor's stop, to that actor  | ractor's kill, both |
//!
//! A function and an object live in actors of one make, which take no message. The one above a plugin's own actor
//! sends itself one message, begin, and hears of the end of that actor.
//!
//! However it ends, it is reported. A kill that meets running user code drops [`Cut`], or the state of a function or
//! an object, in the actor's own task, just after that code; one that meets an idle wrapper drops [`Ending`] with its
//! state.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use tokio::time::{Instant, timeout};

use crate::child::Child;
use crate::contain::{self, Contained, Kept};
use crate::error::{CloseFailure, StartError, StartFailure};
use crate::event::Cause;
use crate::exit::{BoxError, ExitReason, PanicText, ProcessResult};
use crate::generation::GenerationMessage;
use crate::generation::core::{Core, cut_off};
use crate::inside::Inside;
use crate::process::{Body, ErasedActor, ProcessContext, ProcessHandle, ProcessSpec};

mod function;
mod object;

/// Where the result of a start goes.
pub(crate) enum Starter {
    /// To the caller of `Registry::start`.
    Caller(RpcReplyPort<Result<ProcessHandle, StartError>>),
    /// To the supervisor of services.
    Services,
}

/// Spawns the actor of an admitted child, which begins by itself. Runs no user code.
///
/// Who waits for a function need not be answered: it has no start of its own that could fail.
pub(crate) fn launch(
    core: &Arc<Core>,
    child: &Arc<Child>,
    mut spec: ProcessSpec,
    starter: Option<Starter>,
    cause: Cause,
) {
    let limit = spec.start_limit(core);
    let mut ending = Ending { child: Arc::clone(child), starter };
    match spec.body.take() {
        Some(Body::Function(body)) => {
            // It is running before its first poll. Answered here, not there: the caller would wait for the thread
            // that the first poll may block.
            child.settle_started(cause);
            ending.answer(Ok(()));
            Living::spawn(child, function::Call { body: Kept::new(body), ending });
        }
        Some(Body::Object(object)) => {
            Living::spawn(child, object::Stay { object: Some(object), ending, started: cause, limit });
        }
        Some(Body::Actor(actor)) => {
            spawn(
                child,
                Wrapper,
                State { actor: Some(actor), reference: None, ending, started: cause, limit },
            );
        }
        // Nothing to run: its end is told with the drop of what would have told it.
        None => {}
    }
}

fn spawn<A: Actor>(child: &Arc<Child>, actor: A, arguments: A::Arguments) {
    let Some(supervisor) = child.core.supervisor() else {
        return;
    };
    // Whoever starts it may be a guest: on another runtime, or on none.
    let _entered = child.core.runtime.enter();
    // Our `pre_start` awaits nothing, so one poll is the whole spawn; done here, the large future of it never
    // becomes part of the caller's. Unconstrained, because a spent budget must not look like a wait.
    let spawning = Actor::spawn_linked(None, actor, arguments, supervisor);
    match tokio::task::unconstrained(spawning).now_or_never() {
        Some(Ok((actor, task))) => child.set_wrapper(actor.into(), task),
        // The generation is ending; the arguments were dropped, which has told everybody.
        Some(Err(error)) => drop(error),
        None => {}
    }
}

/// The way out of a `post_start` past the mailbox. The generation takes ends from the child alone.
#[derive(Debug, thiserror::Error)]
#[error("its code has ended")]
struct Over;

/// What an actor lives through in its `post_start`, in which it is linked, visible and killable.
///
/// It is told to stop by the order itself and takes no message, so it never looks into its mailbox: that, and the word
/// of its start to a supervisor that does not listen, are a quarter of what an actor costs.
trait Life: Send + 'static {
    fn child(&self) -> &Arc<Child>;

    /// Until its end was reported, or there is nothing to report.
    fn live(&mut self) -> impl Future<Output = ()> + Send;
}

/// The actor of a function or of an object.
struct Living<L>(PhantomData<fn(L)>);

impl<L: Life> Living<L> {
    fn spawn(child: &Arc<Child>, life: L) {
        spawn(child, Self(PhantomData), life);
    }
}

impl<L: Life> Actor for Living<L> {
    type Msg = ();
    type State = L;
    type Arguments = L;

    async fn pre_start(&self, _: ActorRef<()>, life: L) -> Result<L, ActorProcessingErr> {
        Ok(life)
    }

    async fn post_start(&self, _: ActorRef<()>, life: &mut L) -> Result<(), ActorProcessingErr> {
        life.child().core.chaos.pause().await;
        life.live().await;
        Err(Over.into())
    }
}

/// The actor above a plugin's own actor.
struct Wrapper;

/// The one message: spawn the plugin's own actor.
struct Begin;

struct State {
    actor: Option<Box<dyn ErasedActor>>,
    /// The `ActorRef<M>` that lookups find while this wrapper lives.
    reference: Option<Arc<dyn Any + Send + Sync>>,
    ending: Ending,
    started: Cause,
    limit: Duration,
}

/// An actor that was killed before it was spawned goes here: then the end is told.
impl Drop for State {
    fn drop(&mut self) {
        let Some(actor) = self.actor.take() else { return };
        if let Err(panic) = contain::call(move || drop(actor)) {
            self.ending.child.fail("drop", &panic);
        }
    }
}

/// Reports the end of the child when it is dropped, unless it ended in order before.
struct Ending {
    child: Arc<Child>,
    starter: Option<Starter>,
}

impl Ending {
    fn answer(&mut self, result: Result<(), StartError>) {
        match self.starter.take() {
            Some(Starter::Caller(reply)) => {
                let answer = result.map(|()| ProcessHandle::new(Arc::clone(&self.child)));
                // The caller may have gone away; the process is none the wiser (contract, R40).
                let _ = reply.send(answer);
            }
            Some(Starter::Services) => {
                if let Some(generation) = self.child.core.actors.generation.get() {
                    let child = Arc::clone(&self.child);
                    let _ = generation.cast(GenerationMessage::ServiceSettled(child, result));
                }
            }
            None => {}
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.child.exit().is_none() {
            self.child.end(cut_off(&self.child));
        }
        if self.starter.is_some() {
            let id = self.child.id.clone();
            let source: BoxError = "the process was killed while it started".into();
            self.answer(Err(StartError::StartFailed {
                id,
                kind: StartFailure::Killed,
                source,
                cleanup: None,
            }));
        }
    }
}

/// Ends the child if the code below it was cut off: ractor hands the state of a killed actor to its
/// supervisor, which would tell the end only when it gets to it.
struct Cut(Option<Arc<Child>>);

impl Cut {
    fn off(child: &Arc<Child>) -> Self {
        Self(Some(Arc::clone(child)))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(child) = &self.0 {
            child.end(cut_off(child));
        }
    }
}

impl Actor for Wrapper {
    type Msg = Begin;
    type State = State;
    type Arguments = State;

    async fn pre_start(&self, myself: ActorRef<Begin>, state: State) -> Result<State, ActorProcessingErr> {
        // It lies there when the actor first looks, so that it need not be woken for it.
        myself.cast(Begin)?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Begin>,
        _: Begin,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let cut = Cut::off(&state.ending.child);
        state.ending.child.core.chaos.pause().await;
        if let Some(actor) = state.actor.take() {
            // Boxed, as all that is over when its start is: the future of this stays that large.
            Box::pin(start_actor(&myself, state, actor)).await;
        }
        cut.disarm();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Begin>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let child = &state.ending.child;
        let exit = match event {
            SupervisionEvent::ActorFailed(_, error) => {
                child.fail("run", &error);
                match error.downcast::<PanicText>() {
                    Ok(panic) => ExitReason::Panicked(panic.0),
                    Err(error) => ExitReason::Failed(error.into()),
                }
            }
            SupervisionEvent::ActorTerminated(_, actor_state, _) => {
                // A panic in it is told, and is how it ended unless it was killed before.
                drop(actor_state);
                // Its reason does not tell a kill from a stop, and its state comes with either.
                if !child.stopped_in_order() {
                    cut_off(child)
                } else if child.is_told_to_stop() {
                    ExitReason::Stopped
                } else {
                    ExitReason::Completed
                }
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        child.finish(exit).await;
        myself.stop(None);
        Ok(())
    }
}

/// User code of a child: contained, and known to be inside it.
async fn contained<F: Future + Unpin>(
    child: &Arc<Child>,
    made: Result<F, PanicText>,
) -> Result<F::Output, PanicText> {
    let late = |panic: PanicText| {
        child.fail("drop", &panic);
        child.note_late_panic(panic);
    };
    Contained::new(made?, Some(Inside::of(&child.core)), late).await
}

// --- actors ---------------------------------------------------------------------------------------------

async fn start_actor(myself: &ActorRef<Begin>, state: &mut State, actor: Box<dyn ErasedActor>) {
    let child = Arc::clone(&state.ending.child);
    let context = ProcessContext::new(Arc::clone(&child));
    let spawned = match contain::call(|| actor.spawn(context, myself.get_cell())) {
        Ok(Ok(spawned)) => spawned,
        Ok(Err(error)) => return refuse_actor(myself, state, Refusal::Error(error.into())).await,
        Err(panic) => return refuse_actor(myself, state, Refusal::Panic(panic)).await,
    };
    // Not linked before its `pre_start` is done: until then only this guard would take it along.
    let unlinked = KillOnDrop(Some(spawned.cell.clone()));
    child.set_object(&spawned.reference);
    state.reference = Some(spawned.reference);
    let begun = Instant::now();
    let mut started = spawned.started;
    let outcome = timeout(state.limit, &mut started).await;
    match outcome {
        Ok(Ok(Ok(handle))) if begun.elapsed() <= state.limit => {
            unlinked.keep();
            // Known before it counts as started: a close that saw the start settle would stop the wrapper in
            // its stead, and ractor would kill the actor with it.
            child.set_inner_actor(spawned.cell, handle);
            child.settle_started(state.started);
            state.ending.answer(Ok(()));
        }
        Ok(Ok(Err(SpawnErr::StartupFailed(source)))) => {
            let refusal = match source.downcast::<PanicText>() {
                Ok(panic) => Refusal::Panic(*panic),
                Err(source) => Refusal::Error(source),
            };
            refuse_actor(myself, state, refusal).await;
        }
        Ok(Ok(Err(error))) => refuse_actor(myself, state, Refusal::Error(error.into())).await,
        Ok(Err(error)) => refuse_actor(myself, state, Refusal::Error(error.into())).await,
        // It is cut off at its next await; before that it is not gone, and must meet no successor.
        Err(_) => {
            drop(unlinked);
            let _ = timeout(child.core.limits.cleanup_bound, started).await;
            refuse_actor(myself, state, Refusal::TimedOut(state.limit)).await;
        }
        // It has started, but after its time was over.
        Ok(Ok(Ok(handle))) => {
            drop(unlinked);
            let _ = timeout(child.core.limits.cleanup_bound, handle).await;
            refuse_actor(myself, state, Refusal::TimedOut(state.limit)).await;
        }
    }
}

async fn refuse_actor(myself: &ActorRef<Begin>, state: &mut State, refusal: Refusal) {
    state.ending.child.fail("start", &refusal.text());
    refuse(&mut state.ending, refusal, None).await;
    myself.stop(None);
}

struct KillOnDrop(Option<ActorCell>);

impl KillOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(cell) = &self.0 {
            cell.kill();
        }
    }
}

// --- starts that do not succeed -------------------------------------------------------------------------

enum Refusal {
    Error(BoxError),
    Panic(PanicText),
    TimedOut(Duration),
}

impl Refusal {
    /// Why this start does not count. One that blocks its thread past its bound is late although no timer
    /// could tell it so; its own error would still say more.
    fn of<E>(
        outcome: Result<Result<ProcessResult, PanicText>, E>,
        begun: Instant,
        limit: Duration,
    ) -> Option<Self> {
        match outcome {
            Ok(Ok(Ok(()))) if begun.elapsed() <= limit => None,
            Ok(Ok(Ok(()))) => Some(Self::TimedOut(limit)),
            Ok(Ok(Err(error))) => Some(Self::Error(error)),
            Ok(Err(panic)) => Some(Self::Panic(panic)),
            Err(_) => Some(Self::TimedOut(limit)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Error(error) => error.to_string(),
            Self::Panic(panic) => panic.to_string(),
            Self::TimedOut(limit) => format!("not started within {limit:?}"),
        }
    }

    fn into_error(self, child: &Child, cleanup: Option<CloseFailure>) -> StartError {
        let id = child.id.clone();
        let failed =
            |kind, source| StartError::StartFailed { id: id.clone(), kind, source, cleanup: cleanup.clone() };
        match self {
            Self::Error(source) => failed(StartFailure::Error, source),
            Self::Panic(panic) => failed(StartFailure::Panic, panic.into()),
            Self::TimedOut(limit) => StartError::StartTimedOut { id, limit, cleanup },
        }
    }
}

/// Ends a child whose start did not succeed. The id is free before the caller hears of it (contract, R13).
async fn refuse(ending: &mut Ending, refusal: Refusal, cleanup: Option<CloseFailure>) {
    let child = Arc::clone(&ending.child);
    child.finish(ExitReason::NeverStarted).await;
    ending.answer(Err(refusal.into_error(&child, cleanup)));
}
