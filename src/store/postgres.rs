//! A store that many instances on many machines share: the tables of one schema of a PostgreSQL database.
//!
//! - **Group commit.** One task writes. Whatever waits in its mailbox goes into one transaction, and nobody is
//!   answered before that is committed. What all of it depends on is read in one round trip, decided on here
//!   ([`tx`]), and written with the commit in another: a batch costs two, one that claims three, however many
//!   calls are in it. A statement writes many rows of a table, from an array of its row type; statements stay
//!   prepared. Of a large batch the first rows are on their way while the others are decided on, so that the server
//!   and this program work at the same time; that they are written says nothing before the commit.
//! - **One writer at a time.** A transaction begins by locking the one row of `meta`, so that instances write one
//!   after the other, each what has gathered meanwhile. Records are then read as they stand, and stand until the
//!   commit: no deadlock, no claim of a row that somebody else has locked and that would have to be skipped, and lanes
//!   that are exact. The price is that reading and deciding of one instance does not overlap with that of another; a
//!   batch grows while it waits, so that the rate of all together stays that of one.
//! - **Cursors of events** are given out under that lock, which PostgreSQL releases only after the commit can be
//!   seen: nobody is given a higher cursor before that, and a reader never sees one appear behind another. (A
//!   sequence would not do: it hands out numbers in the order of the calls, not of the commits.)
//! - **An instance that is stopped** in the middle of a transaction holds the lock at most
//!   [`PostgresOptions::most_idle`]; then the server ends its session, and what it was about to write is refused.
//! - **Time** is the server's, at the moment of the statement and not of the transaction, after the lock was waited
//!   for.
//! - **Hints** travel by `NOTIFY` in the transaction they tell of. Who lost the connection is told of everything when
//!   it is back.
//!
//! What did not happen is refused, what may have is unknown: only a connection that is lost, or an answer that does not
//! come, once the commit went out leaves that open. Reads are one statement each, or a read-only snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot};

use self::conn::{Conn, Session};
use self::fault::{Fault, Step};
use self::writer::{Command, Reply, Writer};
use super::server_clock::ServerClock;
use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::model::{
    AgentId, Attempt, Event, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task, TaskId,
    Timestamp,
};

mod agents;
mod attempt;
mod check;
mod claim;
mod commit;
mod conn;
mod fault;
mod flush;
mod known;
mod lanes;
mod list;
mod load;
mod migrate;
mod options;
mod prune;
mod read;
mod result;
mod row;
mod rows;
mod survey;
mod tls;
mod tx;
mod write;
mod writer;

pub use options::PostgresOptions;

/// The most calls that wait for the writer; more wait to be let in.
const MOST_WAITING: usize = 8192;
/// How many hints a watcher may be behind.
const HINTS: usize = 1024;

/// A store in one schema of a PostgreSQL database.
///
/// Dropping it without [`Store::close`] loses nothing that was answered: the writer ends what waits for it.
pub struct PostgresStore {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    options: PostgresOptions,
    place: String,
    hints: broadcast::Sender<Hint>,
    /// The server's clock, unless the options name another.
    clock: ServerClock,
    /// Where the connections live.
    runtime: Handle,
    closed: AtomicBool,
    /// Reads of one statement: all at once on one connection, each answered in turn.
    quick: Mutex<Option<Arc<Conn>>>,
    /// Listings and checks, one after the other, so that they keep nobody else waiting.
    slow: Mutex<Option<Arc<Conn>>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// What it can do, going by the server's clock.
    pub const CAPABILITIES: Capabilities = Capabilities {
        name: "postgres",
        durable: true,
        shared: true,
        watch_across: true,
        server_clock: true,
    };

