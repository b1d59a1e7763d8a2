//! The one thread that writes: everything in its mailbox in one transaction, the answers after its commit.
//!
//! It is an OS thread because it is the writer: it waits for disks and for other programs' locks, which no
//! worker of a runtime may, and the rate of its commits is the rate of the store.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::sync::{OwnedSemaphorePermit, broadcast, oneshot};

use super::claim::alike;
use super::fault::{Fault, Step};
use super::hot::Statements;
use super::place::Place;
use super::probe::Probe;
use super::tx::{Memory, Tx, data_version, roll_back};
use super::{SqliteOptions, Synchronous};
use crate::model::{AgentId, EventKind, Run, RunId};
use crate::store::{
    ClaimRequest, Decision, Hint, PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal,
    StoreError,
};

/// The most calls of one transaction, and the most decisions and leases in them.
const MOST_CALLS: usize = 1024;
const MOST_WORK: usize = 4096;
/// How many foreign events are looked at for cancelled runs; of more the heartbeats find out.
const MOST_LOOKED_AT: u64 = 10_000;

/// Where an answer goes. Who waits for it counts among those who wait, until it is given.
pub(super) struct Reply<T> {
    to: oneshot::Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    pub(super) fn new(to: oneshot::Sender<Result<T, StoreError>>, permit: OwnedSemaphorePermit) -> Self {
        Self { to, _permit: permit }
    }

    fn send(self, answer: Result<T, StoreError>) {
        // Who asked has gone: it may have happened, as the port says.
        let _ = self.to.send(answer);
    }
}

/// A call.
pub(super) enum Command {
    Commit(Vec<Decision>, Reply<Vec<Result<(), Refusal>>>),
    Claim(ClaimRequest, Reply<Vec<Run>>),
    Renew(RenewRequest, Reply<Vec<Renewal>>),
    Prune(PruneRequest, Reply<Pruned>),
    Repair(Reply<Vec<String>>),
    PutAgent(AgentId, Option<Arc<str>>, Reply<()>),
    Close(Reply<()>),
}

impl Command {
    fn work(&self) -> usize {
        match self {
            Self::Commit(decisions, _) => decisions.len(),
            Self::Claim(request, _) => request.limit.min(MOST_WORK),
            Self::Renew(request, _) => request.leases.len(),
            Self::Prune(request, _) => request.limit.min(MOST_WORK),
            Self::PutAgent(..) => 1,
            Self::Repair(_) | Self::Close(_) => MOST_WORK,
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Commit(_, reply) => reply.send(Err(error)),
            Self::Claim(_, reply) => reply.send(Err(error)),
            Self::Renew(_, reply) => reply.send(Err(error)),
            Self::Prune(_, reply) => reply.send(Err(error)),
            Self::Repair(reply) => reply.send(Err(error)),
            Self::PutAgent(_, _, reply) => reply.send(Err(error)),
            Self::Close(reply) => reply.send(Err(error)),
        }
    }

    fn answer(self, worth: Worth) {
        match (self, worth) {
            (Self::Commit(_, reply), Worth::Commit(answer)) => reply.send(Ok(answer)),
            (Self::Claim(_, reply), Worth::Claim(answer)) => reply.send(Ok(answer)),
            (Self::Renew(_, reply), Worth::Renew(answer)) => reply.send(Ok(answer)),
            (Self::Prune(_, reply), Worth::Prune(answer)) => reply.send(Ok(answer)),
            (Self::Repair(reply), Worth::Repair(answer)) => reply.send(Ok(answer)),
            (Self::PutAgent(_, _, reply), Worth::PutAgent) => reply.send(Ok(())),
            (command, _) => command.refuse(StoreError::unknown("the answer was lost within the store")),
        }
    }
}

/// What a call comes to, if the transaction is committed.
enum Worth {
    Commit(Vec<Result<(), Refusal>>),
    Claim(Vec<Run>),
    Renew(Vec<Renewal>),
    Prune(Pruned),
    Repair(Vec<String>),
    PutAgent,
    Nothing,
}

/// When a transaction failed.
enum Failed {
    /// Before its commit: it certainly left nothing behind.
    Before(Fault),
    /// At its commit.
    AtCommit(Fault),
}

/// The writer.
struct Writer<'c> {
    conn: &'c Connection,
    hot: Statements<'c>,
    mailbox: &'c Receiver<Command>,
    options: SqliteOptions,
    hints: broadcast::Sender<Hint>,
    probe: Probe,
    place: Arc<Place>,
    memory: Memory,
    /// Whether the next commit reaches the disk before it is answered.
    lasting: bool,
    /// What the database says of foreign commits, and when it was asked last.
    data_version: i64,
    looked: Instant,
    /// Events up to here are our own, or were looked at.
    seen: u64,
}

