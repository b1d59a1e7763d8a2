//! The kit keeps its own promises: an idle year is quick, the same seed tells the same history.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::time::{Duration, Instant};

use serde_json::json;
use tenure::testkit::{Gate, Script, TestHost};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(start_paused = true)]
async fn a_year_of_a_daily_schedule_passes_in_milliseconds() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(json!({ "task_id": "t", "agent_id": "agent", "query": "q",
        "schedule": { "type": "cron", "expression": "@daily" } }))
        .await;
    let began = Instant::now();
    host.advance(365 * DAY).await;
    let took = began.elapsed();
    assert_eq!(agent.calls().len(), 365);
    host.see("t").await.assert_count("completed", 365);
    assert!(took < Duration::from_secs(5), "a year took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_host_does_not_tick() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    host.agent("agent", Script::new().answers("done"));
    let began = Instant::now();
    host.advance(100 * 365 * DAY).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "a hundred idle years took {took:?}");
}

async fn story() -> String {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    let (gate, retry) = (Gate::new(), json!({ "max_retries": 3 }));
    let script = Script::new().fails("exception", "no").progress(50, "half").waits_at(&gate).answers("done");
    host.agent("agent", script);
    host.task(json!({ "task_id": "t", "agent_id": "agent", "query": "q", "retry_policy": retry })).await;
    host.run("t").await;
    host.drain().await;
    host.advance(Duration::from_secs(40)).await;
    host.run("t").await;
    gate.open();
    host.drain().await;
    host.history("t").await
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same_history() {
    let first = story().await;
    assert_eq!(first, story().await);
    insta::assert_snapshot!(first);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the runs are: completed\nexpected: failed")]
async fn an_assertion_that_fails_tells_the_whole_story() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    host.agent("agent", Script::new().answers("done"));
    host.task(json!({ "task_id": "t", "agent_id": "agent", "query": "q" })).await;
    host.run("t").await;
    host.drain().await;
    host.see("t").await.assert_statuses("failed");
}

#[tokio::test(start_paused = true)]
async fn draining_moves_no_clock_while_nothing_takes_time() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    host.agent("agent", Script::new().answers("done"));
    host.task(json!({ "task_id": "t", "agent_id": "agent", "query": "q" })).await;
    host.run("t").await;
    host.drain().await;
    host.see("t").await.assert_statuses("completed");
    assert_eq!(host.now().await.to_string(), "2026-01-01T00:00:00.000Z");
}
