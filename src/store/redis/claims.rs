//! Claims on their way: named, granted, and answered together.

use std::sync::Arc;

use super::fault::{Fault, Step};
use super::writer::Reply;
use crate::model::{AgentId, InstanceId, Place, Run, Timestamp};
use crate::rules::{self, Moment};
use crate::store::{ClaimRequest, Decision, Refusal};

/// The most runs that are named at once: the server does nothing else meanwhile.
pub(super) const MOST_NAMED: usize = 1000;
/// How many runs that cannot be read a group looks behind.
const MOST_PASSED_OVER: usize = 1000;
/// How often a group asks again at most: others may be quicker each time.
const MOST_ROUNDS: usize = 1000;

/// Runs that can be had, at an instant.
#[derive(Debug)]
pub(super) struct Picked {
    pub(super) runs: Vec<Run>,
    /// The numbers of those that this program cannot read: they are left to one that can.
    pub(super) unreadable: Vec<Vec<u8>>,
    /// There may be more when these are granted.
    pub(super) again: bool,
    pub(super) now: Timestamp,
}

/// Claims of the same agents, which share the search.
pub(super) struct Group {
    agents: Arc<[AgentId]>,
    requests: Vec<Open>,
    stage: Stage,
    rounds: usize,
    /// Who is not named again: the numbers of runs that cannot be read.
    passed_over: Vec<Vec<u8>>,
    /// Why no more can be granted; and whether what was on its way may have been.
    fault: Option<Fault>,
}

struct Open {
    request: ClaimRequest,
    reply: Reply<Vec<Run>>,
    granted: Vec<Run>,
    unknown: bool,
}

/// What has to be done next.
enum Stage {
    /// What was granted before is asked for.
    Before,
    /// Who can be had is asked for.
    Pick,
    /// These can be had.
    Grant(Picked),
    /// Grants are on their way.
    Granting {
        again: bool,
    },
    Done,
}

impl Group {
    pub(super) fn new(request: ClaimRequest, reply: Reply<Vec<Run>>) -> Self {
        let agents = Arc::clone(&request.agents);
        let mut group = Self {
            agents,
            requests: Vec::new(),
            stage: Stage::Pick,
            rounds: 0,
            passed_over: Vec::new(),
            fault: None,
        };
        group.add(request, reply);
        group
    }

    /// Whether a request can join: the search has not begun.
    pub(super) fn takes(&self, request: &ClaimRequest) -> bool {
        let alike = Arc::ptr_eq(&self.agents, &request.agents) || self.agents == request.agents;
        alike && self.rounds == 0 && matches!(self.stage, Stage::Pick | Stage::Before)
    }

    /// By what its requests are known when they are made again.
    pub(super) fn asked(&self) -> Vec<(InstanceId, u64)> {
        self.requests.iter().map(|open| (open.request.instance, open.request.nonce)).collect()
    }

    pub(super) fn add(&mut self, request: ClaimRequest, reply: Reply<Vec<Run>>) {
        if request.repeat {
            self.stage = Stage::Before;
        }
        self.requests.push(Open { request, reply, granted: Vec::new(), unknown: false });
    }

    pub(super) fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    pub(super) fn passed_over(&self) -> &[Vec<u8>] {
        &self.passed_over
    }

    /// The requests whose earlier grants are asked for now.
    pub(super) fn repeated(&self) -> Vec<(usize, &ClaimRequest)> {
        let requests = self.requests.iter().map(|open| &open.request).enumerate();
        let asks = matches!(self.stage, Stage::Before);
        requests.filter(|(_, request)| asks && request.repeat).collect()
    }

    pub(super) fn granted_before(&mut self, request: usize, runs: Step<Vec<Run>>) {
        if self.fault.is_none() {
            self.stage = Stage::Pick;
        }
        match (runs, self.requests.get_mut(request)) {
            (Ok(runs), Some(open)) => open.granted = runs,
            (Err(fault), _) => self.fails(fault),
            (Ok(_), None) => {}
        }
    }

