//! Reads of one record, one run, one lane. Pages are in [`super::list`].

use std::sync::Arc;

use mongodb::bson::{Document, doc};

use super::doc::{self, Fields as _, queue, signed, status};
use super::fault::{Fault, Step};
use super::link::{ALL, Ask, Db, META_ID, Tx, name};
use super::load::lane as lane_row;
use super::{prune, told};
use crate::model::{
    AgentId, Attempt, Event, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId, Timestamp, Trigger,
};
use crate::store::{Agenda, LaneRun, LaneView};

/// How many runs of a lane are shown.
const LANE_SHOWN: usize = 100;

/// The newest cursor.
pub(super) async fn newest_cursor(db: &Db) -> Step<u64> {
    let found = db.find(name::META, doc! { "_id": META_ID }, Ask::all()).await?;
    found.first().map_or(Ok(0), |meta| meta.unsigned("cursor"))
}

/// When something is due next, of one snapshot.
pub(super) async fn agenda(db: Arc<Db>) -> Step<Agenda> {
    let now = db.now().await?;
    let mut tx = Tx::begin(&db).await?;
    let found = look_ahead(&mut tx, now).await;
    tx.done(found).await
}

async fn look_ahead(tx: &mut Tx, now: Timestamp) -> Step<Agenda> {
    let schedule =
        first(tx, name::TASKS, ("fire", "at"), doc! { "fire.at": since_ever() }, "fire.at").await?;
    let future = doc! { "w.q": queue::FUTURE, "w.a": "", "w.p": 0_i64, "w.d": since_ever() };
    let run = first(tx, name::RUNS, ("w", "d"), future, "w.d").await?;
    let wake = first(tx, name::RUNS, ("k", "at"), doc! { "k.at": since_ever() }, "k.at").await?;
    let ask = Ask::all().limit(1).only(doc! { "_id": 1 });
    let ready = !tx.find(name::RUNS, doc! { "w.q": queue::READY }, ask).await?.is_empty();
    Ok(Agenda { now, schedule, run, wake, ready: ready || run.is_some_and(|due_at| due_at <= now) })
}

/// Every time that there is: it keeps a query to the index of those who have one.
fn since_ever() -> Document {
    doc! { "$gte": i64::MIN }
}

/// The first time of a field within a field.
async fn first(
    tx: &mut Tx,
    name: &str,
    (outer, inner): (&str, &str),
    filter: Document,
    sort: &str,
) -> Step<Option<Timestamp>> {
    let ask = Ask::sort(doc! { sort: 1 }).limit(1).only(doc! { sort: 1 });
    let found = tx.find(name, filter, ask).await?;
    let Some(found) = found.first().and_then(|found| found.get_document(outer).ok()) else { return Ok(None) };
    found.at(inner).map(Some)
}

/// A task and its schedule.
pub(super) async fn task(db: &Db, task_id: &TaskId) -> Step<Option<(Task, ScheduleState)>> {
    let found = db.find(name::TASKS, doc! { "_id": task_id.as_str() }, Ask::all()).await?;
    found.first().map(told::to_task).transpose()
}

/// Schedules whose time has come, the longest overdue first. One that cannot be read is left out.
pub(super) async fn due_schedules(db: &Db, most: usize) -> Step<Vec<(Task, ScheduleState)>> {
    let now = db.now().await?.ms();
    let order = |task: &Document| -> Step<(i64, String)> {
        let fire = task.get_document("fire").map_err(|_| doc::unreadable("it does not fire"))?;
        Ok((fire.number("at")?, fire.word("id")?.to_owned()))
    };
    due(db, name::TASKS, "fire", now, (i64::MIN, String::new()), most, told::to_task, order).await
}

/// Runs that somebody has to look at. One that cannot be read is left out.
pub(super) async fn due_runs(db: &Db, after: Option<(Timestamp, RunId)>, most: usize) -> Step<Vec<Run>> {
    let now = db.now().await?.ms();
    let from = after.map_or((i64::MIN, String::new()), |(from, id)| (from.ms(), id.to_string()));
    let order = |run: &Document| -> Step<(i64, String)> {
        let wake = run.get_document("k").map_err(|_| doc::unreadable("nobody has to look at it"))?;
        Ok((wake.number("at")?, wake.word("id")?.to_owned()))
    };
    due(db, name::RUNS, "k", now, from, most, |run| Ok(doc::to_run(run)?.1), order).await
}

/// What has come, after a place in the order of times and names.
#[allow(clippy::too_many_arguments, reason = "one query for two collections")]
async fn due<T>(
    db: &Db,
    name: &str,
    field: &str,
    now: i64,
    mut from: (i64, String),
    most: usize,
    read: impl Fn(&Document) -> Step<T>,
    order: impl Fn(&Document) -> Step<(i64, String)>,
) -> Step<Vec<T>> {
    let (at, id) = (format!("{field}.at"), format!("{field}.id"));
    let mut found = Vec::new();
    while found.len() < most {
        let asked = most - found.len();
        let ask = Ask::sort(doc! { at.as_str(): 1, id.as_str(): 1 }).limit(asked);
        let later = doc! { at.as_str(): { "$gt": from.0, "$lt": now.saturating_add(1) } };
        let same = doc! { at.as_str(): from.0, id.as_str(): { "$gt": from.1.as_str() } };
        // Those of the same time first, each by the index.
        let mut page = if from.0 <= now { db.find(name, same, ask.clone()).await? } else { Vec::new() };
        if page.len() < asked {
            page.extend(db.find(name, later, ask.limit(asked - page.len())).await?);
        }
        for document in &page {
            from = order(document)?;
            match read(document) {
                Ok(one) => found.push(one),
                Err(Fault::Unreadable(why)) => tracing::error!(why, "a record that is due cannot be read"),
                Err(fault) => return Err(fault),
            }
        }
        if page.len() < asked {
            break;
        }
    }
    Ok(found)
}

