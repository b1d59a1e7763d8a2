//! The files of runs (contract durable-tasks.md, section 9): one folder for each below a root that is local to
//! this instance.
//!
//! ```text
//! ROOT/.tenure/…                       locks, files that are being written, folders that are being removed
//! ROOT/background/AGENT/TASK/RUN/
//!   run.json                           the run as it stands, replaced as a whole at each change
//!   events.jsonl                       its events, one a line, in order; only ever appended to
//!   output.md  logs/  artifacts/  …    what the agent writes
//! ```
//!
//! # Invariants
//!
//! 1. No read, write or listing leaves the folder of the run, whatever links an agent makes there and whenever:
//!    paths are resolved by the system below an open folder (`cap-std`). Reads follow links that stay within,
//!    writes follow none, listings name none.
//! 2. `run.json` is at any instant one whole record, and never an older one than before.
//! 3. `events.jsonl` holds the events 1 to n of its run, each once, in order; after a crash the line that was
//!    being written may be torn, and is cut off before the next is appended. It mirrors the store: what it lacks
//!    is [asked for](WorkspaceError::Gap) and read from there.
//! 4. A file that is replaced is never seen half-written; one that could not be is as it was.
//! 5. What is written through a [`GuardedWorkspace`] takes effect only while the authority of its attempt stands.
//!
//! Everything here blocks its thread; [`Workspace::blocking`] is for callers that may not be blocked. The limits bind
//! what is written through this module; an OS process that an agent starts writes by itself, and is held to them
//! only by what reads and lists its files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use parking_lot::Mutex;

use crate::model::RunId;
use crate::tasks;

mod error;
mod files;
mod folder;
mod guarded;
mod journal;
mod listing;
mod path;
mod record;
mod staging;

pub use error::{Action, NoName, PathProblem, WorkspaceError};
pub use files::{OpenFile, media_type};
pub use guarded::{Authority, AuthorityLost, GuardedWorkspace};
pub use journal::Appended;
pub use listing::{Entry, Listing};

use listing::Usage;
use staging::{HIDDEN, Staging};

/// The run as it stands.
pub const RUN_JSON: &str = "run.json";
/// Its events.
pub const EVENTS_JSONL: &str = "events.jsonl";
/// What the agent answered.
pub const OUTPUT_MD: &str = "output.md";
/// The folder for logs.
pub const LOGS: &str = "logs";
/// The folder for what the agent made.
pub const ARTIFACTS: &str = "artifacts";

/// How many names the folder of a run may have below the root.
const MOST_NAMES: usize = 16;

/// How the files of runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkspaceSettings {
    /// What a run may fill.
    pub limits: WorkspaceLimits,
    /// Whether `run.json` and `events.jsonl` are on the disk before a write of them returns. Default no: both
    /// mirror the store, and what the end of the machine takes from them is written again from there.
    pub sync: bool,
}

/// What a run may fill. `run.json` and `events.jsonl` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceLimits {
    /// The largest file, in bytes. Default 64 MiB.
    pub max_file_bytes: u64,
    /// The most files and folders. Default 10,000.
    pub max_files: u64,
    /// The most bytes of all files together. Default 1 GiB.
    pub max_total_bytes: u64,
    /// The most names in a path below the folder of the run. Default 16.
    pub max_depth: usize,
}

impl Default for WorkspaceLimits {
    fn default() -> Self {
        Self { max_file_bytes: 64 << 20, max_files: 10_000, max_total_bytes: 1 << 30, max_depth: 16 }
    }
}

/// The folder below which all runs of this instance keep their files. A cheap clone.
#[derive(Clone)]
pub struct WorkspaceRoot {
    inner: Arc<Inner>,
}

struct Inner {
    /// Where it is, for programs that are told.
    path: PathBuf,
    dir: Dir,
    staging: Staging,
    settings: WorkspaceSettings,
}

