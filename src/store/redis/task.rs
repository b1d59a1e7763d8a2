//! Tasks, schedules and occurrences as records, and back.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bytes::{Get, Put};
use super::fault::{Step, invalid, unreadable};
use crate::model::{SchedulePlace, ScheduleState, Task, TaskId, TaskSpec, Timestamp};

/// The revision, whether it is dispatched and who executes it in front, for the scripts.
pub(super) fn task(task: &Task) -> Step<Vec<u8>> {
    let mut put = Put::default();
    put.u64(task.revision).u8(u8::from(task.spec.enabled)).id(task.spec.agent_id.as_str());
    put.i64(task.created_at.ms()).i64(task.updated_at.ms()).short(task.last_event);
    put.raw(&json(&task.spec)?);
    Ok(put.0)
}

pub(super) fn read_task(bytes: &[u8]) -> Step<Task> {
    let mut get = Get(bytes);
    let (revision, _, _) = (get.u64()?, get.u8()?, get.id()?);
    let (created_at, updated_at) = (Timestamp::from_ms(get.i64()?), Timestamp::from_ms(get.i64()?));
    let last_event = get.short()?;
    let spec: TaskSpec = parsed("the task", get.0)?;
    Ok(Task { spec, created_at, updated_at, revision, last_event })
}

#[derive(Serialize, Deserialize)]
struct Rest {
    last_due: Option<Timestamp>,
    place: SchedulePlace,
}

/// The version and when it fires in front, for the scripts.
pub(super) fn schedule(state: &ScheduleState) -> Step<Vec<u8>> {
    let fires = state.fire_at();
    let mut put = Put::default();
    put.u64(state.version).u8(u8::from(fires.is_some())).i64(fires.map_or(0, Timestamp::ms));
    put.raw(&json(&Rest { last_due: state.last_due, place: state.place.clone() })?);
    Ok(put.0)
}

pub(super) fn read_schedule(task_id: TaskId, bytes: &[u8]) -> Step<ScheduleState> {
    let mut get = Get(bytes);
    let (version, _, _) = (get.u64()?, get.u8()?, get.i64()?);
    let Rest { last_due, place } = parsed("the schedule", get.0)?;
    Ok(ScheduleState { task_id, version, last_due, place })
}

/// The schedule of a task that was made without one.
pub(super) fn idle(task_id: &TaskId) -> Step<Vec<u8>> {
    let place = SchedulePlace::Idle;
    schedule(&ScheduleState { task_id: task_id.clone(), version: 0, last_due: None, place })
}

pub(super) fn json<T: Serialize>(record: &T) -> Step<Vec<u8>> {
    serde_json::to_vec(record).map_err(|error| invalid(format!("a record that cannot be kept: {error}")))
}

pub(super) fn parsed<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Step<T> {
    serde_json::from_slice(bytes).map_err(|error| unreadable(format!("{what}: {error}")))
}
