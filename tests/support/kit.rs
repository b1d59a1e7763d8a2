//! What the host tests say to the kit, in few words.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::model::{CancelMode, RunStatus, TaskId};
use tenure::rules::{CancelRequest, allowed};
use tenure::testkit::{SeenRun, TestHost};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// The lease, its grace and one sweep: after that long a killed host's runs are somebody else's.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(60);

pub(crate) async fn host() -> TestHost {
    TestHost::open("2026-01-01T00:00:00Z").await
}

/// A task from its JSON fields over those that it needs.
pub(crate) fn task(fields: Value) -> Value {
    let mut all = json!({ "task_id": "t", "agent_id": "agent", "query": "q" });
    if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
        all.extend(fields);
    }
    all
}

pub(crate) fn every(seconds: u64) -> Value {
    json!({ "type": "interval", "seconds": seconds })
}

pub(crate) fn cron(expression: &str) -> Value {
    json!({ "type": "cron", "expression": expression })
}

pub(crate) fn name(task_id: &str) -> TaskId {
    TaskId::new(task_id).unwrap()
}

pub(crate) fn ask(mode: CancelMode) -> CancelRequest {
    CancelRequest { mode, reason: "enough".into(), requested_by: "a person".into(), force_after: None }
}

/// That a run moved only along the arrows, and its events are numbered without gaps.
#[track_caller]
pub(crate) fn moved_lawfully(run: &SeenRun) {
    run.assert_gapless();
    let mut before: Option<RunStatus> = None;
    for status in run.events.iter().filter_map(|event| event.status) {
        if let Some(before) = before {
            assert!(before == status || allowed(before, status), "{before} to {status}");
        }
        before = Some(status);
    }
    assert_eq!(before, Some(run.run.status), "the last event tells where the run stands");
}

/// How many: at length with `TENURE_FIELD=full`, which wants a release build; else as many as a build for tests does
/// in seconds.
pub(crate) fn as_many(at_length: usize, otherwise: usize) -> usize {
    if std::env::var("TENURE_FIELD").is_ok_and(|field| field == "full") { at_length } else { otherwise }
}

/// What came of a scenario with each of so many seeds. Each has a runtime and a paused clock of its own, so that
/// nothing of it goes on beside the next ones; as many go on at once as there are cores.
pub(crate) fn with_each_seed<F: Future<Output: Send>>(
    many: usize,
    scenario: impl Fn(u64) -> F + Sync,
) -> Vec<F::Output> {
    let next = AtomicU64::new(0);
    let some = || {
        let draw = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < many as u64);
        std::iter::from_fn(draw).map(|seed| on_a_paused_clock(scenario(seed))).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join());
        outcomes
            .flat_map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn on_a_paused_clock<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(scenario)
}
