//! L: stuck, lost, or doubled work.

use serde_json::json;
use tenure::model::{AgentId, CancelMode, EventKind, InstanceId, Subject};
use tenure::store::{ClaimRequest, PruneRequest, Store};
use tenure::testkit::{Gate, Script, ScriptedAgent, TestHost};
use tenure::{Deletion, Error, Settings};

use crate::kit::*;

/// A host that executes runs of these many tasks, and another that has the same agent.
async fn held(runs: usize, fields: serde_json::Value) -> (TestHost, TestHost, ScriptedAgent, Gate) {
    let settings = Settings { concurrency: 5000, ..TestHost::settings() };
    let a = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let (b, gate) = (a.another().await, Gate::new());
    let agent = a.agent("agent", Script::new().waits_at(&gate).answers("done"));
    for n in 1..=runs {
        let id = format!("t{n}");
        let mut task = task(fields.clone());
        task["task_id"] = id.clone().into();
        a.task(task).await;
        a.run(&id).await;
    }
    gate.arrived(runs).await;
    a.drain().await;
    b.agent("agent", &agent);
    (a, b, agent, gate)
}

#[tokio::test(start_paused = true)]
async fn field_l01_all_runs_of_a_killed_host_are_taken_over_and_say_why() {
    let (a, b, _, gate) = held(10, json!({})).await;
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    for n in 1..=10 {
        let seen = b.see(&format!("t{n}")).await;
        let run = seen.run(1).assert_status("completed").assert_attempts("lost, completed");
        let lost = run.events.iter().find(|event| event.data["reason"] == "lease expired");
        assert!(lost.is_some(), "{seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn field_l02_a_run_that_is_lost_for_good_frees_its_task_at_once() {
    let (a, b, _, gate) = held(1, json!({ "retry_policy": { "max_interruptions": 0 } })).await;
    a.kill();
    b.advance(TAKEOVER).await;
    b.see("t1").await.run(1).assert_status("failed").assert_error("lost");
    gate.open();
    b.run("t1").await;
    b.drain().await;
    b.see("t1").await.assert_statuses("failed, completed");
}

#[tokio::test(start_paused = true)]
async fn field_l03_a_healthy_run_of_many_leases_has_one_attempt() {
    let settings = Settings { lease: SECOND, sweep: Some(SECOND), ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let agent = host.agent("agent", Script::new().takes(20 * SECOND).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.advance(MINUTE).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
    assert_eq!(agent.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn field_l04_a_host_that_starts_again_is_not_taken_for_its_former_self() {
    let (a, b, agent, gate) = held(5, json!({})).await;
    let former = a.instance_id();
    a.kill();
    let again = b.another().await;
    again.agent("agent", &agent);
    assert_ne!(again.instance_id(), former);
    again.advance(TAKEOVER).await;
    gate.open();
    again.drain().await;
    for n in 1..=5 {
        again.see(&format!("t{n}")).await.run(1).assert_attempts("lost, completed");
    }
}

#[tokio::test(start_paused = true)]
async fn field_l05_an_interruption_of_the_last_attempt_spends_no_retry() {
    let host = host().await;
    let script = Script::new().fails("exception", "1").fails("exception", "2").takes(HOUR).answers("done");
    let agent = host.agent("agent", script);
    let policy = json!({ "max_retries": 2, "initial_delay_seconds": 1 });
    host.task(task(json!({ "retry_policy": policy }))).await;
    host.run("t").await;
    host.advance(MINUTE).await;
    host.shutdown().await.unwrap();
    let next = host.another().await;
    next.agent("agent", &agent);
    next.advance(MINUTE).await;
    let last = next.another().await;
    next.kill();
    last.agent("agent", &agent);
    last.advance(3 * HOUR).await;
    let seen = last.see("t").await;
    seen.run(1).assert_status("completed").assert_attempts("failed, failed, interrupted, lost, completed");
}

#[tokio::test(start_paused = true)]
async fn field_l06_whatever_its_timeout_a_dead_hosts_run_is_taken_over() {
    let limits = [json!({}), json!({ "timeout_seconds": 3600 }), json!({ "deadline_seconds": 86400 })];
    for fields in limits {
        let (a, b, _, gate) = held(1, fields).await;
        a.kill();
        b.advance(TAKEOVER).await;
        gate.open();
        b.drain().await;
        b.see("t1").await.run(1).assert_attempts("lost, completed");
    }
}

#[tokio::test(start_paused = true)]
async fn field_l07_long_and_short_runs_are_recovered_in_the_same_time() {
    let a = host().await;
    let b = a.another().await;
    let long = a.agent("long", Script::new().takes(6 * HOUR).answers("done"));
    let short = a.agent("short", Script::new().takes(5 * SECOND).answers("done"));
    for id in ["long", "short"] {
        a.task(task(json!({ "task_id": id, "agent_id": id }))).await;
        a.run(id).await;
    }
    a.advance(SECOND).await;
    a.kill();
    b.agent("long", &long);
    b.agent("short", &short);
    b.advance(TAKEOVER).await;
    assert_eq!(long.calls()[1].at, short.calls()[1].at);
}

#[tokio::test(start_paused = true)]
async fn field_l08_many_healthy_runs_hide_no_dead_one_from_the_sweep() {
    let (a, b, _, gate) = held(1000, json!({})).await;
    let dead = a.another().await;
    dead.agent("dies", Script::new().hangs());
    for n in 0..10 {
        let id = format!("dead{n}");
        a.task(task(json!({ "task_id": id, "agent_id": "dies" }))).await;
        a.run(&id).await;
    }
    dead.drain().await;
    dead.kill();
    b.agent("dies", Script::new().answers("done"));
    b.advance(TAKEOVER).await;
    for n in 0..10 {
        b.see(&format!("dead{n}")).await.run(1).assert_attempts("lost, completed");
    }
    gate.open();
    b.drain().await;
    b.see("t1").await.run(1).assert_attempts("completed");
}

#[tokio::test(start_paused = true)]
async fn field_l09_an_endless_run_with_a_heartbeat_has_one_attempt() {
    let (host, _other, agent, _) = held(1, json!({})).await;
    host.advance(DAY).await;
    host.see("t1").await.run(1).assert_status("running").assert_attempts("running");
    assert_eq!(agent.attempts(), [1]);
}

#[tokio::test(start_paused = true)]
async fn field_l10_of_two_hosts_only_the_dead_ones_runs_move() {
    let (a, b, agent, gate) = held(3, json!({})).await;
    b.task(task(json!({ "task_id": "own" }))).await;
    assert!(a.unregister_agent(&AgentId::new("agent").unwrap()));
    b.run("own").await;
    gate.arrived(4).await;
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    b.see("own").await.run(1).assert_attempts("completed");
    b.see("t1").await.run(1).assert_attempts("lost, completed");
    assert_eq!(agent.calls().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn field_l11_three_attempts_are_three() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "no"));
    host.task(task(json!({ "retry_policy": { "max_retries": 2 } }))).await;
    host.run("t").await;
    host.advance(DAY).await;
    assert_eq!(agent.attempts(), [1, 2, 3]);
    host.see("t").await.run(1).assert_status("failed").assert_attempts("failed, failed, failed");
}

#[tokio::test(start_paused = true)]
async fn field_l12_a_claim_whose_answer_was_lost_is_asked_for_again() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({}))).await;
    host.lose_replies();
    let lost = host.run_now(&name("t"), tenure::RunRequest::default()).await;
    assert!(matches!(lost, Err(Error::Store(tenure::store::StoreError::Unknown { .. }))), "{lost:?}");
    host.advance(5 * SECOND).await;
    let seen = host.see("t").await;
    let lease = seen.run(1).assert_status("claimed").run.lease.unwrap();
    assert_eq!(lease.owner, host.instance_id(), "it is visible with its owner");
    host.reconnect();
    host.advance(5 * SECOND).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
    assert_eq!(agent.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn field_l13_a_dead_owners_runs_are_found_by_their_leases_alone() {
    let (a, b, _, gate) = held(2, json!({})).await;
    a.kill();
    // Nothing but the lease tells of an instance: whatever was removed of it cannot hide its runs.
    let all = PruneRequest { before: b.now().await, keep: 0, limit: 1000 };
    b.store().prune(all).await.unwrap();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    b.see("t1").await.run(1).assert_attempts("lost, completed");
    b.see("t2").await.run(1).assert_attempts("lost, completed");
}

#[tokio::test(start_paused = true)]
async fn field_l14_a_killed_run_is_tried_again_without_hand_work() {
    let (a, b, agent, gate) = held(1, json!({ "retry_policy": { "max_retries": 0 } })).await;
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    b.see("t1").await.run(1).assert_status("completed");
    assert_eq!(agent.attempts(), [1, 2]);
}

#[test]
fn field_l15_completion_and_takeover_end_in_one_record() {
    let attempts = with_each_seed(as_many(1000, 200), |seed| async move {
        let settings = Settings { seed: Some(seed), ..TestHost::settings() };
        let a = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
        let (b, gate) = (a.another().await, Gate::new());
        let agent = a.agent("agent", Script::new().waits_at(&gate).answers("first").answers("second"));
        b.agent("agent", &agent);
        a.task(task(json!({}))).await;
        a.run("t").await;
        gate.arrived(1).await;
        a.cut_off();
        // Around the instant of the takeover, the answer first or the way to the store.
        a.advance(50 * SECOND - SECOND / 1000 * 20 + SECOND / 1000 * (seed % 40) as u32).await;
        if seed % 3 == 0 {
            a.reconnect();
            gate.open();
        } else {
            gate.open();
            a.reconnect();
        }
        a.advance(MINUTE).await;
        let seen = a.see("t").await;
        let run = seen.run(1).assert_status("completed");
        moved_lawfully(run);
        let ends = run.events.iter().filter(|event| event.status.is_some_and(|status| status.is_terminal()));
        assert_eq!(ends.count(), 1, "seed {seed}\n{seen}");
        run.attempts.len()
    });
    assert!(attempts.contains(&1) && attempts.contains(&2), "each of them was first now and then");
}

#[tokio::test(start_paused = true)]
async fn field_l16_a_slow_holders_late_result_is_fenced() {
    let a = host().await;
    let (b, gate) = (a.another().await, Gate::new());
    let slow = a.agent("agent", Script::new().stubborn().waits_at(&gate).commits("a").answers("a"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    gate.arrived(1).await;
    a.cut_off();
    b.agent("agent", Script::new().answers("b"));
    b.advance(TAKEOVER).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("b");
    let before = b.see("t").await.to_string();
    a.reconnect();
    gate.open();
    b.advance(HOUR).await;
    assert_eq!(b.see("t").await.to_string(), before);
    assert!(slow.effects().iter().all(|effect| effect.refused.is_some()), "{:?}", slow.effects());
}

#[tokio::test(start_paused = true)]
async fn field_l16_nobody_succeeded_a_late_holder_and_its_result_counts() {
    let (a, b, agent, gate) = held(1, json!({})).await;
    assert!(b.unregister_agent(&AgentId::new("agent").unwrap()));
    a.cut_off();
    b.advance(TAKEOVER).await;
    b.see("t1").await.run(1).assert_status("queued");
    gate.open();
    b.advance(SECOND).await;
    assert!(a.unregister_agent(&AgentId::new("agent").unwrap()));
    a.reconnect();
    b.advance(MINUTE).await;
    let seen = b.see("t1").await;
    let run = seen.run(1).assert_status("completed").assert_result("done");
    assert!(run.event_names().contains("reinstated"), "{seen}");
    assert_eq!(agent.attempts(), [1]);
}

#[tokio::test(start_paused = true)]
async fn field_l16_that_a_late_result_was_refused_is_told() {
    let a = host().await;
    let (b, gate) = (a.another().await, Gate::new());
    a.agent("agent", Script::new().waits_at(&gate).answers("a"));
    a.task(task(json!({}))).await;
    a.run("t").await;
    gate.arrived(1).await;
    a.cut_off();
    b.agent("agent", Script::new().answers("b"));
    b.advance(TAKEOVER).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("b");
    gate.open();
    b.advance(SECOND).await;
    a.reconnect();
    b.advance(MINUTE).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("b");
    let events = b.store().events(Subject::Task(name("t")), 0, 100).await.unwrap();
    let refused: Vec<_> = events.iter().filter(|event| event.event == EventKind::OutcomeRefused).collect();
    let [refused] = refused[..] else { panic!("{events:#?}") };
    assert_eq!(refused.data["outcome"], json!({ "end": "completed", "result_preview": "a" }));
    assert_eq!((&refused.data["held"], refused.fence), (&json!(1), 2));
}

#[tokio::test(start_paused = true)]
async fn field_l17_the_last_loss_tells_of_the_loss_and_of_the_failure() {
    let (a, b, _, _) = held(1, json!({ "retry_policy": { "max_interruptions": 0 } })).await;
    a.kill();
    b.advance(TAKEOVER).await;
    b.see("t1").await.run(1).assert_events("queued, claimed, started, lost, failed");
}

#[tokio::test(start_paused = true)]
async fn field_l18_a_lease_that_ends_with_retries_left_ends_no_run() {
    let (a, b, agent, gate) = held(1, json!({ "retry_policy": { "max_retries": 3 } })).await;
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    b.see("t1").await.run(1).assert_status("completed");
    assert_eq!(agent.attempts(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn field_l19_a_grant_that_never_starts_moves_on_and_costs_no_slot() {
    let settings = Settings { concurrency: 1, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let nobody = ClaimRequest {
        instance: InstanceId::generate(),
        nonce: 7,
        agents: [AgentId::new("agent").unwrap()].into(),
        limit: 1,
        lease: 30 * SECOND,
        repeat: false,
    };
    host.task(task(json!({}))).await;
    host.run("t").await;
    assert_eq!(host.store().claim(nobody).await.unwrap().len(), 1);
    let agent = host.agent("agent", Script::new().answers("done"));
    host.advance(TAKEOVER).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
    assert_eq!(agent.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn field_l20_an_outage_shorter_than_the_lease_and_its_grace_disturbs_nothing() {
    let (a, b, agent, gate) = held(3, json!({})).await;
    for host in [&a, &b] {
        host.cut_off();
    }
    a.advance(MINUTE).await;
    // Who comes back first renews, or is told to stop before another starts.
    a.reconnect();
    a.advance(15 * SECOND).await;
    b.reconnect();
    b.advance(MINUTE).await;
    gate.open();
    b.drain().await;
    for n in 1..=3 {
        let seen = b.see(&format!("t{n}")).await;
        moved_lawfully(seen.run(1).assert_status("completed").assert_attempts("completed"));
    }
    assert!(agent.most_at_once() <= 3, "no attempt beside another of its run");
}

#[tokio::test(start_paused = true)]
async fn field_l21_a_draining_host_claims_nothing() {
    let a = host().await;
    let dead = a.another().await;
    let slow = a.agent("slow", Script::new().takes(2 * HOUR).answers("done"));
    a.task(task(json!({ "task_id": "slow", "agent_id": "slow" }))).await;
    a.run("slow").await;
    a.advance(SECOND).await;
    let agent = dead.agent("agent", Script::new().takes(10 * SECOND).answers("done"));
    for n in 0..5 {
        let id = format!("t{n}");
        dead.task(task(json!({ "task_id": id }))).await;
        dead.run(&id).await;
    }
    dead.advance(SECOND).await;
    dead.kill();
    a.advance(40 * SECOND).await;
    a.agent("agent", &agent);
    let draining = a.shutdown();
    let recovered = async {
        a.advance(25 * SECOND).await;
        assert_eq!(agent.calls().len(), 5, "freed by now, and claimed by nobody");
        let b = a.another().await;
        b.agent("agent", &agent);
        b.agent("slow", &slow);
        b.advance(DAY).await;
        b
    };
    let (ended, b) = tokio::join!(draining, recovered);
    ended.unwrap();
    for n in 0..5 {
        let seen = b.see(&format!("t{n}")).await;
        let run = seen.run(1).assert_attempts("lost, completed");
        assert_eq!(run.attempts[1].instance, b.instance_id());
    }
}

#[tokio::test(start_paused = true)]
async fn field_l22_two_sweepers_with_the_same_list_recover_each_run_once() {
    let (a, b, agent, gate) = held(20, json!({})).await;
    let c = b.another().await;
    c.agent("agent", &agent);
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    for n in 1..=20 {
        let seen = b.see(&format!("t{n}")).await;
        let run = seen.run(1).assert_attempts("lost, completed");
        run.assert_events("queued, claimed, started, lost, recovered, claimed, started, completed");
    }
    assert_eq!(agent.calls().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn field_l24_cancel_always_leads_to_an_end() {
    let (a, b, _, _) = held(2, json!({})).await;
    a.kill();
    let (one, two) = (b.see("t1").await, b.see("t2").await);
    let force = b.cancel_run(&one.run(1).run.run_id, &ask(CancelMode::Force)).await.unwrap();
    assert!(force.status.is_terminal());
    b.cancel_run(&two.run(1).run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    b.advance(TAKEOVER).await;
    b.see("t1").await.assert_statuses("cancelled");
    b.see("t2").await.assert_statuses("cancelled");
}

#[tokio::test(start_paused = true)]
async fn field_l26_a_schedule_survives_a_host_that_dies_while_firing() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "schedule": every(60) }))).await;
    for n in 0..10 {
        let next = host.another().await;
        next.agent("agent", &agent);
        next.advance(MINUTE).await;
        // In the middle of what it does at this instant.
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        host.kill();
        host = next;
    }
    host.advance(2 * MINUTE).await;
    let seen = host.see("t").await;
    assert_eq!(seen.occurrences.len(), 12, "{seen}");
    assert_eq!(host.store().check(false).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn field_l27_a_new_host_takes_only_what_has_expired() {
    let (a, b, agent, _) = held(3, json!({})).await;
    a.advance(HOUR).await;
    let c = b.another().await;
    c.agent("agent", &agent);
    c.advance(HOUR).await;
    assert_eq!(agent.attempts(), [1, 1, 1]);
    c.see("t1").await.run(1).assert_attempts("running");
}

#[tokio::test(start_paused = true)]
async fn field_l28_a_host_that_was_there_before_takes_over() {
    let (a, b, _, gate) = held(3, json!({})).await;
    b.advance(HOUR).await;
    a.kill();
    b.advance(TAKEOVER).await;
    gate.open();
    b.drain().await;
    b.see("t3").await.run(1).assert_status("completed").assert_attempts("lost, completed");
}

#[tokio::test(start_paused = true)]
async fn field_l30_a_run_that_is_due_late_starts_once() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let schedule = json!({ "type": "once", "run_at": "2026-01-01T06:00:00Z" });
    host.task(task(json!({ "schedule": schedule }))).await;
    host.task(task(json!({ "task_id": "retries", "agent_id": "fails", "retry_policy": { "max_retries": 1,
        "initial_delay_seconds": 21600, "max_delay_seconds": 21600, "jitter": 0 } })))
        .await;
    let fails = host.agent("fails", Script::new().fails("exception", "no"));
    host.run("retries").await;
    host.advance(7 * HOUR).await;
    assert_eq!((agent.attempts().as_slice(), fails.attempts().as_slice()), (&[1][..], &[1, 2][..]));
    assert_eq!(fails.calls()[1].at.since(fails.calls()[0].at), 6 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn field_l31_what_is_due_later_survives_that_every_host_stops() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "no").answers("done"));
    for n in 0..100 {
        let id = format!("t{n}");
        let policy = json!({ "max_retries": 1, "initial_delay_seconds": 600, "max_delay_seconds": 600 });
        host.task(task(json!({ "task_id": id, "retry_policy": policy }))).await;
        host.run(&id).await;
    }
    host.drain().await;
    host.shutdown().await.unwrap();
    host.advance(5 * MINUTE).await;
    let next = host.another().await;
    next.agent("agent", &agent);
    next.advance(HOUR).await;
    assert_eq!(agent.attempts().iter().filter(|attempt| **attempt == 2).count(), 100);
    next.see("t42").await.run(1).assert_attempts("failed, completed");
}

#[tokio::test(start_paused = true)]
async fn field_l32_a_task_that_is_deleted_under_its_run_harms_nobody() {
    let (host, _other, _, gate) = held(1, json!({})).await;
    host.delete_task(&name("t1"), Deletion::Keep).await.unwrap();
    // Nothing that lives is pruned, whatever is asked.
    let everything = PruneRequest { before: host.now().await.plus(DAY), keep: 0, limit: 1000 };
    assert_eq!(host.store().prune(everything).await.unwrap().runs, 0);
    gate.open();
    host.drain().await;
    host.see("t1").await.run(1).assert_status("completed");
}

#[tokio::test(start_paused = true)]
async fn a_lone_host_that_was_paused_for_longer_than_its_leases_goes_on() {
    // Whether it was the host or its store that stood still: the sweep is the first to look again.
    let settings = Settings { sweep: Some(SECOND), ..TestHost::settings() };
    let (host, gate) = (TestHost::open_with("2026-01-01T00:00:00Z", settings).await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    gate.arrived(1).await;
    host.cut_off();
    host.advance(10 * TAKEOVER + SECOND).await;
    host.reconnect();
    host.advance(4 * SECOND).await;
    host.see("t").await.run(1).assert_status("running");
    host.advance(10 * SECOND).await;
    gate.open();
    host.drain().await;
    let seen = host.see("t").await;
    seen.run(1).assert_status("completed").assert_attempts("completed");
}
