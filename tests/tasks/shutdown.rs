//! The end of a host: in order, and without a goodbye.

use serde_json::json;
use tenure::Error;
use tenure::RunRequest;
use tenure::Settings;
use tenure::testkit::{Gate, Script, TestHost};
use tokio::time::Instant;

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn task_t44_a_host_lets_attempts_end_within_the_drain() {
    let host = host().await;
    host.agent("agent", Script::new().takes(20 * SECOND).answers("done"));
    host.task(task(json!({}))).await;
    host.task(task(json!({ "task_id": "waits", "agent_id": "nobody" }))).await;
    host.run("t").await;
    host.run("waits").await;
    host.drain_start().await;
    let ended = host.shutdown().await.unwrap();
    assert_eq!((ended.interrupted, ended.unstored), (0, 0));
    host.see("t").await.assert_statuses("completed");
    host.see("waits").await.assert_statuses("queued");
    let refused = host.run_now(&name("t"), RunRequest::default()).await;
    assert!(matches!(refused, Err(Error::Draining)), "{refused:?}");
}

trait DrainStart {
    async fn drain_start(&self);
}

impl DrainStart for tenure::testkit::TestHost {
    /// Until what was asked for has begun.
    async fn drain_start(&self) {
        self.advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn task_t44_what_does_not_end_within_the_drain_is_interrupted_and_queued_again() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(HOUR).answers("done"));
    let deaf = host.agent("deaf", Script::new().hangs());
    host.task(task(json!({}))).await;
    host.task(task(json!({ "task_id": "deaf", "agent_id": "deaf" }))).await;
    host.run("t").await;
    host.run("deaf").await;
    host.drain_start().await;
    let ended = host.shutdown().await.unwrap();
    assert_eq!((ended.interrupted, ended.unstored), (2, 0));
    for id in ["t", "deaf"] {
        let seen = host.see(id).await;
        let run = seen.run(1).assert_status("queued").assert_attempts("interrupted");
        assert_eq!((run.run.failures, run.run.interruptions), (0, 1), "no retry is spent");
        assert!(run.run.lease.is_none(), "released at once");
    }
    assert_eq!((agent.executing(), deaf.executing()), (0, 0));
    let next = host.another().await;
    next.agent("agent", &agent);
    next.advance(2 * HOUR).await;
    next.see("t").await.run(1).assert_status("completed").assert_attempts("interrupted, completed");
}

#[tokio::test(start_paused = true)]
async fn task_t44_outcomes_are_stored_before_a_host_ends_though_its_store_was_away() {
    let (host, gate) = (host().await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    gate.arrived(1).await;
    host.cut_off();
    gate.open();
    let back = async {
        host.advance(10 * SECOND).await;
        host.reconnect();
    };
    let (ended, ()) = tokio::join!(host.shutdown(), back);
    assert_eq!(ended.unwrap().unstored, 0);
    host.see("t").await.assert_statuses("completed");
}

/// Waits so long when it is told to stop.
fn patient() -> Settings {
    Settings { drain: SECOND, patience: 40 * SECOND, ..TestHost::settings() }
}

#[tokio::test(start_paused = true)]
async fn task_t44_an_attempt_has_its_patience_when_its_host_ends_however_long_that_is() {
    for told_later in [false, true] {
        let settings = if told_later { TestHost::settings() } else { patient() };
        let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
        if told_later {
            host.replace_with(patient()).await.unwrap();
        }
        // One second of it before the shutdown, one within the drain, and 35 after it was told to stop.
        let script = Script::new().takes(37 * SECOND).commits("its last").answers("done").stubborn();
        let agent = host.agent("agent", script);
        host.task(task(json!({}))).await;
        host.run("t").await;
        host.drain_start().await;
        let begun = Instant::now();
        let ended = host.shutdown().await.unwrap();
        assert_eq!((ended.interrupted, ended.unstored), (1, 0));
        assert!(ended.report.killed.is_empty(), "cut off: {:?}", ended.report.killed);
        assert_eq!(begun.elapsed().as_secs(), 36);
        assert_eq!(agent.effects().len(), 1, "it came to its end");
        host.see("t").await.run(1).assert_status("queued").assert_attempts("interrupted");
    }
}

#[tokio::test(start_paused = true)]
async fn task_t44_outcomes_have_their_time_to_be_stored_after_attempts_had_theirs() {
    let host = host().await;
    host.agent("deaf", Script::new().hangs());
    host.task(task(json!({ "agent_id": "deaf" }))).await;
    host.run("t").await;
    host.drain_start().await;
    host.cut_off();
    let back = async {
        // Drain and patience are over after 45 s.
        host.advance(70 * SECOND).await;
        host.reconnect();
    };
    let (ended, ()) = tokio::join!(host.shutdown(), back);
    let ended = ended.unwrap();
    assert_eq!(ended.unstored, 0);
    let killed: Vec<_> = ended.report.killed.iter().map(|id| id.as_str()).collect();
    assert!(!killed.contains(&"recorder"), "{killed:?}");
    host.see("t").await.run(1).assert_status("queued").assert_attempts("interrupted");
}

#[tokio::test(start_paused = true)]
async fn task_t44_a_host_whose_store_is_silent_ends_within_what_the_guide_says() {
    let host = host().await;
    host.agent("deaf", Script::new().hangs());
    host.task(task(json!({ "agent_id": "deaf" }))).await;
    host.run("t").await;
    host.drain_start().await;
    host.hang_store();
    let begun = Instant::now();
    let ended = host.shutdown().await.unwrap();
    assert_eq!(ended.unstored, 1);
    let took = begun.elapsed();
    // What drain, patience and the second chance of the outcomes take is sure.
    assert!((105 * SECOND..=130 * SECOND).contains(&took), "{took:?}");
    let guide = include_str!("../../docs/GUIDE.md");
    assert!(guide.contains("That is 130 s;"), "what it says of that is not found");
    let stops = guide.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(took < stops.parse::<u32>().unwrap() * SECOND, "{took:?} of {stops} s");
}

#[tokio::test(start_paused = true)]
async fn a_host_may_have_patience_without_end() {
    let settings = Settings { patience: std::time::Duration::MAX, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    host.agent("agent", Script::new().takes(HOUR).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.drain_start().await;
    assert_eq!(host.shutdown().await.unwrap().interrupted, 1);
    host.see("t").await.run(1).assert_status("queued").assert_attempts("interrupted");
}

#[tokio::test(start_paused = true)]
async fn task_t45_a_killed_hosts_runs_are_claimed_again_after_lease_and_grace_and_none_is_lost() {
    let (a, gate) = (host().await, Gate::new());
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().waits_at(&gate).answers("done"));
    for n in 0..10 {
        let id = format!("t{n}");
        a.task(task(json!({ "task_id": id }))).await;
        a.run(&id).await;
    }
    gate.arrived(10).await;
    let killed = a.now().await;
    a.kill();
    b.agent("agent", &agent);
    b.advance(29 * SECOND).await;
    assert_eq!(agent.calls().len(), 10, "nobody takes what is held");
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    for n in 0..10 {
        let seen = b.see(&format!("t{n}")).await;
        let run = seen.run(1).assert_status("completed").assert_attempts("lost, completed");
        run.assert_events("queued, claimed, started, lost, recovered, claimed, started, completed");
        moved_lawfully(run);
        assert!(run.attempts[1].started_at.since(killed) <= TAKEOVER, "{seen}");
    }
}
