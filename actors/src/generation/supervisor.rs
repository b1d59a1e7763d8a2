//! Keeps the services of a generation running: carries out what the rules of supervision decide.
//!
//! Everything happens in the generation's actor, one message at a time; nothing here waits. A service is in
//! one [`Slot`]; after every change [`Supervisor::advance`] takes the next step: first what has to stop, one
//! after the other in reverse start order, then what has to start, in start order. A failed start is tried
//! again by a message after its delay, so that commands and the close get in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::child::{Child, Place};
use crate::contain;
use crate::error::StartError;
use crate::event::{ActorName, Cause, CloseReason, EventKind, StopReason};
use crate::exit::ExitReason;
use crate::generation::close::{CloseOrder, close_one};
use crate::generation::core::Core;
use crate::generation::GenerationMessage;
use crate::id::{ProcessId, Role};
use crate::process::wrapper::{Starter, launch};
use crate::process::{ProcessHandle, ProcessSpec};
use crate::rules::{
    ChildEnd, ChildState, ChildView, Decision, ExitClass, Restart, RestartLimit, RestartState, Strategy, Who,
    decide, restart_plan,
};
use crate::service::{ServiceError, ServiceInfo, ServiceSpec, ServiceState};
use crate::settings::GenerationSpec;
use crate::tasks;

type Reply<T> = oneshot::Sender<Result<T, ServiceError>>;

/// What may be asked of the services of a generation.
pub(crate) enum ServiceCommand {
    Start(ServiceSpec, Reply<ProcessHandle>),
    Restart(Arc<str>, Reply<ProcessHandle>),
    Terminate(Arc<str>, Reply<()>),
    Delete(Arc<str>, Reply<()>),
}

/// The services of one generation.
pub(crate) struct Supervisor {
    core: Arc<Core>,
    strategy: Strategy,
    limit: RestartLimit,
    seed: u64,
    slots: Vec<Slot>,
    /// What a group restart still has to stop, in this order.
    to_stop: VecDeque<Arc<str>>,
    /// What its next stop follows from: its failure, then the end of what it stopped before.
    stopped: Cause,
    /// The services given at open start one after the other, whatever the strategy.
    opening: bool,
}

/// One service, between its spec and its process.
struct Slot {
    spec: ServiceSpec,
    stage: Stage,
    restarts: RestartState,
    /// What its next start or stop follows from.
    cause: Cause,
    /// Who waits for the start in progress. The first start of a service that is being added decides
    /// whether it is kept.
    starters: Vec<Reply<ProcessHandle>>,
    terminators: Vec<Reply<()>>,
    is_new: bool,
}

enum Stage {
    /// Will be started, not before this instant.
    Waiting { not_before_ms: u64 },
    Starting(Arc<Child>),
    Running(Arc<Child>),
    Stopping { child: Arc<Child>, then: Then },
    Ended,
    Stopped,
}

/// What follows the stop of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Start { not_before_ms: u64 },
    StayStopped,
    Forget,
}

impl Slot {
    fn new(spec: ServiceSpec, stage: Stage) -> Self {
        let restarts = RestartState::new(&spec.policy);
        Self { spec, stage, restarts, cause: None, starters: Vec::new(), terminators: Vec::new(), is_new: false }
    }

    fn state(&self) -> ServiceState {
        match self.stage {
            Stage::Waiting { .. } => ServiceState::Restarting,
            Stage::Starting(_) => ServiceState::Starting,
            Stage::Running(_) => ServiceState::Running,
            Stage::Stopping { .. } => ServiceState::Stopping,
            Stage::Ended => ServiceState::Ended,
            Stage::Stopped => ServiceState::Stopped,
        }
    }

    fn child(&self) -> Option<&Arc<Child>> {
        match &self.stage {
            Stage::Starting(child) | Stage::Running(child) | Stage::Stopping { child, .. } => Some(child),
            Stage::Waiting { .. } | Stage::Ended | Stage::Stopped => None,
        }
    }

