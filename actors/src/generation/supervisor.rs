//! Keeps the services of a generation running: carries out what the rules of supervision decide.
//!
//! Everything happens in the generation's actor, one message at a time; nothing here waits. After every
//! message [`Supervisor::advance`] takes the next step: first what a group restart has to stop, one after the
//! other in reverse start order, then what has to start, in start order. A failed start is tried again by a
//! message after its delay, so that commands and the close get in between. Invariants:
//!
//! 1. *A service has one incarnation at a time.* The next one starts only after the word that the one before
//!    has ended: its own, or, for one that we had stopped, that of the task which saw it gone.
//! 2. *Only an end that nobody ordered counts against a limit.* A service that a group restart has doomed and
//!    that ends before its turn has done what it was about to be told.
//! 3. *Who is answered finds the answer published.* Replies leave after the list.
//! 4. *After the seal nothing is decided.* The closer is in charge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::child::{Child, Place};
use crate::contain;
use crate::error::StartError;
use crate::event::{ActorName, Cause, CloseReason, EventKind, StopReason};
use crate::exit::{PanicText, ProcessResult};
use crate::generation::GenerationMessage;
use crate::generation::close::{CloseOrder, stop_one};
use crate::generation::core::Core;
use crate::id::{ProcessId, Role};
use crate::process::wrapper::{Starter, launch};
use crate::process::{ManagedProcess, ProcessContext, ProcessHandle, ProcessSpec};
use crate::rules::{ChildEnd, Decision, ExitClass, Plan, RestartLimit, Strategy, Who, decide, restart_plan};
use crate::service::{ServiceError, ServiceSpec};
use crate::settings::GenerationSpec;
use crate::tasks;

mod slots;

pub(crate) use slots::Key;
use slots::{Slot, Slots, Stage, Then};

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
    slots: Slots,
    /// What a group restart still has to stop, and what follows. The last one started goes first.
    doomed: BTreeMap<Key, Then>,
    /// What its next stop follows from: the failure, then the end of whom it stopped before.
    stopped: Cause,
    /// The services given at open start one after the other, whatever the strategy.
    opening: bool,
    /// Replies that leave after the change they tell of is published.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    gave_up_replies: bool,
}

impl Supervisor {
    pub(crate) fn new(core: Arc<Core>, spec: GenerationSpec) -> Self {
        let mut slots = Slots::default();
        for service in spec.services {
            slots.add(Slot::new(service));
        }
        Self {
            strategy: spec.strategy,
            limit: RestartLimit::new(spec.intensity),
            seed: spec.seed,
            slots,
            doomed: BTreeMap::new(),
            stopped: None,
            opening: true,
            answers: Vec::new(),
            gave_up_replies: false,
            core,
        }
    }

