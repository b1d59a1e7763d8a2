//! What owned work came to, kept in a folder of this machine from when it is known until the store has it: a host that
//! died in between publishes it after its next start (P3).
//!
//! An entry is a file with the grant and the outcome, put in its place as a whole. It is removed once its run is no
//! longer held here: the outcome was stored, or refused for good. What a crash leaves is read by [`Host::recover`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::answers::{Held, Published, Regranted};
use super::host::Host;
use super::outcome::Outcome;
use crate::error::Error;
use crate::instance::Instance;
use crate::tasks::blocking;

const ENTRY: &str = "outcome";
const PART: &str = "part";

/// What became of the outcomes that an earlier start of a host left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Published now, or by that start after all.
    pub published: usize,
    /// Refused: their tasks were ended, or begun again, by others. They are kept in the history of their sessions.
    pub refused: usize,
    /// Files that are no entries: they are left where they are.
    pub unreadable: usize,
}

/// An entry.
#[derive(Serialize, Deserialize)]
struct Entry {
    held: Held,
    outcome: Outcome,
}

/// The folder, and what this start has written there.
pub(super) struct Journal {
    folder: PathBuf,
    written: Mutex<Vec<(PathBuf, Held)>>,
}

impl Journal {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder, written: Mutex::default() }
    }

    /// Keeps an outcome, and lets go of those whose runs are no longer held here.
    pub(super) async fn keep(&self, instance: &Instance, held: Held, outcome: Outcome) -> io::Result<()> {
        self.let_go(instance).await?;
        let path = self.place();
        let (folder, place) = (self.folder.clone(), path.clone());
        let entry = serde_json::to_vec(&Entry { held: held.clone(), outcome })?;
        blocking(move || put(&folder, &place, &entry)).await??;
        self.written.lock().push((path, held));
        Ok(())
    }

    /// Puts an entry in the place of another, and answers where it is.
    async fn replace(&self, before: PathBuf, entry: &Entry) -> io::Result<PathBuf> {
        let (folder, path) = (self.folder.clone(), self.place());
        let (place, entry) = (path.clone(), serde_json::to_vec(entry)?);
        blocking(move || put(&folder, &place, &entry).and_then(|()| remove(&before))).await??;
        Ok(path)
    }

    /// Where nothing is yet.
    fn place(&self) -> PathBuf {
        self.folder.join(format!("{}.{ENTRY}", Uuid::new_v4().simple()))
    }

    async fn let_go(&self, instance: &Instance) -> io::Result<()> {
        let mut settled = Vec::new();
        self.written.lock().retain(|(path, held)| {
            let live = held.key.run_id(held.run).ok().and_then(|run_id| instance.live.get(&run_id));
            let stays = live.is_some_and(|live| live.token == held.token);
            if !stays {
                settled.push(path.clone());
            }
            stays
        });
        blocking(move || settled.iter().try_for_each(|path| remove(path))).await?
    }
}

/// Writes a file so that it is there as a whole or not at all, also after a loss of power.
fn put(folder: &Path, place: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let part = place.with_extension(PART);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // It holds a token.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, place)?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The entries of a folder: their places, and what they say if they can be read.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, Option<Entry>)>> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == ENTRY) {
            let entry = serde_json::from_slice(&fs::read(&path)?).ok();
            entries.push((path, entry));
        }
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

impl Host {
    /// The same, with a folder of this machine in which outcomes are kept until the store has them. It is no other
    /// host's, and the same at the next start, which begins with [`Host::recover`].
    #[must_use]
    pub fn with_journal(mut self, folder: impl Into<PathBuf>) -> Self {
        self.journal = Some(Arc::new(Journal::at(folder.into())));
        self
    }

    /// Publishes what an earlier start of this host left in its journal: under the token that was granted then, or,
    /// if the task was declared lost and nobody has succeeded it, under the one it is given back with (S2.3). Called at
    /// the start, before anything is owned.
    ///
    /// # Errors
    /// [`Error::Store`]: what was not published stays in the journal; recover again. [`Error::Supervision`] when the
    /// folder cannot be read.
    pub async fn recover(&self) -> Result<Recovered, Error> {
        let Some(journal) = &self.journal else { return Ok(Recovered::default()) };
        let folder = journal.folder.clone();
        let unusable = |error: io::Error| {
            let folder = journal.folder.display();
            Error::Supervision(format!("the journal \"{folder}\" cannot be used: {error}").into())
        };
        let left = blocking(move || entries(&folder)).await.and_then(|read| read).map_err(unusable)?;
        let (mut recovered, ttl) = (Recovered::default(), self.request_ttl());
        for (path, entry) in left {
            let Some(Entry { held, outcome }) = entry else {
                tracing::warn!(path = %path.display(), "no entry of a journal; it is left where it is");
                recovered.unreadable += 1;
                continue;
            };
            let (own, mut path) = (self.ownership(), path);
            let mut published = own.publish(&held, outcome.clone()).await?;
            if matches!(published, Published::Fenced { .. })
                && let Regranted::Acquired(held) = own.reinstate(&held, self.instance_id(), ttl).await?
            {
                // If it is not published now and is lost once more, only this token proves whose it was.
                let entry = Entry { held: held.clone(), outcome: outcome.clone() };
                path = journal.replace(path, &entry).await.map_err(unusable)?;
                published = own.publish(&held, outcome).await?;
            }
            match published {
                Published::Committed | Published::AlreadyCommitted => recovered.published += 1,
                _ => recovered.refused += 1,
            }
            blocking(move || remove(&path)).await.and_then(|removed| removed).map_err(unusable)?;
        }
        Ok(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("journal");
        assert!(entries(&folder).unwrap().is_empty(), "a folder that is not there has no entries");
        let place = folder.join("one.outcome");
        put(&folder, &place, b"half").unwrap();
        fs::write(folder.join("two.part"), b"what a crash left").unwrap();
        let found = entries(&folder).unwrap();
        assert!(matches!(&found[..], [(path, None)] if *path == place), "what cannot be read is told");
        remove(&place).unwrap();
        remove(&place).unwrap();
        assert!(entries(&folder).unwrap().is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_token_on_disk_is_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("one.outcome");
        put(folder.path(), &place, b"{}").unwrap();
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o077, 0);
    }
}
