//! What the port does for runs that hosts execute themselves: they begin running, are listed apart, and go with a
//! decision.

use serde_json::json;

use super::support::{A, B, GRACE, LEASE, ask, claim_request, done, draw, ids, run_id, token};
use super::{Fixture, list};
use crate::model::{
    AgentId, Attempt, AttemptStatus, CancelMode, EventKind, InstanceId, Limits, OverlapPolicy, RetryPolicy,
    Run, RunError, RunSpec, RunStatus, Subject, TaskId, Token, Trigger,
};
use crate::rules::{self, Cancel, Grant, Moment, Outcome};
use crate::store::{ClaimRequest, Decision, Expect, Refusal, RunFilter, RunWrite};

list! {
    own_i8_a_run_begins_with_its_lease_in_one_write,
    nobody_claims_what_a_host_executes,
    own_s5_1_whose_owner_is_gone_stays_lost,
    own_v3_what_a_shutdown_interrupts_has_failed,
    own_s6_3_a_cancelled_run_of_a_dead_owner_is_cancelled_not_lost,
    own_l24_a_run_that_is_handed_over_has_another_token,
    what_a_host_executes_is_listed_apart,
    ended_runs_go_with_a_decision,
    what_has_not_ended_does_not_go,
    what_is_made_and_goes_in_one_call_leaves_nothing,
}

fn spec(task: &str) -> RunSpec {
    let now = crate::model::Timestamp::from_ms(0);
    RunSpec {
        task_id: TaskId::new(task).unwrap(),
        agent_id: AgentId::host(),
        query: "find it".into(),
        trigger: Trigger::Manual,
        queued_at: now,
        first_due_at: now,
        late_by_ms: 0,
        occurrence: None,
        idempotency: None,
        session_id: "s".into(),
        workspace_path: "owned/s/1".into(),
        write_run_json: false,
        write_events_jsonl: false,
        limits: Limits::default(),
        retry_policy: RetryPolicy::default(),
        overlap_policy: OverlapPolicy::AllowParallel,
        lanes: Vec::new(),
        priority: 0,
        retry_of: None,
        override_pause: false,
        metadata: Default::default(),
    }
}

/// A run that `A` begins.
async fn begun(f: &Fixture, name: &str) -> Run {
    let (run_id, owner) = (run_id(name), InstanceId::from_bits(A));
    let token = Token { fence: 7, nonce: draw() };
    let grant = Grant { run_id, spec: spec("owned.n.s.x"), owner, token, lease: LEASE };
    f.apply(rules::grant(grant, f.moment().await)).await
}

async fn own_i8_a_run_begins_with_its_lease_in_one_write(f: Fixture) {
    let run = begun(&f, "r").await;
    assert_eq!((run.status, run.fence, run.version), (RunStatus::Running, 7, 1));
    let lease = run.lease.expect("a lease from the first write on");
    assert_eq!((lease.owner, lease.expires_at), (InstanceId::from_bits(A), f.now().await.plus(LEASE)));
    assert_eq!(f.told(&run).await, [EventKind::Started]);
    let [Attempt { number: 1, status: AttemptStatus::Running, fence: 7, .. }] = f.attempts(&run).await[..]
    else {
        panic!("one attempt, in progress");
    };
    assert_eq!(f.store.agenda().await.unwrap().wake, Some(lease.expires_at));
    f.later(LEASE / 2);
    f.renew(&run, LEASE).await;
    assert_eq!(f.finish(&run, done("found")).await.status, RunStatus::Completed);
    f.sound().await;
}

async fn nobody_claims_what_a_host_executes(f: Fixture) {
    let run = begun(&f, "r").await;
    let agents = [AgentId::host()].into();
    f.later(LEASE + GRACE);
    f.sweep(&run).await;
    let claimed = f.store.claim(ClaimRequest { agents, ..claim_request(B, 10) }).await.unwrap();
    assert_eq!(claimed, [], "lost, and not queued again");
    assert!(!f.has_ready().await);
}

async fn own_s5_1_whose_owner_is_gone_stays_lost(f: Fixture) {
    let run = begun(&f, "r").await;
    f.later(LEASE + GRACE - std::time::Duration::from_millis(1));
    assert_eq!(f.sweep(&run).await, None, "not for the whole grace");
    f.later(std::time::Duration::from_millis(1));
    let lost = f.sweep(&run).await.expect("a lease that lapsed");
    assert_eq!((lost.status, lost.lease, lost.interruptions), (RunStatus::Lost, None, 1));
    assert_eq!(lost.lost_token, run.token());
    f.later(1000 * LEASE);
    assert_eq!(f.sweep(&lost).await, None, "nobody but its host says what becomes of it");
    assert_eq!(f.store.agenda().await.unwrap().wake, None);
    assert_eq!(f.told(&run).await, [EventKind::Started, EventKind::Lost]);
    f.sound().await;
}

async fn own_v3_what_a_shutdown_interrupts_has_failed(f: Fixture) {
    let run = begun(&f, "r").await;
    let ended = f.finish(&run, Outcome::Interrupted(RunError::new("interrupted", "shut down"))).await;
    assert_eq!((ended.status, ended.interruptions), (RunStatus::Failed, 0));
    assert_eq!(ended.error.map(|error| error.class.to_string()).as_deref(), Some("interrupted"));
}

