//! Events: numbered without gaps, read after a number, followed live.

use serde_json::json;
use tenure::Settings;
use tenure::model::{EventKind, Subject};
use tenure::testkit::{Gate, Script, TestHost};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn task_s8_events_are_numbered_from_one_without_gaps() {
    let host = host().await;
    let script = Script::new().progress(10, "a").fails("exception", "no").progress(50, "b");
    host.agent("agent", script.takes(2 * SECOND).answers("done"));
    host.task(task(json!({ "retry_policy": { "max_retries": 1, "initial_delay_seconds": 1 } }))).await;
    host.run("t").await;
    host.advance(MINUTE).await;
    let seen = host.see("t").await;
    moved_lawfully(seen.run(1));
    let last = seen.run(1).events.last().unwrap();
    assert_eq!(last.sequence, seen.run(1).run.last_event);
}

#[tokio::test(start_paused = true)]
async fn task_s8_a_reader_gets_what_came_after_a_number_and_then_what_comes() {
    let (host, gate) = (host().await, Gate::new());
    let other = host.another().await;
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    let subject = Subject::Run(run.run_id.clone());
    let read = host.events(subject.clone(), 1, 100).await.unwrap();
    assert_eq!(read.iter().map(|event| event.sequence).collect::<Vec<_>>(), [2, 3]);
    let mut stream = other.follow(subject, 1);
    for sequence in [2, 3] {
        assert_eq!(stream.next().await.unwrap().sequence, sequence);
    }
    let live = async {
        host.advance(HOUR).await;
        gate.open();
    };
    let (event, ()) = tokio::join!(stream.next(), live);
    let event = event.unwrap();
    assert_eq!((event.sequence, event.event), (4, EventKind::Completed));
    assert_eq!(event.timestamp.since(run.spec.queued_at), HOUR, "it comes when it happens");
}

#[tokio::test(start_paused = true)]
async fn task_s8_a_slow_reader_misses_nothing_and_slows_nobody() {
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    let mut slow = host.follow(Subject::All, 0);
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for _ in 0..400 {
        host.run("t").await;
    }
    host.drain().await;
    host.see("t").await.assert_count("completed", 400);
    let mut cursor = 0;
    for _ in 0..1 + 4 * 400 {
        let event = slow.next().await.unwrap();
        assert!(event.cursor > cursor);
        cursor = event.cursor;
    }
}

#[tokio::test(start_paused = true)]
async fn task_s8_what_was_told_last_is_kept_although_the_attempt_ends_at_once() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    let script =
        Script::new().progress(10, "begun").takes(SECOND / 10).progress(50, "half").progress(100, "all");
    host.agent("agent", script.answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.drain().await;
    let seen = host.see("t").await;
    let told: Vec<_> = seen.run(1).events.iter().filter(|event| event.event == EventKind::Progress).collect();
    assert_eq!(told.len(), 2, "{seen}");
    assert_eq!(told[1].data["percent"], 100, "{seen}");
    assert_eq!(told[1].data["coalesced"], 1, "what it replaced is counted\n{seen}");
    moved_lawfully(seen.run(1).assert_status("completed"));
}

#[tokio::test(start_paused = true)]
async fn task_s8_progress_is_coalesced_to_one_a_second_and_bounded() {
    let settings = Settings { progress_limit: 3, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let mut script = Script::new();
    for n in 0..40_u8 {
        script = script.progress(n, "on").takes(SECOND / 10);
    }
    host.agent("agent", script.takes(SECOND).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.drain().await;
    let seen = host.see("t").await;
    let told: Vec<_> = seen.run(1).events.iter().filter(|event| event.event == EventKind::Progress).collect();
    assert_eq!(told.len(), 3, "{seen}");
    assert!(told.windows(2).all(|two| two[1].timestamp.since(two[0].timestamp) >= SECOND), "{seen}");
    assert!(told[1].data["coalesced"].as_u64().unwrap() > 5, "what was replaced is counted\n{seen}");
    moved_lawfully(seen.run(1).assert_status("completed"));
}
