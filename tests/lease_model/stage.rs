//! Where sessions are played: the verbs themselves, over a store that lets one call of one of them pass at a time. A
//! verb depends on what it was answered and on nothing else, so that a play can be gone back to by playing it again.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tenure::clock::ManualClock;
use tenure::model::{
    AgentId, Attempt, Event, InstanceId, Metadata, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject,
    Task, TaskId, Timestamp,
};
use tenure::ownership::{Ownership, OwnershipSettings};
use tenure::store::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, MemoryStore, Page,
    PageRequest, PruneRequest, Pruned, Refusal, RenewRequest, Renewal, RunFilter, Store, TaskChange,
};
use tokio::sync::broadcast;

/// What is taken out of the store or of who calls it, to see that somebody notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// Starts do not say which revision they have seen.
    Unsaid,
    /// The store does not look whether a session still stands as it was read.
    Unlooked,
    /// A cancel of a session takes runs for its own that began after it.
    Unbounded,
    /// The store keeps what it is to forget.
    Kept,
}

/// What one of those who call has come to.
#[derive(Default)]
pub(crate) struct Turn {
    may: bool,
    /// Nobody else calls.
    alone: bool,
    /// The clock stands still: when it is looked at does not matter.
    timeless: bool,
    /// What was answered so far.
    heard: DefaultHasher,
    /// The revision of the session when it was looked at: first, if there was one, and last.
    first: Option<u64>,
    last: Option<u64>,
}

/// A call of a store waits here until it is let pass.
pub(crate) struct Turnwise {
    store: Arc<MemoryStore>,
    turn: Arc<Mutex<Turn>>,
    broken: Broken,
}

impl Turnwise {
    fn call<'a, T: Send + 'a>(&'a self, call: Answer<'a, T>, heard: fn(&T, &mut Turn)) -> Answer<'a, T> {
        Box::pin(async move {
            let passes = |_: &mut Context<'_>| {
                let mut turn = self.turn.lock();
                if std::mem::take(&mut turn.may) || turn.alone { Poll::Ready(()) } else { Poll::Pending }
            };
            poll_fn(passes).await;
            let answer = call.await?;
            let mut turn = self.turn.lock();
            // Also an answer of nothing takes it further.
            turn.heard.write_u8(0);
            heard(&answer, &mut turn);
            drop(turn);
            Ok(answer)
        })
    }

    /// As if the session stood as whoever writes it has read it.
    fn as_read(&self, decision: &mut Decision) {
        let Some(write) = &mut decision.task else { return };
        let Some((task, _)) = at_once(self.store.task(&write.task_id)).unwrap() else { return };
        write.expect = Some(task.revision);
        if let TaskChange::Put(put) = &mut write.change {
            put.revision = task.revision + 1;
            decision.schedule = None;
        }
    }
}

/// What needs nobody else.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("it waits for nobody")
}

fn later(task: &mut Task) {
    let mut session: Value = serde_json::from_str(task.spec.metadata.as_json()).unwrap();
    session["revision"] = Value::from(1_000_000);
    task.spec.metadata = Metadata::new(serde_json::value::to_raw_value(&session).unwrap());
}

