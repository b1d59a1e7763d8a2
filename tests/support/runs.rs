//! Runs of a task, made and brought to their end through the port.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use tenure::model::{
    AgentId, InstanceId, Payload, Run, RunId, RunResult, SchedulePlace, ScheduleState, Task, Timestamp,
};
use tenure::rules::{self, Moment, Outcome, Wanted};
use tenure::store::conformance::spec;
use tenure::store::{ClaimRequest, Decision, ScheduleWrite, Store, StoreError, TaskChange, TaskWrite};

/// Makes a task that nothing fires.
pub(crate) async fn task(store: &dyn Store, fields: serde_json::Value) -> Task {
    let now = store.now().await.expect("a clock");
    let task = Task { spec: spec(fields), created_at: now, updated_at: now, revision: 1, last_event: 0 };
    let id = task.spec.task_id.clone();
    let change = TaskChange::Put(Box::new(task.clone()));
    let write = TaskWrite { task_id: id.clone(), expect: None, change, events: Vec::new() };
    let state = ScheduleState { task_id: id, version: 1, last_due: None, place: SchedulePlace::Idle };
    let schedule = Some(ScheduleWrite { expect: None, state });
    let decision = Decision { task: Some(write), schedule, ..Decision::default() };
    store.commit(vec![decision]).await.expect("an answer").remove(0).expect("a new task");
    task
}

/// The decision that queues a run.
pub(crate) fn queued(task: &Task, run_id: RunId, now: Timestamp, after: Duration) -> Decision {
    let mut wanted = Wanted::now(run_id, now);
    wanted.not_before = wanted.not_before.plus(after);
    rules::enqueue(task, wanted, Moment { now, stamp: draw() }).into()
}

pub(crate) async fn queue(store: &dyn Store, task: &Task, name: &str) -> Result<(), StoreError> {
    let now = store.now().await?;
    let decision = queued(task, RunId::new(name).expect("a name"), now, Duration::ZERO);
    store.commit(vec![decision]).await?.remove(0).expect("a run that there was not");
    Ok(())
}

pub(crate) fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest {
        instance: InstanceId::from_bits(1),
        nonce: draw(),
        agents: [AgentId::new("agent").expect("a name")].into(),
        limit,
        lease: Duration::from_secs(30),
        repeat: false,
    }
}

/// Brings claimed runs to their end.
pub(crate) async fn finish(store: &dyn Store, runs: Vec<Run>) {
    let now = store.now().await.expect("a clock");
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for run in runs {
        let token = run.token().expect("a run that is held");
        let start = rules::start(&run, token, Moment { now, stamp: draw() }).expect("a claimed run");
        let result =
            RunResult::Inline(Payload { media_type: "text/plain".into(), bytes: Arc::from(&b"x"[..]) });
        let moment = Moment { now, stamp: draw() };
        let end =
            rules::finish(&start.run, token, Outcome::Completed(result), 0, moment).expect("a running run");
        starts.push(start.into());
        ends.push(end.into());
    }
    for decisions in [starts, ends] {
        for answer in store.commit(decisions).await.expect("an answer") {
            answer.expect("what it was decided on stands");
        }
    }
}

/// A number that was not drawn before.
pub(crate) fn draw() -> u64 {
    InstanceId::generate().bits() as u64
}
