//! Where runs wait, and what takes room in lanes.
//!
//! A run that waits is Future before it is due, then Ready, or in a lane that is full. A lane lets go of one
//! waiting run of each agent whenever something leaves it or a ready run of it is not to be had any more. More
//! than there is room for may be let go of: the claim looks again, and sends back who does not fit.

use std::cmp::Reverse;
use std::sync::Arc;

use foldhash::HashMap;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::fault::Step;
use super::row::{place, unsigned};
use super::tx::Tx;
use crate::model::{Lane, RunStatus};

/// The lanes that a transaction has met, as it leaves them: read once, written once at its end.
#[derive(Debug, Default)]
pub(super) struct Book {
    numbers: HashMap<Arc<str>, i64>,
    rows: HashMap<i64, LaneRow>,
}

#[derive(Debug, Clone, Copy)]
struct LaneRow {
    version: i64,
    held: i64,
    total: i64,
    moved: bool,
}

impl Book {
    /// Writes the lanes that have moved; one without runs is gone.
    pub(super) fn write(&mut self, conn: &Connection) -> Step<()> {
        self.numbers.clear();
        for (lid, row) in self.rows.drain().filter(|(_, row)| row.moved) {
            if row.total <= 0 {
                conn.prepare_cached("DELETE FROM lanes WHERE lid = ?1")?.execute([lid])?;
            } else {
                conn.prepare_cached("UPDATE lanes SET version = ?2, held = ?3, total = ?4 WHERE lid = ?1")?
                    .execute([lid, row.version, row.held, row.total])?;
            }
        }
        Ok(())
    }
}

/// In which order runs are granted: by priority, then by due time, then by age.
pub(super) type Order = (Reverse<i64>, i64, i64);

/// Of a row that begins with the number of a run, its priority and its due time.
pub(super) fn order(row: &Row<'_>) -> rusqlite::Result<Order> {
    Ok((Reverse(row.get(1)?), row.get(2)?, row.get(0)?))
}

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

