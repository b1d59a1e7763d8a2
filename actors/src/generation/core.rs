//! What the actors, the children and the handles of one generation share.
//!
//! Admission adds to the index and the ledger, one at a time; the registry actor and the closer take away.
//! Readers take no lock but the ledger's, and that only to draw a tree.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use ractor::{ActorCell, ActorRef, ActorStatus};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::application::Shared as ApplicationShared;
use crate::chaos::Chaos;
use crate::child::{Child, Place};
use crate::error::CloseError;
use crate::event::{ActorName, Cause, EventKind};
use crate::exit::{ExitReason, KillReason};
use crate::gate::Gate;
use crate::generation::report::{CloseReport, Counters};
use crate::generation::{CloseOrder, GenerationMessage, ServiceKey};
use crate::id::Epoch;
use crate::journal::{Journal, Watchable};
use crate::operations::{OperationsMessage, OperationsTable};
use crate::registry::RegistryMessage;
use crate::rules::Patience;
use crate::runtime_store::Store;
use crate::service::ServiceInfo;
use crate::settings::Limits;

mod admission;
mod index;
mod order;

use admission::Ledger;
use index::Index;

/// The shared state of one generation.
pub(crate) struct Core {
    pub(crate) epoch: Epoch,
    pub(crate) limits: Limits,
    /// Where it was opened: children run there, whoever starts them.
    pub(crate) runtime: Handle,
    pub(crate) journal: Journal,
    pub(crate) application: Arc<ApplicationShared>,
    pub(crate) chaos: Chaos,
    /// Set once, when authority ends: what is asked of the generation is refused from then on. Commits do not
    /// look at it; their own gates are closed in the same call.
    sealed: AtomicBool,
    /// Weak: what is taken out of it may linger until the map reclaims it, and must not keep an ended child,
    /// its object and, through them, this very generation. The ledger holds every child that is in it.
    index: Index,
    /// How many ids are taken.
    pub(crate) names: AtomicUsize,
    ledger: Mutex<Ledger>,
    /// The processes that are being closed, in start order.
    closing_processes: Mutex<Arc<Vec<Arc<Child>>>>,
    /// Ended children with effects still in flight; each is counted when it is drained.
    undrained: Mutex<Vec<Arc<Child>>>,
    processes: Population,
    services: Population,
    pub(crate) counters: Counters,
    pub(crate) operations: OperationsTable,
    pub(crate) store: Store,
    pub(crate) actors: Actors,
    pub(crate) events: Events,
    pub(crate) closing: Closing,
    /// The services as readers see them.
    pub(crate) service_list: RwLock<BTreeMap<ServiceKey, ServiceInfo>>,
    /// The services given at open have started.
    pub(crate) ready: watch::Sender<bool>,
    /// Steps 2 to 4 of the close, which the close of the registry alone takes too.
    pub(crate) processes_ended: OnceCell<()>,
    pub(crate) registry_report: OnceCell<Arc<CloseReport>>,
}

/// Whether the close has begun, and what came of it.
pub(crate) struct Closing {
    begun: AtomicBool,
    outcome: watch::Sender<Option<Result<Arc<CloseReport>, CloseError>>>,
    epoch: Epoch,
}

/// Publishes the outcome of a close, and frees what the generation held, also when the closing task is taken
/// away: children hold their generation.
pub(crate) struct ClosingGuard {
    core: Arc<Core>,
}

impl Closing {
    fn new(epoch: Epoch) -> Self {
        Self { begun: AtomicBool::new(false), outcome: watch::Sender::new(None), epoch }
    }

    /// True for the first caller.
    pub(crate) fn begin(&self) -> bool {
        !self.begun.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// The report, if the close is over.
    pub(crate) fn report(&self) -> Option<Arc<CloseReport>> {
        self.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().cloned())
    }

    /// Completes when the close is over.
    pub(crate) async fn outcome(&self) -> Result<Arc<CloseReport>, CloseError> {
        let mut outcome = self.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            _ => Err(CloseError::RuntimeEnded { epoch: self.epoch }),
        }
    }
}

impl ClosingGuard {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn publish(&self, report: CloseReport) {
        self.core.closing.outcome.send_replace(Some(Ok(Arc::new(report))));
    }
}

