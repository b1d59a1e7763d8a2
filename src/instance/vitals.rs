//! How the store answers, for who asks after the health of this host.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::store::StoreError;

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

/// Fed by every call of the services.
#[derive(Default)]
pub(crate) struct Vitals(Mutex<Option<(Instant, StoreError)>>);

/// After how long a call of a service counts as failed: the store hangs, and others must go on (G10).
const CALL_LIMIT: Duration = Duration::from_secs(10);

impl Vitals {
    /// Waits for a call, within its limit, and notes how it went.
    pub(crate) async fn watch<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = || StoreError::unknown(format!("no answer within {CALL_LIMIT:?}"));
        let answer = tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_| Err(late()));
        self.note(&answer);
        answer
    }

    fn note<T>(&self, answer: &Result<T, StoreError>) {
        let mut failing = self.0.lock();
        match answer {
            Ok(_) => *failing = None,
            Err(error) => {
                let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                *failing = Some((since, error.clone()));
            }
        }
    }

    pub(crate) fn store(&self) -> StoreHealth {
        match &*self.0.lock() {
            None => StoreHealth::Answering,
            Some((since, error)) => {
                StoreHealth::Failing { for_ms: super::ms(since.elapsed()), error: error.to_string() }
            }
        }
    }
}
