//! Runs: listed, shown, waited for, cancelled, answered, done again.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::body::Given;
use super::limits::within;
use super::names::Named;
use super::problem::{Answer, Problem};
use super::query::{self, Words, flag, instant, text, word};
use super::wanted::{self, Wanted, place, shown, status_of, wait_for};
use super::{Api, answer, pages, schemas};
use crate::model::{
    AgentId, ApprovalAnswer, CancelMode, Invalid, Run, RunId, RunResult, RunStatus, Seconds, TaskId,
    Timestamp, Trigger, value_of,
};
use crate::rules::CancelRequest;
use crate::store::RunFilter;
use crate::view::{AttemptView, RunView};

/// Up to how many runs a total is exact.
const EXACT: u64 = 10_000;
/// About how many bytes a run takes besides what its users wrote.
const RUN_BYTES: usize = 1 << 10;
const MOST_REASON_BYTES: usize = 4 << 10;
/// The longest name of who cancels.
const MOST_NAME_BYTES: usize = 255;
/// The longest text that is looked for.
const MOST_TEXT_BYTES: usize = 1 << 10;

#[derive(Serialize)]
struct Runs {
    runs: Vec<RunView>,
    total: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total_estimated: bool,
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<answer::Unreadable>,
}

/// Runs, the newest first
///
/// What is on one page is on no other, whatever is added meanwhile. For one page a bounded number of runs is looked at:
/// it may have fewer than asked for, also none, though there are more, as long as there is a `next_cursor`; so may one
/// of large runs, which ends at about 8 MiB. `total` may
/// be a lower bound where it is large or takes long to count, and `total_estimated` says so.
#[utoipa::path(get, path = "/background/runs", tag = "runs", operation_id = "list_runs",
    params(schemas::RunQuery, schemas::PageQuery),
    responses((status = 200, body = schemas::Runs)))]
pub(super) async fn list(State(api): State<Api>, parts: Parts) -> Answer {
    let mut words = Words::of(&parts)?;
    let filter = filter(&mut words);
    let page = words.page(api.options().max_page);
    words.done()?;
    let found = pages::fill(page, |page| api.tenure().runs(filter.clone(), page), bytes_of).await?;
    let (total, exact) = api.tenure().count_runs(filter, EXACT).await?;
    answer::ok(&Runs {
        runs: found.items.iter().map(RunView::from).collect(),
        total,
        total_estimated: !exact,
        next_cursor: found.next,
        unreadable: answer::unreadable(found.corrupt),
    })
}

/// About what a run takes in an answer.
fn bytes_of(run: &Run) -> usize {
    let result = match &run.result {
        Some(RunResult::Inline(payload)) => payload.bytes.len(),
        _ => 0,
    };
    // Whatever cannot be written takes nothing.
    let approval = run.approval.as_ref().and_then(|approval| serde_json::to_vec(approval).ok());
    let approval = approval.map_or(0, |approval| approval.len());
    RUN_BYTES + run.spec.query.len() + run.spec.metadata.as_json().len() + result + approval
}

fn filter(words: &mut Words) -> RunFilter {
    RunFilter {
        task_id: words.name("task_id", TaskId::new),
        agent_id: words.name("agent_id", AgentId::new),
        session_id: words.one("session_id", text).map(Arc::from),
        statuses: words.all("status", word::<RunStatus>),
        trigger: words.one("trigger_type", word::<Trigger>),
        created_after: words.one("created_after", instant),
        created_before: words.one("created_before", instant),
        text: words.one("text", looked_for),
        // What hosts execute themselves is listed by the name of its task alone.
        owned: None,
    }
}

fn looked_for(text: &str) -> Result<String, String> {
    match text.len() {
        1..=MOST_TEXT_BYTES => Ok(text.to_owned()),
        bytes => Err(format!("1 to {MOST_TEXT_BYTES} bytes, found {bytes}")),
    }
}

