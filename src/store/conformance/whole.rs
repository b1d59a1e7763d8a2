//! The store as a whole: its hints, its capabilities, its end.

use std::sync::Arc;
use std::time::Duration;

use super::support::{A, B, LEASE, claim_request, done, failed, run_id, task_id, token, unmoved};
use super::{Fixture, list};
use crate::model::{CancelMode, InstanceId, RunStatus, Subject};
use crate::rules;
use crate::store::{
    Decision, Hint, PageRequest, PruneRequest, Refusal, RefusedKind, RenewRequest, RunFilter, Store,
    StoreError,
};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

list! {
    a_watcher_hears_that_runs_are_ready,
    a_watcher_hears_that_the_agenda_changed,
    a_watcher_hears_of_cancels_of_held_runs,
    a_watcher_hears_of_no_cancel_when_a_holder_ends_its_run,
    a_watcher_hears_that_room_was_made,
    a_watcher_hears_that_a_task_goes_on,
    what_changes_nothing_wakes_nobody,
    every_watcher_hears,
    field_k7_what_is_derived_agrees_after_everything,
    a_check_that_repairs_changes_nothing_that_is_right,
    what_was_answered_outlives_the_store_if_it_is_durable,
    two_that_share_the_records_grant_each_run_once,
    what_one_writes_stands_for_another_that_shares_the_records,
    a_change_wakes_watchers_elsewhere_if_it_can,
    the_clock_of_the_store_is_the_one_it_goes_by,
    nothing_can_be_done_with_a_closed_store,
    closing_twice_is_harmless,
}

/// Waits for a hint like this.
pub(super) async fn hears(watcher: &mut Receiver<Hint>, like: impl Fn(&Hint) -> bool) {
    let waits = async { while !like(&watcher.recv().await.expect("the store is there")) {} };
    tokio::time::timeout(Duration::from_secs(20), waits).await.expect("such a hint within 20 s");
}

async fn a_watcher_hears_that_runs_are_ready(f: Fixture) {
    let task = f.task(json!({})).await;
    let mut watcher = f.store.watch();
    f.queue(&task, "r").await;
    let cursor = f.events(Subject::All).await[0].cursor;
    hears(&mut watcher, |hint| hint.ready && hint.cursor == cursor).await;
}

async fn a_watcher_hears_that_the_agenda_changed(f: Fixture) {
    let task = f.task(json!({})).await;
    let mut watcher = f.store.watch();
    f.queue_later(&task, "r", Duration::from_secs(9)).await;
    hears(&mut watcher, |hint| hint.agenda).await;
    let state = super::support::waiting(&task_id("t"), 2, f.now().await);
    let schedule = Some(crate::store::ScheduleWrite { expect: Some(1), state });
    f.commit(Decision { schedule, ..Decision::default() }).await.unwrap();
    hears(&mut watcher, |hint| hint.agenda).await;
}

async fn a_watcher_hears_of_cancels_of_held_runs(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for (name, mode) in [("asked", CancelMode::Cooperative), ("forced", CancelMode::Force)] {
        f.queue(&task, name).await;
        let running = f.begin(A).await;
        let mut watcher = f.store.watch();
        f.cancel(&running, mode).await;
        hears(&mut watcher, |hint| hint.cancels == [running.run_id.clone()]).await;
    }
}

async fn a_watcher_hears_of_no_cancel_when_a_holder_ends_its_run(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let mut watcher = f.store.watch();
    f.finish(&running, done("x")).await;
    let cursor = f.events(Subject::All).await.last().unwrap().cursor;
    hears(&mut watcher, |hint| {
        assert!(hint.cancels.is_empty(), "{hint:?}");
        hint.cursor == cursor
    })
    .await;
}

async fn a_watcher_hears_that_room_was_made(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "one").await;
    let running = f.begin(A).await;
    f.queue(&task, "two").await;
    let mut watcher = f.store.watch();
    f.finish(&running, done("x")).await;
    hears(&mut watcher, |hint| hint.ready).await;
}

async fn a_watcher_hears_that_a_task_goes_on(f: Fixture) {
    let task = f.task(json!({ "enabled": false })).await;
    f.queue(&task, "r").await;
    assert_eq!(f.claim(A, 1).await, []);
    let mut watcher = f.store.watch();
    f.change(&task, |spec| spec.enabled = true).await;
    hears(&mut watcher, |hint| hint.ready).await;
}

