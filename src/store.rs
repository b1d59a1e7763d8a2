//! Where records are kept: one port, and the stores behind it.
//!
//! A store offers conditional writes, claims, listings and its clock, and decides nothing (design.md,
//! section 5): rules decide on a snapshot, and one [`Decision`] is applied if what it was decided on still
//! stands.
//!
//! # Invariants every store keeps
//!
//! 1. A decision is applied as a whole or not at all, and durable before it is answered.
//! 2. A [`RunWrite`] is applied only if the run's version is the expected one and, where a token is named, the
//!    token is the current one. A write with another token answers [`Refusal::Fenced`] and changes nothing
//!    (I3). The same write twice is made once: a run that carries the stamp of the write answers as if it were
//!    made now.
//! 3. A terminal run never changes (T2); the store does not rely on the rules for it.
//! 4. Fences of a run rise with every grant and revocation (I2), and the expiry of a lease never moves back
//!    while its token stands (L5).
//! 5. Occurrences are unique by task and due time, also of tasks that are gone (T30). Idempotency keys are
//!    unique by task while their run is kept (U1).
//! 6. Events are written in the transaction of the change they tell, numbered by it; a reader of all events
//!    never sees a cursor below one it has seen.
//! 7. A lane never has more runs that [take room](RunStatus::takes_room) than its limit says when one is
//!    claimed; a run that waits for a lane is looked at again only when there is room.
//! 8. What time it is, is the store's affair: leases expire, runs become due by its clock alone (G16).
//! 9. An error says whether the call did [not happen](StoreError::Refused) or [may have](StoreError::Unknown).
//!
//! Every future may be dropped: a write may then have been made or not, as after [`StoreError::Unknown`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use crate::model::{
    AgentId, Attempt, CancelIntent, Event, InstanceId, NewEvent, Occurrence, Run, RunId, RunStatus,
    ScheduleState, Subject, Task, TaskId, Timestamp, Token, Trigger,
};

pub(crate) mod apart;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
#[cfg(feature = "conformance")]
pub mod faulty;
#[cfg(any(feature = "postgres", feature = "mongodb"))]
mod hint;
mod memory;
#[cfg(feature = "mongodb")]
mod mongodb;
mod pager;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server_clock;
mod sharing;
mod sqlite;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls;

pub use error::{RefusedKind, StoreError};
pub use memory::MemoryStore;
#[cfg(feature = "mongodb")]
pub use mongodb::{MongoOptions, MongoStore};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStore};
#[cfg(feature = "conformance")]
pub use sqlite::{Between, Look};
pub use sqlite::{SchemaVersions, SqliteOptions, SqliteStore, Synchronous};

