//! The close of a generation, as a protocol of its own (design.md, section 2), because ractor kills the
//! children of a stopping parent and answers before they are gone.
//!
//! 1. *Seal*, in the call that begins the close: from that instant no commit begins and nothing is admitted.
//! 2. Starts in progress settle, within their own bounds.
//! 3. Processes are told to stop in reverse start order, and end in parallel, each with its patience.
//! 4. What is left at its patience, or at the deadline, is killed; what is not gone even then is reported.
//! 5. The services end one by one in reverse start order, then shared resources, operations, the registry.
//! 6. A report that balances is published. Every caller, early or late, gets the same one.
//!
//! The protocol runs in a task beside the actors it closes, on state that outlives them: it ends in the same
//! way when the registry, the operations or the supervisor itself has failed.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, timeout, timeout_at};

use crate::child::{Child, Place};
use crate::event::{ActorName, Cause, CloseReason, EventId, EventKind, StopReason};
use crate::exit::{ExitReason, KillReason};
use crate::generation::ServiceKey;
use crate::generation::core::{ClosingGuard, Core, KernelActor, patience_ends};
use crate::generation::report::CloseReport;
use crate::rules::Patience;
use crate::tasks;

/// How many children are told to stop before the closer lets others run.
const BATCH: usize = 256;

/// Who wants the generation closed, and why.
#[derive(Debug, Clone)]
pub(crate) struct CloseOrder {
    pub(crate) reason: CloseReason,
    pub(crate) cause: Cause,
}

/// Ends authority now and begins the rest beside the caller. Only the first order counts.
pub(crate) fn begin(core: &Arc<Core>, order: CloseOrder) {
    if !core.closing.begin() {
        return;
    }
    let begun = Instant::now();
    let asked = core.journal.announce(order.cause.or(core.events.first()), || {
        let (epoch, reason) = (core.epoch, order.reason.clone());
        let who = match &reason {
            CloseReason::Failed(_) => ActorName::Generation(epoch),
            _ => ActorName::Application,
        };
        (who, EventKind::CloseBegan { epoch, reason })
    });
    let sealed = core.seal(asked);
    if matches!(order.reason, CloseReason::Failed(_)) {
        core.application.generation_failed(core.epoch, sealed);
    }
    let core = Arc::clone(core);
    tasks::spawn(async move {
        let guard = ClosingGuard::new(Arc::clone(&core));
        let report = run(&core, order.reason, begun, sealed).await;
        guard.publish(report);
        // The answer does not wait for memory to be given back, which the guard does.
        tokio::task::yield_now().await;
        drop(guard);
    });
}

async fn run(core: &Arc<Core>, reason: CloseReason, begun: Instant, sealed: Cause) -> CloseReport {
    let deadline = begun + core.limits.close_deadline;
    let stop = Stop { reason: reason.stop_reason(), cause: sealed, deadline };
    core.chaos.pause().await;
    core.processes_ended.get_or_init(|| end_processes(core, stop)).await;
    end_services(core, stop).await;
    let resources_failed = core.store.close(core, stop).await;
    let in_flight = await_effects(core, deadline).await;
    let ended = last_events(core, sealed);
    let operations_gone = end_kernel_actor(core, KernelActor::Operations, stop.reason, ended).await;
    let operations_gone = operations_gone.into_iter().collect();
    let registry_gone = end_kernel_actor(core, KernelActor::Registry, stop.reason, operations_gone).await;
    // Before the last word: nothing of this generation is told after it.
    core.stop_kernel_actor(KernelActor::Generation).await;
    let took = begun.elapsed();
    core.journal.announce(registry_gone.or(sealed), || {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        (ActorName::Generation(core.epoch), EventKind::Closed { reason: reason.clone(), took_ms })
    });
    let everything = [Place::Registry, Place::Services];
    core.counters.report(&everything, (core.epoch, reason, took), &in_flight, resources_failed)
}

/// How children are told to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) reason: StopReason,
    pub(crate) cause: Cause,
    pub(crate) deadline: Instant,
}

/// Steps 2 to 4: after it no process of the registry runs, and none can be started.
pub(crate) async fn end_processes(core: &Arc<Core>, stop: Stop) {
    let processes = core.population(Place::Registry);
    processes.admissions.close();
    processes.admissions.drained().await;
    // Also those that were being admitted while the generation was sealed.
    let children = core.gather_processes();
    // A start that does not settle by the deadline is killed below, like anything else.
    let _ = timeout_at(stop.deadline, processes.settled()).await;
    let ended = end_children(core, &children, stop, || processes.extinct()).await;
    await_gone(core, ended).await;
}

