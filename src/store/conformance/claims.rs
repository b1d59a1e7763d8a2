//! Claims: what is granted, to whom, in which order, and what is not.

use std::time::Duration;

use super::support::{A, B, agent, claim_request, done, draw, failed, ids, run_id, text};
use super::{Fixture, list};
use crate::model::{CancelMode, Place, Run, RunStatus, Task};
use crate::rules::{self, Moment, Outcome, Wanted};
use crate::store::ClaimRequest;
use serde_json::json;

list! {
    a_run_is_granted_only_when_it_is_due,
    field_x3_a_run_is_not_granted_a_millisecond_early,
    field_g16_a_run_that_is_no_longer_due_when_the_clock_is_set_back_waits,
    claims_go_by_priority_then_due_time_then_the_order_of_queueing,
    each_of_several_claims_takes_the_first_of_all_that_are_ready,
    claims_merge_the_agents_of_a_request,
    task_s12_11_only_runs_of_the_agents_that_are_named_are_granted,
    a_claim_takes_no_more_than_its_limit,
    a_claim_of_no_agents_or_nothing_is_granted_nothing,
    an_agent_that_is_named_twice_is_granted_each_run_once,
    a_paused_task_is_not_claimed_until_it_goes_on,
    a_run_of_a_paused_task_that_is_queued_beside_a_claim_is_not_granted,
    a_task_that_goes_on_lets_go_of_its_own_runs_alone,
    a_run_that_overrides_the_pause_is_claimed,
    a_paused_retry_waits_too,
    task_delete_a_run_of_a_deleted_task_stays_claimable,
    a_run_of_a_paused_task_that_is_deleted_stays_claimable,
    an_interrupted_run_is_claimed_again_before_those_queued_after_it,
    task_t45_a_run_of_a_dead_owner_is_claimable_again,
    field_l19_a_claim_whose_answer_was_lost_moves_on,
    field_g06_what_becomes_due_together_is_granted_in_pages,
    field_c04_a_run_cancelled_while_nobody_worked_never_starts,
    field_k11_a_thousand_runs_are_granted_once_each,
}

async fn a_run_is_granted_only_when_it_is_due(f: Fixture) {
    let task = f.task(json!({})).await;
    let later = f.queue_later(&task, "r", Duration::from_secs(60)).await;
    assert_eq!((later.place.clone(), later.status), (Place::Future, RunStatus::Queued));
    f.later(Duration::from_secs(59));
    assert_eq!(f.claim(A, 10).await, []);
    f.later(Duration::from_secs(1));
    assert_eq!(ids(&f.claim(A, 10).await), ["r"]);
    f.sound().await;
}

async fn field_x3_a_run_is_not_granted_a_millisecond_early(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue_later(&task, "r", Duration::from_millis(1001)).await;
    f.later(Duration::from_millis(1000));
    assert_eq!(f.claim(A, 10).await, []);
    f.later(Duration::from_millis(1));
    assert_eq!(f.claim(A, 10).await.len(), 1);
}

async fn field_g16_a_run_that_is_no_longer_due_when_the_clock_is_set_back_waits(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let start = f.now().await;
    f.queue_later(&task, "r", Duration::from_secs(60)).await;
    f.later(Duration::from_secs(60));
    // It was made ready by a claim that took another.
    f.queue(&task, "now").await;
    assert_eq!(f.claim(A, 1).await.len(), 1);
    f.clock.set(start);
    assert_eq!(f.claim(A, 10).await, [], "nothing that waits is due any more");
    f.later(Duration::from_secs(60));
    assert_eq!(f.claim(A, 10).await.len(), 1);
    f.sound().await;
}

