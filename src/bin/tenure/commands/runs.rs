//! `tenure runs …`.

use clap::Subcommand;
use futures_util::StreamExt;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenure::model::{AgentId, RunId, RunStatus, TaskId};

use super::common::{Common, Need, Session, agent_id, run_id, statuses, task_id};
use super::ids::whole;
use super::near;
use super::pages::{HowMany, list};
use super::settle::{Patience, settle, show_settled, status, wanted};
use crate::args::Global;
use crate::client::{Answer, Ask};
use crate::exit::{Exit, Failure};
use crate::given::text_or_stdin;
use crate::output::Output;
use crate::render::{attempts_table, event_line_of_run, files_table, run_line, run_record, runs_table};
use crate::when::Toward;

/// Look at runs, wait for them, cancel, retry or answer them
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// Runs, the newest first
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  \
            tenure runs list --status running,queued\n  \
            tenure runs list --task nightly-report --after 'yesterday 18:00'\n  \
            tenure runs list --status failed --after 7d --all --json"
    )]
    List(ListRuns),
    /// A run with its attempts, and if asked for its events and files
    #[command(after_help = "Example:\n  tenure runs show 019c2f6e8d5a --events --files")]
    Show(ShowRun),
    /// Print a file of a run
    #[command(after_help = "Examples:\n  \
        tenure runs cat 019c2f6e8d5a output.md\n  \
        tenure runs show 019c2f6e8d5a --files")]
    Cat(CatFile),
    /// Wait until a run is over or waits for a person; the exit code says how it ended
    #[command(after_help = "Example:\n  tenure runs wait 019c2f6e8d5a --timeout 10m && echo done")]
    Wait(WaitRun),
    /// Cancel runs: these, or all that match and have not ended
    #[command(after_help = "Examples:\n  \
        tenure runs cancel 019c2f6e8d5a --reason 'wrong input'\n  \
        tenure runs cancel --task nightly-report --force")]
    Cancel(CancelRuns),
    /// Do an ended run again, as a new run
    #[command(after_help = "Example:\n  tenure runs retry 019c2f6e8d5a --wait")]
    Retry(RetryRun),
    /// Answer a run that waits for a person
    #[command(after_help = "Examples:\n  \
        tenure runs resume 019c2f6e8d5a --approve\n  \
        tenure runs resume 019c2f6e8d5a --reject --answer 'not on a Friday'")]
    Resume(ResumeRun),
}

