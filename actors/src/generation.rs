//! A generation: one lifetime of an application's tree. Supervisor and parent of everything in it.
//!
//! The generation is the unit of failure: when the registry, the operations or the supervisor itself fails,
//! or a service cannot be kept running, authority is revoked first, everything is closed, and the application
//! opens the next epoch.

use std::fmt;
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};

use crate::application::Shared as ApplicationShared;
use crate::child::Child;
use crate::contain;
use crate::error::{CloseError, StartError};
use crate::event::{ActorName, Cause, CloseReason, EventKind};
use crate::exit::first_line;
use crate::id::Epoch;
use crate::inside;
use crate::operations::{Operations, OperationsActor};
use crate::registry::{Registry, RegistryActor};
use crate::runtime_store::RuntimeStore;
use crate::service::Services;
use crate::settings::GenerationSpec;
use crate::tree::Tree;

pub(crate) mod close;
pub(crate) mod core;
pub(crate) mod report;
mod supervisor;

pub(crate) use close::CloseOrder;
pub use report::{CloseReport, CommitCounts};
pub(crate) use supervisor::{Key as ServiceKey, ServiceCommand};

use self::core::{Core, KernelActor};
use self::supervisor::Supervisor;

/// A handle to one generation. A cheap clone. After the generation was closed it keeps answering: closed,
/// empty, refused; it never hangs and never reaches the next generation.
#[derive(Clone)]
pub struct Generation {
    core: Arc<Core>,
}

impl Generation {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Its number.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.core.epoch
    }

    /// Whether it still has its authority: not sealed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.core.is_sealed()
    }

    /// Its registry: the same for everybody (contract, G11).
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::new(Arc::clone(&self.core))
    }

    /// Its operations.
    #[must_use]
    pub fn operations(&self) -> Operations {
        Operations::new(Arc::clone(&self.core))
    }

    /// The resources its plugins share.
    #[must_use]
    pub fn runtime_store(&self) -> RuntimeStore {
        RuntimeStore::new(Arc::clone(&self.core))
    }

    /// Its services.
    #[must_use]
    pub fn services(&self) -> Services {
        Services::new(Arc::clone(&self.core))
    }

    /// Its live supervision tree, as data that prints as text. Reads what is shared; waits for no actor.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::of_generation(&self.core)
    }

    /// The close report; none before the close is over.
    #[must_use]
    pub fn report(&self) -> Option<Arc<CloseReport>> {
        self.core.closing.report()
    }

    /// Closes the generation. Its authority ends in this call; the answer comes when everything in it has
    /// ended or is reported. Every caller gets the same report. The application does not replace a generation
    /// that was closed on purpose.
    ///
    /// # Errors
    /// [`CloseError::Inside`] when one of its own processes asks: the close goes on without it waiting.
    ///
    /// Cancel safety: the close goes on when the future is dropped.
    pub async fn close(&self) -> Result<Arc<CloseReport>, CloseError> {
        self.core.begin_close(CloseOrder { reason: CloseReason::Requested, cause: None });
        self.closed().await
    }

    /// Waits for the close report, without asking for the close.
    ///
    /// # Errors
    /// As [`Generation::close`].
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn closed(&self) -> Result<Arc<CloseReport>, CloseError> {
        if inside::is_inside(&self.core) {
            return Err(CloseError::Inside { epoch: self.core.epoch });
        }
        self.core.closing.outcome().await
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation(epoch {}, {})", self.core.epoch, if self.is_open() { "open" } else { "closed" })
    }
}

/// What the supervisor actor of a generation is told.
pub(crate) enum GenerationMessage {
    /// The start of a service incarnation settled.
    ServiceSettled(Arc<Child>, Result<(), StartError>),
    /// A service incarnation ended.
    ServiceEnded(Arc<Child>),
    /// A service incarnation that its supervisor had stopped is gone.
    ServiceStopped(Arc<Child>),
    /// Somebody wants something of the services.
    Service(ServiceCommand),
    /// A delay is over.
    Advance,
    /// Fail, as a test wants it.
    #[cfg(feature = "testkit")]
    Panic(String),
}