async fn claims_go_by_priority_then_due_time_then_the_order_of_queueing(f: Fixture) {
    let parallel = |id: &str, priority: i32| {
        json!({
            "task_id": id, "priority": priority, "overlap_policy": "allow_parallel"
        })
    };
    let low = f.task(parallel("low", i32::MIN)).await;
    let usual = f.task(parallel("usual", 0)).await;
    let high = f.task(parallel("high", i32::MAX)).await;
    f.queue(&low, "low").await;
    f.queue_later(&usual, "later", Duration::from_secs(2)).await;
    f.queue_later(&usual, "sooner", Duration::from_secs(1)).await;
    f.queue(&usual, "z-first").await;
    f.queue(&usual, "a-second").await;
    f.queue_later(&high, "high", Duration::from_secs(2)).await;
    f.later(Duration::from_secs(2));
    let order = ["high", "z-first", "a-second", "sooner", "later", "low"];
    assert_eq!(ids(&f.claim(A, 4).await), order[..4]);
    assert_eq!(ids(&f.claim(A, 4).await), order[4..]);
}

/// A store may look at no more of those who are ready than are wanted.
async fn each_of_several_claims_takes_the_first_of_all_that_are_ready(f: Fixture) {
    let policy = "allow_parallel";
    let parallel = |id: &str, n: i32| json!({ "task_id": id, "priority": n, "overlap_policy": policy });
    let (low, usual, high) = (
        f.task(parallel("low", 0)).await,
        f.task(parallel("usual", 1)).await,
        f.task(parallel("high", 2)).await,
    );
    f.queue(&low, "low").await;
    f.queue_later(&usual, "later", Duration::from_secs(2)).await;
    f.queue_later(&usual, "sooner", Duration::from_secs(1)).await;
    f.queue(&high, "high").await;
    f.later(Duration::from_secs(2));
    for first in ["high", "sooner", "later", "low"] {
        assert_eq!(ids(&f.claim(A, 1).await), [first]);
    }
}

async fn claims_merge_the_agents_of_a_request(f: Fixture) {
    for (name, priority) in [("one", 1), ("three", 3), ("two", 2), ("four", 4)] {
        let agent = if priority % 2 == 0 { "even" } else { "odd" };
        let task = f.task(json!({ "task_id": name, "agent_id": agent, "priority": priority })).await;
        f.queue(&task, name).await;
    }
    let agents = [agent("odd"), agent("even")].into();
    let request = ClaimRequest { agents, ..claim_request(A, 3) };
    assert_eq!(ids(&f.store.claim(request).await.unwrap()), ["four", "three", "two"]);
}

async fn task_s12_11_only_runs_of_the_agents_that_are_named_are_granted(f: Fixture) {
    let task = f.task(json!({ "agent_id": "other" })).await;
    let queued = f.queue(&task, "r").await;
    // Of an agent that the store knows, as it does that of the other run.
    let mine = f.task(json!({ "task_id": "mine" })).await;
    f.queue(&mine, "m").await;
    assert_eq!(ids(&f.claim(A, 10).await), ["m"]);
    for _ in 0..3 {
        assert_eq!(f.claim(A, 10).await, []);
    }
    assert_eq!(f.read(&queued.run_id).await, queued, "it was not touched");
    let request = ClaimRequest { agents: [agent("other")].into(), ..claim_request(B, 10) };
    assert_eq!(ids(&f.store.claim(request).await.unwrap()), ["r"]);
}

async fn a_claim_takes_no_more_than_its_limit(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..5 {
        f.queue(&task, &format!("r{n}")).await;
    }
    assert_eq!(ids(&f.claim(A, 2).await), ["r0", "r1"]);
    assert_eq!(ids(&f.claim(A, usize::MAX).await), ["r2", "r3", "r4"]);
}

async fn a_claim_of_no_agents_or_nothing_is_granted_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    assert_eq!(f.claim(A, 0).await, []);
    let request = ClaimRequest { agents: [].into(), ..claim_request(A, 10) };
    assert_eq!(f.store.claim(request).await.unwrap(), []);
    assert_eq!(f.claim(A, 1).await.len(), 1);
}

