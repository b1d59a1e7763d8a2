//! Decides what becomes of the rows of a run.

use super::fault::Step;
use super::lanes::Stand;
use super::row::{Extra, Stored, flag, place, signed, trigger, trigger_flag};
use super::tx::{Entry, Known, Rest, Tx};
use super::{attempt, result};
use crate::model::{Attempt, EventKind, NewEvent, Run, Timestamp, Trigger};
use crate::rules;
use crate::store::{Expect, RunWrite};

impl Tx<'_> {
    /// A run that there was not.
    pub(super) async fn insert_run(&mut self, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let spec = &run.spec;
        let rid = self.new_rid();
        let (tid, aid) = (self.task_number(&spec.task_id), self.agent_number(&spec.agent_id));
        let mut flags = trigger_flag(spec.trigger);
        flags |= if spec.override_pause { flag::OVERRIDE_PAUSE } else { 0 };
        flags |= if spec.idempotency.is_some() { flag::HAS_KEY } else { 0 };
        let wake_at = rules::wake_at(run).map(Timestamp::ms);
        self.hint.agenda |= wake_at.is_some();
        let mut stored = Stored {
            rid,
            tid,
            aid,
            status: run.status,
            place: place::NOWHERE,
            lane: None,
            priority: spec.priority,
            due_at: run.due_at.ms(),
            wake_at,
            version: run.version,
            stamp: run.stamp,
            fence: run.fence,
            last_event: super::commit::numbered(0, write.events.len()),
            lanes: i32::try_from(spec.lanes.len()).unwrap_or(i32::MAX),
            flags,
            nonce: run.lease.map(|lease| lease.nonce),
            expires_at: run.lease.map(|lease| lease.expires_at.ms()),
            heartbeat_at: run.lease.map(|lease| lease.heartbeat_at.ms()),
            deadline_at: spec.limits.deadline_at.map(Timestamp::ms),
            extra: Extra::of(run)?,
            run_id: run.run_id.clone(),
            tried: write.attempt.as_ref().map(attempt::packed).transpose()?,
        };
        self.stand(rid, &spec.lanes, Stand::NONE, Stand::of(run.status, spec.trigger == Trigger::Schedule));
        if run.status.is_waiting() {
            let members = self.members(&spec.lanes);
            (stored.place, stored.lane) = self.place_for(&stored, &members, stored.due_at).await?;
        }
        if let Some(key) = &spec.idempotency {
            self.out.keys.push((tid, rid, key.clone()));
            self.keys.insert((spec.task_id.clone(), key.key.clone()), (run.run_id.clone(), key.digest));
        }
        self.mark(rid, spec.queued_at);
        self.keep_result(&mut stored, run);
        self.out.specs.push((rid, tid, aid, std::sync::Arc::clone(spec), run.run_id.clone()));
        self.by_id.insert(run.run_id.clone(), Some(rid));
        let rest = Some(Rest::of(run));
        let entry = Entry { new: true, rest, known: Known::Nobody, ..Entry::read(stored) };
        self.runs.insert(rid, entry);
        self.count(tid, run.status, 1);
        self.write_told(rid, 0, write);
        Ok(())
    }

    /// A run that moves; its write was found to stand.
    pub(super) async fn update_run(&mut self, mut stored: Stored, write: &RunWrite) -> Step<()> {
        let run = &write.run;
        let mut members = Vec::new();
        if stored.lanes > 0 {
            self.move_in_lanes(&mut stored, run).await?;
            if run.status.is_waiting() {
                members = self.members(&run.spec.lanes);
            }
        }
        self.tell_holder(&stored, write);
        let (was, first, rid) = (stored.status, stored.last_event, stored.rid);
        let woke = stored.wake_at;
        Self::moved(&mut stored, run, write.events.len())?;
        self.hint.agenda |= stored.wake_at != woke && stored.wake_at.is_some();
        (stored.place, stored.lane) = if run.status.is_waiting() {
            self.place_for(&stored, &members, stored.due_at).await?
        } else {
            (place::NOWHERE, None)
        };
        if was != run.status {
            self.count(stored.tid, was, -1);
            self.count(stored.tid, run.status, 1);
        }
        // Looked up only now: what it was may have been written meanwhile.
        if let Some(attempt) = &write.attempt {
            self.keep_attempt(&mut stored, attempt)?;
        }
        self.keep_result(&mut stored, run);
        let entry = self.runs.entry(rid).or_insert_with(|| Entry::read(stored.clone()));
        entry.rest = Some(Rest::of(run));
        entry.stored = stored;
        self.write_told(rid, first, write);
        Ok(())
    }

    /// Takes a run out of its place, and lets go of who waits in its lanes and has room now. Where it waits
    /// itself is decided after that.
    async fn move_in_lanes(&mut self, stored: &mut Stored, run: &Run) -> Step<()> {
        let scheduled = trigger(stored.flags)? == Trigger::Schedule;
        let (from, to) = (Stand::of(stored.status, scheduled), Stand::of(run.status, scheduled));
        if stored.place == place::LANE {
            self.leave_queue(stored);
            self.move_to(stored.rid, place::NOWHERE, None);
            (stored.place, stored.lane) = (place::NOWHERE, None);
        }
        self.stand(stored.rid, &run.spec.lanes, from, to);
        for member in self.members(&run.spec.lanes) {
            self.let_go(member.lid).await?;
        }
        Ok(())
    }

    /// The row as the write leaves it; where it waits is decided apart.
    fn moved(stored: &mut Stored, run: &Run, events: usize) -> Step<()> {
        let (expires_at, heartbeat_at) = forward(stored, run);
        let wake_at = match (expires_at, run.lease) {
            (Some(expires_at), Some(lease)) if lease.expires_at.ms() != expires_at => {
                let mut kept = run.clone();
                kept.lease =
                    Some(crate::model::Lease { expires_at: Timestamp::from_ms(expires_at), ..lease });
                rules::wake_at(&kept)
            }
            _ => rules::wake_at(run),
        };
        stored.status = run.status;
        stored.due_at = run.due_at.ms();
        stored.wake_at = wake_at.map(Timestamp::ms);
        stored.version = run.version.max(stored.version.saturating_add(1));
        stored.stamp = run.stamp;
        stored.fence = run.fence.max(stored.fence);
        stored.last_event = super::commit::numbered(stored.last_event, events);
        stored.nonce = run.lease.map(|lease| lease.nonce);
        (stored.expires_at, stored.heartbeat_at) = (expires_at, heartbeat_at);
        stored.extra = Extra::of(run)?;
        Ok(())
    }

    /// The latest attempt is in the row; one before it goes to a row of its own.
    fn keep_attempt(&mut self, stored: &mut Stored, attempt: &Attempt) -> Step<()> {
        let Some(before) = &stored.tried else {
            stored.tried = Some(attempt::packed(attempt)?);
            return Ok(());
        };
        let (rid, number) = (stored.rid, attempt::number(before)?);
        if number > attempt.number {
            self.out.attempts.insert((rid, attempt.number), attempt.clone());
            return Ok(());
        }
        if number < attempt.number {
            self.out.attempts.insert((rid, number), attempt::unpacked(&stored.run_id, before)?);
        }
        stored.tried = Some(attempt::packed(attempt)?);
        Ok(())
    }

    /// A small result is in the row, which is written as a whole; another has a row of its own.
    fn keep_result(&mut self, stored: &mut Stored, run: &Run) {
        stored.flags &= !flag::HAS_RESULT;
        if let Some(result) = run.result.as_ref().filter(|result| result::small(result).is_none()) {
            stored.flags |= flag::HAS_RESULT;
            self.out.results.insert(stored.rid, result.clone());
        }
    }

    /// The events of a write. The store numbers them on, so that there is never a gap.
    fn write_told(&mut self, rid: i64, last_event: u64, write: &RunWrite) {
        let mut seq = signed(last_event);
        for event in &write.events {
            seq += 1;
            self.tell(rid, seq, None, event);
        }
    }

    /// Whoever holds the run is told at once that it is wanted cancelled, or that it lost it.
    fn tell_holder(&mut self, stored: &Stored, write: &RunWrite) {
        let asked = |event: &NewEvent| event.kind == EventKind::CancelRequested;
        let revoked = stored.status.is_held() && stored.token() != write.run.token();
        let by_another = !matches!(write.expect, Expect::At { token: Some(_), .. });
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
