//! Lanes: which runs are in them, who takes room, who waits for it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;

use crate::model::{AgentId, Lane, Place, Run, RunStatus, Timestamp, Trigger};

/// The order in which runs of one agent are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct Order {
    priority: Reverse<i32>,
    due_at: Timestamp,
    pub(super) number: u64,
}

impl Order {
    pub(in crate::store) fn of(number: u64, run: &Run) -> Self {
        Self { priority: Reverse(run.spec.priority), due_at: run.due_at, number }
    }
}

/// All lanes with a run in them.
#[derive(Default)]
pub(super) struct Lanes {
    pub(super) by_name: HashMap<Arc<str>, LaneState>,
    /// The version that was given last, of any lane: a lane that was empty in between never shows one again.
    last: u64,
    /// Of a part of a store: lanes of which more has to be known than is in it.
    pub(super) short: RefCell<BTreeSet<Arc<str>>>,
}

/// What of a lane is not in a part of a store; nothing, in a whole one.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// How many active runs.
    pub(super) active: u64,
    /// Behind this one more runs of the agent wait.
    pub(super) behind: HashMap<AgentId, Order>,
    /// Whether it is not known who waits.
    pub(super) unread: bool,
}

/// A lane.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) version: u64,
    /// How many runs take room.
    pub(super) taken: u64,
    /// The active runs, in the order they were queued.
    pub(super) active: BTreeSet<u64>,
    /// The queued ones of them that a schedule wanted.
    pub(super) scheduled: BTreeSet<u64>,
    /// Who waits for room here, with the limit each goes by: the best of each agent is looked at when there
    /// is some.
    pub(super) waiting: HashMap<AgentId, BTreeMap<Order, u32>>,
    pub(super) elsewhere: Elsewhere,
}

impl Lanes {
    pub(super) fn get(&self, name: &str) -> Option<&LaneState> {
        self.by_name.get(name)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &LaneState)> {
        self.by_name.iter().map(|(name, state)| (name.as_ref(), state))
    }

    /// The version that was given last.
    pub(super) fn last_version(&self) -> u64 {
        self.last
    }

    /// A run of a part of a store is in its lanes, as they say already.
    #[cfg(feature = "mongodb")]
    pub(super) fn hold(&mut self, number: u64, run: &Run) {
        let is = Footprint::of(run);
        for lane in run.spec.lanes.iter().filter(|_| is.active) {
            let Some(state) = self.by_name.get_mut(&lane.name) else { continue };
            if state.active.insert(number) {
                state.elsewhere.active = state.elsewhere.active.saturating_sub(1);
            }
            set(&mut state.scheduled, number, is.scheduled_waiting);
        }
    }

    /// No lanes; versions go on after one.
    pub(super) fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Whether a run that waits for a lane is known there.
    pub(super) fn holds(&self, number: u64, run: &Run) -> bool {
        let Place::Lane { lane } = &run.place else { return true };
        let waiting = self.get(lane).and_then(|state| state.waiting.get(&run.spec.agent_id));
        waiting.is_some_and(|waiting| waiting.contains_key(&Order::of(number, run)))
    }

    /// Accounts for a run that is made, moved or removed. Answers whether it stands otherwise in its lanes now.
    pub(super) fn account(&mut self, number: u64, before: Option<&Run>, after: Option<&Run>) -> bool {
        let footprint = |run: Option<&Run>| run.map(Footprint::of).unwrap_or_default();
        let (was, is) = (footprint(before), footprint(after));
        if was == is {
            return false;
        }
        for lane in before.or(after).into_iter().flat_map(|run| run.spec.lanes.iter()) {
            self.last += 1;
            let state = self.by_name.entry(Arc::clone(&lane.name)).or_default();
            state.version = self.last;
            state.account(number, was, is);
            if state.active.is_empty() && state.elsewhere.active == 0 {
                self.by_name.remove(&lane.name);
            }
        }
        true
    }

