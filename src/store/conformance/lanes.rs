//! Lanes: as many at once as their limit says, who waits is woken, who decides on one decides on it as it is.

use std::time::Duration;

use super::support::{A, ask, claim_request, done, failed, ids, is_fenced, run_id, unmoved};
use super::{Fixture, list};
use crate::model::{CancelMode, Place, Run, RunId, RunStatus, Task, Trigger};
use crate::rules::{self, Overlap};
use crate::store::{Decision, LaneView, Refusal};
use futures_util::future::join_all;
use serde_json::json;

list! {
    one_run_of_a_task_is_claimed_at_once,
    a_concurrency_key_holds_across_tasks_and_agents,
    a_lane_with_a_limit_is_filled_to_it,
    a_wider_limit_overtakes_nobody_in_a_lane,
    who_waits_in_a_lane_is_in_the_way_of_its_own_agent_alone,
    a_run_that_needs_two_lanes_waits_for_both_and_blocks_neither,
    a_run_that_waits_for_another_lane_lets_others_have_its_room,
    a_retrying_run_keeps_its_room_and_is_not_in_its_own_way,
    a_run_that_waits_for_a_person_gives_back_its_room,
    task_t24_a_resumed_run_waits_for_room_again,
    each_final_state_frees_the_lane,
    field_k01_a_dead_holder_frees_the_lane,
    field_k02_blocked_runs_all_end_without_a_new_enqueue,
    a_lane_shows_who_is_in_it_in_order,
    a_lane_shows_a_queued_run_that_a_schedule_wanted,
    the_version_of_a_lane_rises_when_something_comes_or_goes,
    a_lane_that_was_emptied_and_filled_again_is_not_the_same,
    a_decision_on_a_lane_that_has_moved_is_refused,
    a_lane_that_was_emptied_in_the_same_call_has_no_version,
    task_t20_skip_if_running_lets_one_of_two_in,
    task_t21_queue_next_lets_one_scheduled_run_wait,
    task_t22_cancel_previous_leaves_one,
    task_t23_allow_parallel_asks_no_lane,
    field_k06_of_many_occurrences_two_are_there_at_most,
    a_hundred_runs_of_a_lane_are_shown_and_all_are_counted,
}

async fn wants(f: &Fixture, task: &Task, name: &str, trigger: Trigger) -> Run {
    let mut wanted = f.wanted(name).await;
    wanted.trigger = trigger;
    f.queue_as(task, wanted).await
}

fn in_lane(name: &str) -> Place {
    Place::Lane { lane: name.into() }
}

async fn one_run_of_a_task_is_claimed_at_once(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    for name in ["one", "two", "three"] {
        f.queue(&task, name).await;
    }
    for name in ["one", "two", "three"] {
        let claimed = f.claim(A, 10).await;
        assert_eq!(ids(&claimed), [name]);
        assert_eq!(f.claim(A, 10).await, []);
        f.sound().await;
        let running = f.start(&claimed[0]).await;
        f.finish(&running, done("x")).await;
    }
    assert_eq!(f.lane("task:t").await, LaneView::default());
    f.sound().await;
}

async fn a_concurrency_key_holds_across_tasks_and_agents(f: Fixture) {
    for (name, agent) in [("one", "agent"), ("two", "agent"), ("three", "other")] {
        let task = f.task(json!({ "task_id": name, "agent_id": agent, "concurrency_key": "k" })).await;
        f.queue(&task, name).await;
    }
    let both = [super::support::agent("agent"), super::support::agent("other")];
    let claim = || async {
        let request = crate::store::ClaimRequest { agents: both.clone().into(), ..claim_request(A, 10) };
        f.store.claim(request).await.unwrap()
    };
    for name in ["one", "two", "three"] {
        let claimed = claim().await;
        assert_eq!(ids(&claimed), [name]);
        assert_eq!(claim().await, []);
        let running = f.start(&claimed[0]).await;
        f.finish(&running, done("x")).await;
        f.sound().await;
    }
}

