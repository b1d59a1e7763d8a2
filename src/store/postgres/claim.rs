//! Grants ready runs, and renews leases.
//!
//! Requests that wait at one moment are answered by one search. Nobody else writes meanwhile, so that no row has to
//! be skipped because somebody else has locked it: instances wait for each other's transactions, which are short.

use tokio_postgres::Row;

use super::conn::{Say, with};
use super::fault::{Fault, Step};
use super::lanes::{Member, Order, order};
use super::load::heads_sql;
use super::row::{COLUMNS, Extra, Loaded, REST, STORED, Stored, WHOLE, flag, get, owner, place, signed};
use super::tx::Tx;
use crate::model::{AgentId, Place, Run, RunStatus, Timestamp};
use crate::rules::{self, Moment};
use crate::store::{ClaimRequest, RenewRequest, Renewal};

/// How many runs that became due are made ready by one claim (G6).
const PROMOTED: usize = 1000;
/// How many ready runs beyond what was asked for one claim looks at: those that it sends to wait elsewhere.
const LOOKED_AT: usize = 1000;
/// The most that are read at once.
const PAGE: usize = 1000;

/// A ready run, and whether its task is paused.
struct Candidate {
    loaded: Step<Loaded>,
    rid: i64,
    paused: bool,
}

impl Candidate {
    fn comes_after(&self, other: Order) -> bool {
        self.loaded.as_ref().is_ok_and(|loaded| order(&loaded.stored) > other)
    }
}

