//! A store that tells the stage where it is, and waits there for a word.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure::model::{
    AgentId, Attempt, Event, EventKind, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task,
    TaskId, Timestamp,
};
use tenure::store::{
    Agenda, Answer, Between, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page,
    PageRequest, PruneRequest, Pruned, Refusal, RenewRequest, Renewal, RunFilter, Store,
};
use tokio::sync::{broadcast, oneshot};

use crate::wire::{At, Point, Told, Window, line};

/// Where a worker waits for words of the stage.
pub(crate) struct Gate {
    windows: Vec<Window>,
    /// Where it waits, once, if it waits only where it was told to.
    told: Option<Mutex<Option<(Window, Point)>>>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

impl Gate {
    pub(crate) fn new(windows: Vec<Window>, waits_when_told: bool) -> Self {
        let told = waits_when_told.then(Mutex::default);
        Self { windows, told, next: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// It waits there the next time.
    pub(crate) fn wait_at(&self, place: Option<(Window, Point)>) {
        if let Some(told) = &self.told {
            *told.lock() = place;
        }
    }

    /// Whether it waits there now. Who was told to waits once, and not where there is nothing to lose.
    fn waits(&self, at: &At) -> bool {
        let Some(told) = &self.told else { return self.windows.contains(&at.window) };
        let mut told = told.lock();
        let there = *told == Some((at.window, at.point));
        let waits = there && (at.point == Point::Before || at.many > 0);
        if waits {
            *told = None;
        }
        waits
    }

    /// Tells what the store refused, where nobody is asked for a word about it.
    fn tell_refused(&self, at: &At) {
        if self.told.is_some() && !at.refused.is_empty() {
            say(&Told::Refused { window: at.window, refused: at.refused.clone() });
        }
    }

    pub(crate) fn go(&self, id: u64) {
        if let Some(waiting) = self.waiting.lock().remove(&id) {
            // Who waited has given up: fine.
            let _ = waiting.send(());
        }
    }

    fn stop_at(&self, at: At) -> Option<oneshot::Receiver<()>> {
        self.tell_refused(&at);
        if !self.waits(&at) {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (go, word) = oneshot::channel();
        self.waiting.lock().insert(id, go);
        say(&Told::At { id, at });
        Some(word)
    }

    async fn pass(&self, at: At) {
        if let Some(word) = self.stop_at(at) {
            let _ = word.await;
        }
    }

    /// As the writer of the store does, within its transaction, and who waits for its disk.
    pub(crate) fn look(&self, between: Between) {
        let (window, point) = match between {
            Between::RunAndAttempt(kind) => (window_of(kind), Point::BeforeAttempt),
            Between::AttemptAndEvent(kind) => (window_of(kind), Point::BeforeEvent),
            Between::RenewalAndCommit => (Some(Window::Renew), Point::BeforeEvent),
            Between::CommitAndDisk => (Some(Window::Disk), Point::Before),
        };
        let at = window.map(|window| At { window, point, many: 1, refused: Vec::new() });
        if let Some(word) = at.and_then(|at| self.stop_at(at)) {
            let _ = word.blocking_recv();
        }
    }
}

/// Tells the stage. Without a stage there is nothing to live for.
pub(crate) fn say(told: &Told) {
    let mut out = std::io::stdout().lock();
    if out.write_all(line(told).as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

fn window_of(kind: EventKind) -> Option<Window> {
    Some(match kind {
        EventKind::TaskScheduled => Window::Fire,
        EventKind::Queued | EventKind::Skipped => Window::Enqueue,
        EventKind::Claimed => Window::Claim,
        EventKind::Started => Window::Start,
        EventKind::Progress => Window::Progress,
        EventKind::Completed | EventKind::Retrying | EventKind::Failed => Window::Outcome,
        EventKind::Lost | EventKind::Recovered => Window::Recover,
        _ => return None,
    })
}

fn window_of_commit(decisions: &[Decision]) -> Option<Window> {
    if decisions.iter().any(|decision| decision.schedule.is_some() && !decision.occurrences.is_empty()) {
        return Some(Window::Fire);
    }
    let mut events = decisions.iter().flat_map(|decision| &decision.runs).flat_map(|write| &write.events);
    events.find_map(|event| window_of(event.kind))
}

/// The store of a worker.
pub(crate) struct Gated {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Arc<Gate>,
}

impl Gated {
    /// Asks the store, and stops before and after.
    fn through<'a, T: Send + 'a>(
        &'a self,
        window: Option<Window>,
        answer: Answer<'a, T>,
        tell: fn(&T) -> (usize, Vec<String>),
    ) -> Answer<'a, T> {
        let Some(window) = window else { return answer };
        Box::pin(async move {
            let before = At { window, point: Point::Before, many: 0, refused: Vec::new() };
            self.gate.pass(before).await;
            let answer = answer.await;
            let (many, refused) = answer.as_ref().map(tell).unwrap_or_default();
            self.gate.pass(At { window, point: Point::After, many, refused }).await;
            answer
        })
    }
}

fn tell_commit(answers: &[Result<(), Refusal>]) -> (usize, Vec<String>) {
    let refused: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err())
        .map(|refusal| format!("{refusal:?}"))
        .collect();
    (answers.len() - refused.len(), refused)
}

fn tell_renewals(answers: &[Renewal]) -> (usize, Vec<String>) {
    let renewed = |renewal: &&Renewal| matches!(renewal, Renewal::Renewed { .. });
    let refused: Vec<String> =
        answers.iter().filter(|r| !renewed(r)).map(|renewal| format!("{renewal:?}")).collect();
    (answers.len() - refused.len(), refused)
}

/// Calls that pass as they are.
macro_rules! pass {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $answer {
            self.store.$name($($argument),*)
        })*
    };
}

impl Store for Gated {
    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        let window = window_of_commit(&decisions);
        self.through(window, self.store.commit(decisions), |answers| tell_commit(answers))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.through(Some(Window::Claim), self.store.claim(request), |granted| (granted.len(), Vec::new()))
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.through(Some(Window::Renew), self.store.renew(request), |answers| tell_renewals(answers))
    }

    pass! {
        capabilities() -> Capabilities;
        now() -> Answer<'_, Timestamp>;
        prune(request: PruneRequest) -> Answer<'_, Pruned>;
        check(repair: bool) -> Answer<'_, Vec<String>>;
        agenda() -> Answer<'_, Agenda>;
        due_schedules(limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>>;
        due_runs(after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>>;
        task(task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>>;
        tasks(page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>>;
        run(run_id: &RunId) -> Answer<'_, Option<Run>>;
        run_by_key(task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>>;
        runs(filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>>;
        count(filter: RunFilter, most: u64) -> Answer<'_, Counted>;
        attempts(run_id: &RunId) -> Answer<'_, Vec<Attempt>>;
        events(subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>>;
        occurrences(task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>>;
        lane(name: &str) -> Answer<'_, LaneView>;
        counts(task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>>;
        put_agent(agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()>;
        agents() -> Answer<'_, Vec<(AgentId, Arc<str>)>>;
        watch() -> broadcast::Receiver<Hint>;
        close() -> Answer<'_, ()>;
    }
}
