//! What a host does by itself: everything, one run, or nothing; and how that changes while it lives.

use serde_json::json;
use tenure::model::{CancelMode, Run, TaskSpec};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{Duty, Settings};
use tenure_actors::ProcessSpec;
use tokio::sync::oneshot;

use crate::kit::*;

/// Has the host execute this run, and nothing else.
async fn of_one_run(host: &TestHost, run: &Run) {
    let settings = Settings { duty: Duty::OneRun(run.run_id.clone()), ..host.settings().as_ref().clone() };
    host.replace_with(settings).await.unwrap();
}

async fn idle_host() -> TestHost {
    let settings = Settings { duty: Duty::Nothing, ..TestHost::settings() };
    TestHost::open_with("2026-01-01T00:00:00Z", settings).await
}

#[tokio::test(start_paused = true)]
async fn a_host_of_one_run_executes_it_and_fires_and_claims_nothing_else() {
    let host = idle_host().await;
    let agent = host.agent("agent", Script::new().echoes());
    let retried = json!({ "max_retries": 2, "initial_delay_seconds": 5, "jitter": 0 });
    host.task(task(json!({ "query": "mine", "retry_policy": retried, "overlap_policy": "queue_next" })))
        .await;
    host.task(task(json!({ "task_id": "other", "query": "not mine" }))).await;
    host.task(task(json!({ "task_id": "scheduled", "query": "nor this", "schedule": every(60) }))).await;
    host.run("other").await;
    let first = host.run("t").await;
    let second = host.run("t").await;
    of_one_run(&host, &second).await;
    host.advance(HOUR).await;
    host.see("t").await.assert_statuses("queued, completed");
    host.see("other").await.assert_statuses("queued");
    host.see("scheduled").await.assert_statuses("");
    assert!(agent.calls().iter().all(|call| call.query == "mine"), "{:?}", agent.calls());
    moved_lawfully(host.see("t").await.run(2));
    of_one_run(&host, &first).await;
    host.advance(HOUR).await;
    host.see("t").await.assert_statuses("completed, completed");
    assert_eq!(agent.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_of_one_run_waits_for_its_lane_and_its_retries_and_not_for_a_pause() {
    let (host, gate) = (idle_host().await, Gate::new());
    let beside = host.another_with(TestHost::settings()).await;
    beside.agent("slow", Script::new().waits_at(&gate).answers("done"));
    host.agent("agent", Script::new().fails("exception", "not yet").answers("done"));
    let retried = json!({ "max_retries": 1, "initial_delay_seconds": 5, "jitter": 0 });
    host.task(task(json!({ "agent_id": "slow", "overlap_policy": "queue_next" }))).await;
    host.run("t").await;
    gate.arrived(1).await;
    let spec = json!({ "retry_policy": retried, "overlap_policy": "queue_next" });
    host.put_task(TaskSpec::from_value(&task(spec)).unwrap()).await.unwrap();
    let run = host.run("t").await;
    of_one_run(&host, &run).await;
    host.advance(4 * SECOND).await;
    host.see("t").await.assert_statuses("running, queued");
    gate.open();
    host.advance(2 * SECOND).await;
    host.see("t").await.assert_statuses("completed, retrying");
    host.advance(6 * SECOND).await;
    let seen = host.see("t").await;
    let run = seen.run(2).assert_status("completed").assert_attempts("failed, completed");
    run.assert_events("queued, claimed, started, retrying, claimed, started, completed");

    let run = host.run("t").await;
    host.pause_task(&name("t")).await.unwrap();
    of_one_run(&host, &run).await;
    host.advance(SECOND).await;
    host.see("t").await.assert_statuses("completed, completed, retrying");
}

#[tokio::test(start_paused = true)]
async fn an_attached_facade_does_nothing_by_itself_and_all_that_is_asked() {
    let host = host().await;
    let settings = Settings { duty: Duty::Nothing, ..TestHost::settings() };
    let beside = host.another_with(settings).await;
    let idle = beside.agent("idle", Script::new().answers("done"));
    host.agent("agent", Script::new().takes(HOUR).answers("done"));
    beside.task(task(json!({}))).await;
    beside.task(task(json!({ "task_id": "idle", "agent_id": "idle", "schedule": every(3600) }))).await;
    beside.run("idle").await;
    let run = beside.run("t").await;
    host.advance(SECOND).await;
    assert!(beside.tree().to_string().lines().all(|line| !line.contains("claimer")), "{}", beside.tree());
    beside.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    host.advance(SECOND).await;
    host.see("t").await.run(1).assert_status("cancelled");
    host.see("idle").await.assert_statuses("queued");
    assert!(idle.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_replaced_generation_goes_by_other_settings_and_what_the_old_one_answers_is_dropped() {
    let settings = Settings { concurrency: 1, ..TestHost::settings() };
    let (host, gate) = (TestHost::open_with("2026-01-01T00:00:00Z", settings).await, Gate::new());
    let agent = host.agent("agent", Script::new().waits_at(&gate).stubborn().answers("done"));
    for n in 0..3 {
        let id = format!("t{n}");
        host.task(task(json!({ "task_id": id }))).await;
        host.run(&id).await;
    }
    gate.arrived(1).await;
    assert_eq!(agent.executing(), 1);
    let more = Settings { concurrency: 2, ..host.settings().as_ref().clone() };
    // The old generation waits for its attempt, which answers after it was replaced.
    let answered = async {
        gate.arrived(2).await;
        gate.open();
    };
    let (report, ()) = tokio::join!(host.replace_with(more), answered);
    let report = report.unwrap();
    assert_eq!(host.settings().concurrency, 2);
    assert_eq!(report.commits.dropped, 1, "{report}");
    host.drain().await;
    let seen = host.see("t0").await;
    let run = seen.run(1).assert_status("completed").assert_attempts("interrupted, completed");
    moved_lawfully(run);
    assert_eq!(agent.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn own_v7_what_a_new_generation_begins_is_renewed_once_the_old_one_has_gone() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(HOUR).answers("done"));
    host.task(task(json!({}))).await;
    // A plugin of the old generation takes its time. Its services live as long, and nothing is held yet.
    let (go, goes) = oneshot::channel::<()>();
    let slow = ProcessSpec::function("slow", move |_| async move {
        drop(goes.await);
        Ok(())
    });
    host.application().current().registry().start("slow", slow).await.unwrap();
    let begins = async {
        host.run("t").await;
        host.advance(SECOND).await;
        go.send(()).unwrap();
    };
    let (report, ()) = tokio::join!(host.replace(), begins);
    report.unwrap();
    let other = host.another().await;
    other.agent("agent", &agent);
    host.advance(2 * HOUR).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
}