impl Tx<'_> {
    /// Answers requests in order. They are of the same agents, and share the search.
    pub(super) async fn claim(&mut self, requests: &[ClaimRequest]) -> Step<Vec<Vec<Run>>> {
        let mut granted: Vec<Vec<Run>> = Vec::with_capacity(requests.len());
        if requests.iter().any(|request| request.repeat) {
            self.flush().await?;
        }
        for request in requests {
            granted.push(if request.repeat { self.granted_before(request).await? } else { Vec::new() });
        }
        let agents = requests.first().map_or_else(Vec::new, |request| names(&request.agents));
        let missing = |granted: &[Vec<Run>]| -> usize {
            let open = requests.iter().zip(granted);
            open.map(|(request, granted)| request.limit.saturating_sub(granted.len()))
                .fold(0, usize::saturating_add)
        };
        let mut look = missing(&granted).saturating_add(LOOKED_AT);
        let mut promote = true;
        let mut turn = 0;
        loop {
            let wanted = missing(&granted).min(look).min(PAGE);
            if wanted == 0 && !promote {
                return Ok(granted);
            }
            let found = self.search(&agents, wanted, std::mem::take(&mut promote)).await?;
            let all = found.len() < wanted;
            self.freed = None;
            // Read one by one: the first are written while the last are read.
            for row in &found {
                let candidate = candidate(row)?;
                look = look.saturating_sub(1);
                while requests.get(turn).is_some_and(|request| granted[turn].len() >= request.limit) {
                    turn += 1;
                }
                let Some(request) = requests.get(turn) else { return Ok(granted) };
                // Who got room by those before it comes before it.
                if self.freed.is_some_and(|first| candidate.comes_after(first)) {
                    break;
                }
                granted[turn].extend(self.grant(candidate, request).await?);
                self.send_ahead().await?;
            }
            if all && self.freed.is_none() {
                return Ok(granted);
            }
        }
    }

    /// Writes what was decided so far, and finds the ready runs that come first, in one round trip. What became due
    /// meanwhile is ready, if it is to be looked at.
    async fn search(&mut self, agents: &[String], limit: usize, promote: bool) -> Step<Vec<Row>> {
        let limit_there = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut says = self.rows()?;
        self.wrote |= !says.is_empty();
        let written = self.ahead.len() + says.len();
        if promote {
            says.push(Say::new(due_sql(), with![self.now.ms()]));
        }
        says.push(Say::new(FIND_READY, with![agents.to_vec(), limit_there]));
        says.extend([ready_sql(), ready_lanes_sql(), ready_heads_sql()].map(|sql| Say::new(sql, Vec::new())));
        let mut answers = self.say(says, None).await?.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
        for _ in 0..written {
            next()?;
        }
        if promote {
            let due = next()?;
            if !due.is_empty() {
                self.promote(&due).await?;
                return Box::pin(self.search(agents, limit, false)).await;
            }
        }
        next()?;
        let (rows, lanes, heads) = (next()?, next()?, next()?);
        for row in &lanes {
            self.take_lane(row, 0)?;
        }
        for row in &heads {
            self.take_head(row)?;
        }
        Ok(rows)
    }

    /// Runs that became due wait for their turn now.
    async fn promote(&mut self, due: &[Row]) -> Step<()> {
        let due: Vec<Stored> = due.iter().map(Stored::read).collect::<Step<_>>()?;
        let in_lanes: Vec<i64> = due.iter().filter(|s| s.lanes > 0).map(|stored| stored.rid).collect();
        let members =
            if in_lanes.is_empty() { Default::default() } else { self.members_of(&in_lanes).await? };
        for stored in due {
            let members = members.get(&stored.rid).map_or(&[][..], Vec::as_slice);
            let (to, lane) = self.place_for(&stored, members, stored.due_at).await?;
            self.move_to(stored.rid, to, lane);
        }
        self.flush().await
    }

    /// What the same request was granted, and is still merely claimed.
    async fn granted_before(&mut self, request: &ClaimRequest) -> Step<Vec<Run>> {
        let rows = self.ask(granted_sql(), with![signed(request.nonce), owner(request.instance)]).await?;
        let mut found = Vec::new();
        for row in &rows {
            match Loaded::read(row) {
                Ok(loaded) => found.push(loaded.run),
                // It was never handed out: its lease ends by itself.
                Err(Fault::Unreadable(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(found)
    }

    /// None if it waits elsewhere.
    async fn grant(&mut self, candidate: Candidate, request: &ClaimRequest) -> Step<Option<Run>> {
        let rid = candidate.rid;
        let Loaded { stored, run } = match candidate.loaded {
            Ok(loaded) => loaded,
            Err(Fault::Unreadable(why)) => return self.put_aside(rid, &why).await,
            Err(fault) => return Err(fault),
        };
        self.keep(stored);
        // As it stands by now: another of these may have moved it.
        let Some(stored) = self.runs.get(&rid).map(|entry| entry.stored.clone()) else {
            return Ok(None);
        };
        if stored.place != place::READY {
            return Ok(None);
        }
        let members = if stored.lanes > 0 { self.members(&run.spec.lanes) } else { Vec::new() };
        // The clock may have been set back.
        if stored.due_at > self.now.ms() {
            self.hint.agenda = true;
            return self.step_aside(&stored, &members, place::FUTURE, None).await;
        }
        if stored.flags & flag::OVERRIDE_PAUSE == 0 && candidate.paused {
            return self.step_aside(&stored, &members, place::PAUSED, None).await;
        }
        if let Some(lane) = self.full_lane(&stored, &members) {
            return self.step_aside(&stored, &members, place::LANE, Some(lane)).await;
        }
        let moment = Moment { now: self.now, stamp: request.nonce };
        let Ok(write) = rules::claim(&run, request.instance, request.nonce, request.lease, moment) else {
            // Ready and not waiting: no statement of ours leaves a run like this.
            self.move_to(rid, place::NOWHERE, None);
            return Ok(None);
        };
        self.update_run(stored, &write).await?;
        let mut run = write.run;
        run.place = Place::Nowhere;
        Ok(Some(run))
    }

    /// A ready run that cannot be read is out of the way until it is repaired.
    async fn put_aside(&mut self, rid: i64, why: &str) -> Step<Option<Run>> {
        tracing::error!(rid, why, "a run that was to be claimed cannot be read; it is put aside");
        self.move_to(rid, place::UNREADABLE, None);
        self.flush().await?;
        let members = self.members_of(&[rid]).await?.remove(&rid).unwrap_or_default();
        for member in members {
            self.let_go(member.lid).await?;
        }
        Ok(None)
    }

    /// A ready run goes elsewhere without taking room: who waits behind it in its lanes is let go of.
    async fn step_aside(
        &mut self,
        stored: &Stored,
        members: &[Member],
        to: i16,
        lane: Option<i64>,
    ) -> Step<Option<Run>> {
        self.move_to(stored.rid, to, lane);
        if let Some(member) = members.iter().find(|member| Some(member.lid) == lane) {
            self.enqueue(stored.aid, order(stored), *member);
        }
        for member in members {
            self.let_go(member.lid).await?;
        }
        Ok(None)
    }

    /// Renews leases, each by [`rules::renew`]'s conditions. Neither version nor event.
    pub(super) fn renew(&mut self, request: &RenewRequest) -> Step<Vec<Renewal>> {
        let leases = request.leases.iter();
        leases.map(|(run_id, token)| self.renew_one(run_id, *token, request)).collect()
    }

    fn renew_one(
        &mut self,
        run_id: &crate::model::RunId,
        token: crate::model::Token,
        request: &RenewRequest,
    ) -> Step<Renewal> {
        let rid = self.by_id.get(run_id).copied().flatten();
        let now = self.now;
        let Some(entry) = rid.and_then(|rid| self.runs.get_mut(&rid)) else { return Ok(Renewal::Gone) };
        let stored = &mut entry.stored;
        if !stored.status.is_held() || stored.token() != Some(token) {
            return Ok(Renewal::Fenced { fence: stored.fence, status: stored.status });
        }
        let cancel = Extra::read(stored.extra.as_deref())?.cancel;
        let expires_at = now.plus(request.lease).ms().max(stored.expires_at.unwrap_or(i64::MIN));
        let force_at = cancel.as_ref().and_then(|intent| intent.force_at).map(Timestamp::ms);
        let deadline = stored.deadline_at.filter(|_| stored.status != RunStatus::Running);
        stored.wake_at = [Some(expires_at), force_at, deadline].into_iter().flatten().min();
        (stored.expires_at, stored.heartbeat_at) = (Some(expires_at), Some(now.ms()));
        entry.renewed = true;
        Ok(Renewal::Renewed { expires_at: Timestamp::from_ms(expires_at), cancel })
    }
}

fn candidate(row: &Row) -> Step<Candidate> {
    let enabled: Option<bool> = get(row, COLUMNS)?;
    Ok(Candidate { rid: get(row, 0)?, paused: enabled == Some(false), loaded: Loaded::read(row) })
}

fn names(agents: &[AgentId]) -> Vec<String> {
    let mut names: Vec<String> = agents.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Finds the ready runs that come first, and keeps their numbers on the server for the statements behind it. They are
/// looked for once: only an index is read, but after a drain that has pages of entries of which nothing is left.
const FIND_READY: &str =
    "SELECT set_config('tenure.ready', coalesce(array_agg(c.rid)::text, '{}'), true) FROM (
         SELECT x.rid FROM agent_names a CROSS JOIN LATERAL (
             SELECT rid, priority, due_at FROM runs WHERE place = 1 AND aid = a.aid
             ORDER BY priority DESC, due_at, rid LIMIT $2) x
         WHERE a.name = ANY($1) ORDER BY x.priority DESC, x.due_at, x.rid LIMIT $2) c";

/// What was kept.
const READY: &str = "current_setting('tenure.ready')::bigint[]";

/// The same where any run is in a lane: elsewhere their lanes are not looked for.
fn ready_in_lanes() -> String {
    format!("(SELECT CASE WHEN EXISTS (SELECT FROM lane_runs) THEN {READY} END)::bigint[]")
}

fn ready_sql() -> String {
    format!(
        "SELECT {STORED}, {REST}, t.enabled FROM runs r {WHOLE} LEFT JOIN tasks t ON t.tid = r.tid
         WHERE r.rid = ANY({READY}) ORDER BY r.priority DESC, r.due_at, r.rid"
    )
}

/// The lanes of the ready runs that come first.
fn ready_lanes_sql() -> String {
    format!(
        "SELECT l.lid, l.name, l.version, l.held, l.total FROM lane_runs m JOIN lanes l ON l.lid = m.lid
         WHERE m.rid = ANY({})",
        ready_in_lanes()
    )
}

/// Whose turn it is in those of them in which others are than the ready ones and those that have their room.
fn ready_heads_sql() -> String {
    let lanes = format!(
        "l.lid = ANY(ARRAY(SELECT m.lid FROM lane_runs m JOIN lanes k ON k.lid = m.lid WHERE m.rid = ANY({})
         GROUP BY m.lid HAVING max(k.total - k.held) > count(*) FILTER (WHERE NOT m.takes)))",
        ready_in_lanes()
    );
    heads_sql(&lanes)
}

pub(super) fn due_sql() -> String {
    format!(
        "SELECT {STORED} FROM (SELECT rid FROM runs WHERE place = 2 AND due_at <= $1
             ORDER BY due_at, rid LIMIT {PROMOTED}) c
         JOIN runs r ON r.rid = c.rid JOIN specs s ON s.rid = r.rid ORDER BY r.due_at, r.rid"
    )
}

pub(super) fn granted_sql() -> String {
    format!(
        "SELECT {STORED}, {REST} FROM runs r {WHOLE}
         WHERE r.wake_at IS NOT NULL AND r.status = 1 AND r.nonce = $1 AND r.owner = $2
         ORDER BY r.priority DESC, r.due_at, r.rid"
    )
}
