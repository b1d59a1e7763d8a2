//! The facade: everything that a host, the command line and HTTP do goes through [`Tenure`].

mod cancels;
mod counts;
mod events;
mod files;
mod runs;
mod tasks;
mod upkeep;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tenure_actors::{Application, ApplicationSpec, CloseReport, Tree};
use tokio::time::sleep;
use uuid::Uuid;

use crate::agent::Agent;
use crate::clock::SystemClock;
use crate::error::Error;
use crate::instance::{Files, Health, Instance};
use crate::model::{AgentId, InstanceId, RunStatus, Timestamp};
use crate::rules::Moment;
use crate::settings::{Duty, Settings};
use crate::store::{Decision, SqliteOptions, SqliteStore, Store};

pub use cancels::{CancelFilter, Cancelled};
pub use events::EventStream;
pub use runs::{RunRequest, RunState};
pub use tasks::{Deletion, TaskStatus};

/// How often a decision is made again because others were first.
const TRIES: u32 = 32;
/// After so many refusals who decides steps aside for a moment before each further try: a host that is nearer to the
/// store would be first again and again. All pauses together take about a second.
const AT_ONCE: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A host of durable tasks: it keeps them in a store, and executes runs whose agents it has.
///
/// A cheap clone. Dropping the last one stops nothing: call [`Tenure::shutdown`].
///
/// ```
/// use std::sync::Arc;
/// use tenure::clock::SystemClock;
/// use tenure::model::TaskSpec;
/// use tenure::store::MemoryStore;
/// use tenure::{RunContext, RunRequest, Settings, Tenure};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let tenure = Tenure::open(store, Settings::default()).await?;
/// tenure.register_agent("greeter", |context: RunContext| async move {
///     Ok(format!("hello, {}", context.query()).into())
/// })?;
/// tenure.create_task(TaskSpec::parse(
///     r#"{ "task_id": "greet", "agent_id": "greeter", "query": "world" }"#,
/// )?).await?;
/// let run = tenure.run_now(&"greet".to_owned().try_into()?, RunRequest::default()).await?;
/// let run = tenure.wait(&run.run_id, None).await?.run;
/// assert_eq!(run.result.map(|result| result.preview()).as_deref(), Some("hello, world"));
/// tenure.shutdown().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tenure {
    pub(crate) instance: Arc<Instance>,
    application: Application,
    turns: Arc<tasks::Turns>,
}

/// How a host is (`GET /status`).
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// This start of the host.
    pub instance: InstanceId,
    /// How it is.
    pub health: Health,
    /// Its agents.
    pub agents: Arc<[AgentId]>,
    /// Runs by status, of all tasks.
    pub counts: Vec<(RunStatus, u64)>,
}

/// How a host ended.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// How its last generation closed.
    pub report: Arc<CloseReport>,
    /// Attempts that were interrupted because they did not end within the drain: their runs are queued again.
    pub interrupted: usize,
    /// Outcomes that the store did not take in time. Their leases end, and their runs are taken over.
    pub unstored: usize,
}

impl Tenure {
    /// Opens a host on a store: its scheduler, claimer, heartbeat and housekeeper begin at once.
    ///
    /// # Errors
    /// [`Error::Workspace`] when the folder for the files of runs cannot be used; [`Error::Supervision`] when the
    /// supervision tree does not come up.
    ///
    /// Cancel safety: dropping the future may leave a host that works and that nobody holds; let it come to its end.
    pub async fn open(store: Arc<dyn Store>, settings: Settings) -> Result<Self, Error> {
        let files = Files::open(&settings).await?;
        let instance = Arc::new(Instance::new(store, settings, files));
        let spec = ApplicationSpec::from(instance.generation());
        let application = Application::open(spec).await?;
        Ok(Self { instance, application, turns: Arc::default() })
    }

    /// Opens a host with default settings on a SQLite file, which is made if there is none.
    ///
    /// # Errors
    /// As [`Tenure::open`]; [`Error::Store`] when the file cannot be used.
    ///
    /// Cancel safety: as of [`Tenure::open`].
    pub async fn embedded(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let store = Arc::new(SqliteStore::open(SqliteOptions::new(path, Arc::new(SystemClock)))?);
        let opened = Self::open(Arc::clone(&store) as Arc<dyn Store>, Settings::default()).await;
        if opened.is_err()
            && let Err(error) = store.close().await
        {
            // Why nothing was opened is what its caller hears.
            tracing::warn!(%error, "the file of a host that did not open was not closed in order");
        }
        opened
    }

    /// A facade on a store that does nothing by itself: nothing is fired, claimed or swept here. For who looks
    /// at a store, or changes what is in it, beside the hosts that execute it.
    ///
    /// # Errors
    /// As [`Tenure::open`].
    pub async fn attach(store: Arc<dyn Store>, settings: Settings) -> Result<Self, Error> {
        Self::open(store, Settings { duty: Duty::Nothing, ..settings }).await
    }

    // --- agents -----------------------------------------------------------------------------------------

    /// Registers an agent under an id; one with that id before it executes no further attempts.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the id is none.
    pub fn register_agent<A: Agent>(&self, agent_id: &str, agent: A) -> Result<(), Error> {
        self.register_agent_object(agent_id, Arc::new(agent))
    }

    /// [`Tenure::register_agent`] with an object that the caller keeps.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the id is none.
    pub fn register_agent_object<A: Agent>(&self, agent_id: &str, agent: Arc<A>) -> Result<(), Error> {
        let agent_id = AgentId::new(agent_id)?;
        if agent_id.is_reserved() {
            return Err(Error::reserved("agent_id", agent_id.as_str()));
        }
        self.instance.register(agent_id, agent);
        Ok(())
    }

