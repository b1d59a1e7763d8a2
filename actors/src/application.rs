//! The application: owns the current generation, replaces it, and replaces it when it fails.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{oneshot, watch};

use crate::chaos::Chaos;
use crate::error::CloseError;
use crate::event::{ActorName, Cause, CloseReason, EventKind};
use crate::generation::core::Core;
use crate::generation::{self, CloseOrder, CloseReport, Generation};
use crate::id::{Epoch, InvalidId, Role};
use crate::inside;
use crate::journal::{Journal, Subscription};
use crate::rules::{ChildEnd, ChildPolicy, Decision, ExitClass, Restart, RestartLimit, RestartState, decide};
use crate::settings::{ApplicationSpec, GenerationSpec};
use crate::tasks;
use crate::tree::Tree;

/// What every generation of an application shares.
pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) chaos: Chaos,
    /// The epoch whose authority stands; 0 between generations.
    current_epoch: AtomicU64,
    actor: OnceLock<ActorRef<ApplicationMessage>>,
    /// Every generation there ever was, while a recorder is attached: their close reports are checked
    /// against the events.
    #[cfg(feature = "testkit")]
    pub(crate) recorded: parking_lot::Mutex<Vec<Generation>>,
}

/// What the actor publishes to the handles. Apart from [`Shared`], which every generation holds: a generation
/// that held itself would never be let go of.
struct Published {
    /// The latest generation, open or not.
    latest: watch::Sender<Option<Generation>>,
    end: watch::Sender<Option<ApplicationEnd>>,
}

impl Shared {
    pub(crate) fn current_epoch(&self) -> Option<Epoch> {
        Epoch::new(self.current_epoch.load(Ordering::Acquire))
    }

    /// This epoch is over, unless a later one is open already.
    pub(crate) fn leave(&self, epoch: Epoch) {
        let _ = self.current_epoch.compare_exchange(epoch.get(), 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// A generation began to close because it failed.
    pub(crate) fn generation_failed(&self, epoch: Epoch, cause: Cause) {
        if let Some(actor) = self.actor.get() {
            let _ = actor.cast(ApplicationMessage::Failed(epoch, cause));
        }
    }
}

/// Why an application is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplicationEnd {
    /// It was closed.
    Closed,
    /// Its generations failed more often than it was told to bear.
    GaveUp {
        /// The limit that was exceeded, as text.
        limit: Arc<str>,
    },
}

/// Why an application was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A service's name is no identifier.
    #[error("service name: {0}")]
    InvalidService(#[from] InvalidId),
    /// Two services have one name.
    #[error("service \"{name}\" is given twice; give each a name of its own")]
    DuplicateService {
        /// The name.
        name: Arc<str>,
    },
    /// There are more services than the limits allow.
    #[error("{services} services are given, expected at most {limit}")]
    TooManyServices {
        /// How many.
        services: usize,
        /// The limit.
        limit: usize,
    },
    /// The first generations failed more often than the application was told to bear.
    #[error("no generation came up: {limit}")]
    GaveUp {
        /// The limit that was exceeded, as text.
        limit: Arc<str>,
    },
    /// The runtime is shutting down.
    #[error("the application could not be started: {0}")]
    Runtime(String),
}

/// Why a generation was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The application is over.
    #[error("the application is closed; open another")]
    ApplicationClosed,
    /// The new generation cannot be opened as it is described; the current one goes on.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// The successor is open, but the close of the generation before it cannot be waited for.
    #[error(transparent)]
    Close(#[from] CloseError),
}

/// A handle to an application. A cheap clone. The application lives until it is closed, whoever holds it.
///
/// ```
/// # use tenure_actors::*;
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let application = Application::open(ApplicationSpec::default()).await?;
/// let registry = application.current().registry();
/// registry.start("hello", ProcessSpec::function("greeter", |_| async { Ok(()) })).await?;
/// let report = application.replace().await?;
/// assert!(report.imbalance().is_none());
/// application.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Application {
    shared: Arc<Shared>,
    published: Arc<Published>,
    first: Generation,
}

impl Application {
    /// Opens an application and its first generation. Answers when the services of that generation have
    /// started.
    ///
    /// # Errors
    /// [`OpenError`], naming the service or the limit that is in the way.
    ///
    /// Cancel safety: dropping the future may leave an application that nobody holds; close it from inside.
    pub async fn open(spec: impl Into<ApplicationSpec>) -> Result<Self, OpenError> {
        let spec = spec.into();
        let journal = Journal::open(spec.journal_capacity);
        Self::open_with(spec, journal, Chaos::default()).await
    }

