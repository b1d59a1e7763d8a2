//! What ownership promises, as hosts keep it.

use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure::model::{AgentId, CancelMode};
use tenure::rules::CancelRequest;
use tenure::store::faulty::{self, Fault, Faulty, Method};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{AuthorityError, Error, RunContext, Settings, Tenure};
use tokio::sync::Notify;

use crate::kit::*;

/// Another host on the store of this one, whose calls fail as the test says.
async fn failing(other: &TestHost, settings: Settings) -> (Tenure, Arc<Faulty>) {
    let store = Arc::new(Faulty::new(other.store()));
    // What two hosts draw differs.
    let settings = Settings { seed: Some(7), ..settings };
    let tenure = Tenure::open(Arc::clone(&store) as _, settings).await.unwrap();
    (tenure, store)
}

/// From now on no lease is renewed, and nothing new is begun.
fn cut_off(host: &Tenure, store: &Faulty) {
    store.script(Method::Renew, repeat_n(Some(Fault::Refuse), 1000));
    assert!(host.unregister_agent(&AgentId::new("agent").unwrap()));
}

/// A host whose run was taken for lost while it executed, and how its attempt is told to answer.
async fn lost(fields: serde_json::Value) -> (TestHost, Tenure, Arc<Faulty>, Arc<Notify>) {
    let b = host().await;
    let (a, store) = failing(&b, TestHost::settings()).await;
    let answers = Arc::new(Notify::new());
    let told = Arc::clone(&answers);
    let agent = move |_: RunContext| {
        let told = Arc::clone(&told);
        async move {
            told.notified().await;
            Ok("done".into())
        }
    };
    a.register_agent("agent", agent).unwrap();
    b.task(task(fields)).await;
    b.run("t").await;
    b.advance(SECOND).await;
    b.see("t").await.run(1).assert_status("running");
    cut_off(&a, &store);
    b.advance(TAKEOVER).await;
    b.see("t").await.run(1).assert_status("queued");
    (b, a, store, answers)
}

#[tokio::test(start_paused = true)]
async fn own_l12_a_holder_that_is_cut_off_relies_on_its_lease_no_longer_than_the_store_keeps_it() {
    let host = host().await;
    let said: Arc<Mutex<Vec<&str>>> = Arc::default();
    let noted = Arc::clone(&said);
    let agent = move |context: RunContext| {
        let noted = Arc::clone(&noted);
        async move {
            for _ in 0..4 {
                noted.lock().unwrap().push(match context.commit_now(|| ()) {
                    Ok(()) => "done",
                    Err(AuthorityError::Suspended { .. }) => "suspended",
                    Err(_) => "refused",
                });
                drop(tokio::time::timeout(13 * SECOND, std::future::pending::<()>()).await);
            }
            Ok(().into())
        }
    };
    host.register_agent("agent", agent).unwrap();
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.advance(SECOND).await;
    host.cut_off();
    host.advance(30 * SECOND).await;
    assert_eq!(*said.lock().unwrap(), ["done", "done", "done"], "asked at 0, 13 and 26 s of a lease of 30 s");
    host.advance(15 * SECOND).await;
    assert_eq!(said.lock().unwrap()[3], "suspended");
    host.reconnect();
    host.advance(MINUTE).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("completed");
}

#[tokio::test(start_paused = true)]
async fn own_l15_an_attempt_that_tells_nothing_for_too_long_is_stalled() {
    let settings = Settings { stall: Some(MINUTE), ..TestHost::settings() };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let told = Script::new().progress(1, "a").takes(50 * SECOND).progress(2, "b").takes(50 * SECOND);
    host.agent("tells", told.answers("done"));
    host.agent("silent", Script::new().takes(HOUR).answers("late"));
    for id in ["tells", "silent"] {
        host.task(task(json!({ "task_id": id, "agent_id": id }))).await;
        host.run(id).await;
    }
    host.advance(2 * HOUR).await;
    host.see("tells").await.assert_statuses("completed");
    host.see("silent").await.run(1).assert_status("failed").assert_error("stalled");
}

#[tokio::test(start_paused = true)]
async fn own_x07_a_second_cancel_keeps_the_first_reason() {
    let (a, gate) = (host().await, Gate::new());
    let b = a.another().await;
    a.agent("agent", Script::new().stubborn().waits_at(&gate).answers("done"));
    a.task(task(json!({}))).await;
    let run = a.run("t").await;
    gate.arrived(1).await;
    let second = CancelRequest { reason: "again".into(), ..ask(CancelMode::Cooperative) };
    a.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
    let run = b.cancel_run(&run.run_id, &second).await.unwrap();
    assert_eq!(run.cancel.unwrap().reason.as_ref(), "enough");
}