async fn own_s6_3_a_cancelled_run_of_a_dead_owner_is_cancelled_not_lost(f: Fixture) {
    let run = begun(&f, "r").await;
    f.cancel(&run, CancelMode::Cooperative).await;
    f.later(LEASE + GRACE);
    assert_eq!(f.sweep(&run).await.map(|run| run.status), Some(RunStatus::Cancelled));
    // What was lost before anybody asked is cancelled at once.
    let other = begun(&f, "other").await;
    f.later(LEASE + GRACE);
    f.sweep(&other).await;
    assert_eq!(f.cancel(&other, CancelMode::Cooperative).await.status, RunStatus::Cancelled);
}

async fn own_l24_a_run_that_is_handed_over_has_another_token(f: Fixture) {
    let run = begun(&f, "r").await;
    let to = InstanceId::from_bits(B);
    let moment = f.moment().await;
    f.renew(&run, 10 * LEASE).await;
    let given = f.apply(rules::hand_over(&run, token(&run), to, draw(), LEASE, moment).unwrap()).await;
    let expires_at = given.lease.map(|lease| lease.expires_at);
    assert_eq!(expires_at, Some(moment.now.plus(LEASE)), "the renewals of the other token end with it");
    assert_eq!((given.fence, given.lease.map(|lease| lease.owner)), (8, Some(to)));
    let late = f.end_of(&run, done("late")).await;
    assert!(matches!(f.refuses(late).await, Refusal::Fenced { fence: 8, .. }));
    assert!(rules::hand_over(&given, token(&run), to, draw(), LEASE, moment).is_err());
    assert_eq!(f.finish(&given, done("x")).await.status, RunStatus::Completed);
}

async fn what_a_host_executes_is_listed_apart(f: Fixture) {
    let owned = |owned| RunFilter { owned, ..RunFilter::default() };
    assert_eq!(f.list(owned(Some(true))).await, []);
    let task = f.task(json!({})).await;
    f.queue(&task, "wanted").await;
    assert_eq!(ids(&f.list(owned(Some(false))).await), ["wanted"]);
    assert_eq!(f.list(owned(Some(true))).await, []);
    begun(&f, "own").await;
    assert_eq!(ids(&f.list(owned(None)).await), ["own", "wanted"]);
    assert_eq!(ids(&f.list(owned(Some(true))).await), ["own"]);
    assert_eq!(ids(&f.list(owned(Some(false))).await), ["wanted"]);
}

fn forget(write: RunWrite, runs: &[&str]) -> Decision {
    Decision { forget: runs.iter().map(|name| run_id(name)).collect(), ..Decision::from(write) }
}

async fn ended_runs_go_with_a_decision(f: Fixture) {
    let (first, second) = (begun(&f, "first").await, begun(&f, "second").await);
    f.finish(&first, done("x")).await;
    let ends = f.end_of(&second, done("y")).await;
    // The second ends and goes in one step; what is not there is gone already.
    f.commit(forget(ends, &["first", "second", "neither"])).await.expect("all have ended");
    assert_eq!(f.list(RunFilter::default()).await, []);
    assert_eq!(f.attempts(&first).await, []);
    assert_eq!(f.events(Subject::Run(run_id("second"))).await, []);
    assert!(f.counts(None).await.is_empty());
    f.sound().await;
}

async fn what_has_not_ended_does_not_go(f: Fixture) {
    let (first, second) = (begun(&f, "first").await, begun(&f, "second").await);
    let Cancel::Write(asks) = rules::cancel(&first, &ask(CancelMode::Cooperative), f.moment().await) else {
        panic!("a run to be cancelled");
    };
    let refusal = f.commit(forget(asks, &["second"])).await.expect_err("it is running");
    assert!(matches!(refusal, Refusal::StaleRun { run_id, .. } if run_id == second.run_id));
    assert_eq!(f.read(&first.run_id).await, first, "and nothing else was written");
    assert_eq!(f.read(&second.run_id).await, second);
}

async fn what_is_made_and_goes_in_one_call_leaves_nothing(f: Fixture) {
    let moment = f.moment().await;
    let grant = |name: &str| {
        let (run_id, owner) = (run_id(name), InstanceId::from_bits(A));
        let token = Token { fence: 7, nonce: draw() };
        rules::grant(Grant { run_id, spec: spec("owned.n.s.x"), owner, token, lease: LEASE }, moment)
    };
    let ends = |begun: &RunWrite| {
        let moment = Moment { stamp: draw(), ..moment };
        rules::finish(&begun.run, token(&begun.run), done("x"), 0, moment).unwrap()
    };
    // In one decision: made as it ended, and forgotten.
    let begun = grant("one");
    let ended = ends(&begun);
    let events = [begun.events, ended.events].concat();
    let whole = RunWrite { expect: Expect::Absent, events, ..ended };
    f.commit(forget(whole, &["one"])).await.expect("it has ended");
    // In two decisions of one call.
    let begun = grant("two");
    let ended = forget(ends(&begun), &["two"]);
    let answers = f.store.commit(vec![Decision::from(begun), ended]).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(f.list(RunFilter::default()).await, []);
    for name in ["one", "two"] {
        assert_eq!(f.store.run(&run_id(name)).await.unwrap(), None);
        assert_eq!(f.store.attempts(&run_id(name)).await.unwrap(), []);
        assert_eq!(f.events(Subject::Run(run_id(name))).await, []);
    }
    assert!(f.counts(None).await.is_empty());
    // And its name is free.
    f.apply(grant("one")).await;
    f.sound().await;
}
