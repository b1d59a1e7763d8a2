//! The pauses of a service while the store does not answer.

use std::time::Duration;

use super::outage::Outage;
use crate::store::StoreError;

const FIRST: Duration = Duration::from_millis(20);

/// Pauses that grow up to a longest one. Through them a service is part of the [`Outage`].
pub(super) struct Pause<'a> {
    outage: &'a Outage,
    /// What does not happen while the store fails.
    meanwhile: &'static str,
    next: Duration,
    longest: Duration,
    failing: bool,
}

impl<'a> Pause<'a> {
    pub(super) const fn up_to(longest: Duration, outage: &'a Outage, meanwhile: &'static str) -> Self {
        Self { outage, meanwhile, next: FIRST, longest, failing: false }
    }

    /// The pause after another failure, which is told as one of the outage.
    pub(super) fn after_failure(&mut self, error: &StoreError) -> Duration {
        self.failing = true;
        self.outage.failed(self.meanwhile, error);
        self.longer()
    }

    /// The next pause.
    pub(super) fn longer(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// The store has answered.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
        self.failing = false;
        self.outage.answered(self.meanwhile);
    }

    /// It is not asked any more, as when these pauses are dropped.
    pub(super) fn give_up(&mut self) {
        if std::mem::take(&mut self.failing) {
            self.outage.left(self.meanwhile);
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
