//! G: growth, memory, a store in trouble.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::clock::SystemClock;
use tenure::model::{EventKind, RunStatus, TaskSpec};
use tenure::store::MemoryStore;
use tenure::store::faulty::{self, Fault, Faulty, Method};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{RunContext, RunRequest, Settings, StoreHealth, Tenure};
use tokio::time::Instant;

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn field_g05_finished_runs_are_removed_by_default() {
    let defaults = Settings::default();
    assert_eq!((defaults.retain_runs, defaults.retain_for), (100_000, 30 * DAY));
    let settings =
        Settings { retain_runs: 50, retain_for: 30 * DAY, prune_every: HOUR, ..TestHost::settings() };
    let settings = Settings { sweep: Some(HOUR), ..settings };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for _ in 0..200 {
        host.run("t").await;
    }
    host.drain().await;
    host.advance(2 * HOUR).await;
    assert_eq!(host.see("t").await.runs.len(), 50, "no more than so many");
    host.advance(32 * DAY).await;
    assert_eq!(host.see("t").await.runs.len(), 0, "no longer than so long");
}

/// However long the store takes for a batch: meanwhile others are queued, claimed, executed and finished.
#[tokio::test(start_paused = true)]
async fn field_g07_a_removal_that_takes_long_holds_nobody_up() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let removal = faulty::Gate::default();
    store.script(Method::Prune, [Some(Fault::Hold(removal.clone()))]);
    let settings = Settings { prune_every: SECOND, ..Settings::default() };
    let tenure = Tenure::open(store.clone(), settings).await.unwrap();
    tenure.register_agent("agent", |_: RunContext| async { Ok(().into()) }).unwrap();
    tenure.create_task(TaskSpec::parse(&task(json!({})).to_string()).unwrap()).await.unwrap();
    removal.reached().await;
    let begun = Instant::now();
    for _ in 0..10 {
        let run = tenure.run_now(&name("t"), RunRequest::default()).await.unwrap();
        let ended = tenure.wait(&run.run_id, None).await.unwrap();
        assert_eq!(ended.run.status, RunStatus::Completed);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "nothing waited for the removal");
    removal.pass();
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn field_g09_after_an_outage_claims_go_on_within_two_seconds() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "schedule": every(1), "overlap_policy": "allow_parallel" }))).await;
    host.advance(5 * SECOND).await;
    assert_eq!(host.health().store, StoreHealth::Answering);
    host.cut_off();
    host.advance(10 * SECOND).await;
    let StoreHealth::Failing { for_ms, error } = host.health().store else { panic!("it does not answer") };
    assert!((8000..=10_000).contains(&for_ms) && error.contains("unavailable"), "{for_ms} {error}");
    let before = agent.calls().len();
    host.reconnect();
    host.advance(2 * SECOND).await;
    assert!(agent.calls().len() > before);
    assert_eq!(host.health().store, StoreHealth::Answering);
}

#[tokio::test(start_paused = true)]
async fn field_g10_a_store_that_hangs_is_given_up_on_and_asked_again() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "schedule": every(30), "overlap_policy": "allow_parallel" }))).await;
    host.advance(29 * SECOND).await;
    host.hang_store();
    host.advance(12 * SECOND).await;
    let StoreHealth::Failing { error, .. } = host.health().store else { panic!("it does not answer") };
    assert!(error.contains("no answer within"), "{error}");
    host.reconnect();
    host.advance(12 * SECOND).await;
    assert_eq!(agent.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn field_g11_outcomes_outlast_a_store_that_is_away() {
    let (host, gate) = (host().await, Gate::new());
    let agent = host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for _ in 0..10 {
        host.run("t").await;
    }
    gate.arrived(10).await;
    host.cut_off();
    gate.open();
    host.advance(7 * SECOND).await;
    assert_eq!((host.health().unstored, agent.executing()), (10, 0));
    host.reconnect();
    host.advance(3 * SECOND).await;
    let seen = host.see("t").await;
    seen.assert_count("completed", 10);
    assert!(seen.runs.iter().all(|run| run.attempts.len() == 1), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn field_g11_outcomes_whose_answers_were_lost_are_stored_once() {
    let (host, gate) = (host().await, Gate::new());
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({ "overlap_policy": "allow_parallel" }))).await;
    for _ in 0..10 {
        host.run("t").await;
    }
    gate.arrived(10).await;
    host.lose_replies();
    gate.open();
    host.advance(7 * SECOND).await;
    host.reconnect();
    host.advance(3 * SECOND).await;
    let seen = host.see("t").await;
    seen.assert_count("completed", 10).runs.iter().for_each(moved_lawfully);
    assert_eq!(host.health().unstored, 0);
}

#[tokio::test(start_paused = true)]
async fn field_g12_endless_progress_is_bounded_and_counted() {
    let host = host().await;
    host.register_agent("agent", |context: tenure::RunContext| async move {
        for n in 0..100_000_u32 {
            context.progress(None, format!("{n}"));
            if n % 50 == 0 {
                drop(tokio::time::timeout(SECOND, std::future::pending::<()>()).await);
            }
        }
        Ok("done".into())
    })
    .unwrap();
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.advance(HOUR).await;
    let seen = host.see("t").await;
    let run = seen.run(1).assert_status("completed");
    let told = run.events.iter().filter(|event| event.event == EventKind::Progress).count();
    assert!((100..=1000).contains(&told), "{told} are stored");
    moved_lawfully(run);
}

#[tokio::test(start_paused = true)]
async fn field_g14_what_failed_together_is_not_tried_again_together() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "no"));
    let policy = json!({ "max_retries": 2, "initial_delay_seconds": 100, "max_delay_seconds": 100,
        "backoff": "exponential" });
    host.task(task(json!({ "overlap_policy": "allow_parallel", "retry_policy": policy }))).await;
    for _ in 0..1000 {
        host.run("t").await;
    }
    host.drain().await;
    host.advance(HOUR).await;
    let seen = host.see("t").await;
    for attempt in [1, 2] {
        let mut delays: Vec<_> = seen
            .runs
            .iter()
            .map(|run| {
                let ended = run.attempts[attempt - 1].finished_at.unwrap();
                run.attempts[attempt].started_at.since(ended)
            })
            .collect();
        delays.sort();
        assert!(delays[0] >= 100 * SECOND, "none before the promised minimum: {:?}", delays[0]);
        assert!(delays[999] - delays[0] >= SECOND / 10 * 195, "a fifth of the delay, also at the cap");
    }
    assert_eq!(agent.calls().len(), 3000);
}

#[tokio::test(start_paused = true)]
async fn field_g15_gaps_follow_the_policy_also_after_a_restart() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().fails("exception", "at once"));
    let policy = json!({ "max_retries": 4, "initial_delay_seconds": 10, "jitter": 0 });
    host.task(task(json!({ "retry_policy": policy }))).await;
    host.run("t").await;
    for _ in 0..5 {
        host.advance(7 * SECOND).await;
        let next = host.another().await;
        next.agent("agent", &agent);
        host.kill();
        host = next;
    }
    host.advance(MINUTE).await;
    let at: Vec<_> = agent.calls().iter().map(|call| call.at).collect();
    let gaps: Vec<_> = at.windows(2).map(|two| two[1].since(two[0])).collect();
    assert_eq!(gaps, [10 * SECOND; 4]);
    assert_eq!(host.see("t").await.run(1).run.status, RunStatus::Failed);
}
