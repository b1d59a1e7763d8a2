//! Callers that wait for a run: told when it settles, whatever they were about when it did.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::clock::SystemClock;
use tenure::model::{RunStatus, TaskId, TaskSpec};
use tenure::store::MemoryStore;
use tenure::store::faulty::{Fault, Faulty, Gate, Method};
use tenure::{RunContext, RunRequest, Settings, Tenure};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::kit::task;

/// Two look at the run while its outcome is being stored. The answer to the first comes after the outcome: it says
/// what is true no more.
#[tokio::test(start_paused = true)]
async fn task_9_who_looked_while_the_run_settled_is_told_at_once() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let tenure = Tenure::open(store.clone(), Settings::default()).await.unwrap();
    let (begun, ends) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (at_work, may_end) = (Arc::clone(&begun), Arc::clone(&ends));
    let work = move |_: RunContext| {
        let (at_work, may_end) = (Arc::clone(&at_work), Arc::clone(&may_end));
        async move {
            at_work.add_permits(1);
            may_end.acquire().await.unwrap().forget();
            Ok(().into())
        }
    };
    tenure.register_agent("agent", work).unwrap();
    tenure.create_task(TaskSpec::parse(&task(json!({})).to_string()).unwrap()).await.unwrap();
    let run = tenure.run_now(&TaskId::new("t").unwrap(), RunRequest::default()).await.unwrap();
    begun.acquire().await.unwrap().forget();

    let (outcome, look) = (Gate::default(), Gate::default());
    store.script(Method::Commit, [Some(Fault::Hold(outcome.clone()))]);
    ends.add_permits(1);
    outcome.reached().await;
    store.script(Method::Run, [Some(Fault::HoldAnswer(look.clone()))]);
    let asked = Instant::now();
    let mut late = Box::pin(tenure.wait(&run.run_id, None));
    tokio::select! {
        _ = &mut late => panic!("it has not settled"),
        () = look.reached() => {}
    }
    let mut prompt = Box::pin(tenure.wait(&run.run_id, None));
    assert!(futures_util::poll!(&mut prompt).is_pending(), "it has not settled");
    outcome.pass();
    assert_eq!(prompt.await.unwrap().run.status, RunStatus::Completed);
    look.pass();
    assert_eq!(late.await.unwrap().run.status, RunStatus::Completed);
    assert_eq!(asked.elapsed(), Duration::ZERO, "neither waited for a look by the clock");
    tenure.shutdown().await.unwrap();
}
