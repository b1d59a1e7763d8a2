//! Events: of a run, or of all; as a list, or as a stream that goes on where a reader left off.

use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::Instant;

use super::limits::{self, within};
use super::names::Named;
use super::problem::{Answer, Problem};
use super::query::{Words, number, shown};
use super::stream::{Stream, Watched};
use super::text::Only;
use super::{Api, accept, answer, pages, schemas};
use crate::model::{Event, RunId, Subject, TaskId};
use crate::view::EventView;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// How many events a list has when nothing is said: all of nearly every run.
const PAGE: usize = 1_000;

/// How many events are read at once, before it is known how large they are.
const AT_ONCE: usize = 200;
/// About how many bytes an event takes besides what is particular.
const EVENT_BYTES: usize = 512;

/// How many events are looked at for those that are to be told, for one list, and for how long: who gets fewer goes on
/// from the cursor that it is given.
const MOST_LOOKED_AT: usize = 10_000;
const LOOK_TIME: Duration = Duration::from_millis(25);

#[derive(Serialize)]
struct OfRun<'a> {
    run_id: &'a RunId,
    events: Vec<EventView>,
    count: usize,
    more: bool,
}

#[derive(Serialize)]
struct OfAll {
    events: Vec<EventView>,
    count: usize,
    cursor: u64,
    more: bool,
}

/// What is asked of events.
pub(super) struct Asked {
    after: Option<u64>,
    only: Option<Only>,
    limit: usize,
    stream: bool,
}

impl Asked {
    fn of_run(api: &Api, parts: &Parts) -> Result<Self, Problem> {
        Self::read(api, parts, Words::of(parts)?)
    }

    fn of_all(api: &Api, parts: &Parts) -> Result<Self, Problem> {
        let mut words = Words::of(parts)?;
        let only = words.name("task_id", TaskId::new).map(Only::Task);
        Ok(Self::read(api, parts, words)?.only(only))
    }

    /// The same, of some of all events.
    pub(super) fn only(self, only: Option<Only>) -> Self {
        Self { only, ..self }
    }

    pub(super) fn read(api: &Api, parts: &Parts, mut words: Words) -> Result<Self, Problem> {
        let stream = accept::choose(&parts.headers, &[JSON, STREAM])? == STREAM;
        let most = api.options().max_page;
        let after = words.one("after", number);
        let limit = words.limit(most).unwrap_or(PAGE.min(most));
        words.done()?;
        // A browser that connects again asks with the address of the first time.
        let after = if stream { last_event_id(&parts.headers)?.or(after) } else { after };
        Ok(Self { after, only: None, limit, stream })
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let text = String::from_utf8_lossy(id.as_bytes());
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Problem::field("Last-Event-ID", format!("the id of an event, found {}", shown(text)))
        }),
    }
}

/// The events of a run, in order
///
/// As `text/event-stream`, if that is accepted: the events after `Last-Event-ID` (or `after`), then those that come,
/// until the run has ended. 204 when there is nothing to come: the run has ended, and its last event was seen.
#[utoipa::path(get, path = "/background/runs/{run_id}/events", tag = "events", operation_id = "run_events",
    params(
        ("run_id" = String, Path, description = "the run"),
        schemas::EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "the number of the last event that was seen"),
    ),
    responses(
        (status = 200, content((schemas::RunEvents = "application/json"), (String = "text/event-stream"))),
        (status = 204, description = "a stream has nothing more to tell"),
        (status = 406, description = "neither media type is accepted", body = schemas::Problem),
    ))]
