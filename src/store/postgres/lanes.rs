//! Where runs wait, and what takes room in lanes.
//!
//! A run that waits is Future before it is due, then Ready, or in a lane that is full. A lane lets go of one
//! waiting run of each agent whenever something leaves it or a ready run of it is not to be had any more. More
//! than there is room for may be let go of: the claim looks again, and sends back who does not fit.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;

use super::conn::with;
use super::fault::Step;
use super::load::{HEADS, HEADS_OF, heads_sql};
use super::row::{Stored, get, place};
use super::tx::{Membership, Tx};
use crate::model::{Lane, RunStatus};

/// The order in which runs of one agent are claimed: priority, due time, the order in which they were queued.
pub(super) type Order = (Reverse<i32>, i64, i64);

/// A lane with a run in it.
#[derive(Debug)]
pub(super) struct LaneEntry {
    pub(super) name: Arc<str>,
    pub(super) version: i64,
    pub(super) held: i64,
    pub(super) total: i64,
    /// It is in the table.
    pub(super) stored: bool,
    pub(super) dirty: bool,
    /// Who waits for it, once that was read.
    pub(super) heads: Option<Heads>,
}

/// Who comes next in a lane, by agent.
#[derive(Debug, Default)]
pub(super) struct Heads(BTreeMap<i64, Queue>);

/// The first of those of one agent.
#[derive(Debug, Default)]
struct Queue {
    known: BTreeMap<Order, i64>,
    /// The last that was read, if there may be more behind it.
    beyond: Option<Order>,
}

impl Heads {
    /// Takes one that was read, in order.
    pub(super) fn read(&mut self, aid: i64, order: Order, most: i64) {
        let queue = self.0.entry(aid).or_default();
        queue.known.insert(order, most);
        if queue.known.len() >= HEADS {
            queue.beyond = queue.known.last_key_value().map(|(last, _)| *last);
        }
    }

    fn add(&mut self, aid: i64, order: Order, most: i64) {
        let queue = self.0.entry(aid).or_default();
        if queue.beyond.is_none_or(|beyond| order < beyond) {
            queue.known.insert(order, most);
        }
    }

    /// Answers whether what is behind those that are known has to be read.
    fn remove(&mut self, aid: i64, order: Order) -> bool {
        let Some(queue) = self.0.get_mut(&aid) else { return false };
        queue.known.remove(&order);
        if !queue.known.is_empty() {
            return false;
        }
        let more = queue.beyond.is_some();
        self.0.remove(&aid);
        more
    }

    fn best(&self, aid: i64) -> Option<(Order, i64)> {
        self.0.get(&aid)?.known.first_key_value().map(|(order, most)| (*order, *most))
    }
}

/// A lane that a run is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) lid: i64,
    pub(super) most: i64,
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

/// Lanes that are named twice count once, at their first place.
fn distinct(lanes: &[Lane]) -> impl Iterator<Item = (usize, &Lane)> {
    let first = |n: usize, lane: &Lane| lanes[..n].iter().all(|other| other.name != lane.name);
    lanes.iter().enumerate().filter(move |(n, lane)| first(*n, lane))
}

pub(super) fn order(stored: &Stored) -> Order {
    (Reverse(stored.priority), stored.due_at, stored.rid)
}