/// Which runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Filter {
    /// Of this task
    #[arg(long, value_name = "TASK", value_parser = task_id)]
    task: Option<TaskId>,
    /// Of this agent
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
    /// Of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// In one of these states; several with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = statuses())]
    status: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListRuns {
    #[command(flatten)]
    filter: Filter,
    /// Wanted by a person, a schedule or as a retry
    #[arg(long, value_name = "WHAT", value_parser = ["manual", "schedule", "retry"])]
    trigger: Option<String>,
    /// Queued at or after this: `2h`, `yesterday 18:00`, `2026-12-01`
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// Queued before this
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// With this in the query
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    how_many: HowMany,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowRun {
    /// The run; the beginning of its name is enough
    #[arg(value_name = "RUN", value_parser = run_id)]
    run_id: RunId,
    /// With its events
    #[arg(long)]
    events: bool,
    /// With its files
    #[arg(long)]
    files: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WaitRun {
    /// The run; the beginning of its name is enough
    #[arg(value_name = "RUN", value_parser = run_id)]
    run_id: RunId,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CatFile {
    /// The run; the beginning of its name is enough
    #[arg(value_name = "RUN", value_parser = run_id)]
    run_id: RunId,
    /// The file, below the folder of the run
    #[arg(value_name = "PATH")]
    path: String,
    #[command(flatten)]
    common: Common,
}

/// Something has to say which runs.
fn which() -> clap::ArgGroup {
    let args = ["run_ids", "task", "agent", "session", "status"];
    clap::ArgGroup::new("which").required(true).multiple(true).args(args)
}

#[derive(Debug, clap::Args)]
#[command(group = which())]
pub(crate) struct CancelRuns {
    /// The runs
    #[arg(value_name = "RUN", value_parser = run_id, conflicts_with_all = ["task", "agent", "session", "status"])]
    run_ids: Vec<RunId>,
    #[command(flatten)]
    filter: Filter,
    /// Revoke their authority at once, and do not wait for their owners
    #[arg(long)]
    force: bool,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who cancels, as it is kept with the runs; if nothing is said, this user at this machine
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RetryRun {
    /// The run; the beginning of its name is enough
    #[arg(value_name = "RUN", value_parser = run_id)]
    run_id: RunId,
    /// Ask this and not what the run was asked; `-` for standard input
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Wait until the new run has settled; the exit code says how
    #[arg(long, short = 'w')]
    wait: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("verdict").required(true).args(["approve", "reject"]))]
pub(crate) struct ResumeRun {
    /// The run; the beginning of its name is enough
    #[arg(value_name = "RUN", value_parser = run_id)]
    run_id: RunId,
    /// Yes
    #[arg(long)]
    approve: bool,
    /// No
    #[arg(long)]
    reject: bool,
    /// Anything else that the agent is told: JSON, or else text
    #[arg(long, value_name = "JSON|TEXT")]
    answer: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Runs {
    const fn common(&self) -> &Common {
        match self {
            Self::List(asked) => &asked.common,
            Self::Show(asked) => &asked.common,
            Self::Cat(asked) => &asked.common,
            Self::Wait(asked) => &asked.common,
            Self::Cancel(asked) => &asked.common,
            Self::Retry(asked) => &asked.common,
            Self::Resume(asked) => &asked.common,
        }
    }
}

pub(super) async fn execute(asked: Runs, global: &Global, output: Output) -> Result<Exit, Failure> {
    let session = Session::open(global, asked.common(), output, Need::Existing).await?;
    let done = match &asked {
        Runs::List(asked) => list_runs(&session, asked).await,
        Runs::Show(asked) => show(&session, asked).await,
        Runs::Cat(asked) => cat(&session, asked).await,
        Runs::Wait(asked) => wait(&session, asked).await,
        Runs::Cancel(asked) => cancel(&session, asked).await,
        Runs::Retry(asked) => retry(&session, asked).await,
        Runs::Resume(asked) => resume(&session, asked).await,
    };
    session.close().await;
    done.map_err(|failure| if failure.exit == Exit::NotFound { near::run(failure) } else { failure })
}

impl Filter {
    fn apply(&self, ask: Ask) -> Ask {
        ask.queries("task_id", &self.task)
            .queries("agent_id", &self.agent)
            .queries("session_id", &self.session)
            .queries("status", &self.status)
    }

    /// Adds what is asked for to a body.
    fn body(&self, mut body: Value) -> Value {
        let names = [
            ("task_id", self.task.as_ref().map(TaskId::as_str)),
            ("agent_id", self.agent.as_ref().map(AgentId::as_str)),
            ("session_id", self.session.as_deref()),
        ];
        for (name, value) in names {
            if let Some(value) = value {
                body[name] = value.into();
            }
        }
        if !self.status.is_empty() {
            body["status"] = json!(self.status);
        }
        body
    }
}

async fn list_runs(session: &Session, asked: &ListRuns) -> Result<Exit, Failure> {
    let after = session.instant("--after", asked.after.as_ref(), Toward::Past)?;
    let before = session.instant("--before", asked.before.as_ref(), Toward::Past)?;
    let ask = asked
        .filter
        .apply(Ask::get(["runs"]))
        .queries("trigger_type", &asked.trigger)
        .queries("created_after", after)
        .queries("created_before", before)
        .queries("text", &asked.text);
    let listed = list(session, ask, "runs", &asked.how_many).await?;
    listed.show(session, "run_id", runs_table)?;
    if let Some(task_id) = asked.filter.task.as_ref().filter(|_| listed.is_empty()) {
        is_a_task(session, task_id).await;
    }
    Ok(Exit::Ok)
}

/// Warns of a name that no task has.
async fn is_a_task(session: &Session, task_id: &TaskId) {
    let Err(failure) = session.client.ask(Ask::get(["tasks", task_id.as_str()])).await else { return };
    if failure.exit == Exit::NotFound {
        let failure = near::task(session, failure, task_id.as_str()).await;
        session.warn(&failure);
        failure.hint.iter().for_each(|hint| session.output.hint(hint));
    }
}

async fn cat(session: &Session, asked: &CatFile) -> Result<Exit, Failure> {
    let run_id = whole(session, &asked.run_id).await?;
    let ask = Ask::get(["runs", &run_id, "workspace"]).below(&asked.path);
    let mut pieces = session.client.pieces(ask).await.map_err(|failure| {
        near::or_hint(failure, format!("`tenure runs show {run_id} --files` shows the files there are"))
    })?;
    let mut shown = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        // On a terminal it is shown as text that does not steer it, which is known once it is whole.
        if session.output.is_terminal {
            shown.extend_from_slice(&piece);
        } else {
            session.output.bytes(&piece)?;
        }
    }
    session.output.text(crate::output::plain(&String::from_utf8_lossy(&shown)))?;
    Ok(Exit::Ok)
}

async fn show(session: &Session, asked: &ShowRun) -> Result<Exit, Failure> {
    let run_id = whole(session, &asked.run_id).await?;
    let run_id = run_id.as_str();
    let run = session.client.ask(Ask::get(["runs", run_id])).await?;
    if session.json || session.quiet {
        session.show(&run, "run_id", |_, _| String::new())?;
        return Ok(Exit::Ok);
    }
    let mut parts = vec![run_record(&session.look, &run.value()?)];
    let attempts = session.client.ask(Ask::get(["runs", run_id, "attempts"])).await?.value()?;
    if let Some(attempts) = attempts.as_array().filter(|attempts| !attempts.is_empty()) {
        parts.push(attempts_table(&session.look, attempts));
    }
    if asked.events {
        let events = session.client.ask(Ask::get(["runs", run_id, "events"])).await?.value()?;
        let events = events.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
        let lines: Vec<String> = events.iter().map(|event| event_line_of_run(&session.look, event)).collect();
        parts.push(lines.join("\n"));
    }
    if asked.files {
        let files = session.client.ask(Ask::get(["runs", run_id, "workspace"])).await?.value()?;
        parts.push(files_table(&session.look, &files));
    }
    session.output.line(parts.join("\n\n"))?;
    if asked.files {
        session.tell(format_args!("print a file with `tenure runs cat {run_id} PATH`"));
    } else if matches!(status(&run.value()?), Some(RunStatus::Failed | RunStatus::Timeout)) {
        session.tell(format_args!("what it left: `tenure runs show {run_id} --files`"));
    }
    Ok(Exit::Ok)
}

async fn wait(session: &Session, asked: &WaitRun) -> Result<Exit, Failure> {
    let run_id = whole(session, &asked.run_id).await?;
    let settled = settle(session, &run_id, asked.patience.limit()).await?;
    show_settled(session, &settled)
}

async fn cancel(session: &Session, asked: &CancelRuns) -> Result<Exit, Failure> {
    if !asked.run_ids.is_empty() {
        for run_id in &asked.run_ids {
            let run_id = whole(session, run_id).await?;
            let ask = Ask::post(["runs", &run_id, "cancel"]).json(asked.how().to_string());
            let answer = session.client.ask(ask).await?;
            session.show(&answer, "run_id", run_line)?;
            if status(&answer.value()?).is_some_and(|now| now.is_terminal() && now != RunStatus::Cancelled) {
                session.tell("it had ended already: nothing was changed");
            }
        }
        return Ok(Exit::Ok);
    }
    let body = asked.filter.body(asked.how());
    let answer = session.client.ask(Ask::post(["runs", "cancel"]).json(body.to_string())).await?;
    if session.json {
        session.output.line(answer.body.trim_end())?;
    } else {
        let met = answer.value()?;
        session.tell(what_was_met(&met));
    }
    Ok(Exit::Ok)
}

/// `1 run was cancelled, 2 runs were asked to stop`.
fn what_was_met(met: &Value) -> String {
    let told = [("ended", "cancelled"), ("requested", "asked to stop")].map(|(name, what)| {
        let n = met[name].as_u64().unwrap_or(0);
        let (runs, were) = if n == 1 { ("run", "was") } else { ("runs", "were") };
        (n > 0).then(|| format!("{n} {runs} {were} {what}"))
    });
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() {
        "nothing was cancelled: no run matches that has not ended".to_owned()
    } else {
        told.join(", ")
    }
}

impl CancelRuns {
    /// How insistently, by whom, and why.
    fn how(&self) -> Value {
        let by = self.by.clone().unwrap_or_else(crate::who::this_user);
        let mut body = json!({ "mode": if self.force { "force" } else { "cooperative" }, "by": by });
        if let Some(reason) = &self.reason {
            body["reason"] = reason.as_str().into();
        }
        body
    }
}

async fn retry(session: &Session, asked: &RetryRun) -> Result<Exit, Failure> {
    let mut body = json!({});
    if let Some(query) = &asked.query {
        body["query"] = text_or_stdin(query)?.into();
    }
    let run_id = whole(session, &asked.run_id).await?;
    let ask = Ask::post(["runs", &run_id, "retry"]).json(body.to_string());
    let answer = session.client.ask(ask).await.map_err(|failure| {
        in_another_state(failure, || {
            format!("wait for its end with `tenure runs wait {run_id}`, or cancel it")
        })
    })?;
    if !asked.wait {
        session.show(&answer, "run_id", run_line)?;
        return Ok(wanted(&answer.value()?));
    }
    let run_id = named(&answer)?;
    show_settled(session, &settle(session, &run_id, asked.patience.limit()).await?)
}

fn named(answer: &Answer) -> Result<String, Failure> {
    let value = answer.value()?;
    let run_id = value.get("run_id").and_then(Value::as_str);
    Ok(run_id.unwrap_or_default().to_owned())
}

async fn resume(session: &Session, asked: &ResumeRun) -> Result<Exit, Failure> {
    let approved = asked.approve;
    let body = match &asked.answer {
        // As it was written, so that no digit is lost; what is no JSON is text.
        Some(answer) if serde_json::from_str::<&RawValue>(answer).is_ok() => {
            format!("{{\"approved\":{approved},\"answer\":{answer}}}")
        }
        Some(answer) => json!({ "approved": approved, "answer": answer }).to_string(),
        None => json!({ "approved": approved }).to_string(),
    };
    let run_id = whole(session, &asked.run_id).await?;
    let answer = session.client.ask(Ask::post(["runs", &run_id, "resume"]).json(body)).await;
    let answer = answer.map_err(|failure| {
        in_another_state(failure, || {
            "`tenure runs list --status awaiting_approval` shows the runs that wait for a person; \
             a paused task is resumed with `tenure tasks resume TASK`"
                .to_owned()
        })
    })?;
    session.show(&answer, "run_id", run_line)?;
    Ok(Exit::Ok)
}

/// What to do about a run that does not stand where it has to.
fn in_another_state(failure: Failure, hint: impl FnOnce() -> String) -> Failure {
    if failure.exit == Exit::Conflict && failure.hint.is_none() { failure.hint(hint()) } else { failure }
}