impl Tx<'_, '_> {
    /// The lanes that a run is in.
    pub(super) fn members(&mut self, rid: i64) -> Step<Vec<Member>> {
        let mut select = self.conn.prepare_cached(MEMBERS)?;
        let mut rows = select.query([rid])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let lid = row.get(0)?;
            let held = self.lane(lid)?.map_or(0, |lane| lane.held);
            found.push(Member { lid, most: row.get(1)?, takes: row.get(2)?, held });
        }
        Ok(found)
    }

    /// A lane by its number, as it stands in this transaction.
    fn lane(&mut self, lid: i64) -> Step<Option<&mut LaneRow>> {
        if !self.lanes.rows.contains_key(&lid) {
            let mut select =
                self.conn.prepare_cached("SELECT version, held, total FROM lanes WHERE lid = ?1")?;
            let read = |row: &rusqlite::Row<'_>| {
                Ok(LaneRow { version: row.get(0)?, held: row.get(1)?, total: row.get(2)?, moved: false })
            };
            let Some(row) = select.query_row([lid], read).optional()? else { return Ok(None) };
            self.lanes.rows.insert(lid, row);
        }
        Ok(self.lanes.rows.get_mut(&lid))
    }

    /// The number of a lane, if anything was in it when this transaction began, or has come since.
    fn lane_number(&mut self, name: &Arc<str>) -> Step<Option<i64>> {
        if let Some(lid) = self.lanes.numbers.get(name) {
            return Ok(Some(*lid));
        }
        let mut select = self.conn.prepare_cached("SELECT lid FROM lanes WHERE name = ?1")?;
        let lid: Option<i64> = select.query_row([&**name], |row| row.get(0)).optional()?;
        if let Some(lid) = lid {
            self.lanes.numbers.insert(Arc::clone(name), lid);
        }
        Ok(lid)
    }

    /// The version of a lane; 0 when nothing is in it.
    pub(super) fn lane_version(&mut self, name: &Arc<str>) -> Step<u64> {
        let Some(lid) = self.lane_number(name)? else { return Ok(0) };
        Ok(self.lane(lid)?.filter(|lane| lane.total > 0).map_or(0, |lane| unsigned(lane.version)))
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
            let lid = match self.lane_number(&lane.name)? {
                Some(lid) => lid,
                None => self.open_lane(&lane.name)?,
            };
            self.move_lane(lid, i64::from(to.takes), 1)?;
            self.conn
                .prepare_cached(
                    "INSERT INTO lane_runs (lid, rid, pos, most, takes, sched) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![lid, rid, n as i64, lane.limit, to.takes, to.sched])?;
        }
        Ok(())
    }

    fn open_lane(&mut self, name: &Arc<str>) -> Step<i64> {
        let mut insert = self
            .conn
            .prepare_cached("INSERT INTO lanes (name, version, held, total) VALUES (?1, 0, 0, 0)")?;
        let lid = insert.insert([&**name])?;
        self.lanes.numbers.insert(Arc::clone(name), lid);
        self.lanes.rows.insert(lid, LaneRow { version: 0, held: 0, total: 0, moved: true });
        Ok(lid)
    }

    fn move_lane(&mut self, lid: i64, held: i64, total: i64) -> Step<()> {
        let version = self.new_lane_version();
        if let Some(lane) = self.lane(lid)? {
            lane.version = version;
            lane.held += held;
            lane.total += total;
            lane.moved = true;
        }
        Ok(())
    }

    /// Where a waiting run waits that is written or has become due, and what it is found by there: behind those of
    /// its agent that wait for a lane already, unless it has its room there.
    pub(super) fn place_for(
        &mut self,
        members: &[Member],
        aid: i64,
        due_at: i64,
    ) -> Step<(i64, Option<i64>)> {
        if due_at > self.now.ms() {
            self.hint.agenda = true;
            return Ok((place::FUTURE, Some(due_at)));
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

    /// The run of an agent that comes next in a lane.
    fn best_blocked(&self, lid: i64, aid: i64) -> Step<Option<Order>> {
        let mut select = self.conn.prepare_cached(BEST_BLOCKED)?;
        Ok(select.query_row([lid, aid], order).optional()?)
    }

    /// Lets go of the best waiting run of each agent in a lane that has room for it.
    pub(super) fn let_go(&mut self, lid: i64) -> Step<()> {
        let mut after = -1_i64;
        loop {
            let mut next = self.conn.prepare_cached(NEXT_BLOCKED_AGENT)?;
            let aid: Option<i64> = next.query_row([lid, after], |row| row.get(0)).optional()?;
            let Some(aid) = aid else { return Ok(()) };
            after = aid;
            if let Some(order @ (_, due_at, rid)) = self.best_blocked(lid, aid)?
                && self.members(rid)?.iter().all(|member| member.lid != lid || !member.is_full())
            {
                // It has waited its turn here; another lane of it that is full is found when it is claimed.
                let due = due_at <= self.now.ms();
                let to = if due { place::READY } else { place::FUTURE };
                self.move_to(rid, to, (!due).then_some(due_at))?;
                self.hint.ready |= due;
                self.hint.agenda |= !due;
                if due {
                    self.freed = Some(self.freed.map_or(order, |first| first.min(order)));
                }
            }
        }
    }

    /// The lanes of a run by name, in its order, as far as anything is in them.
    pub(super) fn lanes_named(&mut self, lanes: &[Lane]) -> Step<Vec<i64>> {
        let mut found = Vec::new();
        for lane in lanes {
            found.extend(self.lane_number(&lane.name)?);
        }
        Ok(found)
    }

    /// Writes where a run waits; its version does not rise.
    pub(super) fn move_to(&mut self, rid: i64, to: i64, lane: Option<i64>) -> Step<()> {
        self.conn
            .prepare_cached("UPDATE runs SET place = ?2, lane = ?3 WHERE rid = ?1")?
            .execute(params![rid, to, lane])?;
        if let Some(known) = self.known.get_mut(rid) {
            (known.stored.place, known.stored.lane) = (to, lane);
        }
        Ok(())
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
        self.known.forget_all();
        let moved = self.conn.prepare_cached(UNPAUSE)?.execute(params![tid, self.now.ms()])?;
        self.hint.ready |= moved > 0;
        self.hint.agenda |= moved > 0;
        Ok(())
    }
}

pub(super) const MEMBERS: &str = "SELECT lid, most, takes FROM lane_runs WHERE rid = ?1 ORDER BY pos";

pub(super) const PAUSED_IN_LANES: &str = "SELECT rid, aid, due_at FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 4 AND lane = ?1 AND lanes > 0 ORDER BY rid";

pub(super) const BEST_BLOCKED: &str = "SELECT rid, priority, due_at FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 3 AND lane = ?1 AND aid = ?2 ORDER BY priority DESC, due_at, rid LIMIT 1";

pub(super) const NEXT_BLOCKED_AGENT: &str = "SELECT aid FROM runs INDEXED BY runs_waiting
    WHERE place > 0 AND place = 3 AND lane = ?1 AND aid > ?2 ORDER BY aid LIMIT 1";

pub(super) const UNPAUSE: &str = "UPDATE runs INDEXED BY runs_waiting
    SET place = CASE WHEN due_at > ?2 THEN 2 ELSE 1 END, lane = CASE WHEN due_at > ?2 THEN due_at END
    WHERE place > 0 AND place = 4 AND lane = ?1";
