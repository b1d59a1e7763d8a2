//! How a run comes to be.

use std::sync::Arc;

use serde_json::json;

use super::change::Moment;
use crate::model::{
    EventKind, Idempotency, Lane, Limits, NewEvent, OverlapPolicy, Place, Run, RunId, RunSpec, RunStatus,
    SessionPolicy, Task, TaskSpec, Timestamp, Trigger,
};
use crate::store::{Expect, RunWrite};

/// What is wanted of a task.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The id of the run.
    pub run_id: RunId,
    /// What wants it.
    pub trigger: Trigger,
    /// Another query than the task's.
    pub query: Option<Arc<str>>,
    /// When it was wanted for.
    pub due_at: Timestamp,
    /// When it may begin: later than that when it is spread or jittered.
    pub not_before: Timestamp,
    /// The due time of the occurrence that wants it.
    pub occurrence: Option<Timestamp>,
    /// What makes a repeated request the same run.
    pub idempotency: Option<Idempotency>,
    /// The run that is done again.
    pub retry_of: Option<RunId>,
    /// Whether it may be claimed while the task is paused.
    pub override_pause: bool,
}

impl Wanted {
    /// A run that a caller wants now.
    #[must_use]
    pub fn now(run_id: RunId, now: Timestamp) -> Self {
        Self {
            run_id,
            trigger: Trigger::Manual,
            query: None,
            due_at: now,
            not_before: now,
            occurrence: None,
            idempotency: None,
            retry_of: None,
            override_pause: false,
        }
    }
}

/// The run of a task that is wanted, queued.
#[must_use]
pub fn enqueue(task: &Task, wanted: Wanted, moment: Moment) -> RunWrite {
    let spec = spec_of(&task.spec, &wanted, moment);
    let mut run = new_run(wanted, spec, moment);
    run.due_at = run.due_at.max(moment.now);
    let mut events = Vec::with_capacity(2);
    if run.spec.trigger == Trigger::Schedule {
        let data = Some(json!({ "due_at": run.spec.first_due_at }).to_string().into());
        events.push(NewEvent { data, ..first_event(EventKind::TaskScheduled, RunStatus::Queued, moment) });
    }
    run.last_event = 1 + events.len() as u64;
    let data = (run.due_at > moment.now).then(|| json!({ "due_at": run.due_at }).to_string().into());
    let queued = first_event(EventKind::Queued, RunStatus::Queued, moment);
    events.push(NewEvent { sequence: run.last_event, data, ..queued });
    RunWrite { expect: Expect::Absent, run, attempt: None, events }
}

/// The run of a task that is wanted, never to run because another is active: a terminal record of that.
#[must_use]
pub fn skip(task: &Task, wanted: Wanted, blocked_by: RunId, moment: Moment) -> RunWrite {
    let spec = spec_of(&task.spec, &wanted, moment);
    let mut run = new_run(wanted, spec, moment);
    run.status = RunStatus::Skipped;
    run.finished_at = Some(moment.now);
    run.last_event = 1;
    let data = json!({ "reason": "overlap", "blocked_by": blocked_by }).to_string();
    run.blocked_by = Some(blocked_by);
    let event =
        NewEvent { data: Some(data.into()), ..first_event(EventKind::Skipped, RunStatus::Skipped, moment) };
    RunWrite { expect: Expect::Absent, run, attempt: None, events: vec![event] }
}

fn first_event(kind: EventKind, status: RunStatus, moment: Moment) -> NewEvent {
    NewEvent {
        sequence: 1,
        kind,
        at: moment.now,
        status: Some(status),
        attempt: 0,
        fence: 0,
        instance: None,
        data: None,
    }
}

fn new_run(wanted: Wanted, spec: RunSpec, moment: Moment) -> Run {
    Run {
        run_id: wanted.run_id,
        spec: Arc::new(spec),
        status: RunStatus::Queued,
        version: 1,
        stamp: moment.stamp,
        due_at: wanted.not_before,
        place: Place::Nowhere,
        attempt: 0,
        failures: 0,
        interruptions: 0,
        fence: 0,
        lease: None,
        lost_token: None,
        cancel: None,
        claimed_at: None,
        started_at: None,
        attempt_started_at: None,
        finished_at: None,
        error: None,
        result: None,
        progress: None,
        approval: None,
        blocked_by: None,
        last_event: 0,
    }
}

fn spec_of(task: &TaskSpec, wanted: &Wanted, moment: Moment) -> RunSpec {
    RunSpec {
        task_id: task.task_id.clone(),
        agent_id: task.agent_id.clone(),
        query: wanted.query.clone().unwrap_or_else(|| Arc::clone(&task.query)),
        trigger: wanted.trigger,
        queued_at: moment.now,
        first_due_at: wanted.due_at,
        late_by_ms: u64::try_from(moment.now.since(wanted.due_at).as_millis()).unwrap_or(u64::MAX),
        occurrence: wanted.occurrence,
        idempotency: wanted.idempotency.clone(),
        session_id: session_of(task, &wanted.run_id),
        workspace_path: workspace_of(task, &wanted.run_id),
        write_run_json: task.workspace_policy.write_run_json,
        write_events_jsonl: task.workspace_policy.write_events_jsonl,
        limits: Limits {
            timeout: task.timeout,
            deadline_at: task.deadline.map(|deadline| moment.now.plus(deadline.duration())),
        },
        retry_policy: task.retry_policy.clone(),
        overlap_policy: task.overlap_policy,
        lanes: lanes_of(task),
        priority: task.priority,
        retry_of: wanted.retry_of.clone(),
        override_pause: wanted.override_pause,
        metadata: task.metadata.clone(),
    }
}

/// The session that a run of the task belongs to.
#[must_use]
pub fn session_of(task: &TaskSpec, run_id: &RunId) -> Arc<str> {
    match &task.session_policy {
        SessionPolicy::Task => format!("background:{}:{}", task.agent_id, task.task_id).into(),
        SessionPolicy::Run => format!("background:{run_id}").into(),
        SessionPolicy::Fixed { session_id } => Arc::clone(session_id),
    }
}

fn workspace_of(task: &TaskSpec, run_id: &RunId) -> Arc<str> {
    let known = [
        ("{agent_id}", task.agent_id.as_str()),
        ("{task_id}", task.task_id.as_str()),
        ("{run_id}", run_id.as_str()),
    ];
    let mut rest = task.workspace_policy.namespace_template.as_str();
    let mut path = String::with_capacity(rest.len() + 64);
    while let Some(at) = rest.find('{') {
        let (before, brace) = rest.split_at(at);
        path.push_str(before);
        let found = known.iter().find_map(|(name, value)| Some((brace.strip_prefix(name)?, *value)));
        let (after, value) = found.unwrap_or((&brace[1..], "{"));
        path.push_str(value);
        rest = after;
    }
    path.push_str(rest);
    path.into()
}

/// What a run of the task must have room in. A session of its own needs no lane: its task's is as narrow.
fn lanes_of(task: &TaskSpec) -> Vec<Lane> {
    let mut lanes = Vec::new();
    if task.overlap_policy != OverlapPolicy::AllowParallel {
        lanes.push(Lane { name: format!("task:{}", task.task_id).into(), limit: 1 });
        if let SessionPolicy::Fixed { session_id } = &task.session_policy {
            lanes.push(Lane { name: format!("session:{session_id}").into(), limit: 1 });
        }
    }
    if let Some(key) = &task.concurrency_key {
        lanes.push(Lane { name: format!("key:{key}").into(), limit: task.concurrency_limit });
    }
    lanes
}
