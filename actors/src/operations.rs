//! Operations: active identities and the keys they exclude each other by, and nothing else.
//!
//! Existence means active. There is no state, time, progress, outcome or history (brief 001; supervision
//! contract, H1 to H7 and O1 to O24). Exclusivity keeps two well-behaved operations apart; it does not replace
//! the check at commit, because writers outside of it exist (H7).
//!
//! As with processes the registration's own word is the truth: a released operation is gone, and its keys are
//! free, in the call that releases it; the actor takes it out of the tables afterwards.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::error::ReserveError;
use crate::event::{ActorName, Cause, EventKind};
use crate::generation::core::Core;
use crate::id::{ExclusivityKey, OperationId};

mod request;

pub use request::{OperationFilter, OperationRegistration, OperationRequest, SessionFilter};

/// One registration, as long as anybody knows of it.
struct Active {
    registration: OperationRegistration,
    keys: Vec<ExclusivityKey>,
    held: AtomicBool,
    seq: u64,
    reserved: Cause,
}

impl Active {
    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }
}

/// The published part of the operations: what readers load.
pub(crate) struct OperationsTable {
    index: papaya::HashMap<OperationId, Arc<Active>, RandomState>,
    count: AtomicUsize,
    next: AtomicU64,
    limit: Option<usize>,
    closed: AtomicBool,
}

impl OperationsTable {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            index: papaya::HashMap::default(),
            count: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            limit,
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Nothing is in the tables, released or not.
    #[cfg(feature = "testkit")]
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0 && self.index.pin().is_empty()
    }

    /// Ends a registration once. Answers whether this call did it.
    fn end(&self, active: &Active) -> bool {
        let ended = active.held.swap(false, Ordering::AcqRel);
        if ended {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        ended
    }

    fn forget(&self, active: &Arc<Active>) {
        let index = self.index.pin();
        // By identity: the id may belong to a successor by now.
        let _ = index.remove_if(&active.registration.operation, |_, found| Arc::ptr_eq(found, active));
    }
}

/// Holds a registration. Releasing it, or dropping it, ends that registration and no other: a stale lease
/// cannot touch a later one with the same id (contract, H3).
#[must_use = "the operation is released as soon as its lease is dropped"]
pub struct OperationLease {
    active: Arc<Active>,
    core: Arc<Core>,
}

impl OperationLease {
    /// What it holds, or held.
    #[must_use]
    pub fn registration(&self) -> &OperationRegistration {
        &self.active.registration
    }

    /// Whether the registration still stands: not released, and not cleared by a close.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.active.is_held()
    }

    /// Ends the registration: when this returns, the operation is gone and its keys are free. Callable from
    /// any thread, again and after the close of its generation: then it does nothing and answers false.
    pub fn release(&self) -> bool {
        self.release_after(None).is_some()
    }

    /// [`OperationLease::release`] because of this event. The event of the release; none if there was nothing
    /// to release.
    pub(crate) fn release_after(&self, cause: Cause) -> Option<Cause> {
        if !self.core.operations.end(&self.active) {
            return None;
        }
        let released = announce_release(&self.core, &self.active, false, cause.or(self.active.reserved));
        let forget = OperationsMessage::forget(&self.active);
        let actor = self.core.actors.operations.get();
        if actor.is_none_or(|actor| actor.cast(forget).is_err()) {
            self.core.operations.forget(&self.active);
        }
        Some(released)
    }

    /// The event of its reservation, if it belongs to this generation.
    pub(crate) fn reserved_in(&self, core: &Arc<Core>) -> Cause {
        self.active.reserved.filter(|_| Arc::ptr_eq(&self.core, core))
    }
}

impl Drop for OperationLease {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for OperationLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys and the identity are private (contract, H3).
        write!(f, "OperationLease({}, held {})", self.active.registration.operation, self.is_held())
    }
}

fn announce_release(core: &Core, active: &Active, cleared: bool, cause: Cause) -> Cause {
    core.journal.emit(cause, || {
        let operation = active.registration.operation.clone();
        (ActorName::Operations(core.epoch), EventKind::Released { operation, cleared })
    })
}

/// The operations' protocol. Public, so that plugin actors written with plain ractor use it directly; the
/// methods of [`Operations`] are thin senders of these messages.
pub enum OperationsMessage {
    /// Registers an operation and takes its keys, all of them or none.
    Reserve {
        /// The operation.
        request: OperationRequest,
        /// Answers the lease, or what is in the way.
        reply: RpcReplyPort<Result<OperationLease, ReserveError>>,
    },
    /// Finds an active operation.
    Get {
        /// Its id.
        operation: OperationId,
        /// Answers its registration; none if it is not active.
        reply: RpcReplyPort<Option<OperationRegistration>>,
    },
    /// Lists active operations in the order of their reservation.
    List {
        /// Which.
        filter: OperationFilter,
        /// Answers their registrations.
        reply: RpcReplyPort<Vec<OperationRegistration>>,
    },
    /// Clears every registration and rejects further ones. Stops no worker (contract, H6).
    Close {
        /// Answers when nothing is visible any more.
        reply: RpcReplyPort<()>,
    },
    /// The kernel's own affairs.
    Kernel(OperationsNotice),
}

