//! Idempotency keys: one run for a key of a task, while the run is kept.

use super::support::{A, done, draw, run_id, task_id};
use super::{Fixture, list};
use crate::model::{Idempotency, Run, RunStatus, Task};
use crate::rules;
use crate::store::{Decision, PruneRequest, Refusal, RunWrite};
use serde_json::json;

list! {
    own_u1_of_two_racers_with_one_key_one_run_is_made,
    own_u2_the_refused_learns_the_run_and_its_digest,
    a_run_is_found_by_its_key,
    a_key_belongs_to_its_task,
    a_key_is_compared_byte_for_byte,
    a_key_stays_taken_when_its_run_has_ended,
    a_key_is_free_when_its_run_is_removed,
    field_k8_a_key_of_a_refused_decision_is_free,
    field_k9_many_with_few_keys_in_one_call_make_one_run_each,
    a_key_twice_in_one_decision_is_refused,
    a_key_of_two_tasks_in_one_decision_is_theirs,
}

async fn keyed(f: &Fixture, task: &Task, name: &str, key: &str, digest: u64) -> RunWrite {
    let mut wanted = f.wanted(name).await;
    wanted.idempotency = Some(Idempotency { key: key.into(), digest });
    rules::enqueue(task, wanted, f.moment().await)
}

async fn by_key(f: &Fixture, task: &str, key: &str) -> Option<Run> {
    f.store.run_by_key(&task_id(task), key).await.unwrap()
}

async fn own_u1_of_two_racers_with_one_key_one_run_is_made(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let writes = [keyed(&f, &task, "a", "k", 1).await, keyed(&f, &task, "b", "k", 1).await];
    let answers = futures_util::future::join_all(writes.map(|write| f.commit(write))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(f.counts(None).await, [(RunStatus::Queued, 1)].into());
    let winner = if answers[0].is_ok() { "a" } else { "b" };
    assert_eq!(by_key(&f, "t", "k").await.unwrap().run_id, run_id(winner));
}

async fn own_u2_the_refused_learns_the_run_and_its_digest(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.apply(keyed(&f, &task, "first", "k", u64::MAX).await).await;
    let second = keyed(&f, &task, "second", "k", 2).await;
    let exists = Refusal::KeyExists { run_id: run_id("first"), digest: u64::MAX };
    assert_eq!(f.refuses(second).await, exists);
}

async fn a_run_is_found_by_its_key(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.apply(keyed(&f, &task, "r", "k", 1).await).await;
    assert_eq!(by_key(&f, "t", "k").await, Some(queued));
    assert_eq!(by_key(&f, "t", "other").await, None);
    assert_eq!(by_key(&f, "none", "k").await, None);
}

async fn a_key_belongs_to_its_task(f: Fixture) {
    for name in ["one", "two"] {
        let task = f.task(json!({ "task_id": name })).await;
        f.apply(keyed(&f, &task, name, "k", 1).await).await;
        assert_eq!(by_key(&f, name, "k").await.unwrap().run_id, run_id(name));
    }
}

async fn a_key_is_compared_byte_for_byte(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let keys = ["k", "K", "k ", " k", "k%", "k_", "", "kk", "\u{e9}", "e\u{301}", "k'--", "k\u{0}", "k\n"];
    for (n, key) in keys.iter().enumerate() {
        f.apply(keyed(&f, &task, &format!("r{n}"), key, 1).await).await;
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(by_key(&f, "t", key).await.unwrap().run_id, run_id(&format!("r{n}")), "{key:?}");
    }
}

async fn a_key_stays_taken_when_its_run_has_ended(f: Fixture) {
    let task = f.task(json!({})).await;
    f.apply(keyed(&f, &task, "first", "k", 1).await).await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    f.delete(&task).await;
    let refusal = f.refuses(keyed(&f, &task, "second", "k", 1).await).await;
    assert_eq!(refusal, Refusal::KeyExists { run_id: run_id("first"), digest: 1 });
}

async fn a_key_is_free_when_its_run_is_removed(f: Fixture) {
    let task = f.task(json!({})).await;
    f.apply(keyed(&f, &task, "first", "k", 1).await).await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    let request = PruneRequest { before: f.now().await.plus(super::support::LEASE), keep: 100, limit: 10 };
    assert_eq!(f.store.prune(request).await.unwrap().runs, 1);
    assert_eq!(by_key(&f, "t", "k").await, None);
    f.apply(keyed(&f, &task, "second", "k", 2).await).await;
}

async fn field_k8_a_key_of_a_refused_decision_is_free(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let first = keyed(&f, &task, "first", "k", 1).await;
    let mut stale = rules::enqueue(&task, f.wanted("none").await, f.moment().await);
    stale.expect = crate::store::Expect::At { version: 1, token: None, unrenewed: None };
    let rolled_back = Decision { runs: vec![first, stale], ..Decision::default() };
    let second = keyed(&f, &task, "second", "k", 2).await;
    let answers = f.store.commit(vec![rolled_back, second.into()]).await.unwrap();
    assert!(matches!(answers[0], Err(Refusal::NoRun { .. })), "{answers:?}");
    assert_eq!(answers[1], Ok(()));
    assert_eq!(by_key(&f, "t", "k").await.unwrap().run_id, run_id("second"));
}

async fn field_k9_many_with_few_keys_in_one_call_make_one_run_each(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let mut decisions = Vec::new();
    for n in 0..100 {
        decisions.push(keyed(&f, &task, &format!("r{n}"), &format!("k{}", n % 10), draw()).await.into());
    }
    let answers = f.store.commit(decisions).await.unwrap();
    assert_eq!(answers.len(), 100, "a result for each");
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(()) => assert!(n < 10, "the first of each key is made"),
            Err(Refusal::KeyExists { run_id: holder, .. }) => {
                assert_eq!(*holder, run_id(&format!("r{}", n % 10)));
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(f.counts(None).await, [(RunStatus::Queued, 10)].into());
}

async fn a_key_twice_in_one_decision_is_refused(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let runs = vec![keyed(&f, &task, "a", "k", 1).await, keyed(&f, &task, "b", "k", 1).await];
    let answer = f.commit(Decision { runs, ..Decision::default() }).await;
    assert_eq!(answer, Err(Refusal::KeyExists { run_id: run_id("a"), digest: 1 }));
    assert!(f.counts(None).await.is_empty());
}

async fn a_key_of_two_tasks_in_one_decision_is_theirs(f: Fixture) {
    let mut runs = Vec::new();
    for name in ["one", "two"] {
        let task = f.task(json!({ "task_id": name })).await;
        runs.push(keyed(&f, &task, name, "k", 1).await);
    }
    f.commit(Decision { runs, ..Decision::default() }).await.unwrap();
    for name in ["one", "two"] {
        assert_eq!(by_key(&f, name, "k").await.unwrap().run_id, run_id(name));
    }
}
