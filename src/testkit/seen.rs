//! What became of a task, and assertions on it that tell the whole story when they fail.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::history;
use crate::model::{
    Attempt, Event, InstanceId, Occurrence, OccurrenceOutcome, Run, ScheduleState, SkipReason, Subject, Task,
    TaskId, Timestamp,
};
use crate::store::{Page, PageRequest, RunFilter, Store, StoreError};

/// A task with its schedule, occurrences, runs, attempts and events, as they were at one moment. Shown as
/// text it is the history of the task.
///
/// What it asserts is written in the words of the contract, separated by commas: `"completed, skipped"`.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The task and its schedule; none when it was deleted.
    pub task: Option<(Task, ScheduleState)>,
    /// What became of its occurrences, the oldest first.
    pub occurrences: Vec<Occurrence>,
    /// Its runs, the oldest first.
    pub runs: Vec<SeenRun>,
    /// Its own events, in order.
    pub events: Vec<Event>,
    pub(super) task_id: TaskId,
    pub(super) start: Timestamp,
    pub(super) instances: Vec<InstanceId>,
}

/// A run with its attempts and events.
#[derive(Debug, Clone)]
pub struct SeenRun {
    /// The run.
    pub run: Run,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Its events, in order.
    pub events: Vec<Event>,
    /// The history of the task, for who fails.
    story: Arc<str>,
}

const ALL: usize = usize::MAX;

impl Seen {
    pub(super) async fn of(
        store: &dyn Store,
        task_id: TaskId,
        start: Timestamp,
        instances: Vec<InstanceId>,
    ) -> Self {
        match Self::read(store, &task_id, start, instances).await {
            Ok(seen) => seen,
            Err(error) => panic!("what became of task \"{task_id}\" cannot be read: {error}"),
        }
    }

    async fn read(
        store: &dyn Store,
        task_id: &TaskId,
        start: Timestamp,
        instances: Vec<InstanceId>,
    ) -> Result<Self, StoreError> {
        let task = store.task(task_id).await?;
        let occurrences = oldest_first(async |page| store.occurrences(task_id, page).await).await?;
        let filter = RunFilter { task_id: Some(task_id.clone()), ..RunFilter::default() };
        let found = oldest_first(async |page| store.runs(filter.clone(), page).await).await?;
        let mut runs = Vec::with_capacity(found.len());
        for run in found {
            let attempts = store.attempts(&run.run_id).await?;
            let events = store.events(Subject::Run(run.run_id.clone()), 0, ALL).await?;
            runs.push(SeenRun { run, attempts, events, story: "".into() });
        }
        let events = store.events(Subject::Task(task_id.clone()), 0, ALL).await?;
        let mut seen = Self { task, occurrences, runs, events, task_id: task_id.clone(), start, instances };
        let story: Arc<str> = seen.to_string().into();
        seen.runs.iter_mut().for_each(|run| run.story = Arc::clone(&story));
        Ok(seen)
    }

    /// The run with this number, from 1, the oldest first.
    ///
    /// # Panics
    /// When there is no such run.
    #[must_use]
    #[track_caller]
    pub fn run(&self, number: usize) -> &SeenRun {
        let run = number.checked_sub(1).and_then(|at| self.runs.get(at));
        run.unwrap_or_else(|| panic!("there is no run#{number} among {} runs\n\n{self}", self.runs.len()))
    }

    /// Where its runs stand, the oldest first: `"completed, skipped, queued"`.
    ///
    /// # Panics
    /// When they stand otherwise.
    #[track_caller]
    pub fn assert_statuses(&self, expected: &str) -> &Self {
        let found = self.runs.iter().map(|run| run.run.status.as_str());
        same("the runs are", &joined(found), expected, self);
        self
    }

    /// How many of its runs stand so: `assert_count("completed", 3)`.
    ///
    /// # Panics
    /// When there are more or fewer.
    #[track_caller]
    pub fn assert_count(&self, status: &str, expected: usize) -> &Self {
        let found = self.runs.iter().filter(|run| run.run.status.as_str() == status).count();
        assert!(found == expected, "{found} runs are {status}, expected {expected}\n\n{self}");
        self
    }

    /// What became of its occurrences, the oldest first: `"ran, coalesced, skipped: missed"`.
    ///
    /// # Panics
    /// When it was something else.
    #[track_caller]
    pub fn assert_occurrences(&self, expected: &str) -> &Self {
        let found = self.occurrences.iter().map(|occurrence| outcome(&occurrence.outcome));
        same("the occurrences", &joined(found), expected, self);
        self
    }

