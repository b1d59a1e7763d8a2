//! The row of a run: columns for what statements look at, and one of bytes for everything else.

use rusqlite::Row;

use super::fault::Step;
use super::pack::{Pack, Unpack};
use super::row::{Extra, json, odd, parsed, status, unreadable, unsigned};
use crate::model::{
    Attempt, AttemptStatus, InstanceId, Payload, Run, RunError, RunId, RunResult, RunStatus, Timestamp, Token,
};

/// How the bytes are laid out; another layout has another number.
const FORM: u8 = 1;

/// Results of up to this many bytes are kept in the row.
const SMALL: usize = 256;

/// What a condition is checked on, and what a transition does not change.
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
    pub(super) lanes: i64,
    pub(super) flags: i64,
    pub(super) nonce: Option<u64>,
    pub(super) queued_at: i64,
    pub(super) finished_at: Option<i64>,
    /// What it has in common with others; none if its specification is its own.
    pub(super) part: Option<i64>,
    pub(super) version: u64,
    pub(super) stamp: u64,
    pub(super) fence: u64,
    pub(super) last_event: u64,
    /// The cursor of its last event; each event names the one before it.
    pub(super) told: i64,
    pub(super) owner: Option<InstanceId>,
    pub(super) expires_at: Option<i64>,
    pub(super) heartbeat_at: Option<i64>,
    pub(super) deadline_at: Option<i64>,
    pub(super) first_due_at: i64,
    pub(super) late_by_ms: u64,
    pub(super) occurrence: Option<i64>,
    /// Its latest attempt; those before it are in a table.
    pub(super) latest: Option<Tried>,
}

/// What only the run itself shows.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) interruptions: u32,
    pub(super) claimed_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) attempt_started_at: Option<i64>,
    pub(super) extra: Option<Box<str>>,
    pub(super) result: Option<RunResult>,
}

impl Stored {
    /// From the columns [`super::row::STORED`].
    pub(super) fn read(row: &Row<'_>) -> Step<(Self, Rest)> {
        let queued_at = row.get(11)?;
        let bytes = row.get_ref(14)?.as_blob().map_err(odd)?;
        let unpack = Unpack::of_form(FORM, "the row of the run", bytes)?;
        let (mut stored, rest) = Body { unpack, queued_at }.read()?;
        stored.rid = row.get(0)?;
        stored.tid = row.get(1)?;
        stored.aid = row.get(2)?;
        stored.status = status(row.get(3)?)?;
        stored.place = row.get(4)?;
        stored.lane = row.get(5)?;
        stored.due_at = row.get(6)?;
        stored.wake_at = row.get(7)?;
        stored.lanes = row.get(8)?;
        stored.flags = row.get(9)?;
        stored.nonce = row.get::<_, Option<i64>>(10)?.map(unsigned);
        stored.queued_at = queued_at;
        stored.finished_at = row.get(12)?;
        stored.part = row.get(13)?;
        Ok((stored, rest))
    }

    /// A run that is made: nothing of it is stored.
    pub(super) fn new(run: &Run, rid: i64, tid: i64, aid: i64) -> Self {
        let spec = &run.spec;
        Self {
            rid,
            tid,
            aid,
            lanes: i64::try_from(spec.lanes.len()).unwrap_or(i64::MAX),
            queued_at: spec.queued_at.ms(),
            deadline_at: spec.limits.deadline_at.map(Timestamp::ms),
            first_due_at: spec.first_due_at.ms(),
            late_by_ms: spec.late_by_ms,
            occurrence: spec.occurrence.map(Timestamp::ms),
            ..Self::nothing()
        }
    }

    fn nothing() -> Self {
        Self {
            rid: 0,
            tid: 0,
            aid: 0,
            status: RunStatus::Queued,
            place: 0,
            lane: None,
            due_at: 0,
            wake_at: None,
            lanes: 0,
            flags: 0,
            nonce: None,
            queued_at: 0,
            finished_at: None,
            part: None,
            version: 0,
            stamp: 0,
            fence: 0,
            last_event: 0,
            told: 0,
            owner: None,
            expires_at: None,
            heartbeat_at: None,
            deadline_at: None,
            first_due_at: 0,
            late_by_ms: 0,
            occurrence: None,
            latest: None,
        }
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.nonce.map(|nonce| Token { fence: self.fence, nonce })
    }

    /// The bytes beside the columns.
    pub(super) fn pack(&self, run: &Run) -> Step<Pack> {
        // Instants lie near the one at which it was queued, and take few bytes as distances from that.
        let since = |ms: i64| ms.wrapping_sub(self.queued_at);
        let at = |at: Option<Timestamp>| at.map(|at| since(at.ms()));
        let mut pack = Pack::of_form(FORM);
        pack.number(self.version);
        pack.drawn(self.stamp);
        pack.number(self.fence);
        pack.number(self.last_event);
        pack.signed(self.told);
        pack.number(run.attempt.into());
        pack.number(run.failures.into());
        pack.number(run.interruptions.into());
        pack.instance(self.owner);
        pack.maybe(self.expires_at.map(since));
        pack.maybe(self.heartbeat_at.map(since));
        pack.maybe(at(run.claimed_at));
        pack.maybe(at(run.started_at));
        pack.maybe(at(run.attempt_started_at));
        pack.maybe(self.deadline_at.map(since));
        pack.signed(since(self.first_due_at));
        pack.number(self.late_by_ms);
        pack.maybe(self.occurrence.map(since));
        pack.byte(self.latest.is_some().into());
        if let Some(latest) = &self.latest {
            latest.pack(&mut pack, self.queued_at);
        }
        pack.text(Extra::of(run)?.as_deref().map(str::as_bytes));
        match run.result.as_ref().and_then(small) {
            None => pack.byte(0),
            Some(Payload { media_type, bytes }) => {
                pack.byte(1);
                pack.text(Some(media_type.as_bytes()));
                pack.text(Some(bytes));
            }
        }
        Ok(pack)
    }
}

