//! The store in a Redis server, shared by any number of OS processes.
//!
//! - Every operation is one call of a script, so that it happens as a whole, at one instant of the server's clock.
//!   Rules decide here and the script applies what they decided, if what they decided on still stands.
//! - One task writes: whatever waits in its mailbox goes to the server at once. Another reads in the same way, and a
//!   third listens to what others tell.
//! - Nothing expires by itself: an expiry is a field of a run, judged by the server's clock, since a key that
//!   expired would take the fence with it (contract ownership.md, section 3).
//! - All keys of a namespace are on one node of a cluster, and there are as many as there are lanes in use and tasks
//!   with runs, and a few: when runs are pruned, nothing of them is left (P13).
//!
//! # Keys
//!
//! Runs are numbered as they are queued. A run is a record of bytes in one hash ([`record`]), what many have in common
//! is in another ([`spec`]); sorted sets hold who waits where, who has to be looked at when, and who ended when;
//! events are a stream, with cursors given in the script, so that a reader never sees one below one it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot};

use self::answer::Commons;
use self::fault::{Fault, Step};
use self::link::{Link, Shared};
use self::reader::Read;
use self::writer::{Command, Reply, Writer};
use super::server_clock::ServerClock;
use super::{
    Agenda, Answer, Capabilities, ClaimRequest, Counted, Decision, Hint, LaneView, Page, PageRequest,
    PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal, RunFilter, Store, StoreError,
};
use crate::clock::Clock;
use crate::model::{
    AgentId, Attempt, Event, InstanceId, Occurrence, Run, RunId, RunStatus, ScheduleState, Subject, Task,
    TaskId, Timestamp,
};

mod answer;
mod batch;
mod bytes;
mod claims;
mod fault;
mod hints;
mod link;
mod list;
mod message;
mod open;
mod read;
mod reader;
mod record;
mod scripts;
mod spec;
mod task;
mod writer;

/// The most calls that wait for the writer; more wait to be let in.
const MOST_WAITING: usize = 8192;
/// How many hints a watcher may be behind.
const HINTS: usize = 1024;

/// How a [`RedisStore`] is opened.
#[derive(Clone)]
pub struct RedisOptions {
    /// The server: `redis://user:password@host:6379/0`, or `rediss://` over TLS, with a server that an authority
    /// vouches for: one that the system trusts, or that of `?sslrootcert=FILE`. Never shown.
    pub url: String,
    /// Who shares the records: other namespaces of the server are other stores. 1 to 100 of letters, digits, `_`,
    /// `.`, `-` and `:`.
    pub namespace: String,
    /// The clock to go by instead of the server's: for tests.
    pub clock: Option<Arc<dyn Clock>>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long an answer may take; a write without one is unknown.
    pub response_timeout: Duration,
    /// How many replicas must have a write before it is answered (`WAIT`); with fewer it is unknown.
    pub replicas: u32,
}

impl RedisOptions {
    /// The defaults: namespace `default`, the server's clock, 5 s to connect, 30 s to answer, no replicas.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            namespace: "default".to_owned(),
            clock: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
            replicas: 0,
        }
    }
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// A store in a Redis server.
///
/// Dropping it without [`Store::close`] loses nothing that was answered: what waits is still sent.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    name: Arc<str>,
    writes: mpsc::UnboundedSender<Command>,
    reads: mpsc::UnboundedSender<Read>,
    waiting: Arc<Semaphore>,
    hints: broadcast::Sender<Hint>,
    clock: ServerClock,
    closed: AtomicBool,
}

impl RedisStore {
    /// What every store of this kind can do.
    pub const CAPABILITIES: Capabilities =
        Capabilities { name: "redis", durable: true, shared: true, watch_across: true, server_clock: true };

