//! The way of one host to the store: it can be cut, lose replies, hang, or end with its host.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::task::yield_now;

use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};
use crate::store::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};

/// How the store answers a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// As it is.
    Up,
    /// Every call is refused and does not happen.
    Cut,
    /// Looks are answered, writes are refused and do not happen.
    TakesNothing,
    /// Writes happen and nobody hears that they did.
    LosesReplies,
    /// No call returns.
    Hangs,
    /// The host is dead.
    Gone,
}

/// A store behind a line.
pub(super) struct Link {
    store: Arc<dyn Store>,
    line: Mutex<Line>,
    /// Draws who goes first when calls of several callers meet: the same for the same seed.
    dice: AtomicU64,
}

impl Link {
    pub(super) fn to(store: Arc<dyn Store>, seed: u64) -> Self {
        Self { store, line: Mutex::new(Line::Up), dice: AtomicU64::new(seed) }
    }

    /// Lets others go first, or not: a store takes its time, and what is between two calls of one caller is
    /// what tests of races are about.
    async fn way(&self) {
        let drawn = self.dice.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        for _ in 0..(mixed >> 62) {
            yield_now().await;
        }
    }

    /// A dead host stays dead.
    pub(super) fn set(&self, line: Line) {
        let mut current = self.line.lock();
        if *current != Line::Gone {
            *current = line;
        }
    }

    pub(super) fn line(&self) -> Line {
        *self.line.lock()
    }

    fn read<'a, T: Send + 'a>(&'a self, call: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            self.way().await;
            match self.line() {
                Line::Up | Line::TakesNothing | Line::LosesReplies => answered(call, self).await,
                Line::Cut => Err(cut()),
                Line::Hangs | Line::Gone => pending().await,
            }
        })
    }

    fn write<'a, T: Send + 'a>(&'a self, call: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            self.way().await;
            match self.line() {
                Line::Up => answered(call, self).await,
                Line::LosesReplies => {
                    drop(call.await?);
                    Err(StoreError::unknown("the reply was lost on the way to the test host"))
                }
                Line::TakesNothing => {
                    Err(StoreError::refused(RefusedKind::Full, "the store of the test host is full"))
                }
                Line::Cut => Err(cut()),
                Line::Hangs | Line::Gone => pending().await,
            }
        })
    }
}

async fn answered<T>(call: Answer<'_, T>, link: &Link) -> Result<T, StoreError> {
    let answer = call.await;
    link.way().await;
    answer
}

fn cut() -> StoreError {
    StoreError::refused(RefusedKind::Unavailable, "the test host is cut off from its store")
}

impl Store for Link {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        self.read(self.store.now())
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        self.write(self.store.commit(decisions))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.write(self.store.claim(request))
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.write(self.store.renew(request))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.write(self.store.prune(request))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        self.write(self.store.check(repair))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.read(self.store.agenda())
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.read(self.store.due_schedules(limit))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.read(self.store.due_runs(after, limit))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        self.read(self.store.task(task_id))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.read(self.store.tasks(page))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        self.read(self.store.run(run_id))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        self.read(self.store.run_by_key(task_id, key))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.read(self.store.runs(filter, page))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.read(self.store.count(filter, most))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        self.read(self.store.attempts(run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.read(self.store.events(subject, after, limit))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        self.read(self.store.occurrences(task_id, page))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        self.read(self.store.lane(name))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        self.read(self.store.counts(task_id))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        self.write(self.store.put_agent(agent_id, definition))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.read(self.store.agents())
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.store.watch()
    }

    /// The others go on: only the line of this host ends.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
