//! Reads of one record, one run, one lane; pages are in [`super::list`].

use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, Rows, params};
use serde_json::Value;

use super::body::Tried;
use super::commit::{EVENT_FORM, LIFE};
use super::fault::{Fault, Step};
use super::hot::columns;
use super::pack::Unpack;
use super::row::{self, Loaded, SPECS, Stored, at, parsed, status, trigger, unreadable, unsigned};
use super::tx::task_number;
use crate::model::{
    AgentId, Attempt, Event, EventKind, InstanceId, Run, RunId, RunStatus, SchedulePlace, ScheduleState,
    Subject, Task, TaskId, TaskSpec, Timestamp,
};
use crate::store::{Agenda, LaneRun, LaneView};

/// How many runs of a lane are shown.
const SHOWN: i64 = 100;

/// When something is due next.
pub(super) fn agenda(conn: &Connection, now: Timestamp) -> Step<Agenda> {
    let first = |sql: &str| -> Step<Option<Timestamp>> {
        let ms: Option<i64> = conn.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        Ok(ms.map(at))
    };
    let run = first(NEXT_RUN)?;
    let ready = conn.prepare_cached(ANY_READY)?.exists([])? || run.is_some_and(|due_at| due_at <= now);
    Ok(Agenda { now, schedule: first(NEXT_SCHEDULE)?, run, wake: first(NEXT_WAKE)?, ready })
}

pub(super) const NEXT_SCHEDULE: &str = "SELECT fire_at FROM schedules INDEXED BY schedules_due
    WHERE enabled = 1 AND fire_at IS NOT NULL AND fire_at > -9223372036854775807 ORDER BY fire_at LIMIT 1";
pub(super) const NEXT_RUN: &str = "SELECT lane FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 2 AND lane > -9223372036854775807 ORDER BY lane LIMIT 1";
pub(super) const NEXT_WAKE: &str = "SELECT wake_at FROM runs INDEXED BY runs_wake
    WHERE wake_at > -9223372036854775807 ORDER BY wake_at LIMIT 1";
pub(super) const ANY_READY: &str =
    "SELECT 1 FROM runs INDEXED BY runs_waiting WHERE place > 0 AND place = 1 AND lane IS NULL LIMIT 1";

/// The columns of a task with its schedule.
pub(super) const TASK: &str = "t.task_id, t.revision, t.created_at, t.updated_at, t.last_event, t.spec, \
    c.version, c.last_due, c.place";

/// A task and its schedule, from the columns [`TASK`].
pub(super) fn read_task(row: &Row<'_>) -> Step<(Task, ScheduleState)> {
    let spec: TaskSpec = parsed("the task", &row.get::<_, String>(5)?)?;
    let place = match row.get::<_, Option<String>>(8)? {
        Some(place) => parsed("the schedule", &place)?,
        None => SchedulePlace::Idle,
    };
    let state = ScheduleState {
        task_id: spec.task_id.clone(),
        version: unsigned(row.get::<_, Option<i64>>(6)?.unwrap_or(0)),
        last_due: row.get::<_, Option<i64>>(7)?.map(at),
        place,
    };
    let task = Task {
        spec,
        revision: unsigned(row.get(1)?),
        created_at: at(row.get(2)?),
        updated_at: at(row.get(3)?),
        last_event: unsigned(row.get(4)?),
    };
    Ok((task, state))
}

/// A task and its schedule.
pub(super) fn task(conn: &Connection, task_id: &TaskId) -> Step<Option<(Task, ScheduleState)>> {
    let sql =
        format!("SELECT {TASK} FROM tasks t LEFT JOIN schedules c ON c.tid = t.tid WHERE t.task_id = ?1");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([task_id.as_str()])?;
    rows.next()?.map(read_task).transpose()
}

