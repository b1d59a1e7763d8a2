//! The one place that reads the wall clock. Everything else is given a [`Clock`], or asks the store.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::model::Timestamp;

/// Tells what time it is. A store judges leases and due times by its own clock; this is the clock of stores
/// that live in this OS process.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now, in milliseconds since 1970.
    fn now(&self) -> Timestamp;
}

/// The wall clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one home of the wall clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that starts at a given instant and follows tokio's: on a paused runtime, `tokio::time::advance`
/// moves schedules, leases, retries, timeouts and limits together.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    base: Timestamp,
    started: Instant,
}

impl RuntimeClock {
    /// A clock that shows `base` now.
    #[must_use]
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, started: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        self.base.plus(self.started.elapsed())
    }
}

/// A clock that stands still until it is set: for tests that say what time it is.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.ms()))
    }

    /// Sets it, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.ms(), Ordering::SeqCst);
    }

    /// Sets it forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}
