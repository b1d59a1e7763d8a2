//! A plugin's own actor with its panics contained: ractor reports a panic and an error alike.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::child::Child;
use crate::exit::PanicText;
use crate::inside::{self, Inside};
use crate::process::held::Held;

/// Forwards every hook. A panic becomes the error [`PanicText`], also one of a hook that is no `async fn` and
/// panics before its future is made: each is called inside the future that is guarded.
pub(crate) struct Guarded<A> {
    /// ractor drops it in the task of the actor, where nobody contains a panic.
    actor: Held<A, Arc<Child>>,
    child: Arc<Child>,
}

impl<A: Actor> Guarded<A> {
    pub(crate) fn new(actor: A, child: Arc<Child>) -> Self {
        Self { actor: Held::new(actor, Arc::clone(&child)), child }
    }

    fn actor(&self) -> Result<&A, ActorProcessingErr> {
        self.actor.get().ok_or_else(|| "it is there as long as its hooks are called".into())
    }

    async fn run<T>(
        &self,
        hook: impl Future<Output = Result<T, ActorProcessingErr>> + Send,
    ) -> Result<T, ActorProcessingErr> {
        let inside = Some(Inside::of(&self.child.core));
        let mut hook = pin!(hook);
        let polled = poll_fn(|context| inside::enter(inside, || hook.as_mut().poll(context)));
        match AssertUnwindSafe(polled).catch_unwind().await {
            Ok(result) => result,
            Err(payload) => Err(Box::new(PanicText::of(&*payload))),
        }
    }
}

impl<A: Actor> Actor for Guarded<A> {
    type Msg = A::Msg;
    /// ractor also drops it where nobody contains a panic: in the task of an actor that has failed, or whose
    /// supervisor is gone.
    type State = Held<A::State, Arc<Child>>;
    type Arguments = A::Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        arguments: A::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let state = self.run(async { self.actor()?.pre_start(myself, arguments).await }).await?;
        Ok(Held::new(state, Arc::clone(&self.child)))
    }

    async fn post_start(
        &self,
        myself: ActorRef<A::Msg>,
        held: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(state) = held.get_mut() else { return Ok(()) };
        self.run(async { self.actor()?.post_start(myself, state).await }).await
    }

    async fn post_stop(
        &self,
        myself: ActorRef<A::Msg>,
        held: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.child.note_stopped_in_order();
        let Some(state) = held.get_mut() else { return Ok(()) };
        self.run(async { self.actor()?.post_stop(myself, state).await }).await
    }

    async fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        held: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(state) = held.get_mut() else { return Ok(()) };
        self.run(async { self.actor()?.handle(myself, message, state).await }).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        event: SupervisionEvent,
        held: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(state) = held.get_mut() else { return Ok(()) };
        self.run(async { self.actor()?.handle_supervisor_evt(myself, event, state).await }).await
    }
}