/// What a store answers, once it has.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Keeps tasks, schedules, occurrences, runs, attempts, events, and what is said of agents. See the
/// [module](self) for the invariants.
pub trait Store: Send + Sync + 'static {
    /// What it can do beyond the invariants.
    fn capabilities(&self) -> Capabilities;

    /// The store's clock. That of a server may be told by what it said within the last 100 ms, with what has passed
    /// here since: then it is behind by what the answer took, at most 50 ms, and not ahead.
    fn now(&self) -> Answer<'_, Timestamp>;

    // --- writes -----------------------------------------------------------------------------------------

    /// Applies decisions, each for itself, in order.
    ///
    /// - *Ensures*: an answer for each, in order; `Ok` means applied and durable.
    /// - *Refuses when*: what a decision was made on no longer stands.
    /// - *Idempotent by*: the stamps of its runs and the versions of its other records.
    fn commit(&self, decisions: Vec<Decision>) -> Answer<'_, Vec<Result<(), Refusal>>>;

    /// Grants ready runs to an instance: only those whose agent it names, by priority, then due time, then
    /// the order in which they were queued. What became due meanwhile is ready. Each is written by
    /// [`crate::rules::claim`], with its event.
    ///
    /// - *Ensures*: no run is granted twice; each has room in its lanes, its task is not paused. A grant survives the
    ///   end of the OS process, and is as durable as the store is with the start of its attempt, if not before.
    /// - *Idempotent by*: the request: with `repeat` it first answers what the same request was granted and
    ///   is still merely claimed (L17).
    fn claim(&self, request: ClaimRequest) -> Answer<'_, Vec<Run>>;

    /// Renews leases; the answer is a command for each, in order (L3 to L5, L16). No version rises, no event
    /// is written.
    fn renew(&self, request: RenewRequest) -> Answer<'_, Vec<Renewal>>;

    /// Removes finished runs with their attempts and events, and old occurrences: a bounded batch. Nothing
    /// live, and no fence that could still be used, is lost (G2).
    fn prune(&self, request: PruneRequest) -> Answer<'_, Pruned>;

    /// Compares what is derived from runs (lanes, counters) with them, and repairs it if asked (K7).
    fn check(&self, repair: bool) -> Answer<'_, Vec<String>>;

    // --- what is due ------------------------------------------------------------------------------------

    /// When something is due next, by the store's clock.
    fn agenda(&self) -> Answer<'_, Agenda>;

    /// Schedules of tasks that are not paused whose time to fire has come, the longest overdue first.
    fn due_schedules(&self, limit: usize) -> Answer<'_, Vec<(Task, ScheduleState)>>;

    /// Runs that somebody has to look at: [`crate::rules::wake_at`] has come. In that order, page by page.
    fn due_runs(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Answer<'_, Vec<Run>>;

    // --- reads, each one consistent snapshot ------------------------------------------------------------

    /// A task and its schedule.
    fn task(&self, task_id: &TaskId) -> Answer<'_, Option<(Task, ScheduleState)>>;

    /// Tasks by name.
    fn tasks(&self, page: PageRequest) -> Answer<'_, Page<(Task, ScheduleState)>>;

    /// A run.
    fn run(&self, run_id: &RunId) -> Answer<'_, Option<Run>>;

    /// The run that was made for this idempotency key.
    fn run_by_key(&self, task_id: &TaskId, key: &str) -> Answer<'_, Option<Run>>;

    /// Runs, the newest first. A page may be shorter than its limit, even empty, while it has a cursor: a store
    /// looks at no more than so many runs for one page, whatever the filter lets through.
    fn runs(&self, filter: RunFilter, page: PageRequest) -> Answer<'_, Page<Run>>;

    /// How many runs a filter lets through, counted up to `most`. Like a page it looks at no more than so many runs:
    /// the answer says whether there are others.
    fn count(&self, filter: RunFilter, most: u64) -> Answer<'_, Counted>;

    /// The attempts of a run, in order.
    fn attempts(&self, run_id: &RunId) -> Answer<'_, Vec<Attempt>>;

    /// Events of a run or a task after a sequence number, or of all after a cursor, in order.
    fn events(&self, subject: Subject, after: u64, limit: usize) -> Answer<'_, Vec<Event>>;

    /// Occurrences of a task, the newest first.
    fn occurrences(&self, task_id: &TaskId, page: PageRequest) -> Answer<'_, Page<Occurrence>>;

    /// A lane as it stands.
    fn lane(&self, name: &str) -> Answer<'_, LaneView>;

    /// How many runs there are by status, of a task or of all.
    fn counts(&self, task_id: Option<&TaskId>) -> Answer<'_, Vec<(RunStatus, u64)>>;

    // --- agents that are configured ---------------------------------------------------------------------

    /// Keeps what is said of an agent, in place of what was said before; or forgets it. The text is the
    /// caller's affair: a store keeps it as it is.
    ///
    /// - *Ensures*: durable when it is answered; watchers are told.
    /// - *Idempotent by*: what it leaves behind is the same however often it is made.
    fn put_agent(&self, agent_id: &AgentId, definition: Option<Arc<str>>) -> Answer<'_, ()>;

    /// What is said of agents, by name.
    fn agents(&self) -> Answer<'_, Vec<(AgentId, Arc<str>)>>;

    // --- the rest ---------------------------------------------------------------------------------------

    /// Hints that something changed. Lossy: who misses one sees it at the next poll.
    fn watch(&self) -> broadcast::Receiver<Hint>;

    /// Writes what is pending and lets go. Calls afterwards are refused.
    fn close(&self) -> Answer<'_, ()>;
}

/// What a store can do beyond the invariants; the conformance suite holds it to each, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name in URLs and tables.
    pub name: &'static str,
    /// What was answered survives the end of this OS process.
    pub durable: bool,
    /// Several OS processes may use it at once.
    pub shared: bool,
    /// A change made by one of them wakes watchers in the others; else they poll.
    pub watch_across: bool,
    /// The clock is that of a server, and not of this host.
    pub server_clock: bool,
}

/// One decision: what is written, and what must still stand for it.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// A task that must stand at a revision; and what becomes of it.
    pub task: Option<TaskWrite>,
    /// A schedule that moves.
    pub schedule: Option<ScheduleWrite>,
    /// Runs that are made or moved.
    pub runs: Vec<RunWrite>,
    /// Lanes in which nothing may have come or gone since they were looked at.
    pub lanes: Vec<LaneExpect>,
    /// Occurrences to record; none of them may be recorded already.
    pub occurrences: Vec<Occurrence>,
    /// Ended runs to remove, with their attempts and events, after all else was written. One that is not there
    /// is removed already; one that has not ended is refused as [`Refusal::StaleRun`].
    pub forget: Vec<RunId>,
}

