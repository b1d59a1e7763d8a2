//! Overlap policies under two hosts and twenty rounds of simultaneous triggers.

use serde_json::json;
use tenure::model::ApprovalAnswer;
use tenure::testkit::{Gate, Script, ScriptedAgent, TestHost};

use crate::kit::*;

/// Two hosts with one agent, whose attempts wait at the gate.
async fn two_hosts(gate: &Gate) -> (TestHost, TestHost, ScriptedAgent) {
    let a = host().await;
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().waits_at(gate).answers("done"));
    b.agent("agent", &agent);
    (a, b, agent)
}

#[tokio::test(start_paused = true)]
async fn task_t20_skip_if_running_lets_one_of_many_run() {
    let gate = Gate::new();
    let (a, b, agent) = two_hosts(&gate).await;
    a.task(task(json!({ "overlap_policy": "skip_if_running" }))).await;
    for round in 1..=20 {
        gate.close();
        tokio::join!(a.run("t"), b.run("t"), a.run("t"), b.run("t"));
        a.drain().await;
        assert_eq!(agent.executing(), 1, "round {round}");
        gate.open();
        a.drain().await;
        let seen = a.see("t").await;
        seen.assert_count("completed", round).assert_count("skipped", 3 * round);
        let runs = &seen.runs[4 * (round - 1)..];
        let ran = runs.iter().find(|run| !run.attempts.is_empty()).unwrap();
        for skipped in runs.iter().filter(|run| run.attempts.is_empty()) {
            skipped.assert_skipped_because_of(ran);
        }
    }
    assert_eq!((agent.most_at_once(), agent.calls().len()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn task_t21_queue_next_keeps_one_scheduled_run_waiting_and_manual_runs_in_order() {
    let gate = Gate::new();
    let (a, b, agent) = two_hosts(&gate).await;
    a.task(task(json!({ "overlap_policy": "queue_next", "schedule": every(60) }))).await;
    for round in 0..20 {
        gate.close();
        tokio::join!(a.run("t"), b.run("t"), a.run("t"));
        a.advance(MINUTE * 3).await;
        let seen = a.see("t").await;
        let waiting = seen.runs.iter().filter(|run| run.run.status.is_waiting());
        let scheduled = waiting.filter(|run| run.run.spec.occurrence.is_some()).count();
        assert!(scheduled <= 1, "round {round}: {scheduled} scheduled runs wait\n{seen}");
        gate.open();
        a.drain().await;
        assert!(a.see("t").await.runs.iter().all(|run| run.run.status.as_str() == "completed"));
    }
    assert_eq!(agent.most_at_once(), 1);
    let seen = a.see("t").await;
    assert_eq!(seen.occurrences.len(), 60, "each has a record");
    let mut began: Vec<_> =
        seen.runs.iter().map(|run| (run.run.started_at, run.run.spec.queued_at)).collect();
    began.sort();
    assert!(began.is_sorted_by_key(|(_, queued)| *queued), "in the order in which they were wanted");
}

#[tokio::test(start_paused = true)]
async fn task_t22_cancel_previous_leaves_the_newest_running() {
    let gate = Gate::new();
    let (a, b, agent) = two_hosts(&gate).await;
    a.task(task(json!({ "overlap_policy": "cancel_previous" }))).await;
    for round in 1..=20 {
        gate.close();
        tokio::join!(a.run("t"), b.run("t"), a.run("t"), b.run("t"));
        a.advance(MINUTE).await;
        let seen = a.see("t").await;
        seen.assert_count("running", 1).assert_count("cancelled", 4 * round - round);
        gate.open();
        a.drain().await;
        a.see("t").await.assert_count("completed", round).runs.iter().for_each(moved_lawfully);
    }
    assert_eq!(agent.most_at_once(), 1, "the next one starts when the older one has ended");
}

#[tokio::test(start_paused = true)]
async fn task_t22_cancel_previous_forces_an_attempt_that_does_not_listen() {
    let a = host().await;
    let agent = a.agent("agent", Script::new().hangs());
    a.task(task(json!({ "overlap_policy": "cancel_previous" }))).await;
    a.run("t").await;
    a.drain().await;
    a.run("t").await;
    a.advance(14 * SECOND).await;
    a.see("t").await.assert_statuses("running, queued");
    a.advance(3 * SECOND).await;
    a.see("t").await.assert_statuses("cancelled, running");
    assert_eq!(agent.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn task_t23_allow_parallel_checks_nothing() {
    let gate = Gate::new();
    let (a, b, agent) = two_hosts(&gate).await;
    a.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for round in 1..=20 {
        gate.close();
        tokio::join!(a.run("t"), b.run("t"), a.run("t"), b.run("t"));
        a.drain().await;
        assert_eq!(agent.executing(), 4, "round {round}");
        gate.open();
        a.drain().await;
        a.see("t").await.assert_count("completed", 4 * round);
    }
}

#[tokio::test(start_paused = true)]
async fn task_t24_a_resumed_run_obeys_its_policy_again() {
    let (host, gate) = (host().await, Gate::new());
    let agent = host.agent("agent", Script::new().waits_at(&gate).asks("may I?").answers("done"));
    host.task(task(json!({}))).await;
    let first = host.run("t").await;
    gate.open();
    host.drain().await;
    gate.close();
    // It waits for a person, and is in nobody's way.
    host.run("t").await;
    gate.arrived(2).await;
    host.resume_run(&first.run_id, ApprovalAnswer { approved: true, answer: json!(1) }).await.unwrap();
    host.drain().await;
    host.see("t").await.assert_statuses("queued, running");
    gate.open();
    host.drain().await;
    host.see("t").await.assert_statuses("completed, awaiting_approval");
    assert_eq!(agent.most_at_once(), 1);
}
