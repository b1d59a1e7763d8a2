//! F1: each method, refused before it happens, with its answer lost, and held.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use tenure::model::{AgentId, InstanceId, RunId, SchedulePlace, ScheduleState, Subject, Task, TaskId, Token};
use tenure::rules::{self, Moment, Wanted};
use tenure::store::conformance::{Fixture, claim_request, spec};
use tenure::store::faulty::{Fault, Faulty, Gate, Method};
use tenure::store::{
    Decision, PageRequest, PruneRequest, RefusedKind, RenewRequest, RunFilter, ScheduleWrite, Store,
    StoreError, TaskChange, TaskWrite,
};

use super::{memory, trial};

pub(super) fn trials() -> Vec<Trial> {
    let name = |what: &str, method: Method| format!("faulty::own_f1_{method:?}_{what}").to_lowercase();
    let of = |method: Method| {
        [
            trial(name("refused_did_not_happen", method), move || refused(method)),
            trial(name("with_its_answer_lost_is_unknown_if_it_writes", method), move || lost(method)),
            trial(name("held_happens_when_it_passes", method), move || held(method)),
            trial(name("that_hangs_can_be_dropped", method), move || hangs(method)),
        ]
    };
    Method::ALL.into_iter().flat_map(of).collect()
}

async fn refused(method: Method) {
    let (fixture, faulty) = prepared().await;
    faulty.script(method, [Some(Fault::Refuse)]);
    let before = seen(&fixture).await;
    let error = call(&faulty, method).await.expect_err("it is refused");
    assert!(is_unavailable(&error) && error.is_transient(), "{error}");
    assert_eq!(seen(&fixture).await, before, "it did not happen");
    call(&faulty, method).await.expect("the next call succeeds");
    assert_eq!(faulty.calls(method), 2);
}

async fn lost(method: Method) {
    let (fixture, faulty) = prepared().await;
    faulty.script(method, [Some(Fault::LoseAnswer)]);
    let before = seen(&fixture).await;
    let error = call(&faulty, method).await.expect_err("its answer is lost");
    assert!(error.is_transient());
    if method.writes() {
        assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    } else {
        assert!(is_unavailable(&error), "a read never leaves anything unknown: {error}");
    }
    // A check that finds all right writes nothing.
    let changes = method.writes() && method != Method::Check;
    assert_eq!(seen(&fixture).await != before, changes, "it happened");
}

async fn held(method: Method) {
    let (fixture, faulty) = prepared().await;
    let gate = Gate::default();
    faulty.script(method, [Some(Fault::Hold(gate.clone()))]);
    let before = seen(&fixture).await;
    let observe = async {
        gate.reached().await;
        assert_eq!(seen(&fixture).await, before, "not yet");
        gate.pass();
    };
    let (answer, ()) = tokio::join!(call(&faulty, method), observe);
    answer.expect("it succeeds in the end");
}

