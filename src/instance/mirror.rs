//! Keeps `run.json` and `events.jsonl` of runs up to date, from the store and never from memory: what a file
//! says was stored before.
//!
//! A mirror is behind and never ahead; what is missed (a crash, a run that others changed) is made up when the
//! run changes here next, or when somebody looks at its files.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tenure_actors::{ProcessContext, ProcessResult};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Instance;
use super::files::{Files, is_mirrored};
use super::outage::Outage;
use crate::error::Error;
use crate::model::{Event, InstanceId, Run, RunId, Subject};
use crate::tasks;
use crate::view::RunView;
use crate::workspace::{RUN_JSON, WorkspaceError, WorkspaceRoot};

/// How many runs are taken at once, and how many of them are worked on at the same time.
const BATCH: usize = 64;
const AT_ONCE: usize = 8;

/// The most runs that wait. Past it the mirrors of others wait until somebody looks at them.
const MOST_WAITING: usize = 100_000;

/// The most events that are read at once.
const PAGE: usize = 500;

/// The pauses while the disk or the store fails.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The runs whose mirrors are behind, each once however often it changed.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<RunId>,
    known: HashSet<RunId>,
}

impl Queue {
    /// The mirror of this run is behind.
    pub(super) fn push(&self, run_id: RunId) {
        let mut waiting = self.waiting.lock();
        if waiting.order.len() < MOST_WAITING && waiting.known.insert(run_id.clone()) {
            waiting.order.push_back(run_id);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// What changes from now on waits again: it is read after this.
    fn take(&self) -> Vec<RunId> {
        let mut waiting = self.waiting.lock();
        let many = waiting.order.len().min(BATCH);
        let taken: Vec<RunId> = waiting.order.drain(..many).collect();
        for run_id in &taken {
            waiting.known.remove(run_id);
        }
        taken
    }
}

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    let Some(files) = &instance.files else {
        context.cancelled().await;
        return Ok(());
    };
    let mut late = Late::default();
    loop {
        tokio::select! {
            () = files.queue.filled.notified() => {}
            () = sleep_until(late.until), if !late.runs.is_empty() => late.give_back(&files.queue),
            () = context.cancelled() => break,
        }
        instance.mirror_waiting(files, &mut late).await;
    }
    // The services that change runs have ended or hand on to the next generation: the rest within the patience.
    late.give_back(&files.queue);
    instance.mirror_waiting(files, &mut late).await;
    Ok(())
}

/// Runs whose mirrors could not be written, until they are tried again.
struct Late {
    runs: HashSet<RunId>,
    until: Instant,
    pause: Duration,
}

impl Default for Late {
    fn default() -> Self {
        Self { runs: HashSet::new(), until: Instant::now(), pause: PAUSE }
    }
}

impl Late {
    fn add(&mut self, failed: Vec<(RunId, Error)>, outage: &Outage) {
        // What an attempt put in the place of a file of ours does not go away by itself: the next change tries again.
        let (lasting, failed): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|(_, error)| matches!(error, Error::Invalid(_)));
        for (run_id, error) in lasting {
            tracing::warn!(run = %run_id, %error, "the files of a run are left as they are");
        }
        let Some((run_id, error)) = failed.first() else { return };
        if self.runs.is_empty() {
            // Once a pause, however many runs it concerns.
            match error {
                Error::Store(error) => outage.seldom("files of runs are behind", error),
                _ => {
                    tracing::warn!(run = %run_id, %error, pause = ?self.pause, "files of runs are behind the store")
                }
            }
            self.until = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        let room = MOST_WAITING.saturating_sub(self.runs.len());
        self.runs.extend(failed.into_iter().map(|(run_id, _)| run_id).take(room));
    }

    fn give_back(&mut self, queue: &Queue) {
        self.runs.drain().for_each(|run_id| queue.push(run_id));
    }
}

impl Instance {
    /// Mirrors what waits; for who ends and has no time to try again.
    pub(crate) async fn mirror_rest(&self) {
        if let Some(files) = &self.files {
            self.mirror_waiting(files, &mut Late::default()).await;
        }
    }

    async fn mirror_waiting(&self, files: &Files, late: &mut Late) {
        let mut failures = false;
        loop {
            let batch = files.queue.take();
            if batch.is_empty() {
                break;
            }
            let failed = Mutex::new(Vec::new());
            futures_util::stream::iter(batch)
                .for_each_concurrent(AT_ONCE, |run_id| async {
                    if let Err(error) = self.mirror_by_id(files, &run_id).await {
                        failed.lock().push((run_id, error));
                    }
                })
                .await;
            let failed = failed.into_inner();
            failures |= !failed.is_empty();
            late.add(failed, &self.outage);
        }
        if !failures && late.runs.is_empty() {
            late.pause = PAUSE;
        }
    }

