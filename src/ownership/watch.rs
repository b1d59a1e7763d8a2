//! Waiting for changes.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::Ownership;
use crate::store::Hint;

/// The shortest time between two looks: hints of a busy store come with every write in it.
const LISTENS_EVERY: Duration = Duration::from_millis(50);

/// Tells when something may have changed. Hints may be lost: what nobody hinted at is found by the poll.
#[derive(Debug)]
pub struct Watch {
    hints: broadcast::Receiver<Hint>,
    poll: Duration,
    not_before: Instant,
}

impl Ownership {
    /// Watches the store from now on. Take it before the look that it is to tell changes after.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch { hints: self.store.watch(), poll: self.settings.poll, not_before: Instant::now() }
    }
}

impl Watch {
    /// Completes when something may have changed, or the poll interval has passed.
    ///
    /// Cancel safety: a change that was told to a dropped future is found by the next poll.
    pub async fn changed(&mut self) {
        self.changed_until(Instant::now() + self.poll).await;
    }

    /// [`Watch::changed`], or at an instant.
    pub async fn changed_until(&mut self, deadline: Instant) {
        let until = deadline.min(Instant::now() + self.poll);
        tokio::select! {
            () = sleep_until(until) => return,
            () = hinted(&mut self.hints) => {}
        }
        sleep_until(self.not_before.min(until)).await;
        self.not_before = Instant::now() + LISTENS_EVERY;
        // What came meanwhile is seen by the look that follows.
        self.hints = self.hints.resubscribe();
    }
}

async fn hinted(hints: &mut broadcast::Receiver<Hint>) {
    match hints.recv().await {
        Ok(_) | Err(RecvError::Lagged(_)) => {}
        Err(RecvError::Closed) => std::future::pending().await,
    }
}
