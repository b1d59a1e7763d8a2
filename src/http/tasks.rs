//! Tasks: stored, changed, paused, deleted, run.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::body::Given;
use super::names::Named;
use super::problem::{Answer, Problem};
use super::query::{self, Words, word};
use super::status::{active, all, by_status};
use super::wanted::{self, Wanted};
use super::{Api, answer, pages, schemas};
use crate::model::{
    AgentId, Occurrence, RunStatus, Schedule, ScheduleState, Task, TaskId, TaskPatch, TaskSpec, Timestamp,
};
use crate::tenure::Deletion;
use crate::view::{RunView, TaskView};

/// How many tasks are counted.
const MOST_COUNTED: u64 = 10_000;

/// About how many bytes a task takes besides what its users wrote.
const TASK_BYTES: usize = 1 << 10;

/// How many instants to come are told.
const NEXT: usize = 10;
const MOST_NEXT: usize = 1_000;

/// A task in a list, with how far its schedule is.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    task: TaskView,
    schedule_state: &'a ScheduleState,
}

#[derive(Serialize)]
struct Tasks<'a> {
    tasks: Vec<Listed<'a>>,
    total: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total_estimated: bool,
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<answer::Unreadable>,
}

/// A task as it was stored just now, with what its user may not have meant.
#[derive(Serialize)]
struct Stored {
    #[serde(flatten)]
    task: TaskView,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

/// What is taken as it was given, and is likely to be wrong.
#[derive(Serialize)]
struct Warning {
    field: &'static str,
    message: String,
}

impl Stored {
    fn new(api: &Api, task: &Task) -> Self {
        Self { task: TaskView::from(task), warnings: nobody(api, &task.spec.agent_id).into_iter().collect() }
    }
}

/// Warns of an agent that is not here: another host of the store may have it, or one that is still to come, so the
/// task is stored all the same.
fn nobody(api: &Api, agent_id: &AgentId) -> Option<Warning> {
    let message = || format!("this host does not have agent \"{agent_id}\": its runs wait for one that has");
    (!api.tenure().has_agent(agent_id)).then(|| Warning { field: "agent_id", message: message() })
}

/// Stores a new task
///
/// `agent_id` may be left out when the host has one agent, or a default one. A task whose agent this host does not have
/// is stored all the same, as another may have it: `warnings` says so.
#[utoipa::path(post, path = "/background/tasks", tag = "tasks", operation_id = "create_task",
    request_body = schemas::NewTask,
    responses(
        (status = 201, body = schemas::Task, headers(("Location" = String, description = "where it is"))),
        (status = 409, description = "there is a task of that name", body = schemas::Problem),
    ))]
pub(super) async fn create(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    query::nothing(&parts)?;
    let text = given.text()?;
    let spec = match default_agent(&api) {
        Some(agent_id) => TaskSpec::parse_for(text, &agent_id)?,
        None => TaskSpec::parse(text)?,
    };
    let task = api.tenure().create_task(spec).await?;
    let place = format!("/background/tasks/{}", task.spec.task_id);
    answer::at(StatusCode::CREATED, &place, &Stored::new(&api, &task))
}

/// The agent of a task that names none.
fn default_agent(api: &Api) -> Option<AgentId> {
    let only = |agents: &[AgentId]| match agents {
        [only] => Some(only.clone()),
        _ => None,
    };
    api.options().default_agent.clone().or_else(|| only(&api.tenure().agents()))
}

/// Tasks by name
///
/// A page of large tasks ends at about 8 MiB: it has a `next_cursor` then.
#[utoipa::path(get, path = "/background/tasks", tag = "tasks", operation_id = "list_tasks",
    params(schemas::PageQuery),
    responses((status = 200, body = schemas::Tasks)))]
pub(super) async fn list(State(api): State<Api>, parts: Parts) -> Answer {
    let mut words = Words::of(&parts)?;
    let page = words.page(api.options().max_page);
    words.done()?;
    let found = pages::fill(page, |page| api.tenure().tasks(page), bytes_of).await?;
    let (total, exact) = api.tenure().count_tasks(MOST_COUNTED).await?;
    answer::ok(&Tasks {
        tasks: found.items.iter().map(listed).collect(),
        total,
        total_estimated: !exact,
        next_cursor: found.next,
        unreadable: answer::unreadable(found.corrupt),
    })
}

