//! C: cancel and shutdown.

use serde_json::json;
use tenure::CancelFilter;
use tenure::Settings;
use tenure::model::{ApprovalAnswer, CancelMode, EventKind, RunStatus};
use tenure::testkit::{Gate, Script, TestHost};
use tokio::time::Instant;

use crate::kit::*;

/// A host that executes a run which does not end by itself, and waits two seconds for it when it shuts down.
async fn executing() -> TestHost {
    let settings = Settings { drain: SECOND, patience: SECOND, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    host.agent("agent", Script::new().hangs());
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.drain().await;
    host
}

#[tokio::test(start_paused = true)]
async fn field_c01_a_shutdown_waits_no_longer_than_its_limits() {
    let host = executing().await;
    let asked = host.now().await;
    let ended = host.shutdown().await.unwrap();
    assert_eq!((ended.interrupted, ended.unstored), (1, 0));
    assert!(host.now().await.since(asked) < 3 * SECOND);
    let seen = host.see("t").await;
    let run = seen.run(1).assert_status("queued").assert_attempts("interrupted");
    assert!(run.attempts[0].error.is_some(), "it says why");
}

/// What cannot be stored is left to the end of its lease.
#[tokio::test(start_paused = true)]
async fn field_c11_a_close_has_its_limits_though_the_store_says_nothing() {
    let host = executing().await;
    host.hang_store();
    let asked = Instant::now();
    let ended = host.shutdown().await.unwrap();
    assert_eq!((ended.interrupted, ended.unstored), (1, 1));
    assert!(asked.elapsed() < MINUTE, "{:?}", asked.elapsed());
    host.reconnect();
    host.see("t").await.run(1).assert_status("running");
}

#[tokio::test(start_paused = true)]
async fn field_c02_a_cancel_whose_hint_was_missed_is_found_by_the_next_heartbeat() {
    let (host, gate) = (host().await, Gate::new());
    let other = host.another().await;
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    host.cut_off();
    other.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    other.drain().await;
    host.reconnect();
    let asked = host.now().await;
    host.advance(host.settings().heartbeat()).await;
    let seen = host.see("t").await;
    let run = seen.run(1).assert_status("cancelled");
    assert!(run.run.finished_at.unwrap().since(asked) <= host.settings().heartbeat());
}

#[tokio::test(start_paused = true)]
async fn field_c03_a_dead_hosts_run_is_cancelled_by_force_at_once() {
    let a = host().await;
    let b = a.another().await;
    a.agent("agent", Script::new().hangs());
    a.task(task(json!({}))).await;
    let run = a.run("t").await;
    a.drain().await;
    let fence = a.see("t").await.run(1).run.fence;
    a.kill();
    let run = b.cancel_run(&run.run_id, &ask(CancelMode::Force)).await.unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    assert!(run.fence > fence, "the old fence is dead");
}

#[tokio::test(start_paused = true)]
async fn field_c04_a_cancel_without_any_worker_is_not_forgotten() {
    let host = host().await;
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    host.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    host.shutdown().await.unwrap();
    let next = host.another().await;
    let agent = next.agent("agent", Script::new().answers("done"));
    next.advance(DAY).await;
    assert_eq!(agent.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn field_c06_runs_that_are_cancelled_in_bulk_are_not_tried_again() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "no"));
    let policy = json!({ "max_retries": 100, "initial_delay_seconds": 30 });
    host.task(task(json!({ "overlap_policy": "allow_parallel", "retry_policy": policy }))).await;
    let many = as_many(10_000, 4000);
    for _ in 0..many {
        host.run("t").await;
    }
    host.drain().await;
    let met = host.cancel_runs(CancelFilter::default(), &ask(CancelMode::Force)).await.unwrap();
    assert_eq!(met.ended, many as u64);
    let before = agent.calls().len();
    host.advance(HOUR).await;
    assert_eq!(agent.calls().len(), before);
    host.see("t").await.assert_count("cancelled", many);
}

#[tokio::test(start_paused = true)]
async fn field_c08_cancelling_one_run_leaves_the_other_and_a_wide_cancel_says_how_many() {
    let (host, gate) = (host().await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    let first = host.run("t").await;
    host.run("t").await;
    gate.arrived(2).await;
    host.cancel_run(&first.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    host.drain().await;
    host.see("t").await.assert_statuses("cancelled, running");
    let met = host.cancel_runs(CancelFilter::default(), &ask(CancelMode::Cooperative)).await.unwrap();
    assert_eq!((met.ended, met.requested), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn field_c09_after_a_kill_a_key_of_one_never_runs_two() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().takes(20 * SECOND).answers("done"));
    for id in ["a", "b", "c"] {
        host.task(task(json!({ "task_id": id, "concurrency_key": "k" }))).await;
        host.run(id).await;
    }
    for _ in 0..3 {
        host.advance(5 * SECOND).await;
        let next = host.another().await;
        host.kill();
        next.agent("agent", &agent);
        next.advance(SECOND).await;
        assert!(agent.executing() <= 1);
        host = next;
    }
    host.advance(HOUR).await;
    assert_eq!(agent.most_at_once(), 1);
    for id in ["a", "b", "c"] {
        host.see(id).await.assert_statuses("completed");
    }
}

#[tokio::test(start_paused = true)]
async fn field_c10_a_run_is_released_only_after_its_attempt_lost_its_authority() {
    let settings = Settings { drain: SECOND, ..TestHost::settings() };
    let a = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().stubborn().takes(HOUR).commits("late").answers("done"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    a.advance(SECOND).await;
    b.agent("agent", &agent);
    a.shutdown().await.unwrap();
    b.advance(2 * HOUR).await;
    assert_eq!((agent.most_at_once(), agent.calls().len()), (1, 2));
    let effects = agent.effects();
    assert!(effects.iter().all(|effect| (effect.fence == 2) == effect.refused.is_none()), "{effects:?}");
    b.see("t").await.run(1).assert_attempts("interrupted, completed");
}

#[tokio::test(start_paused = true)]
async fn field_c12_what_a_draining_host_executes_is_started_nowhere_else() {
    let settings = Settings { drain: 5 * MINUTE, ..TestHost::settings() };
    let a = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().takes(4 * MINUTE).answers("done"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    a.advance(SECOND).await;
    b.agent("agent", &agent);
    let ended = a.shutdown().await.unwrap();
    assert_eq!(ended.interrupted, 0);
    assert_eq!(agent.attempts(), [1]);
    b.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
}

#[tokio::test(start_paused = true)]
async fn field_c13_a_run_that_waits_for_a_person_is_told_and_can_be_resumed() {
    let host = host().await;
    host.agent("agent", Script::new().fails("exception", "no").asks("go on?").answers("done"));
    host.task(task(json!({ "retry_policy": { "max_retries": 1, "initial_delay_seconds": 1 } }))).await;
    let run = host.run("t").await;
    let mut events = host.follow(tenure::model::Subject::Run(run.run_id.clone()), 0);
    let event = loop {
        let event = events.next().await.unwrap();
        if event.event == EventKind::AwaitingApproval {
            break event;
        }
    };
    assert_eq!(event.data["question"], "go on?");
    let waiting = host.see("t").await;
    assert_eq!(waiting.run(1).run.error.as_ref().unwrap().message.as_ref(), "no", "with the last error");
    host.resume_run(&run.run_id, ApprovalAnswer { approved: true, answer: json!(null) }).await.unwrap();
    host.drain().await;
    host.see("t").await.assert_statuses("completed");
}
