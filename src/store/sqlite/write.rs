//! Writes runs. Statements differ by what they leave alone: an index that a statement does not name is not
//! touched, and every index costs as much as the row.

use rusqlite::params;
use rusqlite::types::{ToSql, Value};

use super::fault::Step;
use super::lanes::Stand;
use super::probe::Between;
use super::row::{
    Extra, Stored, flag, instance_bytes, json, place, put_result, signed, trigger, trigger_flag,
};
use super::tx::Tx;
use crate::model::{Attempt, EventKind, NewEvent, Run, Timestamp, Trigger};
use crate::rules;
use crate::store::RunWrite;

impl Tx<'_> {
    /// A run that there was not.
    pub(super) fn insert_run(&mut self, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let spec = &run.spec;
        let rid = self.new_rid();
        let (tid, aid) = (self.task(&spec.task_id)?, self.agent(&spec.agent_id)?);
        let stand = Stand::of(run.status, spec.trigger == Trigger::Schedule);
        self.stand(rid, &spec.lanes, Stand::NONE, stand)?;
        let (place, lane) = if run.status.is_waiting() {
            let members = if spec.lanes.is_empty() { Vec::new() } else { self.members(rid)? };
            self.place_for(&members, aid, run.due_at.ms())?
        } else {
            (place::NOWHERE, None)
        };
        let mut flags = trigger_flag(spec.trigger);
        flags |= if spec.override_pause { flag::OVERRIDE_PAUSE } else { 0 };
        flags |= if run.result.is_some() { flag::HAS_RESULT } else { 0 };
        flags |= if spec.idempotency.is_some() { flag::HAS_KEY } else { 0 };
        let wake_at = rules::wake_at(run).map(Timestamp::ms);
        self.hint.agenda |= wake_at.is_some();
        let last_event = write.events.len() as i64;
        let owner = run.lease.map(|lease| instance_bytes(lease.owner));
        self.conn.prepare_cached(INSERT)?.execute(params![
            rid,
            run.run_id.as_str(),
            tid,
            aid,
            run.status.number(),
            place,
            lane,
            spec.priority,
            run.due_at.ms(),
            wake_at,
            signed(run.version),
            signed(run.stamp),
            signed(run.fence),
            last_event,
            spec.lanes.len() as i64,
            flags,
            run.attempt,
            run.failures,
            run.interruptions,
            owner.as_ref().map(|bytes| &bytes[..]),
            super::tx::nonce_of(run),
            run.lease.map(|lease| lease.expires_at.ms()),
            run.lease.map(|lease| lease.heartbeat_at.ms()),
            spec.queued_at.ms(),
            spec.limits.deadline_at.map(Timestamp::ms),
            run.claimed_at.map(Timestamp::ms),
            run.started_at.map(Timestamp::ms),
            run.attempt_started_at.map(Timestamp::ms),
            run.finished_at.map(Timestamp::ms),
            Extra::of(run)?,
        ])?;
        self.conn
            .prepare_cached("INSERT INTO specs (rid, spec) VALUES (?1, ?2)")?
            .execute(params![rid, json(&**spec)?])?;
        if let Some(key) = &spec.idempotency {
            self.conn
                .prepare_cached("INSERT INTO idempotency (tid, key, rid, digest) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![tid, &*key.key, rid, signed(key.digest)])?;
        }
        if let Some(result) = &run.result {
            put_result(self.conn, rid, result)?;
        }
        self.count(tid, run.status, 1);
        self.write_told(rid, 0, write)
    }

    /// A run that moves; its write was found to stand.
    pub(super) fn update_run(&mut self, stored: &Stored, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let stored = &mut stored.clone();
        let mut members = Vec::new();
        if stored.lanes > 0 {
            self.move_in_lanes(stored, run)?;
            if run.status.is_waiting() {
                members = self.members(stored.rid)?;
            }
        }
        let (place, lane) = if run.status.is_waiting() {
            self.place_for(&members, stored.aid, run.due_at.ms())?
        } else {
            (place::NOWHERE, None)
        };
        self.update_row(stored, run, write.events.len() as u64, place, lane)?;
        if let Some(result) = &run.result {
            put_result(self.conn, stored.rid, result)?;
        }
        if stored.status != run.status {
            self.count(stored.tid, stored.status, -1);
            self.count(stored.tid, run.status, 1);
        }
        self.tell(stored, write);
        self.write_told(stored.rid, stored.last_event, write)
    }

    /// Takes a run out of its place, and lets go of who waits in its lanes and has room now. Where it waits
    /// itself is decided after that.
    fn move_in_lanes(&mut self, stored: &mut Stored, run: &Run) -> Step<()> {
        let scheduled = trigger(stored.flags)? == Trigger::Schedule;
        let (from, to) = (Stand::of(stored.status, scheduled), Stand::of(run.status, scheduled));
        self.stand(stored.rid, &run.spec.lanes, from, to)?;
        if stored.place == place::LANE {
            self.move_to(stored.rid, place::NOWHERE, None)?;
            (stored.place, stored.lane) = (place::NOWHERE, None);
        }
        for lid in self.lanes_named(&run.spec.lanes)? {
            self.let_go(lid)?;
        }
        Ok(())
    }

    fn update_row(
        &mut self,
        stored: &Stored,
        run: &Run,
        events: u64,
        place: i64,
        lane: Option<i64>,
    ) -> Step<()> {
        let mut run = std::borrow::Cow::Borrowed(run);
        let (expires_at, heartbeat_at) = forward(stored, &run);
        if let Some(expires_at) = expires_at
            && let Some(lease) = run.lease
            && lease.expires_at.ms() != expires_at
            && let Some(lease) = &mut run.to_mut().lease
        {
            lease.expires_at = Timestamp::from_ms(expires_at);
        }
        let wake_at = rules::wake_at(&run).map(Timestamp::ms);
        let moves = (place, lane, run.due_at.ms()) != (stored.place, stored.lane, stored.due_at);
        let wakes = wake_at != stored.wake_at;
        self.hint.agenda |= wakes && wake_at.is_some();
        let flags = if run.result.is_some() { stored.flags | flag::HAS_RESULT } else { stored.flags };
        let version = run.version.max(stored.version.saturating_add(1));
        let owner = run.lease.map(|lease| instance_bytes(lease.owner));
        let owner = owner.as_ref().map(|bytes| &bytes[..]);
        let extra = Extra::of(&run)?;
        let common: [&dyn ToSql; 19] = [
            &stored.rid,
            &run.status.number(),
            &signed(version),
            &signed(run.stamp),
            &signed(run.fence.max(stored.fence)),
            &signed(stored.last_event + events),
            &flags,
            &run.attempt,
            &run.failures,
            &run.interruptions,
            &owner,
            &super::tx::nonce_of(&run),
            &expires_at,
            &heartbeat_at,
            &run.claimed_at.map(Timestamp::ms),
            &run.started_at.map(Timestamp::ms),
            &run.attempt_started_at.map(Timestamp::ms),
            &run.finished_at.map(Timestamp::ms),
            &extra,
        ];
        let more: [Value; 4] = [place.into(), lane.into(), run.due_at.ms().into(), wake_at.into()];
        let [to, lane, due_at, wake] = &more;
        let mut all: Vec<&dyn ToSql> = Vec::with_capacity(23);
        all.extend_from_slice(&common);
        if moves {
            all.extend_from_slice(&[to, lane, due_at]);
        }
        if wakes {
            all.push(wake);
        }
        self.conn.prepare_cached(UPDATES[usize::from(moves)][usize::from(wakes)])?.execute(&all[..])?;
        Ok(())
    }

    /// The attempt and the events of a write. The store numbers them on, so that there is never a gap.
    fn write_told(&mut self, rid: i64, last_event: u64, write: &RunWrite) -> Step<()> {
        if let Some(attempt) = &write.attempt {
            if let Some(event) = write.events.first() {
                self.probe.at(Between::RunAndAttempt(event.kind));
            }
            self.write_attempt(rid, attempt)?;
        }
        let mut seq = signed(last_event);
        for event in &write.events {
            self.probe.at(Between::AttemptAndEvent(event.kind));
            seq += 1;
            self.write_event(rid, seq, None, event)?;
        }
        Ok(())
    }

    fn write_attempt(&mut self, rid: i64, attempt: &Attempt) -> Step<()> {
        let error = attempt.error.as_ref().map(json).transpose()?;
        self.conn
            .prepare_cached(
                "INSERT INTO attempts (rid, number, status, instance, fence, started_at, finished_at, error)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (rid, number) DO UPDATE SET status = excluded.status,
                 instance = excluded.instance, fence = excluded.fence, started_at = excluded.started_at,
                 finished_at = excluded.finished_at, error = excluded.error",
            )?
            .execute(params![
                rid,
                attempt.number,
                attempt.status.number(),
                &instance_bytes(attempt.instance)[..],
                signed(attempt.fence),
                attempt.started_at.ms(),
                attempt.finished_at.map(Timestamp::ms),
                error
            ])?;
        Ok(())
    }

    /// Whoever holds the run is told at once that it is wanted cancelled, or that it lost it.
    fn tell(&mut self, stored: &Stored, write: &RunWrite) {
        let asked = |event: &NewEvent| event.kind == EventKind::CancelRequested;
        let revoked = stored.status.is_held() && stored.token() != write.run.token();
        let by_another = !matches!(write.expect, crate::store::Expect::At { token: Some(_), .. });
        if (revoked && by_another) || (stored.status.is_held() && write.events.iter().any(asked)) {
            self.tell_cancel(&write.run.run_id);
        }
    }
}

