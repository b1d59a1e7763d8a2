//! Retention: what has ended goes, in bounded batches; what lives, and what could still fence, stays.

use std::time::Duration;

use super::support::{
    A, GRACE, LEASE, change_with_events, done, ids, put, run_id, task_event, task_id, token,
};
use super::{Fixture, list};
use crate::model::{
    EventKind, InstanceId, Occurrence, OccurrenceOutcome, RunStatus, SkipReason, Subject, Timestamp,
};
use crate::store::{Decision, PageRequest, PruneRequest, Pruned, Refusal, Renewal, RunFilter, TaskWrite};
use serde_json::json;

list! {
    own_i10_pruning_removes_all_that_an_ended_run_had,
    only_what_ended_before_the_instant_is_removed,
    nothing_that_lives_is_removed,
    the_oldest_beyond_a_number_are_removed,
    field_g02_a_batch_is_bounded_and_says_whether_there_is_more,
    old_occurrences_are_removed,
    old_events_of_tasks_are_removed,
    old_events_of_tasks_are_removed_in_batches,
    own_l19_a_removed_run_cannot_be_written_by_who_held_it,
}

const DAY: Duration = Duration::from_secs(86_400);

fn told(pruned: &Pruned) -> (u64, u64, bool) {
    (pruned.runs, pruned.occurrences, pruned.more)
}

/// Everything that ended by now, whatever its number.
async fn all(f: &Fixture, limit: usize) -> PruneRequest {
    PruneRequest { before: f.now().await.plus(Duration::from_millis(1)), keep: u64::MAX, limit }
}

async fn ended(f: &Fixture, count: usize) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..count {
        f.queue(&task, &format!("r{n}")).await;
        let running = f.begin(A).await;
        f.finish(&running, done("x")).await;
        f.later(Duration::from_millis(1));
    }
}

async fn own_i10_pruning_removes_all_that_an_ended_run_had(f: Fixture) {
    ended(&f, 1).await;
    let pruned = f.store.prune(all(&f, 10).await).await.unwrap();
    assert_eq!(told(&pruned), (1, 0, false));
    // Whoever keeps the files of its runs is told which to remove.
    assert_eq!(pruned.workspaces, [std::sync::Arc::<str>::from("background/agent/t/r0")]);
    assert_eq!(f.store.run(&run_id("r0")).await.unwrap(), None);
    assert_eq!(f.store.attempts(&run_id("r0")).await.unwrap(), []);
    assert_eq!(f.events(Subject::Run(run_id("r0"))).await, []);
    assert_eq!(f.events(Subject::All).await, []);
    assert_eq!(f.list(RunFilter::default()).await, []);
    assert!(f.counts(None).await.is_empty() && f.counts(Some(&task_id("t"))).await.is_empty());
    assert!(f.store.task(&task_id("t")).await.unwrap().is_some(), "a task is no history");
    assert_eq!(f.store.prune(all(&f, 10).await).await.unwrap(), Pruned::default());
    f.sound().await;
}

async fn only_what_ended_before_the_instant_is_removed(f: Fixture) {
    let start = f.now().await;
    ended(&f, 3).await;
    let request = PruneRequest { before: start.plus(Duration::from_millis(1)), keep: u64::MAX, limit: 10 };
    assert_eq!(told(&f.store.prune(request).await.unwrap()), (1, 0, false));
    assert_eq!(ids(&f.list(RunFilter::default()).await), ["r2", "r1"]);
}

async fn nothing_that_lives_is_removed(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "asks").await;
    let running = f.begin(A).await;
    let asks = crate::rules::Outcome::AwaitingApproval { question: "?".into(), data: json!(null) };
    f.finish(&running, asks).await;
    f.queue(&task, "runs").await;
    f.begin(A).await;
    f.queue(&task, "claimed").await;
    f.claim_one(A).await;
    f.queue(&task, "waits").await;
    f.delete(&task).await;
    f.later(1000 * DAY);
    let told = f.events(Subject::All).await;
    let request = PruneRequest { before: f.now().await, keep: 0, limit: 100 };
    assert_eq!(f.store.prune(request).await.unwrap().runs, 0);
    assert_eq!(f.events(Subject::All).await, told, "nor anything that was told of it");
    assert_eq!(f.list(RunFilter::default()).await.len(), 4);
    assert_eq!(f.claim(A, 10).await.len(), 1);
    f.sound().await;
}

