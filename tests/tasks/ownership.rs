//! What ownership promises, as hosts keep it.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure::model::CancelMode;
use tenure::rules::CancelRequest;
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{AuthorityError, Error, RunContext, Settings};

use crate::kit::*;

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
