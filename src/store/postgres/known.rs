//! What the writer keeps from one transaction to the next: numbers of names, and how the runs stand that are held, as
//! long as nobody else has written one of them.
//!
//! At most one writer remembers a run that is held. It comes to remember it by writing it; whoever writes one that is
//! held and that it does not remember disturbs everybody else ([`Meta::disturbed`](super::tx::Meta::disturbed)), who
//! then forget all of theirs. A program of a schema that knows nothing of this disturbs with whatever it writes.

use foldhash::HashMap;

use super::row::Stored;
use super::tx::Entry;
use crate::model::{AgentId, RunId, TaskId};

/// Numbers of names. They never change once they are committed, whoever wrote them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) tasks: HashMap<TaskId, i64>,
    pub(super) agents: HashMap<AgentId, i64>,
}

/// The most names that are remembered from one transaction to the next: of more, the server is asked again.
const MOST_NAMES: usize = 100_000;

/// The most runs that are remembered.
const MOST_RUNS: usize = 16_384;

/// What a writer remembers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) names: Names,
    /// Runs that are held: of these the next that is heard is that they begin, end or are renewed.
    held: HashMap<RunId, Stored>,
    /// How often writers had been disturbed when this was last known to stand.
    disturbed: i64,
    /// Whether it stood when the last transaction began. Who is being disturbed is better off asking for everything at
    /// once than finding out that what is remembered does not stand.
    stood: bool,
}

impl Memory {
    /// Forgets when there is too much.
    pub(super) fn trim(&mut self) {
        if self.names.tasks.len() + self.names.agents.len() > MOST_NAMES {
            self.names = Names::default();
        }
        if self.held.len() > MOST_RUNS {
            self.held.clear();
        }
    }

    /// Whether a run need not be read, unless somebody has disturbed.
    pub(super) fn knows(&self, run_id: &RunId) -> bool {
        self.stood && self.held.contains_key(run_id)
    }

    /// What is said of it when a transaction begins; answers whether what is remembered stands.
    pub(super) fn stands_at(&mut self, disturbed: i64) -> bool {
        let stands = self.disturbed == disturbed;
        if !stands {
            self.held.clear();
        }
        (self.disturbed, self.stood) = (disturbed, stands);
        stands
    }

    /// A run, given away: it comes back with what becomes of it.
    pub(super) fn take(&mut self, run_id: &RunId) -> Option<Stored> {
        self.held.remove(run_id)
    }

    /// Runs as a transaction left them that was committed, and how often writers have been disturbed by then.
    pub(super) fn keep(&mut self, runs: impl Iterator<Item = Entry>, disturbed: i64) {
        for entry in runs.filter(Entry::is_ours) {
            if entry.stored.status.is_held() {
                self.held.insert(entry.stored.run_id.clone(), entry.stored);
            }
        }
        self.disturbed = disturbed;
    }

    /// Runs may stand otherwise than they were left.
    pub(super) fn forget_runs(&mut self) {
        self.held.clear();
    }
}
