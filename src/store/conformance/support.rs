//! What cases say to a store, in few words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Fixture;
use crate::model::{
    AgentId, Attempt, CancelMode, Event, EventKind, InstanceId, NewEvent, Payload, Run, RunError, RunId,
    RunResult, RunStatus, SchedulePlace, ScheduleState, Subject, Task, TaskId, TaskSpec, Timestamp, Token,
};
use crate::rules::{self, CancelRequest, Moment, Outcome, Wanted};
use crate::store::{
    ClaimRequest, Decision, Expect, LaneExpect, LaneView, PageRequest, Refusal, RenewRequest, Renewal,
    RunFilter, RunWrite, ScheduleWrite, TaskChange, TaskWrite,
};

/// Two instances that share the store.
pub(super) const A: u128 = 0xA;
pub(super) const B: u128 = 0xB;

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// Numbers that are drawn: each once in this OS process.
pub(super) fn draw() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1 << 40);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A task from its JSON fields over those that it needs.
#[must_use]
pub fn spec(fields: Value) -> TaskSpec {
    let mut all = json!({ "task_id": "t", "agent_id": "agent", "query": "do it" });
    if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
        all.extend(fields);
    }
    serde_json::from_str(&all.to_string()).expect("a lawful task")
}

/// A request of an instance for runs of the agent `agent`.
#[must_use]
pub fn claim_request(instance: u128, limit: usize) -> ClaimRequest {
    ClaimRequest {
        instance: InstanceId::from_bits(instance),
        nonce: draw(),
        agents: [agent("agent")].into(),
        limit,
        lease: LEASE,
        repeat: false,
    }
}

pub(super) fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

pub(super) fn task_id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

pub(super) fn run_id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

pub(super) fn done(text: &str) -> Outcome {
    Outcome::Completed(RunResult::Inline(Payload::text(text)))
}

pub(super) fn failed() -> Outcome {
    Outcome::Failed(RunError::new("exception", "it broke"))
}

pub(super) fn ask(mode: CancelMode) -> CancelRequest {
    CancelRequest { mode, reason: "enough".into(), requested_by: "a person".into(), force_after: None }
}

pub(super) fn ids(runs: &[Run]) -> Vec<&str> {
    runs.iter().map(|run| run.run_id.as_str()).collect()
}

pub(super) fn token(run: &Run) -> Token {
    run.token().expect("a run that is held")
}

pub(super) fn put(task: &Task, expect: Option<u64>) -> TaskWrite {
    TaskWrite {
        task_id: task.spec.task_id.clone(),
        expect,
        change: TaskChange::Put(Box::new(task.clone())),
        events: Vec::new(),
    }
}

pub(super) fn keep(task: &Task) -> TaskWrite {
    let (task_id, expect) = (task.spec.task_id.clone(), Some(task.revision));
    TaskWrite { task_id, expect, change: TaskChange::Keep, events: Vec::new() }
}

pub(super) fn task_event(sequence: u64, kind: EventKind, at: Timestamp) -> NewEvent {
    NewEvent { sequence, kind, at, status: None, attempt: 0, fence: 0, instance: None, data: None }
}

/// The task, changed: the next revision of it.
pub(super) fn changed(task: &Task, change: impl FnOnce(&mut TaskSpec)) -> Task {
    let mut task = task.clone();
    task.revision += 1;
    change(&mut task.spec);
    task
}

/// Stores a task's next revision, with so many events that tell of it.
pub(super) async fn change_with_events(f: &Fixture, task: &Task, count: u64) {
    let now = f.now().await;
    let events = (1..=count).map(|sequence| task_event(sequence, EventKind::TaskUpdated, now)).collect();
    let next = Task { last_event: count, ..changed(task, |spec| spec.priority = 1) };
    let write = TaskWrite { events, ..put(&next, Some(task.revision)) };
    f.commit(Decision { task: Some(write), ..Decision::default() }).await.unwrap();
}

pub(super) fn waiting(task: &TaskId, version: u64, due_at: Timestamp) -> ScheduleState {
    let place = SchedulePlace::Waiting { due_at, fire_at: due_at };
    ScheduleState { task_id: task.clone(), version, last_due: None, place }
}

/// That nothing moves in a lane.
pub(super) fn unmoved(name: &str, lane: &LaneView) -> LaneExpect {
    LaneExpect { name: name.into(), version: lane.version }
}

impl Fixture {
    pub(super) async fn now(&self) -> Timestamp {
        self.store.now().await.unwrap()
    }

    pub(super) async fn moment(&self) -> Moment {
        Moment { now: self.now().await, stamp: draw() }
    }

