//! Hosts on one store in memory, under a clock that the test moves.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::link::{Line, Link};
use super::script::OnHost;
use super::{ScriptedAgent, Seen};
use crate::clock::RuntimeClock;
use crate::model::{AgentId, InstanceId, Place, Run, RunStatus, Task, TaskId, TaskSpec, Timestamp};
use crate::settings::Settings;
use crate::store::{Hint, MemoryStore, PageRequest, RunFilter, Store};
use crate::tenure::{RunRequest, Tenure};

const DAY: Duration = Duration::from_secs(86_400);

/// How often others are let run before this instant counts as over. One round runs all that can run.
const ROUNDS: usize = 256;

/// How often [`TestHost::drain`] looks before it gives up: an agent that always makes new work never drains.
const LOOKS: usize = 100_000;

/// A host of a test, on a store in memory. It is a [`Tenure`], and can do more.
///
/// ```
/// # use tenure::testkit::{Script, TestHost};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let host = TestHost::open("2026-01-01T00:00:00Z").await;
/// let other = host.another().await;
/// let slow = host.agent("slow", Script::new().takes(Duration::from_secs(3600)).answers("done"));
/// host.task(r#"{ "task_id": "t", "agent_id": "slow", "query": "take your time" }"#).await;
/// host.run("t").await;
/// host.advance(Duration::from_secs(1)).await;
/// host.kill(); // no goodbye: its lease is left to lapse
/// other.agent("slow", &slow);
/// other.advance(Duration::from_secs(2 * 3600)).await;
/// other.see("t").await.run(1).assert_status("completed").assert_attempts("lost, completed");
/// # }
/// ```
pub struct TestHost {
    member: Member,
    world: Arc<World>,
}

/// What the hosts of a test share.
struct World {
    store: Arc<MemoryStore>,
    start: Timestamp,
    settings: Settings,
    members: Mutex<Vec<Member>>,
    newest: Mutex<Newest>,
}

/// The cursor of the newest event, as hints tell it.
struct Newest {
    hints: broadcast::Receiver<Hint>,
    cursor: u64,
}

#[derive(Clone)]
struct Member {
    tenure: Tenure,
    link: Arc<Link>,
    /// Attempts that only wait for the test.
    parked: Arc<AtomicUsize>,
}

impl Deref for TestHost {
    type Target = Tenure;

    fn deref(&self) -> &Tenure {
        &self.member.tenure
    }
}

impl TestHost {
    /// A host on an empty store, whose clock shows this instant now.
    ///
    /// # Panics
    /// When the text is no instant, or outside of a tokio runtime whose clock is paused.
    #[track_caller]
    pub fn open(start: &str) -> impl Future<Output = Self> + use<> {
        Self::open_with(start, Self::settings())
    }

    /// The same with settings of the test, best made from [`TestHost::settings`]. The heartbeat stays on the
    /// runtime whatever they say: a thread of its own does not follow a paused clock.
    ///
    /// # Panics
    /// As [`TestHost::open`].
    #[track_caller]
    pub fn open_with(start: &str, settings: Settings) -> impl Future<Output = Self> + use<> {
        let start = parse(start);
        async move {
            let store = Arc::new(MemoryStore::new(Arc::new(RuntimeClock::starting_at(start))));
            let settings = Settings { heartbeat_thread: false, ..settings };
            let newest = Mutex::new(Newest { hints: store.watch(), cursor: 0 });
            let world = Arc::new(World { store, start, settings, members: Mutex::default(), newest });
            Self::join(world, None).await
        }
    }

    /// The settings of the kit: the usual ones, but nothing is polled or swept for more often than once a day.
    /// The store in memory tells of every change and of what is due next, so that an idle year costs nothing.
    /// And nothing is pruned: a test sees all that has happened.
    #[must_use]
    pub fn settings() -> Settings {
        Settings {
            poll: DAY,
            sweep: Some(DAY),
            prune_every: DAY,
            retain_for: 1000 * 365 * DAY,
            retain_runs: u64::MAX,
            heartbeat_thread: false,
            seed: Some(0x7465_6e75_7265),
            ..Settings::default()
        }
    }

    /// Another host on the same store, with the same settings: a second machine, or the next start of this one.
    pub async fn another(&self) -> Self {
        Self::join(Arc::clone(&self.world), None).await
    }

    /// Another host on the same store, with settings of its own.
    pub async fn another_with(&self, settings: Settings) -> Self {
        let settings = Settings { heartbeat_thread: false, ..settings };
        Self::join(Arc::clone(&self.world), Some(settings)).await
    }