#[tokio::test(start_paused = true)]
async fn own_x10_a_cancel_between_grant_and_start_ends_the_run_at_once() {
    for _ in 0..10 {
        let host = host().await;
        let other = host.another().await;
        host.agent("agent", Script::new().takes(HOUR).answers("done"));
        host.task(task(json!({}))).await;
        for n in 0..20 {
            let run = host.run("t").await;
            for _ in 0..n {
                tokio::task::yield_now().await;
            }
            other.cancel_run(&run.run_id, &ask(CancelMode::Cooperative)).await.unwrap();
            host.advance(SECOND).await;
        }
        host.see("t").await.assert_count("cancelled", 20);
    }
}

#[tokio::test(start_paused = true)]
async fn own_x12_a_cancel_that_the_store_did_not_take_is_an_error() {
    let (host, gate) = (host().await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    let run = host.run("t").await;
    gate.arrived(1).await;
    host.cut_off();
    let refused = host.cancel_run(&run.run_id, &ask(CancelMode::Force)).await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    host.see("t").await.assert_statuses("running");
}

#[tokio::test(start_paused = true)]
async fn own_l12_a_grant_that_is_heard_of_late_is_relied_on_from_when_it_may_have_been_made() {
    let b = host().await;
    let (a, store) = failing(&b, TestHost::settings()).await;
    let said: Arc<Mutex<Vec<&str>>> = Arc::default();
    let noted = Arc::clone(&said);
    let agent = move |context: RunContext| {
        let noted = Arc::clone(&noted);
        async move {
            for _ in 0..2 {
                noted.lock().unwrap().push(match context.commit_now(|| ()) {
                    Ok(()) => "done",
                    Err(AuthorityError::Suspended { .. }) => "suspended",
                    Err(_) => "refused",
                });
                drop(tokio::time::timeout(12 * SECOND, std::future::pending::<()>()).await);
            }
            Ok(().into())
        }
    };
    a.register_agent("agent", agent).unwrap();
    b.task(task(json!({}))).await;
    b.advance(SECOND).await;
    // The grant is made at once, and heard of some twenty seconds later.
    store.script(
        Method::Claim,
        [Some(Fault::LoseAnswer)].into_iter().chain(repeat_n(Some(Fault::Refuse), 25)),
    );
    store.script(Method::Renew, repeat_n(Some(Fault::Refuse), 1000));
    b.run("t").await;
    b.advance(24 * SECOND).await;
    assert_eq!(*said.lock().unwrap(), ["done"], "its lease of 30 s stands");
    b.advance(12 * SECOND).await;
    assert_eq!(*said.lock().unwrap(), ["done", "suspended"]);
}

#[tokio::test(start_paused = true)]
async fn own_l9_an_effect_is_not_had_on_an_answer_that_is_older_than_the_lease() {
    let settings = || Settings { lease: 3 * SECOND, ..TestHost::settings() };
    let b = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let (a, store) = failing(&b, settings()).await;
    let (gate, effects) = (faulty::Gate::default(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&effects);
    let agent = move |context: RunContext| {
        let counted = Arc::clone(&counted);
        async move {
            let had = context.commit(|| counted.fetch_add(1, Ordering::SeqCst)).await;
            Ok(format!("{}", had.is_ok()).into())
        }
    };
    a.register_agent("agent", agent).unwrap();
    b.task(task(json!({}))).await;
    b.advance(SECOND).await;
    store.script(Method::Renew, [Some(Fault::HoldAnswer(gate.clone()))]);
    b.run("t").await;
    gate.reached().await;
    cut_off(&a, &store);
    b.agent("agent", Script::new().answers("b"));
    b.advance(7 * SECOND).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("b");
    gate.pass();
    b.advance(SECOND).await;
    assert_eq!(effects.load(Ordering::SeqCst), 0, "the run was another's by then");
}

#[tokio::test(start_paused = true)]
async fn own_f1_a_lost_run_that_was_given_back_unheard_keeps_its_result() {
    let (b, _a, store, answers) = lost(json!({})).await;
    // The outcome is fenced; then it is asked back, and the answer to that is lost.
    store.script(Method::Commit, [None, Some(Fault::LoseAnswer)]);
    answers.notify_one();
    b.advance(10 * SECOND).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("done").assert_attempts("completed");
}

#[tokio::test(start_paused = true)]
async fn own_s2_3_a_lost_run_is_given_back_though_its_lane_moves_meanwhile() {
    let shared = json!({ "concurrency_key": "k", "concurrency_limit": 9 });
    let (b, _a, store, answers) = lost(shared.clone()).await;
    let mut other = task(shared);
    other["task_id"] = "other".into();
    b.task(other).await;
    let gate = faulty::Gate::default();
    store.script(Method::Commit, [None, Some(Fault::Hold(gate.clone()))]);
    answers.notify_one();
    gate.reached().await;
    b.run("other").await;
    gate.pass();
    b.advance(10 * SECOND).await;
    b.see("t").await.run(1).assert_status("completed").assert_result("done");
}
