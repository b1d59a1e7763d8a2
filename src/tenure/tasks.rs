//! Tasks: stored, changed, paused, deleted.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use super::{Decided, Tenure};
use crate::error::Error;
use crate::model::{
    CancelMode, EventKind, Invalid, NewEvent, Occurrence, RESERVED, Run, RunStatus, ScheduleState, Subject,
    Task, TaskId, TaskPatch, TaskSpec, Timestamp,
};
use crate::rules::{self, CancelRequest, Look, Moment};
use crate::store::{Decision, Page, PageRequest, RunFilter, ScheduleWrite, TaskChange, TaskWrite};

/// How many tasks are changed at once, about.
const PLACES: usize = 64;

/// Who changes a task waits for others of this host that change it: each decides on what the one before has written,
/// and is not refused again and again. Hosts among each other decide again.
#[derive(Debug)]
pub(super) struct Turns {
    places: [Mutex<()>; PLACES],
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { places: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl Turns {
    async fn take(&self, task_id: &TaskId) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one(task_id.as_str()) % PLACES as u64;
        self.places[usize::try_from(hash).unwrap_or(0)].lock().await
    }
}

/// How many events of a task are read at once.
const EVENTS: usize = 500;

/// What deleting a task does with those of its runs that execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    /// They are asked to stop.
    #[default]
    Cancel,
    /// They go on.
    Keep,
}

/// A task, and how it does.
#[derive(Debug, Clone)]
pub struct TaskStatus {
    /// The task.
    pub task: Task,
    /// How far its schedule has come.
    pub schedule: ScheduleState,
    /// Its runs by status.
    pub counts: Vec<(RunStatus, u64)>,
    /// The newest of them.
    pub latest_run: Option<Run>,
}

impl Tenure {
    /// Stores a new task.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Store`].
    pub async fn create_task(&self, spec: TaskSpec) -> Result<Task, Error> {
        let task_id = spec.task_id.clone();
        self.put(&task_id, |current, moment| match current {
            Some(_) => Err(Error::Exists { kind: "task", id: spec.task_id.to_string() }),
            None => Ok(Some(new_task(spec.clone(), moment))),
        })
        .await
    }