    fn view(&self) -> ChildView {
        let state = match &self.stage {
            Stage::Waiting { .. } => ChildState::BackingOff,
            Stage::Starting(_) => ChildState::Starting,
            Stage::Running(_) => ChildState::Running,
            // Already on its way down: for the plan it has no process any more.
            Stage::Stopping { then: Then::StayStopped, .. } | Stage::Stopped => ChildState::StoppedOnPurpose,
            Stage::Stopping { .. } => ChildState::BackingOff,
            Stage::Ended => ChildState::Ended,
        };
        ChildView { state, restart: self.spec.policy.restart }
    }

    fn info(&self, core: &Core) -> ServiceInfo {
        ServiceInfo {
            name: Arc::clone(&self.spec.name),
            state: self.state(),
            policy: self.spec.policy,
            patience: self.spec.patience.unwrap_or(core.limits.patience),
            incarnation: self.child().map(|child| child.name.to_string()),
            process: self.child().map(|child| ProcessHandle::new(Arc::clone(child))),
        }
    }
}

impl Supervisor {
    pub(crate) fn new(core: Arc<Core>, spec: GenerationSpec) -> Self {
        let slots = spec.services.into_iter().map(|service| Slot::new(service, Stage::Waiting { not_before_ms: 0 }));
        Self {
            strategy: spec.strategy,
            limit: RestartLimit::new(spec.intensity),
            seed: spec.seed,
            slots: slots.collect(),
            to_stop: VecDeque::new(),
            stopped: None,
            opening: true,
            core,
        }
    }

