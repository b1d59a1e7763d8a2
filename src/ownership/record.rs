//! What is kept of a session and of a run beside what every run has: in the metadata of their records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::answers::WithParent;
use super::draw;
use super::key::SessionKey;
use crate::model::{
    AgentId, Invalid, Metadata, NewEvent, OverlapPolicy, RetryPolicy, Run, SchedulePlace, ScheduleState,
    Task, TaskId, TaskSpec, Timestamp,
};
use crate::store::{RefusedKind, ScheduleWrite, StoreError, TaskChange, TaskWrite};

/// The newest form of a session's record that is known here.
const FORMAT: u32 = 1;

/// How many tasks of a session are kept at once.
pub const MOST_TASKS: usize = 2000;

/// How many numbers may be given out before their tasks begin.
const MOST_RESERVED: usize = 1000;

/// How many outcomes of a task that came too late are told.
pub(super) const MOST_LATE: usize = 16;

/// The longest name of who acknowledges.
pub(super) const MOST_CONSUMER_BYTES: usize = 40;

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) key: SessionKey,
    /// The form of the record: a newer one is read, and not written.
    #[serde(default)]
    pub(super) format: u32,
    /// Drawn for its last write: two writes are never taken for each other, whatever they say.
    #[serde(default)]
    pub(super) stamp: u64,
    /// Rises when the session is released. Of a session that is made anew it begins at the store's clock, so that
    /// none is ever seen twice under one name (I9).
    pub(super) revision: u64,
    /// Whether nothing was started since it was released.
    #[serde(default)]
    pub(super) released: bool,
    /// The number of the next task.
    pub(super) next_task: u64,
    /// Numbers whose tasks have not begun, each with the revision under which it was given out; 0 if it was passed
    /// over by who numbers tasks themselves.
    #[serde(default)]
    pub(super) reserved: BTreeMap<u64, u64>,
    /// The tasks that are kept, each with its latest run. A number below the next one that is neither here nor
    /// reserved belongs to a task that was kept long enough.
    #[serde(default)]
    pub(super) tasks: BTreeMap<u64, u32>,
    /// Outcomes that were acknowledged.
    #[serde(default)]
    pub(super) acknowledged: BTreeMap<u64, Acknowledged>,
    /// The fences of each task under which an outcome came too late: each is told once.
    #[serde(default)]
    pub(super) late: BTreeMap<u64, BTreeSet<u64>>,
    /// Where the host's hook still keeps outcomes that are gone here: what lies there is to be removed (P11).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unremoved: BTreeSet<Arc<str>>,
    /// What a newer version wrote beside it: kept as it is (V5).
    #[serde(flatten)]
    pub(super) other: BTreeMap<String, Value>,
}

/// That somebody has had an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Acknowledged {
    pub(super) run: u32,
    pub(super) by: Arc<str>,
    pub(super) at: Timestamp,
}

/// What is known of a task without looking at its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It never was, or has not begun.
    None,
    /// This is its latest run.
    Run(u32),
    /// It was, and is no longer kept.
    Expired,
}

/// What is to be done about an outcome that came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// It is told, in this write.
    New,
    /// It was told before.
    Told,
    /// As many were told as there may be.
    TooMany,
}

impl Session {
    pub(super) fn new(key: SessionKey, now: Timestamp) -> Self {
        Self {
            key,
            format: FORMAT,
            stamp: 0,
            revision: u64::try_from(now.ms()).unwrap_or(0).max(1),
            released: false,
            next_task: 1,
            reserved: BTreeMap::new(),
            tasks: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            late: BTreeMap::new(),
            unremoved: BTreeSet::new(),
            other: BTreeMap::new(),
        }
    }

    pub(super) fn mark(&self, task: u64) -> Mark {
        match self.tasks.get(&task) {
            Some(run) => Mark::Run(*run),
            None if task < self.next_task && !self.reserved.contains_key(&task) => Mark::Expired,
            None => Mark::None,
        }
    }

