//! The records of the durable plane (contract durable-tasks.md, sections 1, 2 and 8). Data only: what may
//! happen to them is in [`crate::rules`], where they are kept in [`crate::store`].

mod cron;
mod event;
#[cfg(feature = "agents")]
mod exact;
mod id;
mod invalid;
mod occurrence;
mod pairs;
mod payload;
mod reading;
mod run;
mod schedule;
mod task;
mod time;

pub use cron::{Cron, CronError, Often};
pub use event::{Event, EventKind, NewEvent, Subject};
#[cfg(feature = "agents")]
pub(crate) use exact::value_of;
pub(crate) use id::RESERVED;
pub use id::{AgentId, AttemptId, InstanceId, RunId, TaskId};
pub use invalid::{Invalid, Problem};
pub use occurrence::{Occurrence, OccurrenceOutcome, SkipReason};
pub(crate) use pairs::{WHOLE_CHARACTERS, has_half_a_pair};
pub use payload::{PREVIEW_CHARACTERS, Payload, RunResult};
#[cfg(feature = "http")]
pub(crate) use reading::Reading;
pub(crate) use reading::read;
pub use run::{
    Approval, ApprovalAnswer, Attempt, AttemptStatus, CancelIntent, CancelMode, ErrorClass, Idempotency,
    Lane, Lease, Limits, Place, Progress, Run, RunError, RunSpec, RunStatus, Token, Trigger, WaitReason,
    Waiting,
};
pub use schedule::{DstFold, DstGap, MisfirePolicy, Schedule, SchedulePlace, ScheduleState, Timing};
pub use task::{
    BackoffKind, Metadata, OverlapPolicy, RetryPolicy, SessionPolicy, Task, TaskPatch, TaskSpec,
    WorkspacePolicy,
};
pub use time::{Seconds, Timestamp};
