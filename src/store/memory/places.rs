//! Where runs wait to be claimed: ready by agent, future by due time, paused by task. Those that wait for a
//! lane are in [`super::lanes`].
//!
//! Invariants:
//!
//! 1. A waiting run is in exactly the index that its place names.
//! 2. A lane that has room for the best run of an agent that waits in it has another run of that agent among
//!    the ready ones. Whenever a run leaves those, or gives back room, the next is therefore looked for.

use std::cell::Cell;
use std::collections::BTreeSet;

use foldhash::HashMap;

use super::lanes::Order;
use super::state::State;
use crate::model::{AgentId, Place, Run, TaskId, Timestamp};
use crate::store::Hint;

/// Waiting runs by place.
#[derive(Default)]
pub(super) struct Places {
    ready: HashMap<AgentId, BTreeSet<Order>>,
    /// Of a part of a store: behind this one there are more ready runs of the agent, which are not in it.
    pub(super) behind: HashMap<AgentId, Order>,
    /// Whether it was asked for one of those.
    pub(super) short: Cell<bool>,
    future: BTreeSet<(Timestamp, u64)>,
    paused: HashMap<TaskId, BTreeSet<u64>>,
}

impl Places {
    /// The run that is claimed next by who has these agents.
    pub(super) fn first_ready<'a>(&self, agents: impl Iterator<Item = &'a AgentId>) -> Option<u64> {
        let mut best: Option<(Order, bool)> = None;
        for agent in agents {
            let first = self.ready.get(agent).and_then(BTreeSet::first).map(|order| (*order, true));
            let behind = self.behind.get(agent).map(|order| (*order, false));
            // Who is the last before those that are not here is here.
            let next = match (first, behind) {
                (Some(first), Some(behind)) if first.0 > behind.0 => Some(behind),
                (first, behind) => first.or(behind),
            };
            best = [best, next].into_iter().flatten().min();
        }
        let (order, here) = best?;
        self.short.set(self.short.get() || !here);
        here.then_some(order.number)
    }

    pub(super) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next run becomes due, and which.
    pub(super) fn next_due(&self) -> Option<(Timestamp, u64)> {
        self.future.first().copied()
    }

    /// The runs that wait because this task is paused.
    pub(super) fn paused(&self, task_id: &TaskId) -> Vec<u64> {
        self.paused.get(task_id).into_iter().flatten().copied().collect()
    }

    pub(super) fn add(&mut self, number: u64, run: &Run) {
        match &run.place {
            Place::Ready => {
                let ready = self.ready.entry(run.spec.agent_id.clone()).or_default();
                ready.insert(Order::of(number, run));
            }
            Place::Future => {
                self.future.insert((run.due_at, number));
            }
            Place::Paused => {
                self.paused.entry(run.spec.task_id.clone()).or_default().insert(number);
            }
            Place::Nowhere | Place::Lane { .. } => {}
        }
    }

    fn remove(&mut self, number: u64, run: &Run) {
        match &run.place {
            Place::Ready => {
                if let Some(ready) = self.ready.get_mut(&run.spec.agent_id) {
                    ready.remove(&Order::of(number, run));
                    if ready.is_empty() {
                        self.ready.remove(&run.spec.agent_id);
                    }
                }
            }
            Place::Future => {
                self.future.remove(&(run.due_at, number));
            }
            Place::Paused => {
                if let Some(paused) = self.paused.get_mut(&run.spec.task_id) {
                    paused.remove(&number);
                    if paused.is_empty() {
                        self.paused.remove(&run.spec.task_id);
                    }
                }
            }
            Place::Nowhere | Place::Lane { .. } => {}
        }
    }

    /// Whether a run is where its place says.
    pub(super) fn holds(&self, number: u64, run: &Run) -> bool {
        match &run.place {
            Place::Ready => {
                let ready = self.ready.get(&run.spec.agent_id);
                ready.is_some_and(|ready| ready.contains(&Order::of(number, run)))
            }
            Place::Future => self.future.contains(&(run.due_at, number)),
            Place::Paused => {
                self.paused.get(&run.spec.task_id).is_some_and(|paused| paused.contains(&number))
            }
            Place::Nowhere | Place::Lane { .. } => true,
        }
    }
}

impl State {
    /// Takes a run that waits out of its place.
    pub(super) fn take_out(&mut self, number: u64, run: &Run) {
        self.places.remove(number, run);
        if let Place::Lane { lane } = &run.place {
            self.lanes.wait_no_more(lane, number, run);
        }
    }

    /// Where a waiting run belongs now. Whether its task is paused is looked at when it is claimed.
    pub(super) fn place_for(&self, run: &Run, now: Timestamp) -> Place {
        if !run.status.is_waiting() {
            return Place::Nowhere;
        }
        if run.due_at > now {
            return Place::Future;
        }
        self.lanes.must_wait_in(run).map_or(Place::Ready, |lane| Place::Lane { lane })
    }

    /// Puts a run that is in no place into one.
    pub(super) fn put_in(&mut self, number: u64, place: Place, hint: &mut Hint) {
        let Some(record) = self.runs.get_mut(number) else { return };
        hint.ready |= place == Place::Ready;
        hint.agenda |= place == Place::Future;
        record.run.place = place;
        self.places.add(number, &record.run);
        if let Place::Lane { lane } = &record.run.place {
            self.lanes.wait(lane, number, &record.run);
        }
    }

    /// Moves a waiting run to another place.
    pub(super) fn move_to(&mut self, number: u64, place: Place, hint: &mut Hint) {
        let Some(record) = self.runs.get(number) else { return };
        let run = record.run.clone();
        self.take_out(number, &run);
        self.put_in(number, place, hint);
    }

    /// Looks at the lanes of a run that left the ready ones or gave back its room: who waits there and now has
    /// some is ready.
    pub(super) fn wake_lanes_of(&mut self, run: &Run, now: Timestamp, hint: &mut Hint) {
        for lane in &run.spec.lanes {
            for number in self.lanes.to_wake(&lane.name) {
                let due = self.runs.get(number).is_some_and(|record| record.run.due_at <= now);
                // It has waited its turn here; another lane of it that is full is found when it is claimed.
                let place = if due { Place::Ready } else { Place::Future };
                self.move_to(number, place, hint);
            }
        }
    }

    /// The runs of a task that is no longer paused wait like others.
    pub(super) fn unpause(&mut self, task_id: &TaskId, now: Timestamp, hint: &mut Hint) {
        for number in self.places.paused(task_id) {
            let Some(record) = self.runs.get(number) else { continue };
            let place = self.place_for(&record.run, now);
            self.move_to(number, place, hint);
        }
    }
}