    /// Connects, makes the schema or brings it up to date, and starts the writer.
    ///
    /// # Errors
    /// [`StoreError::Refused`], saying what is wrong and what to do: the server cannot be reached or turns the role
    /// away, the schema is of a newer version, damaged, or may not be written.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        options.check()?;
        let (hints, _) = broadcast::channel(HINTS);
        let (writer, mailbox) = mpsc::channel(MOST_WAITING);
        let (opened, opening) = oneshot::channel();
        let (given, told) = (options.clone(), hints.clone());
        let thread = std::thread::Builder::new()
            .name("tenure-postgres".to_owned())
            .spawn(move || live(given, mailbox, told, opened))
            .map_err(|error| no_thread(&error))?;
        let runtime = opening.await.map_err(|_| {
            StoreError::refused(RefusedKind::Unavailable, "the thread of the store has ended; try again")
        })??;
        let shared = Shared {
            place: options.place(),
            options,
            hints,
            clock: ServerClock::default(),
            runtime,
            closed: AtomicBool::new(false),
            quick: Mutex::default(),
            slow: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let surveying = survey::keep(Arc::downgrade(&shared), shared.hints.subscribe());
        shared.runtime.spawn(surveying);
        Ok(Self { shared, writer, thread: Mutex::new(Some(thread)) })
    }

    /// A call to the writer. Its answer may be lost with the writer: then it may have happened.
    fn write<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce(Reply<T>) -> Command + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let (to, answer) = oneshot::channel();
            self.writer.send(command(to)).await.map_err(|_| self.shared.closed())?;
            answer.await.map_err(|_| {
                StoreError::unknown(format!("\"{}\": the writer has ended", self.shared.place))
            })?
        })
    }
}

/// The life of the thread: connects, says so, writes until it is closed.
fn live(
    options: PostgresOptions,
    mailbox: mpsc::Receiver<Command>,
    hints: broadcast::Sender<Hint>,
    opened: oneshot::Sender<Result<Handle, StoreError>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody waits any more: fine.
            let _ = opened.send(Err(no_thread(&error)));
            return;
        }
    };
    runtime.block_on(async {
        match Writer::open(options, mailbox, hints).await {
            Ok(writer) => {
                // Nobody waits any more: then nobody holds the mailbox, and it ends at once.
                let _ = opened.send(Ok(Handle::current()));
                writer.run().await;
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    });
}

fn no_thread(error: &std::io::Error) -> StoreError {
    StoreError::refused(RefusedKind::Unavailable, format!("no thread could be started: {error}; try again"))
}

impl Shared {
    fn closed(&self) -> StoreError {
        StoreError::refused(RefusedKind::Closed, format!("\"{}\" was closed by this program", self.place))
    }

    /// What time it is, if somebody says so instead of the server.
    fn told(&self) -> read::Told {
        self.options.clock.as_ref().map(|clock| clock.now().ms())
    }

    /// The connection in a slot, made if there is none that can be used.
    async fn connection(self: &Arc<Self>, slot: &mut Option<Arc<Conn>>) -> Result<Arc<Conn>, StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(self.closed());
        }
        if let Some(conn) = slot.as_ref().filter(|conn| !conn.is_closed()) {
            return Ok(Arc::clone(conn));
        }
        let shared = Arc::clone(self);
        // Where the connection lives, and not where the caller happens to be.
        let opening =
            self.runtime.spawn(async move { Conn::open(&shared.options, Session::Reader, None).await });
        let opened = opening.await.map_err(|_| self.closed())?;
        let conn = Arc::new(opened.map_err(|fault| fault.refused(&self.place))?);
        *slot = Some(Arc::clone(&conn));
        Ok(conn)
    }

    /// Waits for an answer as long as the options say, by the clock of the store's own runtime.
    async fn patiently<T>(&self, asked: impl Future<Output = Step<T>>) -> Result<T, StoreError> {
        let limit = {
            let _runtime = self.runtime.enter();
            tokio::time::sleep(self.options.patience.saturating_mul(2))
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            () = limit => Err(Fault::Silent),
        };
        answer.map_err(|fault| {
            if self.closed.load(Ordering::SeqCst) { self.closed() } else { fault.refused(&self.place) }
        })
    }

    async fn quick(self: &Arc<Self>) -> Result<Arc<Conn>, StoreError> {
        let mut slot = self.quick.lock().await;
        self.connection(&mut slot).await
    }
}