    async fn mirror_by_id(&self, files: &Files, run_id: &RunId) -> Result<(), Error> {
        let _not_removed = files.removing.read().await;
        let Some(run) = self.vitals.watch(self.store.run(run_id)).await? else { return Ok(()) };
        let told = look(files, &run).await?;
        if self.elsewhere(&run, &told).await?.is_none() {
            self.catch_up(files, &run, told.last_event).await?;
        }
        Ok(())
    }

    /// Brings the mirror of this run up to date while it is not removed, for who looks at its files. Answers the
    /// instance at which its files are, if they are not here.
    pub(crate) async fn mirror_now(&self, files: &Files, run: &Run) -> Result<Option<InstanceId>, Error> {
        let _not_removed = files.removing.read().await;
        let told = match look(files, run).await {
            Ok(told) => told,
            // What an attempt put in the place of a file of ours hides none of the others.
            Err(error) => {
                tracing::warn!(run = %run.run_id, %error, "the files of a run are shown as they are");
                return Ok(None);
            }
        };
        let elsewhere = self.elsewhere(run, &told).await?;
        if elsewhere.is_none()
            && let Err(error) = self.catch_up(files, run, told.last_event).await
        {
            tracing::warn!(run = %run.run_id, %error, "the files of a run are shown as they are");
        }
        Ok(elsewhere)
    }

    /// Where the latest attempt of a run was made, if its files are not here. What an earlier start of this host
    /// executed is told of by the mirror here, and by no other.
    async fn elsewhere(&self, run: &Run, told: &Told) -> Result<Option<InstanceId>, Error> {
        let unmirrored = told.folder && !is_mirrored(run);
        if self.settings().workspace_shared || run.attempt <= told.attempt || unmirrored {
            return Ok(None);
        }
        let owner = match run.lease {
            Some(lease) => Some(lease.owner),
            None => {
                self.vitals.watch(self.store.attempts(&run.run_id)).await?.last().map(|last| last.instance)
            }
        };
        Ok(owner.filter(|owner| *owner != self.id))
    }

    /// Appends the events after the last one that is there; then the run, which was read before them.
    async fn catch_up(&self, files: &Files, run: &Run, mut last: u64) -> Result<(), Error> {
        loop {
            let mut events = Vec::new();
            if run.spec.write_events_jsonl {
                let subject = Subject::Run(run.run_id.clone());
                events = self.vitals.watch(self.store.events(subject, last, PAGE)).await?;
            }
            let more = events.len() == PAGE;
            let (root, run) = (files.root.clone(), run.clone());
            let write = move || write(&root, &run, &events, !more);
            last = blocking(write).await?.max(last);
            if !more {
                return Ok(());
            }
        }
    }
}

/// What the mirror of a run tells as it is.
#[derive(Default)]
struct Told {
    /// Whether there is a folder at all.
    folder: bool,
    last_event: u64,
    attempt: u32,
}

async fn look(files: &Files, run: &Run) -> Result<Told, Error> {
    let (root, run) = (files.root.clone(), run.clone());
    blocking(move || {
        let Some(workspace) = root.find(&run.run_id, &run.spec.workspace_path)? else {
            return Ok(Told::default());
        };
        let (last_event, attempt) =
            if run.spec.write_events_jsonl { workspace.last_told()? } else { (0, workspace.kept_attempt()) };
        Ok(Told { folder: true, last_event, attempt })
    })
    .await
}

/// Answers the number of the last event in the file.
fn write(root: &WorkspaceRoot, run: &Run, events: &[Event], whole: bool) -> Result<u64, WorkspaceError> {
    let mut last = 0;
    if !is_mirrored(run) {
        return Ok(last);
    }
    let workspace = root.run(&run.run_id, &run.spec.workspace_path)?;
    if run.spec.write_events_jsonl {
        last = workspace.append_events(events)?.last;
    }
    if whole && run.spec.write_run_json {
        workspace.write_run(&RunView::from(run))?;
    }
    Ok(last)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, Error> {
    match tasks::blocking(work).await {
        Ok(answer) => answer.map_err(|error| Error::Workspace(Arc::new(error))),
        Err(ended) => Err(Error::Workspace(Arc::new(WorkspaceError::ended(RUN_JSON, ended)))),
    }
}