    async fn join(world: Arc<World>, settings: Option<Settings>) -> Self {
        let mut settings = settings.unwrap_or_else(|| world.settings.clone());
        // What two hosts draw differs, as it would: tokens are made of it.
        let place = world.members.lock().len() as u64;
        settings.seed = settings.seed.map(|seed| seed.wrapping_add(place));
        let link =
            Arc::new(Link::to(Arc::clone(&world.store) as Arc<dyn Store>, settings.seed.unwrap_or(place)));
        let tenure = match Tenure::open(Arc::clone(&link) as Arc<dyn Store>, settings).await {
            Ok(tenure) => tenure,
            Err(error) => panic!("the test host does not open: {error}"),
        };
        let member = Member { tenure, link, parked: Arc::default() };
        world.members.lock().push(member.clone());
        Self { member, world }
    }

    // --- what is to be done -----------------------------------------------------------------------------

    /// Registers a scripted agent here; another host's may be given again.
    ///
    /// # Panics
    /// When the text is no agent id.
    #[track_caller]
    pub fn agent(&self, id: &str, agent: impl Into<ScriptedAgent>) -> ScriptedAgent {
        let agent = agent.into();
        let on_host = OnHost { agent: agent.clone(), parked: Arc::clone(&self.member.parked) };
        let registered = self.member.tenure.register_agent(id, on_host);
        registered.unwrap_or_else(|error| panic!("agent \"{id}\": {error}"));
        agent
    }

    /// Stores a task, new or changed, from its JSON.
    ///
    /// # Panics
    /// When the text is no task, or it cannot be stored.
    #[track_caller]
    pub fn task(&self, json: impl fmt::Display) -> impl Future<Output = Task> + '_ {
        let spec = TaskSpec::parse(&json.to_string()).unwrap_or_else(|error| panic!("{error}"));
        async move {
            let stored = self.member.tenure.put_task(spec).await;
            stored.unwrap_or_else(|error| panic!("the task cannot be stored: {error}"))
        }
    }

    /// Wants a run of a task now.
    ///
    /// # Panics
    /// When it cannot be had.
    #[track_caller]
    pub fn run(&self, task_id: &str) -> impl Future<Output = Run> + '_ {
        let task_id = task_name(task_id);
        async move {
            let run = self.member.tenure.run_now(&task_id, RunRequest::default()).await;
            run.unwrap_or_else(|error| panic!("no run of \"{task_id}\": {error}"))
        }
    }

    // --- time -------------------------------------------------------------------------------------------

    /// What time it is, by the store's clock.
    pub async fn now(&self) -> Timestamp {
        self.world.store.now().await.unwrap_or(self.world.start)
    }

    /// Moves the clock. Every timer on the way fires at its instant, in order, and what is due at the last
    /// instant is done.
    pub async fn advance(&self, by: Duration) {
        sleep(by).await;
        self.let_run().await;
    }

    /// Moves the clock to an instant.
    ///
    /// # Panics
    /// When the text is no instant, or it has passed.
    #[track_caller]
    pub fn advance_to(&self, instant: &str) -> impl Future<Output = ()> + '_ {
        let to = parse(instant);
        async move {
            let now = self.now().await;
            assert!(to >= now, "it is {now} already, expected an instant after that, found {to}");
            self.advance(to.since(now)).await;
        }
    }

    /// Lets everything run that is due, until nothing is ready, executing or unstored. Attempts that only wait
    /// for the test, at a [`Gate`](super::Gate) or hanging, and hosts that are cut off are not waited for;
    /// attempts that take time are, and the clock moves as far.
    ///
    /// # Panics
    /// When there is always something new to do.
    pub async fn drain(&self) {
        let mut before = None;
        for _ in 0..LOOKS {
            self.let_run().await;
            let (idle, seen) = (self.is_idle().await, self.progress());
            let stands = before.as_ref() == Some(&seen);
            match (idle, stands) {
                (true, true) => return,
                // Nothing more happens at this instant.
                (false, true) => sleep(Duration::from_millis(1)).await,
                _ => {}
            }
            before = Some(seen);
        }
        panic!("the hosts do not come to rest: {:?}", self.progress());
    }

    async fn let_run(&self) {
        for _ in 0..ROUNDS {
            yield_now().await;
        }
    }

    fn members(&self) -> Vec<Member> {
        self.world.members.lock().clone()
    }

    /// What changes while hosts do something.
    fn progress(&self) -> (u64, Vec<(usize, usize)>) {
        let busy = self.members().iter().map(Member::busy).collect();
        (self.world.newest.lock().cursor(), busy)
    }

    async fn is_idle(&self) -> bool {
        let Ok(agenda) = self.world.store.agenda().await else { return true };
        let members: Vec<Member> = self.members().into_iter().filter(Member::works).collect();
        if members.iter().any(|member| member.busy() != (0, 0)) {
            return false;
        }
        let starts_new = members.iter().any(|member| !member.tenure.health().draining);
        let fires = agenda.schedule.is_some_and(|at| at <= agenda.now) && starts_new;
        let due = agenda.ready || agenda.run.is_some_and(|at| at <= agenda.now);
        !(fires || due && self.can_be_claimed(&members).await)
    }

    async fn can_be_claimed(&self, members: &[Member]) -> bool {
        for member in members.iter().filter(|member| member.has_room()) {
            for agent_id in member.tenure.agents().iter() {
                if self.waits_for(agent_id).await {
                    return true;
                }
            }
        }
        false
    }

    async fn waits_for(&self, agent_id: &AgentId) -> bool {
        let now = self.now().await;
        let statuses = vec![RunStatus::Queued, RunStatus::Retrying];
        let filter = RunFilter { agent_id: Some(agent_id.clone()), statuses, ..RunFilter::default() };
        let all = PageRequest { limit: 10_000, cursor: None };
        let ready = |run: &Run| match run.place {
            Place::Ready => true,
            Place::Future => run.due_at <= now,
            _ => false,
        };
        self.world.store.runs(filter, all).await.is_ok_and(|page| page.items.iter().any(ready))
    }

    // --- what became of it ------------------------------------------------------------------------------

    /// What became of a task, as the store has it now.
    ///
    /// # Panics
    /// When the text is no task id, or nothing is known of such a task.
    #[track_caller]
    pub fn see(&self, task_id: &str) -> impl Future<Output = Seen> + '_ {
        let task_id = task_name(task_id);
        async move {
            let instances: Vec<InstanceId> =
                self.members().iter().map(|member| member.tenure.instance_id()).collect();
            Seen::of(&*self.world.store, task_id, self.world.start, instances).await
        }
    }

    /// [`TestHost::see`] as text: occurrences, runs, attempts and events, with ids that are the same every
    /// time and instants since the start of the test.
    ///
    /// # Panics
    /// As [`TestHost::see`].
    #[track_caller]
    pub fn history(&self, task_id: &str) -> impl Future<Output = String> + '_ {
        let seen = self.see(task_id);
        async move { seen.await.to_string() }
    }

    /// The store itself, past this host's way to it.
    #[must_use]
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.world.store)
    }

    // --- faults -----------------------------------------------------------------------------------------

    /// Cuts this host off from the store: every call is refused as unavailable, until it is reconnected.
    pub fn cut_off(&self) {
        self.member.link.set(Line::Cut);
    }

    /// From now on the store answers this host and takes nothing from it, as one whose disk is full.
    pub fn fill_store(&self) {
        self.member.link.set(Line::TakesNothing);
    }

    /// From now on what this host writes is written, and it does not hear of it.
    pub fn lose_replies(&self) {
        self.member.link.set(Line::LosesReplies);
    }

    /// From now on no call of this host to the store returns.
    pub fn hang_store(&self) {
        self.member.link.set(Line::Hangs);
    }

    /// The store answers this host again.
    pub fn reconnect(&self) {
        self.member.link.set(Line::Up);
    }

    /// Ends this host without a goodbye, as SIGKILL would: its attempts are gone at their next await, nothing
    /// of what they came to is stored, its leases are left to lapse.
    pub fn kill(self) {
        self.member.link.set(Line::Gone);
        self.member.tenure.instance.abandon();
        // The message is on its way with the first poll; what is left of the host ends by itself.
        let _ends_by_itself = self.member.tenure.application().close().now_or_never();
    }
}

