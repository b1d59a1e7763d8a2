//! What a configuration file may say, section by section. What it says nothing of has its default.

use std::path::PathBuf;

use serde::Deserialize;
use tenure::http::{HttpOptions, OwnershipOptions};
use tenure::model::Seconds;
use tenure::ownership::Retention;
use tenure::{Settings, WorkspaceFolder};

use super::places::{Listen, StoreUrl};
use super::values::{Length, LogFormat, Secret, Sync};

/// All settings of the program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: ServerSection,
    pub(crate) ownership: OwnershipSection,
    pub(crate) store: StoreSection,
    pub(crate) worker: WorkerSection,
    pub(crate) workspace: WorkspaceSection,
    pub(crate) log: LogSection,
    /// As the file has them: read by [`super::file`].
    pub(crate) agents: toml::Table,
    /// As the file has them: read by [`super::file`].
    pub(crate) tasks: toml::Table,
}

/// `[server]`: the HTTP interface.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerSection {
    pub(crate) listen: Listen,
    pub(crate) token: Option<Secret>,
    pub(crate) token_env: Option<String>,
    pub(crate) allow_agents: bool,
    pub(crate) agent_env: Vec<String>,
    pub(crate) default_agent: Option<String>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) max_body_bytes: usize,
    pub(crate) max_page: usize,
    pub(crate) max_waits: usize,
    pub(crate) max_wait: Length,
    pub(crate) max_streams: usize,
    pub(crate) max_connections: usize,
}

impl Default for ServerSection {
    fn default() -> Self {
        let library = HttpOptions::default();
        Self {
            listen: Listen::default(),
            token: None,
            token_env: None,
            allow_agents: false,
            agent_env: Vec::new(),
            default_agent: None,
            allowed_hosts: Vec::new(),
            max_body_bytes: library.max_body_bytes,
            max_page: library.max_page,
            max_waits: library.max_waits,
            max_wait: Length(library.max_wait),
            max_streams: library.max_streams,
            max_connections: library.max_connections,
        }
    }
}

/// `[ownership]`: hosts in other languages that keep here who owns what.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OwnershipSection {
    pub(crate) serve: bool,
    pub(crate) namespace: Option<String>,
    pub(crate) lease: Option<Length>,
    pub(crate) max_outcome_bytes: usize,
    pub(crate) retain_acknowledged: Length,
    pub(crate) retain_unacknowledged: Length,
    pub(crate) retain_sessions: Length,
}

impl Default for OwnershipSection {
    fn default() -> Self {
        let retain = Settings::default().retain_owned;
        Self {
            serve: true,
            namespace: None,
            lease: None,
            max_outcome_bytes: OwnershipOptions::default().max_outcome_bytes,
            retain_acknowledged: Length(retain.acknowledged.duration()),
            retain_unacknowledged: Length(retain.unacknowledged.duration()),
            retain_sessions: Length(retain.sessions.duration()),
        }
    }
}

impl OwnershipSection {
    /// How long what is over is kept.
    fn retention(&self) -> Retention {
        let seconds = |length: Length| {
            Seconds::from_ms(u64::try_from(length.0.as_millis()).unwrap_or(u64::MAX)).min(Seconds::MAX)
        };
        Retention {
            acknowledged: seconds(self.retain_acknowledged),
            unacknowledged: seconds(self.retain_unacknowledged),
            sessions: seconds(self.retain_sessions),
            ..Retention::default()
        }
    }
}

/// `[store]`: where records are kept, and for how long.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSection {
    pub(crate) url: StoreUrl,
    pub(crate) synchronous: Sync,
    pub(crate) busy_timeout: Length,
    pub(crate) retain_for: Length,
    pub(crate) retain_runs: u64,
    pub(crate) prune_every: Length,
}

impl Default for StoreSection {
    fn default() -> Self {
        let library = Settings::default();
        Self {
            url: StoreUrl::Sqlite(PathBuf::from(".tenure/tenure.db")),
            synchronous: Sync::default(),
            busy_timeout: Length::secs(30),
            retain_for: Length(library.retain_for),
            retain_runs: library.retain_runs,
            prune_every: Length(library.prune_every),
        }
    }
}

/// `[worker]`: how runs are executed.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WorkerSection {
    pub(crate) concurrency: usize,
    pub(crate) lease: Length,
    pub(crate) heartbeat: Option<Length>,
    pub(crate) grace: Option<Length>,
    pub(crate) poll: Length,
    pub(crate) drain: Length,
    pub(crate) patience: Length,
    pub(crate) stall: Option<Length>,
    pub(crate) max_result_bytes: usize,
}

impl Default for WorkerSection {
    fn default() -> Self {
        let library = Settings::default();
        Self {
            concurrency: library.concurrency,
            lease: Length(library.lease),
            heartbeat: None,
            grace: None,
            poll: Length(library.poll),
            drain: Length(library.drain),
            patience: Length(library.patience),
            stall: None,
            max_result_bytes: library.result_limit,
        }
    }
}

/// `[workspace]`: where runs keep their files.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WorkspaceSection {
    pub(crate) root: PathBuf,
    pub(crate) shared: bool,
    pub(crate) max_file_bytes: u64,
    pub(crate) max_files: u64,
    pub(crate) max_total_bytes: u64,
}

impl Default for WorkspaceSection {
    fn default() -> Self {
        let library = WorkspaceFolder::at("").settings.limits;
        Self {
            root: PathBuf::from(".tenure/workspace"),
            shared: false,
            max_file_bytes: library.max_file_bytes,
            max_files: library.max_files,
            max_total_bytes: library.max_total_bytes,
        }
    }
}

/// `[log]`: what is told of the work of the host itself, on standard error.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSection {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::default() }
    }
}

impl Config {
    /// What the library is told.
    pub(crate) fn settings(&self) -> Settings {
        let (worker, store) = (&self.worker, &self.store);
        Settings {
            lease: worker.lease.0,
            heartbeat: worker.heartbeat.map(|length| length.0),
            grace: worker.grace.map(|length| length.0),
            concurrency: worker.concurrency,
            poll: worker.poll.0,
            drain: worker.drain.0,
            patience: worker.patience.0,
            stall: worker.stall.map(|length| length.0),
            result_limit: worker.max_result_bytes,
            retain_for: store.retain_for.0,
            retain_runs: store.retain_runs,
            retain_owned: self.ownership.retention(),
            prune_every: store.prune_every.0,
            workspace: Some(self.workspace_folder()),
            workspace_shared: self.workspace.shared,
            ..Settings::default()
        }
    }

    fn workspace_folder(&self) -> WorkspaceFolder {
        let mut folder = WorkspaceFolder::at(&self.workspace.root);
        folder.settings.limits.max_file_bytes = self.workspace.max_file_bytes;
        folder.settings.limits.max_files = self.workspace.max_files;
        folder.settings.limits.max_total_bytes = self.workspace.max_total_bytes;
        folder
    }
}