/// A run
///
/// With `wait` the answer comes when the run has settled: it has ended, or waits for a person.
#[utoipa::path(get, path = "/background/runs/{run_id}", tag = "runs", operation_id = "get_run",
    params(("run_id" = String, Path, description = "the run"), schemas::WaitQuery),
    responses(
        (status = 200, body = schemas::Run),
        (status = 202, description = "it had not settled when the time was up", body = schemas::Run),
    ))]
pub(super) async fn get(State(api): State<Api>, parts: Parts, Named(run_id): Named<RunId>) -> Answer {
    let mut words = Words::of(&parts)?;
    let wait = words.one("wait", flag).unwrap_or(false);
    let limit = words.one("timeout_seconds", seconds);
    words.done()?;
    if !wait {
        let run = within(&api, api.tenure().run(&run_id)).await?;
        return answer::ok(&shown(&api, &run).await?);
    }
    let _place = place(&api)?;
    let run = within(&api, api.tenure().run(&run_id)).await?;
    let (run, settled) = wait_for(&api, run, limit).await?;
    answer::json(status_of(settled), &shown(&api, &run).await?)
}

fn seconds(text: &str) -> Result<Duration, String> {
    serde_json::from_str::<Seconds>(text)
        .map(Seconds::duration)
        .map_err(|_| format!("a number of seconds, found {}", query::shown(text)))
}

/// The attempts of a run, in order
#[utoipa::path(get, path = "/background/runs/{run_id}/attempts", tag = "runs", operation_id = "list_attempts",
    params(("run_id" = String, Path, description = "the run")),
    responses((status = 200, body = [schemas::Attempt])))]
