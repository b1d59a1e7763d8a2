//! Knows when nothing is left to do: every task waits for time to pass, for a message or for a test.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Hears from the runtime each time it has nothing left to run, before the paused clock moves.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    reached: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Idle {
    /// The runtime is about to park. Whoever waits for this runs again, and so time stands still.
    pub(super) fn on_park(&self) {
        self.inner.reached.fetch_add(1, Ordering::AcqRel);
        let waiting = std::mem::take(&mut *self.inner.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Completes when nothing is left to run. No time passes.
    pub(super) async fn reached(&self) {
        let before = self.inner.reached.load(Ordering::Acquire);
        poll_fn(|context| {
            if self.inner.reached.load(Ordering::Acquire) != before {
                return Poll::Ready(());
            }
            self.inner.waiting.lock().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
