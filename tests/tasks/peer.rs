//! The faults of the peer that the brief describes (contract, section 12): impossible here.

use serde_json::json;
use tenure::model::{ApprovalAnswer, CancelMode};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{Deletion, Settings};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn task_p01_a_long_run_blocks_neither_schedules_nor_recovery() {
    let a = host().await;
    let b = a.another().await;
    let agent = b.agent("agent", Script::new().takes(10 * HOUR).answers("done"));
    let quick = b.agent("quick", Script::new().answers("done"));
    b.task(task(json!({ "task_id": "long" }))).await;
    b.run("long").await;
    b.task(task(json!({ "task_id": "dead", "agent_id": "dead" }))).await;
    a.agent("dead", Script::new().hangs());
    a.run("dead").await;
    a.drain_to(5).await;
    a.kill();
    b.agent("dead", Script::new().answers("done"));
    b.task(task(json!({ "agent_id": "quick", "schedule": every(60) }))).await;
    b.advance(HOUR).await;
    assert_eq!(quick.calls().len(), 60);
    assert_eq!(agent.executing(), 1);
    b.see("dead").await.assert_statuses("completed");
}

trait DrainTo {
    async fn drain_to(&self, seconds: u32);
}

impl DrainTo for TestHost {
    async fn drain_to(&self, seconds: u32) {
        self.advance(SECOND * seconds).await;
    }
}

