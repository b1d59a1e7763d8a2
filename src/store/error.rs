//! How a call to a store fails: it did not happen, or it may have.

use std::fmt;

/// A call that failed. Never evidence about a run: only an answer is (design.md, section 8).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It did not happen.
    #[error("the store refused: {kind}: {message}")]
    Refused {
        /// Why, for who has to decide what to do.
        kind: RefusedKind,
        /// Why, for people.
        message: String,
    },
    /// It may have happened or not. Reads never answer this.
    #[error("the store did not answer; the change may have been made or not: {message}")]
    Unknown {
        /// What is known, for people.
        message: String,
    },
}

/// Why a store refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedKind {
    /// It cannot be reached or is busy; try again.
    Unavailable,
    /// It was closed by this program.
    Closed,
    /// It cannot be written.
    ReadOnly,
    /// There is no room left.
    Full,
    /// Its data cannot be read.
    Corrupt,
    /// It was written by a newer version.
    NewerSchema,
    /// What was asked makes no sense: a cursor of another listing, a value over a limit.
    Invalid,
    /// It cannot do this.
    NotSupported,
}

impl StoreError {
    /// A call that did not happen.
    pub fn refused(kind: RefusedKind, message: impl Into<String>) -> Self {
        Self::Refused { kind, message: message.into() }
    }

    /// A call that may have happened.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::Unknown { message: message.into() }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::Refused { kind, .. } => matches!(kind, RefusedKind::Unavailable | RefusedKind::Full),
        }
    }
}

impl fmt::Display for RefusedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Closed => "closed",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::NewerSchema => "written by a newer version",
            Self::Invalid => "invalid",
            Self::NotSupported => "not supported",
        })
    }
}
