//! `tenure events`.

use std::collections::VecDeque;

use serde_json::Value;
use tenure::model::{RunId, RunStatus, TaskId};

use super::common::{Common, Need, Session, run_id, task_id};
use super::ids::whole;
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
    tenure events --run 019c2f6e8d5a --json")]
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
    /// From the first after this number on: of a run its own, else the cursor of all events
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// The most events: without --after the newest, 50 if nothing is said; of a run from its first on
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    limit: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// How many events are shown when nothing is said.
const NEWEST: usize = 50;
/// How many, from a place on.
const MOST: usize = 1_000;

pub(super) async fn execute(asked: Events, global: &Global, output: Output) -> Result<Exit, Failure> {
    let session = Session::open(global, &asked.common, output, Need::Existing).await?;
    let mut asked = asked;
    let done = match named(&session, &mut asked).await {
        Ok(()) if asked.follow => follow(&session, &asked).await,
        Ok(()) => read(&session, &asked).await,
        Err(failure) => Err(failure),
    };
    session.close().await;
    done.map_err(|failure| match &asked.run {
        Some(_) if failure.exit == Exit::NotFound => near::run(failure),
        _ => failure,
    })
}

/// Puts the whole name of the run in the place of how it begins.
async fn named(session: &Session, asked: &mut Events) -> Result<(), Failure> {
    if let Some(run_id) = &asked.run {
        asked.run = Some(RunId::new(whole(session, run_id).await?).map_err(tenure::Error::from)?);
    }
    Ok(())
}

impl Events {
    fn ask(&self) -> Ask {
        match &self.run {
            Some(run_id) => Ask::get(["runs", run_id.as_str(), "events"]),
            None => Ask::get(["events"]).queries("task_id", &self.task),
        }
    }

    /// How many of the newest are shown; from a place on, how many at all.
    fn newest(&self) -> usize {
        self.limit.unwrap_or(if self.after.is_some() { MOST } else { NEWEST })
    }

    /// Whether it begins at a place, and not as far from the end as is wanted.
    const fn is_from_a_place(&self) -> bool {
        self.after.is_some() || self.run.is_some()
    }
}

async fn read(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    if asked.task.is_some() {
        return of_task(session, asked).await;
    }
    let after = match asked.after {
        None if asked.run.is_none() => Some(newest(session, asked.newest()).await?),
        after => after,
    };
    let ask = asked.ask().queries("after", after).queries("limit", asked.limit);
    let answer = session.client.ask(ask).await?;
    if session.json {
        session.output.line(answer.body.trim_end())?;
        return Ok(Exit::Ok);
    }
    let page = answer.value()?;
    let mut names = Names::default();
    entries(&page).iter().try_for_each(|event| show(session, event, &mut names))?;
    if page.get("more") == Some(&Value::Bool(true)) && asked.is_from_a_place() {
        let place = if asked.run.is_some() { "sequence" } else { "cursor" };
        let last = entries(&page).last().map_or(&Value::Null, |event| &event[place]);
        session.tell(format_args!("there are more; go on with --after {last}"));
    } else if after.is_some_and(|after| after > 0) && asked.after.is_none() {
        session.tell(rest(entries(&page).len()));
    }
    Ok(Exit::Ok)
}

fn rest(shown: usize) -> String {
    format!("these are the newest {shown} events: more with --limit N, and from the first on with --after 0")
}

/// The place after which there are so many events. Where the last is, is found by asking what lies beyond, each time in
/// half of what is left; then, how far before it, by going back twice as far each time.
async fn newest(session: &Session, most: usize) -> Result<u64, Failure> {
    let last = last(session).await?;
    let mut back = u64::try_from(most).unwrap_or(u64::MAX).max(1);
    loop {
        let from = last.saturating_sub(back);
        let numbers = numbers(session, from, most).await?;
        if from == 0 || numbers.len() > most {
            // One more than wanted: the one before them.
            return Ok(if numbers.len() > most { numbers[0] } else { 0 });
        }
        back = back.saturating_mul(2);
    }
}

