//! Rules that want runs, and how far each has come. What is due when is in [`crate::rules::Plan`].

use serde::{Deserialize, Serialize};

use super::{Seconds, TaskId, Timestamp};

/// When a task wants runs (contract, section 1). Checked: a schedule that exists can be asked for its next
/// due time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "super::task::ScheduleFields", into = "super::task::ScheduleFields")]
pub struct Schedule {
    /// What names the instants.
    pub timing: Timing,
    /// The zone in which a cron expression is read. Default UTC.
    pub timezone: String,
    /// Nothing is due before.
    pub start_at: Option<Timestamp>,
    /// Nothing is due at or after.
    pub end_at: Option<Timestamp>,
    /// How much later than its due time an occurrence may fire, drawn once for each, never past the next one
    /// (T34). Default 0.
    pub jitter: Seconds,
    /// What happens to occurrences that were missed by more than the grace.
    pub misfire_policy: MisfirePolicy,
    /// How late an occurrence is still on time. Default 60 s.
    pub misfire_grace: Seconds,
    /// The most runs that catching up makes at once. Default 25.
    pub catch_up_limit: u32,
    /// Occurrences older than this are not caught up.
    pub catch_up_window: Option<Seconds>,
    /// Over how long the runs of a catch-up are spread.
    pub catch_up_spread: Option<Seconds>,
    /// What a cron expression means in an hour that does not exist.
    pub dst_gap: DstGap,
    /// What it means in an hour that is there twice.
    pub dst_fold: DstFold,
}

/// The task runs when asked to.
impl Default for Schedule {
    fn default() -> Self {
        Self {
            timing: Timing::Manual,
            timezone: "UTC".to_owned(),
            start_at: None,
            end_at: None,
            jitter: Seconds::default(),
            misfire_policy: MisfirePolicy::default(),
            misfire_grace: Seconds::new(60),
            catch_up_limit: 25,
            catch_up_window: None,
            catch_up_spread: None,
            dst_gap: DstGap::default(),
            dst_fold: DstFold::default(),
        }
    }
}

/// What names the instants of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timing {
    /// Nothing: the task runs when asked to.
    Manual,
    /// Every so often, counted from the due time before (T38).
    Interval {
        /// How often; above 0.
        every: Seconds,
    },
    /// The minutes, or seconds, that a cron expression names.
    Cron {
        /// The expression, as it was given.
        expression: String,
    },
    /// One instant; it always runs, however late (T32).
    Once {
        /// The instant.
        run_at: Timestamp,
    },
}

/// What happens to occurrences that nobody fired in time (T32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfirePolicy {
    /// The newest runs, late; the others are recorded as coalesced into it.
    #[default]
    RunOnce,
    /// None runs; each is recorded as skipped.
    SkipMissed,
    /// Each runs, up to the catch-up limit and window.
    QueueAll,
}

/// What a cron expression means in a local hour that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstGap {
    /// It is due at the first instant after the gap; not if the expression names every hour: its next is near.
    #[default]
    Shift,
    /// It is not due.
    Skip,
}

/// What a cron expression means in a local hour that is there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstFold {
    /// Several moments of an hour are named: due in both hours; else once, in the first.
    #[default]
    Auto,
    /// Due in the first.
    First,
    /// Due in both.
    Both,
}

/// How far the schedule of a task has come. Its `version` is what two schedulers race for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleState {
    /// The task.
    pub task_id: TaskId,
    /// Rises with every write of this record.
    pub version: u64,
    /// The due time of the last occurrence that has a record; the next counts from it (T38).
    pub last_due: Option<Timestamp>,
    /// Whether it goes on, and when.
    pub place: SchedulePlace,
}

/// Where a schedule stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SchedulePlace {
    /// Nothing will ever be due again: manual, over, or `once` and done.
    Idle,
    /// An occurrence comes next.
    Waiting {
        /// Its due time.
        due_at: Timestamp,
        /// When it fires: the due time and its jitter.
        fire_at: Timestamp,
    },
    /// It could not be fired; it is tried again, and others go on (T36, field S11).
    Failing {
        /// Why not.
        error: String,
        /// Since when: the due time of the first occurrence that could not be fired.
        since: Timestamp,
        /// How often it was tried.
        tries: u32,
        /// When it is tried again.
        retry_at: Timestamp,
    },
}

impl ScheduleState {
    /// When a scheduler has to look at it next.
    #[must_use]
    pub fn fire_at(&self) -> Option<Timestamp> {
        match self.place {
            SchedulePlace::Idle => None,
            SchedulePlace::Waiting { fire_at, .. } => Some(fire_at),
            SchedulePlace::Failing { retry_at, .. } => Some(retry_at),
        }
    }
}