async fn the_oldest_beyond_a_number_are_removed(f: Fixture) {
    ended(&f, 5).await;
    let request = PruneRequest { before: Timestamp::from_ms(i64::MIN), keep: 2, limit: 100 };
    assert_eq!(told(&f.store.prune(request).await.unwrap()), (3, 0, false));
    assert_eq!(ids(&f.list(RunFilter::default()).await), ["r4", "r3"]);
    let request = PruneRequest { keep: u64::MAX, ..request };
    assert_eq!(f.store.prune(request).await.unwrap(), Pruned::default());
}

async fn field_g02_a_batch_is_bounded_and_says_whether_there_is_more(f: Fixture) {
    ended(&f, 5).await;
    for (removed, more) in [(2, true), (2, true), (1, false), (0, false)] {
        let pruned = f.store.prune(all(&f, 2).await).await.unwrap();
        assert_eq!((pruned.runs, pruned.more), (removed, more));
        f.sound().await;
    }
}

async fn old_occurrences_are_removed(f: Fixture) {
    f.task(json!({})).await;
    let start = f.now().await;
    for n in 0..4 {
        let now = f.now().await;
        let outcome = OccurrenceOutcome::Skipped { reason: SkipReason::Missed };
        let recorded_by = InstanceId::from_bits(A);
        // Due in the other order: what counts is when it was recorded.
        let due_at = start.minus(n * DAY);
        let record = Occurrence {
            task_id: task_id("t"),
            due_at,
            outcome,
            late_by_ms: 0,
            recorded_at: now,
            recorded_by,
            count: 1,
        };
        f.commit(Decision { occurrences: vec![record], ..Decision::default() }).await.unwrap();
        f.later(DAY);
    }
    let request = PruneRequest { before: start.plus(3 * DAY), keep: u64::MAX, limit: 2 };
    assert_eq!(told(&f.store.prune(request).await.unwrap()), (0, 2, true));
    assert_eq!(told(&f.store.prune(request).await.unwrap()), (0, 1, false));
    let left = f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap().items;
    assert_eq!(left.iter().map(|record| record.due_at).collect::<Vec<_>>(), [start.minus(3 * DAY)]);
}

async fn old_events_of_tasks_are_removed(f: Fixture) {
    let mut task = f.task(json!({})).await;
    for n in 1..4 {
        let next = super::support::changed(&task, |spec| spec.priority = n);
        let sequence = u64::from(n.unsigned_abs());
        let events = vec![task_event(sequence, EventKind::TaskUpdated, f.now().await)];
        let write = TaskWrite { events, ..put(&next, Some(task.revision)) };
        f.commit(Decision { task: Some(write), ..Decision::default() }).await.unwrap();
        task = next;
        f.later(DAY);
    }
    let before = f.now().await.minus(DAY);
    let request = PruneRequest { before, keep: u64::MAX, limit: 10 };
    assert!(!f.store.prune(request).await.unwrap().more);
    let left = f.events(Subject::Task(task_id("t"))).await;
    assert_eq!(left.iter().map(|event| event.sequence).collect::<Vec<_>>(), [3]);
    assert_eq!(f.events(Subject::All).await, left);
}

async fn old_events_of_tasks_are_removed_in_batches(f: Fixture) {
    let task = f.task(json!({})).await;
    change_with_events(&f, &task, 5).await;
    f.later(DAY);
    for (more, first) in [(true, 3), (true, 5), (false, 6)] {
        let request = PruneRequest { before: f.now().await, keep: u64::MAX, limit: 2 };
        assert_eq!(f.store.prune(request).await.unwrap().more, more);
        let left = f.events(Subject::Task(task_id("t"))).await;
        let left: Vec<u64> = left.iter().map(|event| event.sequence).collect();
        assert_eq!(left, (first..6).collect::<Vec<u64>>());
    }
    f.sound().await;
}

async fn own_l19_a_removed_run_cannot_be_written_by_who_held_it(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    let late = f.end_of(&first, done("late")).await;
    f.later(LEASE + GRACE);
    f.sweep(&first).await.unwrap();
    let second = f.begin(A).await;
    f.finish(&second, done("x")).await;
    assert_eq!(f.store.prune(all(&f, 10).await).await.unwrap().runs, 1);
    assert_eq!(f.refuses(late).await, Refusal::NoRun { run_id: run_id("r") });
    assert_eq!(f.renew(&first, LEASE).await, Renewal::Gone);
    // Made again under its name, it is another run: the fence alone would not tell, the nonce does.
    f.queue(&task, "r").await;
    let again = f.begin(A).await;
    assert_ne!(token(&again), token(&first));
    assert!(matches!(f.renew(&first, LEASE).await, Renewal::Fenced { status: RunStatus::Running, .. }));
}