#[tokio::test(start_paused = true)]
async fn task_p02_a_schedule_whose_occurrence_exists_passes_over_it() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let fields = json!({ "schedule": cron("*/10 * * * *") });
    host.task(task(fields.clone())).await;
    host.advance(10 * MINUTE).await;
    host.delete_task(&name("t"), Deletion::Cancel).await.unwrap();
    let early = json!({ "schedule": { "type": "cron", "expression": "*/10 * * * *",
        "start_at": "2026-01-01T00:00:00Z", "misfire_policy": "queue_all" } });
    host.task(task(early)).await;
    host.advance(HOUR).await;
    let seen = host.see("t").await;
    assert_eq!(seen.occurrences.len(), 7, "{seen}");
    assert_eq!(agent.calls().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn task_p03_cron_keeps_both_repeated_hours_and_is_never_in_the_past() {
    let host = TestHost::open("2026-10-24T22:00:00Z").await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let berlin = |expression: &str| {
        json!({ "type": "cron", "expression": expression,
        "timezone": "Europe/Berlin" })
    };
    host.task(task(json!({ "task_id": "often", "schedule": berlin("*/15 * * * *") }))).await;
    host.task(task(json!({ "task_id": "daily", "schedule": berlin("30 2 * * *") }))).await;
    host.advance(5 * HOUR).await;
    host.see("often").await.assert_count("completed", 20);
    host.see("daily").await.assert_count("completed", 1);
    assert_eq!(agent.calls().len(), 21);
}

#[tokio::test(start_paused = true)]
async fn task_p04_two_instances_never_both_pass_skip_if_running() {
    let (a, gate) = (host().await, Gate::new());
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().waits_at(&gate).answers("done"));
    b.agent("agent", &agent);
    a.task(task(json!({ "schedule": every(60) }))).await;
    for _ in 0..20 {
        tokio::join!(a.run("t"), b.run("t"), a.advance(MINUTE));
        assert_eq!(agent.executing(), 1);
        gate.open();
        a.drain().await;
        gate.close();
    }
    assert_eq!(agent.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn task_p05_cancel_previous_overwrites_no_completion() {
    let host = host().await;
    let other = host.another().await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "overlap_policy": "cancel_previous" }))).await;
    for n in 0..60 {
        host.run("t").await;
        for _ in 0..n % 30 {
            tokio::task::yield_now().await;
        }
        other.run("t").await;
        host.drain().await;
    }
    let seen = host.see("t").await;
    seen.runs.iter().for_each(moved_lawfully);
    for run in &seen.runs {
        let completed = run.event_names().contains("completed");
        assert_eq!(completed, run.run.status.as_str() == "completed", "{seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn task_p06_blocked_runs_stop_no_claims() {
    let (host, gate) = (host().await, Gate::new());
    let agent = host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    let quick = host.agent("quick", Script::new().answers("done"));
    host.task(task(json!({ "overlap_policy": "queue_next", "priority": 10 }))).await;
    for _ in 0..200 {
        host.run("t").await;
    }
    host.task(task(json!({ "task_id": "quick", "agent_id": "quick" }))).await;
    host.run("quick").await;
    host.drain().await;
    assert_eq!((agent.executing(), quick.calls().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn task_p07_a_heartbeat_that_fails_ends_no_healthy_run() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(5 * MINUTE).commits("saved").answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.advance(SECOND).await;
    for _ in 0..4 {
        host.cut_off();
        host.advance(20 * SECOND).await;
        host.reconnect();
        host.advance(20 * SECOND).await;
    }
    host.advance(5 * MINUTE).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
    assert_eq!(agent.effects()[0].refused, None);
}

#[tokio::test(start_paused = true)]
async fn task_p08_a_restart_fails_no_run_and_deaths_are_counted_up_to_a_cap() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().hangs());
    host.task(task(json!({ "retry_policy": { "max_interruptions": 3 } }))).await;
    host.run("t").await;
    for _ in 0..4 {
        host.advance(SECOND).await;
        let next = host.another().await;
        next.agent("agent", &agent);
        host.kill();
        next.advance(TAKEOVER).await;
        host = next;
    }
    let seen = host.see("t").await;
    seen.run(1).assert_status("failed").assert_error("lost").assert_attempts("lost, lost, lost, lost");
}

#[tokio::test(start_paused = true)]
async fn task_p09_a_retrying_run_whose_task_is_gone_breaks_no_recovery() {
    let host = host().await;
    host.agent("agent", Script::new().waits_for_a_while().fails("exception", "no"));
    host.task(task(json!({ "retry_policy": { "max_retries": 3 } }))).await;
    host.run("t").await;
    host.advance(SECOND).await;
    host.delete_task(&name("t"), Deletion::Keep).await.unwrap();
    host.task(task(json!({ "task_id": "other", "agent_id": "other" }))).await;
    host.agent("other", Script::new().answers("done"));
    host.advance(HOUR).await;
    host.run("other").await;
    host.drain().await;
    host.see("t").await.run(1).assert_status("failed").assert_attempts("failed, failed, failed, failed");
    host.see("other").await.assert_statuses("completed");
}

trait WaitsForAWhile {
    fn waits_for_a_while(self) -> Self;
}

impl WaitsForAWhile for Script {
    fn waits_for_a_while(self) -> Self {
        self.takes(2 * SECOND)
    }
}

#[tokio::test(start_paused = true)]
async fn task_p10_a_stale_result_completes_no_newer_attempt() {
    let (a, gate) = (host().await, Gate::new());
    let b = a.another().await;
    let first = a.agent("agent", Script::new().stubborn().waits_at(&gate).commits("stale").answers("stale"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    gate.arrived(1).await;
    a.cut_off();
    let second = b.agent("agent", Script::new().takes(HOUR).answers("fresh"));
    b.advance(TAKEOVER).await;
    assert_eq!(second.executing(), 1);
    gate.open();
    b.advance(MINUTE).await;
    a.reconnect();
    b.advance(2 * HOUR).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("fresh");
    assert!(first.effects().iter().all(|effect| effect.refused.is_some()), "{:?}", first.effects());
}

#[tokio::test(start_paused = true)]
async fn task_p11_a_worker_without_the_agent_leaves_the_run_alone() {
    let a = host().await;
    let b = a.another().await;
    a.agent("other", Script::new().answers("other"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    a.advance(HOUR).await;
    a.see("t").await.assert_statuses("queued");
    b.agent("agent", Script::new().answers("done"));
    b.drain().await;
    b.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
}

#[tokio::test(start_paused = true)]
async fn task_p12_event_numbers_are_unique_though_many_write() {
    let host = host().await;
    let other = host.another().await;
    let script = Script::new().progress(1, "a").takes(SECOND).progress(2, "b").takes(SECOND);
    host.agent("agent", script.answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for _ in 0..10 {
        let run = host.run("t").await;
        host.advance(SECOND).await;
        let request = ask(CancelMode::Cooperative);
        let (one, two) =
            tokio::join!(host.cancel_run(&run.run_id, &request), other.cancel_run(&run.run_id, &request));
        assert!(one.is_ok() && two.is_ok());
    }
    host.drain().await;
    host.see("t").await.runs.iter().for_each(moved_lawfully);
}

#[tokio::test(start_paused = true)]
async fn task_p13_a_resumed_run_never_executes_beside_a_later_one() {
    let settings = Settings { concurrency: 4, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let gate = Gate::new();
    let agent = host.agent("agent", Script::new().asks("may I?").waits_at(&gate).answers("done"));
    host.task(task(json!({ "overlap_policy": "queue_next" }))).await;
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(host.run("t").await.run_id);
        host.drain().await;
    }
    for run_id in asked {
        host.resume_run(&run_id, ApprovalAnswer { approved: true, answer: json!(1) }).await.unwrap();
    }
    host.drain().await;
    assert_eq!(agent.executing(), 1);
    gate.open();
    host.drain().await;
    assert_eq!(agent.most_at_once(), 1);
    host.see("t").await.assert_statuses("completed, completed, completed");
}