    /// Stores a task, new or changed: what a program declares when it starts. Changing anything but the
    /// schedule keeps the schedule's place (T35); storing what is there already changes nothing (field S8).
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Contended`].
    pub async fn put_task(&self, spec: TaskSpec) -> Result<Task, Error> {
        self.put_task_with(&spec.task_id.clone(), |_| spec.clone()).await
    }

    /// As [`Tenure::put_task`], with what follows from the task as it stands, if it does: what others change meanwhile
    /// is not undone. `make` may be called again.
    ///
    /// # Errors
    /// As for [`Tenure::put_task`].
    pub async fn put_task_with(
        &self,
        task_id: &TaskId,
        make: impl Fn(Option<&TaskSpec>) -> TaskSpec,
    ) -> Result<Task, Error> {
        self.put(task_id, |current, moment| {
            let spec = make(current.map(|task| &task.spec));
            let spec = TaskSpec { task_id: task_id.clone(), ..spec };
            Ok(match current {
                Some(task) if task.spec == spec => None,
                Some(task) => Some(changed(task, spec, EventKind::TaskUpdated, moment)),
                None => Some(new_task(spec, moment)),
            })
        })
        .await
    }

    /// Changes some fields of a task.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when the changed task would not be one.
    pub async fn patch_task(&self, task_id: &TaskId, patch: TaskPatch) -> Result<Task, Error> {
        self.put(task_id, |current, moment| {
            let task = current.ok_or_else(|| Error::no_task(task_id))?;
            let spec = patch.apply(&task.spec)?;
            Ok((spec != task.spec).then(|| changed(task, spec, EventKind::TaskUpdated, moment)))
        })
        .await
    }

    /// Stops dispatching a task: its schedule does not fire, its queued runs are not claimed. What executes
    /// goes on.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn pause_task(&self, task_id: &TaskId) -> Result<Task, Error> {
        self.put(task_id, |current, moment| {
            let task = current.ok_or_else(|| Error::no_task(task_id))?;
            let spec = TaskSpec { enabled: false, ..task.spec.clone() };
            Ok(task.spec.enabled.then(|| changed(task, spec, EventKind::TaskPaused, moment)))
        })
        .await
    }

    /// Dispatches a task again. What its schedule missed meanwhile follows the misfire policy, and is recorded
    /// as paused where it has no run (T32).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn resume_task(&self, task_id: &TaskId) -> Result<Task, Error> {
        let _turn = self.turns.take(task_id).await;
        self.decide(&format!("task \"{task_id}\""), |moment: Moment| async move {
            let (task, state) = self.task(task_id).await?;
            if task.spec.enabled {
                return Ok(Decided::Already(task));
            }
            let spec = TaskSpec { enabled: true, ..task.spec.clone() };
            let Changed { task: next, event } = changed(&task, spec, EventKind::TaskResumed, moment);
            let mut decision = Decision::default();
            if state.fire_at().is_some_and(|at| at <= moment.now) {
                let paused_since = Some(self.paused_since(&task).await?);
                let look = Look { paused_since, ..Look::at(moment.now) };
                decision = self.instance.firing(&task, &state, look).await?;
            }
            decision.task = Some(TaskWrite {
                task_id: task_id.clone(),
                expect: Some(task.revision),
                change: TaskChange::Put(Box::new(next.clone())),
                events: vec![event],
            });
            Ok(Decided::write(decision, next))
        })
        .await
    }

    /// When a paused task was paused; when it was made, if it never ran.
    async fn paused_since(&self, task: &Task) -> Result<Timestamp, Error> {
        let (mut since, mut last) = (task.created_at, 0);
        loop {
            let subject = Subject::Task(task.spec.task_id.clone());
            let events = self.instance.store.events(subject, last, EVENTS).await?;
            let Some(newest) = events.last() else { return Ok(since) };
            last = newest.sequence;
            let paused = events.iter().rev().find(|event| event.event == EventKind::TaskPaused);
            since = paused.map_or(since, |event| event.timestamp);
        }
    }

    /// Deletes a task: its schedule ends, what is queued is cancelled, what executes is cancelled or kept.
    /// Its runs stay in the listings until they are pruned, its occurrences are remembered (T30).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Store`]: it may be paused and some of its runs cancelled; ask again.
    pub async fn delete_task(&self, task_id: &TaskId, running: Deletion) -> Result<(), Error> {
        // Paused first, so that nothing of it begins while its queue is cancelled, whatever happens then.
        self.pause_task(task_id).await?;
        self.cancel_all_of(task_id, running).await?;
        self.decide(&format!("task \"{task_id}\""), |moment: Moment| async move {
            let Some((task, _)) = self.instance.store.task(task_id).await? else {
                return Ok(Decided::Already(()));
            };
            let event = task_event(&task, EventKind::TaskDeleted, moment);
            let write = TaskWrite {
                task_id: task_id.clone(),
                expect: Some(task.revision),
                change: TaskChange::Delete,
                events: vec![event],
            };
            Ok(Decided::write(Decision { task: Some(write), ..Decision::default() }, ()))
        })
        .await?;
        // Asked for by others while it was deleted: nothing is left behind.
        self.cancel_all_of(task_id, running).await
    }

    async fn cancel_all_of(&self, task_id: &TaskId, running: Deletion) -> Result<(), Error> {
        let idle = [RunStatus::Queued, RunStatus::Retrying, RunStatus::AwaitingApproval, RunStatus::Lost];
        let statuses = match running {
            Deletion::Cancel => Vec::new(),
            Deletion::Keep => idle.into(),
        };
        let filter = RunFilter { task_id: Some(task_id.clone()), statuses, ..RunFilter::default() };
        let request = CancelRequest {
            mode: CancelMode::Cooperative,
            reason: "its task was deleted".into(),
            requested_by: "delete".into(),
            force_after: Some(self.instance.settings().patience),
        };
        self.cancel_runs(filter, &request).await?;
        Ok(())
    }

    // --- reading ----------------------------------------------------------------------------------------

    /// A task, and how far its schedule has come.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn task(&self, task_id: &TaskId) -> Result<(Task, ScheduleState), Error> {
        // The sessions of hosts are kept beside the tasks, and are none.
        let found = if task_id.is_reserved() { None } else { self.instance.store.task(task_id).await? };
        found.ok_or_else(|| Error::no_task(task_id))
    }

    /// Tasks by name.
    ///
    /// # Errors
    /// [`Error::Store`]; refused as invalid for a cursor of another listing.
    pub async fn tasks(&self, page: PageRequest) -> Result<Page<(Task, ScheduleState)>, Error> {
        let (mut all, mut next) = (self.instance.store.tasks(page.clone()).await?, page);
        loop {
            all.items.retain(|(task, _)| !task.spec.task_id.is_reserved());
            all.corrupt.retain(|(name, _)| !name.starts_with(RESERVED));
            // A page that lost what is no task is filled up: who pages on until there is no cursor misses nothing.
            let room = next.limit.saturating_sub(all.items.len() + all.corrupt.len());
            if room == 0 || all.next.is_none() {
                return Ok(all);
            }
            next.cursor = all.next.take();
            let more = self.instance.store.tasks(PageRequest { limit: room, ..next.clone() }).await?;
            all.items.extend(more.items);
            all.corrupt.extend(more.corrupt);
            all.next = more.next;
        }
    }

    /// A task, and how it does.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Store`].
    pub async fn task_status(&self, task_id: &TaskId) -> Result<TaskStatus, Error> {
        let (task, schedule) = self.task(task_id).await?;
        let counts = self.instance.store.counts(Some(task_id)).await?;
        let filter = RunFilter { task_id: Some(task_id.clone()), ..RunFilter::default() };
        let newest = PageRequest { limit: 1, cursor: None };
        let latest_run = self.instance.store.runs(filter, newest).await?.items.pop();
        Ok(TaskStatus { task, schedule, counts, latest_run })
    }

    /// What became of the occurrences of a task, the newest first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Result<Page<Occurrence>, Error> {
        Ok(self.instance.store.occurrences(task_id, page).await?)
    }

    // --- writing ----------------------------------------------------------------------------------------

    /// Writes what `change` makes of the task as it stands; nothing if it makes nothing of it.
    async fn put(
        &self,
        task_id: &TaskId,
        change: impl Fn(Option<&Task>, Moment) -> Result<Option<Changed>, Error>,
    ) -> Result<Task, Error> {
        if task_id.is_reserved() {
            return Err(Error::reserved("task_id", task_id.as_str()));
        }
        let change = &change;
        let _turn = self.turns.take(task_id).await;
        self.decide(&format!("task \"{task_id}\""), |moment: Moment| async move {
            let current = self.instance.store.task(task_id).await?;
            let (task, state) = match &current {
                Some((task, state)) => (Some(task), Some(state)),
                None => (None, None),
            };
            let Some(Changed { task: next, event }) = change(task, moment)? else {
                return match current {
                    Some((task, _)) => Ok(Decided::Already(task)),
                    None => Err(Error::no_task(task_id)),
                };
            };
            if next.spec.agent_id.is_reserved() {
                return Err(Error::reserved("agent_id", next.spec.agent_id.as_str()));
            }
            let schedule = match &current {
                Some((task, state)) => {
                    rules::replace(&task.spec.schedule, &next.spec.schedule, state, moment.now)
                }
                None => rules::begin(&next.spec.schedule, task_id, 1, moment.now).map(Some),
            };
            // It was checked when it was read: only this machine's zones can have changed since.
            let schedule = schedule.map_err(|error| Invalid::one("schedule", error.to_string()))?;
            let decision = Decision {
                task: Some(TaskWrite {
                    task_id: task_id.clone(),
                    expect: task.map(|task| task.revision),
                    change: TaskChange::Put(Box::new(next.clone())),
                    events: vec![event],
                }),
                schedule: schedule
                    .map(|next| ScheduleWrite { expect: state.map(|state| state.version), state: next }),
                ..Decision::default()
            };
            Ok(Decided::write(decision, next))
        })
        .await
    }
}

/// A task as it is to be stored, and what is told of it.
struct Changed {
    task: Task,
    event: NewEvent,
}

fn new_task(spec: TaskSpec, moment: Moment) -> Changed {
    let mut task = Task { spec, created_at: moment.now, updated_at: moment.now, revision: 1, last_event: 0 };
    let event = task_event(&task, EventKind::TaskCreated, moment);
    task.last_event = event.sequence;
    Changed { task, event }
}

fn changed(before: &Task, spec: TaskSpec, kind: EventKind, moment: Moment) -> Changed {
    let mut task = Task { spec, updated_at: moment.now, revision: before.revision + 1, ..before.clone() };
    let event = task_event(before, kind, moment);
    task.last_event = event.sequence;
    Changed { task, event }
}

/// The next event of a task's own.
fn task_event(task: &Task, kind: EventKind, moment: Moment) -> NewEvent {
    NewEvent {
        sequence: task.last_event + 1,
        kind,
        at: moment.now,
        status: None,
        attempt: 0,
        fence: 0,
        instance: None,
        data: None,
    }
}
