//! Files that the agent writes and people read.

use std::fs::File;
use std::io::{self, Read, Write};

use cap_fs_ext::OpenOptionsSyncExt;
use cap_std::fs::OpenOptions;

use super::guarded::{Authority, Host, under};
use super::listing::{Usage, modified_at};
use super::staging::open_own;
use super::{Action, EVENTS_JSONL, RUN_JSON, Workspace, WorkspaceError, error, folder, path};
use crate::model::Timestamp;

/// A file, open to be read.
#[derive(Debug)]
pub struct OpenFile {
    /// The file. Reading it blocks; it may grow meanwhile.
    pub file: File,
    /// Its size when it was opened.
    pub size: u64,
    /// When it was last changed, by the clock of this machine.
    pub modified_at: Timestamp,
    /// What its name says that it holds.
    pub media_type: String,
}

/// What the name of a file says that it holds; text is taken to be UTF-8.
#[must_use]
pub fn media_type(path: &str) -> String {
    let extension = path.rsplit(['/', '.']).next().unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "jsonl" | "ndjson" => return "application/x-ndjson".to_owned(),
        "log" | "toml" | "yaml" | "yml" => return "text/plain; charset=utf-8".to_owned(),
        _ => {}
    }
    let guessed = mime_guess::from_path(path).first_or_octet_stream();
    if guessed.type_() == mime_guess::mime::TEXT {
        format!("{guessed}; charset=utf-8")
    } else {
        guessed.to_string()
    }
}

/// What a write adds.
#[derive(Clone, Copy)]
struct Growth {
    /// Files and folders that are not there yet.
    files: u64,
    /// The size of the file before.
    before: u64,
    /// Its size afterwards.
    after: u64,
}

impl Workspace {
    // --- reading ----------------------------------------------------------------------------------------

