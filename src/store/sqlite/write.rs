//! Writes runs. Statements differ by what they leave alone: an index that a statement does not name is not
//! touched, and every index costs as much as the row.

use rusqlite::{ToSql, params};

use super::body::{Tried, small};
use super::fault::Step;
use super::hot::Hot;
use super::lanes::Stand;
use super::probe::Between;
use super::row::{Loaded, Stored, flag, json, place, put_result, signed, trigger, trigger_flag};
use super::session;
use super::tx::Tx;
use crate::model::{Attempt, EventKind, NewEvent, Place, Run, Timestamp, Trigger};
use crate::rules;
use crate::store::RunWrite;

impl Tx<'_, '_> {
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
        let mut next = Stored { place, lane, ..Stored::new(run, rid, tid, aid) };
        next.flags = trigger_flag(spec.trigger);
        next.flags |= if spec.override_pause { flag::OVERRIDE_PAUSE } else { 0 };
        next.flags |= if spec.idempotency.is_some() { flag::HAS_KEY } else { 0 };
        next.part = self.part_for(tid, run)?;
        self.moved_on(&mut next, write)?;
        self.mark(rid, next.queued_at);
        self.insert_row(&next, run)?;
        if next.part.is_none() {
            self.conn
                .prepare_cached("INSERT INTO specs (rid, spec) VALUES (?1, ?2)")?
                .execute(params![rid, json(&**spec)?])?;
        }
        if let Some(key) = &spec.idempotency {
            self.conn
                .prepare_cached("INSERT INTO idempotency (tid, key, rid, digest) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![tid, &*key.key, rid, signed(key.digest)])?;
        }
        self.count(tid, run.status, 1);
        self.write_told(&Before::default(), next, write)
    }

    /// A run that moves; its write was found to stand.
    pub(super) fn update_run(&mut self, stored: &Stored, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let mut next = stored.clone();
        let mut members = Vec::new();
        if stored.lanes > 0 {
            self.move_in_lanes(&mut next, run)?;
            if run.status.is_waiting() {
                members = self.members(stored.rid)?;
            }
        }
        let at = (next.place, next.lane, stored.due_at);
        (next.place, next.lane) = if run.status.is_waiting() {
            self.place_for(&members, stored.aid, run.due_at.ms())?
        } else {
            (place::NOWHERE, None)
        };
        self.moved_on(&mut next, write)?;
        self.update_row(at, stored, &next, run)?;
        if stored.status != run.status {
            self.count(stored.tid, stored.status, -1);
            self.count(stored.tid, run.status, 1);
        }
        self.tell(stored, write);
        self.write_told(&Before { told: stored.told, last_event: stored.last_event }, next, write)
    }

