//! Granting runs, and keeping grants.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lanes::Order;
use super::state::State;
use crate::model::{AgentId, Place, Run, RunId, Timestamp, Token};
use crate::rules::{self, Moment};
use crate::store::{ClaimRequest, Hint, RenewRequest, Renewal};

/// The most runs that one claim makes ready because they became due (field G6), and the most that it looks at
/// in vain.
const PAGE: usize = 1000;

impl State {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Timestamp, hint: &mut Hint) -> Vec<Run> {
        let mut granted = if request.repeat { self.granted(request) } else { Vec::new() };
        self.promote(now, hint);
        let agents: BTreeSet<&AgentId> = request.agents.iter().collect();
        let mut in_vain = 0;
        while granted.len() < request.limit && in_vain < PAGE {
            let Some(number) = self.places.first_ready(agents.iter().copied()) else { break };
            let Some(run) = self.runs.get(number).map(|record| record.run.clone()) else { break };
            match self.obstacle(&run, now) {
                Some(place) => {
                    in_vain += 1;
                    self.move_to(number, place, hint);
                    self.wake_lanes_of(&run, now, hint);
                }
                None => granted.extend(self.grant(&run, request, now, hint)),
            }
        }
        granted
    }

    /// What the same request was granted before and is still merely claimed, in the order of claims.
    fn granted(&self, request: &ClaimRequest) -> Vec<Run> {
        let numbers = self.index.claimed(request.instance, request.nonce);
        let found = numbers.filter_map(|number| Some((number, &self.runs.get(number)?.run)));
        let mut granted: Vec<_> = found.map(|(number, run)| (Order::of(number, run), run)).collect();
        granted.sort_by_key(|(order, _)| *order);
        granted.into_iter().map(|(_, run)| run.clone()).collect()
    }

    /// What became due waits for nothing but its lanes.
    fn promote(&mut self, now: Timestamp, hint: &mut Hint) {
        for _ in 0..PAGE {
            let Some((_, number)) = self.places.next_due().filter(|(due_at, _)| *due_at <= now) else {
                return;
            };
            let Some(record) = self.runs.get(number) else { return };
            let place = self.place_for(&record.run, now);
            self.move_to(number, place, hint);
        }
    }

    /// Where a ready run has to wait after all.
    fn obstacle(&self, run: &Run, now: Timestamp) -> Option<Place> {
        // The clock may have been set back.
        if run.due_at > now {
            return Some(Place::Future);
        }
        let task = self.tasks.get(&run.spec.task_id);
        if task.is_some_and(|entry| !entry.task.spec.enabled) && !run.spec.override_pause {
            return Some(Place::Paused);
        }
        self.lanes.full_for(run).map(|lane| Place::Lane { lane })
    }

    fn grant(&mut self, run: &Run, request: &ClaimRequest, now: Timestamp, hint: &mut Hint) -> Option<Run> {
        let moment = Moment { now, stamp: request.nonce };
        let write = rules::claim(run, request.instance, request.nonce, request.lease, moment).ok()?;
        let number = self.write_run(write, now, hint);
        self.runs.get(number).map(|record| record.run.clone())
    }

    pub(super) fn renew(&mut self, request: &RenewRequest, now: Timestamp) -> Vec<Renewal> {
        let leases = request.leases.iter();
        leases.map(|(run_id, token)| self.renew_one(run_id, *token, request.lease, now)).collect()
    }

    fn renew_one(&mut self, run_id: &RunId, token: Token, lease: Duration, now: Timestamp) -> Renewal {
        let Some(number) = self.runs.number(run_id) else { return Renewal::Gone };
        let Some(record) = self.runs.get_mut(number) else { return Renewal::Gone };
        // Looked at when it expires, which moves.
        let before = rules::wake_at(&record.run);
        let renewal = rules::renew(&mut record.run, token, lease, now);
        self.index.rewake(run_id, before, rules::wake_at(&record.run));
        renewal
    }
}
