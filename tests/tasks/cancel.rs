//! Cancelling, pausing, deleting.

use serde_json::json;
use tenure::model::{CancelMode, RunStatus};
use tenure::rules::CancelRequest;
use tenure::testkit::{Gate, Script};
use tenure::{CancelFilter, Deletion, Error, RunRequest};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn task_t40_a_queued_run_that_is_cancelled_never_starts() {
    let host = host().await;
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    let cancelled = host.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    assert_eq!(cancelled.status, RunStatus::Cancelled, "visible at once");
    let again = host.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    assert_eq!(again, cancelled, "asked twice, done once");
    let agent = host.agent("agent", Script::new().answers("done"));
    host.advance(DAY).await;
    assert_eq!(agent.calls(), []);
    host.see("t").await.run(1).assert_events("queued, cancel_requested, cancelled");
}

#[tokio::test(start_paused = true)]
async fn task_t40_a_running_run_is_asked_to_stop_at_once_also_by_another_host() {
    let (host, gate) = (host().await, Gate::new());
    let other = host.another().await;
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    let asked = host.now().await;
    other.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    other.drain().await;
    let seen = other.see("t").await;
    let run = seen.run(1).assert_status("cancelled").assert_attempts("cancelled");
    assert!(run.run.finished_at.unwrap().since(asked) < SECOND, "{seen}");
    let intent = run.run.cancel.as_ref().unwrap();
    assert_eq!((intent.reason.as_ref(), intent.requested_by.as_ref()), ("enough", "a person"));
}

#[tokio::test(start_paused = true)]
async fn task_t40_an_owner_that_hears_nothing_learns_of_it_with_its_next_heartbeat() {
    let (host, gate) = (host().await, Gate::new());
    let other = host.another().await;
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    // The hint comes while the store does not answer.
    host.cut_off();
    other.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    host.advance(SECOND).await;
    host.see("t").await.assert_statuses("running");
    host.reconnect();
    host.advance(10 * SECOND).await;
    host.see("t").await.assert_statuses("cancelled");
}

