//! An attempt as it is shown.

use serde::Serialize;

use super::ErrorView;
use crate::model::{Attempt, AttemptId, AttemptStatus, InstanceId, RunId, Seconds, Timestamp};

/// An attempt as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptView {
    /// Its name.
    pub attempt_id: AttemptId,
    /// The run.
    pub run_id: RunId,
    /// Its number, from 1.
    pub attempt: u32,
    /// How it stands.
    pub status: AttemptStatus,
    /// The instance that tried.
    pub instance: InstanceId,
    /// Under which fence.
    pub fence: u64,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How long it took.
    pub duration_seconds: Option<Seconds>,
    /// Why it did not complete.
    pub error: Option<ErrorView>,
}

impl AttemptView {
    /// An attempt of this run.
    #[must_use]
    pub fn new(run_id: &RunId, attempt: &Attempt) -> Self {
        let took = |finished: Timestamp| finished.since(attempt.started_at).as_millis();
        let duration = attempt.finished_at.map(|finished| u64::try_from(took(finished)).unwrap_or(u64::MAX));
        Self {
            attempt_id: attempt.attempt_id.clone(),
            run_id: run_id.clone(),
            attempt: attempt.number,
            status: attempt.status,
            instance: attempt.instance,
            fence: attempt.fence,
            started_at: attempt.started_at,
            finished_at: attempt.finished_at,
            duration_seconds: duration.map(Seconds::from_ms),
            error: attempt.error.as_ref().map(ErrorView::from),
        }
    }
}
