//! Records as rows, and back. What cannot be read is a [`Fault::Unreadable`], never a panic.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::body::Rest;
pub(super) use super::body::Stored;
use super::fault::{Fault, Step};
use super::parts;
use crate::model::{
    Approval, CancelIntent, Lease, Payload, Place, Progress, Run, RunError, RunId, RunResult, RunSpec,
    RunStatus, Timestamp, Token, Trigger,
};

/// Where a run waits, as a number.
pub(super) mod place {
    pub(in super::super) const NOWHERE: i64 = 0;
    pub(in super::super) const READY: i64 = 1;
    pub(in super::super) const FUTURE: i64 = 2;
    pub(in super::super) const LANE: i64 = 3;
    pub(in super::super) const PAUSED: i64 = 4;
    /// Its record could not be read when it was to be claimed: it is out of the way until it is repaired.
    pub(in super::super) const UNREADABLE: i64 = 5;
}

/// Bits of the column `flags`: the trigger in the two lowest.
pub(super) mod flag {
    pub(in super::super) const TRIGGER: i64 = 3;
    pub(in super::super) const OVERRIDE_PAUSE: i64 = 4;
    /// It has a result in the table of results; a small one is in its row.
    pub(in super::super) const HAS_RESULT: i64 = 8;
    pub(in super::super) const HAS_KEY: i64 = 16;
}

/// Everything that is in the row of a run.
pub(super) const STORED: &str = "r.rid, r.tid, r.aid, r.status, r.place, r.lane, r.due_at, r.wake_at, r.lanes, \
    r.flags, r.nonce, r.queued_at, r.finished_at, r.part, r.body";

/// The rest of a run; after [`STORED`].
pub(super) const REST: &str = "r.run_id, s.spec, p.spec, \
    CASE WHEN r.place = 3 THEN (SELECT name FROM lanes WHERE lid = r.lane) END";

/// Where the specification of a run is: its own, or what it has in common with others.
pub(super) const SPECS: &str = "LEFT JOIN specs s ON r.part IS NULL AND s.rid = r.rid \
    LEFT JOIN parts p ON p.part = r.part";

/// The columns of [`REST`].
pub(super) const RUN_ID: usize = 15;
const SPEC: usize = 16;
const COMMON: usize = 17;
const LANE: usize = 18;

/// The rarely used parts of a run that change.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Extra {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel: Option<CancelIntent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_token: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocked_by: Option<RunId>,
}

impl Extra {
    /// The text of the column; none for most runs.
    pub(super) fn of(run: &Run) -> Step<Option<String>> {
        let plain = run.cancel.is_none()
            && run.error.is_none()
            && run.progress.is_none()
            && run.approval.is_none()
            && run.lost_token.is_none()
            && run.blocked_by.is_none();
        if plain {
            return Ok(None);
        }
        json(&Self {
            cancel: run.cancel.clone(),
            error: run.error.clone(),
            progress: run.progress.clone(),
            approval: run.approval.clone(),
            lost_token: run.lost_token.map(|token| (token.fence, token.nonce)),
            blocked_by: run.blocked_by.clone(),
        })
        .map(Some)
    }

    pub(super) fn read(text: Option<&str>) -> Step<Self> {
        text.map_or_else(|| Ok(Self::default()), |text| parsed("the mutable part", text))
    }
}

/// A run with its row.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) stored: Stored,
    pub(super) run: Run,
}

impl Loaded {
    /// From the columns [`STORED`] and [`REST`]; a large result is fetched apart.
    pub(super) fn read(row: &Row<'_>) -> Step<Self> {
        let (stored, rest) = Stored::read(row)?;
        let run_id = run_id(row)?;
        let spec = match stored.part {
            None => own_spec(row)?,
            Some(_) => {
                let text = text(row, COMMON)?.ok_or_else(|| missing_part(&stored))?;
                parts::individual(&parsed("the specification", text)?, &stored, run_id.as_str())?
            }
        };
        Self::made(row, stored, rest, run_id, spec)
    }

    /// The same, with what it has in common with others known already.
    pub(super) fn read_with(row: &Row<'_>, common: impl FnOnce(i64) -> Step<Arc<RunSpec>>) -> Step<Self> {
        let (stored, rest) = Stored::read(row)?;
        let run_id = run_id(row)?;
        let spec = match stored.part {
            None => own_spec(row)?,
            Some(part) => parts::individual(&*common(part)?, &stored, run_id.as_str())?,
        };
        Self::made(row, stored, rest, run_id, spec)
    }

    fn made(row: &Row<'_>, stored: Stored, rest: Rest, run_id: RunId, spec: RunSpec) -> Step<Self> {
        let extra = Extra::read(rest.extra.as_deref())?;
        let lease = match (stored.owner, stored.nonce) {
            (Some(owner), Some(nonce)) => Some(Lease {
                owner,
                nonce,
                expires_at: at(stored.expires_at.unwrap_or_default()),
                heartbeat_at: at(stored.heartbeat_at.unwrap_or_default()),
            }),
            _ => None,
        };
        let run = Run {
            run_id,
            spec: Arc::new(spec),
            status: stored.status,
            version: stored.version,
            stamp: stored.stamp,
            due_at: at(stored.due_at),
            place: place_of(stored.place, text(row, LANE)?),
            attempt: rest.attempt,
            failures: rest.failures,
            interruptions: rest.interruptions,
            fence: stored.fence,
            lease,
            lost_token: extra.lost_token.map(|(fence, nonce)| Token { fence, nonce }),
            cancel: extra.cancel,
            claimed_at: rest.claimed_at.map(at),
            started_at: rest.started_at.map(at),
            attempt_started_at: rest.attempt_started_at.map(at),
            finished_at: row.get::<_, Option<i64>>(12)?.map(at),
            error: extra.error,
            result: rest.result,
            progress: extra.progress,
            approval: extra.approval,
            blocked_by: extra.blocked_by,
            last_event: stored.last_event,
        };
        Ok(Self { stored, run })
    }

