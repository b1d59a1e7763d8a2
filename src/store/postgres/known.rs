//! What the writer keeps from one transaction to the next: numbers of names, and how the runs stand that are held, as
//! long as nobody else writes.

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
    /// That of "meta", when this was last known to stand.
    version: i64,
    /// Whether nobody else had written when the last transaction began. Who is not alone is better off asking for
    /// everything at once than finding out that what is remembered does not stand.
    alone: bool,
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

    /// Whether a run need not be read, unless somebody else has written.
    pub(super) fn knows(&self, run_id: &RunId) -> bool {
        self.alone && self.held.contains_key(run_id)
    }

    /// What is said of it when a transaction begins; answers whether what is remembered stands.
    pub(super) fn stands_at(&mut self, version: i64) -> bool {
        let stands = self.version == version;
        if !stands {
            self.held.clear();
        }
        (self.version, self.alone) = (version, stands);
        stands
    }

    /// A run, given away: it comes back with what becomes of it.
    pub(super) fn take(&mut self, run_id: &RunId) -> Option<Stored> {
        self.held.remove(run_id)
    }

    /// Runs as a transaction left them that was committed as this version.
    pub(super) fn keep(&mut self, runs: impl Iterator<Item = Entry>, version: i64) {
        for stored in runs.map(|entry| entry.stored) {
            if stored.status.is_held() {
                self.held.insert(stored.run_id.clone(), stored);
            } else {
                // It may have been read although it was remembered.
                self.held.remove(&stored.run_id);
            }
        }
        self.version = version;
    }

    /// Runs may stand otherwise than they were left.
    pub(super) fn forget_runs(&mut self) {
        self.held.clear();
    }
}
