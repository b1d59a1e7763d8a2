//! Runs from wanted to final: states, attempts, retries, limits.

use serde_json::json;
use tenure::model::{ApprovalAnswer, CancelMode, RunStatus, WaitReason};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{Error, RunRequest, Settings};
use tenure_actors::OperationRequest;

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn task_t01_runs_move_only_along_the_arrows() {
    let (host, gate) = (host().await, Gate::new());
    let script = Script::new().fails("exception", "no").panics("no again").asks("may I?").waits_at(&gate);
    host.agent("agent", script.answers("done"));
    host.task(task(json!({ "retry_policy": { "max_retries": 2 }, "overlap_policy": "queue_next" }))).await;
    let run = host.run("t").await;
    host.run("t").await;
    host.advance(10 * MINUTE).await;
    host.resume_run(&run.run_id, ApprovalAnswer { approved: true, answer: json!(1) }).await.unwrap();
    host.advance(10 * MINUTE).await;
    let second = host.see("t").await.run(2).run.run_id.clone();
    host.cancel_run(&second, &ask(CancelMode::Force)).await.unwrap();
    gate.open();
    host.drain().await;
    let seen = host.see("t").await;
    seen.assert_statuses("completed, cancelled");
    seen.run(1).assert_attempts("failed, failed, completed, completed");
    seen.runs.iter().for_each(moved_lawfully);
}

#[tokio::test(start_paused = true)]
async fn task_t02_a_terminal_record_never_changes_again() {
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    host.drain().await;
    let before = host.see("t").await;
    for mode in [CancelMode::Cooperative, CancelMode::Force] {
        let answer = host.cancel_run(&run.run_id, &ask(mode)).await.unwrap();
        assert_eq!(answer.status, RunStatus::Completed);
    }
    let refused = host.resume_run(&run.run_id, ApprovalAnswer { approved: true, answer: json!(0) }).await;
    assert!(matches!(refused, Err(Error::WrongState { status: RunStatus::Completed, .. })), "{refused:?}");
    host.advance(DAY).await;
    let after = host.see("t").await;
    assert_eq!(before.run(1).run, after.run(1).run);
    assert_eq!(before.to_string(), after.to_string());
}