/// About what a task takes in an answer.
fn bytes_of((task, _): &(Task, ScheduleState)) -> usize {
    TASK_BYTES + task.spec.query.len() + task.spec.metadata.as_json().len()
}

fn listed((task, schedule_state): &(Task, ScheduleState)) -> Listed<'_> {
    Listed { task: TaskView::from(task), schedule_state }
}

/// A task
#[utoipa::path(get, path = "/background/tasks/{task_id}", tag = "tasks", operation_id = "get_task",
    params(("task_id" = String, Path, description = "the task")),
    responses((status = 200, body = schemas::Task)))]
pub(super) async fn get(State(api): State<Api>, parts: Parts, Named(task_id): Named<TaskId>) -> Answer {
    query::nothing(&parts)?;
    let (task, _) = api.tenure().task(&task_id).await?;
    answer::ok(&TaskView::from(&task))
}

/// Changes some fields of a task
///
/// Each field that is given is replaced as a whole; `null` puts back its default. `warnings` are as for a new task.
#[utoipa::path(patch, path = "/background/tasks/{task_id}", tag = "tasks", operation_id = "change_task",
    params(("task_id" = String, Path, description = "the task")),
    request_body = schemas::TaskChange,
    responses((status = 200, body = schemas::Task)))]
pub(super) async fn change(
    State(api): State<Api>,
    Named(task_id): Named<TaskId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    let task = api.tenure().patch_task(&task_id, TaskPatch::parse(given.text()?)?).await?;
    answer::ok(&Stored::new(&api, &task))
}

/// What was done to a task.
#[derive(Serialize)]
struct Done<'a> {
    status: &'static str,
    task_id: &'a TaskId,
}

/// Deletes a task
///
/// What is queued is cancelled; what executes is cancelled too, or kept. Its runs stay in the listings.
#[utoipa::path(delete, path = "/background/tasks/{task_id}", tag = "tasks", operation_id = "delete_task",
    params(
        ("task_id" = String, Path, description = "the task"),
        ("running" = inline(Option<schemas::Running>), Query, description = "what becomes of runs that execute"),
    ),
    responses((status = 200, body = schemas::Done)))]
pub(super) async fn delete(State(api): State<Api>, parts: Parts, Named(task_id): Named<TaskId>) -> Answer {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Running {
        Cancel,
        Keep,
    }
    let mut words = Words::of(&parts)?;
    let running = words.one("running", word::<Running>);
    words.done()?;
    let running = match running {
        Some(Running::Keep) => Deletion::Keep,
        Some(Running::Cancel) | None => Deletion::Cancel,
    };
    api.tenure().delete_task(&task_id, running).await?;
    answer::ok(&Done { status: "deleted", task_id: &task_id })
}

/// Stops dispatching a task
#[utoipa::path(post, path = "/background/tasks/{task_id}/pause", tag = "tasks", operation_id = "pause_task",
    params(("task_id" = String, Path, description = "the task")),
    responses((status = 200, body = schemas::Done)))]
pub(super) async fn pause(
    State(api): State<Api>,
    Named(task_id): Named<TaskId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    given.read::<Nothing>()?;
    api.tenure().pause_task(&task_id).await?;
    answer::ok(&Done { status: "paused", task_id: &task_id })
}

/// Dispatches a task again
#[utoipa::path(post, path = "/background/tasks/{task_id}/resume", tag = "tasks", operation_id = "resume_task",
    params(("task_id" = String, Path, description = "the task")),
    responses((status = 200, body = schemas::Done)))]
pub(super) async fn resume(
    State(api): State<Api>,
    Named(task_id): Named<TaskId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    given.read::<Nothing>()?;
    api.tenure().resume_task(&task_id).await?;
    answer::ok(&Done { status: "resumed", task_id: &task_id })
}

/// The body of what needs none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Serialize)]
struct Status<'a> {
    task_id: &'a TaskId,
    agent_id: &'a AgentId,
    enabled: bool,
    schedule: &'a Schedule,
    schedule_state: &'a ScheduleState,
    runs: u64,
    active_runs: u64,
    status_counts: BTreeMap<RunStatus, u64>,
    latest_run: Option<RunView>,
}

/// A task, and how it does
#[utoipa::path(get, path = "/background/tasks/{task_id}/status", tag = "tasks", operation_id = "task_status",
    params(("task_id" = String, Path, description = "the task")),
    responses((status = 200, body = schemas::TaskStatus)))]
