//! Waits for the disk, beside the writer: one writes while the other waits (decision 0016).
//!
//! A commit is in the log, and seen by others, before it is on the disk. Who asked for it is answered after a wait for
//! the disk that began after the commit; one wait serves whatever was committed before it. The log is written in order:
//! nothing is on the disk without what came before it.
//!
//! It is an OS thread because all it does is wait for a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::call::{Command, Worth};
use super::probe::{Between, Probe};
use crate::store::StoreError;

/// How long in all the disk is left alone for calls that are expected: longer than a claim and a start take that come
/// at once, and shorter than a disk takes.
const EXPECTED_WITHIN: Duration = Duration::from_micros(500);

/// The most transactions that wait for the disk: the writer waits for it then.
const MOST_AHEAD: usize = 16;

/// How much of what was committed is on the disk, for who shows it to others.
#[derive(Debug)]
pub(super) struct Lasting {
    /// Transactions that were about to be committed, so that nobody sees one that is not counted here.
    begun: AtomicU64,
    on_disk: watch::Sender<u64>,
    /// Whether the disk has refused the log, and it has not been written elsewhere since.
    refused: AtomicBool,
}

impl Lasting {
    /// Whether or not the disk is waited for at all.
    pub(super) fn new(waits: bool) -> Self {
        let on_disk = if waits { 0 } else { u64::MAX };
        Self {
            begun: AtomicU64::new(0),
            on_disk: watch::Sender::new(on_disk),
            refused: AtomicBool::new(false),
        }
    }

    /// The newest transaction that may have been seen.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// The next transaction is about to be committed.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until a transaction is on the disk, with all before it, or never will be.
    pub(super) async fn reached(&self, transaction: u64) {
        if *self.on_disk.borrow() < transaction {
            // The sender is here: there is no other end of this wait.
            drop(self.on_disk.subscribe().wait_for(|on_disk| *on_disk >= transaction).await);
        }
    }

    fn reach(&self, transaction: u64) {
        self.on_disk.send_if_modified(|on_disk| {
            let further = *on_disk < transaction;
            *on_disk = transaction.max(*on_disk);
            further
        });
    }

    /// Whether the disk has refused the log.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst)
    }

    /// What was in the log has reached the disk elsewhere.
    pub(super) fn saved(&self) {
        self.refused.store(false, Ordering::SeqCst);
    }
}

/// What was committed.
pub(super) struct Written {
    /// The newest transaction of it.
    pub(super) transaction: u64,
    /// Who is answered when it is on the disk.
    pub(super) calls: Vec<(Command, Worth)>,
    /// Whether a call is on its way that goes on with it.
    pub(super) expects: bool,
}

/// The thread that waits for the disk. Dropping it answers what was given to it.
pub(super) struct Disk {
    to: Option<SyncSender<Written>>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// `log` is the log of the database at `path`.
    pub(super) fn start(log: File, path: PathBuf, lasting: Arc<Lasting>, probe: Probe) -> io::Result<Self> {
        let (to, given) = sync_channel(MOST_AHEAD);
        let waiting = Waiting { log, path, lasting, probe, given, patience: EXPECTED_WITHIN };
        let thread = Builder::new().name("tenure-sqlite-disk".to_owned()).spawn(move || waiting.serve())?;
        Ok(Self { to: Some(to), thread: Some(thread) })
    }

    pub(super) fn give(&self, written: Written) {
        // Whose thread has ended drops the calls, and who asked hears that it may have happened.
        let _ = self.to.as_ref().map(|to| to.send(written));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.to.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that waits for the disk had panicked");
        }
    }
}

/// The log that a connection to this file writes. It stays the same file as long as that connection is open.
pub(super) fn log_of(path: &Path) -> io::Result<File> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    OpenOptions::new().append(true).open(log)
}

struct Waiting {
    log: File,
    path: PathBuf,
    lasting: Arc<Lasting>,
    probe: Probe,
    given: Receiver<Written>,
    /// How long in all the disk is left alone for what is expected.
    patience: Duration,
}

impl Waiting {
    fn serve(self) {
        while let Ok(first) = self.given.recv() {
            let all = self.gather(first);
            let waits = all.iter().any(|written| !written.calls.is_empty());
            let outcome = if waits { self.wait() } else { Ok(()) };
            self.lasting.reach(all.iter().map(|written| written.transaction).max().unwrap_or(0));
            for (call, worth) in all.into_iter().flat_map(|written| written.calls) {
                match &outcome {
                    Ok(()) => call.answer(worth),
                    Err(error) => call.refuse(error.clone()),
                }
            }
        }
    }

