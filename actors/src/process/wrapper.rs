//! The actor that every process and every service incarnation runs in: a child of the generation.
//!
//! It is ours, whatever the plugin brings: its `pre_start` does nothing that could hang, so it is linked,
//! visible and killable before any user code runs. Where the code of each kind runs:
//!
//! | kind     | start            | body             | stop                          | kill                |
//! |----------|------------------|------------------|-------------------------------|---------------------|
//! | function | none             | in `post_start`  | it is told, then it returns   | cut at its await    |
//! | object   | in `handle`      | its own affair   | `close`, in `post_stop`       | `close` cut off     |
//! | actor    | its `pre_start`  | its own task     | ractor's stop, to that actor  | ractor's kill, both |
//!
//! A function has an actor of its own make; the other two share one, which sends itself one message: begin.
//!
//! However it ends, it is reported. A kill that meets running user code drops [`Cut`], or the state of a function,
//! in the actor's own task, just after that code; one that meets an idle wrapper drops [`Ending`] with its state.

use std::any::Any;
use std::pin::pin;
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
use crate::process::held::Held;
use crate::process::{
    Body, ErasedActor, ErasedProcess, ProcessContext, ProcessHandle, ProcessKind, ProcessSpec,
};

mod function;

use function::{FunctionActor, Life};

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
            spawn(child, FunctionActor, Life { body: Kept::new(body), ending });
        }
        body => spawn(child, Wrapper, State { body, reference: None, ending, started: cause, limit }),
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

/// The actor of an object, and the one above a plugin's own actor.
struct Wrapper;

/// The one message: run the code of the child.
struct Begin;

struct State {
    body: Option<Body>,
    /// The `ActorRef<M>` that lookups find while this wrapper lives.
    reference: Option<Arc<dyn Any + Send + Sync>>,
    ending: Ending,
    started: Cause,
    limit: Duration,
}