async fn hangs(method: Method) {
    for (fault, changes) in
        [(Fault::Hang, false), (Fault::HangAfter, method.writes() && method != Method::Check)]
    {
        let (fixture, faulty) = prepared().await;
        faulty.script(method, [Some(fault)]);
        let before = seen(&fixture).await;
        tokio::select! {
            biased;
            answer = call(&faulty, method) => panic!("it is never answered: {answer:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(seen(&fixture).await != before, changes);
    }
}

fn is_unavailable(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { kind: RefusedKind::Unavailable, .. })
}

/// A store with a finished run, a running one and a ready one, behind one that fails.
async fn prepared() -> (Fixture, Faulty) {
    let fixture = memory();
    let store = &fixture.store;
    let now = store.now().await.unwrap();
    let task = task(now);
    let id = task.spec.task_id.clone();
    let change = TaskChange::Put(Box::new(task.clone()));
    let write = TaskWrite { task_id: id.clone(), expect: None, change, events: Vec::new() };
    let state = ScheduleState { task_id: id, version: 1, last_due: None, place: SchedulePlace::Idle };
    let schedule = Some(ScheduleWrite { expect: None, state });
    applied(store, Decision { task: Some(write), schedule, ..Decision::default() }).await;
    for (name, stamp) in [("ended", 1), ("running", 2), ("ready", 3)] {
        let wanted = Wanted::now(RunId::new(name).unwrap(), now);
        applied(store, rules::enqueue(&task, wanted, Moment { now, stamp }).into()).await;
    }
    for run in store.claim(claim_request(1, 2)).await.unwrap() {
        let moment = Moment { now, stamp: 4 };
        let token = run.token().unwrap();
        let started = rules::start(&run, token, moment).unwrap();
        applied(store, started.clone().into()).await;
        if run.run_id.as_str() == "ended" {
            let outcome = rules::Outcome::Cancelled(None);
            applied(store, rules::finish(&started.run, token, outcome, 0, moment).unwrap().into()).await;
        }
    }
    fixture.clock.advance(Duration::from_secs(1));
    let faulty = Faulty::new(Arc::clone(&fixture.store));
    (fixture, faulty)
}

fn task(now: tenure::model::Timestamp) -> Task {
    let spec = spec(serde_json::json!({ "overlap_policy": "allow_parallel" }));
    Task { spec, created_at: now, updated_at: now, revision: 1, last_event: 0 }
}

async fn applied(store: &Arc<dyn Store>, decision: Decision) {
    store.commit(vec![decision]).await.unwrap().remove(0).unwrap();
}

/// All that can be seen of the store; of a closed one, that it is closed.
async fn seen(fixture: &Fixture) -> String {
    let store = &fixture.store;
    let runs = store.runs(RunFilter::default(), PageRequest::default()).await.map(|page| page.items);
    let events = store.events(Subject::All, 0, 1000).await;
    let agents = store.agents().await;
    format!("{runs:?} {events:?} {agents:?}")
}

/// Makes a call of a method that changes something if any can.
async fn call(store: &Faulty, method: Method) -> Result<(), StoreError> {
    let (id, run) = (TaskId::new("t").unwrap(), RunId::new("running").unwrap());
    let page = PageRequest::default;
    let now = tenure::model::Timestamp::from_ms(i64::MAX);
    match method {
        Method::Now => store.now().await.map(drop),
        Method::Commit => {
            let task = task(tenure::model::Timestamp::from_ms(0));
            let wanted = Wanted::now(RunId::new("new").unwrap(), now);
            let moment = Moment { now: tenure::model::Timestamp::from_ms(0), stamp: 9 };
            store.commit(vec![rules::enqueue(&task, wanted, moment).into()]).await.map(drop)
        }
        Method::Claim => store.claim(claim_request(2, 1)).await.map(drop),
        Method::Renew => {
            let held = running(store, &run).await;
            let lease = Duration::from_secs(99);
            let request = RenewRequest { instance: InstanceId::from_bits(1), leases: vec![held], lease };
            store.renew(request).await.map(drop)
        }
        Method::Prune => store.prune(PruneRequest { before: now, keep: 0, limit: 10 }).await.map(drop),
        Method::Check => store.check(true).await.map(drop),
        Method::Agenda => store.agenda().await.map(drop),
        Method::DueSchedules => store.due_schedules(1).await.map(drop),
        Method::DueRuns => store.due_runs(None, 1).await.map(drop),
        Method::Task => store.task(&id).await.map(drop),
        Method::Tasks => store.tasks(page()).await.map(drop),
        Method::Run => store.run(&run).await.map(drop),
        Method::RunByKey => store.run_by_key(&id, "k").await.map(drop),
        Method::Runs => store.runs(RunFilter::default(), page()).await.map(drop),
        Method::Count => store.count(RunFilter::default(), 10).await.map(drop),
        Method::Attempts => store.attempts(&run).await.map(drop),
        Method::Events => store.events(Subject::All, 0, 1).await.map(drop),
        Method::Occurrences => store.occurrences(&id, page()).await.map(drop),
        Method::Lane => store.lane("task:t").await.map(drop),
        Method::Counts => store.counts(None).await.map(drop),
        Method::PutAgent => store.put_agent(&AgentId::new("new").unwrap(), Some("text".into())).await,
        Method::Agents => store.agents().await.map(drop),
        Method::Close => store.close().await,
    }
}

async fn running(store: &Faulty, run: &RunId) -> (RunId, Token) {
    let token = store.run(run).await.unwrap().unwrap().token().unwrap();
    (run.clone(), token)
}
