//! K: concurrency and uniqueness.

use serde_json::json;
use tenure::model::RunStatus;
use tenure::store::{LaneView, Store};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{RunRequest, Settings};

use crate::kit::*;

fn keyed(key: &str) -> RunRequest {
    RunRequest { idempotency_key: Some(key.into()), ..RunRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn field_k01_a_killed_holders_key_is_free_when_its_lease_ends() {
    let a = host().await;
    let b = a.another().await;
    a.agent("agent", Script::new().hangs());
    for id in ["a", "b"] {
        a.task(task(json!({ "task_id": id, "agent_id": if id == "a" { "agent" } else { "next" },
            "concurrency_key": "k" })))
            .await;
        a.run(id).await;
        a.drain().await;
    }
    b.agent("next", Script::new().answers("done"));
    b.drain().await;
    b.see("b").await.assert_statuses("queued");
    a.kill();
    b.advance(TAKEOVER).await;
    b.see("b").await.assert_statuses("completed");
}

#[tokio::test(start_paused = true)]
async fn field_k02_what_is_blocked_moves_on_without_new_work() {
    let settings = Settings { concurrency: 100, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let agent = host.agent("agent", Script::new().takes(SECOND / 1000).answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel", "concurrency_key": "k",
        "concurrency_limit": 10 })))
        .await;
    for _ in 0..500 {
        host.run("t").await;
    }
    host.drain().await;
    host.see("t").await.assert_count("completed", 500);
    assert!(agent.most_at_once() <= 10, "{}", agent.most_at_once());
    let at: Vec<_> = agent.calls().iter().map(|call| call.at).collect();
    assert!(at.windows(2).all(|two| two[1].since(two[0]) < SECOND), "no idle second");
}

#[tokio::test(start_paused = true)]
async fn field_k03_keys_without_contention_cost_no_time() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(SECOND / 10).answers("done"));
    let session = json!({ "type": "fixed", "session_id": "s" });
    host.task(task(json!({ "overlap_policy": "queue_next", "concurrency_key": "k",
        "session_policy": session })))
        .await;
    let began = host.now().await;
    for _ in 0..4 {
        host.run("t").await;
    }
    host.drain().await;
    host.see("t").await.assert_count("completed", 4);
    assert!(host.now().await.since(began) < SECOND * 6 / 10);
    assert_eq!(agent.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn field_k05_many_keys_with_failures_block_nothing_and_leave_nothing() {
    let host = host().await;
    host.agent("good", Script::new().answers("done"));
    host.agent("bad", Script::new().fails("exception", "no"));
    let many = as_many(5000, 2000);
    for n in 0..many {
        let agent = if n % 2 == 0 { "good" } else { "bad" };
        let id = format!("t{n}");
        let key = format!("key {n}");
        host.task(task(json!({ "task_id": id, "agent_id": agent, "concurrency_key": key }))).await;
        host.run(&id).await;
    }
    host.drain().await;
    let counts = host.status().await.unwrap().counts;
    let of = |status| counts.iter().find(|(found, _)| *found == status).map_or(0, |(_, many)| *many);
    assert_eq!((of(RunStatus::Completed), of(RunStatus::Failed)), (many as u64 / 2, many as u64 / 2));
    for n in 0..many {
        assert_eq!(host.store().lane(&format!("key:key {n}")).await.unwrap(), LaneView::default());
    }
}

#[tokio::test(start_paused = true)]
async fn field_k06_a_stuck_head_piles_nothing_up() {
    let host = host().await;
    host.agent("agent", Script::new().hangs());
    host.task(task(json!({ "overlap_policy": "queue_next", "schedule": every(60) }))).await;
    host.advance(3800 * MINUTE).await;
    let seen = host.see("t").await;
    seen.assert_statuses("running, queued");
    assert_eq!(seen.occurrences.len(), 3800);
    let ran = seen.occurrences.iter().filter(|o| tenure_outcome(o) == "ran").count();
    assert_eq!(ran, 2, "the other 3,798 are recorded as standing behind the one that waits");
}

fn tenure_outcome(occurrence: &tenure::model::Occurrence) -> String {
    serde_json::to_value(occurrence).unwrap()["outcome"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn field_k08_a_first_insert_that_fails_does_not_stand_for_the_second() {
    let a = host().await;
    let b = a.another().await;
    b.agent("agent", Script::new().answers("done"));
    a.task(task(json!({}))).await;
    let task_id = name("t");
    let cut = async {
        tokio::task::yield_now().await;
        a.cut_off();
    };
    let (first, second, ()) =
        tokio::join!(a.run_now(&task_id, keyed("k")), b.run_now(&task_id, keyed("k")), cut);
    assert!(first.is_err(), "{first:?}");
    assert!(second.is_ok());
    b.drain().await;
    b.see("t").await.assert_statuses("completed");
}

#[tokio::test(start_paused = true)]
async fn field_k09_of_many_requests_with_few_keys_each_key_has_one_run() {
    let host = host().await;
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    let (task_id, mut ids) = (name("t"), std::collections::BTreeSet::new());
    for n in 0..100 {
        ids.insert(host.run_now(&task_id, keyed(&format!("key {}", n % 10))).await.unwrap().run_id);
    }
    assert_eq!(ids.len(), 10);
    assert_eq!(host.see("t").await.runs.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn field_k10_keys_that_differ_deep_inside_are_different_keys() {
    let host = host().await;
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    let (one, two) = (json!({ "a": [{ "id": 1 }] }).to_string(), json!({ "a": [{ "id": 2 }] }).to_string());
    for key in [&one, &two, &one] {
        host.run_now(&name("t"), keyed(key)).await.unwrap();
    }
    assert_eq!(host.see("t").await.runs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn field_k12_one_late_occurrence_and_two_hosts_make_one_run() {
    let host = host().await;
    host.task(task(json!({ "schedule": every(60) }))).await;
    host.shutdown().await.unwrap();
    host.advance(90 * SECOND).await;
    let (gate, a) = (Gate::new(), host.another().await);
    gate.open();
    let b = host.another().await;
    let agent = a.agent("agent", Script::new().waits_at(&gate).answers("done"));
    b.agent("agent", &agent);
    a.drain().await;
    assert_eq!(agent.calls().len(), 1);
    a.see("t").await.assert_occurrences("ran").assert_statuses("completed");
}
