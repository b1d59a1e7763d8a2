//! Who comes next: room that becomes free while others are looked at, and who must not be in the way.

use std::time::Duration;

use serde_json::json;

use super::support::{A, agent, claim_request, done, ids, run_id};
use super::{Fixture, list};
use crate::model::{CancelMode, Run};
use crate::store::{ClaimRequest, Decision};

list! {
    who_gets_room_while_others_are_claimed_goes_in_its_turn,
    who_gets_room_as_another_steps_aside_goes_in_its_turn,
    field_g03_blocked_runs_of_other_lanes_do_not_hide_a_ready_one,
    a_cancelled_waiting_run_wakes_the_next,
    who_waits_behind_many_that_go_at_once_comes_next,
    a_paused_run_wakes_the_next,
}

/// Two started runs fill a lane in which others wait: two of a task that runs one at a time, one of the same agent,
/// and later one of another agent. Each end gives room to one waiting run of each agent.
async fn crossing(f: &Fixture) -> [Run; 2] {
    let fields = |id: &str, agent: &str, overlap: &str| {
        json!({ "task_id": id, "agent_id": agent, "overlap_policy": overlap, "concurrency_key": "k",
            "concurrency_limit": 2 })
    };
    let one = f.task(fields("one", "agent", "queue_next")).await;
    let many = f.task(fields("many", "agent", "allow_parallel")).await;
    let later = f.task(fields("later", "other", "allow_parallel")).await;
    f.queue_many(&many, "holder", 2).await;
    let started = [f.begin(A).await, f.begin(A).await];
    f.queue_many(&one, "one", 2).await;
    f.queue(&many, "many").await;
    f.later(Duration::from_secs(1));
    f.queue(&later, "later").await;
    started
}

/// Found by random commands: a grant in a lane lets another run have room there, which comes before what is ready.
async fn who_gets_room_while_others_are_claimed_goes_in_its_turn(f: Fixture) {
    for run in crossing(&f).await {
        f.finish(&run, done("x")).await;
    }
    let both = ClaimRequest { agents: [agent("agent"), agent("other")].into(), ..claim_request(A, 10) };
    let claimed = f.store.claim(both).await.unwrap();
    assert_eq!(ids(&claimed), ["one0", "many"], "the second of \"one\" waits for the first");
    f.sound().await;
}

async fn who_gets_room_as_another_steps_aside_goes_in_its_turn(f: Fixture) {
    let [first, second] = crossing(&f).await;
    f.finish(&first, done("x")).await;
    assert_eq!(ids(&f.claim(A, 1).await), ["one0"]);
    f.finish(&second, done("x")).await;
    let both = ClaimRequest { agents: [agent("agent"), agent("other")].into(), ..claim_request(A, 10) };
    let claimed = f.store.claim(both).await.unwrap();
    assert_eq!(ids(&claimed), ["many"], "the second of \"one\" waits for the first, \"later\" comes later");
    f.sound().await;
}

async fn field_g03_blocked_runs_of_other_lanes_do_not_hide_a_ready_one(f: Fixture) {
    let blocked =
        f.task(json!({ "task_id": "blocked", "overlap_policy": "queue_next", "priority": 9 })).await;
    let free = f.task(json!({ "task_id": "free" })).await;
    f.queue_many(&blocked, "b", 3000).await;
    assert_eq!(ids(&f.claim(A, 1).await), ["b0"]);
    f.queue(&free, "free").await;
    // A store may look at a bounded number of runs in vain, and at none of them twice.
    let mut found = Vec::new();
    for _ in 0..5 {
        found.extend(f.claim(A, 10).await);
    }
    assert_eq!(ids(&found), ["free"]);
}

async fn a_cancelled_waiting_run_wakes_the_next(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "holder").await;
    let holder = f.begin(A).await;
    let second = f.queue(&task, "second").await;
    f.queue(&task, "third").await;
    f.finish(&holder, done("x")).await;
    // The second has been made ready, and goes before anybody looks.
    f.cancel(&second, CancelMode::Cooperative).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["third"]);
    f.sound().await;
}

/// A store may read only the first of those who wait, and has to know that others are behind them.
async fn who_waits_behind_many_that_go_at_once_comes_next(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "holder").await;
    let holder = f.begin(A).await;
    f.queue_many(&task, "r", 40).await;
    let mut decisions: Vec<Decision> = Vec::new();
    for n in 0..30 {
        let waits = f.read(&run_id(&format!("r{n}"))).await;
        decisions.push(f.cancel_write(&waits, CancelMode::Cooperative).await.into());
    }
    decisions.push(f.end_of(&holder, done("x")).await.into());
    assert!(f.store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(ids(&f.claim(A, 10).await), ["r30"]);
    f.sound().await;
}

async fn a_paused_run_wakes_the_next(f: Fixture) {
    let fields = |id: &str| json!({ "task_id": id, "concurrency_key": "k" });
    let (one, two, three) =
        (f.task(fields("one")).await, f.task(fields("two")).await, f.task(fields("three")).await);
    f.queue(&one, "holder").await;
    let holder = f.begin(A).await;
    f.queue(&two, "paused").await;
    f.queue(&three, "next").await;
    f.change(&two, |spec| spec.enabled = false).await;
    f.finish(&holder, done("x")).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["next"]);
    f.sound().await;
}
