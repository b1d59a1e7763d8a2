//! The flat form of a task that users write and stores keep: unknown fields are refused, and every problem
//! is told at once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    AgentId, Metadata, OverlapPolicy, RetryPolicy, Schedule, Seconds, SessionPolicy, TaskId, TaskSpec,
    Timestamp, WorkspacePolicy,
};
use crate::model::{DstFold, DstGap, Invalid, MisfirePolicy, Timing};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFields {
    task_id: TaskId,
    agent_id: AgentId,
    query: Arc<str>,
    #[serde(default)]
    schedule: ScheduleFields,
    #[serde(default = "yes")]
    enabled: bool,
    timeout_seconds: Option<Seconds>,
    deadline_seconds: Option<Seconds>,
    #[serde(default)]
    retry_policy: RetryPolicy,
    #[serde(default)]
    overlap_policy: OverlapPolicy,
    #[serde(default)]
    session_policy: SessionPolicy,
    #[serde(default)]
    workspace_policy: WorkspacePolicy,
    #[serde(default)]
    priority: i32,
    concurrency_key: Option<Arc<str>>,
    concurrency_limit: Option<u32>,
    metadata: Option<Box<RawValue>>,
}

fn yes() -> bool {
    true
}

/// The flat form of a schedule.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleFields {
    #[serde(default, rename = "type")]
    kind: Kind,
    seconds: Option<Seconds>,
    expression: Option<String>,
    run_at: Option<Timestamp>,
    timezone: Option<String>,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    jitter_seconds: Option<Seconds>,
    #[serde(default)]
    misfire_policy: MisfirePolicy,
    misfire_grace_seconds: Option<Seconds>,
    catch_up_limit: Option<u32>,
    catch_up_window_seconds: Option<Seconds>,
    catch_up_spread_seconds: Option<Seconds>,
    #[serde(default)]
    dst_gap: DstGap,
    #[serde(default)]
    dst_fold: DstFold,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Manual,
    Interval,
    Cron,
    Once,
}

impl TryFrom<TaskFields> for TaskSpec {
    type Error = Invalid;

    fn try_from(fields: TaskFields) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: fields.task_id,
            agent_id: fields.agent_id,
            query: fields.query,
            schedule: fields.schedule.try_into()?,
            enabled: fields.enabled,
            timeout: fields.timeout_seconds,
            deadline: fields.deadline_seconds,
            retry_policy: fields.retry_policy,
            overlap_policy: fields.overlap_policy,
            session_policy: fields.session_policy,
            workspace_policy: fields.workspace_policy,
            priority: fields.priority,
            concurrency_key: fields.concurrency_key,
            concurrency_limit: fields.concurrency_limit.unwrap_or(1),
            metadata: fields.metadata.map_or_else(Metadata::default, Metadata::new),
        })
    }
}

impl From<TaskSpec> for TaskFields {
    fn from(spec: TaskSpec) -> Self {
        Self {
            task_id: spec.task_id,
            agent_id: spec.agent_id,
            query: spec.query,
            schedule: spec.schedule.into(),
            enabled: spec.enabled,
            timeout_seconds: spec.timeout,
            deadline_seconds: spec.deadline,
            retry_policy: spec.retry_policy,
            overlap_policy: spec.overlap_policy,
            session_policy: spec.session_policy,
            workspace_policy: spec.workspace_policy,
            priority: spec.priority,
            concurrency_key: spec.concurrency_key,
            concurrency_limit: Some(spec.concurrency_limit),
            metadata: RawValue::from_string(spec.metadata.as_json().to_owned()).ok(),
        }
    }
}

impl TryFrom<ScheduleFields> for Schedule {
    type Error = Invalid;

    fn try_from(fields: ScheduleFields) -> Result<Self, Invalid> {
        let missing = |field: &str, expected: &str| Invalid::one(format!("schedule.{field}"), expected);
        let timing = match fields.kind {
            Kind::Manual => Timing::Manual,
            Kind::Interval => Timing::Interval {
                every: fields.seconds.ok_or_else(|| missing("seconds", "a number above 0"))?,
            },
            Kind::Cron => Timing::Cron {
                expression: fields.expression.ok_or_else(|| missing("expression", "a cron expression"))?,
            },
            Kind::Once => {
                Timing::Once { run_at: fields.run_at.ok_or_else(|| missing("run_at", "an instant"))? }
            }
        };
        Ok(Self {
            timing,
            timezone: fields.timezone.unwrap_or_else(|| "UTC".to_owned()),
            start_at: fields.start_at,
            end_at: fields.end_at,
            jitter: fields.jitter_seconds.unwrap_or_default(),
            misfire_policy: fields.misfire_policy,
            misfire_grace: fields.misfire_grace_seconds.unwrap_or(Seconds::new(60)),
            catch_up_limit: fields.catch_up_limit.unwrap_or(25),
            catch_up_window: fields.catch_up_window_seconds,
            catch_up_spread: fields.catch_up_spread_seconds,
            dst_gap: fields.dst_gap,
            dst_fold: fields.dst_fold,
        })
    }
}

impl From<Schedule> for ScheduleFields {
    fn from(schedule: Schedule) -> Self {
        let mut fields = Self {
            timezone: Some(schedule.timezone),
            start_at: schedule.start_at,
            end_at: schedule.end_at,
            jitter_seconds: Some(schedule.jitter),
            misfire_policy: schedule.misfire_policy,
            misfire_grace_seconds: Some(schedule.misfire_grace),
            catch_up_limit: Some(schedule.catch_up_limit),
            catch_up_window_seconds: schedule.catch_up_window,
            catch_up_spread_seconds: schedule.catch_up_spread,
            dst_gap: schedule.dst_gap,
            dst_fold: schedule.dst_fold,
            ..Self::default()
        };
        match schedule.timing {
            Timing::Manual => {}
            Timing::Interval { every } => {
                fields.kind = Kind::Interval;
                fields.seconds = Some(every);
            }
            Timing::Cron { expression } => {
                fields.kind = Kind::Cron;
                fields.expression = Some(expression);
            }
            Timing::Once { run_at } => {
                fields.kind = Kind::Once;
                fields.run_at = Some(run_at);
            }
        }
        fields
    }
}
