//! Ownership for hosts that execute their own work: who runs what is kept in the store, so that every replica of a
//! host sees it, and only a store-judged lease decides whether an owner is gone (contract ownership.md).
//!
//! A *session* groups the tasks of one conversation; a *task* is a number in it; its *runs* are counted from 1,
//! each continuation is the next. An *owner* is one start of a host program. [`Ownership`] has the verbs; a host
//! that lets this library execute the work uses [`Host`] and [`SessionTasks`] over it. How two replicas use them is
//! in `docs/OWNERSHIP.md`.
//!
//! # How it is kept
//!
//! A session is one [`Task`](crate::model::Task) record that nothing dispatches, a run one
//! [`Run`] of it, under ids of its key (`key.rs`). So a run, its lease, its cancel intent and its
//! outcome are one record, and every verb is one conditional write:
//!
//! 1. A run begins with its session as it was read: a release in between refuses it (I9), and so does another
//!    start. Numbers of tasks and of their latest runs are part of the session.
//! 2. The fence of a run begins above that of the run before it and rises with every grant and revocation, so that
//!    fences of a task strictly rise (I2). Its nonce is drawn.
//! 3. A run whose lease lapsed is *lost* and stays so: nobody claims it, and only its owner's proof, a successor or
//!    its session takes it on. A lost run that was superseded or given up is never its owner's again (I3).
//! 4. A terminal run never changes (I4). What comes later is told in the session's own history.
//!
//! Nothing here takes an outage for evidence: errors tell what did not happen from what may have
//! ([`StoreError`]), and each verb may be repeated.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Error;
use crate::instance::Instance;
use crate::model::Run;
use crate::rules::Moment;
use crate::store::{Decision, Refusal, Store, StoreError};
use crate::tenure::Tenure;

mod answers;
mod blobs;
mod cancels;
mod grants;
mod host;
mod inspect;
mod journal;
mod key;
mod outcome;
mod publish;
mod record;
mod registration;
mod retention;
mod session_tasks;
pub(crate) mod token_text;
mod watch;

pub use answers::{
    Acknowledgement, Acquire, Acquired, Cancel, CancelAnswer, CancelScope, DeclaredLost, Expected, Forgotten,
    Held, IdempotencyKey, Inspection, Published, Reaped, Regranted, Release, Released, Renewed, Retention,
    SessionInspection, TaskState, WithParent,
};
pub use blobs::{Blob, Blobs};
pub use host::{CutOff, Done, Host};
pub use journal::Recovered;
pub use key::{MOST_KEY_BYTES, SessionKey, TaskKey};
pub(crate) use outcome::kept_snapshot;
pub use outcome::{End, Finished, Outcome};
pub use record::MOST_TASKS;
pub use registration::{Declared, Registered};
pub use session_tasks::{
    ChildAgent, ChildDone, ChildSession, Continued, SessionTasks, SessionTasksSettings, StartTask,
    StartedTask, Waited, WhenStopped,
};
pub use watch::Watch;

use blobs::Hooks;
use record::Stored;

/// How often a decision is made again because others were first.
const TRIES: usize = 128;

/// How many sessions may be written at once by one of these.
const TURNS: usize = 64;

/// How ownership is kept.
#[derive(Clone)]
pub struct OwnershipSettings {
    /// The only namespace that is served: keys of others do not exist here (P15). Left out, all are.
    pub namespace: Option<Arc<str>>,
    /// How long an expired lease may at least still be renewed before it is declared lost. Default 20 s.
    pub grace: Duration,
    /// Outcomes of more bytes are kept by the hook, or refused as too large. Default 1 MiB.
    pub outcome_limit: usize,
    /// The longest that a change nobody hinted at stays unnoticed by who waits. Default 1 s.
    pub poll: Duration,
    /// Keeps what is too large, and removes it when it is over.
    pub blobs: Option<Arc<dyn Blobs>>,
}

impl Default for OwnershipSettings {
    fn default() -> Self {
        Self {
            namespace: None,
            grace: Duration::from_secs(20),
            outcome_limit: 1 << 20,
            poll: Duration::from_secs(1),
            blobs: None,
        }
    }
}

