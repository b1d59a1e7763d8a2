//! What a host may be told. Every number has a default (contract, section 11; rulings).

use std::path::PathBuf;
use std::time::Duration;

use crate::model::RunId;
use crate::ownership::Retention;
use crate::workspace::WorkspaceSettings;

/// How long all that is beside attempts, outcomes and files may take to end when a generation closes, also where the
/// store is silent: four services, each with five seconds, and a little.
const SERVICES_END_WITHIN: Duration = Duration::from_secs(25);

/// The longest deadline of a close. There is an instant that far from now.
const LONGEST_CLOSE: Duration = Duration::from_secs(365 * 86_400);

/// What a host does by itself with what is in its store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Duty {
    /// It fires schedules, executes runs whose agents it has, and looks after lost ones.
    #[default]
    Everything,
    /// It executes this run alone, though its task be paused, fires no schedule, and looks after lost runs.
    OneRun(RunId),
    /// Nothing: it answers calls.
    Nothing,
}

/// The settings of a host.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it does by itself. Default: everything.
    pub duty: Duty,
    /// How long a lease is. Default 30 s.
    pub lease: Duration,
    /// How often leases are renewed. Default: a third of the lease.
    pub heartbeat: Option<Duration>,
    /// How long an expired lease may still be renewed before it is taken over. Default: two heartbeats.
    pub grace: Option<Duration>,
    /// How often expired leases and passed deadlines are looked for. Default: a heartbeat.
    pub sweep: Option<Duration>,
    /// How many runs execute at once. Default 16.
    pub concurrency: usize,
    /// The longest that a change nobody hinted at stays unnoticed. Default 1 s.
    pub poll: Duration,
    /// How long running attempts may go on when the host shuts down. Default 30 s. What attempts came to is stored
    /// once they have ended: where the store does not answer, it is asked for as long as this or the patience,
    /// whichever is longer, and at most a lease; and then for as long once more.
    pub drain: Duration,
    /// How long an attempt that was told to stop is waited for before it is cut off: after its timeout, when
    /// its run is replaced, when its generation closes. Default 15 s.
    pub patience: Duration,
    /// How long an attempt may go without telling its progress. Default: without limit.
    pub stall: Option<Duration>,
    /// Results of up to this many bytes are kept with their run, others in its workspace. Default 64 KiB.
    pub result_inline: usize,
    /// Results of more bytes fail their run. Default 64 MiB.
    pub result_limit: usize,
    /// How often progress is stored at most. Default 1 s.
    pub progress_every: Duration,
    /// How much progress of a run is stored at most. Default 1,000.
    pub progress_limit: u64,
    /// How long finished runs are kept. Default 30 days.
    pub retain_for: Duration,
    /// How many finished runs are kept at most. Default 100,000.
    pub retain_runs: u64,
    /// How long what hosts own is kept once it is over.
    pub retain_owned: Retention,
    /// How often finished runs are pruned. Default 1 minute.
    pub prune_every: Duration,
    /// Where runs keep their files. Without it they have none.
    pub workspace: Option<WorkspaceFolder>,
    /// Whether every instance keeps the files of runs in this same folder. Default no: the folder is this
    /// machine's, and the files of what ran elsewhere are there.
    pub workspace_shared: bool,
    /// Whether leases are renewed on a thread of their own, so that agents that block the runtime keep them.
    /// Default true; on a paused clock it must be false.
    pub heartbeat_thread: bool,
    /// Seeds what is drawn: delays and stamps. Default: drawn.
    pub seed: Option<u64>,
}

/// Where runs keep their files, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFolder {
    /// The folder; made if it is not there.
    pub root: PathBuf,
    /// How they are kept.
    pub settings: WorkspaceSettings,
}

impl WorkspaceFolder {
    /// This folder, with the usual limits.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), settings: WorkspaceSettings::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            duty: Duty::default(),
            lease: Duration::from_secs(30),
            heartbeat: None,
            grace: None,
            sweep: None,
            concurrency: 16,
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(30),
            patience: Duration::from_secs(15),
            stall: None,
            result_inline: 64 * 1024,
            result_limit: 64 * 1024 * 1024,
            progress_every: Duration::from_secs(1),
            progress_limit: 1000,
            retain_for: Duration::from_secs(30 * 86_400),
            retain_runs: 100_000,
            retain_owned: Retention::default(),
            prune_every: Duration::from_secs(60),
            workspace: None,
            workspace_shared: false,
            heartbeat_thread: true,
            seed: None,
        }
    }
}

impl Settings {
    /// How often leases are renewed.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat.unwrap_or(self.lease / 3)
    }

    /// How long an expired lease may still be renewed.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.heartbeat() * 2)
    }

    /// How often expired leases are looked for.
    #[must_use]
    pub fn sweep(&self) -> Duration {
        self.sweep.unwrap_or(self.heartbeat())
    }

    /// How long before the store lets a lease expire its holder stops relying on it.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.lease / 10
    }

    /// How long what ended may take to be stored when a generation closes, and once more when its host ends: also a
    /// host that drains nothing loses no outcome.
    pub(crate) fn stores_within(&self) -> Duration {
        self.drain.max(self.patience).min(self.lease)
    }

    /// How long the close of a generation may take: nothing of it is short of time because of what comes before it.
    pub(crate) fn closes_within(&self) -> Duration {
        let stored = SERVICES_END_WITHIN + self.stores_within().min(LONGEST_CLOSE);
        self.patience.saturating_add(stored).min(LONGEST_CLOSE)
    }
}