async fn a_lane_with_a_limit_is_filled_to_it(f: Fixture) {
    let fields = json!({
        "concurrency_key": "k", "concurrency_limit": 3, "overlap_policy": "allow_parallel"
    });
    let task = f.task(fields).await;
    for n in 0..8 {
        f.queue(&task, &format!("r{n}")).await;
    }
    let first = f.claim(A, 10).await;
    assert_eq!(ids(&first), ["r0", "r1", "r2"]);
    for run in &first[..2] {
        let running = f.start(run).await;
        f.finish(&running, done("x")).await;
    }
    assert_eq!(ids(&f.claim(A, 10).await), ["r3", "r4"]);
    assert_eq!(f.claim(A, 10).await, []);
    f.sound().await;
}

async fn a_wider_limit_overtakes_nobody_in_a_lane(f: Fixture) {
    let mut task = json!({ "task_id": "narrow", "concurrency_key": "k", "overlap_policy": "allow_parallel" });
    let narrow = f.task(task.clone()).await;
    task["task_id"] = "wide".into();
    task["concurrency_limit"] = 2.into();
    let wide = f.task(task).await;
    f.queue(&narrow, "holder").await;
    let holder = f.begin(A).await;
    f.queue(&narrow, "first").await;
    f.queue(&wide, "second").await;
    assert_eq!(f.claim(A, 10).await, [], "there is room for it, and somebody waits before it");
    f.finish(&holder, done("x")).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["first", "second"]);
    f.sound().await;
}

async fn who_waits_in_a_lane_is_in_the_way_of_its_own_agent_alone(f: Fixture) {
    let mut task = json!({ "task_id": "narrow", "concurrency_key": "k", "overlap_policy": "allow_parallel" });
    let narrow = f.task(task.clone()).await;
    task["task_id"] = "wide".into();
    task["agent_id"] = "other".into();
    task["concurrency_limit"] = 2.into();
    let wide = f.task(task).await;
    f.queue(&narrow, "holder").await;
    f.begin(A).await;
    f.queue(&narrow, "first").await;
    let second = f.queue(&wide, "second").await;
    assert_eq!(second.place, Place::Ready, "nobody may be there who has the agent of the other");
    let agents = [super::support::agent("other")].into();
    let claimed = f.store.claim(crate::store::ClaimRequest { agents, ..claim_request(A, 10) }).await.unwrap();
    assert_eq!(ids(&claimed), ["second"]);
    f.sound().await;
}

async fn a_run_that_needs_two_lanes_waits_for_both_and_blocks_neither(f: Fixture) {
    let one = f.task(json!({ "task_id": "one", "concurrency_key": "k" })).await;
    let two = f.task(json!({ "task_id": "two", "overlap_policy": "queue_next" })).await;
    let both = f.task(json!({ "task_id": "both", "concurrency_key": "k" })).await;
    f.queue(&one, "holder").await;
    let holder = f.begin(A).await;
    let waits = f.queue(&both, "waits").await;
    f.queue(&two, "free").await;
    assert_eq!(ids(&f.claim(A, 10).await), ["free"]);
    assert_eq!(f.read(&waits.run_id).await.place, in_lane("key:k"));
    f.finish(&holder, done("x")).await;
    assert_eq!(ids(&f.claim(A, 10).await), ["waits"]);
    f.sound().await;
}

