//! Doors that hold code where a test wants it, and guards that tell when it is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Holds whoever comes to it until the test opens it. A cheap clone; works across runtimes and threads.
///
/// ```
/// # use tenure_actors::testkit::Door;
/// # async fn f() {
/// let door = Door::new();
/// let (at_the_door, open) = (async { door.wait().await; "through" }, async {
///     door.arrived().await;
///     door.open();
/// });
/// assert_eq!(futures_util::join!(at_the_door, open).0, "through");
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Door {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    open: watch::Sender<bool>,
    arrivals: watch::Sender<usize>,
}

impl Door {
    /// A closed door.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner { open: watch::Sender::new(false), arrivals: watch::Sender::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// Waits at the door until it is open; passes at once when it is.
    ///
    /// Cancel safety: the arrival counts, also when the future is dropped.
    pub async fn wait(&self) {
        self.inner.arrivals.send_modify(|arrivals| *arrivals += 1);
        // The sender is part of the door, so it is never gone while somebody waits at it.
        let _ = self.inner.open.subscribe().wait_for(|open| *open).await;
    }

    /// Lets everybody through, from now on.
    pub fn open(&self) {
        self.inner.open.send_replace(true);
    }

    /// Completes once somebody has come to the door, at once if somebody has already.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn arrived(&self) {
        let _ = self.inner.arrivals.subscribe().wait_for(|arrivals| *arrivals > 0).await;
    }

    /// How many came to the door, those that went through included.
    #[must_use]
    pub fn arrivals(&self) -> usize {
        *self.inner.arrivals.borrow()
    }
}

impl Default for Door {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts what is alive, by guards that are dropped with it: whatever holds a [`Guard`] is gone when it is.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    alive: Arc<AtomicUsize>,
}

impl Guards {
    /// One more guard.
    #[must_use = "a guard counts until it is dropped"]
    pub fn guard(&self) -> Guard {
        self.alive.fetch_add(1, Ordering::AcqRel);
        Guard { alive: Arc::clone(&self.alive) }
    }

    /// How many guards have not been dropped.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }
}

/// Counts as alive until it is dropped.
#[derive(Debug)]
pub struct Guard {
    alive: Arc<AtomicUsize>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::AcqRel);
    }
}
