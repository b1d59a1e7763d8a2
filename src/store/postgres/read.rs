//! Reads of one record, one run, one lane: each one statement, and so one snapshot. Pages are in [`super::list`].

use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::attempt;
use super::commit::LIFE;
use super::conn::{Conn, with};
use super::fault::{Fault, Step};
use super::load::{agent_id, task_id};
use super::row::{
    self, CLOCK, Loaded, REST, STORED, WHOLE, at, get, id, parsed, status, text, trigger, unreadable,
    unsigned,
};
use crate::model::{
    Attempt, AttemptStatus, Event, EventKind, Run, RunId, RunStatus, SchedulePlace, ScheduleState, Subject,
    Task, TaskId, TaskSpec, Timestamp,
};
use crate::store::{Agenda, LaneRun, LaneView};

/// What time it is, if somebody says so instead of the server.
pub(super) type Told = Option<i64>;

fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The server's clock.
pub(super) async fn now(conn: &Conn) -> Step<Timestamp> {
    let rows = conn.ask(format!("SELECT {CLOCK}"), Vec::new()).await?;
    Ok(at(rows.first().map_or(Ok(0), |row| get(row, 0))?))
}

/// When something is due next.
pub(super) async fn agenda(conn: &Conn, now: Told) -> Step<Agenda> {
    let rows = conn.ask(agenda_sql(), with![now]).await?;
    let row = rows.first().ok_or_else(|| unreadable("the agenda has no row"))?;
    let time = |column| -> Step<Option<Timestamp>> { Ok(get::<Option<i64>>(row, column)?.map(at)) };
    let (now, run) = (at(get(row, 0)?), time(2)?);
    let ready = get::<bool>(row, 4)? || run.is_some_and(|due_at| due_at <= now);
    Ok(Agenda { now, schedule: time(1)?, run, wake: time(3)?, ready })
}

pub(super) fn agenda_sql() -> String {
    format!(
        "SELECT coalesce($1::bigint, {CLOCK}),
         (SELECT fire_at FROM schedules WHERE enabled AND fire_at IS NOT NULL ORDER BY fire_at LIMIT 1),
         (SELECT due_at FROM runs WHERE place = 2 ORDER BY due_at LIMIT 1),
         (SELECT wake_at FROM runs WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1),
         EXISTS (SELECT 1 FROM runs WHERE place = 1)"
    )
}

/// The columns of a task with its schedule.
pub(super) const TASK: &str = "t.task_id, t.revision, t.created_at, t.updated_at, t.last_event, t.spec, \
    c.version, c.last_due, c.place";

/// A task and its schedule, from the columns [`TASK`].
pub(super) fn read_task(row: &Row) -> Step<(Task, ScheduleState)> {
    let spec: TaskSpec = parsed("the task", get(row, 5)?)?;
    let place = match get::<Option<&str>>(row, 8)? {
        Some(place) => parsed("the schedule", place)?,
        None => SchedulePlace::Idle,
    };
    let state = ScheduleState {
        task_id: spec.task_id.clone(),
        version: unsigned(get::<Option<i64>>(row, 6)?.unwrap_or(0)),
        last_due: get::<Option<i64>>(row, 7)?.map(at),
        place,
    };
    let task = Task {
        spec,
        revision: unsigned(get(row, 1)?),
        created_at: at(get(row, 2)?),
        updated_at: at(get(row, 3)?),
        last_event: unsigned(get(row, 4)?),
    };
    Ok((task, state))
}

/// A task and its schedule.
pub(super) async fn task(conn: &Conn, task_id: &TaskId) -> Step<Option<(Task, ScheduleState)>> {
    let rows = conn.ask(task_sql(), with![task_id.to_string()]).await?;
    rows.first().map(read_task).transpose()
}

pub(super) fn task_sql() -> String {
    format!("SELECT {TASK} FROM tasks t LEFT JOIN schedules c ON c.tid = t.tid WHERE t.task_id = $1")
}