async fn an_agent_that_is_named_twice_is_granted_each_run_once(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..3 {
        f.queue(&task, &format!("r{n}")).await;
    }
    let agents = [agent("agent"), agent("none"), agent("agent")].into();
    let request = ClaimRequest { agents, ..claim_request(A, 10) };
    assert_eq!(ids(&f.store.claim(request).await.unwrap()), ["r0", "r1", "r2"]);
}

async fn a_paused_task_is_not_claimed_until_it_goes_on(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "before").await;
    f.queue_later(&task, "later", Duration::from_secs(5)).await;
    let paused = f.change(&task, |spec| spec.enabled = false).await;
    let meanwhile = f.queue(&paused, "meanwhile").await;
    f.later(Duration::from_secs(5));
    assert_eq!(f.claim(A, 10).await, []);
    assert_eq!(f.read(&meanwhile.run_id).await.place, Place::Paused, "it can say why it waits");
    f.sound().await;
    f.change(&paused, |spec| spec.enabled = true).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["before", "meanwhile", "later"]);
    f.sound().await;
}

/// A claim may share a transaction with the decision that makes the run, and is then decided on what that left.
async fn a_run_of_a_paused_task_that_is_queued_beside_a_claim_is_not_granted(f: Fixture) {
    let busy = f.task(json!({ "task_id": "busy", "overlap_policy": "allow_parallel" })).await;
    let first = json!({ "task_id": "paused", "overlap_policy": "allow_parallel", "priority": 9 });
    let paused = f.task(first).await;
    let paused = f.change(&paused, |spec| spec.enabled = false).await;
    let now = f.now().await;
    let queued = |task: &Task, name: String| {
        rules::enqueue(task, Wanted::now(run_id(&name), now), Moment { now, stamp: draw() }).into()
    };
    // What comes next waits beside these.
    let many = (0..200).map(|n| queued(&busy, format!("busy{n}"))).collect();
    let one = vec![queued(&paused, "paused".to_owned())];
    let (many, one, claimed) =
        tokio::join!(f.store.commit(many), f.store.commit(one), f.store.claim(claim_request(A, 3)));
    assert!(many.unwrap().into_iter().chain(one.unwrap()).all(|made| made.is_ok()));
    assert!(!ids(&claimed.unwrap()).contains(&"paused"));
    assert_eq!(f.read(&run_id("paused")).await.status, RunStatus::Queued);
    f.sound().await;
}

async fn a_task_that_goes_on_lets_go_of_its_own_runs_alone(f: Fixture) {
    // Runs in lanes, and runs in none.
    let mut tasks = Vec::new();
    for (name, overlap) in [
        ("one", "queue_next"),
        ("two", "queue_next"),
        ("three", "allow_parallel"),
        ("four", "allow_parallel"),
    ] {
        let task = f.task(json!({ "task_id": name, "enabled": false, "overlap_policy": overlap })).await;
        f.queue(&task, name).await;
        tasks.push(task);
    }
    assert_eq!(f.claim(A, 10).await, []);
    let place = async |name: &str| f.read(&run_id(name)).await.place;
    for (task, goes_on, still_waits) in [(&tasks[0], "one", "two"), (&tasks[2], "three", "four")] {
        f.change(task, |spec| spec.enabled = true).await;
        assert_eq!((place(goes_on).await, place(still_waits).await), (Place::Ready, Place::Paused));
    }
    assert_eq!(ids(&f.claim(A, 10).await), ["one", "three"]);
    f.sound().await;
}

