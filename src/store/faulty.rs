//! A store that fails on purpose, and a caller that tries again: behind the feature `conformance`.
//!
//! [`Faulty`] wraps any store. What happens to a call is scripted for each method, or drawn from a seed. Over
//! it, [`Retrying`] repeats what failed the way callers of a store have to, so that the conformance suite
//! passes in spite of lost answers if, and only if, the store makes a repeated call once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};

use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};

mod retrying;

pub use retrying::Retrying;

/// A method of the port that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the methods of the port")]
pub enum Method {
    Now,
    Commit,
    Claim,
    Renew,
    Prune,
    Check,
    Agenda,
    DueSchedules,
    DueRuns,
    Task,
    Tasks,
    Run,
    RunByKey,
    Runs,
    Count,
    Attempts,
    Events,
    Occurrences,
    Lane,
    Counts,
    PutAgent,
    Agents,
    Close,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 23] = [
        Self::Now,
        Self::Commit,
        Self::Claim,
        Self::Renew,
        Self::Prune,
        Self::Check,
        Self::Agenda,
        Self::DueSchedules,
        Self::DueRuns,
        Self::Task,
        Self::Tasks,
        Self::Run,
        Self::RunByKey,
        Self::Runs,
        Self::Count,
        Self::Attempts,
        Self::Events,
        Self::Occurrences,
        Self::Lane,
        Self::Counts,
        Self::PutAgent,
        Self::Agents,
        Self::Close,
    ];

    /// Whether it changes something: then a lost answer leaves unknown whether it did.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Commit
                | Self::Claim
                | Self::Renew
                | Self::Prune
                | Self::Check
                | Self::PutAgent
                | Self::Close
        )
    }
}

/// What happens to a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is refused as unavailable, and nothing happens.
    Refuse,
    /// It happens, and its answer is lost: unknown for a write, unavailable for a read.
    LoseAnswer,
    /// It happens when the gate lets it.
    Hold(Gate),
    /// It happens, and is answered when the gate lets it.
    HoldAnswer(Gate),
    /// It never happens, and is never answered.
    Hang,
    /// It happens, and is never answered.
    HangAfter,
    /// It happens so much later.
    Delay(Duration),
}

/// Holds calls until it is told to let them pass; nothing here waits for time.
#[derive(Debug, Clone)]
pub struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    /// Waits until one more call is held.
    pub async fn reached(&self) {
        take(&self.reached).await;
    }

    /// Lets one call pass, the one that is held or the next.
    pub fn pass(&self) {
        self.open.add_permits(1);
    }

    async fn hold(&self) {
        self.reached.add_permits(1);
        take(&self.open).await;
    }
}

async fn take(permits: &Semaphore) {
    // Nobody closes it.
    if let Ok(permit) = permits.acquire().await {
        permit.forget();
    }
}

/// Wraps a store and fails as planned.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// Hints that never come, instead of those of the store.
    silence: Option<broadcast::Sender<Hint>>,
}

#[derive(Default)]
struct Plan {
    script: HashMap<Method, VecDeque<Option<Fault>>>,
    /// The state of the generator, and how many of a thousand calls fail.
    drawn: Option<(u64, u64)>,
    calls: HashMap<Method, u64>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner.capabilities().name).finish_non_exhaustive()
    }
}