/// The expiry and the last sign of life of the lease: never moved back while the token stands (L5).
fn forward(stored: &Stored, run: &Run) -> (Option<i64>, Option<i64>) {
    let Some(lease) = run.lease else { return (None, None) };
    let stands = stored.token() == run.token();
    let later = |kept: Option<i64>, new: i64| kept.filter(|_| stands).map_or(new, |kept| kept.max(new));
    (
        Some(later(stored.expires_at, lease.expires_at.ms())),
        Some(later(stored.heartbeat_at, lease.heartbeat_at.ms())),
    )
}

const INSERT: &str =
    "INSERT INTO runs (rid, run_id, tid, aid, status, place, lane, priority, due_at, wake_at,
    version, stamp, fence, last_event, lanes, flags, attempt, failures, interruptions, owner, nonce,
    expires_at, heartbeat_at, queued_at, deadline_at, claimed_at, started_at, attempt_started_at,
    finished_at, extra)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
    ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30)";

macro_rules! update {
    ($more:literal) => {
        concat!(
            "UPDATE runs SET status = ?2, version = ?3, stamp = ?4, fence = ?5, last_event = ?6, flags = ?7,
             attempt = ?8, failures = ?9, interruptions = ?10, owner = ?11, nonce = ?12, expires_at = ?13,
             heartbeat_at = ?14, claimed_at = ?15, started_at = ?16, attempt_started_at = ?17,
             finished_at = ?18, extra = ?19",
            $more,
            " WHERE rid = ?1"
        )
    };
}

/// By whether it moves to another place, and whether it is to be looked at another time.
pub(super) const UPDATES: [[&str; 2]; 2] = [
    [update!(""), update!(", wake_at = ?20")],
    [
        update!(", place = ?20, lane = ?21, due_at = ?22"),
        update!(", place = ?20, lane = ?21, due_at = ?22, wake_at = ?23"),
    ],
];