/// Opens a generation: its supervisor, its registry, its operations. Its services start beside it.
pub(crate) async fn open(
    application: &Arc<ApplicationShared>,
    epoch: Epoch,
    spec: GenerationSpec,
    supervisor: ActorCell,
    cause: Cause,
) -> Result<Arc<Core>, SpawnErr> {
    let core = Core::new(epoch, spec.limits.clone(), Arc::clone(application));
    let opened = core.journal.announce(cause, || (ActorName::Application, EventKind::Opened { epoch }));
    core.events.set_opened(opened);
    let arguments = (Arc::clone(&core), spec);
    let (actor, handle) = Actor::spawn_linked(None, GenerationActor, arguments, supervisor).await?;
    core.actors.keep_handle(KernelActor::Generation, handle);
    let _ = actor.cast(GenerationMessage::Advance);
    Ok(core)
}

struct GenerationActor;

struct State {
    core: Arc<Core>,
    services: Supervisor,
}

impl Drop for State {
    fn drop(&mut self) {
        // However the supervisor ended: authority first. A no-op after an orderly close.
        let reason = CloseReason::Failed("the supervisor was killed".into());
        self.core.begin_close(CloseOrder { reason, cause: None });
    }
}

impl Actor for GenerationActor {
    type Msg = GenerationMessage;
    type State = State;
    type Arguments = (Arc<Core>, GenerationSpec);

    async fn pre_start(
        &self,
        myself: ActorRef<GenerationMessage>,
        (core, spec): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let _ = core.actors.generation.set(myself.clone());
        // Kernel actors only: they do nothing in their own pre_start that could hang.
        let started = announce_start(&core, KernelActor::Registry);
        let (registry, handle) =
            Actor::spawn_linked(None, RegistryActor, Arc::clone(&core), myself.get_cell()).await?;
        let _ = core.actors.registry.set(registry);
        core.actors.keep_handle(KernelActor::Registry, handle);
        core.events.set_opened(started);
        let started = announce_start(&core, KernelActor::Operations);
        let (operations, handle) =
            Actor::spawn_linked(None, OperationsActor, Arc::clone(&core), myself.get_cell()).await?;
        let _ = core.actors.operations.set(operations);
        core.actors.keep_handle(KernelActor::Operations, handle);
        core.events.set_opened(started);
        Ok(State { services: Supervisor::new(Arc::clone(&core), spec), core })
    }

    async fn handle(
        &self,
        _: ActorRef<GenerationMessage>,
        message: GenerationMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.core.chaos.pause().await;
        // A panic here would have ractor kill every child at once. Contained, they are stopped in order.
        if let Err(panic) = contain::call(|| state.services.handle(message)) {
            fail(&state.core, KernelActor::Generation, &panic);
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<GenerationMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let core = &state.core;
        let failed = match &event {
            SupervisionEvent::ActorFailed(cell, _) | SupervisionEvent::ActorTerminated(cell, _, _) => {
                core.actors.which(cell).filter(|_| !core.closing.has_begun())
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        // Children report their ends themselves; of the kernel's own actors an end is a failure.
        if let Some(which) = failed {
            fail(core, which, &why(&event));
        }
        // What is left in it may be a user's.
        drop(contain::call(move || drop(event)));
        Ok(())
    }
}

fn why(end: &SupervisionEvent) -> String {
    match end {
        SupervisionEvent::ActorFailed(_, error) => first_line(&error.to_string()),
        SupervisionEvent::ActorTerminated(_, _, Some(reason)) => reason.clone(),
        _ => "stopped from outside".to_owned(),
    }
}

impl Supervisor {
    fn handle(&mut self, message: GenerationMessage) {
        match message {
            GenerationMessage::ServiceSettled(child, result) => self.settled(&child, result),
            GenerationMessage::ServiceEnded(child) => self.ended(&child),
            GenerationMessage::ServiceStopped(child) => self.stopped_as_told(&child),
            GenerationMessage::Service(command) => self.obey(command),
            GenerationMessage::Advance => {}
            #[cfg(feature = "testkit")]
            #[allow(clippy::panic, reason = "what a test asked for")]
            GenerationMessage::Panic(text) => panic!("{text}"),
        }
        self.advance();
    }
}

fn announce_start(core: &Core, which: KernelActor) -> Cause {
    core.journal.announce(core.events.opened(), || {
        let child = which.name(core.epoch);
        (ActorName::Generation(core.epoch), EventKind::Started { child })
    })
}

/// A part that a generation cannot be without has failed: authority ends in this call.
fn fail(core: &Arc<Core>, which: KernelActor, why: &impl ToString) {
    let name = which.name(core.epoch);
    let reason = CloseReason::Failed(format!("{name} failed: {}", first_line(&why.to_string())).into());
    let failed = core.journal.announce(core.events.opened(), || (name, EventKind::failed("run", why)));
    core.begin_close(CloseOrder { reason, cause: failed });
}
