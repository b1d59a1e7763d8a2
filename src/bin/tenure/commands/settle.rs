//! Waiting for a run, by its events: nothing is asked again and again.

use std::time::Duration;

use serde_json::Value;
use tenure::model::RunStatus;
use tokio::time::timeout;

use super::common::Session;
use crate::client::{Answer, Ask, Messages};
use crate::exit::{Exit, Failure};
use crate::render::{event_line_of_run, run_line};
use crate::when;

/// How long a run is waited for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Patience {
    /// Wait no longer than this; the run goes on
    #[arg(long, value_name = "LENGTH", value_parser = when::length)]
    timeout: Option<Duration>,
}

impl Patience {
    pub(super) const fn limit(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Waits until a run is over or waits for a person; tells its events meanwhile. Who does not wait only looks.
pub(super) async fn settle(
    session: &Session,
    run_id: &str,
    limit: Option<Duration>,
) -> Result<Answer, Failure> {
    let Some(limit) = limit else { return settled(session, run_id).await };
    if !limit.is_zero()
        && let Ok(settled) = timeout(limit, settled(session, run_id)).await
    {
        return settled;
    }
    let answer = session.client.ask(Ask::get(["runs", run_id])).await?;
    let run = answer.value()?;
    let status = status(&run);
    if status.is_some_and(RunStatus::is_settled) {
        return Ok(answer);
    }
    let status = status.map_or("not settled", RunStatus::as_str).replace('_', " ");
    let message = format!("run \"{run_id}\" is {status} after {limit:?}");
    let again = || format!("it goes on; wait again with `tenure runs wait {run_id}`");
    Err(Failure::new(Exit::Timeout, message).hint(stuck(session, &run).unwrap_or_else(again)))
}

async fn settled(session: &Session, run_id: &str) -> Result<Answer, Failure> {
    // Events are heard from before the look at the run, so that its end cannot fall between.
    let mut events = session.client.stream(Ask::get(["runs", run_id, "events"])).await?;
    let mut told = Told::default();
    loop {
        let run = session.client.ask(Ask::get(["runs", run_id])).await?;
        let now = status(&run.value()?);
        if now.is_some_and(RunStatus::is_settled) {
            return Ok(run);
        }
        if told.ended {
            return Err(Failure::new(Exit::Unavailable, "the server ended the stream of events")
                .hint(format!("the run goes on; wait again with `tenure runs wait {run_id}`")));
        }
        if told.waits || !now.is_some_and(is_queued) {
            told.until_settled(session, &mut events).await?;
            continue;
        }
        match timeout(NORMAL, told.until_settled(session, &mut events)).await {
            Ok(done) => done?,
            Err(_) => told.why_it_waits(session, run_id).await?,
        }
    }
}

/// How long a run usually waits for a host at most.
const NORMAL: Duration = Duration::from_secs(2);

/// What has to be done before a run goes on that waits; none if it goes on by itself, as far as is known.
fn stuck(session: &Session, run: &Value) -> Option<String> {
    if !status(run).is_some_and(is_queued) {
        return None;
    }
    let text = |path: &str| run.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let straight = session.look.straight;
    match text("/waiting/reason/reason") {
        "worker" if straight => {
            Some("no host executes it: start `tenure serve`, or `tenure run FILE TASK`".to_owned())
        }
        "no_agent" => {
            let agent = text("/waiting/reason/agent_id");
            Some(format!("this host does not have agent \"{agent}\": the run waits for one that has"))
        }
        "paused" => {
            let task = text("/task_id");
            Some(format!("its task is paused: resume it with `tenure tasks resume {task}`"))
        }
        _ => None,
    }
}

/// What was told of a run so far.
#[derive(Default)]
struct Told {
    /// The stream has ended.
    ended: bool,
    /// Why it waits.
    waits: bool,
}

impl Told {
    /// Tells why it still waits, once. What only time can change is told to who watches.
    async fn why_it_waits(&mut self, session: &Session, run_id: &str) -> Result<(), Failure> {
        self.waits = true;
        let run = session.client.ask(Ask::get(["runs", run_id])).await?.value()?;
        if let Some(stuck) = stuck(session, &run) {
            session.output.hint(stuck);
        } else if status(&run).is_some_and(is_queued) {
            session.tell(run_line(&session.look, &run));
        }
        Ok(())
    }

    /// Tells what comes until something says that the run may have settled.
    async fn until_settled(&mut self, session: &Session, events: &mut Messages) -> Result<(), Failure> {
        loop {
            let message = events.next().await?;
            let Some(message) = message.filter(|message| !message.is("end")) else {
                self.ended = true;
                return Ok(());
            };
            let Ok(event) = serde_json::from_str::<Value>(&message.data) else { continue };
            let settled = status(&event).is_some_and(RunStatus::is_settled);
            if !settled {
                session.tell(event_line_of_run(&session.look, &event));
            }
            if settled {
                return Ok(());
            }
        }
    }
}

fn is_queued(status: RunStatus) -> bool {
    matches!(status, RunStatus::Queued | RunStatus::Retrying)
}

/// Where a run stands; none for what this program does not know.
pub(super) fn status(value: &Value) -> Option<RunStatus> {
    let word = value.get("status")?.as_str()?;
    RunStatus::ALL.into_iter().find(|status| status.as_str() == word)
}

/// Shows a run that has settled; the exit code says how.
pub(super) fn show_settled(session: &Session, run: &Answer) -> Result<Exit, Failure> {
    session.show(run, "run_id", |look, run| {
        let result = run.get("result_preview").and_then(Value::as_str).unwrap_or_default();
        let line = run_line(look, run);
        let result = crate::output::plain(result.trim_end());
        if result.contains('\n') { format!("{line}\n\n{result}") } else { line }
    })?;
    Ok(status(&run.value()?).map_or(Exit::Failed, Exit::of_run))
}

/// What the exit code says of a run that was asked for and is not waited for.
pub(super) fn wanted(run: &Value) -> Exit {
    if status(run) == Some(RunStatus::Skipped) { Exit::Conflict } else { Exit::Ok }
}