impl Store for Turnwise {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        if self.turn.lock().timeless {
            return self.store.now();
        }
        self.call(self.store.now(), |now, turn| now.hash(&mut turn.heard))
    }

    fn commit(&self, mut decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        let commit = async move {
            match self.broken {
                Broken::Unlooked => decisions.iter_mut().for_each(|decision| self.as_read(decision)),
                Broken::Kept => decisions.iter_mut().for_each(|decision| decision.forget.clear()),
                Broken::Nothing | Broken::Unsaid | Broken::Unbounded => {}
            }
            self.store.commit(decisions).await
        };
        self.call(Box::pin(commit), |answers, turn| {
            answers.iter().for_each(|answer| answer.is_ok().hash(&mut turn.heard));
        })
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task = self.call(self.store.task(task_id), |found, turn| {
            let seen = found.as_ref().map(|(task, _)| SessionSeen::of(task));
            seen.hash(&mut turn.heard);
            turn.last = seen.map(|seen| seen.revision);
            turn.first = turn.first.or(turn.last);
        });
        let unbounded = self.broken == Broken::Unbounded;
        Box::pin(task.map(move |found| {
            let mut found = found?;
            if let Some((task, _)) = found.as_mut().filter(|_| unbounded) {
                later(task);
            }
            Ok(found)
        }))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.call(self.store.tasks(page), |found, turn| {
            found.items.iter().for_each(|(task, _)| SessionSeen::of(task).hash(&mut turn.heard));
        })
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        self.call(self.store.run(run_id), |run, turn| {
            run.as_ref().map(RunSeen::of).hash(&mut turn.heard);
        })
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.call(self.store.runs(filter, page), |found, turn| {
            found.items.iter().for_each(|run| RunSeen::of(run).hash(&mut turn.heard));
        })
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        self.call(self.store.attempts(run_id), |attempts, turn| {
            let ended = attempts.last().and_then(|attempt| attempt.finished_at);
            ended.hash(&mut turn.heard);
        })
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.store.watch()
    }

    // --- what no verb that is played here asks for ------------------------------------------------------------

    fn claim(&self, _: ClaimRequest) -> Answer<'_, Vec<Run>> {
        unreachable!()
    }

    fn renew(&self, _: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        unreachable!()
    }

    fn prune(&self, _: PruneRequest) -> Answer<'_, Pruned> {
        unreachable!()
    }

    fn check(&self, _: bool) -> Answer<'_, Vec<String>> {
        unreachable!()
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        unreachable!()
    }

    fn due_schedules(&self, _: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        unreachable!()
    }

    fn due_runs(&self, _: Option<(Timestamp, RunId)>, _: usize) -> Answer<'_, Vec<Run>> {
        unreachable!()
    }

    fn run_by_key(&self, _: &TaskId, _: &str) -> Answer<'_, Option<Run>> {
        unreachable!()
    }

    fn count(&self, _: RunFilter, _: u64) -> Answer<'_, Counted> {
        unreachable!()
    }

    fn events(&self, _: Subject, _: u64, _: usize) -> Answer<'_, Vec<Event>> {
        unreachable!()
    }

    fn occurrences(&self, _: &TaskId, _: PageRequest) -> Answer<'_, Page<Occurrence>> {
        unreachable!()
    }

    fn lane(&self, _: &str) -> Answer<'_, LaneView> {
        unreachable!()
    }

    fn counts(&self, _: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        unreachable!()
    }

    fn put_agent(&self, _: &AgentId, _: Option<Arc<str>>) -> Answer<'_, ()> {
        unreachable!()
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        unreachable!()
    }

    fn close(&self) -> Answer<'_, ()> {
        unreachable!()
    }
}

/// What matters of a session. What was drawn for it does not: nothing is compared with it but what was drawn with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionSeen {
    pub(crate) revision: u64,
    pub(crate) released: bool,
    /// Each task with its latest run.
    pub(crate) tasks: Vec<(u64, u32)>,
    written: u64,
    updated_at: Timestamp,
    rest: String,
}

impl SessionSeen {
    pub(crate) fn of(task: &Task) -> Self {
        let mut session: Value = serde_json::from_str(task.spec.metadata.as_json()).unwrap();
        session["stamp"] = Value::Null;
        let tasks = session["tasks"].as_object().unwrap().iter();
        Self {
            revision: session["revision"].as_u64().unwrap(),
            released: session["released"].as_bool().unwrap(),
            tasks: tasks
                .map(|(task, run)| (task.parse().unwrap(), u32::try_from(run.as_u64().unwrap()).unwrap()))
                .collect(),
            written: task.revision,
            updated_at: task.updated_at,
            rest: session.to_string(),
        }
    }
}

/// What matters of a run. Under one fence of it nobody draws twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RunSeen {
    pub(crate) task: u64,
    pub(crate) run: u32,
    pub(crate) status: RunStatus,
    /// The revision of the session that it began in.
    pub(crate) revision: u64,
    pub(crate) request_id: String,
    pub(crate) fence: u64,
    pub(crate) cancelled_by: Option<Arc<str>>,
    pub(crate) superseded: bool,
    version: u64,
    lease: Option<(InstanceId, Timestamp)>,
    lost: Option<u64>,
    finished_at: Option<Timestamp>,
}

