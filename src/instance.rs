//! One start of a host program: what its services and attempts share. It outlives the generations of its
//! application, so that what an attempt came to is stored though its generation was replaced.

mod attempt;
mod changes;
mod claimer;
mod context;
mod figures;
mod files;
mod grant;
mod heartbeat;
mod housekeeper;
mod late;
mod live;
mod mirror;
mod outage;
mod outbox;
mod owned;
mod pause;
mod plan;
mod recorder;
mod scheduler;
mod vitals;
mod waiters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tenure_actors::rules::Patience;
use tenure_actors::{GenerationSpec, Limits, ProcessContext, ProcessResult, ProcessSpec, ServiceSpec};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::agent::ErasedAgent;
use crate::model::{AgentId, InstanceId};
use crate::ownership::{Ownership, OwnershipSettings};
use crate::rules::Moment;
use crate::settings::{Duty, Settings};
use crate::store::{Store, StoreError};

pub use context::{AuthorityError, RunContext};
pub use vitals::{Health, StoreHealth};

pub(crate) use attempt::Work;
pub(crate) use files::Files;
pub(crate) use plan::Fate;

use live::LiveRuns;
use outage::Outage;
use outbox::Outbox;
use vitals::Vitals;
use waiters::Waiters;

/// What the services and attempts of one host share.
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) store: Arc<dyn Store>,
    settings: RwLock<Arc<Settings>>,
    pub(crate) live: LiveRuns,
    pub(crate) outbox: Outbox,
    pub(crate) waiters: Waiters,
    pub(crate) vitals: Vitals,
    pub(crate) outage: Outage,
    /// Where it keeps the files of runs, if it does.
    pub(crate) files: Option<Files>,
    /// The history of late outcomes, and the retention of what hosts own.
    pub(crate) ownership: Ownership,
    /// Whether anything is owned here: then what was kept long enough is looked for.
    pub(crate) hosts: AtomicBool,
    agents: RwLock<Agents>,
    /// Notified when an agent was registered.
    new_agent: Notify,
    draining: watch::Sender<bool>,
    draws: Draws,
    /// Drawn from a row of their own, so that delays do not depend on how often the store was asked.
    delays: Draws,
}

#[derive(Default)]
struct Agents {
    by_id: BTreeMap<AgentId, Arc<dyn ErasedAgent>>,
    /// The same names as the store is asked with them, made anew with every change.
    ids: Arc<[AgentId]>,
}

impl Instance {
    pub(crate) fn new(store: Arc<dyn Store>, settings: Settings, files: Option<Files>) -> Self {
        let draws = Draws::new(settings.seed);
        let delays = Draws::new(settings.seed.map(|seed| !seed));
        let owning = OwnershipSettings { grace: settings.grace(), ..OwnershipSettings::default() };
        Self {
            id: InstanceId::generate(),
            ownership: Ownership::new(Arc::clone(&store), owning),
            hosts: AtomicBool::new(false),
            store,
            live: LiveRuns::new(settings.concurrency),
            settings: RwLock::new(Arc::new(settings)),
            outbox: Outbox::default(),
            waiters: Waiters::default(),
            vitals: Vitals::default(),
            outage: Outage::default(),
            files,
            agents: RwLock::default(),
            new_agent: Notify::new(),
            draining: watch::Sender::new(false),
            draws,
            delays,
        }
    }

    /// The services of a generation, in start order: those that must live until the last attempt has ended
    /// come first, those that bring new ones last (rulings, Supervision).
    pub(crate) fn generation(self: &Arc<Self>) -> GenerationSpec {
        let settings = self.settings();
        let flush = Patience::Time(ms(settings.stores_within()));
        // Of a generation: who is replaced with other settings closes with those that it began with.
        let limits = Limits { close_deadline: settings.closes_within(), ..Limits::default() };
        let mut spec = GenerationSpec::default().limits(limits);
        if settings.duty == Duty::Nothing {
            return spec;
        }
        if self.files.is_some() {
            // Before the recorder, so that it ends after it and mirrors what is stored last.
            spec = spec.service(self.service("mirror", mirror::serve).patience(flush));
        }
        spec = spec
            .service(self.service("recorder", recorder::serve).patience(flush))
            .service(self.service("heartbeat", heartbeat::serve))
            .service(self.service("housekeeper", housekeeper::serve));
        if settings.duty == Duty::Everything {
            spec = spec.service(self.service("scheduler", scheduler::serve));
        }
        spec.service(self.service("claimer", claimer::serve))
    }

    fn service<F, Fut>(self: &Arc<Self>, name: &'static str, serve: F) -> ServiceSpec
    where
        F: Fn(Arc<Self>, ProcessContext) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = ProcessResult> + Send + 'static,
    {
        let instance = Arc::clone(self);
        ServiceSpec::new(name, move || {
            let instance = Arc::clone(&instance);
            ProcessSpec::function(name, move |context| serve(instance, context))
        })
    }

    // --- settings ---------------------------------------------------------------------------------------

    /// The settings as they are now. What takes time takes them once, at its start.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// What begins from now on goes by these.
    pub(crate) fn set_settings(&self, settings: Settings) {
        self.live.set_most(settings.concurrency);
        *self.settings.write() = Arc::new(settings);
    }

    // --- agents -----------------------------------------------------------------------------------------

    pub(crate) fn register(&self, id: AgentId, agent: Arc<dyn ErasedAgent>) {
        let mut agents = self.agents.write();
        agents.by_id.insert(id, agent);
        agents.ids = agents.by_id.keys().cloned().collect();
        drop(agents);
        self.new_agent.notify_one();
    }

    pub(crate) fn unregister(&self, id: &AgentId) -> bool {
        let mut agents = self.agents.write();
        let known = agents.by_id.remove(id).is_some();
        agents.ids = agents.by_id.keys().cloned().collect();
        known
    }

    pub(crate) fn agent(&self, id: &AgentId) -> Option<Arc<dyn ErasedAgent>> {
        self.agents.read().by_id.get(id).cloned()
    }

    pub(crate) fn agents(&self) -> Arc<[AgentId]> {
        Arc::clone(&self.agents.read().ids)
    }

    // --- the end ----------------------------------------------------------------------------------------

    /// Nothing new begins here from now on.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Lets go of everything at once, as the end of the OS process would: attempts are cut off, what they came
    /// to is not stored.
    #[cfg(feature = "testkit")]
    pub(crate) fn abandon(&self) {
        self.drain();
        self.live.all().iter().for_each(|live| live.fence());
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    pub(crate) async fn drained(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives as long as the instance: there is no other end of this wait.
        drop(draining.wait_for(|draining| *draining).await);
    }

    // --- what decisions need ----------------------------------------------------------------------------

    pub(crate) async fn moment(&self) -> Result<Moment, StoreError> {
        let now = self.vitals.watch(self.store.now()).await?;
        Ok(Moment { now, stamp: self.draw() })
    }

    pub(crate) fn draw(&self) -> u64 {
        self.draws.next()
    }

    /// A number that spreads a delay.
    pub(crate) fn draw_delay(&self) -> u64 {
        self.delays.next()
    }
}

/// Numbers that look drawn, the same for the same seed (splitmix64).
struct Draws(AtomicU64);

impl Draws {
    fn new(seed: Option<u64>) -> Self {
        Self(AtomicU64::new(seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0)))
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

pub(crate) fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