impl Tx<'_> {
    /// The lanes by name, in the run's order, as far as anything is in them.
    pub(super) fn members(&self, lanes: &[Lane]) -> Vec<Member> {
        let known = |lane: &Lane| self.lane_ids.get(&lane.name).copied().flatten();
        let found = distinct(lanes).filter_map(|(_, lane)| Some((known(lane)?, lane.limit)));
        found.map(|(lid, limit)| Member { lid, most: i64::from(limit) }).collect()
    }

    /// The lanes that runs are in, read now; what was decided so far has been written.
    pub(super) async fn members_of(&mut self, rids: &[i64]) -> Step<HashMap<i64, Vec<Member>>> {
        let mut found: HashMap<i64, Vec<Member>> = HashMap::default();
        let rows = self.ask(MEMBERS, with![rids.to_vec()]).await?;
        let mut new = Vec::new();
        for row in &rows {
            let member = Member { lid: get(row, 2)?, most: get(row, 1)? };
            found.entry(get(row, 0)?).or_default().push(member);
            if !self.lanes.contains_key(&member.lid) {
                new.push(member.lid);
            }
            self.take_lane(row, 2)?;
        }
        self.read_heads(new).await?;
        Ok(found)
    }

    async fn read_heads(&mut self, lids: Vec<i64>) -> Step<()> {
        if lids.is_empty() {
            return Ok(());
        }
        for lid in &lids {
            if let Some(lane) = self.lanes.get_mut(lid) {
                lane.heads = Some(Heads::default());
            }
        }
        for row in &self.ask(heads_sql(HEADS_OF), with![lids]).await? {
            self.take_head(row)?;
        }
        Ok(())
    }

    /// Who waits for a lane is known from here on.
    async fn know_heads(&mut self, lid: i64) -> Step<()> {
        let Some(lane) = self.lanes.get_mut(&lid) else { return Ok(()) };
        if lane.heads.is_some() {
            return Ok(());
        }
        if lane.total <= lane.held {
            lane.heads = Some(Heads::default());
            return Ok(());
        }
        self.flush().await?;
        self.read_heads(vec![lid]).await
    }

    /// Moves a run in its lanes: into them, out of them, or to take room or give it back.
    pub(super) fn stand(&mut self, rid: i64, lanes: &[Lane], from: Stand, to: Stand) {
        if from == to || !(from.active || to.active) {
            return;
        }
        for (n, lane) in distinct(lanes) {
            if !from.active {
                self.enter(&lane.name);
            }
            let Some(lid) = self.lane_ids.get(&lane.name).copied().flatten() else { continue };
            let total = i64::from(to.active) - i64::from(from.active);
            self.move_lane(lid, i64::from(to.takes) - i64::from(from.takes), total);
            let membership = Membership {
                pos: i32::try_from(n).unwrap_or(i32::MAX),
                most: i64::from(lane.limit),
                takes: to.takes,
                sched: to.sched,
            };
            self.out.members.insert((lid, rid), to.active.then_some(membership));
        }
    }

    /// Makes the lane if nothing is in it.
    fn enter(&mut self, name: &Arc<str>) {
        if self.lane_ids.get(name).copied().flatten().is_some() {
            return;
        }
        let lid = self.meta.lid;
        self.meta.lid += 1;
        self.lane_ids.insert(Arc::clone(name), Some(lid));
        let (name, heads) = (Arc::clone(name), Some(Heads::default()));
        let lane = LaneEntry { name, version: 0, held: 0, total: 0, stored: false, dirty: true, heads };
        self.lanes.insert(lid, lane);
    }

    fn move_lane(&mut self, lid: i64, held: i64, total: i64) {
        if held == 0 && total == 0 {
            return;
        }
        let version = self.new_lane_version();
        let Some(lane) = self.lanes.get_mut(&lid) else { return };
        lane.version = version;
        lane.held += held;
        lane.total += total;
        lane.dirty = true;
        if lane.total > 0 {
            return;
        }
        if let Some(lane) = self.lanes.remove(&lid) {
            self.lane_ids.insert(lane.name, None);
            if lane.stored {
                self.out.dead_lanes.push(lid);
            }
        }
    }

    /// Where a waiting run waits that is written or has become due: behind those of its agent that wait for a
    /// lane already, unless it has its room there.
    pub(super) async fn place_for(
        &mut self,
        stored: &Stored,
        members: &[Member],
        due_at: i64,
    ) -> Step<(i16, Option<i64>)> {
        if due_at > self.now.ms() {
            self.hint.agenda = true;
            return Ok((place::FUTURE, None));
        }
        for member in members.iter().filter(|_| !stored.status.takes_room()) {
            if self.is_full(*member) || self.best_blocked(member.lid, stored.aid).await?.is_some() {
                let order = (Reverse(stored.priority), due_at, stored.rid);
                self.enqueue(stored.aid, order, *member);
                return Ok((place::LANE, Some(member.lid)));
            }
        }
        self.hint.ready = true;
        Ok((place::READY, None))
    }

    fn is_full(&self, member: Member) -> bool {
        self.lanes.get(&member.lid).is_some_and(|lane| lane.held >= member.most)
    }

    /// The first lane of a ready run in which there is no room for it. Who has its room already is not in its own way.
    pub(super) fn full_lane(&self, stored: &Stored, members: &[Member]) -> Option<i64> {
        if stored.status.takes_room() {
            return None;
        }
        members.iter().find(|member| self.is_full(**member)).map(|member| member.lid)
    }

    async fn best_blocked(&mut self, lid: i64, aid: i64) -> Step<Option<(Order, i64)>> {
        self.know_heads(lid).await?;
        let heads = self.lanes.get(&lid).and_then(|lane| lane.heads.as_ref());
        Ok(heads.and_then(|heads| heads.best(aid)))
    }

    /// A run waits for a lane.
    pub(super) fn enqueue(&mut self, aid: i64, order: Order, member: Member) {
        if let Some(heads) = self.lanes.get_mut(&member.lid).and_then(|lane| lane.heads.as_mut()) {
            heads.add(aid, order, member.most);
        }
    }

    /// A run waits for a lane no more.
    pub(super) fn leave_queue(&mut self, stored: &Stored) {
        if stored.place == place::LANE
            && let Some(lid) = stored.lane
        {
            self.dequeue(lid, stored.aid, order(stored));
        }
    }

    fn dequeue(&mut self, lid: i64, aid: i64, order: Order) {
        if let Some(lane) = self.lanes.get_mut(&lid)
            && lane.heads.as_mut().is_some_and(|heads| heads.remove(aid, order))
        {
            lane.heads = None;
        }
    }

    /// Lets go of the best waiting run of each agent in a lane that has room for it.
    pub(super) async fn let_go(&mut self, lid: i64) -> Step<()> {
        if self.lanes.get(&lid).is_none_or(|lane| lane.total <= lane.held) {
            return Ok(());
        }
        self.know_heads(lid).await?;
        let heads = self.lanes.get(&lid).and_then(|lane| lane.heads.as_ref());
        let agents: Vec<i64> = heads.map(|heads| heads.0.keys().copied().collect()).unwrap_or_default();
        for aid in agents {
            let Some((order, most)) = self.best_blocked(lid, aid).await? else { continue };
            if self.is_full(Member { lid, most }) {
                continue;
            }
            let (_, due_at, rid) = order;
            self.dequeue(lid, aid, order);
            // It has waited its turn here; another lane of it that is full is found when it is claimed.
            let due = due_at <= self.now.ms();
            self.move_to(rid, if due { place::READY } else { place::FUTURE }, None);
            self.hint.ready |= due;
            self.hint.agenda |= !due;
            if due {
                self.freed = Some(self.freed.map_or(order, |first| first.min(order)));
            }
        }
        Ok(())
    }

    /// The runs of a task that waited because it was paused wait like others.
    pub(super) async fn unpause(&mut self, tid: i64) -> Step<()> {
        self.flush().await?;
        let mut in_lanes: Vec<Stored> = Vec::new();
        for row in &self.ask(paused_in_lanes(), with![tid]).await? {
            in_lanes.push(Stored::read(row)?);
        }
        let rids: Vec<i64> = in_lanes.iter().map(|stored| stored.rid).collect();
        let members = if rids.is_empty() { HashMap::default() } else { self.members_of(&rids).await? };
        for stored in in_lanes {
            let members = members.get(&stored.rid).map_or(&[][..], Vec::as_slice);
            let (to, lane) = self.place_for(&stored, members, stored.due_at).await?;
            self.move_to(stored.rid, to, lane);
        }
        let now = self.now.ms();
        let moved = !self.ask(UNPAUSE, with![tid, now]).await?.is_empty();
        self.hint.ready |= moved;
        self.hint.agenda |= moved;
        for entry in self.runs.values_mut() {
            let stored = &mut entry.stored;
            if stored.tid == tid && stored.place == place::PAUSED && stored.lanes == 0 {
                stored.place = if stored.due_at > now { place::FUTURE } else { place::READY };
            }
        }
        Ok(())
    }
}

pub(super) const MEMBERS: &str = "SELECT m.rid, m.most, l.lid, l.name, l.version, l.held, l.total
    FROM lane_runs m JOIN lanes l ON l.lid = m.lid WHERE m.rid = ANY($1) ORDER BY m.rid, m.pos";

pub(super) fn paused_in_lanes() -> String {
    format!(
        "SELECT {} FROM runs r JOIN specs s ON s.rid = r.rid WHERE r.place = 4 AND r.tid = $1 AND r.lanes > 0
         ORDER BY r.rid",
        super::row::STORED
    )
}

pub(super) const UNPAUSE: &str = "WITH moved AS (
    UPDATE runs SET place = CASE WHEN due_at > $2 THEN 2 ELSE 1 END
    WHERE place = 4 AND tid = $1 AND lanes = 0 RETURNING 1)
    SELECT 1 FROM moved LIMIT 1";