impl Faulty {
    /// Wraps a store; nothing fails until it is told to.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::default(), silence: None }
    }

    /// Wraps a store whose hints are all lost, as those of a server may be.
    #[must_use]
    pub fn deaf(inner: Arc<dyn Store>) -> Self {
        Self { silence: Some(broadcast::channel(1).0), ..Self::new(inner) }
    }

    /// Fails this share of all calls, in thousandths: half of them refused, half with their answer lost.
    /// Equal seeds fail equal calls. A prune is never made without an answer: what it removed would not be
    /// known.
    #[must_use]
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, per_mille: u64) -> Self {
        let plan = Plan { drawn: Some((seed, per_mille)), ..Plan::default() };
        Self { plan: Mutex::new(plan), ..Self::new(inner) }
    }

    /// What happens to the next calls of a method, one after the other; `None` lets one be.
    pub fn script(&self, method: Method, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.plan.lock().script.entry(method).or_default().extend(faults);
    }

    /// How often a method was called.
    #[must_use]
    pub fn calls(&self, method: Method) -> u64 {
        self.plan.lock().calls.get(&method).copied().unwrap_or(0)
    }

    async fn through<'a, T>(
        &'a self,
        method: Method,
        call: impl FnOnce(&'a dyn Store) -> Answer<'a, T>,
    ) -> Result<T, StoreError> {
        let fault = self.plan.lock().next(method);
        match fault {
            None => call(&*self.inner).await,
            Some(Fault::Refuse) => Err(unavailable(method)),
            Some(Fault::LoseAnswer) => {
                call(&*self.inner).await?;
                Err(lost(method))
            }
            Some(Fault::Hold(gate)) => {
                gate.hold().await;
                call(&*self.inner).await
            }
            Some(Fault::HoldAnswer(gate)) => {
                let answer = call(&*self.inner).await;
                gate.hold().await;
                answer
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                call(&*self.inner).await?;
                std::future::pending().await
            }
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by).await;
                call(&*self.inner).await
            }
        }
    }
}

impl Plan {
    fn next(&mut self, method: Method) -> Option<Fault> {
        *self.calls.entry(method).or_default() += 1;
        if let Some(scripted) = self.script.get_mut(&method).and_then(VecDeque::pop_front) {
            return scripted;
        }
        let (state, per_mille) = self.drawn.as_mut()?;
        let drawn = draw(state);
        if drawn % 1000 >= *per_mille {
            return None;
        }
        let lose = drawn & (1 << 32) != 0 && method != Method::Prune;
        Some(if lose { Fault::LoseAnswer } else { Fault::Refuse })
    }
}

/// The next number of a generator (splitmix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn unavailable(method: Method) -> StoreError {
    StoreError::refused(
        RefusedKind::Unavailable,
        format!("\"{method:?}\" was made to fail before it happened"),
    )
}

fn lost(method: Method) -> StoreError {
    if method.writes() {
        StoreError::unknown(format!("the answer of \"{method:?}\" was made to be lost"))
    } else {
        unavailable(method)
    }
}

impl Store for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        Box::pin(self.through(Method::Now, |store| store.now()))
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        Box::pin(self.through(Method::Commit, move |store| store.commit(decisions)))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        Box::pin(self.through(Method::Claim, move |store| store.claim(request)))
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        Box::pin(self.through(Method::Renew, move |store| store.renew(request)))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        Box::pin(self.through(Method::Prune, move |store| store.prune(request)))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        Box::pin(self.through(Method::Check, move |store| store.check(repair)))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        Box::pin(self.through(Method::Agenda, |store| store.agenda()))
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        Box::pin(self.through(Method::DueSchedules, move |store| store.due_schedules(limit)))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        Box::pin(self.through(Method::DueRuns, move |store| store.due_runs(after, limit)))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        Box::pin(self.through(Method::Task, move |store| store.task(&task_id)))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        Box::pin(self.through(Method::Tasks, move |store| store.tasks(page)))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        Box::pin(self.through(Method::Run, move |store| store.run(&run_id)))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let (task_id, key) = (task_id.clone(), key.to_owned());
        Box::pin(self.through(Method::RunByKey, move |store| store.run_by_key(&task_id, &key)))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        Box::pin(self.through(Method::Runs, move |store| store.runs(filter, page)))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        Box::pin(self.through(Method::Count, move |store| store.count(filter, most)))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        Box::pin(self.through(Method::Attempts, move |store| store.attempts(&run_id)))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        Box::pin(self.through(Method::Events, move |store| store.events(subject, after, limit)))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        Box::pin(self.through(Method::Occurrences, move |store| store.occurrences(&task_id, page)))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name = name.to_owned();
        Box::pin(self.through(Method::Lane, move |store| store.lane(&name)))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        Box::pin(self.through(Method::Counts, move |store| store.counts(task_id.as_ref())))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        Box::pin(self.through(Method::PutAgent, move |store| store.put_agent(&agent_id, definition)))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        Box::pin(self.through(Method::Agents, |store| store.agents()))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.silence.as_ref().map_or_else(|| self.inner.watch(), broadcast::Sender::subscribe)
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(self.through(Method::Close, |store| store.close()))
    }
}
