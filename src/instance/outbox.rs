//! What attempts came to, on its way to the store. Nothing leaves before the store has taken or refused it
//! for good: an outage costs waiting, not work (contract, section 12, 7; field G11).

use std::collections::VecDeque;
use std::sync::Arc;

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
    filled: Notify,
    /// What is being stored. Who holds the lock stores; what it does not finish, the next one does.
    pub(crate) in_flight: tokio::sync::Mutex<Vec<Item>>,
}

impl Outbox {
    pub(crate) fn push(&self, live: Arc<LiveRun>, what: What) {
        let token = live.token;
        self.queue.lock().push_back(Item { live, token, what, write: None });
        self.filled.notify_one();
    }

    /// Moves up to so many into `batch`.
    pub(crate) fn take(&self, batch: &mut Vec<Item>, most: usize) {
        let mut queue = self.queue.lock();
        let many = queue.len().min(most.saturating_sub(batch.len()));
        batch.extend(queue.drain(..many));
    }

    pub(crate) fn len(&self) -> usize {
        let in_flight = self.in_flight.try_lock().map_or(1, |batch| batch.len());
        self.queue.lock().len() + in_flight
    }

    /// Waits until something may have come.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