pub(super) async fn attempts(State(api): State<Api>, parts: Parts, Named(run_id): Named<RunId>) -> Answer {
    query::nothing(&parts)?;
    let attempts = api.tenure().attempts(&run_id).await?;
    answer::ok(&attempts.iter().map(|attempt| AttemptView::new(&run_id, attempt)).collect::<Vec<_>>())
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Cancelling {
    mode: CancelMode,
    reason: Option<String>,
    by: Option<String>,
}

/// Cancels a run
///
/// One that waits ends at once. The owner of one that executes is asked to stop, or, by force, loses its authority at
/// once. One that has ended is answered as it is.
#[utoipa::path(post, path = "/background/runs/{run_id}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("run_id" = String, Path, description = "the run")),
    request_body = Option<schemas::Cancelling>,
    responses((status = 200, description = "the run as it is now", body = schemas::Run)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    Named(run_id): Named<RunId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    let request = given.read::<Cancelling>()?.request()?;
    let run = api.tenure().cancel_run(&run_id, &request).await?;
    answer::ok(&RunView::from(&run))
}

impl Cancelling {
    fn request(self) -> Result<CancelRequest, Problem> {
        let Self { mode, reason, by } = self;
        let mut wrong = Vec::new();
        let reason = reason.unwrap_or_else(|| "asked for".to_owned());
        if reason.len() > MOST_REASON_BYTES {
            let found = reason.len();
            let expected = format!("at most {MOST_REASON_BYTES} bytes, found {found}");
            wrong.extend(Invalid::one("reason", expected).problems);
        }
        let by = by.unwrap_or_else(|| "http".to_owned());
        if by.trim().is_empty() || by.len() > MOST_NAME_BYTES || by.chars().any(char::is_control) {
            let expected = format!(
                "who cancels, in 1 to {MOST_NAME_BYTES} bytes without control characters, found {}",
                query::shown(&by)
            );
            wrong.extend(Invalid::one("by", expected).problems);
        }
        if !wrong.is_empty() {
            return Err(Problem::invalid(wrong));
        }
        Ok(CancelRequest { mode, reason: reason.into(), requested_by: by.into(), force_after: None })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CancellingMany {
    task_id: Option<TaskId>,
    agent_id: Option<AgentId>,
    session_id: Option<Arc<str>>,
    status: Vec<RunStatus>,
    trigger_type: Option<Trigger>,
    created_after: Option<Timestamp>,
    created_before: Option<Timestamp>,
    text: Option<String>,
    mode: CancelMode,
    reason: Option<String>,
    by: Option<String>,
}

impl CancellingMany {
    /// Which runs, and how: something has to say which.
    fn read(self) -> Result<(RunFilter, CancelRequest), Problem> {
        if let Some(Err(expected)) = self.text.as_deref().map(looked_for) {
            return Err(Problem::field("text", expected));
        }
        let filter = RunFilter {
            task_id: self.task_id,
            agent_id: self.agent_id,
            session_id: self.session_id,
            statuses: self.status,
            trigger: self.trigger_type,
            created_after: self.created_after,
            created_before: self.created_before,
            text: self.text,
            owned: None,
        };
        if filter == RunFilter::default() {
            let expected = "at least one of task_id, agent_id, session_id, status, trigger_type, created_after, \
                            created_before, text, to say which runs";
            return Err(Problem::field("body", expected));
        }
        let how = Cancelling { mode: self.mode, reason: self.reason, by: self.by };
        Ok((filter, how.request()?))
    }
}

/// Cancels every run that matches and has not ended
///
/// The filters are those of the list of runs; at least one is needed. Those that wait end at once; the owners of those
/// that execute are asked to stop, or, by force, lose their authority at once. After a failure some may have been
/// cancelled: asking again cancels the rest.
#[utoipa::path(post, path = "/background/runs/cancel", tag = "runs", operation_id = "cancel_runs",
    request_body = schemas::CancellingMany,
    responses((status = 200, description = "how many runs it met", body = schemas::Cancelled)))]
pub(super) async fn cancel_many(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    query::nothing(&parts)?;
    let (filter, request) = given.read::<CancellingMany>()?.read()?;
    answer::ok(&api.tenure().cancel_runs(filter, &request).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answering {
    approved: bool,
    #[serde(default)]
    answer: Option<Box<RawValue>>,
}

/// Answers a run that waits for a person
///
/// It is queued again; its next attempt receives the answer.
#[utoipa::path(post, path = "/background/runs/{run_id}/resume", tag = "runs", operation_id = "resume_run",
    params(("run_id" = String, Path, description = "the run")),
    request_body = schemas::Answering,
    responses(
        (status = 200, description = "the run as it is now", body = schemas::Run),
        (status = 409, description = "it does not wait for a person", body = schemas::Problem),
    ))]
pub(super) async fn resume(
    State(api): State<Api>,
    Named(run_id): Named<RunId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    given.text()?;
    let Answering { approved, answer } = given.read()?;
    let answer = answer.map_or(Ok(Value::Null), |answer| value_of(&answer));
    let answer = answer.map_err(|expected| Problem::field("answer", expected))?;
    let run = api.tenure().resume_run(&run_id, ApprovalAnswer { approved, answer }).await?;
    answer::ok(&RunView::from(&run))
}

/// Does an ended run again, as a new run of its task
#[utoipa::path(post, path = "/background/runs/{run_id}/retry", tag = "runs", operation_id = "retry_run",
    params(
        ("run_id" = String, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key gives the same run"),
    ),
    request_body = Option<schemas::WantedRetry>,
    responses(
        (status = 202, description = "queued, skipped, or not settled when the time was up", body = schemas::Run,
         headers(("Location" = String, description = "where it is"))),
        (status = 200, description = "settled", body = schemas::Run,
         headers(("Location" = String, description = "where it is"))),
        (status = 409, description = "it has not ended, or the key was used for another request",
         body = schemas::Problem),
    ))]
pub(super) async fn retry(
    State(api): State<Api>,
    Named(run_id): Named<RunId>,
    parts: Parts,
    given: Given,
) -> Answer {
    query::nothing(&parts)?;
    let wanted = Wanted::read(&given, &parts.headers)?;
    if wanted.overrides_pause() {
        return Err(Problem::field("override_pause", "nothing: a retry runs though the task is paused"));
    }
    wanted::begin(&api, &wanted, api.tenure().retry(&run_id, wanted.request())).await
}