/// A run.
pub(super) async fn run(db: &Db, run_id: &RunId) -> Step<Option<Run>> {
    one(db, doc! { "_id": run_id.as_str() }).await
}

/// The run of an idempotency key.
pub(super) async fn run_by_key(db: &Db, task_id: &TaskId, key: &str) -> Step<Option<Run>> {
    one(db, doc! { "key": doc::key(task_id.as_str(), key) }).await
}

async fn one(db: &Db, filter: Document) -> Step<Option<Run>> {
    let found = db.find(name::RUNS, filter, Ask::all()).await?;
    found.first().map(|run| Ok(doc::to_run(run)?.1)).transpose()
}

/// The attempts of a run.
pub(super) async fn attempts(db: &Db, run_id: &RunId) -> Step<Vec<Attempt>> {
    let filter = doc! { "of": run_id.as_str() };
    let found = db.find(name::ATTEMPTS, filter, Ask::sort(doc! { "no": 1 })).await?;
    found.iter().map(told::to_attempt).collect()
}

/// Events in order.
pub(super) async fn events(db: &Db, subject: &Subject, after: u64, most: usize) -> Step<Vec<Event>> {
    if most == 0 {
        return Ok(Vec::new());
    }
    // No number of ours is that high.
    let after = if after > i64::MAX.unsigned_abs() { i64::MAX } else { signed(after) };
    let (filter, ask) = match subject {
        Subject::All => (doc! { "_id": { "$gt": after } }, Ask::sort(doc! { "_id": 1 }).by_id()),
        Subject::Run(run_id) => (of(told::of_run(run_id.as_str()), after), Ask::sort(doc! { "q": 1 })),
        Subject::Task(task_id) => (of(told::of_named(task_id.as_str()), after), Ask::sort(doc! { "q": 1 })),
    };
    db.find(name::EVENTS, filter, ask.limit(most)).await?.iter().map(told::to_event).collect()
}

fn of(whose: String, after: i64) -> Document {
    doc! { "of": whose, "q": { "$gt": after } }
}

/// A lane as it stands, of one snapshot.
pub(super) async fn lane(db: Arc<Db>, lane: &str) -> Step<LaneView> {
    let mut tx = Tx::begin(&db).await?;
    let found = look_into(&mut tx, lane).await;
    tx.done(found).await
}

async fn look_into(tx: &mut Tx, lane: &str) -> Step<LaneView> {
    let found = tx.find(name::LANES, doc! { "_id": lane }, Ask::all()).await?;
    let Some(row) = found.first() else { return Ok(LaneView::default()) };
    let row = lane_row(row)?;
    let ask = Ask::sort(doc! { "l.n": 1 }).limit(LANE_SHOWN).only(doc! { "s": 1, "spec": 1 });
    let active = tx.find(name::RUNS, doc! { "l.in": lane }, ask).await?;
    let ask = Ask::sort(doc! { "o.n": 1 }).limit(1).only(doc! { "_id": 1 });
    let scheduled = tx.find(name::RUNS, doc! { "o.in": lane }, ask).await?;
    let id = |run: &Document| -> Step<RunId> {
        RunId::new(run.word("_id")?).map_err(|invalid| doc::unreadable(invalid.to_string()))
    };
    let shown = |run: &Document| -> Step<LaneRun> {
        let spec: Shown = doc::parsed("the specification", run.word("spec")?)?;
        Ok(LaneRun { run_id: id(run)?, status: status(run.number("s")?)?, trigger: spec.trigger })
    };
    Ok(LaneView {
        version: row.version,
        active: active.iter().map(shown).collect::<Step<_>>()?,
        total: row.total,
        scheduled_waiting: scheduled.first().map(id).transpose()?,
    })
}

/// The part of a specification that a lane shows.
#[derive(serde::Deserialize)]
struct Shown {
    trigger: Trigger,
}

/// How many runs there are by status.
pub(super) async fn counts(db: &Db, task_id: Option<&TaskId>) -> Step<Vec<(RunStatus, u64)>> {
    let id = task_id.map_or(ALL, TaskId::as_str);
    let found = db.find(name::COUNTERS, doc! { "_id": id }, Ask::all()).await?;
    found.first().map_or(Ok(Vec::new()), prune::counts)
}

/// What is said of agents, by name. One that cannot be read is left out.
pub(super) async fn agents(db: &Db) -> Step<Vec<(AgentId, Arc<str>)>> {
    let found = db.find(name::AGENTS, Document::new(), Ask::sort(doc! { "_id": 1 }).by_id()).await?;
    let mut agents = Vec::new();
    for agent in &found {
        match (agent.word("_id").map(AgentId::new), agent.word("text")) {
            (Ok(Ok(agent_id)), Ok(text)) => agents.push((agent_id, text.into())),
            _ => tracing::error!("what is said of an agent cannot be read"),
        }
    }
    Ok(agents)
}
