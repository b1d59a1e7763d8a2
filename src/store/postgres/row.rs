//! Records as rows, and back. What cannot be read is a [`Fault::Unreadable`], never a panic.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::fault::{Fault, Step};
use crate::model::{
    Approval, CancelIntent, InstanceId, Lease, Payload, Place, Progress, Run, RunError, RunId, RunResult,
    RunSpec, RunStatus, Timestamp, Token, Trigger,
};

/// Where a run waits, as a number.
pub(super) mod place {
    pub(in super::super) const NOWHERE: i16 = 0;
    pub(in super::super) const READY: i16 = 1;
    pub(in super::super) const FUTURE: i16 = 2;
    pub(in super::super) const LANE: i16 = 3;
    pub(in super::super) const PAUSED: i16 = 4;
    /// Its record could not be read when it was to be claimed: it is out of the way until it is repaired.
    pub(in super::super) const UNREADABLE: i16 = 5;
}

/// Bits of the column `flags`: the trigger in the two lowest.
pub(super) mod flag {
    pub(in super::super) const TRIGGER: i32 = 3;
    pub(in super::super) const OVERRIDE_PAUSE: i32 = 4;
    pub(in super::super) const HAS_RESULT: i32 = 8;
    pub(in super::super) const HAS_KEY: i32 = 16;
}

/// What a condition is checked on; read by every write.
pub(super) const STORED: &str = "r.rid, r.tid, r.aid, r.status, r.place, r.lane, r.priority, r.due_at, r.wake_at, \
    r.version, r.stamp, r.fence, r.last_event, r.lanes, r.flags, r.nonce, r.expires_at, r.heartbeat_at, \
    s.deadline_at, r.extra, s.run_id, r.tried";

/// The column of the name in [`STORED`].
pub(super) const RUN_ID: usize = 20;

/// The rest of a run; after [`STORED`].
pub(super) const REST: &str = "r.attempt, r.failures, r.interruptions, r.owner, r.claimed_at, r.started_at, \
    r.attempt_started_at, r.finished_at, s.spec, l.name, r.small, o.rid, o.media_type, o.bytes, o.size, o.path, \
    o.preview";

/// The column of the specification in [`REST`].
pub(super) const SPEC: usize = 30;

/// What [`STORED`] and [`REST`] are taken from, once `r` is known. Nothing is looked for that is known not to be there.
pub(super) const WHOLE: &str = "JOIN specs s ON s.rid = r.rid LEFT JOIN lanes l ON l.lid = r.lane AND r.place = 3 \
    LEFT JOIN results o ON o.rid = CASE WHEN r.flags & 8 <> 0 THEN r.rid END";

/// The number of columns of a whole run: what a statement adds comes after.
pub(super) const COLUMNS: usize = 39;

/// The server's clock at the time of the statement, once for all of its rows.
pub(super) const CLOCK: &str = "(SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// The hot part of a run's row.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) rid: i64,
    pub(super) tid: i64,
    pub(super) aid: i64,
    pub(super) status: RunStatus,
    pub(super) place: i16,
    pub(super) lane: Option<i64>,
    pub(super) priority: i32,
    pub(super) due_at: i64,
    pub(super) wake_at: Option<i64>,
    pub(super) version: u64,
    pub(super) stamp: u64,
    pub(super) fence: u64,
    pub(super) last_event: u64,
    pub(super) lanes: i32,
    pub(super) flags: i32,
    pub(super) nonce: Option<u64>,
    pub(super) expires_at: Option<i64>,
    pub(super) heartbeat_at: Option<i64>,
    pub(super) deadline_at: Option<i64>,
    pub(super) extra: Option<String>,
    pub(super) run_id: RunId,
    /// The latest attempt.
    pub(super) tried: Option<Vec<u8>>,
}

/// A value of a row.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Step<T> {
    Ok(row.try_get(at)?)
}