/// A result that is kept in the row.
pub(super) fn small(result: &RunResult) -> Option<&Payload> {
    match result {
        RunResult::Inline(payload) => {
            (payload.media_type.len() + payload.bytes.len() <= SMALL).then_some(payload)
        }
        RunResult::File { .. } => None,
    }
}

struct Body<'a> {
    unpack: Unpack<'a>,
    queued_at: i64,
}

impl Body<'_> {
    fn instant(&mut self) -> Step<Option<i64>> {
        Ok(self.unpack.maybe()?.map(|since| since.wrapping_add(self.queued_at)))
    }

    /// In the order of [`Stored::pack`].
    fn read(mut self) -> Step<(Stored, Rest)> {
        let mut stored = Stored::nothing();
        stored.version = self.unpack.number()?;
        stored.stamp = self.unpack.drawn()?;
        stored.fence = self.unpack.number()?;
        stored.last_event = self.unpack.number()?;
        stored.told = self.unpack.signed()?;
        let (attempt, failures, interruptions) =
            (self.unpack.small()?, self.unpack.small()?, self.unpack.small()?);
        stored.owner = self.unpack.instance()?;
        stored.expires_at = self.instant()?;
        stored.heartbeat_at = self.instant()?;
        let (claimed_at, started_at, attempt_started_at) =
            (self.instant()?, self.instant()?, self.instant()?);
        stored.deadline_at = self.instant()?;
        stored.first_due_at = self.unpack.signed()?.wrapping_add(self.queued_at);
        stored.late_by_ms = self.unpack.number()?;
        stored.occurrence = self.instant()?;
        if self.unpack.some()? {
            stored.latest = Some(Tried::unpack(&mut self.unpack, self.queued_at)?);
        }
        let extra = self.unpack.text()?.map(Box::from);
        let result = if self.unpack.some()? { Some(self.result()?) } else { None };
        let rest = Rest {
            attempt,
            failures,
            interruptions,
            claimed_at,
            started_at,
            attempt_started_at,
            extra,
            result,
        };
        Ok((stored, rest))
    }

    fn result(&mut self) -> Step<RunResult> {
        let media_type = self.unpack.text()?.unwrap_or_default().into();
        let bytes = self.unpack.bytes()?.unwrap_or_default().into();
        Ok(RunResult::Inline(Payload { media_type, bytes }))
    }
}

/// An attempt as it is kept.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) number: u32,
    status: AttemptStatus,
    instance: InstanceId,
    fence: u64,
    started_at: i64,
    finished_at: Option<i64>,
    error: Option<Box<str>>,
}

impl Tried {
    pub(super) fn of(attempt: &Attempt) -> Step<Self> {
        Ok(Self {
            number: attempt.number,
            status: attempt.status,
            instance: attempt.instance,
            fence: attempt.fence,
            started_at: attempt.started_at.ms(),
            finished_at: attempt.finished_at.map(Timestamp::ms),
            error: attempt.error.as_ref().map(json::<RunError>).transpose()?.map(Box::from),
        })
    }

    pub(super) fn attempt(&self, run_id: &RunId) -> Step<Attempt> {
        Ok(Attempt {
            attempt_id: run_id.attempt(self.number),
            number: self.number,
            status: self.status,
            instance: self.instance,
            fence: self.fence,
            started_at: Timestamp::from_ms(self.started_at),
            finished_at: self.finished_at.map(Timestamp::from_ms),
            error: self.error.as_deref().map(|error| parsed("the error", error)).transpose()?,
        })
    }

    fn pack(&self, pack: &mut Pack, from: i64) {
        pack.number(self.number.into());
        pack.byte(self.status.number());
        pack.instance(Some(self.instance));
        pack.number(self.fence);
        pack.signed(self.started_at.wrapping_sub(from));
        pack.maybe(self.finished_at.map(|at| at.wrapping_sub(from)));
        pack.text(self.error.as_deref().map(str::as_bytes));
    }

    fn unpack(unpack: &mut Unpack<'_>, from: i64) -> Step<Self> {
        let number = unpack.small()?;
        let how = unpack.byte()?;
        let status = AttemptStatus::from_number(how);
        Ok(Self {
            number,
            status: status
                .ok_or_else(|| unreadable(format!("{how} is the number of no status of an attempt")))?,
            instance: unpack.instance()?.ok_or_else(|| unreadable("an attempt is of an instance"))?,
            fence: unpack.number()?,
            started_at: unpack.signed()?.wrapping_add(from),
            finished_at: unpack.maybe()?.map(|at| at.wrapping_add(from)),
            error: unpack.text()?.map(Box::from),
        })
    }

    /// As a row of its own.
    pub(super) fn alone(&self) -> Pack {
        let mut pack = Pack::of_form(FORM);
        self.pack(&mut pack, 0);
        pack
    }

    pub(super) fn read_alone(bytes: &[u8]) -> Step<Self> {
        Self::unpack(&mut Unpack::of_form(FORM, "the attempt", bytes)?, 0)
    }
}
