//! What is derived from the runs is made anew and compared (K7).

use super::index::Index;
use super::lanes::Lanes;
use super::places::Places;
use super::state::State;
use crate::model::{Place, Run, Timestamp};
use crate::store::Hint;

impl State {
    pub(super) fn check(&mut self, repair: bool, now: Timestamp) -> Vec<String> {
        let mut found = Vec::new();
        self.check_counts(&mut found);
        self.check_lanes(&mut found);
        self.check_places(&mut found);
        if repair && !found.is_empty() {
            self.repair(now);
        }
        found
    }

    fn check_counts(&self, found: &mut Vec<String>) {
        let mut fresh = Index::default();
        for (number, record) in self.runs.iter() {
            fresh.add(number, &record.run);
        }
        let tasks = self.runs.iter().map(|(_, record)| &record.run.spec.task_id);
        let tasks: std::collections::BTreeSet<_> = tasks.collect();
        for task_id in tasks.into_iter().map(Some).chain([None]) {
            let (kept, counted) = (self.index.counts(task_id), fresh.counts(task_id));
            if kept != counted {
                let whose = task_id.map_or("all tasks".to_owned(), |task_id| format!("task \"{task_id}\""));
                found.push(format!("the counters of {whose} are {kept:?}, its runs are {counted:?}"));
            }
        }
        if self.index.wakes != fresh.wakes {
            found.push("the runs that have to be looked at are not those that are listed".to_owned());
        }
        if self.index.finished != fresh.finished {
            found.push("the runs that ended are not those that are listed".to_owned());
        }
    }

    fn check_lanes(&self, found: &mut Vec<String>) {
        let fresh = self.fresh_lanes();
        if fresh.len() != self.lanes.len() {
            found.push(format!("{} lanes are kept, runs are in {}", self.lanes.len(), fresh.len()));
        }
        for (name, counted) in fresh.iter() {
            let Some(kept) = self.lanes.get(name) else {
                found.push(format!("lane \"{name}\" is not kept though runs are in it"));
                continue;
            };
            if (kept.taken, &kept.active, &kept.scheduled)
                != (counted.taken, &counted.active, &counted.scheduled)
            {
                found.push(format!("lane \"{name}\" has {} taking room, kept {}", counted.taken, kept.taken));
            }
            for number in self.lanes.to_wake(name) {
                if !self.another_is_ready(name, number) {
                    found.push(format!("lane \"{name}\" has room, and nobody looks at who waits in it"));
                }
            }
        }
    }

    /// Whether a run of the same agent and lane is ready beside one that waits for the lane.
    fn another_is_ready(&self, lane: &str, number: u64) -> bool {
        let Some(waiting) = self.runs.get(number) else { return false };
        let ready = |run: &Run| {
            let in_lane = run.spec.lanes.iter().any(|other| *other.name == *lane);
            let looked_at = matches!(run.place, Place::Ready | Place::Future);
            in_lane && looked_at && run.spec.agent_id == waiting.run.spec.agent_id
        };
        let active = self.lanes.get(lane).into_iter().flat_map(|state| &state.active);
        active.filter_map(|number| self.runs.get(*number)).any(|record| ready(&record.run))
    }

    fn check_places(&self, found: &mut Vec<String>) {
        for (number, record) in self.runs.iter() {
            let run = &record.run;
            let waits = run.status.is_waiting();
            let placed = run.place != Place::Nowhere;
            if waits != placed || !self.places.holds(number, run) || !self.lanes.holds(number, run) {
                found.push(format!("run \"{}\" is {} and in place {:?}", run.run_id, run.status, run.place));
            }
        }
    }

    fn fresh_lanes(&self) -> Lanes {
        let mut lanes = Lanes::default();
        for (number, record) in self.runs.iter() {
            lanes.account(number, None, Some(&record.run));
        }
        lanes
    }

    pub(super) fn repair(&mut self, now: Timestamp) {
        self.index = Index::default();
        self.places = Places::default();
        let last = self.lanes.last_version();
        self.lanes = Lanes::after(last);
        let numbers: Vec<u64> = self.runs.iter().map(|(number, _)| number).collect();
        for number in &numbers {
            let Some(record) = self.runs.get(*number) else { continue };
            self.index.add(*number, &record.run);
            self.lanes.account(*number, None, Some(&record.run));
        }
        for number in numbers {
            let Some(record) = self.runs.get(number) else { continue };
            let place = self.place_for(&record.run, now);
            self.put_in(number, place, &mut Hint::default());
        }
    }
}