pub(super) async fn status(State(api): State<Api>, parts: Parts, Named(task_id): Named<TaskId>) -> Answer {
    query::nothing(&parts)?;
    let status = api.tenure().task_status(&task_id).await?;
    let latest_run = match &status.latest_run {
        Some(run) => Some(RunView::from(run).waiting(api.tenure().waiting(run).await?)),
        None => None,
    };
    answer::ok(&Status {
        task_id: &task_id,
        agent_id: &status.task.spec.agent_id,
        enabled: status.task.spec.enabled,
        schedule: &status.task.spec.schedule,
        schedule_state: &status.schedule,
        runs: all(&status.counts),
        active_runs: active(&status.counts),
        status_counts: by_status(&status.counts),
        latest_run,
    })
}

#[derive(Serialize)]
struct Occurrences<'a> {
    task_id: &'a TaskId,
    enabled: bool,
    past: Vec<Occurrence>,
    next: Vec<Next>,
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<answer::Unreadable>,
}

#[derive(Serialize)]
struct Next {
    due_at: Timestamp,
    /// The same as clocks in the zone of the schedule show it.
    due_at_local: String,
}

/// The instants that the schedule of a task named, the newest first, and those it names next
#[utoipa::path(get, path = "/background/tasks/{task_id}/occurrences", tag = "tasks",
    operation_id = "task_occurrences",
    params(
        ("task_id" = String, Path, description = "the task"),
        schemas::PageQuery,
        ("next" = Option<u32>, Query, description = "how many instants to come, up to 1,000; 10 if left out"),
    ),
    responses((status = 200, body = schemas::Occurrences)))]
pub(super) async fn occurrences(
    State(api): State<Api>,
    parts: Parts,
    Named(task_id): Named<TaskId>,
) -> Answer {
    let mut words = Words::of(&parts)?;
    let page = words.page(api.options().max_page);
    let most = words.one("next", |text| match text.parse() {
        Ok(most) if most <= MOST_NEXT => Ok(most),
        _ => Err(format!("a number from 0 to {MOST_NEXT}, found {}", query::shown(text))),
    });
    words.done()?;
    let (task, state) = api.tenure().task(&task_id).await?;
    let found = api.tenure().occurrences(&task_id, page).await?;
    answer::ok(&Occurrences {
        task_id: &task_id,
        enabled: task.spec.enabled,
        past: found.items,
        next: next(&task, &state, most.unwrap_or(NEXT))?,
        next_cursor: found.next,
        unreadable: answer::unreadable(found.corrupt),
    })
}

fn next(task: &Task, state: &ScheduleState, most: usize) -> Result<Vec<Next>, Problem> {
    let due = crate::rules::upcoming(&task.spec.schedule, state, most)
        .map_err(|error| Problem::field("schedule", error.to_string()))?;
    let zone = TimeZone::get(&task.spec.schedule.timezone).unwrap_or(TimeZone::UTC);
    let local = |due_at: Timestamp| due_at.to_jiff().to_zoned(zone.clone()).to_string();
    Ok(due.into_iter().map(|due_at| Next { due_at, due_at_local: local(due_at) }).collect())
}

/// Wants a run of a task now
///
/// Its overlap policy decides: the run may be skipped. With `wait` the answer comes when the run has settled: it has
/// ended, or waits for a person. An `Idempotency-Key` makes a repeated request the same run.
#[utoipa::path(post, path = "/background/tasks/{task_id}/run", tag = "tasks", operation_id = "run_task",
    params(
        ("task_id" = String, Path, description = "the task"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key gives the same run"),
    ),
    request_body = Option<schemas::WantedRun>,
    responses(
        (status = 202, description = "queued, skipped, or not settled when the time was up", body = schemas::Run,
         headers(("Location" = String, description = "where it is"))),
        (status = 200, description = "settled", body = schemas::Run,
         headers(("Location" = String, description = "where it is"))),
        (status = 409, description = "the task is paused, or the key was used for another request",
         body = schemas::Problem),
    ))]
pub(super) async fn run(
    State(api): State<Api>,
    Named(task_id): Named<TaskId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    let headers: &HeaderMap = &parts.headers;
    let wanted = Wanted::read(&given, headers)?;
    let tenure = api.tenure();
    wanted::begin(&api, &wanted, tenure.run_now(&task_id, wanted.request())).await
}
