//! A store that many instances on many machines share: the collections of one database of a MongoDB server.
//!
//! - **Group commit.** One task writes. Whatever waits in its mailbox goes into one transaction of the server, and
//!   nobody is answered before that is committed by the majority of its members.
//! - **One writer at a time.** A transaction begins by changing the one document of `meta`, so that of two only one
//!   can be committed; the other finds that out with this first statement, and begins again. Records are read after
//!   it, and stand as they were read. Each change of a run names the version and the token it was decided on all the
//!   same, and is given up when it does not find them.
//! - **Decisions** are made by the code of the memory store, on the part of the records that a batch depends on
//!   ([`load`]); what came of it is written as what differs ([`flush`]).
//! - **Cursors of events** are given out in turn, and so appear in order.
//! - **Time** is the server's, at the moment of that first statement (`$$NOW`). Nothing expires by itself: an expiry
//!   is a field of a run.
//! - **Hints** are a field of that document, and come over a change stream. Who lost it is told of everything when it
//!   is back.
//! - **No query looks at what it does not answer**: each goes by an index.
//!
//! What did not happen is refused, what may have is unknown: only a commit whose answer did not come, though it was
//! asked for again, leaves that open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{broadcast, mpsc, oneshot};

use self::fault::Step;
use self::link::Db;
use self::reader::Read;
use self::writer::{Command, Reply, Writer};
use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::model::{
    AgentId, Attempt, Event, InstanceId, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task,
    TaskId, Timestamp,
};

mod batch;
mod check;
mod doc;
mod fault;
mod flush;
mod hints;
mod link;
mod list;
mod load;
mod open;
mod options;
mod prune;
mod read;
mod reader;
mod told;
mod writer;

pub use options::MongoOptions;

/// The most calls that wait for the writer; more wait to be let in.
const MOST_WAITING: usize = 8192;
/// How many hints a watcher may be behind.
const HINTS: usize = 1024;

/// A store in a database of a MongoDB server.
///
/// Dropping it without [`Store::close`] loses nothing that was answered: the writer ends what waits for it.
#[derive(Debug)]
pub struct MongoStore {
    db: Arc<Db>,
    writes: mpsc::Sender<Command>,
    reads: mpsc::UnboundedSender<Read>,
    hints: broadcast::Sender<Hint>,
    closed: AtomicBool,
}

impl MongoStore {
    /// What it can do, going by the server's clock.
    pub const CAPABILITIES: Capabilities =
        Capabilities { name: "mongodb", durable: true, shared: true, watch_across: true, server_clock: true };

    /// Connects, looks at the server, makes the collections and indexes that are missing, and starts the writer.
    ///
    /// # Errors [`StoreError::Refused`], saying what is wrong and what to do: the server cannot be reached or turns
    /// the user away, has no transactions, or its collections are of a newer version.
    pub async fn connect(options: MongoOptions) -> Result<Self, StoreError> {
        let (writes, to_write) = mpsc::channel(MOST_WAITING);
        let (reads, to_read) = mpsc::unbounded_channel();
        let (hints, _) = broadcast::channel(HINTS);
        let (ready, begun) = oneshot::channel();
        let life = Life { options, to_write, to_read, hints: hints.clone(), ready };
        // Its own thread, with a runtime of its own: whoever opens a store may stop the runtime it was opened in.
        let thread = std::thread::Builder::new().name("tenure-mongodb".to_owned()).spawn(move || live(life));
        thread.map_err(|error| no_thread(&error))?;
        let db = begun.await.map_err(|_| {
            StoreError::refused(RefusedKind::Unavailable, "the thread of the store has ended; try again")
        })??;
        Ok(Self { db, writes, reads, hints, closed: AtomicBool::new(false) })
    }