    /// Sets the clock forward.
    pub(super) fn later(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Applies one decision.
    pub(super) async fn commit(&self, decision: impl Into<Decision>) -> Result<(), Refusal> {
        let mut answers = self.store.commit(vec![decision.into()]).await.unwrap();
        assert_eq!(answers.len(), 1, "one answer for one decision");
        answers.remove(0)
    }

    /// Applies one write of a run, and reads the run.
    pub(super) async fn apply(&self, write: RunWrite) -> Run {
        let run_id = write.run.run_id.clone();
        self.commit(write).await.expect("a write that is applied");
        self.read(&run_id).await
    }

    pub(super) async fn read(&self, run_id: &RunId) -> Run {
        self.store.run(run_id).await.unwrap().expect("a run that exists")
    }

    pub(super) async fn status(&self, run: &Run) -> RunStatus {
        self.read(&run.run_id).await.status
    }

    /// Makes a task with these fields, that nothing fires.
    pub(super) async fn task(&self, fields: Value) -> Task {
        let now = self.now().await;
        let task = Task { spec: spec(fields), created_at: now, updated_at: now, revision: 1, last_event: 0 };
        let id = task.spec.task_id.clone();
        let state = ScheduleState { task_id: id, version: 1, last_due: None, place: SchedulePlace::Idle };
        let schedule = Some(ScheduleWrite { expect: None, state });
        let decision = Decision { task: Some(put(&task, None)), schedule, ..Decision::default() };
        self.commit(decision).await.expect("a new task");
        task
    }

    /// Makes the task anew with a change.
    pub(super) async fn change(&self, task: &Task, change: impl FnOnce(&mut TaskSpec)) -> Task {
        let next = changed(task, change);
        let decision = Decision { task: Some(put(&next, Some(task.revision))), ..Decision::default() };
        self.commit(decision).await.expect("a change of the task as it stands");
        next
    }

    pub(super) async fn delete(&self, task: &Task) {
        let (task_id, expect) = (task.spec.task_id.clone(), Some(task.revision));
        let write = TaskWrite { task_id, expect, change: TaskChange::Delete, events: Vec::new() };
        let decision = Decision { task: Some(write), ..Decision::default() };
        self.commit(decision).await.expect("the task as it stands");
    }

    /// Whether the agenda says that runs can be claimed.
    pub(super) async fn has_ready(&self) -> bool {
        let agenda = self.store.agenda().await.unwrap();
        agenda.ready || agenda.run.is_some_and(|due| due <= agenda.now)
    }

    pub(super) async fn wanted(&self, name: &str) -> Wanted {
        Wanted::now(run_id(name), self.now().await)
    }

    /// Queues a run of the task.
    pub(super) async fn queue(&self, task: &Task, name: &str) -> Run {
        self.queue_as(task, self.wanted(name).await).await
    }

    pub(super) async fn queue_as(&self, task: &Task, wanted: Wanted) -> Run {
        self.apply(rules::enqueue(task, wanted, self.moment().await)).await
    }

    /// Queues a run of the task that is due later.
    pub(super) async fn queue_later(&self, task: &Task, name: &str, by: Duration) -> Run {
        let mut wanted = self.wanted(name).await;
        wanted.not_before = wanted.not_before.plus(by);
        self.queue_as(task, wanted).await
    }

    /// Queues runs of the task, numbered from 0, in one call.
    pub(super) async fn queue_many(&self, task: &Task, letter: &str, many: usize) {
        self.queue_many_later(task, letter, many, Duration::ZERO).await;
    }

    /// Queues runs of the task that are due later, numbered from 0, in one call.
    pub(super) async fn queue_many_later(&self, task: &Task, letter: &str, many: usize, by: Duration) {
        let now = self.now().await;
        let enqueue = |n| {
            let mut wanted = Wanted::now(run_id(&format!("{letter}{n}")), now);
            wanted.not_before = wanted.not_before.plus(by);
            Decision::from(rules::enqueue(task, wanted, Moment { now, stamp: draw() }))
        };
        let answers = self.store.commit((0..many).map(enqueue).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{many} runs are queued");
    }

    /// Grants runs of the agent `agent`.
    pub(super) async fn claim(&self, instance: u128, limit: usize) -> Vec<Run> {
        self.store.claim(claim_request(instance, limit)).await.unwrap()
    }

    /// Grants the one run that is ready.
    pub(super) async fn claim_one(&self, instance: u128) -> Run {
        let mut claimed = self.claim(instance, 1).await;
        assert_eq!(claimed.len(), 1, "a run is ready");
        claimed.remove(0)
    }

    pub(super) async fn start(&self, run: &Run) -> Run {
        self.apply(rules::start(run, token(run), self.moment().await).unwrap()).await
    }

    /// Grants the one run that is ready, and begins it.
    pub(super) async fn begin(&self, instance: u128) -> Run {
        let claimed = self.claim_one(instance).await;
        self.start(&claimed).await
    }

    /// The write that ends the attempt of a run.
    pub(super) async fn end_of(&self, run: &Run, outcome: Outcome) -> RunWrite {
        rules::finish(run, token(run), outcome, 0, self.moment().await).unwrap()
    }

    pub(super) async fn finish(&self, run: &Run, outcome: Outcome) -> Run {
        self.apply(self.end_of(run, outcome).await).await
    }

    /// Cancels a run as it is stored, if that writes anything.
    pub(super) async fn cancel(&self, run: &Run, mode: CancelMode) -> Run {
        let run = self.read(&run.run_id).await;
        match rules::cancel(&run, &ask(mode), self.moment().await) {
            rules::Cancel::Write(write) => self.apply(write).await,
            _ => run,
        }
    }

    /// The write that cancels a run, decided on it as it is given.
    pub(super) async fn cancel_write(&self, run: &Run, mode: CancelMode) -> RunWrite {
        match rules::cancel(run, &ask(mode), self.moment().await) {
            rules::Cancel::Write(write) => write,
            other => panic!("nothing to cancel: {other:?}"),
        }
    }

    /// Does what is to be done about a run whose time has come.
    pub(super) async fn sweep(&self, run: &Run) -> Option<Run> {
        let run = self.read(&run.run_id).await;
        match rules::sweep(&run, GRACE, self.moment().await) {
            Some(write) => Some(self.apply(write).await),
            None => None,
        }
    }

    pub(super) async fn renew(&self, run: &Run, lease: Duration) -> Renewal {
        self.renew_as(&run.run_id, token(run), lease).await
    }

    pub(super) async fn renew_as(&self, run_id: &RunId, token: Token, lease: Duration) -> Renewal {
        let leases = vec![(run_id.clone(), token)];
        let request = RenewRequest { instance: InstanceId::from_bits(A), leases, lease };
        let mut answers = self.store.renew(request).await.unwrap();
        assert_eq!(answers.len(), 1, "one answer for one lease");
        answers.remove(0)
    }

    pub(super) async fn lane(&self, name: &str) -> LaneView {
        self.store.lane(name).await.unwrap()
    }

    pub(super) async fn events(&self, subject: Subject) -> Vec<Event> {
        self.store.events(subject, 0, usize::MAX).await.unwrap()
    }

    /// The events of a run by kind.
    pub(super) async fn told(&self, run: &Run) -> Vec<EventKind> {
        let events = self.events(Subject::Run(run.run_id.clone())).await;
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<_>>(), "numbered without gaps");
        events.iter().map(|event| event.event).collect()
    }

    pub(super) async fn attempts(&self, run: &Run) -> Vec<Attempt> {
        self.store.attempts(&run.run_id).await.unwrap()
    }

    /// How many runs there are by status; none is 0.
    pub(super) async fn counts(&self, task_id: Option<&TaskId>) -> BTreeMap<RunStatus, u64> {
        let counts = self.store.counts(task_id).await.unwrap();
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// All runs that a filter lets through, the newest first.
    pub(super) async fn list(&self, filter: RunFilter) -> Vec<Run> {
        let mut page = PageRequest { limit: 10_000, cursor: None };
        let mut found = Vec::new();
        loop {
            let answer = self.store.runs(filter.clone(), page.clone()).await.unwrap();
            found.extend(answer.items);
            assert!(answer.next.is_none() || answer.next != page.cursor, "a listing goes on");
            page.cursor = answer.next;
            if page.cursor.is_none() {
                return found;
            }
        }
    }

    /// Nothing derived differs from what it is derived from.
    pub(super) async fn sound(&self) {
        assert_eq!(self.store.check(false).await.unwrap(), Vec::<String>::new());
    }

    /// The write changes nothing: the run is as before, and nothing is told of it.
    pub(super) async fn refuses(&self, write: RunWrite) -> Refusal {
        let run_id = write.run.run_id.clone();
        let before = self.store.run(&run_id).await.unwrap();
        let told = self.events(Subject::All).await.len();
        let refusal = self.commit(write).await.expect_err("a write that is refused");
        assert_eq!(self.store.run(&run_id).await.unwrap(), before, "a refused write changes nothing");
        assert_eq!(self.events(Subject::All).await.len(), told, "a refused write tells nothing");
        refusal
    }
}

/// A write under a token that is not the current one.
pub(super) fn under(mut write: RunWrite, other: Token) -> RunWrite {
    if let Expect::At { token, .. } = &mut write.expect {
        *token = Some(other);
    }
    write
}

pub(super) fn is_fenced(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Fenced { .. })
}

/// The text as it is shared.
pub(super) fn text(of: &str) -> Arc<str> {
    of.into()
}