async fn a_run_that_overrides_the_pause_is_claimed(f: Fixture) {
    let task = f.task(json!({ "enabled": false, "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "waits").await;
    let mut wanted = f.wanted("overrides").await;
    wanted.override_pause = true;
    f.queue_as(&task, wanted).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["overrides"]);
}

async fn a_paused_retry_waits_too(f: Fixture) {
    let policy = json!({ "max_retries": 1, "initial_delay_seconds": 1, "jitter": 0.0 });
    let task = f.task(json!({ "retry_policy": policy })).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let paused = f.change(&task, |spec| spec.enabled = false).await;
    f.finish(&running, failed()).await;
    f.later(Duration::from_secs(1));
    assert_eq!(f.claim(A, 10).await, []);
    f.change(&paused, |spec| spec.enabled = true).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["r"]);
    f.sound().await;
}

async fn task_delete_a_run_of_a_deleted_task_stays_claimable(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    f.delete(&task).await;
    let running = f.begin(A).await;
    assert_eq!(f.finish(&running, done("x")).await.status, RunStatus::Completed);
    f.sound().await;
}

async fn a_run_of_a_paused_task_that_is_deleted_stays_claimable(f: Fixture) {
    let task = f.task(json!({ "enabled": false })).await;
    let queued = f.queue(&task, "r").await;
    assert_eq!(f.claim(A, 1).await, []);
    f.delete(&task).await;
    assert_eq!(f.claim_one(A).await.run_id, queued.run_id);
    f.sound().await;
}

async fn an_interrupted_run_is_claimed_again_before_those_queued_after_it(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    for name in ["first", "second"] {
        f.queue(&task, name).await;
    }
    let running = f.begin(A).await;
    let why = crate::model::RunError::new("shutdown", "the host stops");
    let back = f.finish(&running, Outcome::Interrupted(why)).await;
    assert_eq!((back.status, back.lease), (RunStatus::Queued, None));
    assert_eq!(ids(&f.claim(B, 10).await), ["first"]);
    f.sound().await;
}

async fn task_t45_a_run_of_a_dead_owner_is_claimable_again(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(super::support::LEASE + super::support::GRACE);
    assert_eq!(f.claim(B, 1).await, [], "an expired lease alone frees nothing");
    let due = f.store.due_runs(None, 10).await.unwrap();
    assert_eq!(ids(&due), ["r"], "found by its lease alone");
    f.sweep(&running).await.unwrap();
    let second = f.begin(B).await;
    assert_eq!((second.attempt, second.interruptions, second.failures), (2, 1, 0));
}

async fn field_l19_a_claim_whose_answer_was_lost_moves_on(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    f.later(super::support::LEASE + super::support::GRACE);
    let back = f.sweep(&claimed).await.unwrap();
    assert_eq!((back.status, back.attempt), (RunStatus::Queued, 0));
    assert_eq!(f.lane("task:t").await.active.len(), 1);
    assert_eq!(f.claim(B, 1).await.len(), 1, "no room is lost");
}

async fn field_g06_what_becomes_due_together_is_granted_in_pages(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue_many_later(&task, "r", 2500, Duration::from_secs(1)).await;
    f.later(Duration::from_secs(1));
    let mut granted = Vec::new();
    // No call has to do it all; none is in vain while something is due.
    while f.has_ready().await {
        let page = f.claim(A, 1000).await;
        assert!(!page.is_empty(), "{} were granted, and the agenda says that runs are due", granted.len());
        granted.extend(page);
    }
    assert_eq!(granted.len(), 2500);
    let names: Vec<String> = (0..2500).map(|n| format!("r{n}")).collect();
    assert_eq!(ids(&granted), names, "in the order they were queued");
}

async fn field_c04_a_run_cancelled_while_nobody_worked_never_starts(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.queue(&task, "r").await;
    f.cancel(&queued, CancelMode::Cooperative).await;
    f.later(Duration::from_secs(3600));
    assert_eq!(f.claim(A, 10).await, []);
    assert_eq!(f.attempts(&queued).await, []);
}

async fn field_k11_a_thousand_runs_are_granted_once_each(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue_many(&task, "r", 1000).await;
    let claims = (0..40_u128).map(|n| f.store.claim(claim_request(n % 4, 25)));
    let granted: Vec<Run> =
        futures_util::future::join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    let mut names: Vec<&str> = ids(&granted);
    names.sort_unstable();
    names.dedup();
    assert_eq!((granted.len(), names.len()), (1000, 1000));
    assert_eq!(f.counts(None).await, [(RunStatus::Claimed, 1000)].into());
    assert_eq!(granted[0].spec.query, text("do it"));
}
