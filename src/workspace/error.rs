//! How work with the files of a run fails: named by what the caller does next.

use std::fmt;
use std::io;

use crate::model::RunId;

/// Why a file of a run could not be read or written. Nothing was changed, unless said otherwise.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The path cannot name a file of a run.
    #[error("{path:?} is no path within a workspace: expected {problem}")]
    Path {
        /// The path; its beginning if it is long.
        path: String,
        /// What was expected.
        problem: PathProblem,
    },
    /// The path leads out of the folder of the run, by a link.
    #[error("{path:?} leads out of its workspace; only what lies within can be reached")]
    Outside {
        /// The path.
        path: String,
    },
    /// There is no such file.
    #[error("{path:?} does not exist in the workspace; list it to see what does")]
    NotFound {
        /// The path.
        path: String,
    },
    /// Something else lies there.
    #[error("{path:?} cannot be used: expected {expected}")]
    Unfit {
        /// The path.
        path: String,
        /// What should lie there.
        expected: &'static str,
    },
    /// The file is written by `tenure` alone.
    #[error("{path:?} is kept by tenure and is not written by agents; choose another name")]
    Reserved {
        /// The path.
        path: String,
    },
    /// The file is larger than allowed, or would become so.
    #[error("{path:?} has {size} bytes, and {limit} are allowed; write less, or split it")]
    FileTooLarge {
        /// The path.
        path: String,
        /// Its size, or what it would be.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// There would be more files and folders than allowed.
    #[error(
        "{path:?} was not made: its workspace holds {limit} files and folders, which is the limit; remove some"
    )]
    TooManyFiles {
        /// The path.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// The files would be larger together than allowed.
    #[error(
        "{path:?} was not written: its workspace would exceed {limit} bytes, which is the limit; remove files"
    )]
    TooManyBytes {
        /// The path.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// Events are missing between those in the file and those to append. Read them from the store and append
    /// from `missing` on; nothing was appended.
    #[error(
        "the events of run \"{run_id}\" cannot be appended: number {missing} is missing; read on from there"
    )]
    Gap {
        /// The run.
        run_id: RunId,
        /// The first sequence number that is missing.
        missing: u64,
    },
    /// A record of another run was given.
    #[error("the workspace of run \"{run_id}\" keeps nothing of {}", of(found.as_ref()))]
    OtherRun {
        /// The run whose workspace this is.
        run_id: RunId,
        /// Whose record it is; none if it concerns no run.
        found: Option<RunId>,
    },
    /// The attempt that writes has lost its authority.
    #[error("{path:?} was not written: {reason}")]
    AuthorityLost {
        /// The path.
        path: String,
        /// Who refused, and why.
        reason: String,
    },
    /// There is no room left where the files are.
    #[error("{path:?} could not be {action}: no room is left ({source}); free some, or lower the retention")]
    Full {
        /// What was being done.
        action: Action,
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system does not allow it.
    #[error(
        "{path:?} could not be {action}: {source}; let this program's user write below the workspace root"
    )]
    Denied {
        /// What was being done.
        action: Action,
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system failed in another way.
    #[error("{path:?} could not be {action}: {source}")]
    Io {
        /// What was being done.
        action: Action,
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

fn of(run: Option<&RunId>) -> String {
    run.map_or_else(|| "a record that concerns no run".to_owned(), |run| format!("run \"{run}\""))
}

/// What was being done when the system failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Action {
    Opened,
    Read,
    Written,
    Listed,
    Removed,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opened => "opened",
            Self::Read => "read",
            Self::Written => "written",
            Self::Listed => "listed",
            Self::Removed => "removed",
        })
    }
}

/// What a path should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// It names nothing.
    #[error("a name, found nothing")]
    Empty,
    /// It starts at the root of the file system.
    #[error("a relative path, found an absolute one")]
    Absolute,
    /// A part of it is `..`, `.` or nothing.
    #[error("names between the slashes, found {0}")]
    NoName(NoName),
    /// It holds a character that no name may have.
    #[error("no NUL and no backslash in it")]
    Character,
    /// It, or a name in it, is too long.
    #[error("at most 1,024 bytes, and 255 in a name")]
    TooLong,
    /// It goes too deep.
    #[error("at most {0} names")]
    TooDeep(usize),
}

/// A part of a path that names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoName {
    /// `..`
    Parent,
    /// `.`
    Here,
    /// Two slashes, or one at the end.
    Nothing,
}

impl fmt::Display for NoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parent => "\"..\"",
            Self::Here => "\".\"",
            Self::Nothing => "an empty one",
        })
    }
}

impl WorkspaceError {
    /// What the system said, in our words.
    pub(super) fn of(action: Action, path: &str, source: io::Error) -> Self {
        use io::ErrorKind::{
            FileTooLarge, IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded,
            ReadOnlyFilesystem, StorageFull,
        };
        let path = shown(path);
        match source.kind() {
            // The library refuses a path that escapes with this kind, and with no number of the system.
            PermissionDenied if source.raw_os_error().is_none() => Self::Outside { path },
            PermissionDenied | ReadOnlyFilesystem => Self::Denied { action, path, source },
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full { action, path, source },
            NotFound => Self::NotFound { path },
            IsADirectory => Self::Unfit { path, expected: "a file, found a folder" },
            NotADirectory => Self::Unfit { path, expected: "folders above it that are no links" },
            _ if is_link(&source) => Self::Unfit { path, expected: "no link" },
            _ => Self::Io { action, path, source },
        }
    }

    /// The folder of all workspaces failed: it is no file of one, and what is missing is a folder above it.
    pub(super) fn of_root(path: &str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::Io { action: Action::Opened, path: shown(path), source }
            }
            _ => Self::of(Action::Opened, path, source),
        }
    }

    /// What the system said, if it said something.
    #[must_use]
    pub fn system(&self) -> Option<&io::Error> {
        match self {
            Self::Full { source, .. } | Self::Denied { source, .. } | Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The thread that was to do it has ended.
    pub(crate) fn ended(path: &str, ended: io::Error) -> Self {
        Self::of(Action::Opened, path, ended)
    }

    /// Whether waiting, or making room, can help: the same call may then succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { .. })
    }
}

/// Whether a link was met where none is followed. The kind of that error has no stable name.
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(LOOP)
}

#[cfg(target_os = "linux")]
const LOOP: i32 = 40;
#[cfg(not(target_os = "linux"))]
const LOOP: i32 = 62;

/// The beginning of a path, for people.
pub(super) fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}