async fn a_run_that_waits_for_another_lane_lets_others_have_its_room(f: Fixture) {
    let fields = |id: &str, key: &str| {
        json!({ "task_id": id, "concurrency_key": key, "overlap_policy": "allow_parallel",
            "session_policy": { "type": "task" } })
    };
    // `both` needs its task's lane and the key; the key is held for long.
    let slow = f.task(fields("slow", "key")).await;
    f.queue(&slow, "slow").await;
    f.begin(A).await;
    let fixed = json!({ "type": "fixed", "session_id": "s" });
    let session = |id: &str| json!({ "task_id": id, "session_policy": fixed });
    let mut both = session("both");
    both["concurrency_key"] = "key".into();
    let (first, both, other) =
        (f.task(session("first")).await, f.task(both).await, f.task(session("other")).await);
    f.queue(&first, "first").await;
    let running = f.begin(A).await;
    f.queue(&both, "both").await;
    f.queue(&other, "other").await;
    assert_eq!(f.claim(A, 10).await, [], "the session is taken");
    f.finish(&running, done("x")).await;
    // `both` comes first, and finds the key taken: the session is free for who waits behind it.
    assert_eq!(ids(&f.claim(A, 10).await), ["other"]);
    f.sound().await;
}

async fn a_retrying_run_keeps_its_room_and_is_not_in_its_own_way(f: Fixture) {
    let policy = json!({ "max_retries": 1, "initial_delay_seconds": 5, "jitter": 0.0 });
    let task = f.task(json!({ "overlap_policy": "queue_next", "retry_policy": policy })).await;
    f.queue(&task, "first").await;
    f.queue(&task, "second").await;
    let running = f.begin(A).await;
    f.finish(&running, failed()).await;
    assert_eq!(f.claim(A, 10).await, [], "a retry keeps its place");
    f.later(Duration::from_secs(5));
    assert_eq!(ids(&f.claim(A, 10).await), ["first"]);
    f.sound().await;
}

async fn a_run_that_waits_for_a_person_gives_back_its_room(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "asks").await;
    f.queue(&task, "next").await;
    let running = f.begin(A).await;
    let asks = f.finish(&running, approval()).await;
    assert_eq!((asks.status, asks.place), (RunStatus::AwaitingApproval, Place::Nowhere));
    assert_eq!(ids(&f.claim(A, 10).await), ["next"]);
    let active: Vec<RunId> = f.lane("task:t").await.active.into_iter().map(|run| run.run_id).collect();
    assert_eq!(active, [run_id("next")], "who waits for a person is not in the lane");
    f.sound().await;
}

async fn task_t24_a_resumed_run_waits_for_room_again(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "asks").await;
    f.queue(&task, "next").await;
    let running = f.begin(A).await;
    let asks = f.finish(&running, approval()).await;
    let next = f.begin(A).await;
    let answer = crate::model::ApprovalAnswer { approved: true, answer: json!("yes") };
    let resumed = f.apply(rules::resume(&asks, answer.clone(), f.moment().await).unwrap()).await;
    assert_eq!((resumed.status, resumed.place.clone()), (RunStatus::Queued, in_lane("task:t")));
    assert_eq!(f.claim(A, 10).await, []);
    f.finish(&next, done("x")).await;
    let again = f.begin(A).await;
    assert_eq!(again.run_id, asks.run_id);
    assert_eq!(again.approval.unwrap().answer, Some(answer), "the next attempt receives the answer");
    f.sound().await;
}

fn approval() -> rules::Outcome {
    rules::Outcome::AwaitingApproval { question: "go on?".into(), data: json!({ "price": 3 }) }
}

async fn each_final_state_frees_the_lane(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    let error = || crate::model::RunError::new("class", "message");
    let outcomes = [
        done("x"),
        rules::Outcome::Failed(error()),
        rules::Outcome::TimedOut(error()),
        rules::Outcome::PastDeadline(error()),
        rules::Outcome::Cancelled(None),
    ];
    for (n, outcome) in outcomes.into_iter().enumerate() {
        f.queue(&task, &format!("first{n}")).await;
        f.queue(&task, &format!("next{n}")).await;
        let first = f.begin(A).await;
        assert!(f.finish(&first, outcome).await.status.is_terminal());
        let next = f.begin(A).await;
        assert_eq!(next.run_id, run_id(&format!("next{n}")));
        f.cancel(&next, CancelMode::Force).await;
        assert_eq!(f.lane("task:t").await, LaneView::default());
    }
    f.sound().await;
}

