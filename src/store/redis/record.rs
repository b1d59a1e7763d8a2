//! A run as a record of bytes, and back.
//!
//! What scripts look at is at places that never move; behind it is what is only carried. Where the run waits, its
//! specification and how many events it has stand before it, the cursors of the events behind it: these are the
//! scripts' own, so that they put a write between the two as it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bytes::{Get, Put, text};
use super::fault::{Step, invalid, unreadable};
use super::spec::Common;
use crate::model::{
    Approval, Attempt, AttemptStatus, CancelIntent, Event, EventKind, Idempotency, InstanceId, Lease, Limits,
    NewEvent, Payload, Place, Progress, Run, RunError, RunId, RunResult, RunSpec, RunStatus, Timestamp,
    Token, Trigger,
};
use crate::rules;

/// Bits of the flags of a record.
pub(super) mod flag {
    pub(in super::super) const LEASED: u8 = 1;
    pub(in super::super) const BY_SCHEDULE: u8 = 2;
    pub(in super::super) const OVERRIDES: u8 = 4;
    pub(in super::super) const HAS_RESULT: u8 = 8;
    pub(in super::super) const WITH_CANCEL: u8 = 16;
    pub(in super::super) const WITH_KEY: u8 = 32;
    pub(in super::super) const HAS_ALARM: u8 = 64;
}

/// Bits of what is only carried: what is there at all.
mod there {
    pub(super) const OCCURRENCE: u8 = 1;
    pub(super) const DEADLINE: u8 = 2;
    pub(super) const RETRY_OF: u8 = 4;
    pub(super) const LOST_TOKEN: u8 = 8;
    pub(super) const CLAIMED: u8 = 16;
    pub(super) const STARTED: u8 = 32;
    pub(super) const ATTEMPT_STARTED: u8 = 64;
    pub(super) const FINISHED: u8 = 128;
}

/// What few runs have.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Extra {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<CancelIntent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocked_by: Option<RunId>,
}

/// The name of a run as a key: one of 32 digits of base 16 in half as many bytes.
pub(super) fn kept_name(run_id: &str) -> Vec<u8> {
    let mut put = Put(Vec::with_capacity(17));
    put_name(&mut put, run_id);
    put.0
}

pub(super) fn put_name(put: &mut Put, run_id: &str) {
    let plain = run_id.len() == 32 && run_id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let number = u128::from_str_radix(run_id, 16).ok().filter(|_| plain);
    match number {
        Some(number) => put.u8(b'u').raw(&number.to_be_bytes()),
        None => put.u8(b's').raw(run_id.as_bytes()),
    };
}

fn name_of(kept: &[u8]) -> Step<RunId> {
    match kept.split_first() {
        Some((b'u', number)) => {
            let number =
                <[u8; 16]>::try_from(number).map_err(|_| unreadable("the name of the run is cut off"))?;
            id(Uuid::from_bytes(number).simple().encode_lower(&mut [0; 32]))
        }
        Some((_, name)) => id(text(name)?),
        None => Err(unreadable("the run has no name")),
    }
}

/// The field of an idempotency key: of its task, byte for byte.
pub(super) fn key_field(task_id: &str, key: &str) -> Vec<u8> {
    [task_id.as_bytes(), b"\0", key.as_bytes()].concat()
}

/// The flags of a run.
fn flags(run: &Run, alarm: Option<Timestamp>) -> u8 {
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    bit(run.lease.is_some(), flag::LEASED)
        | bit(run.spec.trigger == Trigger::Schedule, flag::BY_SCHEDULE)
        | bit(run.spec.override_pause, flag::OVERRIDES)
        | bit(run.result.is_some(), flag::HAS_RESULT)
        | bit(run.cancel.is_some(), flag::WITH_CANCEL)
        | bit(run.spec.idempotency.is_some(), flag::WITH_KEY)
        | bit(alarm.is_some(), flag::HAS_ALARM)
}