/// Schedules whose time has come, the longest overdue first. One that cannot be read is left out.
pub(super) async fn due_schedules(conn: &Conn, now: Told, most: usize) -> Step<Vec<(Task, ScheduleState)>> {
    let (mut found, mut from) = (Vec::new(), (i64::MIN, String::new()));
    loop {
        let asked = most - found.len();
        let rows = conn.ask(due_schedules_sql(), with![now, from.0, from.1.clone(), limit(asked)]).await?;
        for row in &rows {
            from = (get(row, 9)?, get(row, 0)?);
            match read_task(row) {
                Ok(due) => found.push(due),
                Err(Fault::Unreadable(why)) => {
                    tracing::error!(why, "a schedule cannot be read; it does not fire")
                }
                Err(fault) => return Err(fault),
            }
        }
        if rows.len() < asked || found.len() >= most {
            return Ok(found);
        }
    }
}

pub(super) fn due_schedules_sql() -> String {
    format!(
        "SELECT {TASK}, c.fire_at FROM schedules c JOIN tasks t ON t.tid = c.tid
         WHERE c.enabled AND c.fire_at IS NOT NULL AND c.fire_at <= coalesce($1::bigint, {CLOCK})
         AND c.fire_at >= $2 AND (c.fire_at > $2 OR t.task_id > $3) ORDER BY c.fire_at, t.task_id LIMIT $4"
    )
}

/// Runs that somebody has to look at. One that cannot be read is left out.
pub(super) async fn due_runs(
    conn: &Conn,
    now: Told,
    after: Option<(Timestamp, RunId)>,
    most: usize,
) -> Step<Vec<Run>> {
    let mut from = after.map_or((i64::MIN, String::new()), |(from, id)| (from.ms(), id.to_string()));
    let mut found = Vec::new();
    loop {
        let asked = most - found.len();
        let rows = conn.ask(due_runs_sql(), with![now, from.0, from.1.clone(), limit(asked)]).await?;
        for row in &rows {
            from = (get::<Option<i64>>(row, 8)?.unwrap_or(i64::MAX), get(row, 20)?);
            match Loaded::read(row) {
                Ok(loaded) => found.push(loaded.run),
                Err(Fault::Unreadable(why)) => tracing::error!(why, "a run that is due cannot be read"),
                Err(fault) => return Err(fault),
            }
        }
        if rows.len() < asked || found.len() >= most {
            return Ok(found);
        }
    }
}

pub(super) fn due_runs_sql() -> String {
    format!(
        "SELECT {STORED}, {REST} FROM runs r {WHOLE}
         WHERE r.wake_at IS NOT NULL AND r.wake_at <= coalesce($1::bigint, {CLOCK})
         AND r.wake_at >= $2 AND (r.wake_at > $2 OR s.run_id > $3) ORDER BY r.wake_at, s.run_id LIMIT $4"
    )
}

/// A run.
pub(super) async fn run(conn: &Conn, run_id: &RunId) -> Step<Option<Run>> {
    let rows = conn.ask(run_sql(), with![run_id.to_string()]).await?;
    rows.first().map(|row| Ok(Loaded::read(row)?.run)).transpose()
}

pub(super) fn run_sql() -> String {
    format!("SELECT {STORED}, {REST} FROM runs r {WHOLE} WHERE s.run_id = $1")
}

/// The run of an idempotency key.
pub(super) async fn run_by_key(conn: &Conn, task_id: &TaskId, key: &str) -> Step<Option<Run>> {
    let rows = conn.ask(run_by_key_sql(), with![task_id.to_string(), key.as_bytes().to_vec()]).await?;
    rows.first().map(|row| Ok(Loaded::read(row)?.run)).transpose()
}

pub(super) fn run_by_key_sql() -> String {
    format!(
        "SELECT {STORED}, {REST} FROM task_names n JOIN idempotency k ON k.tid = n.tid
         JOIN runs r ON r.rid = k.rid {WHOLE} WHERE n.name = $1 AND k.key = $2"
    )
}