impl RunSeen {
    pub(crate) fn of(run: &Run) -> Self {
        let owned: Value = serde_json::from_str(run.spec.metadata.as_json()).unwrap();
        let number = |field: &str| owned[field].as_u64().unwrap();
        Self {
            task: number("task"),
            run: u32::try_from(number("run")).unwrap(),
            status: run.status,
            revision: number("revision"),
            request_id: owned["request_id"].as_str().unwrap().to_owned(),
            fence: run.fence,
            cancelled_by: run.cancel.as_ref().map(|cancel| Arc::clone(&cancel.requested_by)),
            superseded: run.blocked_by.is_some(),
            version: run.version,
            lease: run.lease.map(|lease| (lease.owner, lease.expires_at)),
            lost: run.lost_token.map(|token| token.fence),
            finished_at: run.finished_at,
        }
    }
}

/// How far somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Far<T> {
    /// So much was heard.
    Heard(u64),
    Done(T),
}

/// Somebody who calls.
pub(crate) struct Player<T> {
    turn: Arc<Mutex<Turn>>,
    verb: Option<BoxFuture<'static, T>>,
    far: Far<T>,
}

impl<T: Copy> Player<T> {
    /// One call of it passes.
    pub(crate) fn step(&mut self) {
        let verb = self.verb.as_mut().expect("it goes on");
        self.turn.lock().may = true;
        let polled = verb.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(!self.turn.lock().may, "it waits for something else than the store");
        self.far = match polled {
            Poll::Pending => Far::Heard(self.turn.lock().heard.finish()),
            Poll::Ready(done) => {
                self.verb = None;
                Far::Done(done)
            }
        };
    }

    pub(crate) fn far(&self) -> Far<T> {
        self.far
    }

    /// The revision of the session when it was looked at first; 0 if there was none.
    pub(crate) fn first(&self) -> u64 {
        self.turn.lock().first.unwrap_or(0)
    }
}

impl Turn {
    /// The revision of the session when it was looked at last; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.last.unwrap_or(0)
    }
}

/// When it begins.
pub(crate) const BEGIN_MS: u64 = 1000;

/// What is kept, and the clock that it goes by.
pub(crate) struct Stage {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<MemoryStore>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(BEGIN_MS as i64)));
        Self { store: Arc::new(MemoryStore::new(clock.clone())), clock }
    }

    /// Somebody who calls; where time stands still, without looking at the clock.
    pub(crate) fn player<T>(
        &self,
        broken: Broken,
        timeless: bool,
        verb: impl FnOnce(Ownership, Arc<Mutex<Turn>>) -> BoxFuture<'static, T>,
    ) -> Player<T> {
        let turn = Arc::new(Mutex::new(Turn { timeless, ..Turn::default() }));
        let verb = Some(verb(self.own(&turn, broken), Arc::clone(&turn)));
        Player { turn, verb, far: Far::Heard(0) }
    }

    /// For what is asked while nobody else calls.
    pub(crate) fn alone(&self, broken: Broken) -> Ownership {
        self.own(&Arc::new(Mutex::new(Turn { alone: true, ..Turn::default() })), broken)
    }

    fn own(&self, turn: &Arc<Mutex<Turn>>, broken: Broken) -> Ownership {
        let (store, turn) = (Arc::clone(&self.store), Arc::clone(turn));
        let settings = OwnershipSettings { grace: Duration::from_secs(1), ..OwnershipSettings::default() };
        Ownership::new(Arc::new(Turnwise { store, turn, broken }), settings)
    }

    pub(crate) fn session(&self) -> Option<SessionSeen> {
        let found = at_once(self.store.tasks(PageRequest::default())).unwrap().items;
        found.first().map(|(task, _)| SessionSeen::of(task))
    }

    /// Each run, and when its last attempt ended.
    pub(crate) fn runs(&self) -> Vec<(RunSeen, Option<Timestamp>)> {
        let found = at_once(self.store.runs(RunFilter::default(), PageRequest::default())).unwrap().items;
        let ended = |run: &Run| at_once(self.store.attempts(&run.run_id)).unwrap().pop()?.finished_at;
        found.iter().map(|run| (RunSeen::of(run), ended(run))).collect()
    }
}
