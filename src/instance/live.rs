//! The runs that this instance holds, from the grant until their outcome is stored or refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use tenure_actors::ProcessHandle;
use tokio::sync::{Notify, SetOnce};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::outbox::What;
use crate::model::{Payload, Progress, Run, RunId, Token};
use crate::workspace::Workspace;

/// All of them. What is not in here any more is not renewed, and cannot commit.
pub(crate) struct LiveRuns {
    most: AtomicUsize,
    by_id: Mutex<HashMap<RunId, Arc<LiveRun>>>,
    /// Notified when there is room for more.
    pub(crate) room: Notify,
    /// Notified when one has come.
    come: Notify,
    /// Notified when one has gone.
    gone: Notify,
}

/// One of them.
pub(crate) struct LiveRun {
    pub(crate) run_id: RunId,
    /// The token of the grant. Never changes: another grant is another live run.
    pub(crate) token: Token,
    /// Whether its host executes it: it takes no room from what is claimed.
    pub(crate) owned: bool,
    /// Where owned work says that it is, for who goes on from there. Kept here, and stored with its end.
    checkpoint: Mutex<Option<Payload>>,
    /// The run as it was last read or written here.
    run: Mutex<Arc<Run>>,
    /// Until when the holder may rely on the lease, without asking the store.
    relied_until: Mutex<Instant>,
    /// Cancelled when the attempt is to stop, whoever says so.
    pub(crate) stop: CancellationToken,
    /// Why it is to stop: the first reason.
    cause: OnceLock<StopCause>,
    /// Cancelled when the token has lost its authority.
    pub(crate) fenced: CancellationToken,
    /// The process that executes the attempt.
    process: OnceLock<ProcessHandle>,
    /// Whether the attempt has begun, once that is known.
    begun: SetOnce<bool>,
    /// The folder of its files, once it was asked for.
    pub(crate) workspace: OnceLock<Workspace>,
    progress: Mutex<Told>,
    /// Notified when progress is told: for who stores it, and for who waits for signs of life.
    pub(crate) told: Notify,
    alive: Notify,
}

/// What the attempt told of its progress that is not stored yet.
#[derive(Default)]
struct Told {
    pending: Option<Progress>,
    /// How much was told and replaced before it was stored.
    coalesced: u64,
    /// How much was stored.
    stored: u64,
}

/// Why an attempt is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// Somebody wants the run cancelled.
    Cancelled,
    /// The attempt's time is up.
    TimedOut,
    /// The run's time is up.
    PastDeadline,
    /// It has told no progress for too long.
    Stalled,
    /// Its generation closes.
    Interrupted,
    /// Its host was cut off from the store for longer than its lease, and lets such work stop.
    CutOff,
}

impl LiveRuns {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            by_id: Mutex::default(),
            room: Notify::new(),
            come: Notify::new(),
            gone: Notify::new(),
        }
    }

    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.room.notify_one();
    }

    /// How many more may be claimed.
    pub(crate) fn free(&self) -> usize {
        let claimed = self.by_id.lock().values().filter(|live| !live.owned).count();
        self.most.load(Ordering::Relaxed).saturating_sub(claimed)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    pub(crate) fn get(&self, run_id: &RunId) -> Option<Arc<LiveRun>> {
        self.by_id.lock().get(run_id).cloned()
    }

    /// Whether a run is held here as it is there, whatever its lease says.
    pub(crate) fn holds(&self, run: &Run) -> bool {
        let live = self.get(&run.run_id);
        live.is_some_and(|live| Some(live.token) == run.token() && !live.fenced.is_cancelled())
    }

    pub(crate) fn all(&self) -> Vec<Arc<LiveRun>> {
        self.by_id.lock().values().cloned().collect()
    }

    /// The same for a grant that may be here already: then that one is answered, and stays.
    pub(crate) fn insert_once(&self, live: &Arc<LiveRun>) -> Result<(), Arc<LiveRun>> {
        let mut by_id = self.by_id.lock();
        match by_id.get(&live.run_id) {
            Some(found) if found.token == live.token => return Err(Arc::clone(found)),
            _ => {}
        }
        let before = by_id.insert(live.run_id.clone(), Arc::clone(live));
        drop(by_id);
        self.inserted(before);
        Ok(())
    }

    pub(crate) fn insert(&self, live: Arc<LiveRun>) {
        let before = self.by_id.lock().insert(live.run_id.clone(), live);
        self.inserted(before);
    }

    fn inserted(&self, before: Option<Arc<LiveRun>>) {
        // All of them: while a generation is replaced its heartbeat waits beside that of the next one.
        self.come.notify_waiters();
        // A run that is granted again here was lost before: what is left of it has no authority.
        if let Some(before) = before {
            before.fence();
        }
    }

    /// Lets go of a run: its outcome is stored, or refused for good.
    pub(crate) fn remove(&self, live: &LiveRun) {
        self.remove_all(std::iter::once(live));
    }

    /// Lets go of runs. Told of once: who claims as many as there is room for is not to begin with the first place.
    pub(crate) fn remove_all<'a>(&self, runs: impl Iterator<Item = &'a LiveRun>) {
        for live in runs {
            live.fence();
            let mut by_id = self.by_id.lock();
            if by_id.get(&live.run_id).is_some_and(|found| found.token == live.token) {
                by_id.remove(&live.run_id);
            }
        }
        self.room.notify_one();
        self.gone.notify_waiters();
    }

    /// Waits until there is one.
    pub(crate) async fn some(&self) {
        loop {
            let come = self.come.notified();
            if self.len() > 0 {
                return;
            }
            come.await;
        }
    }

    /// Waits until there is none.
    pub(crate) async fn emptied(&self) {
        loop {
            let gone = self.gone.notified();
            if self.len() == 0 {
                return;
            }
            gone.await;
        }
    }
}

