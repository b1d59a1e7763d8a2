//! What is due: told by the store's clock, page by page, without looking at what is not.

use std::time::Duration;

use super::support::{A, LEASE, ask, done, failed, ids};
use super::{Fixture, list};
use crate::model::{CancelMode, RunStatus};
use crate::rules::{self, CancelRequest};
use crate::store::Agenda;
use serde_json::json;

list! {
    an_empty_store_has_nothing_on_its_agenda,
    the_agenda_tells_when_a_run_becomes_due,
    the_agenda_tells_when_a_retry_becomes_due,
    the_agenda_tells_when_a_lease_expires_and_follows_renewals,
    a_run_past_its_deadline_is_due_to_be_looked_at,
    a_run_that_is_to_be_stopped_by_force_is_due_to_be_looked_at,
    field_l06_runs_of_every_kind_of_timeout_are_found_when_their_lease_expires,
    field_l08_a_page_of_runs_hides_none_behind_it,
    an_ended_run_is_never_looked_at_again,
}

async fn an_empty_store_has_nothing_on_its_agenda(f: Fixture) {
    let now = f.now().await;
    assert_eq!(f.store.agenda().await.unwrap(), Agenda { now, ..Agenda::default() });
    assert_eq!(f.store.due_runs(None, 10).await.unwrap(), []);
    assert!(f.store.due_schedules(10).await.unwrap().is_empty());
}

async fn the_agenda_tells_when_a_run_becomes_due(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let sooner = f.queue_later(&task, "sooner", Duration::from_secs(5)).await;
    f.queue_later(&task, "later", Duration::from_secs(9)).await;
    let agenda = f.store.agenda().await.unwrap();
    assert_eq!((agenda.run, agenda.ready, agenda.wake), (Some(sooner.due_at), false, None));
    f.cancel(&sooner, CancelMode::Cooperative).await;
    let agenda = f.store.agenda().await.unwrap();
    assert_eq!(agenda.run, Some(sooner.due_at.plus(Duration::from_secs(4))));
    f.queue(&task, "now").await;
    assert!(f.has_ready().await);
    f.claim_one(A).await;
    assert!(!f.has_ready().await);
}

async fn the_agenda_tells_when_a_retry_becomes_due(f: Fixture) {
    let policy = json!({ "max_retries": 1, "initial_delay_seconds": 7, "jitter": 0.0 });
    let task = f.task(json!({ "retry_policy": policy })).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let waits = f.finish(&running, failed()).await;
    let agenda = f.store.agenda().await.unwrap();
    assert_eq!((agenda.run, agenda.ready), (Some(waits.due_at), false));
    assert_eq!(waits.due_at, f.now().await.plus(Duration::from_secs(7)));
}

async fn the_agenda_tells_when_a_lease_expires_and_follows_renewals(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let wake = || async { f.store.agenda().await.unwrap().wake };
    assert_eq!(wake().await, Some(running.lease.unwrap().expires_at));
    f.later(Duration::from_secs(10));
    f.renew(&running, LEASE).await;
    assert_eq!(wake().await, Some(f.now().await.plus(LEASE)));
    f.later(LEASE - Duration::from_millis(1));
    assert_eq!(f.store.due_runs(None, 10).await.unwrap(), []);
    f.later(Duration::from_millis(1));
    assert_eq!(ids(&f.store.due_runs(None, 10).await.unwrap()), ["r"]);
    f.finish(&running, done("x")).await;
    assert_eq!(wake().await, None);
}

async fn a_run_past_its_deadline_is_due_to_be_looked_at(f: Fixture) {
    let task = f.task(json!({ "deadline_seconds": 60 })).await;
    let queued = f.queue(&task, "r").await;
    assert_eq!(f.store.agenda().await.unwrap().wake, queued.spec.limits.deadline_at);
    f.later(Duration::from_secs(60));
    assert_eq!(ids(&f.store.due_runs(None, 10).await.unwrap()), ["r"]);
    assert_eq!(f.sweep(&queued).await.unwrap().status, RunStatus::Timeout);
    assert_eq!(f.claim(A, 1).await, []);
    f.sound().await;
}

async fn a_run_that_is_to_be_stopped_by_force_is_due_to_be_looked_at(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let force_after = Some(Duration::from_secs(15));
    let request = CancelRequest { force_after, ..ask(CancelMode::Cooperative) };
    let rules::Cancel::Write(write) = rules::cancel(&running, &request, f.moment().await) else {
        panic!("a running run can be cancelled")
    };
    let asked = f.apply(write).await;
    f.later(Duration::from_secs(15));
    assert_eq!(ids(&f.store.due_runs(None, 10).await.unwrap()), ["r"]);
    let ended = f.sweep(&asked).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert!(ended.fence > asked.fence);
}

async fn field_l06_runs_of_every_kind_of_timeout_are_found_when_their_lease_expires(f: Fixture) {
    for (name, timeout) in [("none", json!(null)), ("short", json!(0.001)), ("long", json!(1_000_000))] {
        let task = f.task(json!({ "task_id": name, "timeout_seconds": timeout })).await;
        f.queue(&task, name).await;
        f.begin(A).await;
    }
    f.later(LEASE);
    let mut found: Vec<String> =
        f.store.due_runs(None, 10).await.unwrap().iter().map(|run| run.run_id.to_string()).collect();
    found.sort();
    assert_eq!(found, ["long", "none", "short"]);
}

async fn field_l08_a_page_of_runs_hides_none_behind_it(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..7 {
        f.queue(&task, &format!("r{n}")).await;
        f.claim_one(A).await;
        f.later(Duration::from_millis(if n == 3 { 0 } else { 5 }));
    }
    f.later(LEASE);
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = f.store.due_runs(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2, "{} on a page of 2", page.len());
        after = rules::wake_at(last).map(|at| (at, last.run_id.clone()));
        seen.extend(page.iter().map(|run| run.run_id.to_string()));
        assert!(seen.len() <= 7, "none is seen twice: {seen:?}");
    }
    assert_eq!(seen, ["r0", "r1", "r2", "r3", "r4", "r5", "r6"], "none is dealt with");
}

async fn an_ended_run_is_never_looked_at_again(f: Fixture) {
    let task = f.task(json!({ "deadline_seconds": 60, "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "completed").await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    let cancelled = f.queue(&task, "cancelled").await;
    f.cancel(&cancelled, CancelMode::Cooperative).await;
    f.later(Duration::from_secs(3600));
    assert_eq!(f.store.due_runs(None, 10).await.unwrap(), []);
    let now = f.now().await;
    assert_eq!(f.store.agenda().await.unwrap(), Agenda { now, ..Agenda::default() });
}