    /// Connects, looks at the server, and makes the keys of the namespace if there are none.
    ///
    /// # Errors
    /// [`StoreError::Refused`], saying what is wrong with the server and what to do: it cannot be reached, does not
    /// take the password, is too old, evicts keys, or its keys are of a newer version.
    pub async fn open(options: RedisOptions) -> Result<Self, StoreError> {
        let client = open::client(&options).map_err(|fault| fault.of_read("redis"))?;
        let name: Arc<str> = open::name(&client, &options).into();
        let (writes, to_write) = mpsc::unbounded_channel();
        let (reads, to_read) = mpsc::unbounded_channel();
        let (hints, _) = broadcast::channel(HINTS);
        let (ready, begun) = oneshot::channel();
        let (told, own) = (hints.clone(), Arc::clone(&name));
        let life = move || live(client, options, Life { to_write, to_read, hints: told, name: own, ready });
        // Its own thread, with a runtime of its own: whoever opens a store may stop the runtime it was opened in.
        let thread = std::thread::Builder::new().name("tenure-redis".to_owned()).spawn(life);
        thread.map_err(|error| {
            StoreError::refused(
                RefusedKind::Unavailable,
                format!("no thread could be started: {error}; try again"),
            )
        })?;
        let begun = begun.await.unwrap_or_else(|_| Err(Fault::Lost("the store has ended".to_owned())));
        let shared = begun.map_err(|fault| fault.of_read(&name))?;
        let waiting = Arc::new(Semaphore::new(MOST_WAITING));
        Ok(Self {
            shared,
            name,
            writes,
            reads,
            waiting,
            hints,
            clock: ServerClock::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// A call to the writer. Its answer may be lost with the writer: then it may have happened.
    fn write<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce(Reply<T>) -> Command + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let permit = self.permit().await?;
            let (to, answer) = oneshot::channel();
            self.writes.send(command(Reply::new(to, permit))).map_err(|_| self.is_closed())?;
            answer.await.unwrap_or_else(|_| {
                Err(StoreError::unknown(format!("\"{}\": the writer has ended", self.name)))
            })
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        self.is_open()?;
        Arc::clone(&self.waiting).acquire_owned().await.map_err(|_| self.is_closed())
    }

    /// A read: what the script answers, taken apart.
    fn read<'a, T: Send + 'static>(
        &'a self,
        call: Cmd,
        take_apart: impl FnOnce(Value, &mut Commons) -> Step<T> + Send + 'static,
    ) -> Answer<'a, T> {
        Box::pin(async move { self.ask(call, take_apart).await?.map_err(|fault| fault.of_read(&self.name)) })
    }

    async fn ask<T: Send + 'static>(
        &self,
        call: Cmd,
        take_apart: impl FnOnce(Value, &mut Commons) -> Step<T> + Send + 'static,
    ) -> Result<Step<T>, StoreError> {
        self.is_open()?;
        let (read, answer) = Read::new(call, take_apart);
        self.reads.send(read).map_err(|_| self.is_closed())?;
        answer.await.map_err(|_| self.is_closed())
    }

    fn is_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(self.is_closed()) } else { Ok(()) }
    }

    fn is_closed(&self) -> StoreError {
        StoreError::refused(RefusedKind::Closed, format!("\"{}\" was closed by this program", self.name))
    }
}

/// What the thread of a store is given.
struct Life {
    to_write: mpsc::UnboundedReceiver<Command>,
    to_read: mpsc::UnboundedReceiver<Read>,
    hints: broadcast::Sender<Hint>,
    name: Arc<str>,
    ready: oneshot::Sender<Step<Arc<Shared>>>,
}