impl From<RunWrite> for Decision {
    fn from(write: RunWrite) -> Self {
        Self { runs: vec![write], ..Self::default() }
    }
}

/// A task that must stand at a revision; and what becomes of it.
#[derive(Debug, Clone)]
pub struct TaskWrite {
    /// The task.
    pub task_id: TaskId,
    /// Its revision; none if there must be no such task.
    pub expect: Option<u64>,
    /// What becomes of it.
    pub change: TaskChange,
    /// Its own events. A deleted task's are kept until they are pruned.
    pub events: Vec<NewEvent>,
}

/// What becomes of a task.
#[derive(Debug, Clone)]
pub enum TaskChange {
    /// Nothing: it only has to stand.
    Keep,
    /// This is what it is now. A new one needs a [`ScheduleWrite`] beside it.
    Put(Box<Task>),
    /// It and its schedule are gone. Its runs and occurrences stay.
    Delete,
}

/// A schedule that moves.
#[derive(Debug, Clone)]
pub struct ScheduleWrite {
    /// The version it must stand at; none if there must be none.
    pub expect: Option<u64>,
    /// What it is now, with its version raised.
    pub state: ScheduleState,
}

/// A run that is made or moved.
#[derive(Debug, Clone)]
pub struct RunWrite {
    /// What must stand.
    pub expect: Expect,
    /// What it is now, as a whole, with its version raised. The place is the store's to say; an expiry is
    /// taken only forward while the token stands.
    pub run: Run,
    /// An attempt that is made, or replaces the one with its number.
    pub attempt: Option<Attempt>,
    /// What is told of it, numbered on from the run's last event.
    pub events: Vec<NewEvent>,
}

/// What must stand for a run to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There is no such run.
    Absent,
    /// It stands at this version, and under this token if one is named.
    At {
        /// The version.
        version: u64,
        /// The token; none when the write needs no grant: a cancel, a sweep.
        token: Option<Token>,
        /// The expiry of its lease, when the lease must not have been renewed since: renewals raise no
        /// version, and none is overridden by who found the lease expired before it (L21).
        unrenewed: Option<Timestamp>,
    },
}

/// A lane in which nothing may have come or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneExpect {
    /// The lane.
    pub name: Arc<str>,
    /// Its version as it was seen.
    pub version: u64,
}

/// A lane as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneView {
    /// Rises when a run comes into the lane, leaves it, takes room in it or gives it back. 0 when nothing is
    /// in it.
    pub version: u64,
    /// The active runs in it, in the order they were queued: the first hundred.
    pub active: Vec<LaneRun>,
    /// How many there are in all.
    pub total: u64,
    /// A queued run in it that a schedule wanted.
    pub scheduled_waiting: Option<RunId>,
}

/// A run in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRun {
    /// The run.
    pub run_id: RunId,
    /// Where it stands.
    pub status: RunStatus,
    /// What wanted it.
    pub trigger: Trigger,
}

/// Why a decision was not applied. It has changed nothing; read again, and decide again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run moved on under the same grant, or without one.
    #[error("run \"{run_id}\" is {status} at version {version}")]
    StaleRun {
        /// The run.
        run_id: RunId,
        /// Its version.
        version: u64,
        /// Where it stands.
        status: RunStatus,
    },
    /// The token is not the current one.
    #[error(
        "run \"{run_id}\" is {status} under fence {fence}: the token that was shown has lost its authority"
    )]
    Fenced {
        /// The run.
        run_id: RunId,
        /// Its fence.
        fence: u64,
        /// Where it stands.
        status: RunStatus,
    },
    /// There is no such run.
    #[error("run \"{run_id}\" does not exist")]
    NoRun {
        /// The run.
        run_id: RunId,
    },
    /// The task is not at the expected revision.
    #[error("task \"{task_id}\" was changed meanwhile")]
    StaleTask {
        /// The task.
        task_id: TaskId,
        /// Its revision; none if there is no such task.
        revision: Option<u64>,
    },
    /// The schedule is not at the expected version.
    #[error("the schedule of task \"{task_id}\" has moved")]
    StaleSchedule {
        /// The task.
        task_id: TaskId,
        /// Its version; none if there is no such schedule.
        version: Option<u64>,
    },
    /// Something came into the lane or left it.
    #[error("lane \"{name}\" has moved")]
    StaleLane {
        /// The lane.
        name: Arc<str>,
        /// Its version.
        version: u64,
    },
    /// These occurrences have a record already.
    #[error("task \"{task_id}\" has a record for {} of these occurrences", due_at.len())]
    OccurrenceExists {
        /// The task.
        task_id: TaskId,
        /// Their due times.
        due_at: Vec<Timestamp>,
    },
    /// The idempotency key has a run.
    #[error("the idempotency key belongs to run \"{run_id}\"")]
    KeyExists {
        /// That run.
        run_id: RunId,
        /// The digest of the request it was made for.
        digest: u64,
    },
}

