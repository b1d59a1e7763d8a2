//! What is found by something else than its name: derived from the runs, kept with every change of one.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;

use crate::model::{InstanceId, Run, RunId, RunStatus, TaskId, Timestamp};
use crate::rules::wake_at;

const STATUSES: usize = RunStatus::ALL.len();

/// An idempotency key with the task it belongs to.
pub(super) type TaskKey = (TaskId, Arc<str>);

/// Runs by status, task, end, wake, key and grant.
#[derive(Default)]
pub(super) struct Index {
    by_status: [BTreeSet<u64>; STATUSES],
    by_task: HashMap<TaskId, OfTask>,
    /// Finished runs, the oldest end first.
    pub(super) finished: BTreeSet<(Timestamp, u64)>,
    /// Runs that hosts execute themselves.
    owned: BTreeSet<u64>,
    /// Runs that somebody has to look at, and when.
    pub(super) wakes: BTreeSet<(Timestamp, RunId)>,
    keys: HashMap<TaskKey, u64>,
    /// What a claim was granted and is still merely claimed.
    claims: HashMap<(InstanceId, u64), BTreeSet<u64>>,
}

#[derive(Default)]
struct OfTask {
    numbers: BTreeSet<u64>,
    counts: [u64; STATUSES],
}

impl Index {
    pub(super) fn add(&mut self, number: u64, run: &Run) {
        let status = usize::from(run.status.number());
        self.by_status[status].insert(number);
        let of_task = self.by_task.entry(run.spec.task_id.clone()).or_default();
        of_task.numbers.insert(number);
        of_task.counts[status] += 1;
        if let Some(at) = finished_at(run) {
            self.finished.insert((at, number));
        }
        if run.spec.is_owned() {
            self.owned.insert(number);
        }
        if let Some(at) = wake_at(run) {
            self.wakes.insert((at, run.run_id.clone()));
        }
        if let Some(key) = key_of(run) {
            self.keys.insert(key, number);
        }
        if let Some(claim) = claim_of(run) {
            self.claims.entry(claim).or_default().insert(number);
        }
    }

    /// A run has moved on; its task and its key are what they were. What stays as it was is left alone.
    pub(super) fn replace(&mut self, number: u64, before: &Run, after: &Run) {
        let [was, is] = [before, after].map(|run| usize::from(run.status.number()));
        if was != is {
            self.by_status[was].remove(&number);
            self.by_status[is].insert(number);
            if let Some(of_task) = self.by_task.get_mut(&after.spec.task_id) {
                of_task.counts[was] -= 1;
                of_task.counts[is] += 1;
            }
        }
        if finished_at(before) != finished_at(after) {
            self.finished.extend(finished_at(after).map(|at| (at, number)));
        }
        self.rewake(&after.run_id, wake_at(before), wake_at(after));
        if claim_of(before) != claim_of(after) {
            self.claimed_no_more(number, before);
            if let Some(claim) = claim_of(after) {
                self.claims.entry(claim).or_default().insert(number);
            }
        }
    }

    /// A run is to be looked at another time.
    pub(super) fn rewake(&mut self, run_id: &RunId, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.wakes.remove(&(at, run_id.clone()));
        }
        if let Some(at) = after {
            self.wakes.insert((at, run_id.clone()));
        }
    }

    pub(super) fn remove(&mut self, number: u64, run: &Run) {
        let status = usize::from(run.status.number());
        self.by_status[status].remove(&number);
        if let Some(of_task) = self.by_task.get_mut(&run.spec.task_id) {
            of_task.counts[status] -= 1;
            of_task.numbers.remove(&number);
            if of_task.numbers.is_empty() {
                self.by_task.remove(&run.spec.task_id);
            }
        }
        if let Some(at) = finished_at(run) {
            self.finished.remove(&(at, number));
        }
        if run.spec.is_owned() {
            self.owned.remove(&number);
        }
        if let Some(at) = wake_at(run) {
            self.wakes.remove(&(at, run.run_id.clone()));
        }
        if let Some(key) = key_of(run) {
            self.keys.remove(&key);
        }
        self.claimed_no_more(number, run);
    }

    fn claimed_no_more(&mut self, number: u64, run: &Run) {
        if let Some(claim) = claim_of(run)
            && let Some(granted) = self.claims.get_mut(&claim)
        {
            granted.remove(&number);
            if granted.is_empty() {
                self.claims.remove(&claim);
            }
        }
    }

    pub(super) fn by_key(&self, key: &TaskKey) -> Option<u64> {
        self.keys.get(key).copied()
    }

    /// What this request was granted and is still merely claimed.
    pub(super) fn claimed(&self, instance: InstanceId, nonce: u64) -> impl Iterator<Item = u64> {
        self.claims.get(&(instance, nonce)).into_iter().flatten().copied()
    }

    /// How many runs there are by status; states without any are left out.
    pub(super) fn counts(&self, task_id: Option<&TaskId>) -> Vec<(RunStatus, u64)> {
        let count = |status: RunStatus| {
            let number = usize::from(status.number());
            match task_id {
                None => self.by_status[number].len() as u64,
                Some(task_id) => self.by_task.get(task_id).map_or(0, |of_task| of_task.counts[number]),
            }
        };
        let counts = RunStatus::ALL.into_iter().map(|status| (status, count(status)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The runs of a task below a number, from the highest.
    pub(super) fn of_task(&self, task_id: &TaskId, below: u64) -> impl Iterator<Item = u64> {
        let of_task = self.by_task.get(task_id).into_iter();
        of_task.flat_map(move |of_task| of_task.numbers.range(..below).rev().copied())
    }

    /// The runs that hosts execute themselves below a number, from the highest.
    pub(super) fn owned(&self, below: u64) -> impl Iterator<Item = u64> {
        self.owned.range(..below).rev().copied()
    }

    /// The runs in some states below a number, from the highest.
    pub(super) fn in_states(&self, statuses: &[RunStatus], below: u64) -> impl Iterator<Item = u64> {
        let statuses: BTreeSet<RunStatus> = statuses.iter().copied().collect();
        let mut next = below;
        std::iter::from_fn(move || {
            let of = |status: &RunStatus| {
                self.by_status[usize::from(status.number())].range(..next).next_back().copied()
            };
            next = statuses.iter().filter_map(of).max()?;
            Some(next)
        })
    }
}

fn finished_at(run: &Run) -> Option<Timestamp> {
    run.status.is_terminal().then(|| run.finished_at.unwrap_or(run.spec.queued_at))
}

pub(super) fn key_of(run: &Run) -> Option<TaskKey> {
    let idempotency = run.spec.idempotency.as_ref()?;
    Some((run.spec.task_id.clone(), Arc::clone(&idempotency.key)))
}

fn claim_of(run: &Run) -> Option<(InstanceId, u64)> {
    let lease = run.lease.filter(|_| run.status == RunStatus::Claimed)?;
    Some((lease.owner, lease.nonce))
}
