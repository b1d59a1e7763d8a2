//! How many restarts are too many.

use std::collections::VecDeque;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::InvalidSetting;

/// How many restarts within how long are put up with; written
/// `{ limited = { restarts = 3, period_ms = 5000 } }` or `"unlimited"`.
///
/// The default is 3 restarts in 5,000 ms (ED-04). Other crates make a limit with [`Intensity::limited`], so
/// that its period is never 0 (OS-28, ED-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Intensity {
    /// `restarts` within any `period_ms` are admitted, one more is not.
    #[non_exhaustive]
    Limited {
        /// How many restarts are admitted; with 0 nothing is ever restarted (PS-11).
        restarts: u32,
        /// How long a restart counts, in milliseconds, at least 1.
        #[serde(deserialize_with = "period")]
        period_ms: u64,
    },
    /// Every restart is admitted (PC-21).
    Unlimited,
}

impl Intensity {
    /// The restarts of the default limit.
    pub const DEFAULT_RESTARTS: u32 = 3;
    /// The period of the default limit, in milliseconds.
    pub const DEFAULT_PERIOD_MS: u64 = 5_000;

    /// A limit of `restarts` within any `period_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] naming `period_ms` if it is 0: no restart would ever count.
    pub fn limited(restarts: u32, period_ms: u64) -> Result<Self, InvalidSetting> {
        Ok(Self::Limited { restarts, period_ms: checked_period(period_ms)? })
    }
}

impl Default for Intensity {
    fn default() -> Self {
        Self::Limited { restarts: Self::DEFAULT_RESTARTS, period_ms: Self::DEFAULT_PERIOD_MS }
    }
}

fn checked_period(period_ms: u64) -> Result<u64, InvalidSetting> {
    match period_ms {
        0 => Err(InvalidSetting::new("period_ms", "expected at least 1 ms, got 0")),
        1.. => Ok(period_ms),
    }
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    checked_period(u64::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Whether one more restart is within an [`Intensity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "an exceeded limit ends the supervisor"]
pub enum Admission {
    /// It is.
    Admitted {
        /// How many more would be admitted at this instant; `None` without a limit.
        left: Option<u32>,
    },
    /// It is one more than `restarts` in `period_ms`.
    Exceeded {
        /// The limit.
        restarts: u32,
        /// The limit's period, in milliseconds.
        period_ms: u64,
    },
}

/// The restarts that still count against an [`Intensity`].
///
/// The window slides and is closed at both ends: a restart counts until it is *more than* `period_ms` old,
/// as in OTP and Elixir, where an entry as old as the period is kept. So exactly `restarts` are admitted in
/// any closed span of `period_ms`, and one more ends the supervisor (OS-41, PC-41).
///
/// It holds the newest `restarts + 1` instants at most, and none for [`Intensity::Unlimited`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartWindow {
    /// Oldest first.
    instants_ms: VecDeque<u64>,
}

impl RestartWindow {
    /// Counts a restart at `now_ms` and tells whether it is admitted.
    ///
    /// Ages are differences that stop at 0, so neither a long period nor a late instant overflows (PC-24,
    /// PC-25). A clock that went back has stood still: an instant before the last one counts as the last one.
    pub fn record(&mut self, now_ms: u64, intensity: &Intensity) -> Admission {
        match *intensity {
            Intensity::Unlimited => {
                self.instants_ms.clear();
                Admission::Admitted { left: None }
            }
            Intensity::Limited { restarts, period_ms } => {
                let now_ms = self.instants_ms.back().map_or(now_ms, |last_ms| now_ms.max(*last_ms));
                self.forget_older(now_ms, period_ms);
                self.push(now_ms, restarts);
                match restarts.checked_sub(self.counted()) {
                    Some(left) => Admission::Admitted { left: Some(left) },
                    None => Admission::Exceeded { restarts, period_ms },
                }
            }
        }
    }

    /// How many restarts it holds.
    #[must_use]
    pub fn counted(&self) -> u32 {
        u32::try_from(self.instants_ms.len()).unwrap_or(u32::MAX)
    }

    fn forget_older(&mut self, now_ms: u64, period_ms: u64) {
        while self.instants_ms.front().is_some_and(|then_ms| now_ms.saturating_sub(*then_ms) > period_ms) {
            self.instants_ms.pop_front();
        }
    }

    /// Keeps the newest `restarts` and adds one: no older instant can change an answer any more.
    fn push(&mut self, now_ms: u64, restarts: u32) {
        while self.counted() > restarts {
            self.instants_ms.pop_front();
        }
        self.instants_ms.push_back(now_ms);
    }
}