async fn field_k01_a_dead_holder_frees_the_lane(f: Fixture) {
    let fields = |id: &str| {
        json!({
            "task_id": id, "concurrency_key": "k", "retry_policy": { "max_interruptions": 0 }
        })
    };
    let (dead, next) = (f.task(fields("dead")).await, f.task(fields("next")).await);
    f.queue(&dead, "dead").await;
    let held = f.begin(A).await;
    f.queue(&next, "next").await;
    assert_eq!(f.claim(A, 10).await, []);
    f.later(super::support::LEASE + super::support::GRACE);
    assert_eq!(f.sweep(&held).await.unwrap().status, RunStatus::Failed);
    assert_eq!(ids(&f.claim(A, 10).await), ["next"]);
}

async fn field_k02_blocked_runs_all_end_without_a_new_enqueue(f: Fixture) {
    let fields = json!({
        "concurrency_key": "k", "concurrency_limit": 10, "overlap_policy": "allow_parallel"
    });
    let task = f.task(fields).await;
    f.queue_many(&task, "r", 200).await;
    let mut ended = 0;
    loop {
        let claimed = f.claim(A, 7).await;
        if claimed.is_empty() {
            break;
        }
        for run in claimed {
            let running = f.start(&run).await;
            f.finish(&running, done("x")).await;
            ended += 1;
        }
    }
    assert_eq!(ended, 200);
    f.sound().await;
}

async fn a_lane_shows_who_is_in_it_in_order(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    assert_eq!(f.lane("task:t").await, LaneView::default(), "nothing is in it");
    f.queue(&task, "z").await;
    wants(&f, &task, "a", Trigger::Retry).await;
    f.begin(A).await;
    let lane = f.lane("task:t").await;
    let shown: Vec<_> =
        lane.active.iter().map(|run| (run.run_id.as_str(), run.status, run.trigger)).collect();
    let (running, queued) = (RunStatus::Running, RunStatus::Queued);
    assert_eq!(shown, [("z", running, Trigger::Manual), ("a", queued, Trigger::Retry)]);
    assert_eq!((lane.total, lane.scheduled_waiting), (2, None));
}

async fn a_lane_shows_a_queued_run_that_a_schedule_wanted(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    wants(&f, &task, "first", Trigger::Schedule).await;
    assert_eq!(f.lane("task:t").await.scheduled_waiting, Some(run_id("first")));
    f.begin(A).await;
    assert_eq!(f.lane("task:t").await.scheduled_waiting, None, "it no longer waits");
    f.queue(&task, "manual").await;
    wants(&f, &task, "second", Trigger::Schedule).await;
    assert_eq!(f.lane("task:t").await.scheduled_waiting, Some(run_id("second")));
}

async fn the_version_of_a_lane_rises_when_something_comes_or_goes(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    let mut versions = vec![f.lane("task:t").await.version];
    f.queue(&task, "one").await;
    versions.push(f.lane("task:t").await.version);
    f.queue(&task, "two").await;
    versions.push(f.lane("task:t").await.version);
    let claimed = f.claim_one(A).await;
    versions.push(f.lane("task:t").await.version);
    let running = f.start(&claimed).await;
    f.renew(&running, super::support::LEASE).await;
    assert_eq!(f.lane("task:t").await.version, versions[3], "nothing came or went");
    f.finish(&running, done("x")).await;
    versions.push(f.lane("task:t").await.version);
    assert_eq!(versions[0], 0);
    assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
}

async fn a_lane_that_was_emptied_and_filled_again_is_not_the_same(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "one").await;
    let seen = f.lane("task:t").await;
    let one = f.begin(A).await;
    f.finish(&one, done("x")).await;
    // As many steps as at first.
    f.queue(&task, "two").await;
    let decision = Decision {
        runs: vec![rules::skip(&task, f.wanted("skipped").await, run_id("one"), f.moment().await)],
        lanes: vec![unmoved("task:t", &seen)],
        ..Decision::default()
    };
    let refusal = f.commit(decision).await.unwrap_err();
    assert!(matches!(refusal, Refusal::StaleLane { .. }), "{refusal}");
}

