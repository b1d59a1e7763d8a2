//! The close report: what became of everything a generation ever started. It balances.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use crate::child::{Child, Place};
use crate::event::CloseReason;
use crate::exit::{ExitReason, first_line};
use crate::id::{Epoch, ProcessId};
use crate::rules::{Bucket, EndKind, ToldToStop, bucket};

/// What became of the processes and services of a generation.
///
/// `started` is the sum of `ended`, `closed`, `failed`, `killed` and `abandoned`; `commits.submitted` that of
/// `commits.applied` and `commits.dropped` ([`CloseReport::imbalance`]).
#[derive(Debug, Clone, Serialize)]
pub struct CloseReport {
    /// The generation.
    pub epoch: Epoch,
    /// Why it was closed.
    pub reason: CloseReason,
    /// How long the close took.
    pub took: Duration,
    /// How many processes and service incarnations it ever started.
    pub started: u64,
    /// How many ended before they were told to stop, in whatever way.
    pub ended: u64,
    /// How many ended in order after they had been told to stop.
    pub closed: u64,
    /// Those that ended, but whose close failed or panicked, with the first line of the error.
    pub failed: Vec<(ProcessId, String)>,
    /// Those that were cut off because they did not end within their patience or the close deadline.
    pub killed: Vec<ProcessId>,
    /// Objects whose close was cut off, so that nobody knows what of them still runs, and processes that were
    /// not gone even after the kill. Nothing of them can commit.
    pub abandoned: Vec<ProcessId>,
    /// Processes with effects that began before the close and had not ended when it answered.
    pub in_flight: Vec<ProcessId>,
    /// Shared resources whose close failed, panicked or was cut off, with the first line of the error.
    pub resources_failed: Vec<(String, String)>,
    /// What became of the commits.
    pub commits: CommitCounts,
}

/// What became of the commits of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CommitCounts {
    /// All that were attempted.
    pub submitted: u64,
    /// Those whose effect ran, wholly or as far as its own panic or cut-off.
    pub applied: u64,
    /// Those that were refused.
    pub dropped: u64,
}

impl CloseReport {
    /// What does not add up; none when the report balances.
    #[must_use]
    pub fn imbalance(&self) -> Option<String> {
        let accounted = self.ended
            + self.closed
            + [self.failed.len(), self.killed.len(), self.abandoned.len()]
                .into_iter()
                .map(|count| count as u64)
                .sum::<u64>();
        let commits = self.commits;
        if self.started != accounted {
            return Some(format!("started {} but {accounted} accounted for", self.started));
        }
        (commits.submitted != commits.applied + commits.dropped).then(|| format!("{commits:?}"))
    }
}

/// One line, without how long it took: what happened is the same on every machine.
impl fmt::Display for CloseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, reason, started, ended, closed, commits, .. } = self;
        let (failed, killed, abandoned) = (self.failed.len(), self.killed.len(), self.abandoned.len());
        write!(f, "g{epoch} {reason}: started {started}, ended {ended}, closed {closed}, failed {failed}, ")?;
        write!(f, "killed {killed}, abandoned {abandoned}; {commits}")?;
        if !self.in_flight.is_empty() {
            write!(f, "; in flight {}", self.in_flight.len())?;
        }
        if !self.resources_failed.is_empty() {
            write!(f, "; resources failed {}", self.resources_failed.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for CommitCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { submitted, applied, dropped } = self;
        write!(f, "commits {submitted}, applied {applied}, dropped {dropped}")
    }
}

/// Running totals of a generation. Written when children start and end, never on the commit path.
#[derive(Default)]
pub(crate) struct Counters {
    processes: Tally,
    services: Tally,
    applied: AtomicU64,
    dropped: AtomicU64,
}

/// The totals of one place. Kept apart, so that the report of a registry that is closed alone balances while
/// services run on.
#[derive(Default)]
struct Tally {
    started: AtomicU64,
    ended: AtomicU64,
    closed: AtomicU64,
    casualties: Mutex<Casualties>,
}

