//! Records as rows, and back. What cannot be read is a [`Fault::Unreadable`], never a panic.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::fault::{Fault, Step};
use crate::model::{
    Approval, CancelIntent, InstanceId, Lease, Payload, Place, Progress, Run, RunError, RunId, RunResult,
    RunSpec, RunStatus, Timestamp, Token, Trigger,
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
    pub(in super::super) const HAS_RESULT: i64 = 8;
    pub(in super::super) const HAS_KEY: i64 = 16;
}

/// What a condition is checked on; read by every write.
pub(super) const STORED: &str = "r.rid, r.tid, r.aid, r.status, r.place, r.lane, r.due_at, r.wake_at, r.version, \
    r.stamp, r.fence, r.last_event, r.lanes, r.flags, r.nonce, r.expires_at, r.heartbeat_at, r.deadline_at";

/// The rest of a run; after [`STORED`].
pub(super) const REST: &str = "r.run_id, r.attempt, r.failures, r.interruptions, r.owner, r.claimed_at, \
    r.started_at, r.attempt_started_at, r.finished_at, r.extra, s.spec, \
    CASE WHEN r.place = 3 THEN (SELECT name FROM lanes WHERE lid = r.lane) END";

/// The hot part of a run's row.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) rid: i64,
    pub(super) tid: i64,
    pub(super) aid: i64,
    pub(super) status: RunStatus,
    pub(super) place: i64,
    pub(super) lane: Option<i64>,
    pub(super) due_at: i64,
    pub(super) wake_at: Option<i64>,
    pub(super) version: u64,
    pub(super) stamp: u64,
    pub(super) fence: u64,
    pub(super) last_event: u64,
    pub(super) lanes: i64,
    pub(super) flags: i64,
    pub(super) nonce: Option<u64>,
    pub(super) expires_at: Option<i64>,
    pub(super) heartbeat_at: Option<i64>,
    pub(super) deadline_at: Option<i64>,
}

impl Stored {
    pub(super) fn read(row: &Row<'_>) -> Step<Self> {
        Ok(Self {
            rid: row.get(0)?,
            tid: row.get(1)?,
            aid: row.get(2)?,
            status: status(row.get(3)?)?,
            place: row.get(4)?,
            lane: row.get(5)?,
            due_at: row.get(6)?,
            wake_at: row.get(7)?,
            version: unsigned(row.get(8)?),
            stamp: unsigned(row.get(9)?),
            fence: unsigned(row.get(10)?),
            last_event: unsigned(row.get(11)?),
            lanes: row.get(12)?,
            flags: row.get(13)?,
            nonce: row.get::<_, Option<i64>>(14)?.map(unsigned),
            expires_at: row.get(15)?,
            heartbeat_at: row.get(16)?,
            deadline_at: row.get(17)?,
        })
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.nonce.map(|nonce| Token { fence: self.fence, nonce })
    }
}

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

/// A run with its hot part.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) stored: Stored,
    pub(super) run: Run,
}

impl Loaded {
    /// From the columns [`STORED`] and [`REST`]; the result is fetched apart.
    pub(super) fn read(row: &Row<'_>) -> Step<Self> {
        let stored = Stored::read(row)?;
        let text = |at: usize| -> Step<Option<&str>> { row.get_ref(at)?.as_str_or_null().map_err(odd) };
        let spec: RunSpec =
            parsed("the specification", text(28)?.ok_or_else(|| unreadable("it has no specification"))?)?;
        let extra = Extra::read(text(27)?)?;
        let run_id = text(18)?.unwrap_or_default();
        let lease = match (row.get_ref(22)?.as_blob_or_null().map_err(odd)?, stored.nonce) {
            (Some(owner), Some(nonce)) => Some(Lease {
                owner: instance(owner)?,
                nonce,
                expires_at: at(stored.expires_at.unwrap_or_default()),
                heartbeat_at: at(stored.heartbeat_at.unwrap_or_default()),
            }),
            _ => None,
        };
        let time = |column: usize| -> Step<Option<Timestamp>> {
            Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
        };
        let run = Run {
            run_id: RunId::new(run_id).map_err(|invalid| unreadable(invalid.to_string()))?,
            spec: Arc::new(spec),
            status: stored.status,
            version: stored.version,
            stamp: stored.stamp,
            due_at: at(stored.due_at),
            place: place_of(stored.place, text(29)?),
            attempt: row.get(19)?,
            failures: row.get(20)?,
            interruptions: row.get(21)?,
            fence: stored.fence,
            lease,
            lost_token: extra.lost_token.map(|(fence, nonce)| Token { fence, nonce }),
            cancel: extra.cancel,
            claimed_at: time(23)?,
            started_at: time(24)?,
            attempt_started_at: time(25)?,
            finished_at: time(26)?,
            error: extra.error,
            result: None,
            progress: extra.progress,
            approval: extra.approval,
            blocked_by: extra.blocked_by,
            last_event: stored.last_event,
        };
        Ok(Self { stored, run })
    }

    /// Fetches the result, if there is one.
    pub(super) fn with_result(mut self, conn: &Connection) -> Step<Self> {
        if self.stored.flags & flag::HAS_RESULT != 0 {
            self.run.result = result(conn, self.stored.rid)?;
        }
        Ok(self)
    }
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

pub(super) fn instance(bytes: &[u8]) -> Step<InstanceId> {
    let bits = <[u8; 16]>::try_from(bytes).map_err(|_| unreadable("an instance has 16 bytes"))?;
    Ok(InstanceId::from_bits(u128::from_be_bytes(bits)))
}

pub(super) fn instance_bytes(instance: InstanceId) -> [u8; 16] {
    instance.bits().to_be_bytes()
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

fn odd(error: rusqlite::types::FromSqlError) -> Fault {
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
