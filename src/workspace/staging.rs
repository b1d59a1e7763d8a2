//! The hidden folder of a root: files are written there before they are put in their place, folders are moved
//! there before they are removed, and the locks lie there. So nothing half-done is ever seen in a workspace.

use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};

use cap_fs_ext::{FollowSymlinks, MetadataExt, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};
use foldhash::fast::FixedState;
use uuid::Uuid;

use super::folder;

/// Its name. No workspace lies below it.
pub(super) const HIDDEN: &str = ".tenure";

const TEMP: &str = "temp-";
const TRASH: &str = "trash-";

/// Runs whose paths share a lock wait for each other for the length of one small write.
const LOCKS: u64 = 64;

/// How often a file is staged that another instance cleared away in the instant in which it was made.
const TRIES: usize = 8;

pub(super) struct Staging {
    dir: Dir,
}

/// Held while one file of a run is looked at and changed: by one thread of one instance at a time, also where
/// several share the root. Given back when it is dropped, or its OS process ends.
pub(super) struct Lock {
    _file: File,
}

impl Staging {
    /// Opens the folder and clears away what nobody is writing any more.
    pub(super) fn open(root: &Dir) -> io::Result<Self> {
        let staging = Self { dir: folder::make_one(root, HIDDEN)? };
        staging.sweep()?;
        Ok(staging)
    }

    /// What a crash left. What cannot be removed stays, and harms nobody.
    fn sweep(&self) -> io::Result<()> {
        for entry in self.dir.entries()? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(TRASH) {
                drop(self.clear(&name));
            } else if name.starts_with(TEMP) {
                drop(self.clear_if_abandoned(&name));
            }
        }
        Ok(())
    }

    /// A file that is being written is locked by who writes it.
    fn clear_if_abandoned(&self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No);
        let file = self.dir.open_with(name, &options)?.into_std();
        match file.try_lock() {
            Ok(()) => self.dir.remove_file(name),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits for the lock of this path.
    pub(super) fn lock(&self, path: &str) -> io::Result<Lock> {
        // Instances of one version share a root: the hash must be the same in each.
        let mut hasher = FixedState::with_seed(0).build_hasher();
        hasher.write(path.as_bytes());
        let name = format!("lock-{:02}", hasher.finish() % LOCKS);
        let mut options = OpenOptions::new();
        options.write(true).create(true).follow(FollowSymlinks::No);
        let file = self.dir.open_with(name, &options)?.into_std();
        file.lock()?;
        Ok(Lock { _file: file })
    }

    /// Writes a file, to be put in its place later.
    pub(super) fn stage(&self, bytes: &[u8], sync: bool) -> io::Result<Staged<'_>> {
        let mut staged = self.make_temp()?;
        staged.file.write_all(bytes)?;
        if sync {
            staged.file.sync_all()?;
        }
        Ok(staged)
    }

    fn make_temp(&self) -> io::Result<Staged<'_>> {
        for _ in 0..TRIES {
            let name = format!("{TEMP}{}", Uuid::new_v4().simple());
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            let file = self.dir.open_with(&name, &options)?;
            let staged = Staged { staging: self, name, file: file.into_std(), placed: false };
            // An instance that starts now may have locked it first, and removes it.
            let locked = staged.file.try_lock().is_ok();
            if locked && self.dir.try_exists(&staged.name)? {
                return Ok(staged);
            }
        }
        Err(io::Error::other("files that are being written vanish; look for what removes them"))
    }

    /// Removes the folder at the end of these names: it vanishes at once and is cleared away then.
    pub(super) fn trash(&self, root: &Dir, names: &[&str]) -> io::Result<bool> {
        let Some((last, above)) = names.split_last() else { return Ok(false) };
        let name = format!("{TRASH}{}", Uuid::new_v4().simple());
        let moved = folder::open(root, above).and_then(|parent| parent.rename(last, &self.dir, &name));
        match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            moved => moved?,
        }
        prune(root, above);
        self.clear(&name)?;
        Ok(true)
    }

    /// It may be a link, which is removed as such.
    fn clear(&self, name: &str) -> io::Result<()> {
        let cleared = match self.dir.symlink_metadata(name) {
            Ok(about) if about.is_dir() => self.dir.remove_dir_all(name),
            Ok(_) => self.dir.remove_file(name),
            Err(error) => Err(error),
        };
        // Another instance that starts clears the same.
        cleared.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }
}

/// Removes the folders at the end of these names that are empty.
fn prune(root: &Dir, names: &[&str]) {
    for end in (1..=names.len()).rev() {
        let (above, last) = (&names[..end - 1], names[end - 1]);
        if folder::open(root, above).and_then(|parent| parent.remove_dir(last)).is_err() {
            break;
        }
    }
}

/// A file that is written and not yet in its place. Gone when it is dropped before.
pub(super) struct Staged<'a> {
    staging: &'a Staging,
    name: String,
    file: File,
    placed: bool,
}

impl Staged<'_> {
    /// Puts it in its place, at once: whoever looks there sees what was before, or all of this.
    pub(super) fn put(&mut self, dir: &Dir, name: &str) -> io::Result<()> {
        self.staging.dir.rename(&self.name, dir, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.placed {
            drop(self.staging.dir.remove_file(&self.name));
        }
    }
}

/// Opens a file of our own to read and change in place: a regular one with no other name, which a link, a pipe
/// or a second name for a file outside is not.
pub(super) fn open_own(dir: &Dir, name: &str, options: &mut OpenOptions) -> io::Result<Option<File>> {
    use cap_fs_ext::OpenOptionsSyncExt;
    // Opening a pipe would else wait for its other end, for ever.
    options.follow(FollowSymlinks::No).nonblock(true);
    let file = dir.open_with(name, options)?;
    let about = file.metadata()?;
    Ok((about.is_file() && about.nlink() == 1).then(|| file.into_std()))
}