/// A request for runs.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who asks.
    pub instance: InstanceId,
    /// Drawn for this request: the nonce of what is granted.
    pub nonce: u64,
    /// The agents it has.
    pub agents: Arc<[AgentId]>,
    /// The most it takes.
    pub limit: usize,
    /// How long each lease is.
    pub lease: Duration,
    /// Whether this asks again for what an earlier request with this nonce may have been granted.
    pub repeat: bool,
}

/// A request to renew leases.
#[derive(Debug, Clone)]
pub struct RenewRequest {
    /// Who holds them.
    pub instance: InstanceId,
    /// The runs, each with its token.
    pub leases: Vec<(RunId, Token)>,
    /// How long each lease is from now.
    pub lease: Duration,
}

/// What the holder of a lease has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// Go on.
    Renewed {
        /// Until when, by the store's clock.
        expires_at: Timestamp,
        /// That somebody wants it cancelled.
        cancel: Option<CancelIntent>,
    },
    /// Stop: the token is not the current one, or the run has ended.
    Fenced {
        /// The run's fence.
        fence: u64,
        /// Where it stands.
        status: RunStatus,
    },
    /// Stop: there is no such run.
    Gone,
}

/// What may be removed.
#[derive(Debug, Clone, Copy)]
pub struct PruneRequest {
    /// Runs that ended, and occurrences and task events that were recorded, before this instant.
    pub before: Timestamp,
    /// Besides these, the oldest finished runs beyond this number.
    pub keep: u64,
    /// The most runs to remove in this call.
    pub limit: usize,
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Finished runs.
    pub runs: u64,
    /// The folders of those runs below the workspace root, for who removes their files.
    pub workspaces: Vec<Arc<str>>,
    /// Occurrences.
    pub occurrences: u64,
    /// Whether there is more to remove.
    pub more: bool,
}

/// When something is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agenda {
    /// The store's clock.
    pub now: Timestamp,
    /// When a schedule fires.
    pub schedule: Option<Timestamp>,
    /// When a run becomes due.
    pub run: Option<Timestamp>,
    /// When a run has to be looked at.
    pub wake: Option<Timestamp>,
    /// Whether runs are ready now.
    pub ready: bool,
}

/// Which page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The most entries; at least 1.
    pub limit: usize,
    /// Where to go on: the cursor of the page before.
    pub cursor: Option<String>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { limit: 100, cursor: None }
    }
}

/// A page of a listing. Stable under inserts: what is on one page is on no other.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The cursor of the next page; none after the last.
    pub next: Option<String>,
    /// Records that could not be read, by name, with the reason: the others are served (F2).
    pub corrupt: Vec<(String, String)>,
}

/// Which runs. What is left out does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this task.
    pub task_id: Option<TaskId>,
    /// Of this agent.
    pub agent_id: Option<AgentId>,
    /// Of this session.
    pub session_id: Option<Arc<str>>,
    /// In one of these states.
    pub statuses: Vec<RunStatus>,
    /// Wanted by this.
    pub trigger: Option<Trigger>,
    /// Queued at or after.
    pub created_after: Option<Timestamp>,
    /// Queued before.
    pub created_before: Option<Timestamp>,
    /// With this in the query, ignoring case of ASCII letters.
    pub text: Option<String>,
    /// Executed by a host itself ([`crate::ownership`]), or not.
    pub owned: Option<bool>,
}

/// How many runs were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// So many at least.
    pub count: u64,
    /// So many, and no more.
    pub exact: bool,
}

/// What changed. Every transaction makes at most one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hint {
    /// Runs may have become ready.
    pub ready: bool,
    /// What is due next may have changed.
    pub agenda: bool,
    /// What is said of agents may have changed.
    pub agents: bool,
    /// Runs that somebody wants cancelled, or whose authority was revoked.
    pub cancels: Vec<RunId>,
    /// The cursor of the newest event.
    pub cursor: u64,
}