impl Stored {
    pub(super) fn read(row: &Row) -> Step<Self> {
        Ok(Self {
            rid: get(row, 0)?,
            tid: get(row, 1)?,
            aid: get(row, 2)?,
            status: status(get(row, 3)?)?,
            place: get(row, 4)?,
            lane: get(row, 5)?,
            priority: get(row, 6)?,
            due_at: get(row, 7)?,
            wake_at: get(row, 8)?,
            version: unsigned(get(row, 9)?),
            stamp: unsigned(get(row, 10)?),
            fence: unsigned(get(row, 11)?),
            last_event: unsigned(get(row, 12)?),
            lanes: get(row, 13)?,
            flags: get(row, 14)?,
            nonce: get::<Option<i64>>(row, 15)?.map(unsigned),
            expires_at: get(row, 16)?,
            heartbeat_at: get(row, 17)?,
            deadline_at: get(row, 18)?,
            extra: get(row, 19)?,
            run_id: id(get(row, RUN_ID)?)?,
            tried: get(row, 21)?,
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
    /// From the columns [`STORED`] and [`REST`].
    pub(super) fn read(row: &Row) -> Step<Self> {
        let stored = Stored::read(row)?;
        let spec: RunSpec = parsed("the specification", get(row, SPEC)?)?;
        let extra = Extra::read(stored.extra.as_deref())?;
        let lease = match (get::<Option<Uuid>>(row, 25)?, stored.nonce) {
            (Some(owner), Some(nonce)) => Some(Lease {
                owner: instance(owner),
                nonce,
                expires_at: at(stored.expires_at.unwrap_or_default()),
                heartbeat_at: at(stored.heartbeat_at.unwrap_or_default()),
            }),
            _ => None,
        };
        let time =
            |column: usize| -> Step<Option<Timestamp>> { Ok(get::<Option<i64>>(row, column)?.map(at)) };
        let run = Run {
            run_id: stored.run_id.clone(),
            spec: Arc::new(spec),
            status: stored.status,
            version: stored.version,
            stamp: stored.stamp,
            due_at: at(stored.due_at),
            place: place_of(stored.place, get(row, 31)?)?,
            attempt: get::<i32>(row, 22)?.cast_unsigned(),
            failures: get::<i32>(row, 23)?.cast_unsigned(),
            interruptions: get::<i32>(row, 24)?.cast_unsigned(),
            fence: stored.fence,
            lease,
            lost_token: extra.lost_token.map(|(fence, nonce)| Token { fence, nonce }),
            cancel: extra.cancel,
            claimed_at: time(26)?,
            started_at: time(27)?,
            attempt_started_at: time(28)?,
            finished_at: time(29)?,
            error: extra.error,
            result: result(row)?,
            progress: extra.progress,
            approval: extra.approval,
            blocked_by: extra.blocked_by,
            last_event: stored.last_event,
        };
        Ok(Self { stored, run })
    }
}

fn place_of(number: i16, lane: Option<&[u8]>) -> Step<Place> {
    Ok(match number {
        place::READY => Place::Ready,
        place::FUTURE => Place::Future,
        place::LANE => Place::Lane { lane: text(lane.unwrap_or_default())?.into() },
        place::PAUSED => Place::Paused,
        _ => Place::Nowhere,
    })
}

fn result(row: &Row) -> Step<Option<RunResult>> {
    if let Some(small) = get::<Option<&[u8]>>(row, 32)? {
        return super::result::unpacked(small).map(Some);
    }
    if get::<Option<i64>>(row, 33)?.is_none() {
        return Ok(None);
    }
    let media_type: Arc<str> = text(get(row, 34)?)?.into();
    if let Some(bytes) = get::<Option<&[u8]>>(row, 35)? {
        return Ok(Some(RunResult::Inline(Payload { media_type, bytes: bytes.into() })));
    }
    let size = unsigned(get::<Option<i64>>(row, 36)?.unwrap_or_default());
    let path = text(get::<Option<&[u8]>>(row, 37)?.unwrap_or_default())?.into();
    let preview = text(get::<Option<&[u8]>>(row, 38)?.unwrap_or_default())?.into();
    Ok(Some(RunResult::File { media_type, size, path, preview }))
}

/// The server knows signed numbers only; all 64 bits are kept.
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

pub(super) fn status(number: i16) -> Step<RunStatus> {
    let known = u8::try_from(number).ok().and_then(RunStatus::from_number);
    known.ok_or_else(|| unreadable(format!("{number} is the number of no status")))
}

pub(super) fn status_number(status: RunStatus) -> i16 {
    i16::from(status.number())
}

/// The status of a run that neither waits to be claimed nor is held.
pub(super) fn resting(status: RunStatus) -> Option<i16> {
    (!status.is_waiting() && !status.is_held()).then(|| status_number(status))
}

pub(super) fn instance(owner: Uuid) -> InstanceId {
    InstanceId::from_bits(owner.as_u128())
}

pub(super) fn owner(instance: InstanceId) -> Uuid {
    Uuid::from_u128(instance.bits())
}

pub(super) const fn trigger_flag(trigger: Trigger) -> i32 {
    trigger as i32
}

pub(super) fn trigger(flags: i32) -> Step<Trigger> {
    match flags & flag::TRIGGER {
        0 => Ok(Trigger::Manual),
        1 => Ok(Trigger::Schedule),
        2 => Ok(Trigger::Retry),
        other => Err(unreadable(format!("{other} is the number of no trigger"))),
    }
}

pub(super) fn id(text: &str) -> Step<RunId> {
    RunId::new(text).map_err(|invalid| unreadable(invalid.to_string()))
}

/// Text that is kept as its bytes.
pub(super) fn text(bytes: &[u8]) -> Step<&str> {
    std::str::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))
}

pub(super) fn unreadable(why: impl Into<String>) -> Fault {
    Fault::Unreadable(why.into())
}

/// A record as the text of a column. JSON escapes every NUL, so that the server takes it.
pub(super) fn json<T: Serialize>(record: &T) -> Step<String> {
    serde_json::to_string(record).map_err(|error| Fault::Invalid(format!("it cannot be kept: {error}")))
}

/// The record that a column holds.
pub(super) fn parsed<'a, T: Deserialize<'a>>(what: &str, text: &'a str) -> Step<T> {
    serde_json::from_str(text).map_err(|error| unreadable(format!("{what} cannot be read: {error}")))
}
