//! `tenure events`.

use serde_json::Value;
use tenure::model::{RunId, RunStatus, TaskId};

use super::common::{Common, Need, Session, run_id, task_id};
use super::near;
use super::settle::status;
use crate::args::Global;
use crate::client::Ask;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::render::event_line;

/// What happened, and what happens
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tenure events --limit 20\n  \
    tenure events --follow --task nightly-report\n  \
    tenure events --run 019c2f6e8d5a7c31a0b4 --json")]
pub(crate) struct Events {
    /// Go on with what happens, until interrupted
    #[arg(long, short = 'f')]
    follow: bool,
    /// Of this run
    #[arg(long, value_name = "RUN", value_parser = run_id, conflicts_with = "task")]
    run: Option<RunId>,
    /// Of this task and its runs
    #[arg(long, value_name = "TASK", value_parser = task_id)]
    task: Option<TaskId>,
    /// Only those after this number: of a run its own, else the cursor of all events
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// The most events
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    limit: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// How many events of a task are shown when nothing is said.
const MOST: usize = 1_000;

pub(super) async fn execute(asked: Events, global: &Global, output: Output) -> Result<Exit, Failure> {
    let session = Session::open(global, &asked.common, output, Need::Existing).await?;
    let done = if asked.follow { follow(&session, &asked).await } else { read(&session, &asked).await };
    session.close().await;
    done.map_err(|failure| match &asked.run {
        Some(_) if failure.exit == Exit::NotFound => near::run(failure),
        _ => failure,
    })
}

impl Events {
    fn ask(&self) -> Ask {
        match &self.run {
            Some(run_id) => Ask::get(["runs", run_id.as_str(), "events"]),
            None => Ask::get(["events"]).queries("task_id", &self.task),
        }
    }
}

async fn read(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    if asked.task.is_none() {
        let ask = asked.ask().queries("after", asked.after).queries("limit", asked.limit);
        let answer = session.client.ask(ask).await?;
        if session.json {
            session.output.line(answer.body.trim_end())?;
            return Ok(Exit::Ok);
        }
        let page = answer.value()?;
        entries(&page).iter().try_for_each(|event| show(session, event))?;
        if page.get("more") == Some(&Value::Bool(true)) {
            let place = if asked.run.is_some() { "sequence" } else { "cursor" };
            let last = entries(&page).last().map_or(&Value::Null, |event| &event[place]);
            session.tell(format_args!("there are more; go on with --after {last}"));
        }
        return Ok(Exit::Ok);
    }
    of_task(session, asked).await
}

/// Page after page of those of a task: the server looks through a bounded number of events for each.
async fn of_task(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    let mut left = asked.limit.unwrap_or(MOST);
    let mut after = asked.after.unwrap_or(0);
    loop {
        let answer = session.client.ask(asked.ask().query("after", after)).await?;
        let page = answer.value()?;
        for event in entries(&page).iter().take(left) {
            // Read and written again: events hold no digits of users but in their data.
            if session.json {
                session.output.line(event)?
            } else {
                show(session, event)?
            }
            left -= 1;
        }
        after = page.get("cursor").and_then(Value::as_u64).unwrap_or(after);
        if left == 0 || page.get("more") != Some(&Value::Bool(true)) {
            return Ok(Exit::Ok);
        }
    }
}

fn entries(page: &Value) -> &[Value] {
    page.get("events").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

async fn follow(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    let mut messages = session.client.stream(asked.ask().queries("after", asked.after)).await?;
    let mut last = None;
    loop {
        let message = match messages.next().await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(failure) => return Err(go_on(failure, last)),
        };
        if message.is("end") {
            break;
        }
        let Ok(event) = serde_json::from_str::<Value>(&message.data) else { continue };
        if message.is("missed") {
            session.output.note(format_args!("{} events were missed, and follow", event["missed"]));
            continue;
        }
        last = message.id.clone().or(last);
        // One event a line, as it came.
        if session.json {
            session.output.line(message.data.replace('\n', " "))?
        } else {
            show(session, &event)?
        }
    }
    ended(session, asked, last).await
}

/// Of a run that has ended there is nothing more to come; else it is the server that went away.
async fn ended(session: &Session, asked: &Events, last: Option<String>) -> Result<Exit, Failure> {
    if let Some(run_id) = &asked.run {
        let run = session.client.ask(Ask::get(["runs", run_id.as_str()])).await?;
        if status(&run.value()?).is_some_and(RunStatus::is_settled) {
            return Ok(Exit::Ok);
        }
    }
    Err(go_on(Failure::new(Exit::Unavailable, "the server ended the stream of events"), last))
}

fn go_on(failure: Failure, last: Option<String>) -> Failure {
    match last {
        Some(last) => failure.hint(format!("go on with `--after {last}`")),
        None => failure,
    }
}

fn show(session: &Session, event: &Value) -> Result<(), Failure> {
    if session.quiet {
        let name = ["run_id", "task_id"].iter().find_map(|name| event.get(*name)?.as_str());
        return session.output.line(name.unwrap_or_default());
    }
    session.output.line(event_line(&session.look, event))
}
