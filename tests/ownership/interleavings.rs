//! The invariants I1 to I11 over random interleavings: three replicas ask for anything at once, each of their calls to
//! the store takes its time, and the journal of the store is held to what the contract says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tenure::model::{CancelMode, Event, EventKind, Run, RunId, RunStatus, Seconds, Subject, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, Cancel, CancelScope, Expected, Held, Host, Outcome, Ownership, OwnershipSettings,
    Published, Regranted, Release, Released, Renewed, Retention, SessionKey, TaskKey, TaskState,
};
use tenure::store::{PageRequest, RunFilter, Store};
use tenure::testkit::TestHost;

use crate::replicas::settings;

const TTL: Seconds = Seconds::new(30);
const GRACE: Duration = Duration::from_secs(20);
const REPLICAS: usize = 3;
const TASKS: u64 = 4;
const BATCHES: usize = 40;

/// What a replica asks for.
#[derive(Debug, Clone)]
enum Ask {
    Start(Acquire),
    Renew(Held),
    Publish(Held),
    Reinstate(Held),
    HandOver(Held, usize),
    Declare(u64),
    Cancel(CancelScope, CancelMode),
    Release,
    Look(u64),
    List,
}

/// What was answered, as far as it is held against the journal.
enum Answer {
    Granted(usize, Held),
    Renewed(Held, Duration),
    Published,
    Released(u64),
    Nothing,
}

struct World {
    hosts: Vec<TestHost>,
    replicas: Vec<Ownership>,
    /// Every token that each replica was ever granted.
    tokens: Vec<Vec<Held>>,
    /// Until when each grant was answered to stand.
    expiries: BTreeMap<(RunId, u64), Timestamp>,
    /// The highest revision that a release has answered.
    released: u64,
    draws: u64,
    told: usize,
    requests: u64,
}

fn session() -> SessionKey {
    SessionKey::new("test", "random", "s").unwrap()
}

fn key(task: u64) -> TaskKey {
    session().task(task)
}

