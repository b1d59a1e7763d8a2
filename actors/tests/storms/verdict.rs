//! What must hold once everything is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_actors::rules::{Patience, ProcessKind};
use tenure_actors::{Application, CloseReport, ExitReason, Generation, OperationFilter, ProcessHandle};

use crate::world::{Answer, Record, World};

pub(crate) async fn reach(world: &Arc<World>, application: &Application) {
    let generations: Vec<_> = world.generations.lock().values().cloned().collect();
    for generation in &generations {
        nothing_is_left(world, generation);
    }
    let tree = application.tree();
    world.check(tree.generations.is_empty(), || format!("the tree is not empty:\n{tree}"));
    for record in world.records.lock().iter() {
        judge(world, record);
    }
    let stale =
        world.leases.lock().iter().filter(|held| held.lease.is_held() || held.lease.release()).count();
    world.check(stale == 0, || format!("{stale} leases stand after the close"));
    // Handles hold what they name; without them all that is left is what the kernel holds.
    world.handles.lock().clear();
    let emptied = tokio::time::timeout(std::time::Duration::from_secs(60), world.deserted()).await;
    world.check(emptied.is_ok(), || format!("not dropped: {:?}", world.alive()));
    // Now that nothing runs any more: a worker may count its last refusal after the close that refused it.
    for generation in &generations {
        account(world, generation).await;
    }
}

fn nothing_is_left(world: &World, generation: &Generation) {
    let (registry, operations) = (generation.registry(), generation.operations());
    let (count, list) = (registry.count(), registry.list());
    let (active, listed) = (operations.count(), operations.list(&OperationFilter::default()));
    let tree = generation.tree();
    world.check(
        count == 0
            && list.is_empty()
            && active == 0
            && listed.is_empty()
            && tree.generations.is_empty()
            && !generation.is_open(),
        || format!("left in epoch {}: {count} {list:?}, {active} {listed:?}\n{tree}", generation.epoch()),
    );
}

/// The report balances and agrees with the accounts.
async fn account(world: &World, generation: &Generation) {
    let report = match generation.closed().await {
        Ok(report) => report,
        Err(error) => return world.fault(format!("epoch {}: {error}", generation.epoch())),
    };
    world.closed(&report);
    let imbalance = report.imbalance();
    world.check(imbalance.is_none(), || format!("{imbalance:?}: {report:?}"));
    commits(world, &report);
    starts(world, &report);
    let accounts = world.accounts.lock();
    let unnamed: Vec<_> = accounts
        .late_ends
        .iter()
        .filter(|(epoch, id)| {
            *epoch == report.epoch.get() && !report.in_flight.iter().any(|named| named.as_str() == id)
        })
        .collect();
    world.check(unnamed.is_empty(), || format!("in flight after the close, but not named: {unnamed:?}"));
}

fn commits(world: &World, report: &CloseReport) {
    let accounts = world.accounts.lock();
    let of = |counts: &std::collections::BTreeMap<u64, u64>| {
        counts.get(&report.epoch.get()).copied().unwrap_or_default()
    };
    let (applied, refused, before) =
        (of(&accounts.applied), of(&accounts.refused), of(&accounts.refused_before));
    let commits = report.commits;
    // Refusals go on after the report, which cannot know of them.
    let agrees = commits.applied == applied && (before..=refused).contains(&commits.dropped);
    world.check(agrees, || format!("{applied} applied, {before} to {refused} refused, but {commits:?}"));
}

fn starts(world: &World, report: &CloseReport) {
    let records = world.records.lock();
    let mut of_epoch = records.iter().filter(|record| record.epoch == report.epoch.get());
    let started =
        of_epoch.clone().filter(|record| matches!(record.answer.get(), Some(Answer::Started))).count();
    // Nobody heard what became of these.
    let unknown = of_epoch.clone().filter(|record| record.is_unknown()).count();
    let counted = usize::try_from(report.started).expect("a small number");
    let agrees = (started..=started + unknown).contains(&counted);
    world.check(agrees, || format!("{started} to {} were started, but {report:?}", started + unknown));
    let named = report.killed.iter().chain(&report.abandoned).chain(report.failed.iter().map(|(id, _)| id));
    for id in named {
        let known = of_epoch.any(|record| record.id == id.as_str());
        let again = records.iter().any(|record| record.id == id.as_str());
        world.check(known || again, || format!("{id} is named, but was never started: {report:?}"));
    }
}

impl Record {
    /// Killed before it could answer, or its caller went away.
    fn is_unknown(&self) -> bool {
        matches!(self.answer.get(), Some(Answer::Killed) | None)
    }
}

fn judge(world: &World, record: &Record) {
    let (starts, closes) = (record.starts.load(Ordering::SeqCst), record.closes.load(Ordering::SeqCst));
    world.check(starts <= 1 && closes <= 1, || format!("{record}: {starts} starts, {closes} closes"));
    if record.plan.kind == ProcessKind::Object && record.removed_first.load(Ordering::SeqCst) {
        world.check(closes == 0, || format!("{record} was removed before any close, and closed"));
    }
    match record.answer.get() {
        None => {
            let left = record.caller_left.load(Ordering::SeqCst);
            world.check(left, || format!("{record} was never answered"));
        }
        Some(Answer::Refused(why)) => {
            world.check(starts == 0 && closes == 0, || format!("{record} was refused ({why}), but called"));
        }
        Some(Answer::Failed(why)) => {
            let is_object = record.plan.kind == ProcessKind::Object;
            // An actor may exceed a bound of real time before its first turn.
            let failed = starts == 1 || record.plan.kind == ProcessKind::Actor;
            world.check(failed, || format!("{record} failed ({why}) after {starts} starts"));
            // An actor that is ready too late is stopped in order.
            world.check(closes == 1 || !is_object, || {
                format!("{record} failed to start ({why}) and was closed {closes} times")
            });
        }
        Some(Answer::Killed) => {}
        Some(Answer::Started) => {
            let handle = world.handle(record).expect("a started process has a handle");
            judge_started(world, record, &handle, (starts, closes));
        }
    }
}

fn judge_started(world: &World, record: &Record, handle: &ProcessHandle, (starts, closes): (usize, usize)) {
    let Some(exit) = handle.exit() else {
        return world.fault(format!("{record} lives after the close of its generation"));
    };
    let killed = matches!(exit, ExitReason::Killed(_));
    world.check(starts == 1 || killed, || format!("{record} ended {exit} after {starts} starts"));
    world.check(!matches!(exit, ExitReason::Abandoned | ExitReason::NeverStarted), || {
        format!("{record} was started and ended {exit}")
    });
    if record.plan.kind != ProcessKind::Object {
        return;
    }
    if killed {
        let patience = record.plan.patience;
        world.check(closes == 0 || patience != Some(Patience::Kill), || {
            format!("{record} was to be killed without a word, but closed")
        });
    } else {
        let wanted = usize::from(!matches!(exit, ExitReason::Removed));
        world.check(closes == wanted, || format!("{record} ended {exit} after {closes} closes"));
    }
}