async fn what_changes_nothing_wakes_nobody(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.queue(&task, "r").await;
    let mut watcher = f.store.watch();
    f.claim(A, 0).await;
    let again = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    f.refuses(again).await;
    f.read(&queued.run_id).await;
    // A hint of something else is the first that is heard.
    f.claim_one(A).await;
    let cursor = f.events(Subject::All).await.last().unwrap().cursor;
    let first = tokio::time::timeout(Duration::from_secs(20), watcher.recv()).await.expect("a hint").unwrap();
    assert_eq!(first.cursor, cursor);
    assert_eq!(watcher.try_recv(), Err(TryRecvError::Empty));
}

async fn every_watcher_hears(f: Fixture) {
    let task = f.task(json!({})).await;
    let mut watchers = [f.store.watch(), f.store.watch()];
    f.queue(&task, "r").await;
    for watcher in &mut watchers {
        hears(watcher, |hint| hint.ready).await;
    }
}

/// Runs in every state, and in every place.
async fn everything(f: &Fixture) {
    let policy = json!({ "max_retries": 1, "initial_delay_seconds": 9 });
    let task = f.task(json!({ "retry_policy": policy, "overlap_policy": "allow_parallel" })).await;
    let narrow = f.task(json!({ "task_id": "narrow", "overlap_policy": "queue_next" })).await;
    for name in ["completed", "cancelled", "retrying", "running", "claimed"] {
        f.queue(&task, name).await;
    }
    let held = f.claim(A, 5).await;
    for (run, outcome) in
        held.iter().zip([Some(done("x")), Some(rules::Outcome::Cancelled(None)), Some(failed()), None])
    {
        let running = f.start(run).await;
        if let Some(outcome) = outcome {
            f.finish(&running, outcome).await;
        }
    }
    for name in ["narrow1", "narrow2", "narrow3"] {
        f.queue(&narrow, name).await;
    }
    f.claim(A, 1).await;
    f.queue_later(&task, "future", LEASE).await;
    f.change(&task, |spec| spec.enabled = false).await;
    f.queue(&task, "paused").await;
    f.apply(rules::skip(&task, f.wanted("skipped").await, run_id("running"), f.moment().await)).await;
    f.claim(B, 10).await;
}

async fn field_k7_what_is_derived_agrees_after_everything(f: Fixture) {
    everything(&f).await;
    f.sound().await;
    let rows = f.list(RunFilter::default()).await;
    for (status, count) in f.counts(None).await {
        assert_eq!(rows.iter().filter(|run| run.status == status).count() as u64, count, "{status}");
    }
    let lane = f.lane("task:narrow").await;
    let taken = lane.active.iter().filter(|run| run.status.takes_room()).count();
    assert_eq!((lane.total, taken), (3, 1));
}

async fn a_check_that_repairs_changes_nothing_that_is_right(f: Fixture) {
    everything(&f).await;
    let before = f.list(RunFilter::default()).await;
    let lane = f.lane("task:narrow").await;
    assert_eq!(f.store.check(true).await.unwrap(), Vec::<String>::new());
    assert_eq!(f.list(RunFilter::default()).await, before);
    assert_eq!(f.lane("task:narrow").await, lane);
}

async fn what_was_answered_outlives_the_store_if_it_is_durable(f: Fixture) {
    let durable = f.store.capabilities().durable;
    assert_eq!(f.reopen.is_some(), durable, "a fixture can open the same records again if they last");
    everything(&f).await;
    let before = f.list(RunFilter::default()).await;
    let events = f.events(Subject::All).await;
    f.store.close().await.unwrap();
    let Some(reopen) = &f.reopen else { return };
    let again = Fixture { store: reopen().await, ..f.clone() };
    assert_eq!(again.list(RunFilter::default()).await, before);
    assert_eq!(again.events(Subject::All).await, events);
    again.sound().await;
    f.clock.advance(10 * LEASE);
    let task = again.store.task(&task_id("t")).await.unwrap().unwrap().0;
    again.change(&task, |spec| spec.enabled = true).await;
    let mut claimed: Vec<String> =
        again.claim(B, 10).await.iter().map(|run| run.run_id.to_string()).collect();
    claimed.sort();
    assert_eq!(claimed, ["future", "paused", "retrying"], "what waited still does");
}