/// The verbs of ownership, over a store that replicas share. A cheap clone.
///
/// ```
/// # use std::sync::Arc;
/// use tenure::clock::SystemClock;
/// use tenure::model::{InstanceId, Seconds};
/// use tenure::ownership::{
///     Acquire, Acquired, Outcome, Ownership, OwnershipSettings, Published, SessionKey,
/// };
/// use tenure::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let ownership = Ownership::new(store, OwnershipSettings::default());
/// let session = SessionKey::new("production", "researcher", "chat-7")?;
///
/// let task = ownership.next_task_id(&session).await?;
/// let (a, b) = (InstanceId::generate(), InstanceId::generate());
/// let request = Acquire::new(session.task(task), a, "request-1", Seconds::new(30));
/// let Acquired::Acquired(held) = ownership.acquire(&request).await? else { panic!("it was free") };
///
/// let same = Acquire { owner: b, request_id: "request-2".into(), ..request };
/// assert!(matches!(ownership.acquire(&same).await?, Acquired::Held { owner, .. } if owner == a));
/// assert_eq!(ownership.publish(&held, Outcome::completed("found")).await?, Published::Committed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Ownership {
    store: Arc<dyn Store>,
    settings: Arc<OwnershipSettings>,
    /// Who writes a session waits for its turn here, so that callers of one host do not refuse each other.
    turns: Arc<[Mutex<()>; TURNS]>,
    reaped: Arc<parking_lot::Mutex<Option<String>>>,
    /// Those of the host whose store it is: who removes what is over may be another than who kept it.
    hooks: Arc<Hooks>,
    /// The host whose store it is: it knows of outages and of what it executes itself. None of who has no host.
    host: Weak<Instance>,
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ownership").field("store", &self.store.capabilities().name).finish_non_exhaustive()
    }
}

impl Ownership {
    /// Ownership that is kept in this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, settings: OwnershipSettings) -> Self {
        Self {
            store,
            settings: Arc::new(settings),
            turns: Arc::new(std::array::from_fn(|_| Mutex::default())),
            reaped: Arc::default(),
            hooks: Arc::default(),
            host: Weak::new(),
        }
    }

    /// Ownership in the store of a host, for owners that are elsewhere. What is over is removed by that host, once it
    /// is told to [look after it](Self::is_looked_after_by).
    #[must_use]
    pub fn of(tenure: &Tenure, settings: OwnershipSettings) -> Self {
        let hooks = Arc::clone(&tenure.instance.ownership.hooks);
        if let Some(hook) = &settings.blobs {
            hooks.add(settings.namespace.as_ref(), hook);
        }
        let host = Arc::downgrade(&tenure.instance);
        Self { hooks, host, ..Self::new(Arc::clone(&tenure.instance.store), settings) }
    }

    /// From now on this host removes what hosts own and was kept long enough. One that nobody asked for ownership looks
    /// for none: it would go over all tasks of its store.
    pub fn is_looked_after_by(tenure: &Tenure) {
        tenure.instance.hosts.store(true, Ordering::Relaxed);
    }

    /// How it is kept.
    #[must_use]
    pub fn settings(&self) -> &OwnershipSettings {
        &self.settings
    }

    // --- what verbs need --------------------------------------------------------------------------------

    async fn moment(&self) -> Result<Moment, StoreError> {
        Ok(Moment { now: self.store.now().await?, stamp: draw() })
    }

    /// Refuses keys that are another's.
    fn admits(&self, key: &SessionKey) -> Result<(), Error> {
        match &self.settings.namespace {
            Some(namespace) if **namespace != *key.namespace() => {
                Err(Error::NotFound { kind: "session", id: key.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn turn(&self, key: &SessionKey) -> &Mutex<()> {
        let drawn = foldhash::fast::FixedState::with_seed(0).hash_one(key);
        let at = usize::try_from(drawn % TURNS as u64).unwrap_or(0);
        &self.turns[at]
    }

    async fn stored(&self, key: &SessionKey) -> Result<Option<Stored>, Error> {
        self.admits(key)?;
        let found = self.store.task(&key.id()?).await?;
        Ok(found.map(|(task, _)| Stored::read(task, Some(key))).transpose()?)
    }

    async fn run(&self, key: &TaskKey, run: u32) -> Result<Option<Run>, Error> {
        Ok(self.store.run(&key.run_id(run)?).await?)
    }

    async fn commit(&self, decision: impl Into<Decision>) -> Result<Result<(), Refusal>, StoreError> {
        let mut answers = self.store.commit(vec![decision.into()]).await?;
        answers.pop().ok_or_else(|| StoreError::unknown("no answer for the decision"))
    }
}

fn contended(key: &impl std::fmt::Display) -> Error {
    Error::Contended { what: format!("\"{key}\"") }
}

/// The longest that somebody waits: who says more means for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 86_400);

/// When a wait of so long is over.
fn deadline(wait: Duration) -> Instant {
    Instant::now() + wait.min(LONGEST_WAIT)
}

/// Tells two inputs apart that come with one key. Stored: the seed is fixed.
pub(crate) fn digest(parts: &[&str]) -> u64 {
    digest_of(&parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>())
}

fn digest_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = foldhash::fast::FixedState::with_seed(0x6F77_6E65).build_hasher();
    for part in parts {
        hasher.write(&part.len().to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// A number that nobody has drawn before.
fn draw() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}

/// A number that follows from others: who asks for the same again is answered the same.
fn derived(numbers: [u64; 4]) -> u64 {
    numbers.into_iter().fold(0x6F77_6E65_6421, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}