/// What the kernel tells its own operations.
pub struct OperationsNotice(Notice);

enum Notice {
    /// A registration ended: take it out of the tables.
    Forget(Arc<Active>),
    /// Fail, as a test wants it.
    #[cfg(feature = "testkit")]
    Panic(String),
}

impl OperationsMessage {
    fn forget(active: &Arc<Active>) -> Self {
        Self::Kernel(OperationsNotice(Notice::Forget(Arc::clone(active))))
    }

    #[cfg(feature = "testkit")]
    pub(crate) fn panic(text: &str) -> Self {
        Self::Kernel(OperationsNotice(Notice::Panic(text.to_owned())))
    }
}

impl fmt::Debug for OperationsMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserve { .. } => "Reserve",
            Self::Get { .. } => "Get",
            Self::List { .. } => "List",
            Self::Close { .. } => "Close",
            Self::Kernel(_) => "Kernel",
        })
    }
}

/// A handle to the operations of one generation. A cheap clone; after the generation was closed it answers
/// *closed* and *empty*, and never reaches the next generation.
#[derive(Clone)]
pub struct Operations {
    core: Arc<Core>,
}

impl Operations {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The actor behind this handle, for plugin actors that send its messages themselves; none only before
    /// the generation has opened.
    #[must_use]
    pub fn actor_ref(&self) -> Option<ActorRef<OperationsMessage>> {
        self.core.actors.operations.get().cloned()
    }

    /// Registers an operation and takes its keys, all of them or none.
    ///
    /// # Errors
    /// Any [`ReserveError`]. A duplicate id is told before a key that is held; of several keys that are held
    /// the first in request order is told.
    ///
    /// Cancel safety: a lease whose caller went away is released.
    pub async fn reserve(&self, request: OperationRequest) -> Result<OperationLease, ReserveError> {
        let Some(actor) = self.core.actors.operations.get() else {
            return Err(ReserveError::Closed);
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = actor.cast(OperationsMessage::Reserve { request, reply: reply.into() });
        if sent.is_err() {
            return Err(ReserveError::Closed);
        }
        self.core.answer(answer).await.unwrap_or(Err(ReserveError::Closed))
    }

    /// The registration of an active operation. Reads the index; never waits for the actor.
    #[must_use]
    pub fn get(&self, operation: &str) -> Option<OperationRegistration> {
        let index = self.core.operations.index.pin();
        index.get(operation).filter(|active| active.is_held()).map(|active| active.registration.clone())
    }

    /// The active operations that pass the filter, in the order of their reservation.
    #[must_use]
    pub fn list(&self, filter: &OperationFilter) -> Vec<OperationRegistration> {
        let index = self.core.operations.index.pin();
        let mut found: Vec<_> = index
            .values()
            .filter(|active| active.is_held() && filter.admits(&active.registration))
            .map(|active| (active.seq, active.registration.clone()))
            .collect();
        found.sort_unstable_by_key(|(seq, _)| *seq);
        found.into_iter().map(|(_, registration)| registration).collect()
    }

    /// How many operations are active.
    #[must_use]
    pub fn count(&self) -> usize {
        self.core.operations.count()
    }

    /// Clears every registration and rejects further ones; leases that are outstanding become harmless. Stops
    /// no worker. Part of the close of a generation, which does this after its processes have ended.
    ///
    /// Cancel safety: the close goes on when the future is dropped after its first poll.
    pub async fn close(&self) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let actor = self.core.actors.operations.get();
        if actor.is_some_and(|actor| actor.cast(OperationsMessage::Close { reply: reply.into() }).is_ok()) {
            // An actor that is gone has cleared everything on its way out.
            let _ = self.core.answer(answer).await;
        }
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operations(epoch {}, active {})", self.core.epoch, self.count())
    }
}

/// The actor. Its state is the table of keys; whoever is in it but not held is as good as gone.
pub(crate) struct OperationsActor;

pub(crate) struct State {
    core: Arc<Core>,
    keys: HashMap<ExclusivityKey, Arc<Active>, RandomState>,
}

impl Actor for OperationsActor {
    type Msg = OperationsMessage;
    type State = State;
    type Arguments = Arc<Core>;