pub(super) async fn of_run(State(api): State<Api>, parts: Parts, Named(run_id): Named<RunId>) -> Answer {
    let asked = Asked::of_run(&api, &parts)?;
    let run = within(&api, api.tenure().run(&run_id)).await?;
    let after = asked.after.unwrap_or(0);
    let subject = Subject::Run(run_id.clone());
    if asked.stream {
        if run.status.is_terminal() && after >= run.last_event {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        return stream(&api, Watched { subject, only: None }, Some(after)).await;
    }
    let (events, more) = within(&api, read(&api, subject, after, asked.limit)).await?;
    answer::ok(&OfRun { run_id: &run_id, count: events.len(), more, events: views(&events) })
}

/// All events of the store, in order
///
/// As `text/event-stream`, if that is accepted: those after `Last-Event-ID` (or `after`), or, without either, those
/// that come from now on.
#[utoipa::path(get, path = "/background/events", tag = "events", operation_id = "all_events",
    params(
        schemas::EventQuery,
        ("task_id" = Option<String>, Query, description = "of this task and its runs"),
        ("Last-Event-ID" = Option<u64>, Header, description = "the cursor of the last event that was seen"),
    ),
    responses(
        (status = 200, content((schemas::AllEvents = "application/json"), (String = "text/event-stream"))),
        (status = 406, description = "neither media type is accepted", body = schemas::Problem),
    ))]
pub(super) async fn of_all(State(api): State<Api>, parts: Parts) -> Answer {
    told(&api, Asked::of_all(&api, &parts)?).await
}

/// All events that are asked for, as a list or as a stream.
pub(super) async fn told(api: &Api, asked: Asked) -> Answer {
    if asked.stream {
        return stream(api, Watched { subject: Subject::All, only: asked.only }, asked.after).await;
    }
    let found = match &asked.only {
        Some(only) => some(api, only, &asked).await?,
        None => page(api, asked.after.unwrap_or(0), asked.limit).await?,
    };
    answer::ok(&found)
}

/// Events after a cursor.
async fn page(api: &Api, after: u64, limit: usize) -> Result<OfAll, Problem> {
    let (events, more) = within(api, read(api, Subject::All, after, limit)).await?;
    Ok(OfAll {
        count: events.len(),
        cursor: events.last().map_or(after, |event| event.cursor),
        more,
        events: views(&events),
    })
}

/// Events after a place, as many as one answer may hold, and whether there may be more.
async fn read(api: &Api, subject: Subject, after: u64, limit: usize) -> Result<(Vec<Event>, bool), Problem> {
    let (mut all, mut after, mut bytes): (Vec<Event>, _, _) = (Vec::new(), after, 0);
    loop {
        let at_once = (limit - all.len()).min(AT_ONCE);
        let events = api.tenure().events(subject.clone(), after, at_once).await?;
        let more = events.len() == at_once;
        bytes += events.iter().map(bytes_of).sum::<usize>();
        all.extend(events);
        if !more || all.len() >= limit || bytes >= pages::MOST_BYTES {
            return Ok((all, more));
        }
        let last = all.last();
        after = last.map_or(after, |last| if subject == Subject::All { last.cursor } else { last.sequence });
    }
}

/// About what an event takes in an answer.
fn bytes_of(event: &Event) -> usize {
    let data = if event.data.is_null() { 0 } else { event.data.to_string().len() };
    EVENT_BYTES + data
}

/// Some of them, found among all: no store knows them by their task.
async fn some(api: &Api, only: &Only, asked: &Asked) -> Result<OfAll, Problem> {
    let mut found = OfAll { events: Vec::new(), count: 0, cursor: asked.after.unwrap_or(0), more: true };
    let (mut looked_at, until) = (0, Instant::now() + LOOK_TIME);
    while found.more
        && found.count < asked.limit
        && looked_at < MOST_LOOKED_AT
        && (looked_at == 0 || Instant::now() < until)
    {
        let events = within(api, api.tenure().events(Subject::All, found.cursor, PAGE)).await?;
        found.more = events.len() == PAGE;
        looked_at += events.len();
        for event in &events {
            if found.count == asked.limit {
                found.more = true;
                break;
            }
            found.cursor = event.cursor;
            if only.meets(&event.task_id) {
                found.events.push(EventView::from(event));
                found.count += 1;
            }
        }
    }
    Ok(found)
}

fn views(events: &[Event]) -> Vec<EventView> {
    events.iter().map(EventView::from).collect()
}

async fn stream(api: &Api, watched: Watched, after: Option<u64>) -> Result<Response, Problem> {
    let most = api.options().max_streams;
    let place = api.streams().enter(most).ok_or_else(|| limits::full("event streams are open", most))?;
    let open = async { Ok::<_, Problem>(Stream::open(api, watched, after, place).await) };
    Ok(within(api, open).await?.into_response())
}