impl Drop for ClosingGuard {
    fn drop(&mut self) {
        let epoch = self.core.epoch;
        self.core.closing.outcome.send_if_modified(|outcome| {
            let left_open = outcome.is_none();
            if left_open {
                *outcome = Some(Err(CloseError::RuntimeEnded { epoch }));
            }
            left_open
        });
        self.core.clear();
    }
}

/// The kernel actors of a generation, known once they run.
#[derive(Default)]
pub(crate) struct Actors {
    pub(crate) generation: OnceLock<ActorRef<GenerationMessage>>,
    pub(crate) registry: OnceLock<ActorRef<RegistryMessage>>,
    pub(crate) operations: OnceLock<ActorRef<OperationsMessage>>,
    handles: Mutex<HashMap<KernelActor, JoinHandle<()>>>,
}

/// The actors that every generation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum KernelActor {
    Generation,
    Registry,
    Operations,
}

impl KernelActor {
    pub(crate) fn name(self, epoch: Epoch) -> ActorName {
        match self {
            Self::Generation => ActorName::Generation(epoch),
            Self::Registry => ActorName::Registry(epoch),
            Self::Operations => ActorName::Operations(epoch),
        }
    }
}

impl Actors {
    pub(crate) fn keep_handle(&self, which: KernelActor, handle: JoinHandle<()>) {
        self.handles.lock().insert(which, handle);
    }

    fn cell(&self, which: KernelActor) -> Option<&ActorCell> {
        match which {
            KernelActor::Generation => self.generation.get().map(|actor| &**actor),
            KernelActor::Registry => self.registry.get().map(|actor| &**actor),
            KernelActor::Operations => self.operations.get().map(|actor| &**actor),
        }
    }

    /// Which kernel actor this is, if it is one.
    pub(crate) fn which(&self, cell: &ActorCell) -> Option<KernelActor> {
        [KernelActor::Registry, KernelActor::Operations]
            .into_iter()
            .find(|which| self.cell(*which).is_some_and(|own| own.get_id() == cell.get_id()))
    }
}

/// Events that later ones name as their causes; 0 = none.
#[derive(Default)]
pub(crate) struct Events {
    first: AtomicU64,
    opened: AtomicU64,
    sealed: AtomicU64,
}

/// Who is let in at a place, and how many start and live there.
pub(crate) struct Population {
    /// Every admission passes it: whoever closed and drained it knows every child there is.
    pub(crate) admissions: Gate,
    starting: AtomicUsize,
    alive: AtomicUsize,
    changed: Notify,
}