#[derive(Default, Clone)]
struct Casualties {
    failed: Vec<(ProcessId, String)>,
    killed: Vec<ProcessId>,
    abandoned: Vec<ProcessId>,
}

impl Casualties {
    fn add(&mut self, more: Self) {
        self.failed.extend(more.failed);
        self.killed.extend(more.killed);
        self.abandoned.extend(more.abandoned);
    }
}

impl Counters {
    fn tally(&self, place: Place) -> &Tally {
        match place {
            Place::Registry => &self.processes,
            Place::Services => &self.services,
        }
    }

    pub(crate) fn started(&self, place: Place) {
        self.tally(place).started.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back [`Counters::started`]: it was given up at the same moment.
    pub(crate) fn not_started(&self, place: Place) {
        self.tally(place).started.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// A child ended. Its commits are counted now, or when its last effect in flight has ended.
    pub(crate) fn ended(&self, child: &Arc<Child>, exit: &ExitReason, never_started: bool) {
        if !self.count_if_drained(child) {
            child.core.keep_undrained(child);
        }
        if never_started {
            return;
        }
        let told = if child.is_told_to_stop() { ToldToStop::Yes } else { ToldToStop::No };
        let (id, tally) = (|| child.id.clone(), self.tally(child.place));
        match bucket(end_kind(exit), told, child.kind) {
            Bucket::Ended => drop(tally.ended.fetch_add(1, Ordering::Relaxed)),
            Bucket::Closed => drop(tally.closed.fetch_add(1, Ordering::Relaxed)),
            Bucket::Failed => tally.casualties.lock().failed.push((id(), first_line(&exit.to_string()))),
            Bucket::Killed => tally.casualties.lock().killed.push(id()),
            Bucket::Abandoned => tally.casualties.lock().abandoned.push(id()),
        }
    }

    /// Adds the commits of a child whose gate is closed and drained: then the count is final.
    pub(crate) fn count_if_drained(&self, child: &Child) -> bool {
        let drained = child.gate.is_drained();
        if drained {
            self.applied.fetch_add(child.gate.begun(), Ordering::Relaxed);
        }
        drained
    }

    /// The report on these places as of now; `in_flight` are the children whose effects have not ended.
    pub(crate) fn report(
        &self,
        places: &[Place],
        (epoch, reason, took): (Epoch, CloseReason, Duration),
        in_flight: &[Arc<Child>],
        resources_failed: Vec<(String, String)>,
    ) -> CloseReport {
        let still_running: u64 = in_flight.iter().map(|child| child.gate.begun()).sum();
        let applied = self.applied.load(Ordering::Relaxed) + still_running;
        let dropped = self.dropped.load(Ordering::Relaxed);
        let mut casualties = Casualties::default();
        let (mut started, mut ended, mut closed) = (0, 0, 0);
        for tally in places.iter().map(|place| self.tally(*place)) {
            started += tally.started.load(Ordering::Relaxed);
            ended += tally.ended.load(Ordering::Relaxed);
            closed += tally.closed.load(Ordering::Relaxed);
            casualties.add(tally.casualties.lock().clone());
        }
        CloseReport {
            epoch,
            reason,
            took,
            started,
            ended,
            closed,
            failed: casualties.failed,
            killed: casualties.killed,
            abandoned: casualties.abandoned,
            in_flight: in_flight.iter().map(|child| child.id.clone()).collect(),
            resources_failed,
            commits: CommitCounts { submitted: applied + dropped, applied, dropped },
        }
    }
}

fn end_kind(exit: &ExitReason) -> EndKind {
    match exit {
        ExitReason::Completed | ExitReason::Stopped | ExitReason::NeverStarted => EndKind::Completed,
        ExitReason::Removed => EndKind::Removed,
        ExitReason::Failed(_) => EndKind::Failed,
        ExitReason::Panicked(_) => EndKind::Panicked,
        ExitReason::Killed(_) => EndKind::Killed,
        ExitReason::Abandoned => EndKind::Remains,
    }
}
