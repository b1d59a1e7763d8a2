//! What attempts came to, on its way to the store. Nothing leaves before the store has taken or refused it
//! for good: an outage costs waiting, not work (contract, section 12, 7; field G11).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::live::LiveRun;
use crate::model::{Progress, Token};
use crate::rules::Outcome;
use crate::store::RunWrite;

/// Something to be stored of a run.
pub(crate) struct Item {
    pub(crate) live: Arc<LiveRun>,
    /// The token it is stored under: another one after the run was reinstated.
    pub(crate) token: Token,
    pub(crate) what: What,
    /// The write as it was last tried. Tried again as it is after an answer was lost, so that it is made once.
    pub(crate) write: Option<RunWrite>,
    /// The nonce with which the run was asked back. Asked again with it after an answer was lost, so that it is known
    /// whose the run is.
    pub(crate) asked_back: Option<u64>,
}

/// What is to be stored.
#[derive(Clone)]
pub(crate) enum What {
    Progress {
        progress: Progress,
        coalesced: u64,
    },
    /// With the number that spreads a retry's delay.
    Ended(Outcome, u64),
}

/// What is to be stored, in order.
#[derive(Default)]
pub(crate) struct Outbox {
    queue: Mutex<VecDeque<Item>>,
    /// How many are neither stored nor refused for good.
    unstored: AtomicUsize,
    filled: Notify,
    /// What is being stored. Who holds the lock stores; what it does not finish, the next one does.
    pub(crate) in_flight: tokio::sync::Mutex<Vec<Item>>,
}

impl Outbox {
    pub(crate) fn push(&self, live: Arc<LiveRun>, what: What) {
        let token = live.token;
        self.unstored.fetch_add(1, Ordering::SeqCst);
        self.queue.lock().push_back(Item { live, token, what, write: None, asked_back: None });
        self.filled.notify_one();
    }

    /// Moves up to so many into `batch`.
    pub(crate) fn take(&self, batch: &mut Vec<Item>, most: usize) {
        let mut queue = self.queue.lock();
        let many = queue.len().min(most.saturating_sub(batch.len()));
        batch.extend(queue.drain(..many));
    }

    /// So many of what was taken were stored, or refused for good.
    pub(crate) fn settled(&self, many: usize) {
        self.unstored.fetch_sub(many, Ordering::SeqCst);
    }

    /// How many are neither stored nor refused for good.
    pub(crate) fn len(&self) -> usize {
        self.unstored.load(Ordering::SeqCst)
    }

    /// What waits is to be looked at again: who was to store it has not.
    pub(crate) fn again(&self) {
        self.filled.notify_one();
    }

    /// Waits until something may have come.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
