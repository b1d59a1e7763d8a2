//! Everything in this OS process, behind one lock: the reference model of the port, and the store of programs
//! that need nothing to outlive them.
//!
//! Whatever is looked for has an index, so that no call scans what it does not answer: a claim costs the same
//! before five hundred thousand runs that are not due and a hundred thousand that wait for a lane (field G3).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use self::state::State;
use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::clock::Clock;
use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};

mod check;
mod claim;
mod commit;
mod index;
mod journal;
mod lanes;
pub(super) mod page;
#[cfg(feature = "mongodb")]
pub(super) mod part;
mod places;
mod prune;
mod read;
mod state;

/// How many hints a watcher may leave unread before it misses some.
const HINTS_KEPT: usize = 256;

/// Keeps everything in memory. What it holds is gone when it is dropped.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    hints: broadcast::Sender<Hint>,
}

impl MemoryStore {
    /// An empty store that goes by this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::new(State::default()), hints: broadcast::Sender::new(HINTS_KEPT) }
    }

    /// Reads one consistent snapshot.
    fn read<'a, T: Send + 'a>(&'a self, read: impl FnOnce(&State) -> T + Send + 'a) -> Answer<'a, T> {
        self.try_read(|state| Ok(read(state)))
    }

    fn try_read<'a, T: Send + 'a>(
        &'a self,
        read: impl FnOnce(&State) -> Result<T, StoreError> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let state = self.state.lock();
            if state.closed { Err(closed()) } else { read(&state) }
        })
    }

    /// Makes one transaction, and tells the watchers what it changed.
    fn write<'a, T: Send + 'a>(
        &'a self,
        write: impl FnOnce(&mut State, Timestamp, &mut Hint) -> T + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let mut state = self.state.lock();
            if state.closed {
                return Err(closed());
            }
            let before = state.journal.cursor();
            let mut hint = Hint::default();
            let answer = write(&mut state, self.clock.now(), &mut hint);
            hint.cursor = state.journal.cursor();
            // Sent under the lock, so that hints come in the order of the transactions.
            if hint.ready || hint.agenda || hint.agents || !hint.cancels.is_empty() || hint.cursor > before {
                // Nobody has to listen.
                let _ = self.hints.send(hint);
            }
            Ok(answer)
        })
    }
}

fn closed() -> StoreError {
    StoreError::refused(RefusedKind::Closed, "the memory store was closed; open another one")
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            durable: false,
            shared: false,
            watch_across: false,
            server_clock: false,
        }
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        self.read(|_| self.clock.now())
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        self.write(|state, now, hint| {
            decisions.into_iter().map(|decision| state.commit(decision, now, hint)).collect()
        })
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.write(move |state, now, hint| state.claim(&request, now, hint))
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.write(move |state, now, _| state.renew(&request, now))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.write(move |state, _, _| state.prune(request))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        self.write(move |state, now, _| state.check(repair, now))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.read(|state| state.agenda(self.clock.now()))
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.read(move |state| state.due_schedules(limit, self.clock.now()))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.read(move |state| state.due_runs(after, limit, self.clock.now()))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        self.read(move |state| state.tasks.get(&task_id).map(|entry| entry.read()))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.try_read(move |state| state.page_of_tasks(&page))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        self.read(move |state| state.runs.by_id(&run_id).map(|record| record.run.clone()))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let key = (task_id.clone(), Arc::from(key));
        self.read(move |state| state.run_by_key(&key).cloned())
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.try_read(move |state| state.page_of_runs(&filter, &page))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.read(move |state| state.count(&filter, most))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        self.read(move |state| state.attempts(&run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.read(move |state| state.events(&subject, after, limit))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        self.try_read(move |state| state.page_of_occurrences(&task_id, &page))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name: Arc<str> = name.into();
        self.read(move |state| state.lane(&name))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        self.read(move |state| state.index.counts(task_id.as_ref()))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.write(move |state, _, hint| {
            match definition {
                Some(definition) => state.agents.insert(agent_id, definition),
                None => state.agents.remove(&agent_id),
            };
            hint.agents = true;
        })
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.read(|state| state.agents.iter().map(|(id, text)| (id.clone(), Arc::clone(text))).collect())
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.state.lock().closed = true;
            Ok(())
        })
    }
}