    /// Its own events, by their names without `background_task_`: `"created, paused, resumed"`.
    ///
    /// # Panics
    /// When there were others.
    #[track_caller]
    pub fn assert_events(&self, expected: &str) -> &Self {
        same("the events of the task are", &joined(self.events.iter().map(event_name)), expected, self);
        self
    }
}

impl SeenRun {
    /// Where it stands: `"completed"`.
    ///
    /// # Panics
    /// When it stands elsewhere.
    #[track_caller]
    pub fn assert_status(&self, expected: &str) -> &Self {
        same("the run is", self.run.status.as_str(), expected, &self.story);
        self
    }

    /// What its attempts came to, in order: `"failed, completed"`.
    ///
    /// # Panics
    /// When they came to something else.
    #[track_caller]
    pub fn assert_attempts(&self, expected: &str) -> &Self {
        let found = self.attempts.iter().map(|attempt| word(&attempt.status));
        same("the attempts are", &joined(found), expected, &self.story);
        self
    }

    /// Its events, by their names without `background_run_`: `"queued, claimed, started, completed"`.
    ///
    /// # Panics
    /// When there were others.
    #[track_caller]
    pub fn assert_events(&self, expected: &str) -> &Self {
        same("the events of the run are", &self.event_names(), expected, &self.story);
        self
    }

    /// That its events are numbered from 1 without gaps, and no instant comes before the one before it.
    ///
    /// # Panics
    /// When they are not.
    #[track_caller]
    pub fn assert_gapless(&self) -> &Self {
        let numbers: Vec<u64> = self.events.iter().map(|event| event.sequence).collect();
        let expected: Vec<u64> = (1..=self.events.len() as u64).collect();
        assert!(numbers == expected, "the events are numbered {numbers:?}\n\n{}", self.story);
        let ordered = self.events.is_sorted_by_key(|event| (event.timestamp, event.cursor));
        assert!(ordered, "the events are out of order\n\n{}", self.story);
        self
    }

    /// The class of its error: `"timeout"`.
    ///
    /// # Panics
    /// When it has another or none.
    #[track_caller]
    pub fn assert_error(&self, class: &str) -> &Self {
        let found = self.run.error.as_ref().map_or("none", |error| &error.class);
        same("the error is", found, class, &self.story);
        self
    }

    /// What it answered.
    ///
    /// # Panics
    /// When it answered something else.
    #[track_caller]
    pub fn assert_result(&self, expected: &str) -> &Self {
        let found = self.run.result.as_ref().map_or("none".to_owned(), |result| result.preview());
        same("the result is", &found, expected, &self.story);
        self
    }

    /// That it was skipped because of this run.
    ///
    /// # Panics
    /// When it was not, or because of another.
    #[track_caller]
    pub fn assert_skipped_because_of(&self, other: &SeenRun) -> &Self {
        self.assert_status("skipped");
        let because = self.run.blocked_by.as_ref() == Some(&other.run.run_id);
        assert!(because, "it was skipped because of another run\n\n{}", self.story);
        self
    }

    /// The names of its events, without `background_run_`, separated by commas.
    #[must_use]
    pub fn event_names(&self) -> String {
        joined(self.events.iter().map(event_name))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&history::of(self))
    }
}

#[track_caller]
fn same(what: &str, found: &str, expected: &str, story: &dyn fmt::Display) {
    assert!(found == expected, "{what}: {found}\nexpected: {expected}\n\n{story}");
}

async fn oldest_first<T>(
    read: impl AsyncFn(PageRequest) -> Result<Page<T>, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    let mut page = PageRequest { limit: 1000, cursor: None };
    loop {
        let found = read(page.clone()).await?;
        all.extend(found.items);
        match found.next {
            Some(cursor) => page.cursor = Some(cursor),
            None => break,
        }
    }
    all.reverse();
    Ok(all)
}

fn joined(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    words.map(|word| word.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

/// The word of the contract for a value of a closed set.
pub(super) fn word(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

pub(super) fn event_name(event: &Event) -> String {
    let name = word(&event.event);
    let short = name.strip_prefix("background_run_").or_else(|| name.strip_prefix("background_task_"));
    short.unwrap_or(&name).to_owned()
}

pub(super) fn outcome(outcome: &OccurrenceOutcome) -> String {
    match outcome {
        OccurrenceOutcome::Ran { .. } => "ran".to_owned(),
        OccurrenceOutcome::Coalesced { .. } => "coalesced".to_owned(),
        OccurrenceOutcome::Skipped { reason: SkipReason::Overlap { .. } } => "skipped: overlap".to_owned(),
        OccurrenceOutcome::Skipped { reason } => format!("skipped: {}", word(reason)),
    }
}
