//! A child of a generation: what the kernel knows about one process or one incarnation of a service.
//!
//! The child's own words are the truth and the registry's index is only a way to find it: a name is free, a
//! process is gone, an effect is refused as soon as the child says so. Invariants:
//!
//! 1. *Each id is given up once.* Giving it up is one compare-and-set of the phase of this very child, so a
//!    stale removal, a late end or a repeated release cannot touch a successor: it holds another child.
//! 2. *The end is announced once,* by whoever sets `exit` first, after the id was given up: whoever sees the
//!    end finds the name free.
//! 3. *No effect begins after the end was announced.* The gate is closed first.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use ractor::ActorCell;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::event::{ActorName, Cause, ChildName, EventKind, StopReason};
use crate::exit::{ExitReason, KillReason, PanicText};
use crate::gate::Gate;
use crate::generation::core::Core;
use crate::id::{FencingToken, ProcessId};
use crate::operations::OperationLease;
use crate::process::{ProcessKind, ProcessState, Progress};
use crate::rules::Patience;

mod orders;
mod phase;

use orders::{Order, Orders};
use phase::{Phase, Removal};

/// One process, or one incarnation of a service.
pub(crate) struct Child {
    pub(crate) core: Arc<Core>,
    pub(crate) name: ChildName,
    /// The process id; a service's is its name.
    pub(crate) id: ProcessId,
    pub(crate) place: Place,
    pub(crate) kind: ProcessKind,
    pub(crate) patience: Patience,
    pub(crate) gate: Gate,
    phase: Phase,
    orders: Orders,
    /// Woken at every change that somebody may wait for: settled, told to stop, cut off, ended.
    changed: Notify,
    exit: OnceLock<ExitReason>,
    /// The concrete object: an `Arc<T>` of an object, the `ActorRef<M>` of an actor. Its wrapper holds it: an
    /// object that keeps its context would otherwise keep itself.
    object: OnceLock<Weak<dyn Any + Send + Sync>>,
    tasks: Mutex<Tasks>,
    extras: OnceLock<Box<Extras>>,
}

/// Whether a child is found under its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A managed process, entered in the registry.
    Registry,
    /// A service, restarted by its spec.
    Services,
}

/// The ractor side of a child.
#[derive(Default)]
struct Tasks {
    /// Kill goes here; stop too, if there is no other.
    wrapper: Option<ActorCell>,
    /// The plugin's own actor: stop goes here, and kill as well.
    inner: Option<ActorCell>,
    /// Done means gone.
    wrapper_task: Option<JoinHandle<()>>,
    inner_task: Option<JoinHandle<()>>,
}

impl Tasks {
    fn are_over(&self) -> bool {
        let is_over = |task: &Option<JoinHandle<()>>| task.as_ref().is_none_or(JoinHandle::is_finished);
        is_over(&self.wrapper_task) && is_over(&self.inner_task)
    }
}

/// What few children need.
#[derive(Default)]
struct Extras {
    token: CancellationToken,
    progress: Mutex<Option<Progress>>,
    leases: Mutex<Vec<OperationLease>>,
    fence: OnceLock<FencingToken>,
    late_panic: OnceLock<PanicText>,
    trail: Mutex<Trail>,
}

/// The events that later ones name as their causes.
#[derive(Default, Clone, Copy)]
pub(crate) struct Trail {
    pub(crate) started: Cause,
    pub(crate) stopped: Cause,
    pub(crate) last: Cause,
}

impl Child {
    pub(crate) fn new(
        core: Arc<Core>,
        name: ChildName,
        id: ProcessId,
        place: Place,
        kind: ProcessKind,
        patience: Patience,
    ) -> Self {
        Self {
            core,
            name,
            id,
            place,
            kind,
            patience,
            gate: Gate::new(),
            phase: Phase::starting(),
            orders: Orders::none(),
            changed: Notify::new(),
            exit: OnceLock::new(),
            object: OnceLock::new(),
            tasks: Mutex::default(),
            extras: OnceLock::new(),
        }
    }

    pub(crate) fn actor_name(&self) -> ActorName {
        ActorName::Child(self.name.clone())
    }

    fn extras(&self) -> &Extras {
        self.extras.get_or_init(Box::default)
    }

    // --- finding it -------------------------------------------------------------------------------------

    /// What it does under its id; none once the id is free.
    pub(crate) fn state(&self) -> Option<ProcessState> {
        self.phase.state()
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.phase.is_bound()
    }