/// The attempts of a run: those before the latest, and that one.
pub(super) async fn attempts(conn: &Conn, run_id: &RunId) -> Step<Vec<Attempt>> {
    let rows = conn.ask(ATTEMPTS, with![run_id.to_string()]).await?;
    let read = |row: &Row| {
        let Some(number) = get::<Option<i32>>(row, 0)? else { return Ok(None) };
        let how: i16 = get(row, 1)?;
        let number = number.cast_unsigned();
        let known = u8::try_from(how).ok().and_then(AttemptStatus::from_number);
        Ok(Some(Attempt {
            attempt_id: run_id.attempt(number),
            number,
            status: known
                .ok_or_else(|| unreadable(format!("{how} is the number of no status of an attempt")))?,
            instance: row::instance(get(row, 2)?),
            fence: unsigned(get(row, 3)?),
            started_at: at(get(row, 4)?),
            finished_at: get::<Option<i64>>(row, 5)?.map(at),
            error: get::<Option<&str>>(row, 6)?.map(|error| parsed("the error", error)).transpose()?,
        }))
    };
    let mut attempts: Vec<Attempt> =
        rows.iter().filter_map(|row| read(row).transpose()).collect::<Step<_>>()?;
    if let Some(latest) = rows.first().map(|row| get::<Option<&[u8]>>(row, 7)).transpose()?.flatten() {
        let latest = attempt::unpacked(run_id, latest)?;
        // An older program may have written the same one beside it.
        attempts.retain(|attempt| attempt.number != latest.number);
        attempts.push(latest);
    }
    Ok(attempts)
}

pub(super) const ATTEMPTS: &str =
    "SELECT a.number, a.status, a.instance, a.fence, a.started_at, a.finished_at, a.error, r.tried
    FROM specs s JOIN runs r ON r.rid = s.rid LEFT JOIN attempts a ON a.rid = s.rid WHERE s.run_id = $1
    ORDER BY a.number";

/// A lane as it stands.
pub(super) async fn lane(conn: &Conn, name: &str) -> Step<LaneView> {
    let rows = conn.ask(LANE, with![name.as_bytes().to_vec()]).await?;
    let Some(first) = rows.first() else { return Ok(LaneView::default()) };
    let mut active = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(run_id) = get::<Option<&str>>(row, 3)? {
            active.push(LaneRun {
                run_id: id(run_id)?,
                status: status(get(row, 4)?)?,
                trigger: trigger(get(row, 5)?)?,
            });
        }
    }
    Ok(LaneView {
        version: unsigned(get(first, 0)?),
        active,
        total: unsigned(get(first, 1)?),
        scheduled_waiting: get::<Option<&str>>(first, 2)?.map(id).transpose()?,
    })
}

/// A hundred runs of a lane are shown.
pub(super) const LANE: &str = "SELECT l.version, l.total,
    (SELECT s.run_id FROM lane_runs m JOIN specs s ON s.rid = m.rid WHERE m.lid = l.lid AND m.sched
     ORDER BY m.rid LIMIT 1),
    x.run_id, x.status, x.flags
    FROM lanes l LEFT JOIN LATERAL (SELECT m.rid, s.run_id, r.status, r.flags FROM lane_runs m
        JOIN runs r ON r.rid = m.rid JOIN specs s ON s.rid = m.rid
        WHERE m.lid = l.lid ORDER BY m.rid LIMIT 100) x ON true
    WHERE l.name = $1 ORDER BY x.rid";

/// How many runs there are by status.
pub(super) async fn counts(conn: &Conn, task_id: Option<&TaskId>) -> Step<Vec<(RunStatus, u64)>> {
    let rows = match task_id {
        None => conn.ask(COUNTS, Vec::new()).await?,
        Some(task_id) => conn.ask(COUNTS_OF, with![task_id.to_string()]).await?,
    };
    rows.iter().map(|row| Ok((status(get(row, 0)?)?, unsigned(get(row, 1)?)))).collect()
}