    async fn pre_start(
        &self,
        _: ActorRef<OperationsMessage>,
        core: Arc<Core>,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { core, keys: HashMap::default() })
    }

    async fn handle(
        &self,
        _: ActorRef<OperationsMessage>,
        message: OperationsMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.core.chaos.pause().await;
        let operations = || Operations::new(Arc::clone(&state.core));
        // An answer that nobody waits for any more is no fault of ours; an unclaimed lease is released.
        match message {
            OperationsMessage::Reserve { request, reply } => drop(reply.send(state.reserve(request))),
            OperationsMessage::Get { operation, reply } => {
                drop(reply.send(operations().get(operation.as_str())));
            }
            OperationsMessage::List { filter, reply } => drop(reply.send(operations().list(&filter))),
            OperationsMessage::Close { reply } => {
                state.clear();
                drop(reply.send(()));
            }
            OperationsMessage::Kernel(OperationsNotice(Notice::Forget(active))) => state.forget(&active),
            #[cfg(feature = "testkit")]
            #[allow(clippy::panic, reason = "what a test asked for")]
            OperationsMessage::Kernel(OperationsNotice(Notice::Panic(text))) => panic!("{text}"),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<OperationsMessage>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // Not left to the drop: ractor hands the state to the supervisor, which may get to it only after the
        // end of this actor, or of the whole generation, was told.
        state.clear();
        Ok(())
    }
}

impl State {
    fn reserve(&mut self, request: OperationRequest) -> Result<OperationLease, ReserveError> {
        let operation = request.registration.operation.clone();
        self.admit(request).inspect_err(|error| self.refused(&operation, error))
    }

    /// All or nothing: every check comes before the first change, and nothing else runs in between.
    fn admit(&mut self, request: OperationRequest) -> Result<OperationLease, ReserveError> {
        let OperationRequest { registration, mut keys, without_exclusivity } = request;
        let table = &self.core.operations;
        if keys.is_empty() && !without_exclusivity {
            let problem = "is empty, expected at least one, or a request without exclusivity".to_owned();
            return Err(ReserveError::Invalid { field: "exclusivity keys", problem });
        }
        if self.core.is_sealed() || table.closed.load(Ordering::Acquire) {
            return Err(ReserveError::Closed);
        }
        if let Some(existing) =
            table.index.pin().get(&registration.operation).filter(|active| active.is_held())
        {
            return Err(ReserveError::DuplicateOperation(existing.registration.clone()));
        }
        let holder = keys.iter().find_map(|key| self.keys.get(key).filter(|active| active.is_held()));
        if let Some(holder) = holder {
            return Err(ReserveError::Busy(holder.registration.clone()));
        }
        if let Some(limit) = table.limit.filter(|limit| table.count() >= *limit) {
            return Err(ReserveError::TooManyOperations { operation: registration.operation, limit });
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(self.enter(registration, keys))
    }

    fn enter(&mut self, registration: OperationRegistration, keys: Vec<ExclusivityKey>) -> OperationLease {
        let core = &self.core;
        let reserved = core.journal.emit(core.events.opened(), || {
            let OperationRegistration { operation, owner, session } = registration.clone();
            (ActorName::Operations(core.epoch), EventKind::Reserved { operation, owner, session })
        });
        let seq = core.operations.next.fetch_add(1, Ordering::Relaxed);
        let active = Arc::new(Active { registration, keys, held: AtomicBool::new(true), seq, reserved });
        for key in &active.keys {
            self.keys.insert(key.clone(), Arc::clone(&active));
        }
        core.operations.count.fetch_add(1, Ordering::AcqRel);
        core.operations.index.pin().insert(active.registration.operation.clone(), Arc::clone(&active));
        OperationLease { active, core: Arc::clone(core) }
    }

    fn refused(&self, operation: &OperationId, error: &ReserveError) {
        let core = &self.core;
        let holder = match error {
            ReserveError::Busy(holder) | ReserveError::DuplicateOperation(holder) => {
                core.operations.index.pin().get(&holder.operation).and_then(|active| active.reserved)
            }
            _ => None,
        };
        core.journal.emit(holder.or(core.events.sealed()).or(core.events.opened()), || {
            let (what, why) = (operation.as_str().into(), error.to_string().into());
            (ActorName::Operations(core.epoch), EventKind::Refused { what, why })
        });
    }

    fn forget(&mut self, active: &Arc<Active>) {
        for key in &active.keys {
            if self.keys.get(key).is_some_and(|holder| Arc::ptr_eq(holder, active)) {
                self.keys.remove(key);
            }
        }
        self.core.operations.forget(active);
    }

    fn clear(&mut self) {
        self.keys.clear();
        close_table(&self.core);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // However the actor ended: nothing is visible any more, and outstanding leases are harmless.
        close_table(&self.core);
    }
}

fn close_table(core: &Core) {
    let table = &core.operations;
    table.closed.store(true, Ordering::Release);
    let index = table.index.pin();
    let mut left: Vec<_> = index.values().cloned().collect();
    left.sort_unstable_by_key(|active| active.seq);
    for active in left {
        if table.end(&active) {
            announce_release(core, &active, true, core.events.sealed().or(active.reserved));
        }
    }
    index.clear();
}