    pub(crate) async fn open_with(
        spec: ApplicationSpec,
        journal: Journal,
        chaos: Chaos,
    ) -> Result<Self, OpenError> {
        check(&spec.generation)?;
        let shared = Arc::new(Shared {
            journal,
            chaos,
            current_epoch: AtomicU64::new(0),
            actor: OnceLock::new(),
            #[cfg(feature = "testkit")]
            recorded: parking_lot::Mutex::default(),
        });
        let published = Published { latest: watch::Sender::new(None), end: watch::Sender::new(None) };
        let published = Arc::new(published);
        let arguments = (Arc::clone(&shared), Arc::clone(&published), spec);
        let spawned = Actor::spawn(None, ApplicationActor, arguments).await;
        // Its task is never awaited: the end of an application is published by itself.
        drop(spawned.map_err(|error| OpenError::Runtime(error.to_string()))?);
        let first = published.latest.borrow().clone();
        let first = first.ok_or_else(|| OpenError::Runtime("no generation".to_owned()))?;
        let application = Self { shared, published, first };
        application.ready().await?;
        Ok(application)
    }

    #[cfg(feature = "testkit")]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn ready(&self) -> Result<(), OpenError> {
        let mut latest = self.published.latest.subscribe();
        let mut end = self.published.end.subscribe();
        loop {
            latest.mark_unchanged();
            let current = self.current();
            let mut ready = current.core().ready.subscribe();
            tokio::select! {
                biased;
                ended = end.wait_for(Option::is_some) => return match ended.as_deref() {
                    Ok(Some(ApplicationEnd::GaveUp { limit })) => Err(OpenError::GaveUp { limit: Arc::clone(limit) }),
                    _ => Ok(()),
                },
                _ = latest.changed() => {}
                _ = ready.wait_for(|ready| *ready) => return Ok(()),
                // Closed on purpose, from inside: there will be no other, and nothing to wait for.
                () = closed_on_purpose(&current) => return Ok(()),
            }
        }
    }

    /// The latest generation. It may be closed already: between a failure and its replacement, after
    /// [`Generation::close`], and after the application was closed.
    #[must_use]
    pub fn current(&self) -> Generation {
        self.published.latest.borrow().clone().unwrap_or_else(|| self.first.clone())
    }

    /// The latest generation after `epoch`, as soon as there is one; none if the application ends before. For
    /// those whose generation was replaced and who go on in its successor. Its services may still be starting.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn after(&self, epoch: Epoch) -> Option<Generation> {
        let mut latest = self.published.latest.subscribe();
        let mut end = self.published.end.subscribe();
        let is_after = |latest: &Option<Generation>| latest.as_ref().is_some_and(|open| open.epoch() > epoch);
        tokio::select! {
            biased;
            found = latest.wait_for(is_after) => found.ok().and_then(|found| found.clone()),
            _ = end.wait_for(Option::is_some) => None,
        }
    }

    /// Seals the current generation, opens the next at once and closes the old one beside it. Answers the
    /// report of the old one. What the old one still does has no effect from the moment of the seal.
    ///
    /// # Errors
    /// [`ReplaceError`]. From inside a process of the old generation [`CloseError::Inside`]: the replacement
    /// is made, its end is not waited for.
    ///
    /// Cancel safety: the replacement goes on when the future is dropped after its first poll.
    pub async fn replace(&self) -> Result<Arc<CloseReport>, ReplaceError> {
        self.replace_from(None).await
    }

    /// [`Application::replace`] with another description of the next generations.
    ///
    /// # Errors
    /// As [`Application::replace`]; a description that cannot be opened is refused and changes nothing.
    ///
    /// Cancel safety: as [`Application::replace`].
    pub async fn replace_with(&self, spec: GenerationSpec) -> Result<Arc<CloseReport>, ReplaceError> {
        check(&spec)?;
        self.replace_from(Some(spec)).await
    }

    async fn replace_from(&self, spec: Option<GenerationSpec>) -> Result<Arc<CloseReport>, ReplaceError> {
        let replaced = self
            .call(|reply| ApplicationMessage::Replace(spec.map(Box::new), reply))
            .await
            .ok_or(ReplaceError::ApplicationClosed)?;
        Ok(replaced.closed().await?)
    }

    /// Closes the application: its current generation, and those that were being closed. Answers the report
    /// of the last generation; again and to every caller.
    ///
    /// # Errors
    /// [`CloseError::Inside`] when one of its own processes asks: the close goes on without it waiting.
    ///
    /// Cancel safety: the close goes on when the future is dropped after its first poll.
    pub async fn close(&self) -> Result<Arc<CloseReport>, CloseError> {
        let ending = self.call(ApplicationMessage::Close).await.unwrap_or_default();
        // Also one that was replaced and still drains: the end of the application waits for it.
        if let Some(own) = ending.iter().find(|generation| inside::is_inside(generation.core())) {
            return Err(CloseError::Inside { epoch: own.epoch() });
        }
        self.ended().await;
        self.current().closed().await
    }

    async fn call<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> ApplicationMessage) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.actor.get()?.cast(message(reply)).ok()?;
        answer.await.ok()
    }

    /// Completes when the application is over: closed, or given up.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn ended(&self) -> ApplicationEnd {
        let mut end = self.published.end.subscribe();
        match end.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(end)) => end.clone(),
            _ => ApplicationEnd::Closed,
        }
    }

    /// The journal of all its generations.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Follows the journal from here on.
    #[must_use]
    pub fn events(&self) -> Subscription {
        self.shared.journal.subscribe()
    }

    /// The live supervision tree of the latest generation.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.current().tree()
    }
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Application").field("current", &self.current()).finish()
    }
}