#[tokio::test(start_paused = true)]
async fn task_t40_all_runs_of_a_task_a_session_or_a_filter_are_cancelled() {
    let (host, gate) = (host().await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    let session = json!({ "type": "fixed", "session_id": "s" });
    host.task(task(json!({ "task_id": "a", "overlap_policy": "queue_next" }))).await;
    host.task(task(json!({ "task_id": "b", "session_policy": session }))).await;
    host.task(task(json!({ "task_id": "c" }))).await;
    for id in ["a", "a", "b", "c"] {
        host.run(id).await;
    }
    gate.arrived(3).await;
    let request = ask(CancelMode::Cooperative);
    let of_task = CancelFilter { task_id: Some(name("a")), ..CancelFilter::default() };
    let met = host.cancel_runs(of_task, &request).await.unwrap();
    assert_eq!((met.ended, met.requested), (1, 1));
    let of_session = CancelFilter { session_id: Some("s".into()), ..CancelFilter::default() };
    let met = host.cancel_runs(of_session, &request).await.unwrap();
    assert_eq!((met.ended, met.requested), (0, 1));
    host.drain().await;
    host.see("a").await.assert_statuses("cancelled, cancelled");
    host.see("b").await.assert_statuses("cancelled");
    host.see("c").await.assert_statuses("running");
}

#[tokio::test(start_paused = true)]
async fn task_t41_a_forced_cancel_is_terminal_at_once_and_fences_the_owner() {
    let (host, gate) = (host().await, Gate::new());
    let other = host.another().await;
    let script = Script::new().stubborn().waits_at(&gate).commits("late").answers("late");
    let agent = host.agent("agent", script);
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    let run = other.cancel_run(&run.run_id, &ask(CancelMode::Force)).await.unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    let before = host.see("t").await.to_string();
    gate.open();
    host.advance(HOUR).await;
    assert_eq!(host.see("t").await.to_string(), before, "nothing comes after the end");
    assert!(agent.effects().iter().all(|effect| effect.refused.is_some()), "{:?}", agent.effects());
    assert_eq!(agent.executing(), 0);
}

#[tokio::test(start_paused = true)]
async fn task_t42_a_cancel_that_races_completion_ends_in_one_state() {
    let host = host().await;
    let other = host.another().await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for n in 0..100 {
        let run = host.run("t").await;
        for _ in 0..n % 40 {
            tokio::task::yield_now().await;
        }
        let mode = if n % 2 == 0 { CancelMode::Cooperative } else { CancelMode::Force };
        other.cancel_run(&run.run_id, &ask(mode)).await.unwrap();
        host.drain().await;
    }
    let seen = host.see("t").await;
    for run in &seen.runs {
        moved_lawfully(run);
        let ends = run.events.iter().filter(|event| event.status.is_some_and(RunStatus::is_terminal));
        assert_eq!(ends.count(), 1, "{seen}");
    }
    let completed = seen.runs.iter().filter(|run| run.run.status == RunStatus::Completed).count();
    seen.assert_count("cancelled", 100 - completed);
    assert!((1..100).contains(&completed), "both ends came: {completed} completed");
}

#[tokio::test(start_paused = true)]
async fn task_t43_a_cancelled_runs_late_failure_schedules_no_retry() {
    let (host, gate) = (host().await, Gate::new());
    let agent = host.agent("agent", Script::new().stubborn().waits_at(&gate).fails("exception", "late"));
    host.task(task(json!({ "retry_policy": { "max_retries": 5 } }))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    host.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    gate.open();
    host.advance(HOUR).await;
    host.see("t").await.run(1).assert_status("cancelled");
    assert_eq!(agent.attempts(), [1]);
}

#[tokio::test(start_paused = true)]
async fn task_s7_an_owner_that_does_not_stop_is_forced_after_the_time_that_was_given() {
    let host = host().await;
    host.agent("agent", Script::new().hangs());
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    host.drain().await;
    let request = CancelRequest { force_after: Some(20 * SECOND), ..ask(CancelMode::Cooperative) };
    host.cancel_run(&run.run_id, &request).await.unwrap();
    host.advance(19 * SECOND).await;
    host.see("t").await.assert_statuses("running");
    host.advance(2 * SECOND).await;
    host.see("t").await.assert_statuses("cancelled");
}

#[tokio::test(start_paused = true)]
async fn task_s7_a_paused_task_is_not_dispatched_unless_asked_to_override() {
    let host = host().await;
    host.task(task(json!({ "schedule": every(60), "overlap_policy": "allow_parallel" }))).await;
    host.run("t").await;
    host.pause_task(&name("t")).await.unwrap();
    let agent = host.agent("agent", Script::new().answers("done"));
    host.advance(5 * MINUTE).await;
    assert_eq!(agent.calls(), [], "its queued run is not claimed, its schedule does not fire");
    let refused = host.run_now(&name("t"), RunRequest::default()).await;
    assert!(matches!(refused, Err(Error::Paused { .. })), "{refused:?}");
    let request = RunRequest { override_pause: true, ..RunRequest::default() };
    host.run_now(&name("t"), request).await.unwrap();
    host.drain().await;
    host.see("t").await.assert_statuses("queued, completed");
    host.resume_task(&name("t")).await.unwrap();
    host.advance(MINUTE).await;
    let seen = host.see("t").await;
    seen.assert_count("completed", seen.runs.len()).assert_events("created, paused, resumed");
}

#[tokio::test(start_paused = true)]
async fn task_s7_deleting_a_task_cancels_what_waits_and_cancels_or_keeps_what_runs() {
    for (deletion, first) in [(Deletion::Cancel, "cancelled"), (Deletion::Keep, "completed")] {
        let (host, gate) = (host().await, Gate::new());
        host.agent("agent", Script::new().waits_at(&gate).answers("done"));
        host.task(task(json!({ "overlap_policy": "queue_next", "schedule": every(3600) }))).await;
        host.run("t").await;
        host.run("t").await;
        gate.arrived(1).await;
        host.delete_task(&name("t"), deletion).await.unwrap();
        host.drain().await;
        gate.open();
        host.advance(DAY).await;
        let seen = host.see("t").await;
        seen.assert_statuses(&format!("{first}, cancelled")).assert_events("created, paused, deleted");
        assert!(seen.task.is_none());
        assert_eq!(
            host.status()
                .await
                .unwrap()
                .counts
                .iter()
                .filter(|(status, _)| !status.is_terminal())
                .map(|(_, many)| many)
                .sum::<u64>(),
            0,
            "nothing is left behind"
        );
        let gone = host.run_now(&name("t"), RunRequest::default()).await;
        assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    }
}