/// Step 5: one by one, so that a service outlives those that were started after it.
async fn end_services(core: &Arc<Core>, stop: Stop) {
    core.population(Place::Services).admissions.drained().await;
    let services = services_in_order(core);
    let _ = timeout_at(stop.deadline, core.population(Place::Services).settled()).await;
    let mut cause = last_events(core, stop.cause).last().copied();
    for service in services.iter().rev() {
        service.revoke();
        let alone = std::slice::from_ref(service);
        let stop = Stop { cause, ..stop };
        let ended = end_children(core, alone, stop, || async { drop(service.ended().await) }).await;
        await_gone(core, ended).await;
        cause = service.trail().last.or(cause);
    }
}

/// The incarnations of the services, in the order of the services: one that was started again still comes
/// before those that were first started after it (peer case OS-85).
fn services_in_order(core: &Core) -> Vec<Arc<Child>> {
    let published = core.service_list.read();
    let order: HashMap<&str, ServiceKey> =
        published.iter().map(|(key, service)| (&*service.name, *key)).collect();
    let mut services = core.services();
    // One that is not published yet is being added: it is the last.
    services.sort_by_key(|child| order.get(child.id.as_str()).copied().unwrap_or(ServiceKey::MAX));
    services
}

/// Tells children to stop, in reverse order, and sees to it that they end. `all_ended` says when. Answers
/// those whose actors may not be gone yet.
async fn end_children<'a, F: Future<Output = ()>>(
    core: &Arc<Core>,
    children: &'a [Arc<Child>],
    stop: Stop,
    all_ended: impl Fn() -> F,
) -> Vec<&'a Arc<Child>> {
    let told = Instant::now();
    let Told { shortest, not_gone } = tell(core, children, stop).await;
    let first = patience_ends(shortest, told).map_or(stop.deadline, |at| at.min(stop.deadline));
    if timeout_at(first, all_ended()).await.is_err() {
        kill_in_waves(core, children, (told, stop.deadline), all_ended).await;
    }
    not_gone
}

/// Waits until the actors of ended children are gone.
async fn await_gone(core: &Core, ended: Vec<&Arc<Child>>) {
    let _ = timeout(core.limits.cleanup_bound, async {
        for child in ended {
            child.gone().await;
        }
    })
    .await;
}

/// Kills every child at its own patience, and abandons what is not gone even then.
async fn kill_in_waves<F: Future<Output = ()>>(
    core: &Arc<Core>,
    children: &[Arc<Child>],
    (told, deadline): (Instant, Instant),
    all_ended: impl Fn() -> F,
) {
    for wave in waves(children, told, deadline) {
        if timeout_at(wave.at, all_ended()).await.is_ok() {
            return;
        }
        wave.children.iter().rev().for_each(|child| child.kill(wave.reason));
    }
    if timeout(core.limits.cleanup_bound, all_ended()).await.is_err() {
        abandon(core, children);
    }
}

/// Has one child stopped beside the caller, who waits for its end alone: the closer of its generation is the
/// one to wait until its actors are gone.
pub(crate) fn close_one(child: &Arc<Child>, reason: StopReason, cause: Cause) {
    let child = Arc::clone(child);
    tasks::spawn(async move { drop(end_one(&child, reason, cause).await) });
}

/// Has one child stopped, until its actors are gone.
pub(crate) async fn stop_one(child: &Arc<Child>, reason: StopReason, cause: Cause) {
    let ended = end_one(child, reason, cause).await;
    await_gone(&child.core, ended).await;
}

/// Told once its start has settled, waited for within its patience, killed.
async fn end_one(child: &Arc<Child>, reason: StopReason, cause: Cause) -> Vec<&Arc<Child>> {
    let core = &child.core;
    let deadline = Instant::now() + core.limits.close_deadline;
    let _ = timeout_at(deadline, child.settled()).await;
    let stop = Stop { reason, cause: cause.or(child.trail().last), deadline };
    let alone = std::slice::from_ref(child);
    end_children(core, alone, stop, || async { drop(child.ended().await) }).await
}

/// Children that were told to stop.
struct Told<'a> {
    shortest: Patience,
    /// Those that were not gone by the time the others had been told.
    not_gone: Vec<&'a Arc<Child>>,
}