    /// Fetches the result, if there is a large one.
    pub(super) fn with_result(mut self, conn: &Connection) -> Step<Self> {
        if self.stored.flags & flag::HAS_RESULT != 0 {
            self.run.result = result(conn, self.stored.rid)?;
        }
        Ok(self)
    }
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> Step<Option<&'r str>> {
    row.get_ref(column)?.as_str_or_null().map_err(odd)
}

fn run_id(row: &Row<'_>) -> Step<RunId> {
    RunId::new(text(row, RUN_ID)?.unwrap_or_default()).map_err(|invalid| unreadable(invalid.to_string()))
}

fn own_spec(row: &Row<'_>) -> Step<RunSpec> {
    parsed("the specification", text(row, SPEC)?.ok_or_else(|| unreadable("it has no specification"))?)
}

pub(super) fn missing_part(stored: &Stored) -> Fault {
    unreadable(format!(
        "the specification cannot be read: part {} of it is missing",
        stored.part.unwrap_or_default()
    ))
}

/// The text of the specification that a listing looks at: of the run itself, or of all that are like it.
pub(super) fn spec_text<'r>(row: &'r Row<'_>) -> Step<Option<&'r str>> {
    Ok(text(row, SPEC)?.or(text(row, COMMON)?))
}

fn place_of(number: i64, lane: Option<&str>) -> Place {
    match number {
        place::READY => Place::Ready,
        place::FUTURE => Place::Future,
        place::LANE => Place::Lane { lane: lane.unwrap_or_default().into() },
        place::PAUSED => Place::Paused,
        _ => Place::Nowhere,
    }
}

fn result(conn: &Connection, rid: i64) -> Step<Option<RunResult>> {
    let mut select =
        conn.prepare_cached("SELECT media_type, bytes, size, path, preview FROM results WHERE rid = ?1")?;
    let read = |row: &Row<'_>| {
        let media_type: Arc<str> = row.get::<_, String>(0)?.into();
        if let Some(bytes) = row.get::<_, Option<Vec<u8>>>(1)? {
            return Ok(RunResult::Inline(Payload { media_type, bytes: bytes.into() }));
        }
        let size = unsigned(row.get::<_, Option<i64>>(2)?.unwrap_or_default());
        let path: Arc<str> = row.get::<_, Option<String>>(3)?.unwrap_or_default().into();
        let preview = row.get::<_, Option<String>>(4)?.unwrap_or_default().into();
        Ok(RunResult::File { media_type, size, path, preview })
    };
    Ok(select.query_row([rid], read).optional()?)
}

/// Keeps the result of a run; the one before is replaced.
pub(super) fn put_result(conn: &Connection, rid: i64, result: &RunResult) -> Step<()> {
    let mut put = conn.prepare_cached(
        "INSERT OR REPLACE INTO results (rid, media_type, bytes, size, path, preview)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    match result {
        RunResult::Inline(Payload { media_type, bytes }) => {
            put.execute(params![rid, &**media_type, &**bytes, None::<i64>, None::<&str>, None::<&str>])?
        }
        RunResult::File { media_type, size, path, preview } => {
            put.execute(params![rid, &**media_type, None::<&[u8]>, signed(*size), &**path, &**preview])?
        }
    };
    Ok(())
}

/// SQLite knows signed numbers only; all 64 bits are kept.
pub(super) const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// The opposite of [`signed`].
pub(super) const fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

pub(super) const fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

pub(super) fn status(number: i64) -> Step<RunStatus> {
    let known = u8::try_from(number).ok().and_then(RunStatus::from_number);
    known.ok_or_else(|| unreadable(format!("{number} is the number of no status")))
}

pub(super) const fn trigger_flag(trigger: Trigger) -> i64 {
    trigger as i64
}

pub(super) fn trigger(flags: i64) -> Step<Trigger> {
    match flags & flag::TRIGGER {
        0 => Ok(Trigger::Manual),
        1 => Ok(Trigger::Schedule),
        2 => Ok(Trigger::Retry),
        other => Err(unreadable(format!("{other} is the number of no trigger"))),
    }
}

pub(super) fn unreadable(why: impl Into<String>) -> Fault {
    Fault::Unreadable(why.into())
}

pub(super) fn odd(error: rusqlite::types::FromSqlError) -> Fault {
    unreadable(error.to_string())
}

/// A record as the text of a column.
pub(super) fn json<T: Serialize>(record: &T) -> Step<String> {
    serde_json::to_string(record).map_err(|error| Fault::Invalid(format!("it cannot be kept: {error}")))
}

/// The record that a column holds.
pub(super) fn parsed<'a, T: Deserialize<'a>>(what: &str, text: &'a str) -> Step<T> {
    serde_json::from_str(text).map_err(|error| unreadable(format!("{what} cannot be read: {error}")))
}
