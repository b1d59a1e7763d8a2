//! Lists of a store with very many runs, by every documented filter, beside the same calls of the facade.

use std::sync::Arc;
use std::time::Instant;

use tenure::Tenure;
use tenure::model::{AgentId, RunStatus, TaskId, Trigger};
use tenure::store::{PageRequest, RunFilter};
use tokio::runtime::Runtime;

use crate::caller::{Caller, get};
use crate::delays::percentile;
use crate::measure::interleave_numbers;
use crate::million::{Span, seed};
use crate::options::Plan;
use crate::served::{Agent, Served, callers, runtime};
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

/// In milliseconds.
const GOAL: Goal = Goal::AtMost(50.0);

/// Up to how many runs the interface counts.
const EXACT: u64 = 10_000;

/// A filter, as it is asked for over HTTP and of the facade.
struct Case {
    query: String,
    filter: RunFilter,
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let (host, callers) = (runtime(), callers());
    let (served, span) = host.block_on(async {
        let bench = Bench::open(Kind::Full).await;
        let span = seed(&bench, plan.listed).await;
        (Served::open(bench, Agent::None).await, span)
    });
    for Case { query, filter } in cases(&span) {
        let path = format!("/background/runs?{query}");
        let over_http = || over_http(&callers, &served, &path, plan.lists);
        let facade = || of_facade(&host, &served.tenure, &filter, plan.lists);
        let [ours, facade] = interleave_numbers(plan.rounds, [&over_http as &dyn Fn() -> f64, &facade]);
        let said = query.replace(&span.early.to_string(), "EARLY").replace(&span.late.to_string(), "LATE");
        let said = if said.is_empty() { "no filter" } else { &said };
        let figure = format!("{} runs, a page and its total: `{said}`: p95", show(plan.listed));
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds)
            .beside("runs and count_runs of the facade", &facade, Unit::Milliseconds)
            .compared(&ours.over(&facade), Unit::Times);
        table.print(row.goal(GOAL, &ours, Unit::Milliseconds));
    }
    for (said, path) in others(&callers, &served) {
        let over_http = || over_http(&callers, &served, &path, plan.lists);
        let [ours] = interleave_numbers(plan.rounds, [&over_http as &dyn Fn() -> f64]);
        let figure = format!("{} runs: `{said}`: p95", show(plan.listed));
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds);
        table.print(row.goal(GOAL, &ours, Unit::Milliseconds));
    }
    host.block_on(served.end());
}

/// Every filter, by which many are found, few, and none.
fn cases(span: &Span) -> Vec<Case> {
    let all = RunFilter::default;
    let task = |name: &str| RunFilter { task_id: Some(TaskId::new(name).expect("a name")), ..all() };
    let agent = |name: &str| RunFilter { agent_id: Some(AgentId::new(name).expect("a name")), ..all() };
    let session = |name: &str| RunFilter { session_id: Some(Arc::from(name)), ..all() };
    let status = |statuses: &[RunStatus]| RunFilter { statuses: statuses.to_vec(), ..all() };
    let trigger = |trigger: Trigger| RunFilter { trigger: Some(trigger), ..all() };
    let text = |text: &str| RunFilter { text: Some(text.to_owned()), ..all() };
    let (early, late) = (span.early, span.late);
    let failed = [RunStatus::Failed];
    let cases = [
        (String::new(), all()),
        ("task_id=t-7".to_owned(), task("t-7")),
        ("task_id=rare".to_owned(), task("rare")),
        ("task_id=unknown".to_owned(), task("unknown")),
        ("agent_id=agent-7".to_owned(), agent("agent-7")),
        ("agent_id=rare".to_owned(), agent("rare")),
        ("session_id=session-t-7".to_owned(), session("session-t-7")),
        ("session_id=session-rare".to_owned(), session("session-rare")),
        ("session_id=unknown".to_owned(), session("unknown")),
        ("status=completed".to_owned(), status(&[RunStatus::Completed])),
        ("status=failed".to_owned(), status(&failed)),
        ("status=failed&status=queued".to_owned(), status(&[RunStatus::Failed, RunStatus::Queued])),
        ("status=running".to_owned(), status(&[RunStatus::Running])),
        ("trigger_type=schedule".to_owned(), trigger(Trigger::Schedule)),
        ("trigger_type=retry".to_owned(), trigger(Trigger::Retry)),
        (format!("created_after={late}"), RunFilter { created_after: Some(late), ..all() }),
        (format!("created_before={early}"), RunFilter { created_before: Some(early), ..all() }),
        ("text=is%20well".to_owned(), text("is well")),
        ("text=needle".to_owned(), text("needle")),
        ("text=nowhere".to_owned(), text("nowhere")),
        ("task_id=t-7&status=failed".to_owned(), RunFilter { statuses: failed.to_vec(), ..task("t-7") }),
        ("task_id=t-7&text=needle".to_owned(), RunFilter { text: Some("needle".to_owned()), ..task("t-7") }),
    ];
    cases.into_iter().map(|(query, filter)| Case { query, filter }).collect()
}

/// What else is a list: how it is named, and its path.
fn others(callers: &Runtime, served: &Served) -> Vec<(&'static str, String)> {
    let first = callers.block_on(async {
        let mut caller = Caller::connect(served.address).await;
        let answer = caller.ask(&get("/background/runs?limit=1000"), 200).await;
        serde_json::from_slice::<serde_json::Value>(answer).expect("JSON")
    });
    let cursor = first["next_cursor"].as_str().unwrap_or_default();
    let run_id = first["runs"][0]["run_id"].as_str().expect("a run");
    let plain = [
        "/background/events",
        "/background/events?task_id=rare",
        "/background/tasks",
        "/background/tasks/t-7/status",
        "/background/tasks/t-7/occurrences",
        "/background/agents",
        "/background/status",
    ];
    let mut paths: Vec<(&'static str, String)> = plain.map(|path| (path, path.to_owned())).into();
    paths.push(("/background/runs/RUN/events", format!("/background/runs/{run_id}/events")));
    if !cursor.is_empty() {
        paths.push(("/background/runs?cursor=CURSOR", format!("/background/runs?cursor={cursor}")));
    }
    paths
}

/// The p95 of so many requests, in milliseconds.
fn over_http(callers: &Runtime, served: &Served, path: &str, count: usize) -> f64 {
    let request = get(path);
    callers.block_on(async {
        let mut caller = Caller::connect(served.address).await;
        let mut delays = Vec::with_capacity(count);
        for _ in 0..count {
            let asked = Instant::now();
            caller.ask(&request, 200).await;
            delays.push(asked.elapsed());
        }
        percentile(&mut delays, 95)
    })
}

fn of_facade(host: &Runtime, tenure: &Tenure, filter: &RunFilter, count: usize) -> f64 {
    let (tenure, filter) = (tenure.clone(), filter.clone());
    let caller = host.spawn(async move {
        let mut delays = Vec::with_capacity(count);
        for _ in 0..count {
            let asked = Instant::now();
            let page = PageRequest { limit: 100, cursor: None };
            let found = tenure.runs(filter.clone(), page).await.expect("a page");
            let total = tenure.count_runs(filter.clone(), EXACT).await.expect("a total");
            std::hint::black_box((found, total));
            delays.push(asked.elapsed());
        }
        percentile(&mut delays, 95)
    });
    host.block_on(caller).expect("delays")
}
