//! The pauses of a service while the store does not answer.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);

/// Pauses that grow up to a longest one.
pub(super) struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    pub(super) const fn up_to(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// The pause after another failure.
    pub(super) fn after_failure(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// The store has answered.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }
}