    /// Gives out the number of a task to come.
    pub(super) fn reserve(&mut self) -> u64 {
        let task = self.next_task;
        self.next_task += 1;
        self.reserved.insert(task, self.revision);
        if self.reserved.len() > MOST_RESERVED {
            self.reserved.pop_first();
        }
        task
    }

    /// Whether a number was given out before the session was released: its task does not begin after it (I9).
    pub(super) fn is_outdated(&self, task: u64) -> bool {
        self.reserved.get(&task).is_some_and(|revision| *revision != 0 && *revision != self.revision)
    }

    /// A run of a task begins.
    ///
    /// # Errors
    /// [`Invalid`] when as many tasks are kept as there may be, or the number is too high.
    pub(super) fn begin(&mut self, task: u64, run: u32) -> Result<(), Invalid> {
        if !self.tasks.contains_key(&task) && self.tasks.len() >= MOST_TASKS {
            let expected = format!("a session with less than {MOST_TASKS} tasks; forget or acknowledge some");
            return Err(Invalid::one("session", expected));
        }
        // Numbers that were passed over were given out by nobody, and may still begin.
        if task >= self.next_task {
            let passed = task - self.next_task;
            if passed > MOST_RESERVED as u64 || task == u64::MAX {
                let expected =
                    format!("a number below {}, found {task}", self.next_task + MOST_RESERVED as u64);
                return Err(Invalid::one("task", expected));
            }
            self.reserved.extend((self.next_task..task).map(|passed| (passed, 0)));
            self.next_task = task + 1;
        }
        self.reserved.remove(&task);
        self.tasks.insert(task, run);
        self.acknowledged.remove(&task);
        self.released = false;
        Ok(())
    }

    /// An outcome of a task came too late under a fence.
    pub(super) fn refuse(&mut self, task: u64, fence: u64) -> Late {
        let told = self.late.entry(task).or_default();
        if told.contains(&fence) {
            return Late::Told;
        }
        if told.len() >= MOST_LATE {
            return Late::TooMany;
        }
        told.insert(fence);
        Late::New
    }

    /// A task is no longer kept.
    pub(super) fn expire(&mut self, task: u64) {
        self.tasks.remove(&task);
        self.acknowledged.remove(&task);
        self.late.remove(&task);
    }

    pub(super) fn is_acknowledged(&self, task: u64, run: u32) -> Option<&Acknowledged> {
        self.acknowledged.get(&task).filter(|acknowledged| acknowledged.run == run)
    }
}

/// A session as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) task: Task,
    pub(super) session: Session,
}

impl Stored {
    /// # Errors
    /// Refused as corrupt when it cannot be read, or is another session's.
    pub(super) fn read(task: Task, key: Option<&SessionKey>) -> Result<Self, StoreError> {
        let id = &task.spec.task_id;
        let corrupt =
            |why: String| StoreError::refused(RefusedKind::Corrupt, format!("session \"{id}\": {why}"));
        let session: Session =
            serde_json::from_str(task.spec.metadata.as_json()).map_err(|error| corrupt(error.to_string()))?;
        if key.is_some_and(|key| *key != session.key) {
            return Err(corrupt(format!("it is kept for \"{}\"", session.key)));
        }
        Ok(Self { task, session })
    }
}

/// A write of a session that must stand as it was read.
pub(super) struct SessionWrite {
    pub(super) task: TaskWrite,
    pub(super) schedule: Option<ScheduleWrite>,
}

impl SessionWrite {
    /// Tells an event of the session's own, numbered on from its last.
    pub(super) fn tell(&mut self, event: NewEvent) {
        if let TaskChange::Put(task) = &mut self.task.change {
            task.last_event = event.sequence;
        }
        self.task.events.push(event);
    }
}