    /// The first lane of a run that has no room for it.
    pub(super) fn full_for(&self, run: &Run) -> Option<Arc<str>> {
        self.first_lane(run, |_, state, limit, _| state.taken >= u64::from(limit))
    }

    /// The first lane of a run that has no room for it, or where others of its agent wait before it.
    pub(super) fn must_wait_in(&self, run: &Run) -> Option<Arc<str>> {
        self.first_lane(run, |name, state, limit, agent| {
            state.taken >= u64::from(limit) || self.known(name, state).waiting.contains_key(agent)
        })
    }

    fn first_lane(
        &self,
        run: &Run,
        blocks: impl Fn(&Arc<str>, &LaneState, u32, &AgentId) -> bool,
    ) -> Option<Arc<str>> {
        // It has its room already, and is not in its own way.
        if run.status.takes_room() {
            return None;
        }
        let blocked = |lane: &&Lane| {
            let state = self.get(&lane.name);
            state.is_some_and(|state| blocks(&lane.name, state, lane.limit, &run.spec.agent_id))
        };
        run.spec.lanes.iter().find(blocked).map(|lane| Arc::clone(&lane.name))
    }

    /// A lane of which it has to be known who waits.
    fn known<'a>(&self, name: &str, state: &'a LaneState) -> &'a LaneState {
        if state.elsewhere.unread {
            self.short.borrow_mut().insert(name.into());
        }
        state
    }

    /// A run waits for room in a lane.
    pub(super) fn wait(&mut self, name: &str, number: u64, run: &Run) {
        let limit = run.spec.lanes.iter().find(|lane| *lane.name == *name).map_or(1, |lane| lane.limit);
        if let Some(state) = self.by_name.get_mut(name) {
            let (agent, order) = (&run.spec.agent_id, Order::of(number, run));
            if state.elsewhere.unread || state.elsewhere.behind.get(agent).is_some_and(|last| order > *last) {
                return;
            }
            state.waiting.entry(agent.clone()).or_default().insert(order, limit);
        }
    }

    /// A run no longer waits for room in a lane.
    pub(super) fn wait_no_more(&mut self, name: &str, number: u64, run: &Run) {
        if let Some(state) = self.by_name.get_mut(name)
            && let Some(waiting) = state.waiting.get_mut(&run.spec.agent_id)
        {
            waiting.remove(&Order::of(number, run));
            if waiting.is_empty() {
                state.waiting.remove(&run.spec.agent_id);
                if state.elsewhere.behind.contains_key(&run.spec.agent_id) {
                    self.short.borrow_mut().insert(name.into());
                }
            }
        }
    }

    /// The best waiting run of each agent for which there is room in a lane.
    pub(super) fn to_wake(&self, name: &str) -> Vec<u64> {
        let Some(state) = self.get(name) else { return Vec::new() };
        let state = self.known(name, state);
        let best = state.waiting.values().filter_map(|waiting| waiting.first_key_value());
        let fits = best.filter(|(_, limit)| state.taken < u64::from(**limit));
        fits.map(|(order, _)| order.number).collect()
    }
}

impl LaneState {
    fn account(&mut self, number: u64, was: Footprint, is: Footprint) {
        set(&mut self.active, number, is.active);
        set(&mut self.scheduled, number, is.scheduled_waiting);
        self.taken = (self.taken + u64::from(is.takes_room)).saturating_sub(u64::from(was.takes_room));
    }
}

fn set(of: &mut BTreeSet<u64>, number: u64, member: bool) {
    if member {
        of.insert(number);
    } else {
        of.remove(&number);
    }
}

/// What a run is to its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Footprint {
    active: bool,
    takes_room: bool,
    scheduled_waiting: bool,
}

impl Footprint {
    fn of(run: &Run) -> Self {
        Self {
            active: run.status.is_active(),
            takes_room: run.status.takes_room(),
            scheduled_waiting: run.status == RunStatus::Queued && run.spec.trigger == Trigger::Schedule,
        }
    }
}
