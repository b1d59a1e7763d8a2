//! What goes wrong below, told in the store's words.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::store::pager::{InvalidPage, Unreadable};
use crate::store::{RefusedKind, StoreError};

/// Something below failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database library says so.
    Sql(rusqlite::Error),
    /// A record cannot be read.
    Unreadable(String),
    /// What was asked makes no sense.
    Invalid(String),
}

/// What a step below answers.
pub(super) type Step<T> = Result<T, Fault>;

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<InvalidPage> for Fault {
    fn from(InvalidPage(why): InvalidPage) -> Self {
        Self::Invalid(why)
    }
}

impl Unreadable for Fault {
    fn unreadable(self) -> Result<String, Self> {
        if let Self::Unreadable(why) = self { Ok(why) } else { Err(self) }
    }
}

impl Fault {
    /// Whether the surroundings are at fault and not what was asked: trying the parts alone cannot help.
    pub(super) fn is_of_the_surroundings(&self) -> bool {
        let kind = self.kind();
        matches!(kind, RefusedKind::Unavailable | RefusedKind::Full | RefusedKind::ReadOnly)
    }

    /// Whether the system may have refused this user a file. The database library does not tell that apart from a disk
    /// that fails, nor the file from its folder.
    pub(super) fn may_be_denied(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        let code = error.sqlite_error_code();
        matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly))
    }

    /// Whether a commit that failed like this has certainly left nothing behind. Anything else may have
    /// written its last frame before it failed, and would be found after a crash.
    pub(super) fn leaves_nothing(&self) -> bool {
        let code = match self {
            Self::Sql(error) => error.sqlite_error_code(),
            Self::Unreadable(_) | Self::Invalid(_) => None,
        };
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull | ErrorCode::ReadOnly))
    }

    fn kind(&self) -> RefusedKind {
        let error = match self {
            Self::Sql(error) => error,
            Self::Unreadable(_) => return RefusedKind::Corrupt,
            Self::Invalid(_) => return RefusedKind::Invalid,
        };
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => RefusedKind::Unavailable,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => RefusedKind::ReadOnly,
            Some(ErrorCode::DiskFull) => RefusedKind::Full,
            Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
                RefusedKind::Unavailable
            }
            Some(ErrorCode::TooBig) => RefusedKind::Invalid,
            _ => RefusedKind::Corrupt,
        }
    }

    /// The error of a call that did not happen: what, where, what to do.
    pub(super) fn refused(&self, path: &Path) -> StoreError {
        let kind = self.kind();
        if let Self::Invalid(text) = self {
            // The caller is at fault and not the file: where that lies is none of the caller's business.
            return StoreError::refused(kind, text.clone());
        }
        let advice = match kind {
            RefusedKind::Unavailable => "another program may hold it, or its disk does not answer; try again",
            RefusedKind::ReadOnly => {
                "make the file, its folder and the files beside it writable for this user"
            }
            RefusedKind::Full => "free space on its disk, or raise the limit of its size, then try again",
            RefusedKind::Invalid => "correct what was asked",
            _ => "put back a copy that can be read, or move the file away to start with an empty one",
        };
        StoreError::refused(kind, format!("\"{}\": {self}; {advice}", path.display()))
    }

    /// The error of a commit whose outcome is not known.
    pub(super) fn unknown(&self, path: &Path) -> StoreError {
        StoreError::unknown(format!("\"{}\": {self}", path.display()))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(error) => error.fmt(f),
            Self::Unreadable(text) | Self::Invalid(text) => f.write_str(text),
        }
    }
}
