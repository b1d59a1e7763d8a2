//! The embedded store: one SQLite file, shared by the OS processes of one host.
//!
//! - One thread writes: whatever waits in its mailbox goes into one transaction. Another waits for the disk meanwhile,
//!   and nobody is answered before what he asked for is on it ([`disk`]): with many callers that wait costs each of
//!   them next to nothing.
//! - Other threads read, each from a snapshot of the write-ahead log, so that neither waits for the other.
//! - Another OS process that writes is waited for up to [`SqliteOptions::busy_timeout`], and noticed within
//!   [`SqliteOptions::poll`].
//!
//! What a decision was made on is checked by reading before anything of it is written ([`commit`]); a refused
//! one needs no undoing. An error below refuses the whole transaction; unless its surroundings are at fault,
//! what was in it is then tried apart, so that only the call fails that makes it fail.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, broadcast, oneshot};

use self::call::{Command, Reply};
use self::disk::Lasting;
use self::fault::Step;
use self::place::Place;
use self::probe::Probe;
use self::readers::{Extent, Given, Readers};
use self::writer::With;
use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::clock::Clock;
use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};

mod agents;
mod body;
mod call;
mod check;
mod claim;
mod commit;
mod disk;
mod expect;
mod fault;
mod hot;
mod lanes;
mod list;
mod migrate;
mod open;
mod pack;
mod parts;
mod place;
#[cfg(test)]
mod plans;
mod probe;
mod prune;
mod read;
mod readers;
#[cfg(test)]
mod refused_log;
mod row;
mod schema;
mod session;
mod tx;
mod write;
mod writer;

#[cfg(feature = "conformance")]
pub use probe::{Between, Look};
pub use schema::SchemaVersions;

/// The most calls that wait for the writer; more wait to be let in.
const MOST_WAITING: usize = 8192;
/// How many hints a watcher may be behind.
const HINTS: usize = 1024;

/// How a [`SqliteStore`] is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The file; made if there is none. Its folder must exist.
    pub path: PathBuf,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// What an answered write survives.
    pub synchronous: Synchronous,
    /// How long another OS process that writes is waited for. Longer than that is refused as unavailable.
    pub busy_timeout: Duration,
    /// How many threads read; at least 1.
    pub readers: usize,
    /// How often is looked whether another OS process has changed the file.
    pub poll: Duration,
    /// The largest size of the file, in bytes; none for as large as its disk.
    pub most_bytes: Option<u64>,
}

impl SqliteOptions {
    /// The defaults: durable before it is answered, 30 s of patience, two readers, a look every 250 ms.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            path: path.into(),
            clock,
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(30),
            readers: 2,
            poll: Duration::from_millis(250),
            most_bytes: None,
        }
    }
}

/// What an answered write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A loss of power. Of grants and renewals alone: with what is written next and answered.
    #[default]
    Full,
    /// The end of the OS process; a loss of power may take the newest writes.
    Normal,
}

/// A store in one SQLite file.
///
/// Dropping it without [`Store::close`] loses nothing that was answered: the writer ends what waits for it.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Command>,
    waiting: Arc<Semaphore>,
    threads: Mutex<Option<Threads>>,
}

#[derive(Debug)]
struct Shared {
    options: SqliteOptions,
    hints: broadcast::Sender<Hint>,
    readers: Readers,
    lasting: Arc<Lasting>,
    place: Arc<Place>,
}

