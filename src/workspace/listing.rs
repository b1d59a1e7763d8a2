//! What lies in the folder of a run, and how much of it.

use std::io;
use std::time::UNIX_EPOCH;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, Metadata};
use serde::Serialize;

use super::{ARTIFACTS, Action, EVENTS_JSONL, LOGS, RUN_JSON, Workspace, WorkspaceError};
use crate::model::Timestamp;

/// What lies in the folder of a run, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Files and folders. Links, pipes and sockets are not listed.
    pub entries: Vec<Entry>,
    /// Whether that is all: there may be more than a listing shows, deeper than it looks, or in folders that
    /// may not be read.
    pub complete: bool,
}

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its path below the folder of the run.
    pub path: String,
    /// Its name.
    pub name: String,
    /// Its size in bytes; 0 of a folder.
    pub size: u64,
    /// When it was last changed, by the clock of this machine.
    pub modified_at: Timestamp,
    /// Whether it is a folder.
    pub is_dir: bool,
}

/// How much a run fills.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A listing shows a few more than may be written: those that are made by us.
const OWN: u64 = 4;

impl Workspace {
    /// What lies in the folder, at every depth.
    ///
    /// # Errors
    /// When the folder itself cannot be read.
    pub fn list(&self) -> Result<Listing, WorkspaceError> {
        let limits = self.limits();
        let most = usize::try_from(limits.max_files.saturating_add(OWN)).unwrap_or(usize::MAX);
        let mut walk = Walk { entries: Vec::new(), most, deepest: limits.max_depth, complete: true };
        walk.folder(&self.shared.dir, "", 1)
            .map_err(|error| WorkspaceError::of(Action::Listed, self.path(), error))?;
        walk.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { entries: walk.entries, complete: walk.complete })
    }

    pub(super) fn count(&self) -> Result<Usage, WorkspaceError> {
        let own = [RUN_JSON, EVENTS_JSONL, LOGS, ARTIFACTS];
        let listing = self.list()?;
        let counted = listing.entries.iter().filter(|entry| !own.contains(&entry.path.as_str()));
        Ok(counted.fold(Usage::default(), |usage, entry| Usage {
            files: usage.files + 1,
            bytes: usage.bytes.saturating_add(entry.size),
        }))
    }
}

struct Walk {
    entries: Vec<Entry>,
    most: usize,
    deepest: usize,
    complete: bool,
}

impl Walk {
    /// No deeper than `deepest`, so that neither the stack nor the open folders are many.
    fn folder(&mut self, dir: &Dir, above: &str, depth: usize) -> io::Result<()> {
        for found in dir.entries()? {
            if self.entries.len() >= self.most {
                self.complete = false;
                return Ok(());
            }
            let found = found?;
            let name = found.file_name();
            // What vanished between the two looks is not there.
            let Ok(about) = dir.symlink_metadata(&name) else { continue };
            if !about.is_file() && !about.is_dir() {
                continue;
            }
            let entry = entry(above, &name.to_string_lossy(), &about);
            let path = entry.path.clone();
            self.entries.push(entry);
            if about.is_dir() && !self.below(dir, name.as_ref(), &path, depth) {
                self.complete = false;
            }
        }
        Ok(())
    }

    fn below(&mut self, dir: &Dir, name: &std::path::Path, path: &str, depth: usize) -> bool {
        depth < self.deepest
            && dir.open_dir_nofollow(name).and_then(|below| self.folder(&below, path, depth + 1)).is_ok()
    }
}

fn entry(above: &str, name: &str, about: &Metadata) -> Entry {
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
    let size = if about.is_dir() { 0 } else { about.len() };
    Entry { path, name: name.to_owned(), size, modified_at: modified_at(about), is_dir: about.is_dir() }
}

/// A file from before 1970, or of a system that does not tell, shows 1970.
pub(super) fn modified_at(about: &Metadata) -> Timestamp {
    let modified = about.modified().ok().and_then(|at| at.into_std().duration_since(UNIX_EPOCH).ok());
    Timestamp::from_ms(0).plus(modified.unwrap_or_default())
}