    fn now_ms(&self) -> u64 {
        self.core.journal.now_ms()
    }

    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, result: Result<T, ServiceError>) {
        self.answers.push(Box::new(move || drop(reply.send(result))));
    }

    /// Takes the next step, if it is ours to take: once the generation is sealed its closer is in charge.
    pub(crate) fn advance(&mut self) {
        if self.core.is_sealed() {
            self.give_up_replies();
        } else if !self.is_stopping_group() {
            while let Some(key) = self.next_to_start() {
                self.start(key);
            }
        }
        self.slots.publish(&self.core);
        self.answers.drain(..).for_each(|answer| answer());
        self.note_opened();
    }

    /// Those who wait are told *closed*.
    fn give_up_replies(&mut self) {
        if !std::mem::replace(&mut self.gave_up_replies, true) {
            for slot in self.slots.values_mut() {
                slot.starter = None;
                slot.terminators.clear();
            }
        }
    }

    fn note_opened(&mut self) {
        if self.opening && self.slots.are_settled() && !self.core.is_sealed() {
            self.opening = false;
            self.core.ready.send_replace(true);
        }
    }

    // --- stopping ---------------------------------------------------------------------------------------

    /// Whether services depend on those started before them.
    fn in_order(&self) -> bool {
        self.opening || self.strategy != Strategy::OneForOne
    }

    /// Stops the next service of a group restart. True while one is on its way down, also by a terminate:
    /// nobody is stopped or started under the feet of those who depend on him.
    fn is_stopping_group(&mut self) -> bool {
        if !self.in_order() {
            return false;
        }
        while !self.slots.is_any_stopping() {
            let Some((key, then)) = self.doomed.pop_last() else {
                return false;
            };
            self.stop(key, then, (StopReason::SiblingRestarted, self.stopped));
        }
        true
    }

    fn stop(&mut self, key: Key, then: Then, (reason, cause): (StopReason, Cause)) {
        let Some(slot) = self.slots.get(key) else { return };
        let (Stage::Starting(child) | Stage::Running(child)) = slot.stage() else { return };
        let child = Arc::clone(child);
        child.revoke();
        self.slots.set(key, Stage::Stopping { child: Arc::clone(&child), then });
        tasks::spawn(async move {
            stop_one(&child, reason, cause).await;
            tell(&child.core.clone(), GenerationMessage::ServiceStopped(child));
        });
    }

    /// A child that we had stopped is gone.
    pub(crate) fn stopped_as_told(&mut self, child: &Arc<Child>) {
        let Some(key) = self.slots.key_of(child) else { return };
        if let Some(Stage::Stopping { then, .. }) = self.slots.get(key).map(Slot::stage) {
            let then = *then;
            self.stopped = child.trail().last;
            self.stopped(key, then);
        }
    }

    /// The service has no process.
    fn stopped(&mut self, key: Key, then: Then) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let name = Arc::clone(&slot.spec.name);
        let forget = then == Then::Forget || then == Then::StayStopped && slot.is_temporary();
        let starter = if matches!(then, Then::Start { .. }) { None } else { slot.starter.take() };
        for terminator in std::mem::take(&mut slot.terminators) {
            self.answer(terminator, Ok(()));
        }
        if let Some(starter) = starter {
            self.answer(starter, Err(ServiceError::Terminated { name }));
        }
        match then {
            _ if forget => self.slots.remove(key),
            Then::Start { not_before_ms } => self.slots.set(key, Stage::Waiting { not_before_ms }),
            Then::StayStopped | Then::Forget => self.slots.set(key, Stage::Stopped),
        }
    }

    // --- starting ---------------------------------------------------------------------------------------

    /// In start order. Who depends on earlier ones waits for them; under one-for-one nobody does, once the
    /// generation is open.
    fn next_to_start(&self) -> Option<Key> {
        let now = self.now_ms();
        let mut waiting = self.slots.waiting();
        if !self.in_order() {
            return waiting.find(|(_, not_before_ms)| *not_before_ms <= now).map(|(key, _)| key);
        }
        let (key, not_before_ms) = waiting.next()?;
        let is_first = self.slots.first_starting().is_none_or(|starting| key < starting);
        (is_first && not_before_ms <= now).then_some(key)
    }

    fn start(&mut self, key: Key) {
        let core = Arc::clone(&self.core);
        let Some(slot) = self.slots.get(key) else { return };
        let cause = slot.cause.or(core.events.opened());
        let Ok((child, process)) = admit(&core, &slot.spec) else {
            // The generation was sealed in this very moment.
            return self.slots.set(key, Stage::Stopped);
        };
        self.slots.set(key, Stage::Starting(Arc::clone(&child)));
        let started = core.journal.emit(cause, || {
            let name = child.actor_name();
            (ActorName::Generation(core.epoch), EventKind::Started { child: name })
        });
        launch(&core, &child, process, Some(Starter::Services), started);
    }

    /// The start of a child settled.
    pub(crate) fn settled(&mut self, child: &Arc<Child>, result: Result<(), StartError>) {
        let Some(key) = self.slots.key_of(child) else { return };
        match result {
            Ok(()) => self.started(key, child),
            Err(error) => self.start_failed(key, child, error),
        }
    }

    fn started(&mut self, key: Key, child: &Arc<Child>) {
        let now = self.now_ms();
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.is_new = false;
        let starter = slot.starter.take();
        // One that was told to stop meanwhile has started all the same, and is on its way down.
        if matches!(slot.stage(), Stage::Starting(_)) {
            slot.restarts.started(now);
            self.slots.set(key, Stage::Running(Arc::clone(child)));
        }
        if let Some(starter) = starter {
            self.answer(starter, Ok(ProcessHandle::new(Arc::clone(child))));
        }
    }

    fn start_failed(&mut self, key: Key, child: &Arc<Child>, error: StartError) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let is_stopping = matches!(slot.stage(), Stage::Stopping { .. });
        if let Some(starter) = slot.starter.take() {
            let name = Arc::clone(&slot.spec.name);
            let then = if slot.is_new { Then::Forget } else { Then::StayStopped };
            self.answer(starter, Err(ServiceError::StartFailed { name, source: error }));
            self.doomed.remove(&key);
            if is_stopping {
                self.slots.set_then(key, then);
            } else {
                self.stopped(key, then);
            }
        } else if !is_stopping {
            // As far as restarting goes a start that failed is an abnormal end (OS-42, PS-43).
            self.ended_by_itself(key, child, ExitClass::Abnormal);
        }
    }

    // --- ends -------------------------------------------------------------------------------------------

    /// A child ended. Of one that starts, or stops, there will be another word.
    pub(crate) fn ended(&mut self, child: &Arc<Child>) {
        let Some(key) = self.slots.key_of(child) else { return };
        if matches!(self.slots.get(key).map(Slot::stage), Some(Stage::Running(_))) {
            self.ended_by_itself(key, child, exit_class(child));
        }
    }

    fn ended_by_itself(&mut self, key: Key, child: &Arc<Child>, class: ExitClass) {
        if self.core.is_sealed() {
            self.slots.set(key, Stage::Ended);
        } else if let Some(then) = self.doomed.remove(&key) {
            self.stopped(key, then);
        } else {
            self.decide(key, child, class);
        }
    }

    fn decide(&mut self, key: Key, child: &Arc<Child>, class: ExitClass) {
        let at_ms = self.now_ms();
        // Children that failed together do not come back together.
        let end = ChildEnd { class, at_ms, seed: self.seed.wrapping_add(key) };
        let Some(slot) = self.slots.get_mut(key) else { return };
        match decide(end, &mut slot.restarts, &mut self.limit) {
            Decision::Restart { delay_ms, attempt } => {
                let cause = self.core.journal.announce(child.trail().last, || {
                    let (child, attempt) = (child.actor_name(), attempt + 1);
                    (ActorName::Generation(self.core.epoch), EventKind::Retried { child, attempt, delay_ms })
                });
                self.restart_group(key, at_ms.saturating_add(delay_ms), cause);
                self.wake_in(delay_ms);
            }
            Decision::Keep => self.slots.set(key, Stage::Ended),
            Decision::Forget => self.slots.remove(key),
            Decision::GiveUp { who, restarts, period_ms } => {
                self.give_up(key, child, who, format!("of {restarts} restarts in {period_ms}ms exceeded"));
            }
        }
    }

    fn restart_group(&mut self, failed: Key, not_before_ms: u64, cause: Cause) {
        self.stopped = cause;
        let (keys, plan) = self.plan(failed);
        for index in plan.start {
            self.restart_member(keys[index], failed, Then::Start { not_before_ms }, cause);
        }
        for index in plan.forget {
            self.restart_member(keys[index], failed, Then::Forget, cause);
        }
    }

    fn restart_member(&mut self, key: Key, failed: Key, then: Then, cause: Cause) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.cause = cause;
        match slot.stage() {
            // Stopped first, when its turn comes.
            Stage::Starting(_) | Stage::Running(_) if key != failed => drop(self.doomed.insert(key, then)),
            Stage::Stopping { .. } => self.slots.set_then(key, then),
            _ => self.stopped(key, then),
        }
    }

    fn plan(&self, failed: Key) -> (Vec<Key>, Plan) {
        // One-for-one concerns nobody else: no need to look at everybody.
        let is_alone = self.strategy == Strategy::OneForOne;
        let concerned = self.slots.iter().filter(|(key, _)| !is_alone || *key == failed);
        let (keys, views): (Vec<_>, Vec<_>) = concerned.map(|(key, slot)| (key, slot.view())).unzip();
        let index = keys.iter().position(|key| *key == failed).unwrap_or(keys.len());
        let plan = restart_plan(self.strategy, &views, index);
        (keys, plan)
    }

    fn wake_in(&self, delay_ms: u64) {
        if delay_ms == 0 {
            return;
        }
        let core = Arc::clone(&self.core);
        tasks::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(delay_ms)) => tell(&core, GenerationMessage::Advance),
                // There is nobody left to wake.
                _ = core.closing.outcome() => {}
            }
        });
    }

    /// A limit was exceeded: the generation cannot do its duty and closes.
    fn give_up(&mut self, key: Key, child: &Arc<Child>, who: Who, exceeded: String) {
        let whose = match who {
            Who::Child => "its limit",
            Who::Supervisor => "the limit",
        };
        let limit: Arc<str> = format!("{whose} {exceeded}").into();
        self.slots.set(key, Stage::Ended);
        let escalated = self.core.journal.announce(child.trail().last, || {
            let (child, limit) = (child.actor_name(), Arc::clone(&limit));
            (ActorName::Generation(self.core.epoch), EventKind::Escalated { child, limit })
        });
        let reason = CloseReason::Failed(format!("service \"{}\": {limit}", child.id).into());
        self.core.begin_close(CloseOrder { reason, cause: escalated });
    }

    // --- commands ---------------------------------------------------------------------------------------

    pub(crate) fn obey(&mut self, command: ServiceCommand) {
        if self.core.is_sealed() {
            // Dropping its reply tells the asker *closed*.
            return;
        }
        match command {
            ServiceCommand::Start(spec, reply) => self.add(spec, reply),
            ServiceCommand::Restart(name, reply) => self.restart(&name, reply),
            ServiceCommand::Terminate(name, reply) => self.terminate(&name, reply),
            ServiceCommand::Delete(name, reply) => {
                let deleted = self.delete(&name);
                self.answer(reply, deleted);
            }
        }
    }

    fn add(&mut self, spec: ServiceSpec, reply: Reply<ProcessHandle>) {
        if let Err(error) = self.may_add(&spec) {
            return self.answer(reply, Err(error));
        }
        let mut slot = Slot::new(spec);
        slot.is_new = true;
        slot.starter = Some(reply);
        self.slots.add(slot);
    }

    fn may_add(&self, spec: &ServiceSpec) -> Result<(), ServiceError> {
        let name = Arc::clone(&spec.name);
        Role::new(Arc::clone(&name))?;
        if let Some(existing) = self.slots.find(&name).and_then(|key| self.slots.get(key)) {
            return Err(ServiceError::AlreadyExists { name, state: existing.state() });
        }
        match self.core.limits.max_services {
            Some(limit) if self.slots.len() >= limit => Err(ServiceError::TooManyServices { name, limit }),
            _ => Ok(()),
        }
    }

    /// A service that has no process and will not have one by itself.
    fn idle(&self, name: &Arc<str>) -> Result<Key, ServiceError> {
        let key = self.found(name)?;
        match self.slots.get(key).map(|slot| (slot.stage(), slot.state())) {
            Some((Stage::Ended | Stage::Stopped, _)) | None => Ok(key),
            Some((_, state)) => Err(ServiceError::InUse { name: Arc::clone(name), state }),
        }
    }

    fn found(&self, name: &Arc<str>) -> Result<Key, ServiceError> {
        self.slots.find(name).ok_or_else(|| ServiceError::NotFound { name: Arc::clone(name) })
    }

    fn restart(&mut self, name: &Arc<str>, reply: Reply<ProcessHandle>) {
        match self.idle(name) {
            Ok(key) => {
                self.slots.set(key, Stage::Waiting { not_before_ms: 0 });
                if let Some(slot) = self.slots.get_mut(key) {
                    slot.cause = None;
                    slot.starter = Some(reply);
                }
            }
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    fn terminate(&mut self, name: &Arc<str>, reply: Reply<()>) {
        let key = match self.found(name) {
            Ok(key) => key,
            Err(error) => return self.answer(reply, Err(error)),
        };
        self.doomed.remove(&key);
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.terminators.push(reply);
        match slot.stage() {
            Stage::Stopping { then: Then::Forget, .. } => {}
            Stage::Stopping { .. } => self.slots.set_then(key, Then::StayStopped),
            Stage::Starting(_) | Stage::Running(_) => {
                self.stop(key, Then::StayStopped, (StopReason::Requested, None))
            }
            // One that was being added and never ran is not kept, as after a start that failed.
            _ if slot.is_new => self.stopped(key, Then::Forget),
            _ => self.stopped(key, Then::StayStopped),
        }
    }

    fn delete(&mut self, name: &Arc<str>) -> Result<(), ServiceError> {
        let key = self.idle(name)?;
        self.slots.remove(key);
        Ok(())
    }
}

fn tell(core: &Core, message: GenerationMessage) {
    if let Some(generation) = core.actors.generation.get() {
        // A generation that is gone needs no telling.
        let _ = generation.cast(message);
    }
}

/// Fails only when the generation is sealed.
fn admit(core: &Arc<Core>, spec: &ServiceSpec) -> Result<(Arc<Child>, ProcessSpec), StartError> {
    let id = ProcessId::new(Arc::clone(&spec.name))?;
    let role = Role::new(Arc::clone(&spec.name))?;
    let made = contain::call(|| (spec.make)());
    let mut made =
        made.unwrap_or_else(|panic| ProcessSpec::object(Arc::clone(&spec.name), Arc::new(Unmade(panic))));
    if let Some(patience) = spec.patience {
        made = made.patience(patience);
    }
    let child = core.admit(&id, Place::Services, &mut made, role)?;
    Ok((child, made))
}

/// What runs when `make` panicked: an incarnation whose start panics with the same words. So it has a name,
/// and fails like any other.
struct Unmade(PanicText);

impl ManagedProcess for Unmade {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        std::panic::resume_unwind(Box::new(self.0.0.to_string()))
    }
}

fn exit_class(child: &Child) -> ExitClass {
    match child.exit() {
        Some(exit) if exit.is_abnormal() => ExitClass::Abnormal,
        Some(_) if child.is_told_to_stop() => ExitClass::Shutdown,
        _ => ExitClass::Normal,
    }
}
