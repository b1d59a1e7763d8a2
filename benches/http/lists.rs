//! Lists of a store with very many runs, by every documented filter, beside the same calls of the facade.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use tenure::Tenure;
use tenure::model::{AgentId, RunId, RunStatus, Subject, TaskId, Trigger};
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

/// Up to how many runs and tasks the interface counts, and how many of a list and of events it tells at once.
const EXACT: u64 = 10_000;
const PAGE: usize = 100;
const EVENTS: usize = 1_000;

/// A list, as it is asked for over HTTP and of the facade.
struct Case {
    /// How the list is named, and what is asked.
    figure: String,
    path: String,
    /// What is called of the facade.
    calls: &'static str,
    look: Look,
}

type Look = Arc<dyn Fn(Tenure) -> BoxFuture<'static, ()> + Send + Sync>;

/// A look at the facade, as a value.
fn look<F: Future<Output = ()> + Send + 'static>(look: impl Fn(Tenure) -> F + Send + Sync + 'static) -> Look {
    Arc::new(move |tenure| Box::pin(look(tenure)))
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let (host, callers) = (runtime(), callers());
    let (served, span) = host.block_on(async {
        let bench = Bench::open(Kind::Full).await;
        let span = seed(&bench, plan.listed).await;
        (Served::open(bench, Agent::None).await, span)
    });
    let mut cases = filters(&span);
    cases.extend(others(&callers, &served));
    for Case { figure, path, calls, look } in cases {
        let over_http = || over_http(&callers, &served, &path, plan.lists);
        let facade = || of_facade(&host, &served.tenure, &look, plan.lists);
        let [ours, facade] = interleave_numbers(plan.rounds, [&over_http as &dyn Fn() -> f64, &facade]);
        let figure = format!("{} runs{figure}: p95", show(plan.listed));
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds)
            .beside(calls, &facade, Unit::Milliseconds)
            .compared(&ours.over(&facade), Unit::Times);
        table.print(row.goal(GOAL, &ours, Unit::Milliseconds));
    }
    host.block_on(served.end());
}

/// Every filter, by which many are found, few, and none.
fn filters(span: &Span) -> Vec<Case> {
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
    let case = |(query, filter): (String, RunFilter)| {
        let said = query.replace(&early.to_string(), "EARLY").replace(&late.to_string(), "LATE");
        let said = if said.is_empty() { "no filter" } else { &said };
        Case {
            figure: format!(", a page and its total: `{said}`"),
            path: format!("/background/runs?{query}"),
            calls: "runs and count_runs of the facade",
            look: look(move |tenure| page_and_total(tenure, filter.clone(), None)),
        }
    };
    cases.into_iter().map(case).collect()
}

async fn page_and_total(tenure: Tenure, filter: RunFilter, cursor: Option<String>) {
    let found = tenure.runs(filter.clone(), PageRequest { limit: PAGE, cursor }).await.expect("a page");
    let total = tenure.count_runs(filter, EXACT).await.expect("a total");
    std::hint::black_box((found, total));
}

/// What else is a list.
fn others(callers: &Runtime, served: &Served) -> Vec<Case> {
    let first = callers.block_on(async {
        let mut caller = Caller::connect(served.address).await;
        let answer = caller.ask(&get("/background/runs?limit=1000"), 200).await;
        serde_json::from_slice::<serde_json::Value>(answer).expect("JSON")
    });
    let run_id = RunId::new(first["runs"][0]["run_id"].as_str().expect("a run")).expect("a name");
    let task = TaskId::new("t-7").expect("a name");
    let page = || PageRequest { limit: PAGE, cursor: None };
    let (status_of, occurrences_of, of_run) = (task.clone(), task, Subject::Run(run_id.clone()));
    let case = |name: &str, path: &str, calls, look| Case {
        figure: format!(": `/background/{name}`"),
        path: format!("/background/{path}"),
        calls,
        look,
    };
    let plain = |path: &str, calls, look| case(path, path, calls, look);
    let mut cases = vec![
        plain("events", "events of the facade", look(|tenure| events(tenure, Subject::All, 1))),
        plain(
            "events?task_id=rare",
            "all events of ten pages",
            look(|tenure| events(tenure, Subject::All, 10)),
        ),
        plain("tasks", "tasks and count_tasks of the facade", look(tasks)),
        plain(
            "tasks/t-7/status",
            "task_status of the facade",
            look(move |tenure| {
                let task = status_of.clone();
                async move { drop(std::hint::black_box(tenure.task_status(&task).await.expect("a task"))) }
            }),
        ),
        plain(
            "tasks/t-7/occurrences",
            "occurrences of the facade",
            look(move |tenure| {
                let task = occurrences_of.clone();
                async move { drop(std::hint::black_box(tenure.occurrences(&task, page()).await.expect("a page"))) }
            }),
        ),
        plain("agents", "agents of the facade", look(agents)),
        plain("status", "status and count_tasks of the facade", look(status)),
        case(
            "runs/RUN/events",
            &format!("runs/{run_id}/events"),
            "events of the facade",
            look(move |tenure| events(tenure, of_run.clone(), 1)),
        ),
    ];
    if let Some(cursor) = first["next_cursor"].as_str().map(str::to_owned) {
        cases.push(case(
            "runs?cursor=CURSOR",
            &format!("runs?cursor={cursor}"),
            "runs and count_runs of the facade",
            look(move |tenure| page_and_total(tenure, RunFilter::default(), Some(cursor.clone()))),
        ));
    }
    cases
}

async fn tasks(tenure: Tenure) {
    let found = tenure.tasks(PageRequest { limit: PAGE, cursor: None }).await.expect("a page");
    std::hint::black_box((found, tenure.count_tasks(EXACT).await.expect("a total")));
}

async fn agents(tenure: Tenure) {
    std::hint::black_box(tenure.agents());
}

async fn status(tenure: Tenure) {
    let status = tenure.status().await.expect("a status");
    std::hint::black_box((status, tenure.count_tasks(EXACT).await.expect("a total")));
}

/// So many pages of events, as many as the interface tells or looks at.
async fn events(tenure: Tenure, subject: Subject, pages: usize) {
    let mut after = 0;
    for _ in 0..pages {
        let found = tenure.events(subject.clone(), after, EVENTS).await.expect("events");
        after = found.last().map_or(after, |event| event.cursor);
        std::hint::black_box(found);
    }
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

fn of_facade(host: &Runtime, tenure: &Tenure, look: &Look, count: usize) -> f64 {
    let (tenure, look) = (tenure.clone(), Arc::clone(look));
    let caller = host.spawn(async move {
        let mut delays = Vec::with_capacity(count);
        for _ in 0..count {
            let asked = Instant::now();
            look(tenure.clone()).await;
            delays.push(asked.elapsed());
        }
        percentile(&mut delays, 95)
    });
    host.block_on(caller).expect("delays")
}