impl WorkspaceRoot {
    /// Opens the root, making it if it is not there, and clears away what a crash left half-done. The folder is
    /// readable by this program's user alone if it is made here.
    ///
    /// # Errors
    /// When it cannot be made, opened or written.
    pub fn open(path: impl AsRef<Path>, settings: WorkspaceSettings) -> Result<Self, WorkspaceError> {
        let path = path.as_ref();
        let failed = |error| WorkspaceError::of_root(&path.to_string_lossy(), error);
        make_private(path).map_err(failed)?;
        let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?;
        let staging = Staging::open(&dir).map_err(failed)?;
        let path = std::path::absolute(path).map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { path, dir, staging, settings }) })
    }

    /// The workspace of a run, made if it is not there. `workspace_path` is the run's, below the root.
    ///
    /// # Errors
    /// When the path cannot name a folder below the root, a link lies on it, or it cannot be made.
    pub fn run(&self, run_id: &RunId, workspace_path: &str) -> Result<Workspace, WorkspaceError> {
        let names = folder_names(workspace_path)?;
        let failed = |error| WorkspaceError::of(Action::Opened, workspace_path, error);
        let dir = folder::make(&self.inner.dir, &names).map_err(failed)?;
        for name in [LOGS, ARTIFACTS] {
            folder::make_one(&dir, name).map_err(failed)?;
        }
        Ok(self.workspace(run_id, workspace_path, dir))
    }

    /// The workspace of a run, if there is one.
    ///
    /// # Errors
    /// When the path cannot name a folder below the root, a link lies on it, or it cannot be opened.
    pub fn find(&self, run_id: &RunId, workspace_path: &str) -> Result<Option<Workspace>, WorkspaceError> {
        let names = folder_names(workspace_path)?;
        match folder::open(&self.inner.dir, &names) {
            Ok(dir) => Ok(Some(self.workspace(run_id, workspace_path, dir))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(WorkspaceError::of(Action::Opened, workspace_path, error)),
        }
    }

    /// Removes the folder of a run with everything in it, for retention. False if there was none. Folders above
    /// it that are empty then go with it.
    ///
    /// It vanishes at once, and is cleared away afterwards: what of that fails is tried again when the root is
    /// opened next.
    ///
    /// # Errors
    /// When the path cannot name a folder below the root, or it cannot be removed.
    pub fn remove(&self, workspace_path: &str) -> Result<bool, WorkspaceError> {
        let names = folder_names(workspace_path)?;
        let failed = |error| WorkspaceError::of(Action::Removed, workspace_path, error);
        self.inner.staging.trash(&self.inner.dir, &names).map_err(failed)
    }

    /// How files are kept.
    #[must_use]
    pub fn settings(&self) -> WorkspaceSettings {
        self.inner.settings
    }

    fn workspace(&self, run_id: &RunId, path: &str, dir: Dir) -> Workspace {
        let shared = Shared {
            root: Arc::clone(&self.inner),
            run_id: run_id.clone(),
            path: path.into(),
            dir,
            usage: Mutex::new(None),
        };
        Workspace { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for WorkspaceRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceRoot").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// The folder of one run. A cheap clone. What can be done with it is spread over the files beside this one.
#[derive(Clone)]
pub struct Workspace {
    shared: Arc<Shared>,
}

struct Shared {
    root: Arc<Inner>,
    run_id: RunId,
    path: Arc<str>,
    dir: Dir,
    /// What the run fills, once counted. Its lock makes one write of this workspace follow another.
    usage: Mutex<Option<Usage>>,
}

impl Workspace {
    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.shared.run_id
    }

    /// The folder of the run below the workspace root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Where the folder is on this machine: for programs that are started for the run.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.shared.root.path.join(self.path())
    }

    /// Does something with it on a thread that may block, for callers that may not.
    ///
    /// # Errors
    /// Those of `work`, and [`WorkspaceError::Io`] when the runtime shuts down first.
    ///
    /// Cancel safety: dropping the future does not stop work that has begun.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let this = self.clone();
        match tasks::blocking(move || work(&this)).await {
            Ok(answer) => answer,
            Err(ended) => Err(WorkspaceError::of(Action::Opened, self.path(), ended)),
        }
    }

    fn limits(&self) -> WorkspaceLimits {
        self.shared.root.settings.limits
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workspace({:?} of run {:?})", self.path(), self.run_id().as_str())
    }
}

fn folder_names(path: &str) -> Result<Vec<&str>, WorkspaceError> {
    let names = path::names(path, MOST_NAMES)?;
    match names.first() {
        Some(first) if first.eq_ignore_ascii_case(HIDDEN) => {
            Err(WorkspaceError::Reserved { path: error::shown(path) })
        }
        _ => Ok(names),
    }
}

/// Queries and answers are nobody else's business.
fn make_private(path: &Path) -> std::io::Result<()> {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "only there a mode is set"))]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}