/// When somebody has to look at a run for another reason than its lease: the scripts know of that themselves.
fn alarm(run: &Run) -> Option<Timestamp> {
    rules::wake_at_of(run, None)
}

/// A run as it is written: what scripts look at, its lease, what is its own.
pub(super) fn put_run(put: &mut Put, run: &Run) -> Step<()> {
    let alarm = alarm(run);
    put.u8(run.status.number())
        .u8(flags(run, alarm))
        .i64(run.due_at.ms())
        .i64(alarm.map_or(0, Timestamp::ms));
    put.u64(run.stamp).u64(run.version).u64(run.fence);
    if let Some(lease) = run.lease {
        put.u64(lease.nonce).i64(lease.expires_at.ms()).i64(lease.heartbeat_at.ms());
        put.raw(&lease.owner.bits().to_be_bytes());
    }
    put_own(put, run)
}

/// What is a run's own.
fn put_own(put: &mut Put, run: &Run) -> Step<()> {
    let (spec, base) = (&run.spec, run.spec.queued_at.ms());
    let key = spec.idempotency.as_ref().map(|own| key_field(spec.task_id.as_str(), &own.key));
    put.part16(|put| put_name(put, run.run_id.as_str()));
    put.u32(run.attempt).text32(&key.unwrap_or_default());
    put.i64(base).u8(spec.trigger as u8);
    let instants = [
        (there::OCCURRENCE, spec.occurrence),
        (there::DEADLINE, spec.limits.deadline_at),
        (there::CLAIMED, run.claimed_at),
        (there::STARTED, run.started_at),
        (there::ATTEMPT_STARTED, run.attempt_started_at),
        (there::FINISHED, run.finished_at),
    ];
    let mut bits = instants.iter().filter(|(_, at)| at.is_some()).fold(0, |bits, (bit, _)| bits | bit);
    bits |= spec.retry_of.as_ref().map_or(0, |_| there::RETRY_OF);
    bits |= run.lost_token.map_or(0, |_| there::LOST_TOKEN);
    put.u8(bits).distance(base, spec.first_due_at.ms()).short(spec.late_by_ms);
    put.short(u64::from(run.failures)).short(u64::from(run.interruptions)).short(run.last_event);
    for at in instants.iter().filter_map(|(_, at)| *at) {
        put.distance(base, at.ms());
    }
    if let Some(own) = &spec.idempotency {
        put.u64(own.digest);
    }
    if let Some(run_id) = &spec.retry_of {
        put.id(run_id.as_str());
    }
    if let Some(token) = run.lost_token {
        put.u64(token.fence).u64(token.nonce);
    }
    put_extra(put, run)
}

fn put_extra(put: &mut Put, run: &Run) -> Step<()> {
    if let Run { cancel: None, error: None, progress: None, approval: None, blocked_by: None, .. } = run {
        return Ok(());
    }
    let extra = Extra {
        cancel: run.cancel.clone(),
        error: run.error.clone(),
        progress: run.progress.clone(),
        approval: run.approval.clone(),
        blocked_by: run.blocked_by.clone(),
    };
    let extra = serde_json::to_vec(&extra);
    put.raw(&extra.map_err(|error| invalid(format!("a run that cannot be kept: {error}")))?);
    Ok(())
}

/// What a run is called, and that of it which needs no more than its own part.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) run_id: RunId,
    pub(super) trigger: Trigger,
    pub(super) occurrence: Option<Timestamp>,
    pub(super) cancel: Option<CancelIntent>,
    attempt: u32,
    key: Option<Idempotency>,
    queued_at: Timestamp,
    first_due_at: Timestamp,
    late_by_ms: u64,
    deadline_at: Option<Timestamp>,
    retry_of: Option<RunId>,
    failures: u32,
    interruptions: u32,
    last_event: u64,
    lost_token: Option<Token>,
    times: [Option<Timestamp>; 4],
    extra: Extra,
}