impl World {
    async fn new(seed: u64) -> Self {
        let settings = tenure::Settings { seed: Some(seed), ..settings() };
        let first = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
        let mut hosts = vec![first];
        for _ in 1..REPLICAS {
            let another = hosts[0].another().await;
            hosts.push(another);
        }
        let own = |host: &TestHost| Host::new(host, OwnershipSettings::default()).ownership().clone();
        Self {
            replicas: hosts.iter().map(own).collect(),
            hosts,
            tokens: vec![Vec::new(); REPLICAS],
            expiries: BTreeMap::new(),
            released: 0,
            draws: seed,
            told: 0,
            requests: 0,
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }

    fn token(&mut self, who: usize) -> Option<Held> {
        let known = self.tokens[who].len();
        (known > 0).then(|| {
            // The latest ones are the ones that matter, and the older ones the ones that must not.
            let back = if self.draw(2) == 0 { 0 } else { self.draw(known) };
            self.tokens[who][known - 1 - back].clone()
        })
    }

    async fn ask(&mut self, who: usize) -> Ask {
        let task = 1 + self.draw(TASKS as usize) as u64;
        let mode = if self.draw(3) == 0 { CancelMode::Force } else { CancelMode::Cooperative };
        let held = self.token(who);
        match (self.draw(20), held) {
            (0..=5, _) => self.start(who, task).await,
            (6..=8, Some(held)) => Ask::Renew(held),
            (9..=11, Some(held)) => Ask::Publish(held),
            (12..=13, Some(held)) => Ask::Reinstate(held),
            (14, Some(held)) => Ask::HandOver(held, self.draw(REPLICAS)),
            (15, _) => Ask::Declare(task),
            (16, _) => {
                let run = 1 + self.draw(2) as u32;
                match self.draw(4) {
                    0 => Ask::Cancel(CancelScope::Session(session()), mode),
                    1 => Ask::Cancel(CancelScope::Run { key: key(task), run }, mode),
                    _ => Ask::Cancel(CancelScope::Task(key(task)), mode),
                }
            }
            (17, _) if self.draw(4) == 0 => Ask::Release,
            (18, _) => Ask::List,
            _ => Ask::Look(task),
        }
    }

    /// A start, a continuation, a takeover or a successor: by what the task was a moment ago.
    async fn start(&mut self, who: usize, task: u64) -> Ask {
        self.requests += 1;
        let seen = self.replicas[who].inspect(&key(task)).await.unwrap();
        let owner = self.hosts[who].instance_id();
        let request = Acquire::new(key(task), owner, format!("request-{}", self.requests), TTL);
        let revision = self.replicas[who].revision(&session()).await.unwrap();
        let revision = (self.draw(2) == 0).then_some(revision);
        let request = Acquire { revision, ..request };
        Ask::Start(match seen.state {
            TaskState::Terminal(_) => Acquire { expect: Expected::TerminalRun(seen.run), ..request },
            TaskState::Lost { .. } if self.draw(2) == 0 => {
                let other = key(TASKS + self.requests);
                Acquire { key: other, supersedes: Some(task), ..request }
            }
            TaskState::Lost { .. } => Acquire { expect: Expected::LostRun(seen.run), ..request },
            _ => request,
        })
    }

    /// All replicas ask at once; then the journal is looked at.
    async fn batch(&mut self) {
        let mut asks = Vec::new();
        for who in 0..REPLICAS {
            asks.push(self.ask(who).await);
        }
        let before = self.hosts[0].now().await;
        let owners: Vec<_> = self.hosts.iter().map(|host| host.instance_id()).collect();
        let answers =
            asks.iter().enumerate().map(|(who, ask)| answer(&self.replicas[who], who, ask, &owners));
        let answers = join_all(answers).await;
        let now = self.hosts[0].now().await;
        assert_eq!(now, before, "no time passes while they are answered");
        for (answer, ask) in answers.into_iter().zip(&asks) {
            self.note(answer, ask, now);
        }
        self.check(&asks).await;
    }

    fn note(&mut self, answer: Answer, ask: &Ask, now: Timestamp) {
        match answer {
            Answer::Granted(who, held) => {
                // The same grant answered again is no renewal.
                if !self.tokens.iter().flatten().any(|known| *known == held) {
                    self.expires(&held, now.plus(TTL.duration()));
                    self.tokens[who].push(held);
                }
            }
            Answer::Renewed(held, left) => self.expires(&held, now.plus(left)),
            Answer::Published => assert!(matches!(ask, Ask::Publish(_))),
            Answer::Released(revision) => self.released = self.released.max(revision),
            Answer::Nothing => {}
        }
    }

    fn expires(&mut self, held: &Held, at: Timestamp) {
        let kept = self.expiries.entry((run_id(&held.key, held.run), held.token.fence)).or_insert(at);
        *kept = (*kept).max(at);
    }

    async fn runs(&self) -> Vec<Run> {
        let page = PageRequest { limit: 10_000, cursor: None };
        self.hosts[0].store().runs(RunFilter::default(), page).await.unwrap().items
    }

    async fn check(&mut self, asks: &[Ask]) {
        let events = self.hosts[0].store().events(Subject::All, 0, usize::MAX).await.unwrap();
        let new = &events[self.told.min(events.len())..];
        let runs = self.runs().await;
        one_authority_per_task(&runs);
        fences_rise_and_ends_are_final(&events);
        self.lost_only_after_the_grace(new);
        cancelled_only_as_asked(new, asks);
        self.nothing_of_a_released_session_lives(&runs);
        self.told = events.len();
    }

    /// I6: by the store's clock, and never under a token that was answered to stand longer.
    fn lost_only_after_the_grace(&self, new: &[Event]) {
        for event in new.iter().filter(|event| event.event == EventKind::Lost) {
            let grant = (event.run_id.clone().unwrap(), event.fence);
            let expiry = self.expiries.get(&grant).unwrap_or_else(|| panic!("nobody was granted {grant:?}"));
            assert!(event.timestamp >= expiry.plus(GRACE), "{grant:?}: lost at {}", event.timestamp);
        }
    }

    /// I9: release forces what does not stop at once, here.
    fn nothing_of_a_released_session_lives(&self, runs: &[Run]) {
        for run in runs.iter().filter(|run| run.status.is_held()) {
            let spec: serde_json::Value = serde_json::from_str(run.spec.metadata.as_json()).unwrap();
            let revision = spec["revision"].as_u64().unwrap();
            assert!(revision >= self.released, "{}: of revision {revision} lives", run.run_id);
        }
    }

    /// I10: when all is over, and kept long enough, nothing is left.
    async fn nothing_is_left(&mut self) {
        let own = &self.replicas[0];
        own.release_session(&session(), Release::Cancel { wait: Seconds::default() }).await.unwrap();
        assert!(self.runs().await.iter().all(|run| run.status.is_terminal()));
        let week = Duration::from_secs(8 * 86_400);
        for _ in 0..3 {
            self.hosts[0].advance(week).await;
            own.reap(Retention::default()).await.unwrap();
        }
        assert_eq!(self.runs().await, []);
        let left = self.hosts[0].store().tasks(PageRequest::default()).await.unwrap();
        assert!(left.items.is_empty(), "the session is left");
        assert_eq!(self.hosts[0].store().check(false).await.unwrap(), Vec::<String>::new());
    }
}

async fn answer(own: &Ownership, who: usize, ask: &Ask, owners: &[tenure::model::InstanceId]) -> Answer {
    match ask {
        Ask::Start(request) => match own.acquire(request).await.unwrap() {
            Acquired::Acquired(held) => Answer::Granted(who, held),
            _ => Answer::Nothing,
        },
        Ask::Renew(held) => {
            match own.renew(owners[who], std::slice::from_ref(held), TTL).await.unwrap().remove(0) {
                Renewed::Renewed { ttl_left, .. } => Answer::Renewed(held.clone(), ttl_left.duration()),
                Renewed::Fenced { .. } | Renewed::Gone | Renewed::Unreadable { .. } => Answer::Nothing,
            }
        }
        Ask::Publish(held) => {
            let outcome = Outcome::completed(format!("{}.{:x}", held.run, held.token.nonce));
            match own.publish(held, outcome).await.unwrap() {
                Published::Committed => Answer::Published,
                _ => Answer::Nothing,
            }
        }
        Ask::Reinstate(held) => match own.reinstate(held, owners[who], TTL).await.unwrap() {
            Regranted::Acquired(held) => Answer::Granted(who, held),
            Regranted::Fenced { .. } => Answer::Nothing,
        },
        Ask::HandOver(held, to) => match own.hand_over(held, owners[*to], TTL).await.unwrap() {
            Regranted::Acquired(held) => Answer::Granted(*to, held),
            Regranted::Fenced { .. } => Answer::Nothing,
        },
        Ask::Declare(task) => {
            let seen = own.inspect(&key(*task)).await.unwrap();
            if let TaskState::Suspect { fence, .. } | TaskState::Running { fence, .. } = seen.state {
                own.declare_lost(&key(*task), seen.run, fence, None).await.unwrap();
            }
            Answer::Nothing
        }
        Ask::Cancel(scope, mode) => {
            let cancel =
                Cancel { mode: *mode, reason: "r".into(), requested_by: "p".into(), force_after: None };
            own.request_cancel(scope, &cancel).await.unwrap();
            Answer::Nothing
        }
        Ask::Release => {
            let release = Release::Cancel { wait: Seconds::default() };
            match own.release_session(&session(), release).await.unwrap() {
                Released::Released { revision, .. } => Answer::Released(revision),
                Released::Refused { .. } => panic!("it may cancel"),
            }
        }
        Ask::Look(task) => {
            let seen = own.inspect(&key(*task)).await.unwrap();
            assert!(!matches!(seen.state, TaskState::Expired | TaskState::Unreadable { .. }), "I5: {seen:?}");
            Answer::Nothing
        }
        Ask::List => {
            for seen in own.inspect_session(&session()).await.unwrap().tasks {
                let between = matches!(
                    seen.state,
                    TaskState::Expired | TaskState::Unknown | TaskState::Unreadable { .. }
                );
                assert!(!between, "I5: {seen:?}");
            }
            Answer::Nothing
        }
    }
}

fn run_id(key: &TaskKey, run: u32) -> RunId {
    RunId::new(format!("owned.test.random.s.{}.{run}", key.task)).unwrap()
}

/// The task of a run, from its id.
fn task_of(run_id: &RunId) -> String {
    run_id.as_str().rsplit_once('.').unwrap().0.to_owned()
}

/// I1.
fn one_authority_per_task(runs: &[Run]) {
    let mut held = BTreeSet::new();
    for run in runs.iter().filter(|run| run.status.is_held()) {
        assert!(run.lease.is_some(), "I5: {} is {} without a lease", run.run_id, run.status);
        assert!(held.insert(task_of(&run.run_id)), "I1: two runs of a task are held: {}", run.run_id);
    }
}

/// I2, I3, I4: grants of a task have rising fences, an outcome has the fence of the last grant, nothing follows it.
fn fences_rise_and_ends_are_final(events: &[Event]) {
    let mut granted: BTreeMap<String, u64> = BTreeMap::new();
    let mut of_run: BTreeMap<RunId, u64> = BTreeMap::new();
    let mut ended: BTreeSet<RunId> = BTreeSet::new();
    for event in events {
        let Some(run_id) = &event.run_id else { continue };
        assert!(!ended.contains(run_id), "I4: {run_id}: {:?} after its end", event.event);
        let last = granted.entry(task_of(run_id)).or_default();
        match event.event {
            EventKind::Started | EventKind::Reinstated | EventKind::HandedOver => {
                assert!(event.fence > *last, "I2: {run_id}: {:?} under {}", event.event, event.fence);
                *last = event.fence;
            }
            EventKind::Completed => assert_eq!(event.fence, *last, "I3: {run_id} by a superseded token"),
            _ => {}
        }
        let before = of_run.insert(run_id.clone(), event.fence).unwrap_or_default();
        assert!(event.fence >= before, "I2: {run_id}: {:?} under {}", event.event, event.fence);
        if event.status.is_some_and(RunStatus::is_terminal) {
            ended.insert(run_id.clone());
        }
    }
}

/// I11.
fn cancelled_only_as_asked(new: &[Event], asks: &[Ask]) {
    for event in new.iter().filter(|event| event.event == EventKind::CancelRequested) {
        let run_id = event.run_id.as_ref().unwrap();
        let meant = |ask: &Ask| match ask {
            Ask::Cancel(CancelScope::Session(_), _) | Ask::Release => true,
            Ask::Cancel(CancelScope::Task(key), _) => task_of(run_id) == task_of(&self::run_id(key, 1)),
            Ask::Cancel(CancelScope::Run { key, run }, _) => *run_id == self::run_id(key, *run),
            _ => false,
        };
        assert!(asks.iter().any(meant), "I11: nobody meant {run_id}: {asks:?}");
    }
}

/// Lets replicas ask for anything for a while; answers what happened.
fn happened(seed: u64) -> BTreeSet<EventKind> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut world = World::new(seed).await;
        for _ in 0..BATCHES {
            world.batch().await;
            let pause = [0, 0, 1, 10, 25, 45, 60][world.draw(7)];
            world.hosts[0].advance(Duration::from_secs(pause)).await;
            world.check(&[]).await;
        }
        let events = world.hosts[0].store().events(Subject::All, 0, usize::MAX).await.unwrap();
        world.nothing_is_left().await;
        events.iter().map(|event| event.event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn own_i1_the_invariants_hold_over_random_interleavings(seed in any::<u64>()) {
        happened(seed);
    }
}

/// And of I2 to I11: none holds because nothing happened.
#[test]
fn own_i2_everything_happens_in_random_interleavings() {
    let all: BTreeSet<EventKind> = (0..8).flat_map(happened).collect();
    let expected = [
        EventKind::Started,
        EventKind::Completed,
        EventKind::CancelRequested,
        EventKind::Cancelled,
        EventKind::Lost,
        EventKind::Reinstated,
        EventKind::Superseded,
        EventKind::HandedOver,
        EventKind::OutcomeRefused,
    ];
    assert_eq!(all, expected.into());
}