async fn a_decision_on_a_lane_that_has_moved_is_refused(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    let empty = f.lane("task:t").await;
    let first = f.queue(&task, "one").await;
    let seen = f.lane("task:t").await;
    let decide = |name: &'static str, lane: &LaneView| {
        let (lanes, f, task) = (vec![unmoved("task:t", lane)], f.clone(), task.clone());
        async move {
            let runs = vec![rules::enqueue(&task, f.wanted(name).await, f.moment().await)];
            f.commit(Decision { runs, lanes, ..Decision::default() }).await
        }
    };
    let stale = Refusal::StaleLane { name: "task:t".into(), version: seen.version };
    assert_eq!(decide("late", &empty).await, Err(stale));
    assert_eq!(f.store.run(&run_id("late")).await.unwrap(), None);
    assert_eq!(decide("two", &seen).await, Ok(()));
    let moved = f.lane("task:t").await;
    f.cancel(&first, CancelMode::Cooperative).await;
    assert!(matches!(decide("three", &moved).await, Err(Refusal::StaleLane { .. })), "somebody left");
}

async fn a_lane_that_was_emptied_in_the_same_call_has_no_version(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    let empty = f.lane("task:t").await;
    f.queue(&task, "one").await;
    let running = f.begin(A).await;
    let ends = Decision::from(f.end_of(&running, done("x")).await);
    let runs = vec![rules::enqueue(&task, f.wanted("two").await, f.moment().await)];
    let next = Decision { runs, lanes: vec![unmoved("task:t", &empty)], ..Decision::default() };
    assert_eq!(f.store.commit(vec![ends, next]).await.unwrap(), [Ok(()), Ok(())]);
    f.sound().await;
}

/// Two instances want a run of the task at the same moment, on the lane as both saw it; who is refused decides
/// again.
async fn race(f: &Fixture, task: &Task, round: usize, trigger: Trigger) {
    let seen = f.lane("task:t").await;
    let names = [format!("a{round}"), format!("b{round}")];
    let mut decisions = Vec::new();
    for name in &names {
        decisions.push(decide(f, task, name, trigger, &seen).await);
    }
    let answers = join_all(decisions.clone().into_iter().map(|decision| f.commit(decision))).await;
    let moves =
        decisions.iter().any(|decision| decision.runs.iter().any(|write| write.run.status.is_active()));
    let applied = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(applied, if moves { 1 } else { 2 }, "{answers:?}");
    for (name, answer) in names.iter().zip(answers) {
        match answer {
            Ok(()) => {}
            Err(refusal @ (Refusal::StaleLane { .. } | Refusal::StaleRun { .. })) => {
                assert!(!is_fenced(&refusal));
                let again = decide(f, task, name, trigger, &f.lane("task:t").await).await;
                f.commit(again).await.expect("nobody else decides meanwhile");
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }
    f.sound().await;
}

async fn decide(f: &Fixture, task: &Task, name: &str, trigger: Trigger, lane: &LaneView) -> Decision {
    let mut wanted = f.wanted(name).await;
    wanted.trigger = trigger;
    let mut runs = Vec::new();
    match rules::overlap(task.spec.overlap_policy, trigger, lane) {
        Overlap::Queue => runs.push(rules::enqueue(task, wanted, f.moment().await)),
        Overlap::Skip { blocked_by } => runs.push(rules::skip(task, wanted, blocked_by, f.moment().await)),
        Overlap::Coalesce { .. } => {}
        Overlap::Replace { cancel } => {
            for id in cancel {
                let older = f.read(&id).await;
                if let rules::Cancel::Write(write) =
                    rules::cancel(&older, &ask(CancelMode::Cooperative), f.moment().await)
                {
                    runs.push(write);
                }
            }
            runs.push(rules::enqueue(task, wanted, f.moment().await));
        }
    }
    Decision { runs, lanes: vec![unmoved("task:t", lane)], ..Decision::default() }
}

const ROUNDS: usize = 20;

async fn task_t20_skip_if_running_lets_one_of_two_in(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "skip_if_running" })).await;
    for round in 0..ROUNDS {
        race(&f, &task, round, Trigger::Manual).await;
        let running = f.begin(A).await;
        assert_eq!(f.claim(A, 10).await, []);
        race(&f, &task, ROUNDS + round, Trigger::Schedule).await;
        f.finish(&running, done("x")).await;
    }
    let counts = f.counts(None).await;
    let rounds = ROUNDS as u64;
    assert_eq!(counts, [(RunStatus::Completed, rounds), (RunStatus::Skipped, 3 * rounds)].into());
}