pub(super) const COUNTS: &str = "SELECT status, n FROM counters WHERE tid = 0 AND n > 0 ORDER BY status";
pub(super) const COUNTS_OF: &str = "SELECT c.status, c.n FROM task_names t JOIN counters c ON c.tid = t.tid
    WHERE t.name = $1 AND c.n > 0 ORDER BY c.status";

/// The newest cursor.
pub(super) async fn newest_cursor(conn: &Conn) -> Step<u64> {
    let rows = conn.ask("SELECT next_cursor - 1 FROM meta WHERE id = 0", Vec::new()).await?;
    Ok(rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.unsigned_abs())
}

/// Events in order.
pub(super) async fn events(conn: &Conn, subject: &Subject, after: u64, most: usize) -> Step<Vec<Event>> {
    // No number of ours is that high.
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = match subject {
        Subject::All => conn.ask(events_sql(OF_ALL), with![after, limit(most)]).await?,
        Subject::Run(run_id) => {
            conn.ask(events_sql(OF_RUN), with![after, limit(most), run_id.to_string()]).await?
        }
        Subject::Task(task_id) => {
            conn.ask(events_sql(OF_TASK), with![after, limit(most), task_id.to_string()]).await?
        }
    };
    rows.iter().map(event).collect()
}

pub(super) const OF_ALL: &str = "e.cursor > $1 ORDER BY e.cursor LIMIT $2";
pub(super) const OF_RUN: &str =
    "e.subject = (SELECT rid FROM specs WHERE run_id = $3) AND e.seq > $1 ORDER BY e.seq LIMIT $2";
pub(super) const OF_TASK: &str =
    "e.subject = (SELECT -tid FROM task_names WHERE name = $3) AND e.seq > $1 ORDER BY e.seq LIMIT $2";

pub(super) fn events_sql(which: &str) -> String {
    format!(
        "SELECT e.cursor, e.seq, e.kind, e.at, e.status, e.attempt, e.fence, e.instance, e.data,
         n.name, a.name, s.run_id, s.session, s.occurrence
         FROM events e LEFT JOIN specs s ON s.rid = e.subject
         LEFT JOIN task_names n ON n.tid = coalesce(s.tid, -e.subject)
         LEFT JOIN agent_names a ON a.aid = coalesce(s.aid, e.aid) WHERE {which}"
    )
}

fn event(row: &Row) -> Step<Event> {
    let kind: i16 = get(row, 2)?;
    let name = |column| get::<Option<&str>>(row, column).map(Option::unwrap_or_default);
    let session = get::<Option<&[u8]>>(row, 12)?.map(text).transpose()?.map(Arc::from);
    let data = get::<Option<&str>>(row, 8)?;
    Ok(Event {
        event: u8::try_from(kind)
            .ok()
            .and_then(EventKind::from_number)
            .ok_or_else(|| unreadable(format!("{kind} is the number of no event")))?,
        timestamp: at(get(row, 3)?),
        sequence: unsigned(get::<i64>(row, 1)?.rem_euclid(LIFE)),
        cursor: unsigned(get(row, 0)?),
        agent_id: agent_id(name(10)?)?,
        task_id: task_id(name(9)?)?,
        run_id: get::<Option<&str>>(row, 11)?.map(id).transpose()?,
        session_id: session,
        status: get::<Option<i16>>(row, 4)?.map(status).transpose()?,
        attempt: get::<i32>(row, 5)?.cast_unsigned(),
        fence: unsigned(get(row, 6)?),
        instance: get::<Option<Uuid>>(row, 7)?.map(row::instance),
        occurrence: get::<Option<i64>>(row, 13)?.map(at),
        data: data.map_or(Value::Null, |data| {
            serde_json::from_str(data).unwrap_or_else(|_| serde_json::json!({ "unreadable": data }))
        }),
    })
}