async fn tell<'a>(core: &Arc<Core>, children: &'a [Arc<Child>], stop: Stop) -> Told<'a> {
    let mut cause = stop.cause;
    let mut told = Told { shortest: Patience::Unlimited, not_gone: Vec::new() };
    let mut last: &[Arc<Child>] = &[];
    for batch in children.rchunks(BATCH) {
        for child in batch.iter().rev() {
            cause = child.tell(stop.reason, cause);
            told.shortest = shorter(told.shortest, child.patience);
        }
        core.chaos.pause().await;
        tasks::give_way().await;
        // Looked at now, while they are warm in the cache; most have ended meanwhile.
        told.not_gone.extend(last.iter().filter(|child| !child.is_gone()));
        last = batch;
    }
    told.not_gone.extend(last);
    told
}

fn shorter(one: Patience, other: Patience) -> Patience {
    match (one, other) {
        (Patience::Unlimited, patience) | (patience, Patience::Unlimited) => patience,
        (Patience::Kill, _) | (_, Patience::Kill) => Patience::Kill,
        (Patience::Time(one), Patience::Time(other)) => Patience::Time(one.min(other)),
    }
}

/// Children whose time is up at the same instant.
struct Wave<'a> {
    at: Instant,
    reason: KillReason,
    children: Vec<&'a Arc<Child>>,
}

fn waves(children: &[Arc<Child>], told: Instant, deadline: Instant) -> Vec<Wave<'_>> {
    let spent = |child: &Arc<Child>| patience_ends(child.patience, told).filter(|at| *at < deadline);
    let mut waves: Vec<Wave<'_>> = Vec::new();
    let mut by_time: Vec<_> = children.iter().map(|child| (spent(child), child)).collect();
    // Stable: within a wave start order stays. Those without an end of their own come last.
    by_time.sort_by_key(|(at, _)| at.unwrap_or(deadline));
    for (at, child) in by_time {
        let reason = if at.is_some() { KillReason::PatienceSpent } else { KillReason::DeadlineReached };
        let at = at.unwrap_or(deadline);
        match waves.last_mut() {
            Some(wave) if wave.at == at && wave.reason == reason => wave.children.push(child),
            _ => waves.push(Wave { at, reason, children: vec![child] }),
        }
    }
    waves
}

fn abandon(core: &Arc<Core>, children: &[Arc<Child>]) {
    for child in children.iter().filter(|child| child.exit().is_none()) {
        core.journal.announce(child.trail().stopped, || {
            let (what, addressee) = (child.id.as_str().into(), "not gone after the kill".into());
            (ActorName::Generation(core.epoch), EventKind::Lost { what, addressee })
        });
        child.end(ExitReason::Abandoned);
    }
}

/// Waits for effects that began before the seal and outlive their process. Names those that do not end.
async fn await_effects(core: &Arc<Core>, deadline: Instant) -> Vec<Arc<Child>> {
    let bound = deadline.min(Instant::now() + core.limits.cleanup_bound);
    let effects = core.undrained();
    let _ = timeout_at(bound, async {
        for child in &effects {
            child.gate.drained().await;
        }
    })
    .await;
    core.undrained()
}

/// The last events of all children that were there when the generation was sealed, or the seal if there were
/// none. One that had ended before may or may not be forgotten by now, and caused nothing of this.
fn last_events(core: &Core, sealed: Cause) -> Vec<EventId> {
    // Children are many; without a seal event there are no others.
    let Some(sealed) = sealed else {
        return Vec::new();
    };
    let children = core.all_children();
    let last = children.iter().filter_map(|child| child.trail().last);
    let last: Vec<_> = last.filter(|last| *last > sealed).collect();
    if last.is_empty() { vec![sealed] } else { last }
}

async fn end_kernel_actor(
    core: &Arc<Core>,
    which: KernelActor,
    reason: StopReason,
    causes: Vec<EventId>,
) -> Cause {
    let name = which.name(core.epoch);
    let told = core.journal.announce_from(
        || causes,
        || {
            let child = name.clone();
            (ActorName::Generation(core.epoch), EventKind::StopSent { child, reason })
        },
    );
    let graceful = core.stop_kernel_actor(which).await;
    core.journal.emit(told, || {
        // Nobody kills a kernel actor: one that was gone already had failed, and its failure was told then.
        let failed = || EventKind::Ended { exit: "failed".into(), killed: false };
        (name, if graceful { EventKind::ended(&ExitReason::Stopped) } else { failed() })
    })
}
