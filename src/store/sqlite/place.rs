//! Whether the file is still where it was opened. What is written to one that was deleted, or replaced by another, is
//! gone with the last program that has it open: nothing more is taken then.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::{RefusedKind, StoreError};

/// The place of an open file.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// What the system knows the file by; none if it does not tell.
    file: Option<(u64, u64)>,
    gone: AtomicBool,
}

impl Place {
    /// Of a file that was just opened.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: found(path).ok(), gone: AtomicBool::new(false) }
    }

    /// Looks whether the file is there. A folder that cannot be read says nothing.
    pub(super) fn look(&self) {
        let gone = match (found(&self.path), self.file) {
            (Ok(now), Some(before)) => now != before,
            (Err(error), Some(_)) => error.kind() == std::io::ErrorKind::NotFound,
            (_, None) => false,
        };
        if gone != self.gone.swap(gone, Ordering::AcqRel) {
            let path = self.path.display();
            if gone {
                tracing::error!(%path, "the file of the store was deleted or replaced: nothing is taken any more");
            } else {
                tracing::info!(%path, "the file of the store is back");
            }
        }
    }

    /// # Errors
    /// When it was not there when it was looked for last.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if !self.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = format!(
            "\"{}\" was deleted or replaced while it was open; put it back, or start this program anew",
            self.path.display()
        );
        Err(StoreError::refused(RefusedKind::Unavailable, message))
    }
}

fn found(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_deleted_or_replaced_is_missed_until_it_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("a.db"), folder.path().join("aside"));
        fs::write(&path, "a").unwrap();
        let place = Place::of(&path);
        let is_there = || {
            place.look();
            place.check().is_ok()
        };
        assert!(is_there());
        fs::rename(&path, &aside).unwrap();
        assert!(!is_there());
        fs::write(&path, "another").unwrap();
        assert!(!is_there(), "another file of that name is not the one that is open");
        fs::rename(&aside, &path).unwrap();
        assert!(is_there());
    }
}
