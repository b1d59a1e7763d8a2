//! When a host may take owners for gone whose leases lapsed.
//!
//! After an outage of the store no lease was renewed, and after a jump of its clock all look expired, though their
//! owners live. They have a grace to renew before anybody judges them (contract ownership.md, L8 and L23).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::Timestamp;

/// What a host has seen of its store, as far as verdicts depend on it.
#[derive(Default)]
pub(crate) struct Verdicts {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The last answer: when it came, and what time it was by the store's clock.
    last: Option<(Instant, Timestamp)>,
    /// Since when it has not answered.
    away: Option<Instant>,
    /// Nobody is taken for gone before that.
    not_before: Option<Instant>,
}

impl Verdicts {
    /// The store did not answer who asked it then.
    pub(crate) fn failed(&self, asked: Instant) {
        self.seen.lock().away.get_or_insert(asked);
    }

    /// It answered. An outage or a jump that is shorter than the grace lets no lease lapse that is renewed.
    pub(super) fn answered(&self, now: Timestamp, grace: Duration) {
        let here = Instant::now();
        let mut seen = self.seen.lock();
        let was_away = seen.away.take().is_some_and(|since| here - since >= grace);
        let jumped = seen.last.is_some_and(|(at, then)| now.since(then) >= (here - at).saturating_add(grace));
        if was_away || jumped {
            // Nothing lapses under a grace past the end of time.
            seen.not_before = here.checked_add(grace);
        }
        seen.last = Some((here, now));
    }

    /// How long to wait before anybody is taken for gone, if at all.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let not_before = self.seen.lock().not_before?;
        Some(not_before.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }
}
