//! Grants ready runs, and renews leases.

use rusqlite::params;

use super::fault::{Fault, Step};
use super::hot::{Hot, columns};
use super::lanes::{Member, Order, order};
use super::probe::Between;
use super::row::{Loaded, SPECS, STORED, Stored, flag, place, signed};
use super::tx::Tx;
use crate::model::{Place, Run, Timestamp};
use crate::rules::{self, Moment};
use crate::store::{ClaimRequest, RenewRequest, Renewal};

/// How many runs that became due are made ready by one claim (G6).
const PROMOTED: i64 = 1000;
/// How many ready runs beyond what was asked for one claim looks at: those that it sends to wait elsewhere.
const LOOKED_AT: usize = 1000;

impl Tx<'_, '_> {
    /// Answers requests in order. They are of the same agents, and share the search.
    pub(super) fn claim(&mut self, requests: &[ClaimRequest]) -> Step<Vec<Vec<Run>>> {
        let mut granted: Vec<Vec<Run>> = Vec::with_capacity(requests.len());
        for request in requests {
            granted.push(if request.repeat { self.granted_before(request)? } else { Vec::new() });
        }
        self.promote_due()?;
        let mut aids = Vec::new();
        for agent in requests.first().map_or(&[][..], |request| &request.agents[..]) {
            if let Some(aid) = self.known_agent(agent)?
                && !aids.contains(&aid)
            {
                aids.push(aid);
            }
        }
        let mut turn = 0;
        let missing = |granted: &[Vec<Run>], from: usize| -> usize {
            let open = requests.iter().zip(granted).skip(from);
            open.map(|(request, granted)| request.limit.saturating_sub(granted.len()))
                .fold(0, usize::saturating_add)
        };
        let mut look = missing(&granted, 0).saturating_add(LOOKED_AT);
        loop {
            let wanted = missing(&granted, turn).min(look);
            let candidates = if wanted == 0 { Vec::new() } else { self.ready(&aids, wanted)? };
            if candidates.is_empty() {
                return Ok(granted);
            }
            self.freed = None;
            for candidate in candidates {
                while requests.get(turn).is_some_and(|request| granted[turn].len() >= request.limit) {
                    turn += 1;
                }
                let Some(request) = requests.get(turn) else { return Ok(granted) };
                // Who got room by those before it comes before it.
                if self.freed.is_some_and(|first| first < candidate) {
                    break;
                }
                look -= 1;
                let (.., rid) = candidate;
                granted[turn].extend(self.grant(rid, request)?);
            }
        }
    }

