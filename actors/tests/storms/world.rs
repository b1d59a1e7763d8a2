//! What a storm keeps account of: every effect, every start, every close that has returned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_actors::{CloseReport, Generation, OperationLease, ProcessHandle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script::{Crash, Plan, Timing};

/// Everything that the invariants are judged by.
pub(crate) struct World {
    pub(crate) timing: Timing,
    pub(crate) accounts: Mutex<Accounts>,
    pub(crate) records: Mutex<Vec<Arc<Record>>>,
    /// By the number of the record. Not in the record: a process holds its record, a handle its process.
    pub(crate) handles: Mutex<BTreeMap<usize, ProcessHandle>>,
    pub(crate) leases: Mutex<Vec<Held>>,
    /// Keys of every reservation that was made, by its owner.
    pub(crate) keys: Mutex<HashMap<String, Vec<String>>>,
    pub(crate) generations: Mutex<BTreeMap<u64, Generation>>,
    pub(crate) faults: Mutex<Vec<String>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    live: watch::Sender<BTreeMap<usize, String>>,
    next: AtomicUsize,
}

/// By epoch.
#[derive(Default)]
pub(crate) struct Accounts {
    pub(crate) applied: BTreeMap<u64, u64>,
    pub(crate) refused: BTreeMap<u64, u64>,
    /// The refusals that had been seen when the close was first asked for.
    pub(crate) refused_before: BTreeMap<u64, u64>,
    /// Generations, and registries alone, whose close has returned.
    pub(crate) closed: BTreeSet<u64>,
    pub(crate) registries_closed: BTreeSet<u64>,
    /// Generations that somebody asked to close, in whatever way.
    pub(crate) closing: BTreeSet<u64>,
    pub(crate) reports: BTreeMap<u64, Arc<CloseReport>>,
    /// Asynchronous effects that came to their end after the close had returned: epoch and process.
    pub(crate) late_ends: Vec<(u64, String)>,
    /// The holder of every key as far as the script itself holds the lease: epoch and key.
    pub(crate) holders: BTreeMap<(u64, String), String>,
}

/// A lease that the script holds itself.
pub(crate) struct Held {
    pub(crate) lease: OperationLease,
    pub(crate) epoch: u64,
    pub(crate) owner: String,
}

/// One start of a process, and what was seen of it.
pub(crate) struct Record {
    pub(crate) number: usize,
    pub(crate) epoch: u64,
    pub(crate) id: String,
    pub(crate) plan: Plan,
    /// Calls of `start`, of the function, or of `pre_start`.
    pub(crate) starts: AtomicUsize,
    /// Calls of `close`, or of `post_stop`.
    pub(crate) closes: AtomicUsize,
    pub(crate) answer: OnceLock<Answer>,
    /// It lost its authority for good: a close or a removal has returned.
    pub(crate) revoked: AtomicBool,
    /// Somebody asked to close it alone.
    pub(crate) closing: AtomicBool,
    /// It was removed while it ran and before any close was asked for.
    pub(crate) removed_first: AtomicBool,
    pub(crate) crash: watch::Sender<Option<Crash>>,
    pub(crate) caller_left: AtomicBool,
}

pub(crate) enum Answer {
    Started,
    /// Before anything of it ran.
    Refused(String),
    Failed(String),
    Killed,
}

/// Alive as long as what holds it; all of them are gone in the end.
pub(crate) struct Guard(watch::Sender<BTreeMap<usize, String>>, usize);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_modify(|live| drop(live.remove(&self.1)));
    }
}

impl World {
    pub(crate) fn new(timing: Timing) -> Arc<Self> {
        Arc::new(Self {
            timing,
            accounts: Mutex::default(),
            records: Mutex::default(),
            handles: Mutex::default(),
            leases: Mutex::default(),
            keys: Mutex::default(),
            generations: Mutex::default(),
            faults: Mutex::default(),
            tasks: Mutex::default(),
            live: watch::Sender::new(BTreeMap::new()),
            next: AtomicUsize::new(1),
        })
    }

    pub(crate) fn fault(&self, text: impl Into<String>) {
        self.faults.lock().push(text.into());
    }