    /// A call to the writer. Its answer may be lost with the writer: then it may have happened.
    fn write<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce(Reply<T>) -> Command + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            self.is_open()?;
            let (to, answer) = oneshot::channel();
            self.writes.send(command(to)).await.map_err(|_| self.is_closed())?;
            answer.await.unwrap_or_else(|_| {
                Err(StoreError::unknown(format!("\"{}\": the writer has ended", self.db.place)))
            })
        })
    }

    /// A read, made where the connections live.
    fn read<'a, T, F>(&'a self, ask: impl FnOnce(Arc<Db>) -> F + Send + 'static) -> Answer<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Step<T>> + Send + 'static,
    {
        Box::pin(async move {
            self.is_open()?;
            let (to, answer) = oneshot::channel();
            let read: Read = Box::new(move |db| {
                Box::pin(async move {
                    let (patience, line) = (db.options.patience, db.line());
                    let asked = tokio::time::timeout(patience, ask(Arc::clone(&db))).await;
                    let found = asked.unwrap_or_else(|_| Err(db.is_silent(&line)));
                    // Who asked has gone: fine.
                    let _ = to.send(found.map_err(|fault| fault.refused(&db.place)));
                })
            });
            self.reads.send(read).map_err(|_| self.is_closed())?;
            answer.await.map_err(|_| self.is_closed())?
        })
    }

    fn is_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(self.is_closed()) } else { Ok(()) }
    }

    fn is_closed(&self) -> StoreError {
        StoreError::refused(RefusedKind::Closed, format!("\"{}\" was closed by this program", self.db.place))
    }
}

/// What the thread of a store is given.
struct Life {
    options: MongoOptions,
    to_write: mpsc::Receiver<Command>,
    to_read: mpsc::UnboundedReceiver<Read>,
    hints: broadcast::Sender<Hint>,
    ready: oneshot::Sender<Result<Arc<Db>, StoreError>>,
}

/// Opens, and serves until the store is closed or dropped.
fn live(life: Life) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody waits any more: fine.
            let _ = life.ready.send(Err(no_thread(&error)));
            return;
        }
    };
    runtime.block_on(async move {
        let place = life.options.place();
        let begun = async {
            let db = Arc::new(open::open(life.options).await?);
            let stream = hints::listen(&db).await.map_err(|fault| fault.refused(&place))?;
            Ok((db, stream))
        };
        let (db, stream) = match begun.await {
            Ok(begun) => begun,
            Err(error) => {
                // Nobody waits any more: fine.
                let _ = life.ready.send(Err(error));
                return;
            }
        };
        let own = InstanceId::generate().to_string();
        let writer = Writer::new(Arc::clone(&db), life.to_write, life.hints.clone(), own.clone());
        if life.ready.send(Ok(Arc::clone(&db))).is_err() {
            return;
        }
        let reads = reader::run(Arc::clone(&db), life.to_read);
        let listens = hints::run(db, own, stream, life.hints);
        // The writer ends last: what waits for it is still written when the store is dropped.
        tokio::select! {
            () = writer.run() => {}
            ((), ()) = async { tokio::join!(reads, listens) } => {}
        }
    });
}

fn no_thread(error: &std::io::Error) -> StoreError {
    StoreError::refused(RefusedKind::Unavailable, format!("no thread could be started: {error}; try again"))
}

impl Store for MongoStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { server_clock: self.db.options.clock.is_none(), ..Self::CAPABILITIES }
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        self.read(|db| async move { db.now().await })
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
        self.write(move |reply| Command::Check(repair, reply))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.read(read::agenda)
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        self.read(move |db| async move { read::due_schedules(&db, limit).await })
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        self.read(move |db| async move { read::due_runs(&db, after, limit).await })
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let task_id = task_id.clone();
        self.read(move |db| async move { read::task(&db, &task_id).await })
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        self.read(move |db| async move { list::tasks(&db, &page).await })
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let run_id = run_id.clone();
        self.read(move |db| async move { read::run(&db, &run_id).await })
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let (task_id, key) = (task_id.clone(), key.to_owned());
        self.read(move |db| async move { read::run_by_key(&db, &task_id, &key).await })
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        self.read(move |db| async move { list::runs(db, &filter, &page).await })
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        self.read(move |db| async move { list::count(db, &filter, most).await })
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let run_id = run_id.clone();
        self.read(move |db| async move { read::attempts(&db, &run_id).await })
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.read(move |db| async move { read::events(&db, &subject, after, limit).await })
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        self.read(move |db| async move { list::occurrences(&db, &task_id, &page).await })
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let name = name.to_owned();
        self.read(move |db| async move { read::lane(db, &name).await })
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let task_id = task_id.cloned();
        self.read(move |db| async move { read::counts(&db, task_id.as_ref()).await })
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.write(move |reply| Command::PutAgent(agent_id, definition, reply))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.read(move |db| async move { read::agents(&db).await })
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    /// Answers the writes that wait, and lets go of the connections.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            if self.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            let (to, answer) = oneshot::channel();
            // A writer that has ended has nothing left to write.
            match self.writes.send(Command::Close(to)).await {
                Ok(()) => answer.await.unwrap_or(Ok(())),
                Err(_) => Ok(()),
            }
        })
    }
}