async fn two_that_share_the_records_grant_each_run_once(f: Fixture) {
    let Some((reopen, true)) = f.reopen.clone().map(|reopen| (reopen, f.store.capabilities().shared)) else {
        assert!(!f.store.capabilities().shared, "records that are shared can be opened twice");
        return;
    };
    let other = Fixture { store: reopen().await, ..f.clone() };
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..60 {
        f.queue(&task, &format!("r{n}")).await;
    }
    let claims = (0..20_u128).map(|n| {
        let store = if n % 2 == 0 { &f.store } else { &other.store };
        store.claim(claim_request(n, 3))
    });
    let granted = futures_util::future::join_all(claims).await;
    let mut names: Vec<String> =
        granted.into_iter().flat_map(Result::unwrap).map(|run| run.run_id.to_string()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!((count, names.len()), (60, 60));
    other.sound().await;
    // One sees at once what the other did, and is refused on what it has seen before.
    let seen = other.lane("task:narrow").await;
    let narrow = f.task(json!({ "task_id": "narrow" })).await;
    f.queue(&narrow, "first").await;
    let runs = vec![rules::enqueue(&narrow, other.wanted("second").await, other.moment().await)];
    let decision = Decision { runs, lanes: vec![unmoved("task:narrow", &seen)], ..Decision::default() };
    other.commit(decision).await.unwrap_err();
    assert_eq!(other.status(&f.read(&run_id("first")).await).await, RunStatus::Queued);
}

async fn what_one_writes_stands_for_another_that_shares_the_records(f: Fixture) {
    let Some((reopen, true)) = f.reopen.clone().map(|reopen| (reopen, f.store.capabilities().shared)) else {
        assert!(!f.store.capabilities().shared, "records that are shared can be opened twice");
        return;
    };
    let other = Fixture { store: reopen().await, ..f.clone() };
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    // Decided on what this one wrote itself, and remembers.
    let late = f.cancel_write(&running, CancelMode::Cooperative).await;
    other.finish(&running, done("x")).await;
    let refusal = f.refuses(late).await;
    assert!(matches!(refusal, Refusal::StaleRun { status: RunStatus::Completed, .. }), "{refusal}");
}

async fn a_change_wakes_watchers_elsewhere_if_it_can(f: Fixture) {
    let Some((reopen, true)) = f.reopen.clone().map(|reopen| (reopen, f.store.capabilities().watch_across))
    else {
        assert!(!f.store.capabilities().watch_across, "who hears of others can be opened twice");
        return;
    };
    let other = reopen().await;
    let mut watcher = other.watch();
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    hears(&mut watcher, |hint| hint.ready).await;
}

async fn the_clock_of_the_store_is_the_one_it_goes_by(f: Fixture) {
    let before = f.now().await;
    f.later(Duration::from_millis(1));
    assert_eq!(f.now().await, before.plus(Duration::from_millis(1)));
    assert_eq!(f.store.agenda().await.unwrap().now, f.now().await);
}

async fn nothing_can_be_done_with_a_closed_store(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let end = f.end_of(&running, done("x")).await;
    let before = f.now().await;
    f.store.close().await.unwrap();
    let (store, run, id): (&Arc<dyn Store>, _, _) = (&f.store, &running.run_id, task_id("t"));
    let leases = vec![(run.clone(), token(&running))];
    let renew = RenewRequest { instance: InstanceId::from_bits(A), leases, lease: LEASE };
    let page = PageRequest::default;
    let answers = [
        store.now().await.err(),
        store.commit(vec![end.into()]).await.err(),
        store.claim(claim_request(A, 1)).await.err(),
        store.renew(renew).await.err(),
        store.prune(PruneRequest { before, keep: 0, limit: 1 }).await.err(),
        store.check(false).await.err(),
        store.agenda().await.err(),
        store.due_schedules(1).await.err(),
        store.due_runs(None, 1).await.err(),
        store.task(&id).await.err(),
        store.tasks(page()).await.err(),
        store.run(run).await.err(),
        store.run_by_key(&id, "k").await.err(),
        store.runs(RunFilter::default(), page()).await.err(),
        store.attempts(run).await.err(),
        store.events(Subject::All, 0, 1).await.err(),
        store.occurrences(&id, page()).await.err(),
        store.lane("task:t").await.err(),
        store.counts(None).await.err(),
    ];
    for (n, answer) in answers.iter().enumerate() {
        let closed = matches!(answer, Some(StoreError::Refused { kind: RefusedKind::Closed, .. }));
        assert!(closed, "call {n} of the list: {answer:?}");
    }
}

async fn closing_twice_is_harmless(f: Fixture) {
    f.store.close().await.unwrap();
    match f.store.close().await {
        Ok(()) | Err(StoreError::Refused { kind: RefusedKind::Closed, .. }) => {}
        Err(other) => panic!("{other}"),
    }
}
