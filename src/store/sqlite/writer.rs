//! The one thread that writes: everything in its mailbox in one transaction. The answers come after its commit, and
//! where the disk is waited for, after that wait, which is another thread's ([`super::disk`]).
//!
//! It is an OS thread because it is the writer: it waits for disks and for other programs' locks, which no
//! worker of a runtime may, and the rate of its commits is the rate of the store.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::sync::broadcast;

use super::SqliteOptions;
use super::call::{Command, MOST_WORK, Reply, Worth};
use super::disk::{Disk, Lasting, Written};
use super::expect::Expectation;
use super::fault::{Fault, Step};
use super::hot::Statements;
use super::place::Place;
use super::probe::Probe;
use super::tx::{Memory, Tx, data_version, roll_back};
use crate::model::{EventKind, RunId};
use crate::store::{ClaimRequest, Hint, RefusedKind, StoreError, sharing};

/// The most calls of one transaction.
const MOST_CALLS: usize = 1024;
/// How many foreign events are looked at for cancelled runs; of more the heartbeats find out.
const MOST_LOOKED_AT: u64 = 10_000;

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
    /// Who waits for the disk; none where commits are answered without it.
    disk: Option<Disk>,
    lasting: Arc<Lasting>,
    expectation: Expectation,
    /// Whether the disk is left alone for a call that is expected.
    expecting: bool,
    /// What the database says of foreign commits, and when it was asked last.
    data_version: i64,
    looked: Instant,
    /// Events up to here are our own, or were looked at.
    seen: u64,
}

/// What a writer works with.
pub(super) struct With {
    pub(super) options: SqliteOptions,
    pub(super) hints: broadcast::Sender<Hint>,
    pub(super) probe: Probe,
    pub(super) place: Arc<Place>,
    /// The log, if the disk is waited for.
    pub(super) log: Option<File>,
    /// How far that got.
    pub(super) lasting: Arc<Lasting>,
}

/// Starts the writer on its thread.
pub(super) fn start(
    conn: Connection,
    mailbox: Receiver<Command>,
    mut with: With,
) -> io::Result<JoinHandle<()>> {
    let path = with.options.path.clone();
    let lasting = Arc::clone(&with.lasting);
    let disk =
        with.log.take().map(|log| Disk::start(log, path.clone(), lasting, with.probe.clone())).transpose()?;
    Builder::new().name("tenure-sqlite-writer".to_owned()).spawn(move || {
        // Who waits for the disk ends with it, so that whatever came before the close is answered before it.
        let close = Writer::new(&conn, &mailbox, with, disk).run();
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
    fn new(conn: &'c Connection, mailbox: &'c Receiver<Command>, with: With, disk: Option<Disk>) -> Self {
        let With { options, hints, probe, place, lasting, .. } = with;
        Self {
            conn,
            hot: Statements::of(conn),
            mailbox,
            options,
            hints,
            probe,
            place,
            memory: Memory::default(),
            disk,
            lasting,
            expectation: Expectation::default(),
            expecting: false,
            data_version: data_version(conn).unwrap_or(0),
            looked: Instant::now(),
            seen: super::read::newest_cursor(conn).unwrap_or(0),
        }
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

    fn serve(&mut self, batch: Vec<Command>) {
        if batch.is_empty() {
            return;
        }
        if let Err(gone) = self.place.check() {
            return refuse(batch, &gone);
        }
        match self.transact(&batch) {
            Ok((worth, hint)) => {
                let ready = hint.as_ref().is_some_and(|hint| hint.ready);
                let expects = self.expectation.after(&batch, &worth, ready);
                // Before the answers: who begins to watch after one hears nothing of what it was told.
                if let Some(hint) = hint {
                    // Nobody watches: fine.
                    let _ = self.hints.send(hint);
                }
                self.answer(batch, worth, expects);
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

    /// Answers what was committed: at once, or when it is on the disk.
    fn answer(&mut self, batch: Vec<Command>, worth: Vec<Worth>, expects: bool) {
        let all = batch.into_iter().zip(worth);
        let Some(disk) = &self.disk else { return all.for_each(|(command, worth)| command.answer(worth)) };
        let (brief, calls): (Vec<_>, Vec<_>) = all.partition(|(command, _)| command.is_brief());
        // Who waits for what comes next hears of it, also when nobody has to be answered.
        if self.expecting || !calls.is_empty() {
            self.expecting = expects;
            disk.give(Written { transaction: self.lasting.begun(), calls, expects });
        }
        brief.into_iter().for_each(|(command, worth)| command.answer(worth));
    }

    fn transact(&mut self, batch: &[Command]) -> Result<(Vec<Worth>, Option<Hint>), Failed> {
        self.save_log().map_err(Failed::Before)?;
        let mut tx = Tx::begin(self.conn, &self.hot, &mut self.memory).map_err(Failed::Before)?;
        tx.now = self.options.clock.now();
        tx.probe = self.probe.clone();
        let before = tx.newest_cursor();
        let done = work(&mut tx, batch).and_then(|worth| tx.flush().map(|()| worth));
        let (hint, after) = (std::mem::take(&mut tx.hint), tx.newest_cursor());
        drop(tx);
        let worth = done.map_err(|fault| self.undo(Failed::Before(fault)))?;
        self.commit(!batch.iter().all(Command::is_brief))?;
        if self.seen == before {
            self.seen = after;
        }
        let changed = hint.ready || hint.agenda || hint.agents || !hint.cancels.is_empty() || after != before;
        Ok((worth, changed.then_some(hint)))
    }

    fn commit(&mut self, lasting: bool) -> Result<(), Failed> {
        let begun = lasting.then(|| self.lasting.begin());
        let commit = self.conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        let Err(error) = commit else { return Ok(()) };
        if let (Some(transaction), Some(disk)) = (begun, &self.disk) {
            // There is nothing of it to be seen, and nothing to wait for.
            disk.give(Written { transaction, calls: Vec::new(), expects: false });
        }
        Err(self.undo(Failed::AtCommit(error.into())))
    }

    /// What the disk may have lost of the log is written to the file itself before anything more is promised: a log
    /// with a gap ends there.
    fn save_log(&self) -> Step<()> {
        if !self.lasting.is_refused() {
            return Ok(());
        }
        let busy: i64 = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            let why = "the disk has refused its log, which is still being read".to_owned();
            return Err(rusqlite::Error::SqliteFailure(busy, Some(why)).into());
        }
        self.lasting.saved();
        Ok(())
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
    let mut claims: Vec<sharing::Waiting<'_>> = Vec::new();
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
            Command::Claim(request, _) => {
                claims.push((n, request));
                Worth::Nothing
            }
            Command::Close(_) => Worth::Nothing,
        });
    }
    while !claims.is_empty() {
        let (group, others) = sharing::with_first(claims);
        let requests: Vec<ClaimRequest> = group.iter().map(|(_, request)| (*request).clone()).collect();
        for ((n, _), granted) in group.into_iter().zip(tx.claim(&requests)?) {
            worth[n] = Worth::Claim(granted);
        }
        claims = others;
    }
    Ok(worth)
}