    /// Forgets an agent: nothing more is claimed for it here. Attempts in progress go on. False if there was
    /// none.
    pub fn unregister_agent(&self, agent_id: &AgentId) -> bool {
        self.instance.unregister(agent_id)
    }

    /// Whether an agent of this name is registered here. Another host of the store may have it all the same.
    #[must_use]
    pub fn has_agent(&self, agent_id: &AgentId) -> bool {
        self.instance.agent(agent_id).is_some()
    }

    /// The agents registered here, by name.
    #[must_use]
    pub fn agents(&self) -> Arc<[AgentId]> {
        self.instance.agents()
    }

    // --- the host ---------------------------------------------------------------------------------------

    /// This start of the host.
    #[must_use]
    pub fn instance_id(&self) -> InstanceId {
        self.instance.id
    }

    /// Its settings as they are now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.instance.settings()
    }

    /// How it is. Asks nobody: it tells the truth also while the store does not answer.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            store: self.instance.vitals.store(),
            draining: self.instance.is_draining(),
            executing: self.instance.live.len(),
            unstored: self.instance.outbox.len(),
        }
    }

    /// Asks the store what time it is: whether it answers at all. [`Tenure::health`] knows then.
    ///
    /// # Errors
    /// [`Error::Store`] when it does not answer.
    pub async fn probe(&self) -> Result<Timestamp, Error> {
        Ok(self.instance.moment().await?.now)
    }

    /// How it is, with the counts of the store.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer.
    pub async fn status(&self) -> Result<Status, Error> {
        let counts = self.instance.store.counts(None).await?;
        Ok(Status { instance: self.instance.id, health: self.health(), agents: self.agents(), counts })
    }

    /// The live supervision tree.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.application.tree()
    }

    /// The application in whose generations attempts execute: for plugins of the host.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// Replaces the generation: the old one's attempts are told to stop, and end as interrupted, their runs
    /// queued again; late results are dropped. The new one claims at once.
    ///
    /// # Errors
    /// [`Error::Supervision`] when the application was closed.
    pub async fn replace(&self) -> Result<Arc<CloseReport>, Error> {
        Ok(self.application.replace().await?)
    }

    /// [`Tenure::replace`] with other settings for all that begins from now on. The store and the folder for the
    /// files of runs stay as they were opened.
    ///
    /// # Errors
    /// As [`Tenure::replace`].
    pub async fn replace_with(&self, settings: Settings) -> Result<Arc<CloseReport>, Error> {
        self.instance.set_settings(settings);
        Ok(self.application.replace_with(self.instance.generation()).await?)
    }

    /// Ends the host (T44): nothing new begins; attempts may end within the drain; the others are interrupted
    /// and their runs queued again, no retry spent; outcomes are stored. The store is left open.
    ///
    /// # Errors
    /// [`Error::Supervision`] when the close failed.
    pub async fn shutdown(&self) -> Result<Shutdown, Error> {
        let instance = &self.instance;
        instance.drain();
        let in_time = tokio::time::timeout(instance.settings().drain, instance.live.emptied()).await;
        let interrupted = if in_time.is_ok() { 0 } else { instance.live.len() };
        let report = self.application.close().await?;
        // The recorder flushed before it was stopped; what it could not store is given one more chance, and the files
        // of that what is left of it.
        let once_more = async {
            instance.flush().await;
            instance.mirror_rest().await;
        };
        let _stored = tokio::time::timeout(instance.settings().stores_within(), once_more).await;
        Ok(Shutdown { report, interrupted, unstored: instance.outbox.len() })
    }

    // --- deciding ---------------------------------------------------------------------------------------

    /// Reads, decides and writes until the decision is made on what still stands. `decide` is called again
    /// after every refusal; it answers what to write and what to return, or what to return without a write.
    async fn decide<T, F, Fut>(&self, what: &str, mut decide: F) -> Result<T, Error>
    where
        F: FnMut(Moment) -> Fut,
        Fut: Future<Output = Result<Decided<T>, Error>>,
    {
        for refusals in 0..TRIES {
            step_aside(refusals).await;
            let moment = self.instance.moment().await?;
            let (decision, answer) = match decide(moment).await? {
                Decided::Write(decision, answer) => (*decision, answer),
                Decided::Already(answer) => return Ok(answer),
            };
            match self.instance.commit_one(decision).await? {
                Ok(()) => return Ok(answer),
                Err(refusal) => tracing::debug!(%refusal, what, "decided again"),
            }
        }
        Err(Error::Contended { what: what.to_owned() })
    }
}

/// Waits for a while, drawn so that two who wait do not meet again; not at all after few refusals.
async fn step_aside(refusals: u32) {
    if refusals >= AT_ONCE {
        let drawn = (Uuid::new_v4().as_u128() >> 96) as u32;
        sleep(LONGEST_PAUSE.mul_f64(f64::from(drawn) / f64::from(u32::MAX))).await;
    }
}

/// What a decision comes to.
enum Decided<T> {
    /// This is to be written, and then answered.
    Write(Box<Decision>, T),
    /// This is to be answered; there is nothing to write.
    Already(T),
}

impl<T> Decided<T> {
    fn write(decision: impl Into<Decision>, answer: T) -> Self {
        Self::Write(Box::new(decision.into()), answer)
    }
}