    /// Opens a file to read it bit by bit. A link is followed if it stays within the folder.
    ///
    /// # Errors
    /// When it is not there, is no regular file, lies outside, or cannot be opened.
    pub fn open(&self, path: &str) -> Result<OpenFile, WorkspaceError> {
        path::names(path, self.limits().max_depth)?;
        let failed = |error| WorkspaceError::of(Action::Opened, path, error);
        let mut options = OpenOptions::new();
        // Opening a pipe would else wait for its other end, for ever.
        options.read(true).nonblock(true);
        let file = self.shared.dir.open_with(path, &options).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            let expected = if about.is_dir() { "a file, found a folder" } else { "a regular file" };
            return Err(WorkspaceError::Unfit { path: error::shown(path), expected });
        }
        let (size, modified_at) = (about.len(), modified_at(&about));
        Ok(OpenFile { file: file.into_std(), size, modified_at, media_type: media_type(path) })
    }

    /// The bytes of a file of at most `limit`.
    ///
    /// # Errors
    /// As [`Workspace::open`], and when it is larger or cannot be read.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        let opened = self.open(path)?;
        let too_large = |size| WorkspaceError::FileTooLarge { path: error::shown(path), size, limit };
        if opened.size > limit {
            return Err(too_large(opened.size));
        }
        let mut bytes = Vec::new();
        // It may have grown since.
        let read = opened.file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| WorkspaceError::of(Action::Read, path, error))?;
        let size = length(&bytes);
        if size > limit { Err(too_large(size)) } else { Ok(bytes) }
    }

    // --- writing ----------------------------------------------------------------------------------------

    /// Replaces a file as a whole, making the folders above it.
    ///
    /// # Errors
    /// When the path is none, reserved or leads through a link, a limit would be exceeded, or it cannot be
    /// written. The file is as it was.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.write_under(&Host, path, bytes)
    }

    /// Adds to the end of a file, making it and the folders above it.
    ///
    /// # Errors
    /// As [`Workspace::write`]; and when the file has another name too, which may be outside.
    pub fn append(&self, path: &str, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.append_under(&Host, path, bytes)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// When the path is none or reserved, or there is no file.
    pub fn remove_file(&self, path: &str) -> Result<(), WorkspaceError> {
        self.remove_file_under(&Host, path)
    }

    /// The bytes are written aside first, so that what happens under the authority is short.
    pub(super) fn write_under(
        &self,
        authority: &dyn Authority,
        path: &str,
        bytes: &[u8],
    ) -> Result<(), WorkspaceError> {
        let failed = |error| WorkspaceError::of(Action::Written, path, error);
        let (above, name) = self.writable(path)?;
        let mut usage = self.shared.usage.lock();
        let growth = Growth { after: length(bytes), ..self.before(&above, name) };
        let grown = self.admit(&mut usage, path, growth)?;
        let mut staged = self.shared.root.staging.stage(bytes, false).map_err(failed)?;
        under(authority, path, || {
            folder::make(&self.shared.dir, &above).and_then(|dir| staged.put(&dir, name)).map_err(failed)
        })?;
        *usage = Some(grown);
        Ok(())
    }

    pub(super) fn append_under(
        &self,
        authority: &dyn Authority,
        path: &str,
        bytes: &[u8],
    ) -> Result<(), WorkspaceError> {
        let (above, name) = self.writable(path)?;
        let mut usage = self.shared.usage.lock();
        let before = self.before(&above, name);
        let growth = Growth { after: before.before.saturating_add(length(bytes)), ..before };
        let grown = self.admit(&mut usage, path, growth)?;
        under(authority, path, || {
            let failed = |error| WorkspaceError::of(Action::Written, path, error);
            let dir = folder::make(&self.shared.dir, &above).map_err(failed)?;
            let own = open_own(&dir, name, OpenOptions::new().append(true).create(true)).map_err(failed)?;
            let Some(mut file) = own else {
                let expected = "a regular file with no other name";
                return Err(WorkspaceError::Unfit { path: error::shown(path), expected });
            };
            add(&mut file, bytes).map_err(failed)
        })?;
        *usage = Some(grown);
        Ok(())
    }

    pub(super) fn remove_file_under(
        &self,
        authority: &dyn Authority,
        path: &str,
    ) -> Result<(), WorkspaceError> {
        let failed = |error| WorkspaceError::of(Action::Removed, path, error);
        let (above, name) = self.writable(path)?;
        // What is filled is counted anew before a write is refused.
        let _usage = self.shared.usage.lock();
        under(authority, path, || {
            folder::open(&self.shared.dir, &above).and_then(|dir| dir.remove_file(name)).map_err(failed)
        })
    }

    /// The folders above a file that may be written, and its name.
    fn writable<'a>(&self, path: &'a str) -> Result<(Vec<&'a str>, &'a str), WorkspaceError> {
        let mut names = path::names(path, self.limits().max_depth)?;
        let name = names.pop().unwrap_or_default();
        let reserved = |own: &str| names.is_empty() && name.eq_ignore_ascii_case(own);
        if reserved(RUN_JSON) || reserved(EVENTS_JSONL) {
            return Err(WorkspaceError::Reserved { path: error::shown(path) });
        }
        Ok((names, name))
    }

    /// What is there before a write. What cannot be looked at counts as absent: writing it will fail, and tell.
    fn before(&self, above: &[&str], name: &str) -> Growth {
        let mut dir = self.shared.dir.try_clone();
        let mut missing = 1;
        for (n, folder) in above.iter().enumerate() {
            dir = dir.and_then(|dir| folder::open(&dir, &[folder]));
            if dir.is_err() {
                missing = u64::try_from(above.len() - n + 1).unwrap_or(u64::MAX);
                break;
            }
        }
        match dir.and_then(|dir| dir.symlink_metadata(name)) {
            Ok(about) => Growth { files: 0, before: about.len(), after: 0 },
            Err(_) => Growth { files: missing, before: 0, after: 0 },
        }
    }

    /// What the run fills afterwards, if it may. What was removed or written past this module is counted anew
    /// before a write is refused.
    fn admit(&self, usage: &mut Option<Usage>, path: &str, growth: Growth) -> Result<Usage, WorkspaceError> {
        let (limits, shown) = (self.limits(), error::shown(path));
        if growth.after > limits.max_file_bytes {
            let (size, limit) = (growth.after, limits.max_file_bytes);
            return Err(WorkspaceError::FileTooLarge { path: shown, size, limit });
        }
        let fits = |grown: &Usage| grown.files <= limits.max_files && grown.bytes <= limits.max_total_bytes;
        if let Some(grown) = usage.map(|usage| usage.plus(growth)).filter(fits) {
            return Ok(grown);
        }
        let grown = usage.insert(self.count()?).plus(growth);
        // What is smaller or fewer afterwards than before is never refused: that is how room is made.
        if grown.files > limits.max_files && growth.files > 0 {
            return Err(WorkspaceError::TooManyFiles { path: shown, limit: limits.max_files });
        }
        if grown.bytes > limits.max_total_bytes && growth.after > growth.before {
            return Err(WorkspaceError::TooManyBytes { path: shown, limit: limits.max_total_bytes });
        }
        Ok(grown)
    }
}

impl Usage {
    fn plus(self, growth: Growth) -> Self {
        Self {
            files: self.files.saturating_add(growth.files),
            bytes: self.bytes.saturating_sub(growth.before).saturating_add(growth.after),
        }
    }
}

/// Adds to the end of a file; if that fails, the file is as it was, as far as the system lets it.
pub(super) fn add(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    let added = file.write_all(bytes);
    if added.is_err() {
        drop(file.set_len(before));
    }
    added
}

pub(super) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