    /// What was committed meanwhile, and what is expected to follow at once.
    fn gather(&self, first: Written) -> Vec<Written> {
        let until = Instant::now() + self.patience;
        let mut all = vec![first];
        while all.last().is_some_and(|last| last.expects)
            && let Ok(next) = self.given.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            all.push(next);
        }
        all.extend(self.given.try_iter());
        all
    }

    /// Waits for the disk. Once it has refused the log nothing counts as kept, whatever it says later, until the writer
    /// has written the log elsewhere: a system may forget what it could not write.
    fn wait(&self) -> Result<(), StoreError> {
        let unknown = |why: String| StoreError::unknown(format!("\"{}\": {why}", self.path.display()));
        self.probe.at(Between::CommitAndDisk);
        if let Err(error) = self.log.sync_data() {
            self.lasting.refused.store(true, Ordering::SeqCst);
            return Err(unknown(format!("its log may not have reached the disk: {error}")));
        }
        if self.lasting.is_refused() {
            return Err(unknown("its log may not have reached the disk before".to_owned()));
        }
        Ok(())
    }
}

/// However it ends: nobody waits for a disk that nobody asks any more.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.lasting.reach(u64::MAX);
    }
}

/// A log that no disk takes: a pipe reaches none.
#[cfg(test)]
pub(super) fn refused_log() -> File {
    let (_, log) = io::pipe().expect("a pipe");
    File::from(std::os::fd::OwnedFd::from(log))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::sync::{Semaphore, oneshot};

    use super::super::call::Reply;
    use super::*;

    fn kept_log() -> File {
        tempfile::tempfile().unwrap()
    }

    fn call(transaction: u64, expects: bool) -> (Written, oneshot::Receiver<Result<(), StoreError>>) {
        let (to, answer) = oneshot::channel();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let agent = crate::model::AgentId::new("agent").unwrap();
        let call = (Command::PutAgent(agent, None, Reply::new(to, permit)), Worth::PutAgent);
        (Written { transaction, calls: vec![call], expects }, answer)
    }

    fn disk(log: File) -> (Disk, Arc<Lasting>) {
        let lasting = Arc::new(Lasting::new(true));
        let disk = Disk::start(log, "tenure.db".into(), Arc::clone(&lasting), Probe::default()).unwrap();
        (disk, lasting)
    }

    #[tokio::test]
    async fn whoever_asked_is_answered_and_what_was_seen_before_has_lasted() {
        let (disk, lasting) = disk(kept_log());
        let transaction = lasting.begin();
        let (written, answer) = call(transaction, false);
        disk.give(written);
        assert_eq!(answer.await.unwrap(), Ok(()));
        lasting.reached(transaction).await;
        assert!(!lasting.is_refused());
    }

    #[tokio::test]
    async fn what_the_disk_refused_may_have_happened_and_so_may_all_after_it_until_the_log_was_saved() {
        let (disk, lasting) = disk(refused_log());
        let (written, answer) = call(lasting.begin(), false);
        disk.give(written);
        let error = answer.await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Unknown { .. }), "{error:?}");
        assert!(
            error.to_string().contains("\"tenure.db\": its log may not have reached the disk"),
            "{error}"
        );
        assert!(lasting.is_refused());
        lasting.reached(lasting.begun()).await;
        drop(disk);

        let after =
            Disk::start(kept_log(), "tenure.db".into(), Arc::clone(&lasting), Probe::default()).unwrap();
        let (written, answer) = call(lasting.begin(), false);
        after.give(written);
        let error = answer.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("reached the disk before"), "{error}");
        lasting.saved();
        let (written, answer) = call(lasting.begin(), false);
        after.give(written);
        assert_eq!(answer.await.unwrap(), Ok(()));
    }

    #[test]
    fn what_is_expected_is_gathered_and_nothing_is_waited_for_after_it() {
        let (to, given) = sync_channel(MOST_AHEAD);
        let lasting = Arc::new(Lasting::new(true));
        let patience = Duration::from_secs(3600);
        let (log, probe) = (kept_log(), Probe::default());
        let waiting = Waiting { log, path: "tenure.db".into(), lasting, probe, given, patience };
        let (gathered, all) = channel();
        let gathering = std::thread::spawn(move || {
            gathered.send(waiting.gather(call(1, true).0).len()).unwrap();
        });
        to.send(Written { transaction: 1, calls: Vec::new(), expects: true }).unwrap();
        to.send(call(2, false).0).unwrap();
        assert_eq!(all.recv().unwrap(), 3);
        gathering.join().unwrap();
    }

    #[test]
    fn who_does_not_come_is_not_waited_for_longer_than_that() {
        let (_to, given) = sync_channel(MOST_AHEAD);
        let lasting = Arc::new(Lasting::new(true));
        let (log, probe, patience) = (kept_log(), Probe::default(), EXPECTED_WITHIN);
        let waiting = Waiting { log, path: "tenure.db".into(), lasting, probe, given, patience };
        assert_eq!(waiting.gather(call(1, true).0).len(), 1);
    }
}