#[derive(Debug)]
struct Threads {
    all: Vec<std::thread::JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file, brings its schema up to date and starts the threads.
    ///
    /// # Errors
    /// [`StoreError::Refused`], saying what is wrong with the file and what to do: its folder is missing, it
    /// is no database or one of another program, damaged, not writable, or of a newer version.
    pub fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        Self::open_with(options, Probe::default())
    }

    /// [`SqliteStore::open`], with somebody who looks into its transactions. They wait for each look.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    #[cfg(feature = "conformance")]
    pub fn open_looking(options: SqliteOptions, look: Look) -> Result<Self, StoreError> {
        Self::open_with(options, Probe { look: Some(look) })
    }

    fn open_with(options: SqliteOptions, probe: Probe) -> Result<Self, StoreError> {
        let writer = open::writer(&options)?;
        let log = open::log(&writer, &options)?;
        Self::start(options, probe, writer, log)
    }

    /// Starts the threads: who writes, who reads, and who waits for the disk that has this log.
    fn start(
        options: SqliteOptions,
        probe: Probe,
        writer: Connection,
        log: Option<File>,
    ) -> Result<Self, StoreError> {
        let connections = (0..options.readers.max(1)).map(|_| open::reader(&options));
        let connections = connections.collect::<Result<Vec<Connection>, _>>()?;
        let (hints, _) = broadcast::channel(HINTS);
        let (readers, reading) = Readers::start(connections).map_err(|error| no_thread(&error))?;
        let lasting = Arc::new(Lasting::new(log.is_some()));
        let (sender, mailbox) = mpsc::channel();
        let place = Arc::new(Place::of(&options.path));
        let with = With {
            options: options.clone(),
            hints: hints.clone(),
            probe,
            place: Arc::clone(&place),
            log,
            lasting: Arc::clone(&lasting),
        };
        let writer = writer::start(writer, mailbox, with).map_err(|error| no_thread(&error))?;
        let all = reading.into_iter().chain([writer]).collect();
        let threads = Mutex::new(Some(Threads { all }));
        let shared = Arc::new(Shared { options, hints, readers, lasting, place });
        Ok(Self { shared, writer: sender, waiting: Arc::new(Semaphore::new(MOST_WAITING)), threads })
    }

    /// A call to the writer. Its answer may be lost with the writer: then it may have happened.
    fn write<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce(Reply<T>) -> Command + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let permit = self.permit().await?;
            let (to, answer) = oneshot::channel();
            self.writer.send(command(Reply::new(to, permit))).map_err(|_| self.closed())?;
            answer.await.map_err(|_| {
                StoreError::unknown(format!(
                    "\"{}\": the writer has ended",
                    self.shared.options.path.display()
                ))
            })?
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        Arc::clone(&self.waiting).acquire_owned().await.map_err(|_| self.closed())
    }

    fn read<T: Send + 'static>(
        &self,
        extent: Extent,
        look: impl FnOnce(&Connection, Timestamp) -> Step<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let (to, answer) = oneshot::channel();
        let (path, clock) = (self.shared.options.path.clone(), Arc::clone(&self.shared.options.clock));
        let look = move |conn: &Connection| {
            // Whoever asked has gone meanwhile: others wait.
            if to.is_closed() {
                return;
            }
            let answer = readers::snapshot(conn, |conn| look(conn, clock.now()));
            // Nobody waits any more: fine.
            let _ = to.send(answer.map_err(|fault| fault.refused(&path)));
        };
        let given = self.shared.readers.give(extent, Box::new(look));
        Box::pin(async move {
            match given {
                Given::Waits => answer.await.map_err(|_| self.closed())?,
                Given::TooMany => Err(StoreError::refused(
                    RefusedKind::Unavailable,
                    format!("{} other listings wait already; try again", readers::MOST_PAGES),
                )),
                Given::Closed => Err(self.closed()),
            }
        })
    }

    /// A look at what is shown to others: answered when what was seen is on the disk, so that nobody hears of anything
    /// that the machine may still forget.
    fn show<T: Send + 'static>(
        &self,
        extent: Extent,
        look: impl FnOnce(&Connection) -> Step<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let lasting = Arc::clone(&self.shared.lasting);
        // After the look: it has seen nothing that was begun later.
        let seen = self.read(extent, move |conn, _| look(conn).map(|found| (found, lasting.begun())));
        Box::pin(async move {
            let (found, newest) = seen.await?;
            self.shared.lasting.reached(newest).await;
            Ok(found)
        })
    }

    fn closed(&self) -> StoreError {
        let path = self.shared.options.path.display();
        StoreError::refused(RefusedKind::Closed, format!("\"{path}\" was closed by this program"))
    }
}

fn no_thread(error: &std::io::Error) -> StoreError {
    StoreError::refused(RefusedKind::Unavailable, format!("no thread could be started: {error}; try again"))
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "sqlite", durable: true, shared: true, watch_across: true, server_clock: false }
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        Box::pin(async {
            if self.shared.readers.are_closed() {
                return Err(self.closed());
            }
            self.shared.place.check()?;
            Ok(self.shared.options.clock.now())
        })
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        self.write(|reply| Command::Commit(decisions, reply))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        self.write(|reply| Command::Claim(request, reply))
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.write(|reply| Command::Renew(request, reply))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.write(move |reply| Command::Prune(request, reply))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        if repair {
            self.write(Command::Repair)
        } else {
            self.read(Extent::Page, |conn, _| Ok(check::messages(&check::find(conn)?)))
        }
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.read(Extent::Records, read::agenda)
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.read(Extent::Records, move |conn, now| read::due_schedules(conn, now, limit))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.read(Extent::Records, move |conn, now| read::due_runs(conn, now, after, limit))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        self.read(Extent::Records, move |conn, _| read::task(conn, &task_id))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.show(Extent::Page, move |conn| list::tasks(conn, &page))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        self.show(Extent::Records, move |conn| read::run(conn, &run_id))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let (task_id, key) = (task_id.clone(), key.to_owned());
        self.show(Extent::Records, move |conn| read::run_by_key(conn, &task_id, &key))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.show(Extent::Page, move |conn| list::runs(conn, &filter, &page))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.read(Extent::Page, move |conn, _| list::count(conn, &filter, most))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        self.show(Extent::Records, move |conn| read::attempts(conn, &run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.show(Extent::Page, move |conn| read::events(conn, &subject, after, limit))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        self.show(Extent::Page, move |conn| list::occurrences(conn, &task_id, &page))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name = name.to_owned();
        self.read(Extent::Records, move |conn, _| read::lane(conn, &name))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        self.read(Extent::Records, move |conn, _| read::counts(conn, task_id.as_ref()))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.write(move |reply| Command::PutAgent(agent_id, definition, reply))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.show(Extent::Records, agents::all)
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.shared.hints.subscribe()
    }

    /// Answers the reads that wait, then the writes, moves the log into the file, and ends the threads. Who
    /// closes it again waits for that as well.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            let mut threads = self.threads.lock().await;
            if threads.is_none() {
                return Ok(());
            }
            self.shared.readers.close().await;
            // Refused: an earlier close was given up half-way, and its word has reached the writer.
            let outcome = match self.write(Command::Close).await {
                Err(StoreError::Refused { kind: RefusedKind::Closed, .. } | StoreError::Unknown { .. }) => {
                    Ok(())
                }
                outcome => outcome,
            };
            self.waiting.close();
            // Each has said its last word: what is left of it is its return.
            for thread in threads.take().into_iter().flat_map(|threads| threads.all) {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store had panicked");
                }
            }
            outcome
        })
    }
}
