//! Where runs wait, and what takes room in lanes.
//!
//! A run that waits is Future before it is due, then Ready, or in a lane that is full. A lane lets go of one
//! waiting run of each agent whenever something leaves it or a ready run of it is not to be had any more. More
//! than there is room for may be let go of: the claim looks again, and sends back who does not fit.

use rusqlite::{OptionalExtension, params};

use super::fault::Step;
use super::row::{Stored, place};
use super::tx::Tx;
use crate::model::{Lane, RunStatus};

/// A lane that a run is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) lid: i64,
    most: i64,
    takes: bool,
    held: i64,
}

impl Member {
    /// Whether others leave the run no room. Who has its room already is not in its own way.
    fn is_full(&self) -> bool {
        !self.takes && self.held >= self.most
    }
}

/// How a run stands in its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stand {
    active: bool,
    takes: bool,
    sched: bool,
}

impl Stand {
    pub(super) fn of(status: RunStatus, scheduled: bool) -> Self {
        Self {
            active: status.is_active(),
            takes: status.takes_room(),
            sched: scheduled && status == RunStatus::Queued,
        }
    }

    pub(super) const NONE: Self = Self { active: false, takes: false, sched: false };
}

impl Tx<'_> {
    /// The lanes that a run is in.
    pub(super) fn members(&self, rid: i64) -> Step<Vec<Member>> {
        let mut select = self.conn.prepare_cached(MEMBERS)?;
        let members = select.query_map([rid], |row| {
            Ok(Member { lid: row.get(0)?, most: row.get(1)?, takes: row.get(2)?, held: row.get(3)? })
        })?;
        Ok(members.collect::<rusqlite::Result<_>>()?)
    }

    /// Moves a run in its lanes: into them, out of them, or to take room or give it back.
    pub(super) fn stand(&mut self, rid: i64, lanes: &[Lane], from: Stand, to: Stand) -> Step<()> {
        if from == to {
            return Ok(());
        }
        match (from.active, to.active) {
            (false, true) => self.enter(rid, lanes, to),
            (true, false) => {
                for member in self.members(rid)? {
                    self.conn
                        .prepare_cached("DELETE FROM lane_runs WHERE lid = ?1 AND rid = ?2")?
                        .execute([member.lid, rid])?;
                    self.move_lane(member.lid, -i64::from(from.takes), -1)?;
                }
                Ok(())
            }
            (true, true) => {
                for member in self.members(rid)? {
                    self.conn
                        .prepare_cached(
                            "UPDATE lane_runs SET takes = ?3, sched = ?4 WHERE lid = ?1 AND rid = ?2",
                        )?
                        .execute(params![member.lid, rid, to.takes, to.sched])?;
                    if from.takes != to.takes {
                        self.move_lane(member.lid, i64::from(to.takes) - i64::from(from.takes), 0)?;
                    }
                }
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }

    fn enter(&mut self, rid: i64, lanes: &[Lane], to: Stand) -> Step<()> {
        for (n, lane) in lanes.iter().enumerate() {
            if lanes[..n].iter().any(|other| other.name == lane.name) {
                continue;
            }
            let version = self.new_lane_version();
            let lid: i64 = self
                .conn
                .prepare_cached(
                    "INSERT INTO lanes (name, version, held, total) VALUES (?1, ?2, ?3, 1)
                     ON CONFLICT (name) DO UPDATE
                     SET version = excluded.version, held = held + excluded.held, total = total + 1
                     RETURNING lid",
                )?
                .query_row(params![&*lane.name, version, to.takes], |row| row.get(0))?;
            self.conn
                .prepare_cached(
                    "INSERT INTO lane_runs (lid, rid, pos, most, takes, sched) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![lid, rid, n as i64, lane.limit, to.takes, to.sched])?;
        }
        Ok(())
    }

    fn move_lane(&mut self, lid: i64, held: i64, total: i64) -> Step<()> {
        let version = self.new_lane_version();
        let left: Option<i64> = self
            .conn
            .prepare_cached(
                "UPDATE lanes SET version = ?2, held = held + ?3, total = total + ?4 WHERE lid = ?1
                 RETURNING total",
            )?
            .query_row(params![lid, version, held, total], |row| row.get(0))
            .optional()?;
        if left.is_some_and(|left| left <= 0) {
            self.conn.prepare_cached("DELETE FROM lanes WHERE lid = ?1")?.execute([lid])?;
        }
        Ok(())
    }

    /// Where a waiting run waits that is written or has become due: behind those of its agent that wait for a
    /// lane already, unless it has its room there.
    pub(super) fn place_for(
        &mut self,
        members: &[Member],
        aid: i64,
        due_at: i64,
    ) -> Step<(i64, Option<i64>)> {
        if due_at > self.now.ms() {
            self.hint.agenda = true;
            return Ok((place::FUTURE, None));
        }
        for member in members.iter().filter(|member| !member.takes) {
            if member.is_full() || self.best_blocked(member.lid, aid)?.is_some() {
                return Ok((place::LANE, Some(member.lid)));
            }
        }
        self.hint.ready = true;
        Ok((place::READY, None))
    }

    /// The first lane of a ready run in which there is no room for it.
    pub(super) fn full_lane(members: &[Member]) -> Option<i64> {
        members.iter().find(|member| member.is_full()).map(|member| member.lid)
    }

    /// The run of an agent that comes next in a lane, and when it is due.
    fn best_blocked(&self, lid: i64, aid: i64) -> Step<Option<(i64, i64)>> {
        let mut select = self.conn.prepare_cached(BEST_BLOCKED)?;
        Ok(select.query_row([lid, aid], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// Lets go of the best waiting run of each agent in a lane that has room for it. Answers whether there was
    /// one.
    pub(super) fn let_go(&mut self, lid: i64) -> Step<bool> {
        let mut any = false;
        let mut after = -1_i64;
        loop {
            let mut next = self.conn.prepare_cached(NEXT_BLOCKED_AGENT)?;
            let aid: Option<i64> = next.query_row([lid, after], |row| row.get(0)).optional()?;
            let Some(aid) = aid else { return Ok(any) };
            after = aid;
            if let Some((rid, due_at)) = self.best_blocked(lid, aid)?
                && self.members(rid)?.iter().all(|member| member.lid != lid || !member.is_full())
            {
                // It has waited its turn here; another lane of it that is full is found when it is claimed.
                let due = due_at <= self.now.ms();
                self.move_to(rid, if due { place::READY } else { place::FUTURE }, None)?;
                self.hint.ready |= due;
                self.hint.agenda |= !due;
                any = true;
            }
        }
    }

    /// The lanes of a run by name, in its order, as far as anything is in them.
    pub(super) fn lanes_named(&self, lanes: &[Lane]) -> Step<Vec<i64>> {
        let mut select = self.conn.prepare_cached("SELECT lid FROM lanes WHERE name = ?1")?;
        let mut found = Vec::new();
        for lane in lanes {
            found.extend(select.query_row([&*lane.name], |row| row.get::<_, i64>(0)).optional()?);
        }
        Ok(found)
    }

    /// Writes where a run waits; its version does not rise.
    pub(super) fn move_to(&mut self, rid: i64, to: i64, lane: Option<i64>) -> Step<()> {
        self.conn
            .prepare_cached("UPDATE runs SET place = ?2, lane = ?3 WHERE rid = ?1")?
            .execute(params![rid, to, lane])?;
        Ok(())
    }

    /// A ready run goes elsewhere without taking room: who waits behind it in its lanes is let go of.
    pub(super) fn step_aside(
        &mut self,
        stored: &Stored,
        members: &[Member],
        to: i64,
        lane: Option<i64>,
    ) -> Step<bool> {
        self.move_to(stored.rid, to, lane)?;
        let mut any = false;
        for member in members {
            any |= self.let_go(member.lid)?;
        }
        Ok(any)
    }

    /// The runs of a task that waited because it was paused wait like others.
    pub(super) fn unpause(&mut self, tid: i64) -> Step<()> {
        let mut select = self.conn.prepare_cached(PAUSED_IN_LANES)?;
        let rows = select.query_map([tid], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let in_lanes: Vec<(i64, i64, i64)> = rows.collect::<rusqlite::Result<_>>()?;
        for (rid, aid, due_at) in in_lanes {
            let members = self.members(rid)?;
            let (to, lane) = self.place_for(&members, aid, due_at)?;
            self.move_to(rid, to, lane)?;
        }
        let moved = self.conn.prepare_cached(UNPAUSE)?.execute(params![tid, self.now.ms()])?;
        self.hint.ready |= moved > 0;
        self.hint.agenda |= moved > 0;
        Ok(())
    }
}

pub(super) const MEMBERS: &str = "SELECT m.lid, m.most, m.takes, l.held FROM lane_runs m
    CROSS JOIN lanes l ON l.lid = m.lid WHERE m.rid = ?1 ORDER BY m.pos";

pub(super) const PAUSED_IN_LANES: &str = "SELECT rid, aid, due_at FROM runs INDEXED BY runs_paused
    WHERE place = 4 AND tid = ?1 AND lanes > 0 ORDER BY rid";

pub(super) const BEST_BLOCKED: &str = "SELECT rid, due_at FROM runs INDEXED BY runs_blocked
    WHERE place = 3 AND lane = ?1 AND aid = ?2 ORDER BY priority DESC, due_at, rid LIMIT 1";

pub(super) const NEXT_BLOCKED_AGENT: &str = "SELECT aid FROM runs INDEXED BY runs_blocked
    WHERE place = 3 AND lane = ?1 AND aid > ?2 ORDER BY aid LIMIT 1";

pub(super) const UNPAUSE: &str = "UPDATE runs INDEXED BY runs_paused
    SET place = CASE WHEN due_at > ?2 THEN 2 ELSE 1 END WHERE place = 4 AND tid = ?1";
