//! How the store answers, for who asks after the health of this host.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::store::{RefusedKind, StoreError};

/// How this host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// How its store answers.
    pub store: StoreHealth,
    /// Whether it starts nothing new.
    pub draining: bool,
    /// Attempts that execute here.
    pub executing: usize,
    /// Outcomes that wait for the store.
    pub unstored: usize,
}

/// How a store answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StoreHealth {
    /// It answered when it was last asked.
    Answering,
    /// It did not.
    Failing {
        /// For how long, in milliseconds.
        for_ms: u64,
        /// What it said last.
        error: String,
    },
}

/// Fed by every call of the services, and by every write.
#[derive(Default)]
pub(crate) struct Vitals {
    reads: Mutex<Option<Failing>>,
    writes: Mutex<Option<Failing>>,
}

struct Failing {
    since: Instant,
    last: Instant,
    error: StoreError,
}

/// How long a failed write tells of the store when nothing was written since: an idle host writes nothing, and a
/// host that is taken out of service for a failed write would never be asked to write again.
const WRITE_TELLS: Duration = Duration::from_secs(15);

/// After how long a call of a service counts as failed: the store hangs, and others must go on (G10).
const CALL_LIMIT: Duration = Duration::from_secs(10);

impl Vitals {
    /// Waits for a call, within its limit, and notes how it went.
    pub(crate) async fn watch<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = in_time(call).await;
        note(&self.reads, &answer);
        answer
    }

    /// The same for a call that writes: a store may answer looks, and yet take nothing.
    pub(crate) async fn watch_write<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = in_time(call).await;
        // A call that was wrong in itself tells nothing of the store.
        if !matches!(&answer, Err(StoreError::Refused { kind: RefusedKind::Invalid, .. })) {
            note(&self.writes, &answer);
        }
        answer
    }

    pub(crate) fn store(&self) -> StoreHealth {
        let writes = self.writes.lock();
        let write = writes.as_ref().filter(|failing| failing.last.elapsed() < WRITE_TELLS);
        let reads = self.reads.lock();
        match reads.as_ref().or(write) {
            None => StoreHealth::Answering,
            Some(Failing { since, error, .. }) => {
                StoreHealth::Failing { for_ms: super::ms(since.elapsed()), error: error.to_string() }
            }
        }
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = || StoreError::unknown(format!("no answer within {CALL_LIMIT:?}"));
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_| Err(late()))
}

fn note<T>(failing: &Mutex<Option<Failing>>, answer: &Result<T, StoreError>) {
    let mut failing = failing.lock();
    let last = Instant::now();
    *failing = match answer {
        Ok(_) => None,
        Err(error) => {
            let since = failing.as_ref().map_or(last, |failing| failing.since);
            Some(Failing { since, last, error: error.clone() })
        }
    };
}