/// Schedules whose time has come, the longest overdue first. One that cannot be read is left out.
pub(super) fn due_schedules(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Step<Vec<(Task, ScheduleState)>> {
    let sql = format!("SELECT {TASK} {DUE_SCHEDULES}");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([now.ms()])?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        match read_task(row) {
            Ok(due) => found.push(due),
            Err(Fault::Unreadable(why)) => {
                tracing::error!(why, "a schedule cannot be read; it does not fire")
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

pub(super) const DUE_SCHEDULES: &str =
    "FROM schedules c INDEXED BY schedules_due JOIN tasks t ON t.tid = c.tid
    WHERE c.enabled = 1 AND c.fire_at IS NOT NULL AND c.fire_at <= ?1 ORDER BY c.fire_at, t.task_id";

/// Runs that somebody has to look at. One that cannot be read is left out.
pub(super) fn due_runs(
    conn: &Connection,
    now: Timestamp,
    after: Option<(Timestamp, RunId)>,
    limit: usize,
) -> Step<Vec<Run>> {
    let (from, run_id) = after.map_or((i64::MIN, String::new()), |(from, id)| (from.ms(), id.into()));
    let sql = format!("SELECT {} {DUE_FROM} {SPECS} {DUE_RUNS}", columns());
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query(params![from, now.ms(), run_id])?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        match Loaded::read(row) {
            Ok(loaded) => found.push(loaded.with_result(conn)?.run),
            Err(Fault::Unreadable(why)) => tracing::error!(why, "a run that is due cannot be read"),
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

pub(super) const DUE_FROM: &str = "FROM runs r INDEXED BY runs_wake";
pub(super) const DUE_RUNS: &str = "WHERE r.wake_at IS NOT NULL AND r.wake_at >= ?1 AND r.wake_at <= ?2
    AND (r.wake_at > ?1 OR r.run_id > ?3)
    ORDER BY r.wake_at, r.run_id";

/// A run.
pub(super) fn run(conn: &Connection, run_id: &RunId) -> Step<Option<Run>> {
    one(conn, &run_by_id(), &[&run_id.as_str()])
}

/// The run of an idempotency key.
pub(super) fn run_by_key(conn: &Connection, task_id: &TaskId, key: &str) -> Step<Option<Run>> {
    match task_number(conn, task_id)? {
        Some(tid) => one(conn, &run_by_its_key(), &[&tid, &key]),
        None => Ok(None),
    }
}

pub(super) fn run_by_id() -> String {
    format!("SELECT {} FROM runs r {SPECS} WHERE r.run_id = ?1", columns())
}

pub(super) fn run_by_its_key() -> String {
    format!(
        "SELECT {} FROM idempotency k JOIN runs r ON r.rid = k.rid {SPECS} WHERE k.tid = ?1 AND k.key = ?2",
        columns()
    )
}

fn one(conn: &Connection, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Step<Option<Run>> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params)?;
    match rows.next()? {
        Some(row) => Ok(Some(Loaded::read(row)?.with_result(conn)?.run)),
        None => Ok(None),
    }
}

/// The row of a run.
fn stored(conn: &Connection, run_id: &RunId) -> Step<Option<Stored>> {
    let mut select = conn.prepare_cached(&super::commit::find())?;
    let mut rows = select.query([run_id.as_str()])?;
    rows.next()?.map(|row| Stored::read(row).map(|(stored, _)| stored)).transpose()
}

/// The attempts of a run: those before the latest, and that one.
pub(super) fn attempts(conn: &Connection, run_id: &RunId) -> Step<Vec<Attempt>> {
    let Some(stored) = stored(conn, run_id)? else { return Ok(Vec::new()) };
    let mut select = conn.prepare_cached("SELECT body FROM attempts WHERE rid = ?1 ORDER BY number")?;
    let mut rows = select.query([stored.rid])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(0)?.as_blob().map_err(row::odd)?;
        found.push(Tried::read_alone(bytes)?.attempt(run_id)?);
    }
    if let Some(latest) = &stored.latest {
        found.push(latest.attempt(run_id)?);
    }
    Ok(found)
}

/// A lane as it stands.
pub(super) fn lane(conn: &Connection, name: &str) -> Step<LaneView> {
    let mut select = conn.prepare_cached("SELECT lid, version, total FROM lanes WHERE name = ?1")?;
    let found = select.query_row([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((lid, version, total)): Option<(i64, i64, i64)> = found else {
        return Ok(LaneView::default());
    };
    let mut select = conn.prepare_cached(LANE_RUNS)?;
    let mut rows = select.query([lid, SHOWN])?;
    let mut active = Vec::new();
    while let Some(row) = rows.next()? {
        active.push(LaneRun {
            run_id: id(row.get(0)?)?,
            status: status(row.get(1)?)?,
            trigger: trigger(row.get(2)?)?,
        });
    }
    let mut select = conn.prepare_cached(LANE_SCHEDULED)?;
    let scheduled: Option<String> = select.query_row([lid], |row| row.get(0)).optional()?;
    Ok(LaneView {
        version: unsigned(version),
        active,
        total: unsigned(total),
        scheduled_waiting: scheduled.map(id).transpose()?,
    })
}

pub(super) const LANE_RUNS: &str = "SELECT r.run_id, r.status, r.flags FROM lane_runs m
    JOIN runs r ON r.rid = m.rid WHERE m.lid = ?1 ORDER BY m.rid LIMIT ?2";
pub(super) const LANE_SCHEDULED: &str = "SELECT r.run_id FROM lane_runs m INDEXED BY lanes_scheduled
    JOIN runs r ON r.rid = m.rid WHERE m.lid = ?1 AND m.sched = 1 ORDER BY m.rid LIMIT 1";

fn id(text: String) -> Step<RunId> {
    RunId::new(text).map_err(|invalid| unreadable(invalid.to_string()))
}

/// How many runs there are by status.
pub(super) fn counts(conn: &Connection, task_id: Option<&TaskId>) -> Step<Vec<(RunStatus, u64)>> {
    let tid = match task_id {
        None => 0,
        Some(task_id) => match task_number(conn, task_id)? {
            Some(tid) => tid,
            None => return Ok(Vec::new()),
        },
    };
    let mut select =
        conn.prepare_cached("SELECT status, n FROM counters WHERE tid = ?1 AND n > 0 ORDER BY status")?;
    let mut rows = select.query([tid])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((status(row.get(0)?)?, unsigned(row.get(1)?)));
    }
    Ok(found)
}

/// The newest cursor.
pub(super) fn newest_cursor(conn: &Connection) -> Step<u64> {
    let mut select = conn.prepare_cached("SELECT next_cursor - 1 FROM meta WHERE id = 0")?;
    Ok(unsigned(select.query_row([], |row| row.get(0))?))
}

const EVENT: &str = "e.cursor, e.subject, e.seq, e.kind, e.at, e.body, e.data";
pub(super) const EVENTS_OF_TASK: &str = "FROM task_events t CROSS JOIN events e ON e.cursor = t.cursor
    WHERE t.tid = ?1 AND t.seq > ?2 ORDER BY t.seq LIMIT ?3";
pub(super) const EVENTS_ALL: &str = "FROM events e WHERE e.cursor > ?1 ORDER BY e.cursor LIMIT ?2";
pub(super) const EVENT_AT: &str = "FROM events e WHERE e.cursor = ?1";

/// Events in order.
pub(super) fn events(conn: &Connection, subject: &Subject, after: u64, limit: usize) -> Step<Vec<Event>> {
    // No number of ours is that high.
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    match subject {
        Subject::All => {
            let mut select = conn.prepare_cached(&format!("SELECT {EVENT} {EVENTS_ALL}"))?;
            told(conn, select.query([after, most])?)
        }
        Subject::Task(task_id) => {
            let Some(tid) = task_number(conn, task_id)? else { return Ok(Vec::new()) };
            let mut select = conn.prepare_cached(&format!("SELECT {EVENT} {EVENTS_OF_TASK}"))?;
            told(conn, select.query([tid, after, most])?)
        }
        Subject::Run(run_id) => {
            let Some(run) = stored(conn, run_id)? else { return Ok(Vec::new()) };
            events_of_run(conn, &run, after, limit)
        }
    }
}

/// The events of a run are a chain, from the last one back to the first.
fn events_of_run(conn: &Connection, run: &Stored, after: i64, limit: usize) -> Step<Vec<Event>> {
    let mut cursors = VecDeque::new();
    let mut link = conn.prepare_cached("SELECT seq, prev FROM events WHERE cursor = ?1")?;
    let mut next = run.told;
    while next > 0 {
        let found: Option<(i64, i64)> =
            link.query_row([next], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((_, prev)) = found.filter(|(seq, _)| *seq > after) else { break };
        cursors.push_front(next);
        // Those that come first are wanted: of more, the latest are left for the next call.
        cursors.truncate(limit);
        next = prev;
    }
    let mut select = conn.prepare_cached(&format!("SELECT {EVENT} {EVENT_AT}"))?;
    let mut found = Vec::with_capacity(cursors.len());
    for cursor in cursors {
        found.extend(told(conn, select.query([cursor])?)?);
    }
    Ok(found)
}

fn told(conn: &Connection, mut rows: Rows<'_>) -> Step<Vec<Event>> {
    let mut about: Option<(i64, About)> = None;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let subject: i64 = row.get(1)?;
        let body = EventBody::read(row.get_ref(5)?.as_blob().map_err(row::odd)?)?;
        if about.as_ref().is_none_or(|(known, _)| *known != subject) {
            about = Some((subject, About::of(conn, subject, body.aid)?));
        }
        if let Some((_, about)) = &about {
            found.push(event(row, body, about)?);
        }
    }
    Ok(found)
}

/// What no statement looks at.
struct EventBody {
    status: Option<RunStatus>,
    attempt: u32,
    fence: u64,
    instance: Option<InstanceId>,
    aid: Option<i64>,
}

impl EventBody {
    fn read(bytes: &[u8]) -> Step<Self> {
        let mut unpack = Unpack::of_form(EVENT_FORM, "the event", bytes)?;
        Ok(Self {
            status: unpack.maybe()?.map(status).transpose()?,
            attempt: unpack.small()?,
            fence: unpack.number()?,
            instance: unpack.instance()?,
            aid: unpack.maybe()?,
        })
    }
}

/// What all events of a run or a task have in common.
struct About {
    agent_id: AgentId,
    task_id: TaskId,
    run_id: Option<RunId>,
    session_id: Option<Arc<str>>,
    occurrence: Option<Timestamp>,
}

impl About {
    fn of(conn: &Connection, subject: i64, aid: Option<i64>) -> Step<Self> {
        let names = |task: String, agent: String| -> Step<(TaskId, AgentId)> {
            let task = TaskId::new(task).map_err(|invalid| unreadable(invalid.to_string()))?;
            let agent = AgentId::new(agent).map_err(|invalid| unreadable(invalid.to_string()))?;
            Ok((task, agent))
        };
        if subject < 0 {
            let mut select = conn.prepare_cached(
                "SELECT t.name, a.name FROM task_names t, agent_names a WHERE t.tid = ?1 AND a.aid = ?2",
            )?;
            let (task, agent) =
                select.query_row([-subject, aid.unwrap_or(0)], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (task_id, agent_id) = names(task, agent)?;
            return Ok(Self { agent_id, task_id, run_id: None, session_id: None, occurrence: None });
        }
        let sql = format!("SELECT {}, t.name, a.name {ABOUT_FROM} {SPECS} WHERE r.rid = ?1", columns());
        let mut select = conn.prepare_cached(&sql)?;
        let mut rows = select.query([subject])?;
        let row = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let (task_id, agent_id) = names(row.get(ABOUT)?, row.get(ABOUT + 1)?)?;
        let run_id = id(row.get(row::RUN_ID)?)?;
        // What happened is told though the specification cannot be read.
        let spec = Loaded::read(row).ok().map(|loaded| loaded.run.spec);
        let occurrence = spec.as_ref().and_then(|spec| spec.occurrence);
        let session_id = spec.map(|spec| Arc::clone(&spec.session_id));
        Ok(Self { agent_id, task_id, run_id: Some(run_id), session_id, occurrence })
    }
}

const ABOUT_FROM: &str = "FROM runs r JOIN task_names t ON t.tid = r.tid JOIN agent_names a ON a.aid = r.aid";
/// The first column after those of a run.
const ABOUT: usize = 19;

fn event(row: &Row<'_>, body: EventBody, about: &About) -> Step<Event> {
    let kind: u8 = row.get(3)?;
    let data: Option<String> = row.get(6)?;
    Ok(Event {
        event: EventKind::from_number(kind)
            .ok_or_else(|| unreadable(format!("{kind} is the number of no event")))?,
        timestamp: at(row.get(4)?),
        sequence: unsigned(row.get::<_, i64>(2)?.rem_euclid(LIFE)),
        cursor: unsigned(row.get(0)?),
        agent_id: about.agent_id.clone(),
        task_id: about.task_id.clone(),
        run_id: about.run_id.clone(),
        session_id: about.session_id.clone(),
        status: body.status,
        attempt: body.attempt,
        fence: body.fence,
        instance: body.instance,
        occurrence: about.occurrence,
        data: data.map_or(Value::Null, |data| {
            serde_json::from_str(&data).unwrap_or_else(|_| serde_json::json!({ "unreadable": data }))
        }),
    })
}