    /// What the same request was granted, and is still merely claimed.
    fn granted_before(&mut self, request: &ClaimRequest) -> Step<Vec<Run>> {
        let sql = format!("SELECT {} {GRANTED_FROM} {SPECS} {GRANTED}", columns());
        let mut select = self.conn.prepare_cached(&sql)?;
        let mut rows = select.query([signed(request.nonce)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            match Loaded::read(row) {
                Ok(loaded) if loaded.stored.owner != Some(request.instance) => {}
                Ok(loaded) => found.push(loaded.with_result(self.conn)?.run),
                // It was never handed out: its lease ends by itself.
                Err(Fault::Unreadable(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(found)
    }

    /// Runs that became due wait for their turn now.
    fn promote_due(&mut self) -> Step<()> {
        let mut select = self.conn.prepare_cached(DUE)?;
        let mut rows = select.query(params![self.now.ms(), PROMOTED])?;
        let mut due: Vec<(i64, i64, i64, bool)> = Vec::new();
        while let Some(row) = rows.next()? {
            due.push((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)? > 0));
        }
        for (rid, aid, due_at, has_lanes) in due {
            let members = if has_lanes { self.members(rid)? } else { Vec::new() };
            let (to, lane) = self.place_for(&members, aid, due_at)?;
            self.move_to(rid, to, lane)?;
        }
        Ok(())
    }

    /// The ready runs of these agents that come first. Only an index is read.
    fn ready(&self, aids: &[i64], limit: usize) -> Step<Vec<Order>> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut found: Vec<Order> = Vec::new();
        for aid in aids {
            self.hot.each(Hot::Ready, &[aid, &most], |row| {
                found.push(order(row)?);
                Ok(())
            })?;
        }
        if aids.len() > 1 {
            found.sort_unstable();
        }
        found.truncate(limit);
        Ok(found)
    }

    /// None if it waits elsewhere.
    fn grant(&mut self, rid: i64, request: &ClaimRequest) -> Step<Option<Run>> {
        let loaded = match self.load(rid) {
            Ok(loaded) => loaded,
            Err(Fault::Unreadable(why)) => {
                tracing::error!(rid, why, "a run that was to be claimed cannot be read; it is put aside");
                self.move_to(rid, place::UNREADABLE, None)?;
                for member in self.members(rid)? {
                    self.let_go(member.lid)?;
                }
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        let Some(Loaded { stored, run }) = loaded.filter(|loaded| loaded.stored.place == place::READY) else {
            return Ok(None);
        };
        let members: Vec<Member> = if stored.lanes > 0 { self.members(rid)? } else { Vec::new() };
        // The clock may have been set back.
        if stored.due_at > self.now.ms() {
            self.hint.agenda = true;
            return self.step_aside(&stored, &members, place::FUTURE, Some(stored.due_at));
        }
        if stored.flags & flag::OVERRIDE_PAUSE == 0 && self.is_paused(stored.tid)? {
            return self.step_aside(&stored, &members, place::PAUSED, Some(stored.tid));
        }
        if let Some(lane) = Self::full_lane(&members) {
            return self.step_aside(&stored, &members, place::LANE, Some(lane));
        }
        let moment = Moment { now: self.now, stamp: request.nonce };
        let Ok(write) = rules::claim(&run, request.instance, request.nonce, request.lease, moment) else {
            // Ready and not waiting: no statement of ours leaves a run like this.
            self.move_to(rid, place::NOWHERE, None)?;
            return Ok(None);
        };
        self.update_run(&stored, &write)?;
        let mut run = write.run;
        run.place = Place::Nowhere;
        Ok(Some(run))
    }

    /// A ready run goes elsewhere without taking room: who waits behind it in its lanes is let go of.
    fn step_aside(
        &mut self,
        stored: &Stored,
        members: &[Member],
        to: i64,
        lane: Option<i64>,
    ) -> Step<Option<Run>> {
        self.move_to(stored.rid, to, lane)?;
        for member in members {
            self.let_go(member.lid)?;
        }
        Ok(None)
    }

    pub(super) fn load(&mut self, rid: i64) -> Step<Option<Loaded>> {
        if let Some(known) = self.known.get(rid) {
            return Ok(Some(known.clone()));
        }
        let hot = self.hot;
        let loaded = hot.first(Hot::Load, &[&rid], |row| Loaded::read_with(row, |part| self.common(part)))?;
        loaded.map(|loaded| loaded.with_result(self.conn)).transpose()
    }

    /// Renews leases, each by [`rules::renew`]'s conditions. Neither version nor event.
    pub(super) fn renew(&mut self, request: &RenewRequest) -> Step<Vec<Renewal>> {
        let mut answers = Vec::with_capacity(request.leases.len());
        for (run_id, token) in &request.leases {
            let Some(stored) = self.stored(run_id)? else {
                answers.push(Renewal::Gone);
                continue;
            };
            if !stored.status.is_held() || stored.token() != Some(*token) {
                answers.push(Renewal::Fenced { fence: stored.fence, status: stored.status });
                continue;
            }
            answers.push(self.renew_one(&stored, request)?);
        }
        Ok(answers)
    }

    fn renew_one(&mut self, stored: &Stored, request: &RenewRequest) -> Step<Renewal> {
        let Some(Loaded { stored, mut run }) = self.load(stored.rid)? else { return Ok(Renewal::Gone) };
        let cancel = run.cancel.clone();
        let expires_at = self.now.plus(request.lease).ms().max(stored.expires_at.unwrap_or(i64::MIN));
        let mut next = stored.clone();
        (next.expires_at, next.heartbeat_at) = (Some(expires_at), Some(self.now.ms()));
        if let Some(lease) = &mut run.lease {
            lease.expires_at = Timestamp::from_ms(expires_at);
            lease.heartbeat_at = self.now;
        }
        next.wake_at = rules::wake_at(&run).map(Timestamp::ms);
        let pack = next.pack(&run)?;
        if next.wake_at == stored.wake_at {
            self.conn
                .prepare_cached("UPDATE runs SET body = ?2 WHERE rid = ?1")?
                .execute(params![next.rid, pack.bytes()])?;
        } else {
            self.conn
                .prepare_cached("UPDATE runs SET body = ?2, wake_at = ?3 WHERE rid = ?1")?
                .execute(params![next.rid, pack.bytes(), next.wake_at])?;
        }
        self.known.keep(Loaded { stored: next, run });
        self.probe.at(Between::RenewalAndCommit);
        Ok(Renewal::Renewed { expires_at: Timestamp::from_ms(expires_at), cancel })
    }
}

/// The statement that loads a run by its number. What it has in common with others is known, or found apart.
pub(super) fn load() -> String {
    format!(
        "SELECT {STORED}, r.run_id, s.spec, NULL, NULL FROM runs r
         LEFT JOIN specs s ON r.part IS NULL AND s.rid = r.rid WHERE r.rid = ?1"
    )
}

pub(super) const READY: &str = "SELECT rid, priority, due_at FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 1 AND lane IS NULL AND aid = ?1 ORDER BY priority DESC, due_at, rid LIMIT ?2";

pub(super) const DUE: &str = "SELECT rid, aid, due_at, lanes FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 2 AND lane <= ?1 ORDER BY lane LIMIT ?2";

/// For who asks again: all that are held are looked through, by the index alone.
pub(super) const GRANTED_FROM: &str = "FROM runs r INDEXED BY runs_wake";
pub(super) const GRANTED: &str = "WHERE r.wake_at IS NOT NULL AND r.wake_at > -9223372036854775807
    AND r.nonce = ?1 AND r.status = 1 ORDER BY r.priority DESC, r.due_at, r.rid";