impl Own {
    pub(super) fn read(bytes: &[u8]) -> Step<Self> {
        let mut get = Get(bytes);
        let run_id = name_of(get.text16()?)?;
        let attempt = get.u32()?;
        let key = get.text32()?;
        let base = get.i64()?;
        let trigger = trigger(get.u8()?)?;
        let bits = get.u8()?;
        let first_due_at = Timestamp::from_ms(get.distance(base)?);
        let late_by_ms = get.short()?;
        let (failures, interruptions, last_event) = (get.short32()?, get.short32()?, get.short()?);
        let mut instant = |bit: u8| -> Step<Option<Timestamp>> {
            if bits & bit == 0 { Ok(None) } else { Ok(Some(Timestamp::from_ms(get.distance(base)?))) }
        };
        let (occurrence, deadline_at) = (instant(there::OCCURRENCE)?, instant(there::DEADLINE)?);
        let times = [
            instant(there::CLAIMED)?,
            instant(there::STARTED)?,
            instant(there::ATTEMPT_STARTED)?,
            instant(there::FINISHED)?,
        ];
        let key = if key.is_empty() { None } else { Some(idempotency(key, get.u64()?)?) };
        let retry_of = if bits & there::RETRY_OF == 0 { None } else { Some(id(get.id()?)?) };
        let lost_token = match bits & there::LOST_TOKEN {
            0 => None,
            _ => Some(Token { fence: get.u64()?, nonce: get.u64()? }),
        };
        let mut extra: Extra = match get.0 {
            [] => Extra::default(),
            json => serde_json::from_slice(json).map_err(|error| unreadable(error.to_string()))?,
        };
        let queued_at = Timestamp::from_ms(base);
        let cancel = extra.cancel.take();
        Ok(Self {
            run_id,
            trigger,
            occurrence,
            cancel,
            attempt,
            key,
            queued_at,
            first_due_at,
            late_by_ms,
            deadline_at,
            retry_of,
            failures,
            interruptions,
            last_event,
            lost_token,
            times,
            extra,
        })
    }
}

fn idempotency(field: &[u8], digest: u64) -> Step<Idempotency> {
    let key = text(field)?.split_once('\0').map(|(_, key)| key.into());
    Ok(Idempotency { key: key.ok_or_else(|| unreadable("the key of the run names no task"))?, digest })
}

fn id(name: &str) -> Step<RunId> {
    RunId::new(name).map_err(|odd| unreadable(odd.to_string()))
}

pub(super) fn status(number: u8) -> Step<RunStatus> {
    RunStatus::from_number(number).ok_or_else(|| unreadable(format!("{number} is the number of no status")))
}

fn trigger(number: u8) -> Step<Trigger> {
    let known = [Trigger::Manual, Trigger::Schedule, Trigger::Retry].into_iter();
    let mut known = known.filter(|trigger| *trigger as u8 == number);
    known.next().ok_or_else(|| unreadable(format!("{number} is the number of no trigger")))
}

