//! When a host may take owners for gone whose leases lapsed.
//!
//! After an outage of the store no lease was renewed, and after a jump of its clock all look expired, though their
//! owners live. They have a grace to renew before anybody judges them (contract ownership.md, L8 and L23). A store that
//! shows what it has and takes nothing, as one whose disk is full, is away for who renews: so it is until it was seen
//! to take something.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::Timestamp;
use crate::store::{RefusedKind, StoreError};

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
    /// Whether it took nothing when it was last given something.
    full: bool,
    /// Nobody is taken for gone before that.
    not_before: Option<Instant>,
}

impl Verdicts {
    /// The store did not answer who asked it then.
    pub(crate) fn failed(&self, asked: Instant) {
        self.seen.lock().away.get_or_insert(asked);
    }

    /// It answered. An outage or a jump that is shorter than the grace lets no lease lapse that is renewed.
    pub(crate) fn answered(&self, now: Timestamp, grace: Duration) {
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

    /// It was given something, and answered this.
    pub(crate) fn wrote<T>(&self, answer: &Result<T, StoreError>, grace: Duration) {
        let mut seen = self.seen.lock();
        match answer {
            Err(StoreError::Refused { kind: RefusedKind::Full | RefusedKind::ReadOnly, .. }) => {
                seen.full = true;
            }
            Ok(_) if std::mem::take(&mut seen.full) => {
                seen.not_before = Instant::now().checked_add(grace);
            }
            _ => {}
        }
    }

    /// Whether it took nothing when it was last given something: then it is not known since when others may renew.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.seen.lock().full
    }

    /// How long to wait before anybody is taken for gone, if at all.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let not_before = self.seen.lock().not_before?;
        Some(not_before.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }
}