    /// Takes a run out of its place, and lets go of who waits in its lanes and has room now. Where it waits
    /// itself is decided after that.
    fn move_in_lanes(&mut self, stored: &mut Stored, run: &Run) -> Step<()> {
        let scheduled = trigger(stored.flags)? == Trigger::Schedule;
        let (from, to) = (Stand::of(stored.status, scheduled), Stand::of(run.status, scheduled));
        // It goes on as it was: nobody in its lanes has more room, or less.
        if from == to && stored.place == place::NOWHERE {
            return Ok(());
        }
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

    /// What a write makes of a row, besides its place.
    fn moved_on(&mut self, next: &mut Stored, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let (expires_at, heartbeat_at) = forward(next, run);
        let mut lease = run.lease;
        if let (Some(lease), Some(expires_at)) = (&mut lease, expires_at) {
            lease.expires_at = Timestamp::from_ms(expires_at);
        }
        next.status = run.status;
        next.due_at = run.due_at.ms();
        next.version = run.version.max(next.version.saturating_add(1));
        next.stamp = run.stamp;
        next.fence = run.fence.max(next.fence);
        (next.expires_at, next.heartbeat_at) = (expires_at, heartbeat_at);
        next.owner = lease.map(|lease| lease.owner);
        next.nonce = lease.map(|lease| lease.nonce);
        next.finished_at = run.finished_at.map(Timestamp::ms);
        let wake_at = rules::wake_at_of(run, lease).map(Timestamp::ms);
        self.hint.agenda |= wake_at != next.wake_at && wake_at.is_some();
        next.wake_at = wake_at;
        if !write.events.is_empty() {
            next.last_event += write.events.len() as u64;
            next.told = self.cursor_after(write.events.len());
        }
        if let Some(result) = run.result.as_ref().filter(|result| small(result).is_none()) {
            next.flags |= flag::HAS_RESULT;
            put_result(self.conn, next.rid, result)?;
        }
        if let Some(attempt) = &write.attempt {
            self.keep_attempt(next, attempt)?;
        }
        Ok(())
    }

    fn insert_row(&self, next: &Stored, run: &Run) -> Step<()> {
        let pack = next.pack(run)?;
        self.hot.execute(
            Hot::Insert,
            params![
                next.rid,
                run.run_id.as_str(),
                next.tid,
                next.aid,
                next.status.number(),
                next.place,
                next.lane,
                run.spec.priority,
                next.due_at,
                next.wake_at,
                next.lanes,
                next.flags,
                next.nonce.map(signed),
                next.queued_at,
                next.finished_at,
                next.part,
                pack.bytes(),
                session::digest(&run.spec.session_id, run.run_id.as_str()),
            ],
        )
    }

    /// `at`: the place where it waited last, and its due time.
    fn update_row(&self, at: (i64, Option<i64>, i64), before: &Stored, next: &Stored, run: &Run) -> Step<()> {
        let moves = at != (next.place, next.lane, next.due_at);
        let woken = |row: &Stored| (row.wake_at, row.nonce, row.finished_at);
        let wakes = woken(before) != woken(next);
        let pack = next.pack(run)?;
        let (status, bytes) = (next.status.number(), pack.bytes());
        let nonce = next.nonce.map(signed);
        let mut values: [&dyn ToSql; 10] = [&next.rid; 10];
        values[1..4].copy_from_slice(&[&status, &next.flags, &bytes]);
        let mut many = 4;
        if moves {
            values[many..many + 3].copy_from_slice(&[&next.place, &next.lane, &next.due_at]);
            many += 3;
        }
        if wakes {
            values[many..many + 3].copy_from_slice(&[&next.wake_at, &nonce, &next.finished_at]);
            many += 3;
        }
        self.hot.execute(Hot::Update(moves, wakes), &values[..many])
    }

    /// The latest attempt is in the row; one before it goes to a row of its own.
    fn keep_attempt(&self, next: &mut Stored, attempt: &Attempt) -> Step<()> {
        let attempt = Tried::of(attempt)?;
        match next.latest.take() {
            Some(before) if before.number < attempt.number => {
                self.put_attempt(next.rid, &before)?;
                next.latest = Some(attempt);
            }
            Some(latest) if latest.number > attempt.number => {
                self.put_attempt(next.rid, &attempt)?;
                next.latest = Some(latest);
            }
            _ => next.latest = Some(attempt),
        }
        Ok(())
    }

    fn put_attempt(&self, rid: i64, attempt: &Tried) -> Step<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO attempts (rid, number, body) VALUES (?1, ?2, ?3)")?
            .execute(params![rid, attempt.number, attempt.alone().bytes()])?;
        Ok(())
    }

    /// The events of a write, and what is remembered of it. The store numbers events on, so that there is never
    /// a gap.
    fn write_told(&mut self, before: &Before, next: Stored, write: &RunWrite) -> Step<()> {
        if let (Some(event), true) = (write.events.first(), write.attempt.is_some()) {
            self.probe.at(Between::RunAndAttempt(event.kind));
        }
        let (mut seq, mut prev) = (signed(before.last_event), before.told);
        for event in &write.events {
            self.probe.at(Between::AttemptAndEvent(event.kind));
            seq += 1;
            prev = self.write_event(next.rid, seq, prev, None, event)?;
        }
        if next.status.is_terminal() {
            self.known.forget(&write.run.run_id);
        } else {
            self.known.keep(Loaded { run: as_stored(&next, &write.run), stored: next });
        }
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

/// The last event of a run before a write.
#[derive(Default)]
struct Before {
    told: i64,
    last_event: u64,
}

/// A run as it would be read from its row.
fn as_stored(stored: &Stored, run: &Run) -> Run {
    let mut run = run.clone();
    run.version = stored.version;
    run.fence = stored.fence;
    run.last_event = stored.last_event;
    run.place = Place::Nowhere;
    if let (Some(lease), Some(expires_at)) = (&mut run.lease, stored.expires_at) {
        lease.expires_at = Timestamp::from_ms(expires_at);
        lease.heartbeat_at = stored.heartbeat_at.map_or(lease.heartbeat_at, Timestamp::from_ms);
    }
    run
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

pub(super) const INSERT: &str =
    "INSERT INTO runs (rid, run_id, tid, aid, status, place, lane, priority, due_at, wake_at, lanes, flags,
    nonce, queued_at, finished_at, part, body, session)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

/// By whether it moves to another place, and whether it is to be looked at another time.
pub(super) const UPDATES: [[&str; 2]; 2] = [
    [
        "UPDATE runs SET status = ?2, flags = ?3, body = ?4 WHERE rid = ?1",
        "UPDATE runs SET status = ?2, flags = ?3, body = ?4, wake_at = ?5, nonce = ?6, finished_at = ?7
         WHERE rid = ?1",
    ],
    [
        "UPDATE runs SET status = ?2, flags = ?3, body = ?4, place = ?5, lane = ?6, due_at = ?7
         WHERE rid = ?1",
        "UPDATE runs SET status = ?2, flags = ?3, body = ?4, place = ?5, lane = ?6, due_at = ?7,
         wake_at = ?8, nonce = ?9, finished_at = ?10 WHERE rid = ?1",
    ],
];