/// The front of a record and its own part.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) status: RunStatus,
    pub(super) sid: &'a [u8],
    flags: u8,
    place: u8,
    lane: u8,
    version: u64,
    stamp: u64,
    fence: u64,
    due_at: i64,
    lease: Option<Lease>,
    own: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Step<Self> {
        let mut get = Get(bytes);
        let (place, lane, sid) = (get.u8()?, get.u8()?, get.take(9)?);
        let events = usize::from(get.u8()?) << 16 | usize::from(get.u16()?);
        let (number, flags) = (get.u8()?, get.u8()?);
        let (due_at, _) = (get.i64()?, get.i64()?);
        let (stamp, version, fence) = (get.u64()?, get.u64()?, get.u64()?);
        let lease = if flags & flag::LEASED == 0 {
            None
        } else {
            let (nonce, expires_at, heartbeat_at) = (get.u64()?, get.i64()?, get.i64()?);
            let owner = InstanceId::from_bits(get.u128()?);
            let (expires_at, heartbeat_at) =
                (Timestamp::from_ms(expires_at), Timestamp::from_ms(heartbeat_at));
            Some(Lease { owner, nonce, expires_at, heartbeat_at })
        };
        // The cursors of its events are behind everything else.
        let own = get.0.len().checked_sub(6 * events).ok_or_else(|| unreadable("it is cut off"))?;
        let own = get.take(own)?;
        let status = status(number)?;
        Ok(Self { status, sid, flags, place, lane, version, stamp, fence, due_at, lease, own })
    }

    pub(super) fn own(&self) -> Step<Own> {
        Own::read(self.own)
    }

    pub(super) fn run(&self, common: &Common, kept_result: Option<&[u8]>) -> Step<Run> {
        let own = self.own()?;
        let run_id = own.run_id.as_str();
        let spec = RunSpec {
            task_id: common.task_id.clone(),
            agent_id: common.agent_id.clone(),
            query: Arc::clone(&common.query),
            trigger: own.trigger,
            queued_at: own.queued_at,
            first_due_at: own.first_due_at,
            late_by_ms: own.late_by_ms,
            occurrence: own.occurrence,
            idempotency: own.key,
            session_id: common.session.with(run_id),
            workspace_path: common.rest.workspace.with(run_id),
            write_run_json: common.rest.write_run_json,
            write_events_jsonl: common.rest.write_events_jsonl,
            limits: Limits { timeout: common.rest.timeout, deadline_at: own.deadline_at },
            retry_policy: common.rest.retry_policy.clone(),
            overlap_policy: common.rest.overlap_policy,
            lanes: common.lanes.clone(),
            priority: common.priority,
            retry_of: own.retry_of,
            override_pause: self.flags & flag::OVERRIDES != 0,
            metadata: common.rest.metadata.clone(),
        };
        let [claimed_at, started_at, attempt_started_at, finished_at] = own.times;
        Ok(Run {
            run_id: own.run_id,
            spec: Arc::new(spec),
            status: self.status,
            version: self.version,
            stamp: self.stamp,
            due_at: Timestamp::from_ms(self.due_at),
            place: self.place(common)?,
            attempt: own.attempt,
            failures: own.failures,
            interruptions: own.interruptions,
            fence: self.fence,
            lease: self.lease,
            lost_token: own.lost_token,
            cancel: own.cancel,
            claimed_at,
            started_at,
            attempt_started_at,
            finished_at,
            error: own.extra.error,
            result: kept_result.map(read_result).transpose()?,
            progress: own.extra.progress,
            approval: own.extra.approval,
            blocked_by: own.extra.blocked_by,
            last_event: own.last_event,
        })
    }

    fn place(&self, common: &Common) -> Step<Place> {
        Ok(match self.place {
            0 => Place::Nowhere,
            1 => Place::Ready,
            2 => Place::Future,
            3 => {
                let lane = usize::from(self.lane).checked_sub(1).and_then(|at| common.lanes.get(at));
                let lane = lane.ok_or_else(|| unreadable("it waits for a lane that it does not need"))?;
                Place::Lane { lane: Arc::clone(&lane.name) }
            }
            4 => Place::Paused,
            other => return Err(unreadable(format!("{other} is the number of no place"))),
        })
    }
}

pub(super) fn put_result(put: &mut Put, result: &RunResult) {
    match result {
        RunResult::Inline(Payload { media_type, bytes }) => {
            put.u8(0).text32(media_type.as_bytes()).raw(bytes);
        }
        RunResult::File { media_type, size, path, preview } => {
            put.u8(1)
                .text32(media_type.as_bytes())
                .u64(*size)
                .text32(path.as_bytes())
                .raw(preview.as_bytes());
        }
    }
}

fn read_result(bytes: &[u8]) -> Step<RunResult> {
    let mut get = Get(bytes);
    let kind = get.u8()?;
    let media_type = text(get.text32()?)?.into();
    if kind == 0 {
        return Ok(RunResult::Inline(Payload { media_type, bytes: get.0.into() }));
    }
    let (size, path) = (get.u64()?, text(get.text32()?)?.into());
    Ok(RunResult::File { media_type, size, path, preview: text(get.0)?.into() })
}