    /// How many runs are to be named now, if that is to be asked.
    pub(super) fn wants(&mut self) -> Option<usize> {
        if !matches!(self.stage, Stage::Pick) {
            return None;
        }
        self.rounds += 1;
        Some(self.missing().min(MOST_NAMED))
    }

    /// How many runs its requests have room for.
    pub(super) fn missing(&self) -> usize {
        let missing = |open: &Open| open.request.limit.saturating_sub(open.granted.len());
        self.requests.iter().map(missing).fold(0, usize::saturating_add)
    }

    pub(super) fn picked(&mut self, picked: Step<Picked>) {
        match picked {
            Ok(mut picked) => {
                let others = !picked.unreadable.is_empty();
                picked.again |= others;
                self.passed_over.append(&mut picked.unreadable);
                let looks_behind = others && self.passed_over.len() < MOST_PASSED_OVER;
                self.stage = match picked.runs.is_empty() {
                    true if looks_behind => Stage::Pick,
                    true => Stage::Done,
                    false => Stage::Grant(picked),
                };
            }
            Err(fault) => self.fails(fault),
        }
    }

    /// The grants that go now, each with the request that it is for.
    pub(super) fn grants(&mut self) -> Vec<(usize, Decision)> {
        if !matches!(self.stage, Stage::Grant(_)) {
            return Vec::new();
        }
        let Stage::Grant(picked) = std::mem::replace(&mut self.stage, Stage::Done) else { return Vec::new() };
        let mut writes = Vec::with_capacity(picked.runs.len());
        let mut open = self.requests.iter().enumerate().flat_map(|(n, open)| {
            let missing = open.request.limit.saturating_sub(open.granted.len());
            std::iter::repeat_n((n, &open.request), missing)
        });
        for run in &picked.runs {
            let Some((n, request)) = open.next() else { break };
            let moment = Moment { now: picked.now, stamp: request.nonce };
            // Who does not wait is not named.
            if let Ok(write) = rules::claim(run, request.instance, request.nonce, request.lease, moment) {
                writes.push((n, Decision::from(write)));
            }
        }
        if !writes.is_empty() {
            let again = picked.again || writes.len() < picked.runs.len();
            self.stage = Stage::Granting { again };
        }
        writes
    }

    /// What became of a grant.
    pub(super) fn granted(&mut self, request: usize, decision: Decision, verdict: Step<Result<(), Refusal>>) {
        let Some(open) = self.requests.get_mut(request) else { return };
        match verdict {
            Ok(Ok(())) => open.granted.extend(decision.runs.into_iter().map(|write| {
                let mut run = write.run;
                run.place = Place::Nowhere;
                run
            })),
            // Somebody else was quicker, or it cannot be had any more: others may be.
            Ok(Err(_)) => {
                if let Stage::Granting { again } = &mut self.stage {
                    *again = true;
                }
            }
            Err(fault) => {
                open.unknown |= matches!(fault, Fault::Lost(_) | Fault::Torn(..));
                self.fault.get_or_insert(fault);
            }
        }
    }

    fn fails(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        self.stage = Stage::Done;
    }

    /// Answers its requests if nothing is left to do.
    pub(super) fn unless_done(mut self, name: &str) -> Option<Self> {
        if let Stage::Granting { again } = self.stage {
            let goes_on = again && self.missing() > 0 && self.rounds < MOST_ROUNDS && self.fault.is_none();
            self.stage = if goes_on { Stage::Pick } else { Stage::Done };
        }
        if !matches!(self.stage, Stage::Done) {
            return Some(self);
        }
        for open in self.requests {
            let answer = match &self.fault {
                // What may have been granted is asked for by who repeats the request.
                Some(fault) if open.unknown => Err(fault.clone().of_write(name)),
                Some(fault) if open.granted.is_empty() => Err(fault.clone().of_read(name)),
                _ => Ok(open.granted),
            };
            open.reply.send(answer);
        }
        None
    }
}