/// Code that was killed before it began, or between its start and its close, goes here: then the end is told.
impl Drop for State {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if let Err(panic) = contain::call(move || drop(body)) {
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
        match state.body.take() {
            // Boxed, as everything below that is over when its start is: the future of this stays that large.
            Some(Body::Object(object)) => Box::pin(start_object(&myself, state, object)).await,
            Some(Body::Actor(actor)) => Box::pin(start_actor(&myself, state, actor)).await,
            Some(Body::Function(_)) | None => {}
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

    async fn post_stop(&self, _: ActorRef<Begin>, state: &mut State) -> Result<(), ActorProcessingErr> {
        let Some(Body::Object(object)) = state.body.take() else {
            return Ok(());
        };
        let child = Arc::clone(&state.ending.child);
        Box::pin(async move {
            let cut = Cut::off(&child);
            let exit = end_object(&child, object).await;
            child.finish(exit).await;
            cut.disarm();
        })
        .await;
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

// --- objects --------------------------------------------------------------------------------------------

async fn start_object(myself: &ActorRef<Begin>, state: &mut State, object: Arc<dyn ErasedProcess>) {
    let child = Arc::clone(&state.ending.child);
    let context = ProcessContext::new(Arc::clone(&child));
    let starting = Arc::clone(&object);
    let held = Held::new(object, &*child);
    let attempt = async { contained(&child, contain::call(|| starting.start(context))).await };
    let begun = Instant::now();
    let outcome = timeout(state.limit, attempt).await;
    let Some(object) = held.take() else { return };
    let Some(refusal) = Refusal::of(outcome, begun, state.limit) else {
        if !child.settle_started(state.started) {
            // It held its thread until it was abandoned: closed, not registered (contract, R12). The caller
            // is answered with the state's drop.
            clean_up(&child, object).await;
            return;
        }
        state.body = Some(Body::Object(object));
        state.ending.answer(Ok(()));
        if !child.is_bound() {
            myself.stop(None);
        }
        return;
    };
    child.fail("start", &refusal.text());
    child.revoke();
    let cleanup = clean_up(&child, object).await;
    refuse(myself, state, refusal, cleanup).await;
}

/// Closes what does not count as started, within the bound of that.
async fn clean_up(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> Option<CloseFailure> {
    let bound = child.core.limits.cleanup_bound;
    // Dropped when this returns: what is cut off is told before what its drop does.
    let mut closing = pin!(close_object(child, object));
    match timeout(bound, closing.as_mut()).await {
        Ok(closed) => closed.err(),
        Err(_) => {
            let late = CloseFailure::TimedOut(bound);
            child.fail("close", &late);
            Some(late)
        }
    }
}

async fn end_object(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> ExitReason {
    if child.is_removed() {
        // It was removed: its terminal path is done and `close` is not called (contract, G5), not even when a
        // close told it to stop before its wrapper got here.
        drop(Held::new(object, &**child));
        return ExitReason::Removed;
    }
    child.revoke();
    let Err(failure) = close_object(child, object).await else {
        return ExitReason::Stopped;
    };
    match failure {
        CloseFailure::Failed(error) => ExitReason::Failed(error),
        CloseFailure::Panicked(panic) => ExitReason::Panicked(panic.0),
        CloseFailure::TimedOut(_) => ExitReason::Abandoned,
    }
}

/// Closes an object and lets go of it. Tells of a failure.
async fn close_object(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> Result<(), CloseFailure> {
    let held = Held::new(Arc::clone(&object), &**child);
    let failure = match contained(child, contain::call(move || object.close())).await {
        Ok(Ok(())) => {
            let gone = held.let_go().map_err(CloseFailure::Panicked);
            return gone.inspect_err(|failure| child.fail("close", failure));
        }
        Ok(Err(error)) => CloseFailure::Failed(error.into()),
        Err(panic) => CloseFailure::Panicked(panic),
    };
    child.fail("close", &failure);
    // After that, as it happened: its drop may panic as well.
    drop(held);
    Err(failure)
}

// --- actors ---------------------------------------------------------------------------------------------

async fn start_actor(myself: &ActorRef<Begin>, state: &mut State, actor: Box<dyn ErasedActor>) {
    let child = Arc::clone(&state.ending.child);
    let context = ProcessContext::new(Arc::clone(&child));
    let spawned = match contain::call(|| actor.spawn(context, myself.get_cell())) {
        Ok(Ok(spawned)) => spawned,
        Ok(Err(error)) => {
            return refuse(myself, state, Refusal::Error(error.into()), None).await;
        }
        Err(panic) => return refuse(myself, state, Refusal::Panic(panic), None).await,
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
            refuse(myself, state, refusal, None).await;
        }
        Ok(Ok(Err(error))) => refuse(myself, state, Refusal::Error(error.into()), None).await,
        Ok(Err(error)) => refuse(myself, state, Refusal::Error(error.into()), None).await,
        // It is cut off at its next await; before that it is not gone, and must meet no successor.
        Err(_) => {
            drop(unlinked);
            let _ = timeout(child.core.limits.cleanup_bound, started).await;
            refuse(myself, state, Refusal::TimedOut(state.limit), None).await;
        }
        // It has started, but after its time was over.
        Ok(Ok(Ok(handle))) => {
            drop(unlinked);
            let _ = timeout(child.core.limits.cleanup_bound, handle).await;
            refuse(myself, state, Refusal::TimedOut(state.limit), None).await;
        }
    }
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
async fn refuse(
    myself: &ActorRef<Begin>,
    state: &mut State,
    refusal: Refusal,
    cleanup: Option<CloseFailure>,
) {
    let child = Arc::clone(&state.ending.child);
    if child.kind == ProcessKind::Actor {
        child.fail("start", &refusal.text());
    }
    child.finish(ExitReason::NeverStarted).await;
    state.ending.answer(Err(refusal.into_error(&child, cleanup)));
    myself.stop(None);
}