/// Starts the writer on its thread.
pub(super) fn start(
    conn: Connection,
    mailbox: Receiver<Command>,
    options: SqliteOptions,
    hints: broadcast::Sender<Hint>,
    probe: Probe,
    place: Arc<Place>,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name("tenure-sqlite-writer".to_owned()).spawn(move || {
        let path = options.path.clone();
        let close = Writer::new(&conn, &mailbox, options, hints, probe, place).run();
        if let Some(reply) = close {
            reply.send(close_file(conn, &path));
            for command in mailbox.try_iter() {
                let message = format!("\"{}\" was closed by this program", path.display());
                command.refuse(StoreError::refused(RefusedKind::Closed, message));
            }
        }
    })
}

fn close_file(conn: Connection, path: &Path) -> Result<(), StoreError> {
    // Another program may hold the log, and is not waited for: it is moved by whoever closes last.
    let moved = conn
        .busy_timeout(Duration::ZERO)
        .and_then(|()| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = moved {
        tracing::debug!(%error, "the log stays beside the file");
    }
    conn.close().map_err(|(_, error)| Fault::from(error).refused(path))
}

impl<'c> Writer<'c> {
    fn new(
        conn: &'c Connection,
        mailbox: &'c Receiver<Command>,
        options: SqliteOptions,
        hints: broadcast::Sender<Hint>,
        probe: Probe,
        place: Arc<Place>,
    ) -> Self {
        let seen = super::read::newest_cursor(conn).unwrap_or(0);
        let data_version = data_version(conn).unwrap_or(0);
        let (hot, memory) = (Statements::of(conn), Memory::default());
        let looked = Instant::now();
        let lasting = options.synchronous == Synchronous::Full;
        Self { conn, hot, mailbox, options, hints, probe, place, memory, lasting, data_version, looked, seen }
    }

    /// Until it is closed, or everybody has gone and the mailbox is empty. Answers with the call that ends it.
    fn run(mut self) -> Option<Reply<()>> {
        let poll = self.options.poll.max(Duration::from_millis(1));
        loop {
            match self.mailbox.recv_timeout(poll) {
                Ok(first) => {
                    if let Some(close) = self.take(first) {
                        return Some(close);
                    }
                    if self.looked.elapsed() >= poll {
                        self.look_around();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.look_around(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Serves a call and what waits behind it. Answers with the call that ends it all.
    fn take(&mut self, first: Command) -> Option<Reply<()>> {
        let mut batch = Vec::new();
        let mut work = 0;
        let mut next = Some(first);
        while let Some(command) = next {
            if let Command::Close(reply) = command {
                self.serve(batch);
                return Some(reply);
            }
            work += command.work();
            batch.push(command);
            let room = batch.len() < MOST_CALLS && work < MOST_WORK;
            next = if room { self.mailbox.try_recv().ok() } else { None };
        }
        self.serve(batch);
        None
    }

    /// A grant and a renewal need not outlast the machine: nothing is done under them before the start of the attempt
    /// is stored, and who held the lease is gone with it. So they alone do not wait for the disk.
    fn set_lasting(&mut self, batch: &[Command]) -> Step<()> {
        let brief = |command: &Command| matches!(command, Command::Claim(..) | Command::Renew(..));
        let lasting = !batch.iter().all(brief);
        if self.options.synchronous == Synchronous::Full && lasting != self.lasting {
            let sql = if lasting { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.conn.prepare_cached(sql)?.execute([])?;
            self.lasting = lasting;
        }
        Ok(())
    }

    fn serve(&mut self, batch: Vec<Command>) {
        if batch.is_empty() {
            return;
        }
        if let Err(gone) = self.place.check() {
            return refuse(batch, &gone);
        }
        match self.transact(&batch) {
            Ok((worth, hint)) => {
                // Before the answers: who begins to watch after one hears nothing of what it was told.
                if let Some(hint) = hint {
                    // Nobody watches: fine.
                    let _ = self.hints.send(hint);
                }
                for (command, worth) in batch.into_iter().zip(worth) {
                    command.answer(worth);
                }
            }
            Err(Failed::Before(fault)) if batch.len() > 1 && !fault.is_of_the_surroundings() => {
                for command in batch {
                    self.serve(vec![command]);
                }
            }
            Err(Failed::Before(fault)) => refuse(batch, &fault.refused(&self.options.path)),
            Err(Failed::AtCommit(fault)) if fault.leaves_nothing() => {
                refuse(batch, &fault.refused(&self.options.path));
            }
            Err(Failed::AtCommit(fault)) => refuse(batch, &fault.unknown(&self.options.path)),
        }
    }

    fn transact(&mut self, batch: &[Command]) -> Result<(Vec<Worth>, Option<Hint>), Failed> {
        self.set_lasting(batch).map_err(Failed::Before)?;
        let mut tx = Tx::begin(self.conn, &self.hot, &mut self.memory).map_err(Failed::Before)?;
        tx.now = self.options.clock.now();
        tx.probe = self.probe.clone();
        let before = tx.newest_cursor();
        let done = work(&mut tx, batch).and_then(|worth| tx.flush().map(|()| worth));
        let (hint, after) = (std::mem::take(&mut tx.hint), tx.newest_cursor());
        drop(tx);
        let worth = done.map_err(|fault| self.undo(Failed::Before(fault)))?;
        let commit = self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        commit.map_err(|error| self.undo(Failed::AtCommit(error.into())))?;
        if self.seen == before {
            self.seen = after;
        }
        let changed = hint.ready || hint.agenda || hint.agents || !hint.cancels.is_empty() || after != before;
        Ok((worth, changed.then_some(hint)))
    }

    /// Names that were given a number in it have none any more, and rows are not as they were left.
    fn undo(&mut self, failed: Failed) -> Failed {
        roll_back(self.conn);
        self.memory = Memory::default();
        failed
    }

    /// Tells watchers what other programs have changed.
    fn look_around(&mut self) {
        self.looked = Instant::now();
        self.place.look();
        let Ok(version) = data_version(self.conn) else { return };
        if version == self.data_version {
            return;
        }
        match self.foreign_hint() {
            Ok(hint) => {
                self.data_version = version;
                self.seen = hint.cursor;
                // Nobody watches: fine.
                let _ = self.hints.send(hint);
            }
            Err(error) => tracing::debug!(%error, "what another program has changed cannot be read yet"),
        }
    }

    fn foreign_hint(&self) -> Step<Hint> {
        let cursor = super::read::newest_cursor(self.conn)?;
        let from = self.seen.max(cursor.saturating_sub(MOST_LOOKED_AT));
        let mut select = self.conn.prepare_cached(REVOKED)?;
        let [asked, cancelled, lost, recovered] =
            [EventKind::CancelRequested, EventKind::Cancelled, EventKind::Lost, EventKind::Recovered]
                .map(EventKind::number);
        let bound = params![super::row::signed(from), asked, cancelled, lost, recovered];
        let runs = select.query_map(bound, |row| row.get::<_, String>(0))?;
        let mut cancels = Vec::new();
        for run_id in runs {
            cancels.extend(RunId::new(run_id?).ok());
        }
        Ok(Hint { ready: true, agenda: true, agents: true, cancels, cursor })
    }
}

pub(super) const REVOKED: &str =
    "SELECT DISTINCT r.run_id FROM events e CROSS JOIN runs r ON r.rid = e.subject
    WHERE e.cursor > ?1 AND e.kind IN (?2, ?3, ?4, ?5)";

fn refuse(batch: Vec<Command>, error: &StoreError) {
    for command in batch {
        command.refuse(error.clone());
    }
}

/// Does everything, the claims last: they see what was written before them, and share their search.
fn work(tx: &mut Tx<'_, '_>, batch: &[Command]) -> Step<Vec<Worth>> {
    let mut worth = Vec::with_capacity(batch.len());
    let mut claims: Vec<usize> = Vec::new();
    for (n, command) in batch.iter().enumerate() {
        worth.push(match command {
            Command::Commit(decisions, _) => {
                Worth::Commit(decisions.iter().map(|decision| tx.apply(decision)).collect::<Step<_>>()?)
            }
            Command::Renew(request, _) => Worth::Renew(tx.renew(request)?),
            Command::Prune(request, _) => Worth::Prune(tx.prune(request)?),
            Command::Repair(_) => Worth::Repair(tx.repair()?),
            Command::PutAgent(agent_id, definition, _) => {
                tx.put_agent(agent_id, definition.as_deref())?;
                Worth::PutAgent
            }
            Command::Claim(..) => {
                claims.push(n);
                Worth::Nothing
            }
            Command::Close(_) => Worth::Nothing,
        });
    }
    while let Some(first) = claims.first().and_then(|n| request_of(&batch[*n])) {
        let together = |n: &usize| request_of(&batch[*n]).is_some_and(|r| alike(&r.agents, &first.agents));
        let (group, others): (Vec<usize>, Vec<usize>) = claims.iter().partition(|n| together(n));
        let requests: Vec<ClaimRequest> =
            group.iter().filter_map(|n| request_of(&batch[*n])).cloned().collect();
        for (n, granted) in group.into_iter().zip(tx.claim(&requests)?) {
            worth[n] = Worth::Claim(granted);
        }
        claims = others;
    }
    Ok(worth)
}

fn request_of(command: &Command) -> Option<&ClaimRequest> {
    match command {
        Command::Claim(request, _) => Some(request),
        _ => None,
    }
}