/// A read of one statement.
macro_rules! quick {
    ($self:ident, |$conn:ident, $now:ident| $ask:expr) => {{
        let shared = Arc::clone(&$self.shared);
        Box::pin(async move {
            let conn = shared.quick().await?;
            let ($conn, $now) = (&*conn, shared.told());
            shared.patiently($ask).await
        })
    }};
}

/// A look at one snapshot, which nobody else's statements come into.
macro_rules! slow {
    ($self:ident, |$conn:ident| $ask:expr) => {{
        let shared = Arc::clone(&$self.shared);
        Box::pin(async move {
            let mut slot = shared.slow.lock().await;
            let conn = shared.connection(&mut slot).await?;
            let $conn = &*conn;
            shared.patiently($conn.snapshot($ask)).await
        })
    }};
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { server_clock: self.shared.options.clock.is_none(), ..Self::CAPABILITIES }
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        if let Some(clock) = &self.shared.options.clock {
            let closed = self.shared.closed.load(Ordering::SeqCst);
            let answer = if closed { Err(self.shared.closed()) } else { Ok(clock.now()) };
            return Box::pin(std::future::ready(answer));
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if let Some(now) = shared.clock.now().filter(|_| !shared.closed.load(Ordering::SeqCst)) {
                return Ok(now);
            }
            let conn = shared.quick().await?;
            let asked = Instant::now();
            shared.patiently(read::now(&conn)).await.map(|said| shared.clock.said(said, asked))
        })
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        self.write(|reply| Command::Commit(decisions, reply))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        let (asked, repeat) = (Instant::now(), request.repeat);
        let claimed = self.write(|reply| Command::Claim(request, reply));
        Box::pin(async move {
            let granted = claimed.await?;
            self.shared.clock.granted(&granted, asked, repeat);
            Ok(granted)
        })
    }

    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>> {
        self.write(|reply| Command::Renew(request, reply))
    }

    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned> {
        self.write(move |reply| Command::Prune(request, reply))
    }

    fn check(&self, repair: bool) -> Answer<'_, Vec<String>> {
        if repair {
            return self.write(Command::Repair);
        }
        slow!(self, |conn| async move { Ok(check::messages(&check::find(conn).await?)) })
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        quick!(self, |conn, now| read::agenda(conn, now))
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        quick!(self, |conn, now| read::due_schedules(conn, now, limit))
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        quick!(self, |conn, now| read::due_runs(conn, now, after, limit))
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        quick!(self, |conn, _now| read::task(conn, &task_id))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        slow!(self, |conn| list::tasks(conn, &page))
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        quick!(self, |conn, _now| read::run(conn, &run_id))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let (task_id, key) = (task_id.clone(), key.to_owned());
        quick!(self, |conn, _now| read::run_by_key(conn, &task_id, &key))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        slow!(self, |conn| list::runs(conn, &filter, &page))
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        slow!(self, |conn| list::count(conn, &filter, most))
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        quick!(self, |conn, _now| read::attempts(conn, &run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        quick!(self, |conn, _now| read::events(conn, &subject, after, limit))
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        slow!(self, |conn| list::occurrences(conn, &task_id, &page))
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name = name.to_owned();
        quick!(self, |conn, _now| read::lane(conn, &name))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        quick!(self, |conn, _now| read::counts(conn, task_id.as_ref()))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.write(move |reply| Command::PutAgent(agent_id, definition, reply))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        quick!(self, |conn, _now| agents::all(conn))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.shared.hints.subscribe()
    }

    /// Answers the writes that wait, and ends the connections. Who closes it again waits for that as well.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            let mut thread = self.thread.lock().await;
            if thread.is_none() {
                return Ok(());
            }
            self.shared.closed.store(true, Ordering::SeqCst);
            // Refused: an earlier close was given up half-way, and its word has reached the writer.
            let outcome = match self.write(Command::Close).await {
                Err(StoreError::Refused { kind: RefusedKind::Closed, .. } | StoreError::Unknown { .. }) => {
                    Ok(())
                }
                outcome => outcome,
            };
            // It has said its last word: what is left of it is its return.
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("the thread of the store had panicked");
            }
            outcome
        })
    }
}