/// What makes a session what it is now.
pub(super) fn put(
    before: Option<&Stored>,
    session: &Session,
    now: Timestamp,
) -> Result<SessionWrite, StoreError> {
    if session.format > FORMAT {
        let message =
            format!("session \"{}\" was written by a newer version; this one only reads it", session.key);
        return Err(StoreError::refused(RefusedKind::NewerSchema, message));
    }
    let metadata = metadata(&Session { stamp: draw(), ..session.clone() })?;
    let task_id = session.key.id().map_err(invalid)?;
    write(before.map(|stored| &stored.task), task_id, metadata, now)
}

/// The write of a record of ours that must stand as it was read.
pub(super) fn write(
    before: Option<&Task>,
    task_id: TaskId,
    metadata: Metadata,
    now: Timestamp,
) -> Result<SessionWrite, StoreError> {
    let task = match before {
        Some(task) => Task {
            spec: TaskSpec { metadata, ..task.spec.clone() },
            updated_at: now,
            revision: task.revision + 1,
            ..task.clone()
        },
        None => {
            let spec = spec_of(&task_id, metadata).map_err(invalid)?;
            Task { spec, created_at: now, updated_at: now, revision: 1, last_event: 0 }
        }
    };
    let schedule = before.is_none().then(|| ScheduleWrite { expect: None, state: idle(task_id.clone()) });
    let expect = before.map(|task| task.revision);
    let write = TaskWrite { task_id, expect, change: TaskChange::Put(Box::new(task)), events: Vec::new() };
    Ok(SessionWrite { task: write, schedule })
}

fn idle(task_id: TaskId) -> ScheduleState {
    ScheduleState { task_id, version: 1, last_due: None, place: SchedulePlace::Idle }
}

/// The form of a record: it is paused, wants nothing, and names an agent that nobody has.
fn spec_of(task_id: &TaskId, metadata: Metadata) -> Result<TaskSpec, Invalid> {
    let fields = serde_json::json!({
        "task_id": task_id,
        "agent_id": AgentId::host(),
        "query": "what a host executes itself",
        "enabled": false,
    });
    let spec = TaskSpec::parse(&fields.to_string())?;
    Ok(TaskSpec { metadata, ..spec })
}

pub(super) fn metadata<T: Serialize>(record: &T) -> Result<Metadata, StoreError> {
    let json = to_raw_value(record);
    json.map(Metadata::new).map_err(|error| StoreError::refused(RefusedKind::Invalid, error.to_string()))
}

pub(super) fn invalid(invalid: Invalid) -> StoreError {
    StoreError::refused(RefusedKind::Invalid, invalid.to_string())
}

/// What is kept of a run that a host executes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnedSpec {
    pub(super) task: u64,
    pub(super) run: u32,
    /// The revision of its session when it began (I11).
    pub(super) revision: u64,
    /// What asked for it: the same request is answered the same grant (L17).
    pub(super) request_id: Arc<str>,
    /// What it is called, and who does it: for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<Arc<str>>,
    /// The task that it supersedes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) supersedes: Option<u64>,
    /// What started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Parent>,
}

/// The run of another task of the session that started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parent {
    pub(super) task: u64,
    pub(super) run: u32,
    pub(super) policy: WithParent,
}

impl OwnedSpec {
    /// # Errors
    /// Refused as corrupt when it cannot be read.
    pub(super) fn of(run: &Run) -> Result<Self, StoreError> {
        serde_json::from_str(run.spec.metadata.as_json()).map_err(|error| {
            StoreError::refused(RefusedKind::Corrupt, format!("run \"{}\": {error}", run.run_id))
        })
    }
}

/// The policies of a run that nobody but its host executes: nothing is tried again, nothing excludes it.
pub(super) struct Policies {
    pub(super) retry: RetryPolicy,
    pub(super) overlap: OverlapPolicy,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            retry: RetryPolicy { max_retries: 0, retry_on: BTreeSet::new(), ..RetryPolicy::default() },
            overlap: OverlapPolicy::AllowParallel,
        }
    }
}