/// The number of the last event; 0 if there is none.
async fn last(session: &Session) -> Result<u64, Failure> {
    let (mut last, mut beyond) = (0_u64, 1_u64);
    while let Some(next) = first_after(session, beyond - 1).await? {
        last = next;
        beyond = next.saturating_mul(2);
    }
    while last + 1 < beyond {
        let middle = last + (beyond - last) / 2;
        match first_after(session, middle).await? {
            Some(next) => last = next,
            None => beyond = middle,
        }
    }
    Ok(last)
}

async fn first_after(session: &Session, number: u64) -> Result<Option<u64>, Failure> {
    let ask = Ask::get(["events"]).query("after", number).query("limit", 1);
    let page = session.client.ask(ask).await?.value()?;
    Ok(entries(&page).iter().find_map(|event| event["cursor"].as_u64()).filter(|next| *next > number))
}

/// The numbers of the newest events after this one, at most one more than these.
async fn numbers(session: &Session, mut after: u64, most: usize) -> Result<VecDeque<u64>, Failure> {
    let mut numbers = VecDeque::new();
    loop {
        let page = session.client.ask(Ask::get(["events"]).query("after", after)).await?.value()?;
        numbers.extend(entries(&page).iter().filter_map(|event| event["cursor"].as_u64()));
        numbers.drain(..numbers.len().saturating_sub(most.saturating_add(1)));
        match numbers.back() {
            Some(last) if *last > after && page.get("more") == Some(&Value::Bool(true)) => after = *last,
            _ => return Ok(numbers),
        }
    }
}

/// Page after page of those of a task: the server looks through a bounded number of events for each.
async fn of_task(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    let most = asked.newest();
    let mut found: VecDeque<Value> = VecDeque::new();
    let (mut after, mut left_out) = (asked.after.unwrap_or(0), false);
    loop {
        let mut page = session.client.ask(asked.ask().query("after", after)).await?.value()?;
        after = page.get("cursor").and_then(Value::as_u64).unwrap_or(after);
        let more = page.get("more") == Some(&Value::Bool(true));
        let events =
            page.get_mut("events").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        found.extend(events);
        if asked.after.is_some() && found.len() >= most {
            found.truncate(most);
            break;
        }
        // The newest are wanted: those before them are let go.
        let surplus = found.len().saturating_sub(most);
        left_out |= surplus > 0;
        found.drain(..surplus);
        if !more {
            break;
        }
    }
    let mut names = Names::default();
    for event in &found {
        // Read and written again: events hold no digits of users but in their data.
        if session.json { session.output.line(event)? } else { show(session, event, &mut names)? }
    }
    if left_out {
        session.tell(rest(found.len()));
    }
    Ok(Exit::Ok)
}

fn entries(page: &Value) -> &[Value] {
    page.get("events").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

async fn follow(session: &Session, asked: &Events) -> Result<Exit, Failure> {
    let mut messages = session.client.stream(asked.ask().queries("after", asked.after)).await?;
    let (mut last, mut names) = (None, Names::default());
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
            show(session, &event, &mut names)?
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

/// The names that were printed. Of many the oldest are forgotten, and may be printed again.
#[derive(Default)]
struct Names(VecDeque<String>);

/// How many names are known at once.
const MOST_NAMES: usize = 1_000;

impl Names {
    /// The name of the run that an event is about, else of its task; none if it was printed.
    fn new_of<'a>(&mut self, event: &'a Value) -> Option<&'a str> {
        let name = ["run_id", "task_id"].iter().find_map(|name| event.get(*name)?.as_str())?;
        if self.0.iter().any(|known| known == name) {
            return None;
        }
        if self.0.len() == MOST_NAMES {
            self.0.pop_front();
        }
        self.0.push_back(name.to_owned());
        Some(name)
    }
}

fn show(session: &Session, event: &Value, names: &mut Names) -> Result<(), Failure> {
    if session.quiet {
        return names.new_of(event).map_or(Ok(()), |name| session.output.line(name));
    }
    session.output.line(event_line(&session.look, event))
}