impl fmt::Debug for TestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHost")
            .field("instance", &self.member.tenure.instance_id())
            .field("line", &self.member.link.line())
            .finish_non_exhaustive()
    }
}

impl Newest {
    fn cursor(&mut self) -> u64 {
        loop {
            match self.hints.try_recv() {
                Ok(hint) => self.cursor = hint.cursor,
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return self.cursor,
            }
        }
    }
}

impl Member {
    fn works(&self) -> bool {
        matches!(self.link.line(), Line::Up | Line::LosesReplies)
    }

    /// How many attempts execute that do not only wait for the test, and how many outcomes are unstored.
    fn busy(&self) -> (usize, usize) {
        let health = self.tenure.health();
        (health.executing.saturating_sub(self.parked.load(Ordering::SeqCst)), health.unstored)
    }

    fn has_room(&self) -> bool {
        let health = self.tenure.health();
        !health.draining && health.executing < self.tenure.settings().concurrency
    }
}

#[track_caller]
fn parse(instant: &str) -> Timestamp {
    match instant.parse::<jiff::Timestamp>() {
        Ok(instant) => Timestamp::from_jiff(instant),
        Err(error) => panic!("\"{instant}\": {error}; expected an instant such as \"2026-01-31T09:00:00Z\""),
    }
}

#[track_caller]
fn task_name(task_id: &str) -> TaskId {
    TaskId::new(task_id).unwrap_or_else(|error| panic!("{error}"))
}
