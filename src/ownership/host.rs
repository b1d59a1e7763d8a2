//! Owned work that this library executes: a managed process of the generation, whose lease is renewed, whose effects
//! pass both gates, and whose outcome is published when it ends, with or without a turn of anybody.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::answers::{Acquire, Acquired, Held};
use super::blobs::Unkept;
use super::inspect::seconds;
use super::journal::Journal;
use super::key::TaskKey;
use super::outcome::Outcome;
use super::registration::Declared;
use super::{Ownership, OwnershipSettings, draw};
use crate::agent::{AgentError, AgentResult, Answer, ErasedAgent};
use crate::error::Error;
use crate::instance::{Instance, RunContext, Work};
use crate::model::{InstanceId, Payload, Run, Seconds};
use crate::settings::Duty;
use crate::store::StoreError;
use crate::tenure::Tenure;

/// What work does while its host is cut off from the store for longer than its lease (L12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CutOff {
    /// It goes on; its effects wait until the store says that it still holds its lease.
    #[default]
    Pause,
    /// It is told to stop, and cut off after its patience.
    Cancel,
}

/// What owned work came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its answer.
    pub result: Payload,
    /// The child session, from which it can be continued on any replica.
    pub snapshot: Option<Payload>,
}

impl Done {
    /// The same, with a child session.
    #[must_use]
    pub fn with_snapshot(self, snapshot: Payload) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }

    fn outcome(self) -> Outcome {
        let Self { result, snapshot } = self;
        Outcome { result: Some(result), snapshot, ..Outcome::completed("") }
    }
}

impl From<Payload> for Done {
    fn from(result: Payload) -> Self {
        Self { result, snapshot: None }
    }
}

impl From<&str> for Done {
    fn from(text: &str) -> Self {
        Payload::text(text).into()
    }
}

impl From<String> for Done {
    fn from(text: String) -> Self {
        Payload::text(text).into()
    }
}

/// One start of a host program that executes what it owns. A cheap clone.
///
/// ```
/// # use std::sync::Arc;
/// use tenure::clock::SystemClock;
/// use tenure::ownership::{Host, OwnershipSettings, SessionKey};
/// use tenure::store::MemoryStore;
/// use tenure::{RunContext, Settings, Tenure};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let tenure = Tenure::open(store, Settings::default()).await?;
/// let host = Host::new(&tenure, OwnershipSettings::default());
/// let session = SessionKey::new("production", "researcher", "chat-7")?;
///
/// let task = host.ownership().next_task_id(&session).await?;
/// let request = host.request(session.task(task));
/// host.start(request, |_: RunContext| async { Ok("found".into()) }).await?;
/// let mut watch = host.ownership().watch();
/// while host.ownership().is_alive(&session.task(task)).await? {
///     watch.changed().await;
/// }
/// let seen = host.ownership().inspect(&session.task(task)).await?;
/// assert_eq!(seen.state.as_str(), "completed");
/// # tenure.shutdown().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Host {
    tenure: Tenure,
    ownership: Ownership,
    when_cut_off: CutOff,
    pub(super) journal: Option<Arc<Journal>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("instance", &self.instance_id()).finish_non_exhaustive()
    }
}

impl Host {
    /// A host that executes what it owns in this one's generations. Its lease, heartbeat, grace, stall limit, drain
    /// and patience are those of its settings.
    #[must_use]
    pub fn new(tenure: &Tenure, settings: OwnershipSettings) -> Self {
        let grace = tenure.settings().grace();
        let settings = OwnershipSettings { grace: settings.grace.max(grace), ..settings };
        Ownership::is_looked_after_by(tenure);
        Self {
            ownership: Ownership::of(tenure, settings),
            tenure: tenure.clone(),
            when_cut_off: CutOff::default(),
            journal: None,
        }
    }

    /// The same, with another policy for work whose host is cut off.
    #[must_use]
    pub fn when_cut_off(self, when_cut_off: CutOff) -> Self {
        Self { when_cut_off, ..self }
    }

    /// The verbs, on the same store.
    #[must_use]
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// This start of the host: the owner of what it executes.
    #[must_use]
    pub fn instance_id(&self) -> InstanceId {
        self.tenure.instance_id()
    }

    /// A request to own a task here, made for the first time.
    #[must_use]
    pub fn request(&self, key: TaskKey) -> Acquire {
        let ttl = self.request_ttl();
        Acquire::new(key, self.instance_id(), format!("{}-{:016x}", self.instance_id(), draw()), ttl)
    }

    /// Notes that the store did not answer who asked it then.
    pub(super) fn was_away(&self, asked: Instant) {
        self.tenure.instance.verdicts.failed(asked);
    }

    pub(super) fn request_ttl(&self) -> Seconds {
        seconds(self.tenure.settings().lease)
    }

    /// What every replica of this host was told, as [`Ownership::register`] compares it.
    #[must_use]
    pub fn declared(&self, namespace: impl Into<Arc<str>>, source: impl Into<Arc<str>>) -> Declared {
        let settings = self.tenure.settings();
        let (lease, grace) = (seconds(settings.lease), seconds(settings.grace()));
        Declared { namespace: namespace.into(), source: source.into(), lease, grace }
    }