async fn task_t21_queue_next_lets_one_scheduled_run_wait(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    f.queue(&task, "first").await;
    for round in 0..ROUNDS {
        let running = f.begin(A).await;
        race(&f, &task, round, Trigger::Schedule).await;
        let lane = f.lane("task:t").await;
        assert_eq!(lane.total, 2, "one executes, one waits");
        f.finish(&running, done("x")).await;
    }
}

async fn task_t22_cancel_previous_leaves_one(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "cancel_previous" })).await;
    for round in 0..ROUNDS {
        race(&f, &task, round, Trigger::Manual).await;
        let lane = f.lane("task:t").await;
        let lives = lane.active.iter().filter(|run| run.status == RunStatus::Queued).count();
        assert_eq!(lives, 1, "the newer of two cancelled the older");
    }
    let counts = f.counts(None).await;
    assert_eq!(counts[&RunStatus::Queued] + counts[&RunStatus::Cancelled], 2 * ROUNDS as u64);
    let running = f.begin(A).await;
    race(&f, &task, ROUNDS, Trigger::Manual).await;
    assert!(f.read(&running.run_id).await.cancel.is_some(), "who executes is asked to stop");
    assert_eq!(f.claim(A, 10).await, [], "the new one starts when the old one has ended");
    let asked = f.read(&running.run_id).await;
    f.finish(&asked, rules::Outcome::Cancelled(None)).await;
    assert_eq!(f.claim(A, 10).await.len(), 1);
}

async fn task_t23_allow_parallel_asks_no_lane(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let mut decisions = Vec::new();
    for n in 0..2 * ROUNDS {
        let wanted = f.wanted(&format!("r{n}")).await;
        decisions.push(f.commit(rules::enqueue(&task, wanted, f.moment().await)));
    }
    assert!(join_all(decisions).await.iter().all(Result::is_ok));
    assert_eq!(f.claim(A, 100).await.len(), 2 * ROUNDS);
    assert_eq!(f.lane("task:t").await, LaneView::default());
}

async fn field_k06_of_many_occurrences_two_are_there_at_most(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    wants(&f, &task, "head", Trigger::Schedule).await;
    f.begin(A).await;
    for n in 0..100 {
        let lane = f.lane("task:t").await;
        let decision = decide(&f, &task, &format!("r{n}"), Trigger::Schedule, &lane).await;
        f.commit(decision).await.unwrap();
    }
    assert_eq!(f.lane("task:t").await.total, 2);
    assert_eq!(f.counts(None).await.values().sum::<u64>(), 2);
}

async fn a_hundred_runs_of_a_lane_are_shown_and_all_are_counted(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "queue_next" })).await;
    for n in 0..130 {
        f.queue(&task, &format!("r{n}")).await;
    }
    let lane = f.lane("task:t").await;
    assert_eq!((lane.active.len(), lane.total), (100, 130));
    assert_eq!(lane.active[99].run_id, run_id("r99"));
}