/// Completes if the generation is closed without having failed: nobody will open another in its stead.
async fn closed_on_purpose(generation: &Generation) {
    match generation.core().closing.outcome().await {
        Ok(report) if matches!(report.reason, CloseReason::Failed(_)) => std::future::pending().await,
        Ok(_) | Err(_) => {}
    }
}

/// What can be told about a description without opening it.
fn check(spec: &GenerationSpec) -> Result<(), OpenError> {
    let services = spec.services.len();
    if let Some(limit) = spec.limits.max_services.filter(|limit| services > *limit) {
        return Err(OpenError::TooManyServices { services, limit });
    }
    let mut names = std::collections::HashSet::new();
    for service in &spec.services {
        Role::new(Arc::clone(&service.name))?;
        if !names.insert(&service.name) {
            return Err(OpenError::DuplicateService { name: Arc::clone(&service.name) });
        }
    }
    Ok(())
}

pub(crate) enum ApplicationMessage {
    /// Answers the generation that was replaced, once its successor is open.
    Replace(Option<Box<GenerationSpec>>, oneshot::Sender<Generation>),
    /// Answers when the close has begun, with the generations that it waits for.
    Close(oneshot::Sender<Vec<Generation>>),
    Failed(Epoch, Cause),
    /// The back-off after the failure of this epoch is over.
    Reopen(Epoch, Cause),
    Over,
}

struct ApplicationActor;

struct State {
    shared: Arc<Shared>,
    published: Arc<Published>,
    spec: ApplicationSpec,
    current: Generation,
    limit: RestartLimit,
    restarts: RestartState,
    /// Generations whose close is not over.
    closing: Vec<Generation>,
    is_closing: bool,
}

impl Actor for ApplicationActor {
    type Msg = ApplicationMessage;
    type State = State;
    type Arguments = (Arc<Shared>, Arc<Published>, ApplicationSpec);

