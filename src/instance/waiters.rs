//! Callers that wait for a run to settle: each is given the run when it does so here. What settles elsewhere they find
//! out by asking the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::model::{Run, RunId};

#[derive(Default)]
pub(crate) struct Waiters {
    all: Arc<Mutex<HashMap<RunId, Vec<Waits>>>>,
    next: AtomicU64,
}

struct Waits {
    id: u64,
    to: oneshot::Sender<Option<Run>>,
}

/// One caller's wait, for the first time that the run settles after it began.
pub(crate) struct Waiter {
    all: Arc<Mutex<HashMap<RunId, Vec<Waits>>>>,
    run_id: RunId,
    id: u64,
    /// Until it was told.
    told: Option<oneshot::Receiver<Option<Run>>>,
}

impl Waiters {
    pub(crate) fn wait_for(&self, run_id: &RunId) -> Waiter {
        let (to, told) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.all.lock().entry(run_id.clone()).or_default().push(Waits { id, to });
        Waiter { all: Arc::clone(&self.all), run_id: run_id.clone(), id, told: Some(told) }
    }

    pub(crate) fn any_for(&self, run_id: &RunId) -> bool {
        self.all.lock().contains_key(run_id)
    }

    /// A run has settled, as it is now if that is known.
    pub(crate) fn settled(&self, run_id: &RunId, run: Option<&Run>) {
        let waiting = self.all.lock().remove(run_id).unwrap_or_default();
        for Waits { to, .. } in waiting {
            // Who waited has given up: fine.
            let _ = to.send(run.cloned());
        }
    }
}

impl Waiter {
    /// Completes when the run settles here, once; none if it has to be looked at.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn settled(&mut self) -> Option<Run> {
        let Some(told) = &mut self.told else { return std::future::pending().await };
        let run = told.await.unwrap_or_default();
        self.told = None;
        run
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(waiting) = all.get_mut(&self.run_id) {
            waiting.retain(|waits| waits.id != self.id);
            if waiting.is_empty() {
                all.remove(&self.run_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> RunId {
        RunId::generate()
    }

    #[tokio::test]
    async fn who_waits_is_told_once_and_whoever_comes_later_hears_nothing_of_it() {
        let (waiters, run_id) = (Waiters::default(), name());
        let (mut one, mut other) = (waiters.wait_for(&run_id), waiters.wait_for(&run_id));
        waiters.settled(&run_id, None);
        assert_eq!(one.settled().await, None);
        assert_eq!(other.settled().await, None);
        assert!(futures_util::poll!(std::pin::pin!(one.settled())).is_pending(), "it was told already");
        let mut later = waiters.wait_for(&run_id);
        assert!(futures_util::poll!(std::pin::pin!(later.settled())).is_pending());
    }

    #[test]
    fn who_has_gone_leaves_nothing_behind() {
        let (waiters, run_id) = (Waiters::default(), name());
        let (one, other) = (waiters.wait_for(&run_id), waiters.wait_for(&run_id));
        assert!(waiters.any_for(&run_id) && !waiters.any_for(&name()));
        drop(one);
        assert!(waiters.any_for(&run_id));
        drop(other);
        assert!(!waiters.any_for(&run_id));
    }
}
