//! Callers that wait for a run to settle, woken when it does so here. What settles elsewhere they find out by
//! asking the store.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::RunId;

#[derive(Default)]
pub(crate) struct Waiters(Arc<Mutex<HashMap<RunId, Entry>>>);

struct Entry {
    settled: Arc<Notify>,
    waiting: usize,
}

/// One caller's wait. Gone with it.
pub(crate) struct Waiter {
    all: Arc<Mutex<HashMap<RunId, Entry>>>,
    run_id: RunId,
    settled: Arc<Notify>,
}

impl Waiters {
    pub(crate) fn wait_for(&self, run_id: &RunId) -> Waiter {
        let mut all = self.0.lock();
        let fresh = || Entry { settled: Arc::default(), waiting: 0 };
        let entry = all.entry(run_id.clone()).or_insert_with(fresh);
        entry.waiting += 1;
        let settled = Arc::clone(&entry.settled);
        Waiter { all: Arc::clone(&self.0), run_id: run_id.clone(), settled }
    }

    pub(crate) fn settled(&self, run_id: &RunId) {
        if let Some(entry) = self.0.lock().get(run_id) {
            entry.settled.notify_waiters();
        }
    }
}

impl Waiter {
    /// A future that completes when the run settles here after this call.
    pub(crate) fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(entry) = all.get_mut(&self.run_id) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                all.remove(&self.run_id);
            }
        }
    }
}