    /// Owns a task and begins to execute it. Any answer but [`Acquired::Acquired`] says that nothing was begun.
    ///
    /// Work that does not end within the drain of its host is asked where it is ([`RunContext::interrupted`],
    /// [`RunContext::checkpoint`]): its run has failed as `interrupted` then, and any replica goes on from there.
    ///
    /// # Errors
    /// [`Error::Draining`]; [`Error::Invalid`]; [`Error::Store`]: nothing was begun. It may have been granted all the
    /// same: then its lease lapses, or the same request is made again.
    pub async fn start<F, Fut>(&self, request: Acquire, work: F) -> Result<Acquired, Error>
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Done, AgentError>> + Send + 'static,
    {
        let instance = &self.tenure.instance;
        if instance.is_draining() {
            return Err(Error::Draining);
        }
        let settings = instance.settings();
        if settings.duty == Duty::Nothing {
            return Err(Error::Supervision(
                "a host whose duty is nothing renews no lease and executes nothing".into(),
            ));
        }
        let request = Acquire { owner: instance.id, ttl: seconds(settings.lease), ..request };
        let asked = Instant::now();
        let (answer, run) = self.acquire(&request, asked).await?;
        let (Acquired::Acquired(held), Some((run, left))) = (&answer, run) else { return Ok(answer) };
        let agent = Arc::new(Once {
            work: Mutex::new(Some(Box::new(move |context| work(context).boxed()))),
            ownership: self.ownership.clone(),
            held: held.clone(),
            journal: self.journal.clone().map(|journal| (journal, Arc::clone(instance))),
        });
        let work = Work {
            agent,
            stops_when_cut_off: self.when_cut_off == CutOff::Cancel,
            most_checkpoint: self.ownership.settings().outcome_limit,
        };
        let generation = self.tenure.application().current();
        match instance.execute_owned(&generation, run, held.token, (asked, left), work).await {
            Ok(true) => Ok(answer),
            // Asked for at the same time, and what was asked first was not started.
            Ok(false) if instance.is_draining() => Err(Error::Draining),
            Ok(false) => Err(Error::Supervision(
                format!("run {} of \"{}\" was not started", held.run, held.key).into(),
            )),
            Err(error) if instance.is_draining() => {
                tracing::debug!(%error, "not started: the host is shutting down");
                // Who stores that may have ended before it was granted.
                let _stored = timeout(instance.settings().stores_within(), instance.flush()).await;
                Err(Error::Draining)
            }
            Err(error) => Err(Error::Supervision(error.to_string().into())),
        }
    }

    /// Asks until the store answers, with the same request, no longer than half of a lease lasts.
    async fn acquire(
        &self,
        request: &Acquire,
        asked: Instant,
    ) -> Result<(Acquired, Option<(Run, Duration)>), Error> {
        let deadline = asked + request.ttl.duration() / 2;
        let mut pause = Duration::from_millis(20);
        loop {
            match self.ownership.acquire_run(request).await {
                Err(Error::Store(StoreError::Unknown { message })) if Instant::now() + pause < deadline => {
                    tracing::debug!(message, "asked again whether it was granted");
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                answer => return answer,
            }
        }
    }
}

type Begin = Box<dyn FnOnce(RunContext) -> BoxFuture<'static, Result<Done, AgentError>> + Send>;

/// Work that is executed once.
struct Once {
    work: Mutex<Option<Begin>>,
    ownership: Ownership,
    held: Held,
    /// Where its outcome is kept until the store has it, if anywhere.
    journal: Option<(Arc<Journal>, Arc<Instance>)>,
}

impl ErasedAgent for Once {
    fn run(self: Arc<Self>, context: RunContext) -> BoxFuture<'static, AgentResult> {
        Box::pin(async move {
            let Some(work) = self.work.lock().take() else {
                return Err(AgentError::new("exception", "it was executed before"));
            };
            let done = work(context).await?;
            let kept = self.keep(done.clone()).await?;
            self.note(done).await;
            Ok(Answer::Done(kept))
        })
    }
}

impl Once {
    /// Keeps the outcome on this machine until the store has it. Without it the work is done all the same.
    async fn note(&self, done: Done) {
        let Some((journal, instance)) = &self.journal else { return };
        if let Err(error) = journal.keep(instance, self.held.clone(), done.outcome()).await {
            tracing::warn!(task = %self.held.key, %error, "an outcome is not in the journal");
        }
    }

    /// The one payload in which result and snapshot are kept with the run.
    async fn keep(&self, done: Done) -> Result<Payload, AgentError> {
        let outcome = done.outcome();
        let (size, too_large) = (outcome.size(), |why: String| AgentError::new("result_too_large", why));
        let kept = match self.ownership.keep(&self.held, &outcome).await {
            Ok(kept) => kept,
            Err(Unkept::TooLarge(most)) => {
                return Err(too_large(format!("it came to {size} bytes, expected at most {most}")));
            }
            Err(Unkept::Failed(why)) => {
                return Err(too_large(format!("it came to {size} bytes, which were not kept: {why}")));
            }
        };
        match kept.write() {
            Some(crate::model::RunResult::Inline(payload)) => Ok(payload),
            _ => Ok(Payload::text("")),
        }
    }
}
