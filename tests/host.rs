//! A host on the memory store: what is asked of it happens, once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::{RuntimeClock, SystemClock};
use tenure::model::{RunStatus, TaskSpec, Timestamp};
use tenure::store::MemoryStore;
use tenure::{AgentError, RunContext, RunRequest, Settings, Tenure};

async fn host() -> Tenure {
    let clock = RuntimeClock::starting_at(Timestamp::from_ms(1_767_225_600_000));
    let settings = Settings { heartbeat_thread: false, seed: Some(1), ..Settings::default() };
    Tenure::open(Arc::new(MemoryStore::new(Arc::new(clock))), settings).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_is_executed_and_its_result_kept() {
    let tenure = host().await;
    tenure
        .register_agent("echo", |context: RunContext| async move { Ok(context.query().to_owned().into()) })
        .unwrap();
    let spec = TaskSpec::parse(r#"{"task_id":"t","agent_id":"echo","query":"hello"}"#).unwrap();
    tenure.create_task(spec.clone()).await.unwrap();
    let run = tenure.run_now(&spec.task_id, RunRequest::default()).await.unwrap();
    let run = tenure.wait(&run.run_id, None).await.unwrap().run;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(run.result.unwrap().preview(), "hello");
    let events = tenure.events(tenure::model::Subject::Run(run.run_id.clone()), 0, 100).await.unwrap();
    for e in events {
        eprintln!("{} {:?} {:?}", e.sequence, e.event, e.status);
    }
    tenure.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let tenure = Tenure::open(store, Settings { concurrency: 2048, ..Settings::default() }).await.unwrap();
    let spec = TaskSpec::parse(
        r#"{"task_id":"t","agent_id":"echo","query":"hello","overlap_policy":"allow_parallel"}"#,
    )
    .unwrap();
    tenure.create_task(spec.clone()).await.unwrap();
    let n = 20_000;
    let t = std::time::Instant::now();
    let mut last = None;
    for _ in 0..n {
        last = Some(tenure.run_now(&spec.task_id, RunRequest::default()).await.unwrap());
    }
    eprintln!("enqueue {:?}", t.elapsed());
    let t = std::time::Instant::now();
    tenure.register_agent("echo", |_: RunContext| async move { Ok(().into()) }).unwrap();
    loop {
        let c = tenure.status().await.unwrap().counts;
        if c.iter().any(|(s, k)| *s == RunStatus::Completed && *k == n) {
            break;
        }
        tokio::task::yield_now().await;
    }
    eprintln!("drain {:?} {}/s", t.elapsed(), n as f64 / t.elapsed().as_secs_f64());
    let _ = last;
    tenure.shutdown().await.unwrap();
}