    pub(crate) fn check(&self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.fault(text());
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn guard(&self, what: String) -> Guard {
        let number = self.number();
        self.live.send_modify(|live| drop(live.insert(number, what)));
        Guard(self.live.clone(), number)
    }

    /// Completes when no guard is alive.
    pub(crate) async fn deserted(&self) {
        self.live.subscribe().wait_for(BTreeMap::is_empty).await.expect("the world holds the sender");
    }

    pub(crate) fn alive(&self) -> Vec<String> {
        self.live.borrow().values().cloned().collect()
    }

    /// Virtual milliseconds on a paused clock; as many turns in real time, where nothing sleeps.
    pub(crate) async fn pause(&self, length: u64) {
        match self.timing {
            Timing::Virtual if length > 0 => {
                let _ = tokio::time::timeout(Duration::from_millis(length), pending::<()>()).await;
            }
            _ => {
                for _ in 0..=length {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    // --- tasks ------------------------------------------------------------------------------------------

    /// Runs `task` beside the script, which waits for it before it is judged.
    pub(crate) fn beside(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(task);
        self.tasks.lock().push(task);
    }

    /// Completes when nothing runs beside the script any more.
    pub(crate) async fn joined(&self) {
        loop {
            let Some(task) = self.tasks.lock().pop() else {
                return;
            };
            if let Err(error) = task.await {
                self.fault(format!("a task of the storm itself failed: {error}"));
            }
        }
    }

    // --- processes --------------------------------------------------------------------------------------

    pub(crate) fn record(&self, generation: &Generation, id: &str, plan: Plan) -> Arc<Record> {
        let record = Arc::new(Record {
            number: self.number(),
            epoch: generation.epoch().get(),
            id: id.to_owned(),
            plan,
            starts: AtomicUsize::new(0),
            closes: AtomicUsize::new(0),
            answer: OnceLock::new(),
            revoked: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            removed_first: AtomicBool::new(false),
            crash: watch::Sender::new(None),
            caller_left: AtomicBool::new(false),
        });
        self.records.lock().push(Arc::clone(&record));
        record
    }

    pub(crate) fn handle(&self, record: &Record) -> Option<ProcessHandle> {
        self.handles.lock().get(&record.number).cloned()
    }

    /// The record of a process, which its role names.
    pub(crate) fn record_of(&self, handle: &ProcessHandle) -> Arc<Record> {
        let name = handle.name();
        let number = name.trim_start_matches('r').split('#').next().and_then(|number| number.parse().ok());
        let number: usize = number.expect("every role names a record");
        let records = self.records.lock();
        let record = records.iter().find(|record| record.number == number);
        Arc::clone(record.expect("every role names a record"))
    }

    // --- effects ----------------------------------------------------------------------------------------

    /// An effect begins: never after a close has returned.
    pub(crate) fn effect(&self, record: &Record) {
        let mut accounts = self.accounts.lock();
        *accounts.applied.entry(record.epoch).or_default() += 1;
        let closed = accounts.closed.contains(&record.epoch);
        let registry_closed = accounts.registries_closed.contains(&record.epoch);
        drop(accounts);
        let revoked = record.revoked.load(Ordering::SeqCst);
        self.check(!closed && !registry_closed && !revoked, || {
            format!(
                "{record} has an effect after it lost its authority: generation closed {closed}, \
                 registry closed {registry_closed}, itself closed or removed {revoked}"
            )
        });
    }

    /// An asynchronous effect came to its end.
    pub(crate) fn effect_ends(&self, record: &Record) {
        let mut accounts = self.accounts.lock();
        if accounts.closed.contains(&record.epoch) {
            accounts.late_ends.push((record.epoch, record.id.clone()));
        }
    }

    pub(crate) fn refusal(&self, record: &Record) {
        *self.accounts.lock().refused.entry(record.epoch).or_default() += 1;
    }

    // --- closes -----------------------------------------------------------------------------------------

    /// Somebody is about to ask for the close of this generation, or of its registry.
    pub(crate) fn asks_to_close(&self, epoch: u64) {
        let mut accounts = self.accounts.lock();
        if accounts.closing.insert(epoch) {
            let seen = accounts.refused.get(&epoch).copied().unwrap_or_default();
            // Looked at last: a replacement that meant another one may have closed it long ago.
            if self.is_open(epoch) {
                accounts.refused_before.insert(epoch, seen);
            }
        }
    }

    fn is_open(&self, epoch: u64) -> bool {
        self.generations.lock().get(&epoch).is_some_and(Generation::is_open)
    }

    pub(crate) fn registry_closed(&self, report: &CloseReport) {
        self.accounts.lock().registries_closed.insert(report.epoch.get());
        let imbalance = report.imbalance();
        self.check(imbalance.is_none(), || format!("the registry's report: {imbalance:?}"));
    }

    /// The close of a generation has returned this report; every caller gets the same one.
    pub(crate) fn closed(&self, report: &Arc<CloseReport>) {
        let mut accounts = self.accounts.lock();
        accounts.closed.insert(report.epoch.get());
        let first = accounts.reports.entry(report.epoch.get()).or_insert_with(|| Arc::clone(report));
        let same = Arc::ptr_eq(first, report);
        drop(accounts);
        self.check(same, || format!("two reports of epoch {}", report.epoch));
    }

    pub(crate) fn is_closing(&self, record: &Record) -> bool {
        record.closing.load(Ordering::SeqCst)
            || self.accounts.lock().closing.contains(&record.epoch)
            || !self.is_open(record.epoch)
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r{} ({:?} \"{}\" of epoch {})", self.number, self.plan.kind, self.id, self.epoch)
    }
}
