//! The files of a run (contract durable-tasks.md, section 9), on real folders.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside the test functions")]

#[path = "workspace/authority.rs"]
mod authority;
#[path = "workspace/events.rs"]
mod events;
#[path = "workspace/files.rs"]
mod files;
#[path = "workspace/limits.rs"]
mod limits;
#[cfg(unix)]
#[path = "workspace/links.rs"]
mod links;
#[path = "workspace/record.rs"]
mod record;
#[path = "workspace/records.rs"]
mod records;
#[path = "workspace/system.rs"]
#[cfg(unix)]
mod system;
#[path = "workspace/views.rs"]
mod views;

use std::path::PathBuf;

use tempfile::TempDir;
use tenure::workspace::{Workspace, WorkspaceLimits, WorkspaceRoot, WorkspaceSettings};

use records::{PATH, run_id};

/// A root of its own in a folder of its own, beside which lies what nobody may reach.
struct Place {
    folder: TempDir,
    root: WorkspaceRoot,
}

impl Place {
    fn new() -> Self {
        Self::with(WorkspaceLimits::default())
    }

    fn with(limits: WorkspaceLimits) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let settings = WorkspaceSettings { limits, sync: false };
        let root = WorkspaceRoot::open(folder.path().join("root"), settings).unwrap();
        Self { folder, root }
    }

    /// The root as another instance opens it.
    fn again(&self) -> WorkspaceRoot {
        WorkspaceRoot::open(self.folder.path().join("root"), self.root.settings()).unwrap()
    }

    /// The workspace of run `r1`.
    fn run(&self) -> Workspace {
        self.root.run(&run_id("r1"), PATH).unwrap()
    }

    /// A place in the folder of run `r1`, to go there past the workspace.
    fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(PATH).join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// What lies in the hidden folder but locks.
    fn half_done(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("root/.tenure")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with("lock-")).collect()
    }
}

/// The paths of a listing; folders with a slash at the end.
fn listed(workspace: &Workspace) -> Vec<String> {
    let listing = workspace.list().unwrap();
    assert!(listing.complete);
    let shown = |entry: tenure::workspace::Entry| if entry.is_dir { entry.path + "/" } else { entry.path };
    listing.entries.into_iter().map(shown).collect()
}

/// What was refused, in words.
fn refused<T: std::fmt::Debug, E: std::fmt::Display>(answer: Result<T, E>) -> String {
    match answer {
        Ok(answer) => panic!("expected a refusal, found {answer:?}"),
        Err(refused) => refused.to_string(),
    }
}
