//! Instants that a schedule named, and what became of each.

use serde::{Deserialize, Serialize};

use super::{InstanceId, RunId, TaskId, Timestamp};

/// One instant a schedule named. Unique by task and due time in a store, whoever asks (T30); never silently
/// absent (T31).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// The task.
    pub task_id: TaskId,
    /// The instant.
    pub due_at: Timestamp,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: OccurrenceOutcome,
    /// How long after its due time that was decided, in milliseconds.
    pub late_by_ms: u64,
    /// When that was decided, by the store's clock.
    pub recorded_at: Timestamp,
    /// Who decided (field S7).
    pub recorded_by: InstanceId,
    /// How many occurrences this record stands for: more than 1 only when too many were missed to record
    /// each. They end at `due_at`.
    pub count: u64,
}

/// What became of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum OccurrenceOutcome {
    /// It has a run of its own.
    Ran {
        /// The run.
        run_id: RunId,
    },
    /// Another run stands for it.
    Coalesced {
        /// That run.
        into: RunId,
    },
    /// It has none.
    Skipped {
        /// Why.
        reason: SkipReason,
    },
}

/// Why an occurrence has no run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Missed, and the policy is not to run what was missed.
    Missed,
    /// Older than the catch-up window.
    PastWindow,
    /// More were missed than catching up may run.
    PastLimit,
    /// The task was paused.
    Paused,
    /// A run of the task was active, and the policy is to skip.
    Overlap {
        /// That run.
        blocked_by: RunId,
    },
}
