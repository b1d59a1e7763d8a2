//! The end of a host: in order, and without a goodbye.

use serde_json::json;
use tenure::Error;
use tenure::RunRequest;
use tenure::testkit::{Gate, Script};

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
