//! What holds after every step.

use std::collections::BTreeMap;

use tenure::model::{EventKind, Run, RunId, RunStatus, Subject};
use tenure::store::conformance::Fixture;

use super::world::{World, all, plain};

/// What was seen before: some of it never changes, some only rises.
#[derive(Default)]
pub(crate) struct Seen {
    runs: BTreeMap<RunId, Run>,
    cursor: u64,
}

impl World {
    /// Every store keeps the invariants, and they agree.
    pub(crate) async fn holds(&mut self) {
        let runs = self.all().await;
        for fixture in &self.stores {
            assert_eq!(fixture.store.check(false).await.unwrap(), Vec::<String>::new());
            counters_equal_rows(fixture, &runs).await;
            for run in &runs {
                events_are_gapless(fixture, run).await;
            }
        }
        for other in &self.stores[1..] {
            let plain = |runs: &[Run]| runs.iter().map(plain).collect::<Vec<_>>();
            assert_eq!(plain(&all(other).await), plain(&runs), "the stores hold different runs");
        }
        lanes_are_within_their_limits(&runs);
        for run in &runs {
            is_whole(run);
            if let Some(before) = self.seen.runs.get(&run.run_id) {
                follows(before, run);
            }
        }
        self.seen.runs = runs.into_iter().map(|run| (run.run_id.clone(), run)).collect();
        self.seen.cursor = no_event_hides(&self.stores[0], self.seen.cursor).await;
    }
}

/// I1, I5, T4: it is held, or it waits, or it has ended; never nothing of these.
fn is_whole(run: &Run) {
    assert_eq!(run.lease.is_some(), run.status.is_held(), "{run:?}");
    assert_eq!(run.finished_at.is_some(), run.status.is_terminal(), "{run:?}");
    let placed = run.place != tenure::model::Place::Nowhere;
    assert_eq!(placed, run.status.is_waiting(), "{run:?}");
}

/// I2, L5, T1, T2: what a run may become.
fn follows(before: &Run, after: &Run) {
    if before.status.is_terminal() {
        assert_eq!(before, after, "a terminal run never changes");
    }
    assert!(after.version >= before.version && after.fence >= before.fence, "{before:?} then {after:?}");
    assert!(after.last_event >= before.last_event);
    match (before.lease, after.lease) {
        (Some(old), Some(new)) if before.token() == after.token() => {
            assert!(new.expires_at >= old.expires_at, "an expiry moved back");
        }
        (_, Some(_)) => assert!(after.fence > before.fence, "a grant without a higher fence"),
        (_, None) => {}
    }
}

/// T3 and I4 by what was told, and that it was told without gaps.
async fn events_are_gapless(fixture: &Fixture, run: &Run) {
    let events = fixture.store.events(Subject::Run(run.run_id.clone()), 0, usize::MAX).await.unwrap();
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, (1..=run.last_event).collect::<Vec<_>>(), "events of {}", run.run_id);
    assert!(events.is_sorted_by(|before, after| before.cursor < after.cursor));
    let ends = events.iter().filter(|event| event.status.is_some_and(RunStatus::is_terminal)).count();
    assert_eq!(ends, usize::from(run.status.is_terminal()), "at most one outcome: {events:?}");
    let started = events.iter().filter(|event| event.event == EventKind::Started).count();
    assert_eq!(started, run.attempt as usize);
    let asked = events.iter().filter(|event| event.event == EventKind::AwaitingApproval).count();
    let most = run.spec.retry_policy.max_retries + 1 + run.interruptions + u32::try_from(asked).unwrap();
    assert!(run.attempt <= most, "{} attempts, {most} allowed", run.attempt);
    let attempts = fixture.store.attempts(&run.run_id).await.unwrap();
    assert_eq!(attempts.len(), run.attempt as usize);
}

async fn counters_equal_rows(fixture: &Fixture, runs: &[Run]) {
    let mut counted: BTreeMap<RunStatus, u64> = BTreeMap::new();
    for run in runs {
        *counted.entry(run.status).or_default() += 1;
    }
    let counts = fixture.store.counts(None).await.unwrap();
    let counts: BTreeMap<RunStatus, u64> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counts, counted);
}

fn lanes_are_within_their_limits(runs: &[Run]) {
    let mut taken: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.status.takes_room()) {
        for lane in &run.spec.lanes {
            let (count, limit) = taken.entry(&lane.name).or_default();
            *count += 1;
            *limit = lane.limit;
        }
    }
    for (lane, (count, limit)) in taken {
        assert!(count <= limit, "{count} take room in \"{lane}\", which has room for {limit}");
    }
}

/// A reader of all events never sees a cursor below one it has seen.
async fn no_event_hides(fixture: &Fixture, after: u64) -> u64 {
    let events = fixture.store.events(Subject::All, after, usize::MAX).await.unwrap();
    assert!(events.iter().all(|event| event.cursor > after));
    events.last().map_or(after, |event| event.cursor)
}