#[tokio::test(start_paused = true)]
async fn task_t03_attempts_never_exceed_the_retries_and_the_interruptions() {
    let host = host().await;
    let gate = Gate::new();
    let agent = host.agent("agent", Script::new().waits_at(&gate).fails("exception", "no"));
    host.task(task(json!({ "retry_policy": { "max_retries": 2, "initial_delay_seconds": 1 } }))).await;
    host.run("t").await;
    gate.arrived(1).await;
    let other = host.another().await;
    other.agent("agent", &agent);
    host.kill();
    gate.open();
    other.advance(HOUR).await;
    let seen = other.see("t").await;
    let run = seen.run(1).assert_status("failed").assert_attempts("lost, failed, failed, failed");
    assert_eq!((run.run.interruptions, run.run.failures), (1, 3));
    assert_eq!(agent.attempts(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn task_t04_every_queued_run_comes_to_an_end_whatever_happens_to_hosts() {
    for seed in 0..10 {
        let settings = Settings { seed: Some(seed), ..TestHost::settings() };
        let mut host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
        let script = Script::new().takes(3 * SECOND).fails("exception", "no").takes(20 * SECOND);
        let agent = host.agent("agent", script.answers("done"));
        for n in 0..12 {
            let policy = ["allow_parallel", "queue_next", "skip_if_running"][n % 3];
            let id = format!("t{n}");
            host.task(task(json!({ "task_id": id, "overlap_policy": policy, "retry_policy":
                { "max_retries": 1 } })))
                .await;
            host.run(&id).await;
            host.run(&id).await;
        }
        for round in 0..4 {
            host.advance(SECOND * (7 + u32::try_from(seed).unwrap() * 3)).await;
            let next = host.another().await;
            next.agent("agent", &agent);
            match round {
                0 | 2 => host.kill(),
                _ => drop(host.shutdown().await.unwrap()),
            }
            host = next;
        }
        host.advance(HOUR).await;
        for n in 0..12 {
            let seen = host.see(&format!("t{n}")).await;
            seen.runs.iter().for_each(moved_lawfully);
            assert!(seen.runs.iter().all(|run| run.run.status.is_terminal()), "seed {seed}\n{seen}");
            let skipped = usize::from(n % 3 == 2);
            seen.assert_count("completed", 2 - skipped);
        }
        assert_eq!(agent.executing(), 0);
        assert_eq!(host.store().check_now().await, Vec::<String>::new(), "seed {seed}");
    }
}

trait CheckNow {
    async fn check_now(&self) -> Vec<String>;
}

impl CheckNow for tenure::store::MemoryStore {
    async fn check_now(&self) -> Vec<String> {
        tenure::store::Store::check(self, false).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn task_t05_a_waiting_run_says_why_and_since_when() {
    let settings = Settings { concurrency: 2, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let gate = Gate::new();
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.agent("asks", Script::new().asks("may I?"));
    host.agent("fails", Script::new().fails("exception", "no"));
    host.task(task(json!({ "task_id": "fails", "agent_id": "fails", "retry_policy": { "max_retries": 1 } })))
        .await;
    host.task(task(json!({ "task_id": "asks", "agent_id": "asks" }))).await;
    let (fails, asks) = (host.run("fails").await, host.run("asks").await);
    host.drain().await;
    host.task(task(json!({ "task_id": "lane", "overlap_policy": "queue_next" }))).await;
    let holder = host.run("lane").await;
    let blocked = host.run("lane").await;
    host.task(task(json!({ "task_id": "fills" }))).await;
    host.run("fills").await;
    gate.arrived(2).await;
    host.task(task(json!({ "task_id": "full" }))).await;
    host.task(task(json!({ "task_id": "nobody", "agent_id": "nobody" }))).await;
    host.task(task(json!({ "task_id": "paused" }))).await;
    let (full, nobody, paused) = (host.run("full").await, host.run("nobody").await, host.run("paused").await);
    host.pause_task(&name("paused")).await.unwrap();
    host.advance(SECOND).await;
    let since = fails.due_at;
    let fails = host.run_of(&fails).await;
    let expected = [
        (&fails, WaitReason::NotDue { until: fails.due_at }),
        (&asks, WaitReason::Approval),
        (&blocked, WaitReason::LaneFull { lane: "task:lane".into(), holders: vec![holder.run_id] }),
        (&full, WaitReason::Worker),
        (&nobody, WaitReason::NoAgent { agent_id: nobody.spec.agent_id.clone() }),
        (&paused, WaitReason::Paused),
    ];
    for (run, reason) in expected {
        let waiting = host.waiting(&host.run_of(run).await).await.unwrap().unwrap();
        assert_eq!(waiting.reason, reason);
        assert_eq!(waiting.since, since, "{reason:?}");
    }
}

/// Something else than a run has the session: what would exclude it is given back, says who is in the way, and runs
/// once that is over.
#[tokio::test(start_paused = true)]
async fn task_t05_a_run_whose_session_is_taken_goes_back_and_says_who_has_it() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let session = json!({ "type": "fixed", "session_id": "s" });
    host.task(task(json!({ "session_policy": session, "timeout_seconds": 60 }))).await;
    let request = OperationRequest::new("compact:s:1", "compaction").unwrap().on_session("s").unwrap();
    let lease = host.application().current().operations().reserve(request).await.unwrap();
    let run = host.run("t").await;
    for _ in 0..3 {
        host.advance(SECOND).await;
        let queued = host.run_of(&run).await;
        assert_eq!((queued.status, queued.attempt), (RunStatus::Queued, 0), "{queued:?}");
        let waiting = host.waiting(&queued).await.unwrap().unwrap();
        let because = "busy: operation \"compact:s:1\" of owner \"compaction\" on session \"s\" is active";
        assert_eq!(waiting.reason, WaitReason::Busy { because: because.into() });
        assert_eq!(waiting.since, run.due_at, "since it was due, however often it was tried");
    }
    assert!(agent.calls().is_empty(), "{:?}", agent.calls());
    lease.release();
    host.advance(SECOND).await;
    let seen = host.see("t").await;
    seen.assert_statuses("completed");
    seen.run(1).assert_attempts("completed");
    moved_lawfully(seen.run(1));
    assert_eq!(host.application().current().operations().count(), 0, "it gave its own keys back");
}

trait RunOf {
    async fn run_of(&self, run: &tenure::model::Run) -> tenure::model::Run;
}

impl RunOf for TestHost {
    async fn run_of(&self, run: &tenure::model::Run) -> tenure::model::Run {
        tenure::Tenure::run(self, &run.run_id).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn task_t10_gaps_between_attempts_follow_the_policy_also_across_a_restart() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "no"));
    let policy = json!({ "max_retries": 5, "initial_delay_seconds": 10, "backoff": "exponential",
        "max_delay_seconds": 100, "jitter": 0.5 });
    host.task(task(json!({ "retry_policy": policy }))).await;
    host.run("t").await;
    for _ in 0..6 {
        host.advance(17 * SECOND).await;
        let next = host.another().await;
        next.agent("agent", &agent);
        host.shutdown().await.unwrap();
        host = next;
    }
    host.advance(HOUR).await;
    host.see("t").await.run(1).assert_status("failed").assert_attempts(&["failed"; 6].join(", "));
    let at: Vec<_> = agent.calls().iter().map(|call| call.at).collect();
    for (gap, least) in at.windows(2).map(|pair| pair[1].since(pair[0])).zip([10, 20, 40, 80, 100]) {
        let (least, most) = (SECOND * least, SECOND * least * 3 / 2);
        assert!((least..=most).contains(&gap), "{gap:?} is not from {least:?} to {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn task_t11_a_timeout_stops_the_attempt_and_then_cuts_it_off() {
    let host = host().await;
    let polite = host.agent("polite", Script::new().takes(HOUR).answers("late").answers("done"));
    let deaf = host.agent("deaf", Script::new().stubborn().takes(HOUR).answers("late").answers("done"));
    let retry = json!({ "max_retries": 1, "initial_delay_seconds": 0.001, "jitter": 0 });
    for agent in ["polite", "deaf"] {
        host.task(task(json!({ "task_id": agent, "agent_id": agent, "timeout_seconds": 10,
            "retry_policy": retry })))
            .await;
        host.run(agent).await;
    }
    host.advance(2 * HOUR).await;
    for (agent, took) in [("polite", 10 * SECOND), ("deaf", 25 * SECOND)] {
        let seen = host.see(agent).await;
        let run = seen.run(1).assert_status("completed").assert_attempts("timeout, completed");
        assert_eq!(run.attempts[0].took(host.now().await), took, "{seen}");
        moved_lawfully(run);
    }
    assert_eq!((polite.most_at_once(), deaf.most_at_once()), (1, 1), "attempts do not overlap");
}

#[tokio::test(start_paused = true)]
async fn task_t11_a_timeout_without_a_retry_is_final() {
    let host = host().await;
    host.agent("agent", Script::new().hangs());
    host.task(task(json!({ "timeout_seconds": 0.5 }))).await;
    host.run("t").await;
    host.advance(MINUTE).await;
    host.see("t").await.run(1).assert_status("timeout").assert_error("timeout");
}

#[tokio::test(start_paused = true)]
async fn task_t11_a_deadline_ends_the_run_also_while_it_waits() {
    let host = host().await;
    host.agent("agent", Script::new().fails("exception", "no"));
    host.agent("slow", Script::new().takes(HOUR).answers("late"));
    host.task(task(json!({ "task_id": "slow", "agent_id": "slow", "deadline_seconds": 60 }))).await;
    host.task(task(json!({ "task_id": "waits", "agent_id": "nobody", "deadline_seconds": 60 }))).await;
    for id in ["slow", "waits"] {
        host.run(id).await;
    }
    host.advance(2 * MINUTE).await;
    for id in ["slow", "waits"] {
        let seen = host.see(id).await;
        let run = seen.run(1).assert_status("timeout");
        let after = run.run.finished_at.unwrap().since(run.run.spec.queued_at);
        assert_eq!(after, MINUTE, "{seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn task_t12_an_error_class_outside_the_policy_is_final_at_once() {
    let host = host().await;
    host.agent("agent", Script::new().fails("quota", "no more"));
    host.task(task(json!({ "retry_policy": { "max_retries": 5 } }))).await;
    host.task(task(
        json!({ "task_id": "named", "retry_policy": { "max_retries": 1, "retry_on": ["quota"] } }),
    ))
    .await;
    for id in ["t", "named"] {
        host.run(id).await;
    }
    host.advance(HOUR).await;
    host.see("t").await.run(1).assert_status("failed").assert_attempts("failed").assert_error("quota");
    host.see("named").await.run(1).assert_status("failed").assert_attempts("failed, failed");
}

#[tokio::test(start_paused = true)]
async fn task_s1_an_agent_asks_a_person_and_its_next_attempt_receives_the_answer() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().asks("may I?").answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    let state = host.wait(&run.run_id, None).await.unwrap();
    assert!(state.settled);
    assert_eq!(state.run.approval.unwrap().question.as_ref(), "may I?");
    host.advance(DAY).await;
    let answer = ApprovalAnswer { approved: false, answer: json!({ "because": "no" }) };
    host.resume_run(&run.run_id, answer.clone()).await.unwrap();
    host.drain().await;
    assert_eq!(agent.calls()[1].approval.as_ref(), Some(&answer));
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed, completed");
}

#[tokio::test(start_paused = true)]
async fn task_s10_an_ended_run_is_done_again_as_a_new_run() {
    let (host, gate) = (host().await, Gate::new());
    let agent = host.agent("agent", Script::new().waits_at(&gate).fails("exception", "no"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    let refused = host.retry(&run.run_id, RunRequest::default()).await;
    assert!(matches!(refused, Err(Error::WrongState { .. })), "{refused:?}");
    gate.open();
    host.drain().await;
    gate.close();
    let again = RunRequest { query: Some("again".into()), ..RunRequest::default() };
    let second = host.retry(&run.run_id, again).await.unwrap();
    let third = host.retry(&run.run_id, RunRequest::default()).await.unwrap();
    gate.open();
    host.drain().await;
    assert_eq!(second.spec.retry_of, Some(run.run_id));
    assert_eq!(third.status, RunStatus::Skipped, "it obeys the overlap policy");
    assert_eq!(agent.calls()[1].query, "again");
    host.see("t").await.assert_statuses("failed, failed, skipped");
}

#[tokio::test(start_paused = true)]
async fn task_s10_the_same_idempotency_key_gives_the_same_run() {
    let (host, key) = (host().await, Some("key".into()));
    let other = host.another().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    let request = RunRequest { idempotency_key: key, ..RunRequest::default() };
    let task_id = name("t");
    let (one, two) =
        tokio::join!(host.run_now(&task_id, request.clone()), other.run_now(&task_id, request.clone()));
    host.drain().await;
    let three = host.run_now(&task_id, request.clone()).await.unwrap();
    assert_eq!(one.unwrap().run_id, two.unwrap().run_id);
    assert_eq!(three.status, RunStatus::Completed);
    assert_eq!(agent.calls().len(), 1);
    let another = RunRequest { query: Some("another".into()), ..request };
    let refused = host.run_now(&task_id, another).await;
    assert!(matches!(refused, Err(Error::KeyConflict { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn task_s3_runs_are_claimed_by_priority_and_then_by_age() {
    let settings = Settings { concurrency: 1, ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    for (id, priority) in [("low", -1), ("first", 0), ("second", 0), ("high", 5)] {
        host.task(task(json!({ "task_id": id, "query": id, "priority": priority }))).await;
        host.run(id).await;
        host.advance(SECOND).await;
    }
    let agent = host.agent("agent", Script::new().takes(SECOND).echoes());
    host.drain().await;
    let order: Vec<String> = agent.calls().into_iter().map(|call| call.query).collect();
    assert_eq!(order, ["high", "first", "second", "low"]);
}

#[tokio::test(start_paused = true)]
async fn task_s10_the_same_idempotency_key_gives_the_same_run_also_of_a_task_that_is_paused() {
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({}))).await;
    let keyed = |key: &str| RunRequest { idempotency_key: Some(key.into()), ..RunRequest::default() };
    let first = host.run_now(&name("t"), keyed("k")).await.unwrap();
    host.drain().await;
    host.pause_task(&name("t")).await.unwrap();
    assert_eq!(host.run_now(&name("t"), keyed("k")).await.unwrap().run_id, first.run_id, "asked again");
    let other = RunRequest { query: Some("another".into()), ..keyed("k") };
    let refused = host.run_now(&name("t"), other).await;
    assert!(matches!(refused, Err(Error::KeyConflict { .. })), "{refused:?}");
    let refused = host.run_now(&name("t"), keyed("new")).await;
    assert!(matches!(refused, Err(Error::Paused { .. })), "{refused:?}");
}