impl Population {
    fn new() -> Self {
        Self {
            admissions: Gate::new(),
            starting: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    fn admit(&self) {
        self.starting.fetch_add(1, Ordering::AcqRel);
        self.alive.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn settle(&self) {
        if self.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }

    fn end(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.changed.notify_waiters();
        }
    }

    /// Completes when no start is in progress.
    pub(crate) async fn settled(&self) {
        self.zero(&self.starting).await;
    }

    /// Completes when none lives.
    pub(crate) async fn extinct(&self) {
        self.zero(&self.alive).await;
    }

    async fn zero(&self, count: &AtomicUsize) {
        loop {
            let changed = self.changed.notified();
            if count.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Events {
    pub(crate) fn set_opened(&self, cause: Cause) {
        let _ = self.first.compare_exchange(0, number(cause), Ordering::AcqRel, Ordering::Acquire);
        self.opened.store(number(cause), Ordering::Release);
    }

    /// The opening itself: what an order to close follows from.
    pub(crate) fn first(&self) -> Cause {
        cause(self.first.load(Ordering::Acquire))
    }

    /// The last step of the opening: what admissions follow from.
    pub(crate) fn opened(&self) -> Cause {
        cause(self.opened.load(Ordering::Acquire))
    }

    pub(crate) fn sealed(&self) -> Cause {
        cause(self.sealed.load(Ordering::Acquire))
    }
}

fn number(cause: Cause) -> u64 {
    cause.map_or(0, crate::event::EventId::get)
}

fn cause(number: u64) -> Cause {
    std::num::NonZeroU64::new(number).map(crate::event::EventId)
}

impl Core {
    pub(crate) fn new(epoch: Epoch, limits: Limits, application: Arc<ApplicationShared>) -> Arc<Self> {
        let core = Arc::new(Self {
            epoch,
            runtime: Handle::current(),
            journal: application.journal.clone(),
            chaos: application.chaos.clone(),
            application,
            sealed: AtomicBool::new(false),
            index: Index::default(),
            names: AtomicUsize::new(0),
            ledger: Mutex::default(),
            closing_processes: Mutex::default(),
            undrained: Mutex::default(),
            processes: Population::new(),
            services: Population::new(),
            counters: Counters::default(),
            operations: OperationsTable::new(limits.max_operations),
            store: Store::default(),
            actors: Actors::default(),
            events: Events::default(),
            closing: Closing::new(epoch),
            service_list: RwLock::default(),
            ready: watch::Sender::new(false),
            processes_ended: OnceCell::new(),
            registry_report: OnceCell::new(),
            limits,
        });
        let watchable: Weak<dyn Watchable> = Arc::downgrade(&core) as _;
        core.journal.tell_of_recorder(watchable);
        core
    }

    pub(crate) fn population(&self, place: Place) -> &Population {
        match place {
            Place::Registry => &self.processes,
            Place::Services => &self.services,
        }
    }

    // --- authority --------------------------------------------------------------------------------------

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Ends the epoch: from here on no commit begins and nothing is admitted. Idempotent.
    ///
    /// The gate of every child is closed in this same call. A child that is being admitted at this very moment
    /// is either met here, or finds the flag set and closes its own gate.
    pub(crate) fn seal(&self, cause: Cause) -> Cause {
        self.processes.admissions.close();
        self.services.admissions.close();
        if self.sealed.swap(true, Ordering::AcqRel) {
            return self.events.sealed();
        }
        self.application.leave(self.epoch);
        self.ledger.lock().services.iter().for_each(|service| service.revoke());
        self.gather_processes();
        let sealed = self
            .journal
            .announce(cause, || (ActorName::Generation(self.epoch), EventKind::Sealed { epoch: self.epoch }));
        self.events.sealed.store(number(sealed), Ordering::Release);
        sealed
    }

    /// Revokes every process there is and moves it to those that are being closed. One pass over many: what
    /// the closer needs is taken along.
    pub(crate) fn gather_processes(&self) -> Arc<Vec<Arc<Child>>> {
        let mut ledger = self.ledger.lock();
        let mut closing = self.closing_processes.lock();
        if !ledger.processes.is_empty() {
            let processes = std::mem::take(&mut ledger.processes).into_iter();
            Arc::make_mut(&mut closing).extend(processes.inspect(|process| process.revoke()));
        }
        Arc::clone(&closing)
    }

    /// The epoch that is open now, as a refusal tells it.
    pub(crate) fn current_epoch(&self) -> Option<Epoch> {
        self.application.current_epoch()
    }

    // --- children ---------------------------------------------------------------------------------------

    /// The services that are not gone, in start order.
    pub(crate) fn services(&self) -> Vec<Arc<Child>> {
        self.ledger.lock().services.iter().cloned().collect()
    }

    /// All children that are not gone, in start order.
    pub(crate) fn all_children(&self) -> Vec<Arc<Child>> {
        let ledger = self.ledger.lock();
        let closing = Arc::clone(&self.closing_processes.lock());
        let mut all: Vec<_> =
            ledger.services.iter().chain(ledger.processes.iter()).chain(closing.iter()).cloned().collect();
        drop(ledger);
        all.sort_unstable_by_key(|child| child.name.seq);
        all
    }

    /// The child registered under `id`, if it still owns it.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Child>> {
        self.index.slot(id).child().filter(|child| child.is_bound())
    }

    /// The children in the index, in no order.
    pub(crate) fn indexed(&self) -> Vec<Arc<Child>> {
        self.index.all()
    }

    /// A child ended. Called once, by the child.
    pub(crate) fn ended(&self, child: &Arc<Child>, never_started: bool) {
        let population = self.population(child.place);
        if never_started {
            population.settle();
        }
        match child.place {
            // Here, and not by a message: what is asked of the actor would wait behind all that ended before. While the
            // generation closes nobody looks anything up: the index goes as a whole.
            Place::Registry if !self.is_sealed() => self.forget(child),
            Place::Registry => {}
            Place::Services => {
                if !self.is_sealed() {
                    self.forget(child);
                }
                if let Some(generation) = self.actors.generation.get() {
                    let _ = generation.cast(GenerationMessage::ServiceEnded(Arc::clone(child)));
                }
            }
        }
        population.end();
    }

    /// Takes an ended child out of the index and the ledger.
    pub(crate) fn forget(&self, child: &Arc<Child>) {
        if child.place == Place::Registry {
            self.index.slot(child.id.as_str()).leave(child);
        }
        self.ledger.lock().of(child.place).take_out(child.name.seq);
    }

    /// Remembers an ended child whose effects are still in flight.
    pub(crate) fn keep_undrained(&self, child: &Arc<Child>) {
        let mut undrained = self.undrained.lock();
        undrained.retain(|child| !self.counters.count_if_drained(child));
        undrained.push(Arc::clone(child));
    }

    /// The ended children with effects in flight.
    pub(crate) fn undrained(&self) -> Vec<Arc<Child>> {
        let mut undrained = self.undrained.lock();
        undrained.retain(|child| !self.counters.count_if_drained(child));
        undrained.clone()
    }

    /// Gives back the tasks of closed processes: each is a page of memory, and no close waits for that.
    pub(crate) fn let_go(&self) {
        let closing = Arc::clone(&self.closing_processes.lock());
        closing.iter().for_each(|process| process.let_go());
    }

    /// Frees what is left of children that have all ended: they hold this generation.
    pub(crate) fn clear(&self) {
        self.let_go();
        self.index.clear();
        // Dropped outside of the locks: what children bring along may look at the tree as it goes.
        let ledger = std::mem::take(&mut *self.ledger.lock());
        let closing = std::mem::take(&mut *self.closing_processes.lock());
        // The report has named those that are left here.
        let undrained = std::mem::take(&mut *self.undrained.lock());
        drop((ledger, closing, undrained));
        self.service_list.write().clear();
    }

    // --- failing and closing ----------------------------------------------------------------------------

    /// Has the generation closed. Authority ends in this call; the rest happens beside it.
    pub(crate) fn begin_close(self: &Arc<Self>, order: CloseOrder) {
        crate::generation::close::begin(self, order);
    }

    /// Waits for what a kernel actor answers; none once it is clear that it never will.
    ///
    /// A message that is being sent while its actor ends may stay in the mailbox, neither handled nor dropped,
    /// for as long as anybody is able to send to it: its reply port alone would be waited for for ever.
    pub(crate) async fn answer<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            answered = &mut answer => answered.ok(),
            // Whatever was answered was answered before the close was over.
            _ = self.closing.outcome() => answer.try_recv().ok(),
        }
    }

    /// Stops a kernel actor and waits until its task is gone. False if it was gone already.
    pub(crate) async fn stop_kernel_actor(&self, which: KernelActor) -> bool {
        let Some(cell) = self.actors.cell(which) else {
            return false;
        };
        let was_alive = cell.get_status() < ActorStatus::Stopping;
        cell.stop(None);
        let handle = self.actors.handles.lock().remove(&which);
        if let Some(handle) = handle {
            let _ = tokio::time::timeout(KERNEL_BOUND, handle).await;
        }
        was_alive
    }

    /// The ractor parent of every child.
    pub(crate) fn supervisor(&self) -> Option<ActorCell> {
        self.actors.generation.get().map(ActorRef::get_cell)
    }
}

impl Watchable for Core {
    fn watch(&self) {
        let ledger = self.ledger.lock();
        let closing = Arc::clone(&self.closing_processes.lock());
        let children = ledger.services.iter().chain(ledger.processes.iter()).chain(closing.iter());
        children.for_each(|child| child.gate.watch());
    }
}

/// How a process ends whose actor was cut off.
pub(crate) fn cut_off(child: &Child) -> ExitReason {
    ExitReason::Killed(child.kill_reason().unwrap_or(KillReason::Stranger))
}

/// The longest that the end of a kernel actor is waited for: it runs no user code.
const KERNEL_BOUND: Duration = Duration::from_secs(1);

/// The patience of a child, as the instant at which it is spent.
pub(crate) fn patience_ends(patience: Patience, told: Instant) -> Option<Instant> {
    match patience {
        Patience::Kill => Some(told),
        Patience::Time(ms) => told.checked_add(Duration::from_millis(ms)),
        Patience::Unlimited => None,
    }
}