pub(super) fn put_attempt(put: &mut Put, attempt: &Attempt) -> Step<()> {
    put.u8(attempt.status.number()).raw(&attempt.instance.bits().to_be_bytes()).short(attempt.fence);
    put.i64(attempt.started_at.ms()).u8(u8::from(attempt.finished_at.is_some()));
    if let Some(at) = attempt.finished_at {
        put.distance(attempt.started_at.ms(), at.ms());
    }
    if let Some(error) = &attempt.error {
        let error = serde_json::to_vec(error);
        put.raw(&error.map_err(|error| invalid(format!("an attempt that cannot be kept: {error}")))?);
    }
    Ok(())
}

pub(super) fn read_attempt(run_id: &RunId, number: u32, bytes: &[u8]) -> Step<Attempt> {
    let mut get = Get(bytes);
    let status = get.u8()?;
    let instance = InstanceId::from_bits(get.u128()?);
    let (fence, started) = (get.short()?, get.i64()?);
    let finished_at = match get.u8()? {
        0 => None,
        _ => Some(Timestamp::from_ms(get.distance(started)?)),
    };
    let error = match get.0 {
        [] => None,
        json => Some(serde_json::from_slice(json).map_err(|error| unreadable(error.to_string()))?),
    };
    Ok(Attempt {
        attempt_id: run_id.attempt(number),
        number,
        status: AttemptStatus::from_number(status)
            .ok_or_else(|| unreadable(format!("{status} is the number of no status of an attempt")))?,
        instance,
        fence,
        started_at: Timestamp::from_ms(started),
        finished_at,
        error,
    })
}

const NO_STATUS: u8 = u8::MAX;

pub(super) fn put_event(put: &mut Put, event: &NewEvent) {
    put.u8(event.kind.number()).u8(event.status.map_or(NO_STATUS, RunStatus::number)).i64(event.at.ms());
    put.short(event.sequence).short(u64::from(event.attempt)).short(event.fence);
    put.u8(u8::from(event.instance.is_some()) | u8::from(event.data.is_some()) << 1);
    if let Some(instance) = event.instance {
        put.raw(&instance.bits().to_be_bytes());
    }
    put.raw(event.data.as_deref().unwrap_or_default().as_bytes());
}

/// Whose an event is.
#[derive(Debug)]
pub(super) struct Whose {
    pub(super) agent_id: crate::model::AgentId,
    pub(super) task_id: crate::model::TaskId,
    pub(super) run_id: Option<RunId>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) occurrence: Option<Timestamp>,
}

pub(super) fn read_event(cursor: u64, whose: &Whose, bytes: &[u8]) -> Step<Event> {
    let mut get = Get(bytes);
    let (kind, after) = (get.u8()?, get.u8()?);
    let at = get.i64()?;
    let (sequence, attempt, fence) = (get.short()?, get.short32()?, get.short()?);
    let bits = get.u8()?;
    let instance = if bits & 1 == 0 { None } else { Some(InstanceId::from_bits(get.u128()?)) };
    let data = if bits & 2 == 0 { serde_json::Value::Null } else { json(text(get.0)?) };
    Ok(Event {
        event: EventKind::from_number(kind)
            .ok_or_else(|| unreadable(format!("{kind} is the number of no event")))?,
        timestamp: Timestamp::from_ms(at),
        sequence,
        cursor,
        agent_id: whose.agent_id.clone(),
        task_id: whose.task_id.clone(),
        run_id: whose.run_id.clone(),
        session_id: whose.session_id.clone(),
        status: if after == NO_STATUS { None } else { Some(status(after)?) },
        attempt,
        fence,
        instance,
        occurrence: whose.occurrence,
        data,
    })
}

/// JSON that is nested too deeply to be read is shown as its text: an event is never unreadable.
fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
}