    /// It was removed, or is being removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.phase.is_leaving()
    }

    pub(crate) fn object(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.object.get()?.upgrade()
    }

    /// Whether this child is that very object.
    pub(crate) fn is_object(&self, object: &Arc<dyn Any + Send + Sync>) -> bool {
        self.object.get().is_some_and(|own| std::ptr::addr_eq(own.as_ptr(), Arc::as_ptr(object)))
    }

    pub(crate) fn set_object(&self, object: &Arc<dyn Any + Send + Sync>) {
        let _ = self.object.set(Arc::downgrade(object));
    }

    // --- its life ---------------------------------------------------------------------------------------

    /// The actor of this child, once it runs.
    pub(crate) fn set_wrapper(&self, wrapper: ActorCell, handle: JoinHandle<()>) {
        {
            let mut tasks = self.tasks.lock();
            tasks.wrapper = Some(wrapper);
            tasks.wrapper_task = Some(handle);
        }
        self.repeat_orders();
    }

    /// The plugin's own actor, which is stopped in the wrapper's stead. The child is not gone before it is.
    pub(crate) fn set_inner_actor(&self, inner: ActorCell, handle: JoinHandle<()>) {
        {
            let mut tasks = self.tasks.lock();
            tasks.inner = Some(inner);
            tasks.inner_task = Some(handle);
        }
        self.repeat_orders();
    }

    /// Orders given before there was an actor to take them. Orders are set before the actor is looked up,
    /// the actor before the orders are: one of the two sees the other.
    fn repeat_orders(&self) {
        if self.kill_reason().is_some() {
            self.send_kill();
        } else if self.is_told_to_stop() {
            self.send_stop();
        }
    }

    /// The start succeeded. Binds the id, unless its removal was requested meanwhile.
    ///
    /// False when the child was given up before: its start held its thread, beyond the kill.
    pub(crate) fn settle_started(self: &Arc<Self>, started: Cause) -> bool {
        if self.orders.has(Order::End) {
            return false;
        }
        self.note(|trail| trail.started = started, started);
        self.core.counters.started(self.place);
        if self.place == Place::Registry {
            let bound = self.core.journal.emit(started, || {
                let (process, child) = (self.id.clone(), self.name.clone());
                (ActorName::Registry(self.name.epoch), EventKind::Bound { process, child })
            });
            self.note(|_| {}, bound);
        }
        if !self.phase.bind() {
            self.revoke();
            if self.give_up_id().is_none() {
                // Given up this very moment: whoever did it has counted it as never started.
                self.core.counters.not_started(self.place);
                return false;
            }
        }
        self.core.population(self.place).settle();
        self.changed.notify_waiters();
        true
    }

    /// Requests the removal of this child: its authority ends and its id is given up, in this order, now or as
    /// soon as it has started.
    ///
    /// Answers whether this call is the one that did it.
    pub(crate) fn remove(self: &Arc<Self>) -> bool {
        match self.phase.begin_removal() {
            Removal::Late => return false,
            Removal::Requested => return true,
            Removal::Begun => self.revoke(),
        }
        if self.phase.end_removal() {
            self.unbound_from(true);
        }
        self.changed.notify_waiters();
        true
    }

    /// Gives up the id, whatever the phase. Answers whether it had started, once.
    fn give_up_id(&self) -> Option<bool> {
        let was_bound = self.phase.give_up()?;
        self.unbound_from(was_bound);
        Some(was_bound)
    }

    fn unbound_from(&self, was_bound: bool) {
        if self.place == Place::Services {
            return;
        }
        // An id whose process never started was reserved, not bound.
        if was_bound || self.trail().started.is_some() {
            self.unbound(self.trail().last);
        } else {
            self.core.names.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn unbound(&self, cause: Cause) {
        self.core.names.fetch_sub(1, Ordering::AcqRel);
        let unbound = self.core.journal.emit(cause, || {
            let (process, child) = (self.id.clone(), self.name.clone());
            (ActorName::Registry(self.name.epoch), EventKind::Unbound { process, child })
        });
        self.note(|_| {}, unbound);
    }

    /// Ends the authority of this child: no effect of it begins from here on.
    pub(crate) fn revoke(&self) {
        self.gate.close();
    }

    /// Ends it in order: authority first, then effects in flight are waited for within the clean-up bound.
    pub(crate) async fn finish(self: &Arc<Self>, exit: ExitReason) {
        self.revoke();
        if !self.gate.is_drained() {
            // Boxed: few children have effects in flight at their end, all would carry the timer.
            Box::pin(self.drain()).await;
        }
        self.end(exit);
    }

    async fn drain(&self) {
        let bound = self.core.limits.cleanup_bound;
        if tokio::time::timeout(bound, self.gate.drained()).await.is_err() {
            self.order(Order::Cut);
        }
    }

    /// Ends it now. Only the first call counts.
    pub(crate) fn end(self: &Arc<Self>, exit: ExitReason) {
        if !self.orders.give(&[Order::End, Order::Cut]) {
            return;
        }
        self.revoke();
        let exit = match self.late_panic() {
            Some(panic) if !exit.is_abnormal() => ExitReason::Panicked(panic.0),
            _ => exit,
        };
        self.announce_end(&exit);
        // Told by the step that gives up the id, so that a start which settles at this moment is counted once.
        let never_started = self.give_up_id() == Some(false);
        self.core.counters.ended(self, &exit, never_started);
        self.release_leases();
        let _ = self.exit.set(exit);
        // Again: what was left with the child since then saw no end yet, and relies on this.
        self.release_leases();
        self.changed.notify_waiters();
        self.core.ended(self, never_started);
    }

    fn announce_end(&self, exit: &ExitReason) {
        let trail = self.trail();
        let ended = self.core.journal.emit(trail.stopped.or(trail.started).or(trail.last), || {
            (self.actor_name(), EventKind::ended(exit))
        });
        self.note(|_| {}, ended);
    }

    fn release_leases(&self) {
        let Some(extras) = self.extras.get() else {
            return;
        };
        // Outside the lock: releasing runs the operations' code.
        let leases = std::mem::take(&mut *extras.leases.lock());
        for lease in leases {
            if lease.reserved_in(&self.core).is_some() {
                let released = lease.release_after(self.trail().last);
                self.note(|_| {}, released.flatten());
            } else {
                lease.release();
            }
        }
    }

    /// The reservation of an operation that it holds: what its admission follows from.
    pub(crate) fn held_since(&self) -> Cause {
        let leases = self.extras.get()?.leases.lock();
        leases.iter().filter_map(|lease| lease.reserved_in(&self.core)).max()
    }

    pub(crate) fn exit(&self) -> Option<&ExitReason> {
        self.exit.get()
    }

    /// Completes at the end, with how it ended; at once when it has ended already.
    pub(crate) async fn ended(&self) -> ExitReason {
        self.wait_for(|child| child.exit.get().cloned()).await
    }

    /// Completes when it has left the starting phase.
    pub(crate) async fn settled(&self) {
        self.wait_for(|child| (!child.phase.is_starting() || child.exit.get().is_some()).then_some(())).await;
    }

    /// Completes when its actors are gone too; at once if it was abandoned. For one waiter: the handles are
    /// taken.
    pub(crate) async fn gone(&self) {
        if matches!(self.ended().await, ExitReason::Abandoned) {
            return;
        }
        let (wrapper, inner) = {
            let mut tasks = self.tasks.lock();
            (tasks.wrapper_task.take(), tasks.inner_task.take())
        };
        for task in [inner, wrapper].into_iter().flatten() {
            // An actor's task answers an error only when the runtime aborted it: gone as well.
            let _ = task.await;
        }
    }

    /// It has ended, and its actors are gone too.
    pub(crate) fn is_gone(&self) -> bool {
        self.exit.get().is_some() && self.tasks.lock().are_over()
    }

    /// Gives back the tasks of its actors if these are gone: somebody may hold this child for long.
    pub(crate) fn let_go(&self) {
        let mut tasks = self.tasks.lock();
        if tasks.are_over() {
            (tasks.wrapper_task, tasks.inner_task) = (None, None);
        }
    }

    async fn wait_for<T>(&self, look: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(seen) = look(self) {
                return seen;
            }
            changed.await;
        }
    }

    // --- orders -----------------------------------------------------------------------------------------

    fn order(&self, order: Order) {
        self.orders.give(&[order]);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_told_to_stop(&self) -> bool {
        self.orders.has(Order::Stop)
    }

    /// Tells it to stop, or kills it at once, if that is its patience. Answers the cause for the next.
    pub(crate) fn tell(&self, reason: StopReason, cause: Cause) -> Cause {
        match self.patience {
            Patience::Kill => {
                self.kill(KillReason::PatienceSpent);
                cause
            }
            Patience::Time(_) | Patience::Unlimited => self.stop(reason, cause).or(cause),
        }
    }

    /// Tells it to stop: its token is cancelled and its actor gets a stop message. Idempotent.
    pub(crate) fn stop(&self, reason: StopReason, cause: Cause) -> Cause {
        if self.orders.has(Order::End) || !self.orders.give(&[Order::Stop]) {
            return self.trail().stopped;
        }
        let stopped = self.core.journal.emit(cause, || {
            let child = self.actor_name();
            (ActorName::Generation(self.name.epoch), EventKind::StopSent { child, reason })
        });
        self.note(|trail| trail.stopped = stopped, stopped);
        // After the event: what it brings about is told later.
        self.changed.notify_waiters();
        if let Some(extras) = self.extras.get() {
            extras.token.cancel();
        }
        self.send_stop();
        stopped
    }

    /// The plugin's own actor stops in order. A kill never comes here.
    pub(crate) fn note_stopped_in_order(&self) {
        self.orders.give(&[Order::Stopped]);
    }

    pub(crate) fn stopped_in_order(&self) -> bool {
        self.orders.has(Order::Stopped)
    }

    /// Sends the stop message alone, to an actor that waits for one. Functions and objects were told by the order
    /// itself, and their actors end with them.
    fn send_stop(&self) {
        if self.kind != ProcessKind::Actor {
            return;
        }
        let target = {
            let tasks = self.tasks.lock();
            tasks.inner.as_ref().or(tasks.wrapper.as_ref()).cloned()
        };
        if let Some(target) = target {
            target.stop(None);
        }
    }

    /// Cuts it off at its next await.
    pub(crate) fn kill(&self, reason: KillReason) {
        if self.exit.get().is_some() || self.kill_reason().is_some() {
            // Killed already, and perhaps not gone yet; an actor that comes late gets the order again.
            return;
        }
        let kill = match reason {
            KillReason::PatienceSpent => Order::KillPatience,
            KillReason::DeadlineReached | KillReason::Stranger => Order::KillDeadline,
        };
        self.orders.give(&[kill, Order::Cut, Order::Stop]);
        let killed = self.core.journal.announce(self.trail().stopped, || {
            let child = self.actor_name();
            (ActorName::Generation(self.name.epoch), EventKind::Killed { child, reason })
        });
        self.note(|trail| trail.stopped = killed.or(trail.stopped), killed);
        // First: what is woken below must not get another turn out of it.
        self.send_kill();
        self.changed.notify_waiters();
    }

    fn send_kill(&self) {
        let targets = {
            let tasks = self.tasks.lock();
            [tasks.inner.clone(), tasks.wrapper.clone()]
        };
        for target in targets.into_iter().flatten() {
            target.kill();
        }
    }

    /// Why it was killed, if we had it killed.
    pub(crate) fn kill_reason(&self) -> Option<KillReason> {
        self.orders.kill_reason()
    }

    /// Completes when it is told to stop, or has ended.
    pub(crate) async fn told_to_stop(&self) {
        self.wait_for(|child| (child.is_told_to_stop() || child.exit.get().is_some()).then_some(())).await;
    }

    /// Completes when there is nothing left for it to do: it is told to stop, or its id is free.
    pub(crate) async fn told_to_go(&self) {
        self.wait_for(|child| (child.is_told_to_stop() || !child.is_bound()).then_some(())).await;
    }

    /// Completes when effects in flight must end.
    pub(crate) async fn cut_off(&self) {
        self.wait_for(|child| child.orders.has(Order::Cut).then_some(())).await;
    }

    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.extras().token.clone();
        // Made and stopped at the same moment: whoever comes second sees the other.
        if self.is_told_to_stop() || self.exit.get().is_some() {
            token.cancel();
        }
        token
    }

    // --- what few need ----------------------------------------------------------------------------------

    pub(crate) fn trail(&self) -> Trail {
        self.extras.get().map_or_else(Trail::default, |extras| *extras.trail.lock())
    }

    /// Remembers `cause` as the last event of this child, if events are made at all.
    fn note(&self, update: impl FnOnce(&mut Trail), cause: Cause) {
        if cause.is_some() {
            let mut trail = self.extras().trail.lock();
            trail.last = cause;
            update(&mut trail);
        }
    }

    pub(crate) fn note_admitted(&self, cause: Cause) {
        self.note(|_| {}, cause);
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        if self.orders.has(Order::End) {
            // What a late worker says is nothing that the process does: it has ended.
            return;
        }
        let cause = self.trail().started;
        self.core.journal.emit(cause, || {
            let (text, percent) = (progress.text.clone(), progress.percent);
            (self.actor_name(), EventKind::Progressed { text, percent })
        });
        *self.extras().progress.lock() = Some(progress);
        self.changed.notify_waiters();
    }

    pub(crate) fn progress(&self) -> Option<Progress> {
        self.extras.get().and_then(|extras| extras.progress.lock().clone())
    }

    /// Keeps a lease until the child has ended and its id is free (contract, C3); at once if it has ended.
    pub(crate) fn hold(&self, lease: OperationLease) {
        self.extras().leases.lock().push(lease);
        if self.exit.get().is_some() {
            self.release_leases();
        }
    }

    pub(crate) fn set_fence(&self, fence: FencingToken) {
        let _ = self.extras().fence.set(fence);
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.extras.get().and_then(|extras| extras.fence.get().copied())
    }

    /// Tells that its code has failed, and at what.
    pub(crate) fn fail(&self, stage: &'static str, error: &impl ToString) {
        let failed = || (self.actor_name(), EventKind::failed(stage, error));
        self.core.journal.announce(self.trail().last, failed);
    }

    pub(crate) fn note_late_panic(&self, panic: PanicText) {
        let _ = self.extras().late_panic.set(panic);
    }

    fn late_panic(&self) -> Option<PanicText> {
        self.extras.get().and_then(|extras| extras.late_panic.get().cloned())
    }
}
