//! A store as several instances use it: each call goes to one of two that share what is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};
use tenure::store::conformance::Fixture;
use tenure::store::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RenewRequest, Renewal, RunFilter, Store,
};
use tokio::sync::broadcast;

/// Opens what the fixture keeps a second time.
pub(crate) async fn relayed(fixture: Fixture) -> Fixture {
    let reopen = fixture.reopen.clone().expect("a store that can be opened twice");
    let (one, other) = (Arc::clone(&fixture.store), reopen().await);
    Fixture { store: Arc::new(Relay { one, other, calls: AtomicU64::new(0) }), ..fixture }
}

struct Relay {
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    calls: AtomicU64,
}

impl Relay {
    /// Whose turn it is: now one for some calls, now the other, and the same in each repetition.
    fn next(&self) -> &dyn Store {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let drawn = call.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63;
        if drawn == 0 { &*self.one } else { &*self.other }
    }
}

impl Store for Relay {
    fn capabilities(&self) -> Capabilities {
        self.one.capabilities()
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        self.next().now()
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        self.next().commit(decisions)
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.next().claim(request)
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.next().renew(request)
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.next().prune(request)
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        self.next().check(repair)
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.next().agenda()
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.next().due_schedules(limit)
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.next().due_runs(after, limit)
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        self.next().task(task_id)
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.next().tasks(page)
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        self.next().run(run_id)
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        self.next().run_by_key(task_id, key)
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.next().runs(filter, page)
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.next().count(filter, most)
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        self.next().attempts(run_id)
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.next().events(subject, after, limit)
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        self.next().occurrences(task_id, page)
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        self.next().lane(name)
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        self.next().counts(task_id)
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        self.next().put_agent(agent_id, definition)
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.next().agents()
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.one.watch()
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.one.close().await?;
            self.other.close().await
        })
    }
}