    async fn pre_start(
        &self,
        myself: ActorRef<ApplicationMessage>,
        (shared, published, spec): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let _ = shared.actor.set(myself.clone());
        let core = open(&shared, &published, &spec, spec.first_epoch, (&myself, None)).await?;
        let policy =
            ChildPolicy { restart: Restart::Permanent, backoff: spec.backoff, ..ChildPolicy::default() };
        let (limit, restarts) = (RestartLimit::new(spec.intensity), RestartState::new(&policy));
        let current = Generation::new(core);
        let closing = Vec::new();
        Ok(State { shared, published, spec, current, limit, restarts, closing, is_closing: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<ApplicationMessage>,
        message: ApplicationMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.shared.chaos.pause().await;
        match message {
            ApplicationMessage::Replace(spec, reply) => state.replace(&myself, spec, reply).await?,
            ApplicationMessage::Close(reply) => state.close(&myself, reply),
            ApplicationMessage::Failed(epoch, cause) => state.failed(&myself, epoch, cause),
            ApplicationMessage::Reopen(epoch, cause)
                if epoch == state.current.epoch() && !state.is_closing =>
            {
                state.open_next(&myself, cause).await?;
            }
            ApplicationMessage::Reopen(..) => {}
            ApplicationMessage::Over => myself.stop(None),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<ApplicationMessage>,
        _: SupervisionEvent,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // Generations report their failures themselves, before they end.
        Ok(())
    }
}

async fn open(
    shared: &Arc<Shared>,
    published: &Published,
    spec: &ApplicationSpec,
    epoch: Epoch,
    (myself, cause): (&ActorRef<ApplicationMessage>, Cause),
) -> Result<Arc<Core>, ActorProcessingErr> {
    // First: a generation that fails while it opens leaves its epoch, which nobody may then enter again.
    shared.current_epoch.store(epoch.get(), Ordering::Release);
    let core = generation::open(shared, epoch, spec.generation.clone(), myself.get_cell(), cause).await?;
    published.latest.send_replace(Some(Generation::new(Arc::clone(&core))));
    #[cfg(feature = "testkit")]
    if shared.journal.is_recording() {
        shared.recorded.lock().push(Generation::new(Arc::clone(&core)));
    }
    Ok(core)
}

impl State {
    async fn open_next(
        &mut self,
        myself: &ActorRef<ApplicationMessage>,
        cause: Cause,
    ) -> Result<(), ActorProcessingErr> {
        let epoch = self.current.epoch().next();
        let core = open(&self.shared, &self.published, &self.spec, epoch, (myself, cause)).await?;
        self.restarts.started(self.shared.journal.now_ms());
        let before = std::mem::replace(&mut self.current, Generation::new(core));
        self.closing.retain(|closing| closing.report().is_none());
        self.closing.push(before);
        Ok(())
    }

    async fn replace(
        &mut self,
        myself: &ActorRef<ApplicationMessage>,
        spec: Option<Box<GenerationSpec>>,
        reply: oneshot::Sender<Generation>,
    ) -> Result<(), ActorProcessingErr> {
        if self.is_closing {
            return Ok(());
        }
        if let Some(spec) = spec {
            self.spec.generation = *spec;
        }
        let replaced = self.current.clone();
        replaced.core().begin_close(CloseOrder { reason: CloseReason::Superseded, cause: None });
        self.open_next(myself, replaced.core().events.sealed()).await?;
        let _ = reply.send(replaced);
        Ok(())
    }

    fn failed(&mut self, myself: &ActorRef<ApplicationMessage>, epoch: Epoch, cause: Cause) {
        if epoch != self.current.epoch() || self.is_closing {
            return;
        }
        let at_ms = self.shared.journal.now_ms();
        let end = ChildEnd { class: ExitClass::Abnormal, at_ms, seed: self.spec.generation.seed };
        match decide(end, &mut self.restarts, &mut self.limit) {
            Decision::Restart { delay_ms, attempt } => {
                let retried = self.shared.journal.announce(cause, || {
                    let child = ActorName::Generation(epoch.next());
                    (ActorName::Application, EventKind::Retried { child, attempt: attempt + 1, delay_ms })
                });
                let myself = myself.clone();
                tasks::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                    let _ = myself.cast(ApplicationMessage::Reopen(epoch, retried));
                });
            }
            Decision::GiveUp { restarts, period_ms, .. } => {
                let limit: Arc<str> =
                    format!("limit of {restarts} restarts in {period_ms}ms exceeded").into();
                self.shared.journal.announce(cause, || {
                    let (what, why) = ("the application".into(), Arc::clone(&limit));
                    (ActorName::Application, EventKind::GaveUp { what, why })
                });
                self.finish(myself, ApplicationEnd::GaveUp { limit });
            }
            // A permanent child is restarted or given up.
            Decision::Keep | Decision::Forget => {}
        }
    }

    fn close(&mut self, myself: &ActorRef<ApplicationMessage>, reply: oneshot::Sender<Vec<Generation>>) {
        let order = CloseOrder { reason: CloseReason::ApplicationClosed, cause: None };
        self.current.core().begin_close(order);
        let _ = reply.send(self.ending());
        if !self.is_closing {
            self.finish(myself, ApplicationEnd::Closed);
        }
    }

    /// The generations whose close the end of the application waits for.
    fn ending(&self) -> Vec<Generation> {
        self.closing.iter().chain([&self.current]).cloned().collect()
    }

    /// Publishes the end once every generation is closed, and ends this actor.
    fn finish(&mut self, myself: &ActorRef<ApplicationMessage>, end: ApplicationEnd) {
        self.is_closing = true;
        let closing = self.ending();
        let (published, myself) = (Arc::clone(&self.published), myself.clone());
        tasks::spawn(async move {
            for generation in closing {
                // A close that was cut off by the runtime has revoked its authority all the same.
                let _ = generation.core().closing.outcome().await;
            }
            published.end.send_replace(Some(end));
            let _ = myself.cast(ApplicationMessage::Over);
        });
    }
}
