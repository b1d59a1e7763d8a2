//! How long a child may take to stop.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How long a supervisor waits for a child it told to stop before it kills it; written `"kill"`,
/// `{ time = 5000 }` or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Patience {
    /// It is killed without being told first (ED-31).
    Kill,
    /// It is told, and killed after this many milliseconds. 0 and 1 are legal (ES-15, ED-29): with 0 it is
    /// told and killed at the same instant.
    Time(u64),
    /// It is told, and waited for as long as it takes (ED-32), or until the close deadline.
    Unlimited,
}

impl Patience {
    /// The patience of a child that names none, in milliseconds (OS-13).
    pub const DEFAULT_MS: u64 = 5_000;

    /// The instant at which a child that is told to stop at `now_ms` is killed; `None` if it never is.
    ///
    /// An instant past the end of time is the end of time.
    #[must_use]
    pub const fn deadline(self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Kill => Some(now_ms),
            Self::Time(patience_ms) => Some(now_ms.saturating_add(patience_ms)),
            Self::Unlimited => None,
        }
    }

    /// The instant at which a child that is told to stop at `now_ms` is killed during a close that may last
    /// until `close_deadline_ms`: whichever of its patience and the close ends first.
    #[must_use]
    pub fn deadline_within(self, now_ms: u64, close_deadline_ms: u64) -> u64 {
        self.deadline(now_ms).map_or(close_deadline_ms, |at_ms| at_ms.min(close_deadline_ms))
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("none"),
            Self::Time(ms) => write!(f, "{ms}ms"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::Time(Self::DEFAULT_MS)
    }
}
