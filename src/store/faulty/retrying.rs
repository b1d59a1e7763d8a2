//! A caller that tries again what failed and may yet succeed.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};
use crate::store::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RenewRequest, Renewal, RunFilter, Store, StoreError, TaskChange,
};

/// The most tries of one call: a store that never answers otherwise is not waited for.
const TRIES: usize = 100;

/// Repeats calls that may succeed yet, at once. A claim says that it is repeated. Decisions are made one by
/// one, so that no later one hides from the repeated call that an earlier one was made; those of other runs each go
/// together.
#[derive(Clone)]
pub struct Retrying {
    inner: Arc<dyn Store>,
}

impl std::fmt::Debug for Retrying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retrying").field("inner", &self.inner.capabilities().name).finish()
    }
}

impl Retrying {
    /// Repeats calls to this store.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }

    fn again<'a, T: Send + 'a>(
        &'a self,
        call: impl FnMut(&'a dyn Store, bool) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move { Ok(self.repeat(call).await?.0) })
    }

    /// `call` is told whether it is made again after its answer was lost; so is the caller.
    async fn repeat<'a, T>(
        &'a self,
        mut call: impl FnMut(&'a dyn Store, bool) -> Answer<'a, T>,
    ) -> Result<(T, bool), StoreError> {
        let mut lost = false;
        for _ in 1..TRIES {
            match call(&*self.inner, lost).await {
                Ok(answer) => return Ok((answer, lost)),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => lost |= matches!(error, StoreError::Unknown { .. }),
            }
        }
        Ok((call(&*self.inner, lost).await?, lost))
    }

    async fn decide(&self, decision: Decision) -> Result<Result<(), Refusal>, StoreError> {
        let (mut answers, lost) = self.repeat(|store, _| store.commit(vec![decision.clone()])).await?;
        let answer = answers.pop().ok_or_else(|| StoreError::unknown("one decision, and no answer"))?;
        if lost && answer.is_err() && decision.runs.is_empty() && self.stands(&decision).await? {
            return Ok(Ok(()));
        }
        Ok(answer)
    }

    /// Whether the records of a decision without runs are what it makes them: runs carry a stamp, these are
    /// known by what they say.
    async fn stands(&self, decision: &Decision) -> Result<bool, StoreError> {
        if let Some(write) = &decision.task {
            let id = write.task_id.clone();
            let standing = self.task(&id).await?.map(|(task, _)| task);
            let made = match (&write.change, &standing) {
                (TaskChange::Keep, _) => true,
                (TaskChange::Put(task), Some(standing)) => same(task, standing),
                (TaskChange::Delete, None) => true,
                (TaskChange::Put(_), None) | (TaskChange::Delete, Some(_)) => false,
            };
            if !made {
                return Ok(false);
            }
        }
        if let Some(write) = &decision.schedule {
            let standing = self.task(&write.state.task_id).await?.map(|(_, state)| state);
            if standing.as_ref() != Some(&write.state) {
                return Ok(false);
            }
        }
        for occurrence in &decision.occurrences {
            let page = PageRequest { limit: usize::MAX, cursor: None };
            if !self.occurrences(&occurrence.task_id, page).await?.items.contains(occurrence) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether each writes runs alone, and no run is written twice.
fn are_of_other_runs(decisions: &[Decision]) -> bool {
    let mut seen = HashSet::new();
    decisions.iter().all(|decision| {
        let Decision { task: None, schedule: None, runs, lanes, occurrences, forget } = decision else {
            return false;
        };
        let runs_alone = lanes.is_empty() && occurrences.is_empty() && forget.is_empty();
        runs_alone && !runs.is_empty() && runs.iter().all(|write| seen.insert(&write.run.run_id))
    })
}

fn same(one: &Task, other: &Task) -> bool {
    let text = |task: &Task| serde_json::to_string(task).ok();
    one.last_event == other.last_event && text(one) == text(other)
}

impl Store for Retrying {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        self.again(|store, _| store.now())
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        Box::pin(async move {
            if are_of_other_runs(&decisions) {
                return Ok(self.repeat(|store, _| store.commit(decisions.clone())).await?.0);
            }
            let mut answers = Vec::new();
            for decision in decisions {
                answers.push(self.decide(decision).await?);
            }
            Ok(answers)
        })
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.again(move |store, lost| {
            store.claim(ClaimRequest { repeat: lost || request.repeat, ..request.clone() })
        })
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.again(move |store, _| store.renew(request.clone()))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.again(move |store, _| store.prune(request))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        self.again(move |store, _| store.check(repair))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.again(|store, _| store.agenda())
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.again(move |store, _| store.due_schedules(limit))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.again(move |store, _| store.due_runs(after.clone(), limit))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        self.again(move |store, _| store.task(&task_id))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.again(move |store, _| store.tasks(page.clone()))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        self.again(move |store, _| store.run(&run_id))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let (task_id, key) = (task_id.clone(), key.to_owned());
        self.again(move |store, _| store.run_by_key(&task_id, &key))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.again(move |store, _| store.runs(filter.clone(), page.clone()))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.again(move |store, _| store.count(filter.clone(), most))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        self.again(move |store, _| store.attempts(&run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.again(move |store, _| store.events(subject.clone(), after, limit))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        self.again(move |store, _| store.occurrences(&task_id, page.clone()))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name = name.to_owned();
        self.again(move |store, _| store.lane(&name))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        self.again(move |store, _| store.counts(task_id.as_ref()))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.again(move |store, _| store.put_agent(&agent_id, definition.clone()))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.again(|store, _| store.agents())
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    fn close(&self) -> Answer<'_, ()> {
        self.again(|store, _| store.close())
    }
}
