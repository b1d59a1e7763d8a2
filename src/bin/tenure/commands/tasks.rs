//! `tenure tasks …`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure::model::TaskId;

use super::common::{Common, Need, Session, task_id};
use super::editor;
use super::form::{TaskFlags, change, new_task};
use super::near;
use super::pages::{HowMany, list};
use super::settle::{Patience, settle, show_settled, wanted};
use crate::args::Global;
use crate::client::{Answer, Ask};
use crate::exit::{Exit, Failure};
use crate::given::text_or_stdin;
use crate::output::Output;
use crate::render::{occurrences_table, run_line, task_record, tasks_table};

/// Look at tasks, make and change them
#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// Every task
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  tenure tasks list\n  tenure tasks list --json --all | jq -r '.tasks[].task_id'"
    )]
    List(ListTasks),
    /// A task, how its schedule stands and what became of its runs
    #[command(after_help = "Example:\n  tenure tasks show nightly-report")]
    Show(OneTask),
    /// Make a task
    #[command(after_help = "Examples:\n  \
        tenure tasks add nightly-report --agent reporter --query 'Write the report.' --cron '0 2 * * *'\n  \
        tenure tasks add ping --agent prober --query 'Is it up?' --every 5m --timeout 30s --retries 3\n  \
        tenure tasks add once --agent reporter --query - --at 'tomorrow 09:00' <question.txt\n  \
        tenure tasks add --file task.toml")]
    Add(AddTask),
    /// Change some fields of a task; the others stay as they are
    #[command(after_help = "Examples:\n  \
        tenure tasks edit nightly-report --cron '0 3 * * *' --timezone Europe/Berlin\n  \
        tenure tasks edit ping --retries 5 --no-timeout\n  \
        tenure tasks edit ping --editor")]
    Edit(EditTask),
    /// Run a task now; its overlap policy decides what becomes of that
    #[command(after_help = "Examples:\n  \
        tenure tasks run nightly-report\n  \
        tenure tasks run nightly-report --wait --timeout 10m\n  \
        tenure tasks run nightly-report --query 'Only the disk, please.' --key once-today")]
    Run(RunTask),
    /// Stop dispatching a task: its schedule does not fire, what is queued waits
    #[command(after_help = "Example:\n  tenure tasks pause nightly-report")]
    Pause(OneTask),
    /// Dispatch a task again; what its schedule missed follows its misfire policy
    #[command(after_help = "Example:\n  tenure tasks resume nightly-report")]
    Resume(OneTask),
    /// Delete a task: what is queued is cancelled, what runs is cancelled or kept
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  \
            tenure tasks delete nightly-report\n  tenure tasks delete nightly-report --keep-running"
    )]
    Delete(DeleteTask),
    /// What became of the instants that the schedule of a task named, and what comes next
    #[command(after_help = "Example:\n  tenure tasks occurrences nightly-report --next 3 --limit 10")]
    Occurrences(Occurrences),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListTasks {
    #[command(flatten)]
    how_many: HowMany,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneTask {
    /// The task
    #[arg(value_name = "TASK", value_parser = task_id)]
    task_id: TaskId,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddTask {
    /// Its name; letters, digits, `_`, `.` and `-`
    #[arg(value_name = "TASK", value_parser = task_id, required_unless_present = "file")]
    task_id: Option<TaskId>,
    /// Read the task from a file in JSON or TOML, `-` for JSON on standard input; flags win over it
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    flags: Box<TaskFlags>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EditTask {
    /// The task
    #[arg(value_name = "TASK", value_parser = task_id)]
    task_id: TaskId,
    /// Read the fields that change from a file in JSON or TOML; flags win over it
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<String>,
    /// Write its fields to a file, and open that in your editor: what VISUAL or EDITOR names
    #[arg(long, short = 'e', conflicts_with = "file")]
    editor: bool,
    #[command(flatten)]
    flags: Box<TaskFlags>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunTask {
    /// The task
    #[arg(value_name = "TASK", value_parser = task_id)]
    task_id: TaskId,
    /// Ask this and not what the task says; `-` for standard input
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// The same key gives the same run, however often it is asked for
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Run it though the task is paused
    #[arg(long)]
    override_pause: bool,
    /// Wait until it has settled; the exit code says how
    #[arg(long, short = 'w')]
    wait: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteTask {
    /// The task
    #[arg(value_name = "TASK", value_parser = task_id)]
    task_id: TaskId,
    /// Let those of its runs go on that execute
    #[arg(long)]
    keep_running: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Occurrences {
    /// The task
    #[arg(value_name = "TASK", value_parser = task_id)]
    task_id: TaskId,
    #[command(flatten)]
    how_many: HowMany,
    /// How many that are to come; --limit is for those that were
    #[arg(long, value_name = "N", default_value_t = 5)]
    next: u32,
    #[command(flatten)]
    common: Common,
}

impl Tasks {
    const fn common(&self) -> &Common {
        match self {
            Self::List(asked) => &asked.common,
            Self::Show(asked) | Self::Pause(asked) | Self::Resume(asked) => &asked.common,
            Self::Add(asked) => &asked.common,
            Self::Edit(asked) => &asked.common,
            Self::Run(asked) => &asked.common,
            Self::Delete(asked) => &asked.common,
            Self::Occurrences(asked) => &asked.common,
        }
    }

    /// The task it is about, if there must be one.
    const fn task_id(&self) -> Option<&TaskId> {
        match self {
            Self::Show(asked) | Self::Pause(asked) | Self::Resume(asked) => Some(&asked.task_id),
            Self::Edit(asked) => Some(&asked.task_id),
            Self::Run(asked) => Some(&asked.task_id),
            Self::Delete(asked) => Some(&asked.task_id),
            Self::Occurrences(asked) => Some(&asked.task_id),
            Self::List(_) | Self::Add(_) => None,
        }
    }
}

pub(super) async fn execute(asked: Tasks, global: &Global, output: Output) -> Result<Exit, Failure> {
    let need = if matches!(asked, Tasks::Add(_)) { Need::Any } else { Need::Existing };
    let session = Session::open(global, asked.common(), output, need).await?;
    let done = act(&session, &asked).await;
    let done = match (done, asked.task_id()) {
        (Err(failure), Some(task_id)) if failure.exit == Exit::NotFound => {
            Err(near::task(&session, failure, task_id.as_str()).await)
        }
        (done, _) => done,
    };
    session.close().await;
    done
}

async fn act(session: &Session, asked: &Tasks) -> Result<Exit, Failure> {
    match asked {
        Tasks::List(asked) => {
            let listed = list(session, Ask::get(["tasks"]), "tasks", &asked.how_many).await?;
            listed.show(session, "task_id", tasks_table)?;
        }
        Tasks::Show(asked) => show(session, &asked.task_id).await?,
        Tasks::Add(asked) => add(session, asked).await?,
        Tasks::Edit(asked) => edit(session, asked).await?,
        Tasks::Run(asked) => return run(session, asked).await,
        Tasks::Pause(asked) => switch(session, &asked.task_id, "pause", "paused").await?,
        Tasks::Resume(asked) => switch(session, &asked.task_id, "resume", "resumed").await?,
        Tasks::Delete(asked) => delete(session, asked).await?,
        Tasks::Occurrences(asked) => {
            let ask = Ask::get(["tasks", asked.task_id.as_str(), "occurrences"]).query("next", asked.next);
            let listed = list(session, ask, "past", &asked.how_many).await?;
            let next = listed.field("next");
            listed.show(session, "due_at", |look, past| occurrences_table(look, past, &next))?;
        }
    }
    Ok(Exit::Ok)
}

async fn show(session: &Session, task_id: &TaskId) -> Result<(), Failure> {
    let task = session.client.ask(Ask::get(["tasks", task_id.as_str()])).await?;
    if session.json || session.quiet {
        return session.show(&task, "task_id", |_, _| String::new());
    }
    let status = session.client.ask(Ask::get(["tasks", task_id.as_str(), "status"])).await?.value()?;
    session.show(&task, "task_id", |look, task| task_record(look, task, &status))
}

async fn add(session: &Session, asked: &AddTask) -> Result<(), Failure> {
    let body = new_task(session, asked.task_id.as_ref(), asked.file.as_deref(), &asked.flags)?;
    let answer = session.client.ask(Ask::post(["tasks"]).json(body)).await?;
    changed(session, &answer, "made").await
}

/// Tells what was taken, and is likely to be wrong.
fn warn(session: &Session, stored: &Answer) -> Result<(), Failure> {
    let stored = stored.value()?;
    let warnings = stored.get("warnings").and_then(Value::as_array).into_iter().flatten();
    for message in warnings.filter_map(|warning| warning.get("message")?.as_str()) {
        session.warn(crate::output::plain(message));
    }
    Ok(())
}

async fn edit(session: &Session, asked: &EditTask) -> Result<(), Failure> {
    let task_id = asked.task_id.as_str();
    // What is changed within a policy leaves the rest of the policy as it is.
    let current = session.client.ask(Ask::get(["tasks", task_id])).await?;
    if asked.editor {
        if *asked.flags != TaskFlags::default() {
            return Err(Failure::usage("--editor: expected no other field, as the editor has them all")
                .hint("leave out --editor to change just these"));
        }
        let Some(answer) = editor::edit(session, &asked.task_id, &current).await? else {
            session.tell("nothing was changed");
            return Ok(());
        };
        return changed(session, &answer, "changed").await;
    }
    let body = change(session, &current, asked.file.as_deref(), &asked.flags)?;
    let answer = session.client.ask(Ask::patch(["tasks", task_id]).json(body)).await?;
    changed(session, &answer, "changed").await
}

/// Shows a task as it is now, and says what is likely to be wrong with it.
async fn changed(session: &Session, answer: &Answer, what: &str) -> Result<(), Failure> {
    if session.json || session.quiet {
        session.show(answer, "task_id", |_, _| String::new())?;
    } else {
        let task = answer.value()?;
        let task_id = task.get("task_id").and_then(Value::as_str).unwrap_or_default();
        let status = session.client.ask(Ask::get(["tasks", task_id, "status"])).await?.value()?;
        session.show(answer, "task_id", |look, task| {
            format!("task {what}\n\n{}", task_record(look, task, &status))
        })?;
    }
    warn(session, answer)
}

async fn run(session: &Session, asked: &RunTask) -> Result<Exit, Failure> {
    let mut body = json!({});
    if let Some(query) = &asked.query {
        body["query"] = text_or_stdin(query)?.into();
    }
    if asked.override_pause {
        body["override_pause"] = true.into();
    }
    let mut ask = Ask::post(["tasks", asked.task_id.as_str(), "run"]).json(body.to_string());
    if let Some(key) = &asked.key {
        ask = ask.header("idempotency-key", key);
    }
    let answer = session.client.ask(ask).await?;
    if !asked.wait {
        session.show(&answer, "run_id", run_line)?;
        return Ok(wanted(&answer.value()?));
    }
    let run = answer.value()?;
    let run_id = run.get("run_id").and_then(Value::as_str).unwrap_or_default();
    session.tell(run_line(&session.look, &run));
    let settled = settle(session, run_id, asked.patience.limit()).await?;
    show_settled(session, &settled)
}

async fn switch(session: &Session, task_id: &TaskId, verb: &str, done: &str) -> Result<(), Failure> {
    let answer = session.client.ask(Ask::post(["tasks", task_id.as_str(), verb])).await?;
    told(session, &answer, task_id, done)
}

async fn delete(session: &Session, asked: &DeleteTask) -> Result<(), Failure> {
    let running = if asked.keep_running { "keep" } else { "cancel" };
    let ask = Ask::delete(["tasks", asked.task_id.as_str()]).query("running", running);
    // Many runs may have to be cancelled first.
    let answer = session.client.ask(ask.patient_for(Duration::from_secs(600))).await?;
    told(session, &answer, &asked.task_id, "deleted")
}

fn told(session: &Session, answer: &Answer, task_id: &TaskId, done: &str) -> Result<(), Failure> {
    if session.json {
        return session.output.line(answer.body.trim_end());
    }
    if session.quiet {
        session.output.line(task_id)
    } else {
        session.output.line(format_args!("task {task_id}: {done}"))
    }
}