    fn now_ms(&self) -> u64 {
        self.core.journal.now_ms()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| &*slot.spec.name == name)
    }

    fn find_child(&self, child: &Arc<Child>) -> Option<usize> {
        self.slots.iter().position(|slot| slot.child().is_some_and(|own| Arc::ptr_eq(own, child)))
    }

    /// Takes the next step, if it is ours to take: once the generation is sealed its closer is in charge.
    pub(crate) async fn advance(&mut self) {
        if self.core.is_sealed() {
            self.give_up_replies();
        } else if !self.stop_next() {
            while let Some(index) = self.next_to_start() {
                self.start(index).await;
            }
            self.note_opened();
        }
        *self.core.service_list.write() = self.slots.iter().map(|slot| slot.info(&self.core)).collect();
    }

    fn give_up_replies(&mut self) {
        for slot in &mut self.slots {
            slot.starters.clear();
            slot.terminators.clear();
        }
    }

    fn note_opened(&mut self) {
        let unsettled = |slot: &Slot| matches!(slot.stage, Stage::Waiting { .. } | Stage::Starting(_));
        if self.opening && !self.slots.iter().any(unsettled) {
            self.opening = false;
            self.core.ready.send_replace(true);
        }
    }

    // --- stopping ---------------------------------------------------------------------------------------

    /// Stops the next service of a group restart. True while one is on its way down.
    fn stop_next(&mut self) -> bool {
        let stopping =
            |slot: &Slot| matches!(slot.stage, Stage::Stopping { then: Then::Start { .. } | Then::Forget, .. });
        if self.slots.iter().any(stopping) {
            return true;
        }
        while let Some(name) = self.to_stop.pop_front() {
            let Some(index) = self.find(&name) else { continue };
            let then = match self.slots[index].spec.policy.restart {
                Restart::Temporary => Then::Forget,
                Restart::Permanent | Restart::Transient => Then::Start { not_before_ms: self.group_due() },
            };
            if self.stop(index, then, (StopReason::SiblingRestarted, self.stopped)) {
                return true;
            }
        }
        false
    }

    /// The instant at which the group restart in progress may start: that of the child that failed.
    fn group_due(&self) -> u64 {
        let due = self.slots.iter().filter_map(|slot| match slot.stage {
            Stage::Waiting { not_before_ms } | Stage::Stopping { then: Then::Start { not_before_ms }, .. } => {
                Some(not_before_ms)
            }
            _ => None,
        });
        due.max().unwrap_or(0)
    }

    fn stop(&mut self, index: usize, then: Then, (reason, cause): (StopReason, Cause)) -> bool {
        let slot = &mut self.slots[index];
        let (Stage::Starting(child) | Stage::Running(child)) = &slot.stage else {
            return false;
        };
        let child = Arc::clone(child);
        child.revoke();
        close_one(&child, reason, cause);
        slot.stage = Stage::Stopping { child, then };
        true
    }

    // --- starting ---------------------------------------------------------------------------------------

    /// In start order. Who depends on earlier ones waits for them; under one-for-one nobody does, once the
    /// generation is open.
    fn next_to_start(&self) -> Option<usize> {
        let in_order = self.opening || self.strategy != Strategy::OneForOne;
        let now = self.now_ms();
        for (index, slot) in self.slots.iter().enumerate() {
            match slot.stage {
                Stage::Waiting { not_before_ms } if not_before_ms <= now => return Some(index),
                Stage::Waiting { .. } | Stage::Starting(_) if in_order => return None,
                _ => {}
            }
        }
        None
    }

    async fn start(&mut self, index: usize) {
        let core = Arc::clone(&self.core);
        let slot = &mut self.slots[index];
        match admit(&core, &slot.spec) {
            Ok((child, spec)) => {
                slot.stage = Stage::Starting(Arc::clone(&child));
                let cause = slot.cause.take().or(core.events.opened());
                let started = core.journal.emit(cause, || {
                    let name = child.actor_name();
                    (ActorName::Generation(core.epoch), EventKind::Started { child: name })
                });
                child.note_admitted(started);
                launch(&core, child, spec, Starter::Services, started).await;
            }
            Err(error) => self.start_failed(index, error),
        }
    }

    /// The start of a child settled.
    pub(crate) async fn settled(&mut self, child: &Arc<Child>, result: Result<(), StartError>) {
        if let Some(index) = self.find_child(child) {
            match result {
                Ok(()) => self.started(index, child),
                Err(error) => self.start_failed(index, error),
            }
        }
        self.advance().await;
    }

    fn started(&mut self, index: usize, child: &Arc<Child>) {
        let now = self.now_ms();
        let slot = &mut self.slots[index];
        if matches!(slot.stage, Stage::Starting(_)) {
            slot.stage = Stage::Running(Arc::clone(child));
            slot.restarts.started(now);
        }
        slot.is_new = false;
        for starter in slot.starters.drain(..) {
            let _ = starter.send(Ok(ProcessHandle::new(Arc::clone(child))));
        }
    }

    fn start_failed(&mut self, index: usize, error: StartError) {
        let slot = &mut self.slots[index];
        let stopping = match slot.stage {
            Stage::Stopping { then, .. } => Some(then),
            _ => None,
        };
        let name = Arc::clone(&slot.spec.name);
        if let Some(starter) = slot.starters.pop() {
            let _ = starter.send(Err(ServiceError::StartFailed { name, source: error }));
            if slot.is_new {
                self.slots.remove(index);
            } else {
                slot.stage = Stage::Stopped;
            }
        } else if let Some(then) = stopping {
            self.stopped(index, then);
        } else {
            // As far as restarting goes a start that failed is an abnormal end (OS-42, PS-43).
            self.decide(index, ExitClass::Abnormal, None);
        }
    }

    // --- ends -------------------------------------------------------------------------------------------

    /// A child ended. One that never started is heard of again when its start has settled.
    pub(crate) async fn ended(&mut self, child: &Arc<Child>) {
        let never_started = matches!(child.exit(), Some(ExitReason::NeverStarted) | None);
        if let Some(index) = self.find_child(child).filter(|_| !never_started) {
            match self.slots[index].stage {
                Stage::Stopping { then, .. } => self.stopped(index, then),
                Stage::Starting(_) | Stage::Running(_) if !self.core.is_sealed() => {
                    let class = exit_class(child);
                    self.decide(index, class, child.trail().last);
                }
                _ => {}
            }
        }
        self.advance().await;
    }

    fn stopped(&mut self, index: usize, then: Then) {
        let slot = &mut self.slots[index];
        self.stopped = slot.child().and_then(|child| child.trail().last);
        let forget = match then {
            Then::Start { not_before_ms } => {
                slot.stage = Stage::Waiting { not_before_ms };
                false
            }
            Then::StayStopped => {
                slot.stage = Stage::Stopped;
                slot.spec.policy.restart == Restart::Temporary
            }
            Then::Forget => true,
        };
        for terminator in slot.terminators.drain(..) {
            let _ = terminator.send(Ok(()));
        }
        if forget {
            self.slots.remove(index);
        }
    }

    fn decide(&mut self, index: usize, class: ExitClass, cause: Cause) {
        let at_ms = self.now_ms();
        // Children that failed together do not come back together.
        let seed = self.seed.wrapping_add(index as u64);
        let slot = &mut self.slots[index];
        match decide(ChildEnd { class, at_ms, seed }, &mut slot.restarts, &mut self.limit) {
            Decision::Restart { delay_ms, attempt } => self.restart(index, at_ms, delay_ms, attempt, cause),
            Decision::Keep => slot.stage = Stage::Ended,
            Decision::Forget => drop(self.slots.remove(index)),
            Decision::GiveUp { who, restarts, period_ms } => self.give_up(index, who, (restarts, period_ms), cause),
        }
    }

    fn restart(&mut self, index: usize, at_ms: u64, delay_ms: u64, attempt: u32, cause: Cause) {
        let not_before_ms = at_ms.saturating_add(delay_ms);
        let name = self.slot_name(index);
        let retried = self.core.journal.announce(cause, || {
            let retried = EventKind::Retried { child: name, attempt: attempt + 1, delay_ms };
            (ActorName::Generation(self.core.epoch), retried)
        });
        let views: Vec<_> = self.slots.iter().map(Slot::view).collect();
        let plan = restart_plan(self.strategy, &views, index);
        for member in plan.start.iter().chain(&plan.stop) {
            self.slots[*member].cause = retried;
        }
        self.stopped = retried;
        for start in &plan.start {
            let slot = &mut self.slots[*start];
            match &mut slot.stage {
                Stage::Stopping { then, .. } => *then = Then::Start { not_before_ms },
                // Stopped first; it is then started with the group.
                Stage::Starting(_) | Stage::Running(_) if *start != index => {}
                stage => *stage = Stage::Waiting { not_before_ms },
            }
        }
        self.to_stop.extend(plan.stop.iter().map(|stop| Arc::clone(&self.slots[*stop].spec.name)));
        // Those that run are forgotten when they have stopped.
        let gone = plan.forget.iter().rev().filter(|forget| !plan.stop.contains(forget));
        for forget in gone {
            self.slots.remove(*forget);
        }
        self.wake_at(delay_ms);
    }

    /// The name under which the next incarnation of a service is announced: the one that ended.
    fn slot_name(&self, index: usize) -> ActorName {
        match self.slots[index].child() {
            Some(child) => child.actor_name(),
            None => ActorName::Generation(self.core.epoch),
        }
    }

    fn wake_at(&self, delay_ms: u64) {
        let Some(generation) = self.core.actors.generation.get().cloned() else {
            return;
        };
        tasks::spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            let _ = generation.cast(GenerationMessage::Advance);
        });
    }

    /// A limit was exceeded: the generation cannot do its duty and closes.
    fn give_up(&mut self, index: usize, who: Who, (restarts, period_ms): (u32, u64), cause: Cause) {
        let name = Arc::clone(&self.slots[index].spec.name);
        let whose = match who {
            Who::Child => "its limit",
            Who::Supervisor => "the limit",
        };
        let limit: Arc<str> = format!("{whose} of {restarts} restarts in {period_ms}ms exceeded").into();
        let child = self.slot_name(index);
        self.slots[index].stage = Stage::Ended;
        let escalated = self.core.journal.announce(cause, || {
            let limit = Arc::clone(&limit);
            (ActorName::Generation(self.core.epoch), EventKind::Escalated { child, limit })
        });
        let reason = CloseReason::Failed(format!("service \"{name}\": {limit}").into());
        self.core.begin_close(CloseOrder { reason, cause: escalated });
    }

    // --- commands ---------------------------------------------------------------------------------------

    pub(crate) async fn obey(&mut self, command: ServiceCommand) {
        match command {
            ServiceCommand::Start(spec, reply) => self.add(spec, reply),
            ServiceCommand::Restart(name, reply) => self.restart_by_name(name, reply),
            ServiceCommand::Terminate(name, reply) => self.terminate(name, reply),
            ServiceCommand::Delete(name, reply) => {
                let _ = reply.send(self.delete(name));
            }
        }
        self.advance().await;
    }

    fn add(&mut self, spec: ServiceSpec, reply: Reply<ProcessHandle>) {
        if let Err(error) = self.may_add(&spec) {
            let _ = reply.send(Err(error));
            return;
        }
        let mut slot = Slot::new(spec, Stage::Waiting { not_before_ms: 0 });
        slot.is_new = true;
        slot.starters.push(reply);
        self.slots.push(slot);
    }

    fn may_add(&self, spec: &ServiceSpec) -> Result<(), ServiceError> {
        let name = || Arc::clone(&spec.name);
        Role::new(name())?;
        if self.core.is_sealed() {
            return Err(ServiceError::Closed);
        }
        if let Some(existing) = self.find(&spec.name) {
            let state = self.slots[existing].state();
            return Err(ServiceError::AlreadyExists { name: name(), state });
        }
        match self.core.limits.max_services {
            Some(limit) if self.slots.len() >= limit => Err(ServiceError::TooManyServices { name: name(), limit }),
            _ => Ok(()),
        }
    }

    fn restart_by_name(&mut self, name: Arc<str>, reply: Reply<ProcessHandle>) {
        let Some(index) = self.find(&name) else {
            let _ = reply.send(Err(ServiceError::NotFound { name }));
            return;
        };
        let slot = &mut self.slots[index];
        match slot.stage {
            Stage::Ended | Stage::Stopped => {
                slot.stage = Stage::Waiting { not_before_ms: 0 };
                slot.starters.push(reply);
            }
            _ => drop(reply.send(Err(ServiceError::InUse { name, state: slot.state() }))),
        }
    }

    fn terminate(&mut self, name: Arc<str>, reply: Reply<()>) {
        let Some(index) = self.find(&name) else {
            let _ = reply.send(Err(ServiceError::NotFound { name }));
            return;
        };
        let slot = &mut self.slots[index];
        if let Stage::Stopping { then, .. } = &mut slot.stage {
            *then = Then::StayStopped;
            slot.terminators.push(reply);
        } else if slot.child().is_some() {
            slot.terminators.push(reply);
            self.stop(index, Then::StayStopped, (StopReason::Requested, None));
        } else {
            slot.terminators.push(reply);
            slot.starters.clear();
            self.stopped(index, Then::StayStopped);
        }
    }

    fn delete(&mut self, name: Arc<str>) -> Result<(), ServiceError> {
        let Some(index) = self.find(&name) else {
            return Err(ServiceError::NotFound { name });
        };
        match self.slots[index].stage {
            Stage::Ended | Stage::Stopped => {
                self.slots.remove(index);
                Ok(())
            }
            _ => Err(ServiceError::InUse { name, state: self.slots[index].state() }),
        }
    }
}

fn admit(core: &Arc<Core>, spec: &ServiceSpec) -> Result<(Arc<Child>, ProcessSpec), StartError> {
    let id = ProcessId::new(Arc::clone(&spec.name))?;
    let role = Role::new(Arc::clone(&spec.name))?;
    let failed = |source| {
        let (id, kind) = (id.clone(), crate::error::StartFailure::Panic);
        StartError::StartFailed { id, kind, source, cleanup: None }
    };
    let mut made = contain::call(|| (spec.make)()).map_err(|panic| failed(panic.into()))?;
    if let Some(patience) = spec.patience {
        made = made.patience(patience);
    }
    let child = core
        .admit(id.clone(), Place::Services, &mut made, role)
        .map_err(|_| StartError::RegistryClosed { id: id.clone() })?;
    Ok((child, made))
}

fn exit_class(child: &Child) -> ExitClass {
    match child.exit() {
        Some(exit) if exit.is_abnormal() => ExitClass::Abnormal,
        Some(_) if child.is_told_to_stop() => ExitClass::Shutdown,
        _ => ExitClass::Normal,
    }
}