/// Opens, and serves until the store is closed or dropped.
fn live(client: redis::Client, options: RedisOptions, life: Life) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        let why = "no runtime could be started; try again".to_owned();
        // Who opened it has gone: fine.
        let _ = life.ready.send(Err(Fault::Refused(RefusedKind::Unavailable, why)));
        return;
    };
    runtime.block_on(async move {
        let begun = async {
            let shared = Arc::new(open::look(client, options).await?);
            let channel = hints::listen(&shared).await?;
            Ok::<_, Fault>((shared, channel))
        };
        let (shared, channel) = match begun.await {
            Ok(begun) => begun,
            Err(fault) => {
                // Who opened it has gone: fine.
                let _ = life.ready.send(Err(fault));
                return;
            }
        };
        let own = InstanceId::generate().to_string();
        let link = Link::new(Arc::clone(&shared));
        let writer = Writer::new(link, life.to_write, life.hints.clone(), own.clone(), life.name.to_string());
        if life.ready.send(Ok(Arc::clone(&shared))).is_err() {
            return;
        }
        let reads = reader::run(Arc::clone(&shared), life.to_read);
        let listens = hints::run(shared, own, channel, life.hints);
        // The writer ends last: what waits for it is still sent when the store is dropped.
        tokio::select! {
            () = writer.run() => {}
            ((), ()) = async { tokio::join!(reads, listens) } => {}
        }
    });
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn now(&self) -> Answer<'_, Timestamp> {
        match &self.shared.options.clock {
            Some(clock) => Box::pin(async move { self.is_open().map(|()| clock.now()) }),
            None => Box::pin(async move {
                self.is_open()?;
                if let Some(now) = self.clock.now() {
                    return Ok(now);
                }
                let asked = Instant::now();
                self.read(redis::cmd("TIME"), read::time).await.map(|said| self.clock.said(said, asked))
            }),
        }
    }

    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>> {
        if decisions.is_empty() {
            return Box::pin(async { self.is_open().map(|()| Vec::new()) });
        }
        self.write(|reply| Command::Commit(decisions, reply))
    }

    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>> {
        let (asked, repeat) = (Instant::now(), request.repeat);
        let claimed = self.write(|reply| Command::Claim(request, reply));
        Box::pin(async move {
            let granted = claimed.await?;
            self.clock.granted(&granted, asked, repeat);
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
        let mut call = self.shared.tidy("check");
        call.arg("").arg(0);
        self.read(call, |value, _| writer::messages(value))
    }

    fn agenda(&self) -> Answer<'_, Agenda> {
        self.read(self.shared.read("agenda"), |value, _| read::agenda(value))
    }

    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>> {
        Box::pin(async move {
            list::due(self, "due_schedules", None, limit, |value, _| read::readable_tasks(value)).await
        })
    }

    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>> {
        Box::pin(async move {
            list::due(self, "due_runs", after, limit, |value, commons| commons.readable(value)).await
        })
    }

    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>> {
        let mut call = self.shared.read("task");
        call.arg(task_id.as_str());
        self.read(call, |value, _| read::task(value))
    }

    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>> {
        Box::pin(async move { list::tasks(self, &page).await?.map_err(|fault| fault.of_read(&self.name)) })
    }

    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>> {
        let mut call = self.shared.read("run");
        call.arg(record::kept_name(run_id.as_str()));
        self.read(call, |value, commons| commons.run(value))
    }

    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>> {
        let mut call = self.shared.read("run_by_key");
        call.arg(record::key_field(task_id.as_str(), key));
        self.read(call, |value, commons| commons.run(value))
    }

    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>> {
        Box::pin(
            async move { list::runs(self, &filter, &page).await?.map_err(|fault| fault.of_read(&self.name)) },
        )
    }

    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted> {
        Box::pin(
            async move { list::count(self, &filter, most).await?.map_err(|fault| fault.of_read(&self.name)) },
        )
    }

    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>> {
        let mut call = self.shared.read("attempts");
        call.arg(record::kept_name(run_id.as_str()));
        let run_id = run_id.clone();
        self.read(call, move |value, _| read::attempts(value, &run_id))
    }

    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>> {
        Box::pin(async move {
            list::events(self, subject, after, limit).await?.map_err(|fault| fault.of_read(&self.name))
        })
    }

    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>> {
        let task_id = task_id.clone();
        Box::pin(async move {
            list::occurrences(self, &task_id, &page).await?.map_err(|fault| fault.of_read(&self.name))
        })
    }

    fn lane(&self, name: &str) -> Answer<'_, LaneView> {
        let mut call = self.shared.read("lane");
        call.arg(name);
        self.read(call, |value, _| read::lane(value))
    }

    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>> {
        let mut call = self.shared.read("counts");
        call.arg(task_id.map_or("", TaskId::as_str));
        self.read(call, |value, _| read::counts(value))
    }

    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()> {
        let agent_id = agent_id.clone();
        self.write(move |reply| Command::PutAgent(agent_id, definition, reply))
    }

    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>> {
        self.read(self.shared.read("agents"), |value, _| read::agents(value))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    /// Sends what waits to be written, and lets go of the connections.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async {
            self.closed.store(true, Ordering::Release);
            self.waiting.close();
            // Sent each time: an earlier close may have been given up half-way, and what it waited for goes on.
            let (to, answer) = oneshot::channel();
            let sent = self.writes.send(Command::Close(Reply::at_the_end(to)));
            // A writer that has ended has nothing left to send.
            if sent.is_ok() { answer.await.unwrap_or(Ok(())) } else { Ok(()) }
        })
    }
}