impl LiveRun {
    /// A run that was granted. `asked` is when the grant was asked for: the lease is relied on from then.
    pub(crate) fn new(run: Run, token: Token, asked: Instant, reliance: Duration) -> Arc<Self> {
        Arc::new(Self {
            run_id: run.run_id.clone(),
            token,
            owned: run.spec.is_owned(),
            checkpoint: Mutex::default(),
            run: Mutex::new(Arc::new(run)),
            relied_until: Mutex::new(asked + reliance),
            stop: CancellationToken::new(),
            cause: OnceLock::new(),
            fenced: CancellationToken::new(),
            process: OnceLock::new(),
            begun: SetOnce::new(),
            workspace: OnceLock::new(),
            progress: Mutex::default(),
            told: Notify::new(),
            alive: Notify::new(),
        })
    }

    /// The attempt has begun, or will not begin.
    pub(crate) fn has_begun(&self, begun: bool) {
        let _first = self.begun.set(begun);
    }

    /// Whether the attempt has begun. Completes when that is known.
    pub(crate) async fn begins(&self) -> bool {
        *self.begun.wait().await
    }

    pub(crate) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run.lock())
    }

    pub(crate) fn set_run(&self, run: Run) {
        *self.run.lock() = Arc::new(run);
    }

    /// Keeps where the work is, in place of where it was before.
    pub(crate) fn keep_checkpoint(&self, snapshot: Payload) {
        *self.checkpoint.lock() = Some(snapshot);
    }

    /// Where the work said last that it is.
    pub(crate) fn checkpoint(&self) -> Option<Payload> {
        self.checkpoint.lock().clone()
    }

    /// Completes when the attempt tells of itself again.
    pub(crate) async fn heard_of(&self) {
        self.alive.notified().await;
    }

    pub(crate) fn tell(&self, progress: Progress) {
        let mut told = self.progress.lock();
        if told.pending.is_some() {
            told.coalesced += 1;
        }
        told.pending = Some(progress);
        drop(told);
        self.told.notify_one();
        self.alive.notify_one();
    }

    /// What is to be stored of the progress told so far, if so much may be stored.
    pub(crate) fn take_progress(&self, most: u64) -> Option<What> {
        let mut told = self.progress.lock();
        if told.stored >= most {
            // Past the limit it is counted only, and the run is not affected (field G12).
            told.coalesced += u64::from(told.pending.take().is_some());
            return None;
        }
        let progress = told.pending.take()?;
        told.stored += 1;
        Some(What::Progress { progress, coalesced: std::mem::take(&mut told.coalesced) })
    }

    /// The lease was renewed by a request that was sent then.
    pub(crate) fn renewed(&self, asked: Instant, reliance: Duration) {
        let mut relied_until = self.relied_until.lock();
        *relied_until = (*relied_until).max(asked + reliance);
    }

    /// Whether the lease may be relied on without asking the store: never longer than the store keeps it,
    /// by this machine's monotonic clock (L12).
    pub(crate) fn is_relied_on(&self) -> bool {
        !self.fenced.is_cancelled() && Instant::now() < *self.relied_until.lock()
    }

    /// Completes when the lease may not be relied on any more.
    pub(crate) async fn unrelied(&self) {
        loop {
            let until = *self.relied_until.lock();
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }

    pub(crate) fn executes_in(&self, process: ProcessHandle) {
        let process = self.process.get_or_init(|| process);
        // Fenced before it had a process: it has lost its authority all the same.
        if self.fenced.is_cancelled() {
            let _ended_before = process.remove();
        }
    }

    /// Tells the attempt to stop. The first cause is kept.
    pub(crate) fn stop(&self, cause: StopCause) {
        let _first = self.cause.set(cause);
        self.stop.cancel();
    }

    pub(crate) fn cause(&self) -> Option<StopCause> {
        self.cause.get().copied()
    }

    /// Completes when the attempt is to stop though nothing is wrong with it: another host can go on with it.
    pub(crate) async fn interrupted(&self) {
        self.stop.cancelled().await;
        if !matches!(self.cause(), Some(StopCause::Interrupted | StopCause::CutOff)) {
            std::future::pending().await
        }
    }

    /// The token has lost its authority: from the return of this call the attempt commits nothing, and it is
    /// cut off at its next await.
    pub(crate) fn fence(&self) {
        self.fenced.cancel();
        if let Some(process) = self.process.get() {
            let _ended_before = process.remove();
        }
        self.stop.cancel();
    }
}
