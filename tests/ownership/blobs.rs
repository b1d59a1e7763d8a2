//! What a host keeps elsewhere, by its hook: in time, and in no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tenure::Settings;
use tenure::model::{CancelMode, InstanceId, Seconds};
use tenure::ownership::{
    Acquire, Acquired, Blobs, Cancel, CancelScope, Expected, Forgotten, Host, Outcome, Ownership,
    OwnershipSettings, Published, Reaped, Retention, SessionKey, TaskKey,
};
use tenure::testkit::TestHost;
use tokio::time::Instant;

use crate::replicas::{HOUR, LAPSE, SECOND, pass, settings};
use crate::traced::{self, Lines};

/// Everything that has ended is over.
const OVER: Retention = Retention {
    acknowledged: Seconds::new(0),
    unacknowledged: Seconds::new(0),
    sessions: Seconds::new(86_400),
    batch: 100,
};

/// A minute after a failure the hook is asked again.
const RESTED: Duration = Duration::from_secs(60);

/// Keeps outcomes, each in a place of its name; fails a few times before it removes one.
#[derive(Default)]
struct Shelf {
    kept: Mutex<BTreeMap<String, Outcome>>,
    fails: Mutex<u32>,
    /// What it never removes.
    refuses: Mutex<BTreeSet<String>>,
    /// Over what it never comes to an end.
    hangs: Mutex<BTreeSet<String>>,
}

impl Shelf {
    fn places(&self) -> BTreeSet<String> {
        self.kept.lock().keys().cloned().collect()
    }

    fn is_down(&self, down: bool) {
        *self.fails.lock() = if down { u32::MAX } else { 0 };
    }
}

impl Blobs for Shelf {
    fn put(&self, name: String, outcome: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>> {
        self.kept.lock().insert(name.clone(), outcome);
        ready(Ok(name.into())).boxed()
    }

    fn remove(&self, location: Arc<str>) -> BoxFuture<'_, Result<(), String>> {
        let mut fails = self.fails.lock();
        if *fails > 0 {
            *fails -= 1;
            return ready(Err("the shelf is not up".to_owned())).boxed();
        }
        if self.hangs.lock().contains(&*location) {
            return pending().boxed();
        }
        if self.refuses.lock().contains(&*location) {
            return ready(Err("it is nailed to the shelf".to_owned())).boxed();
        }
        self.kept.lock().remove(&*location);
        ready(Ok(())).boxed()
    }
}

fn key(task: u64) -> TaskKey {
    of("s", task)
}

fn of(session: &str, task: u64) -> TaskKey {
    SessionKey::new("test", "host", session).unwrap().task(task)
}

fn owning(test: &TestHost, shelf: &Arc<Shelf>) -> Host {
    with(test, Arc::clone(shelf))
}

fn with(test: &TestHost, hook: Arc<impl Blobs>) -> Host {
    let blobs = Some(hook as Arc<dyn Blobs>);
    Host::new(test, OwnershipSettings { outcome_limit: 10, blobs, ..OwnershipSettings::default() })
}

/// Does something that comes to what is too large, and answers where that is kept.
async fn done(test: &TestHost, host: &Host, key: TaskKey) -> String {
    host.start(host.request(key.clone()), |_| async { Ok("more than ten".into()) }).await.unwrap();
    test.advance(SECOND).await;
    let seen = host.ownership().inspect(&key).await.unwrap();
    seen.state.finished().unwrap().blob.clone().expect("where it is kept").location.to_string()
}

/// Looks after what is over, once.
async fn look(host: &Host) -> Reaped {
    host.ownership().reap(OVER).await.unwrap()
}

fn force() -> Cancel {
    Cancel {
        mode: CancelMode::Force,
        reason: "enough".into(),
        requested_by: "a person".into(),
        force_after: None,
    }
}

#[tokio::test(start_paused = true)]
async fn own_p11_a_host_removes_what_its_hook_kept_when_its_record_is_gone() {
    let retain_owned = Retention { unacknowledged: Seconds::new(600), ..Retention::default() };
    let settings = Settings { retain_owned, prune_every: 60 * SECOND, ..settings() };
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let shelf = Arc::new(Shelf::default());
    let host = owning(&test, &shelf);
    for task in 1..=3 {
        host.start(host.request(key(task)), |_| async { Ok("more than ten".into()) }).await.unwrap();
    }
    test.advance(SECOND).await;
    for task in 1..=3 {
        let seen = host.ownership().inspect(&key(task)).await.unwrap();
        let blob = seen.state.finished().unwrap().blob.clone().expect("where it is kept");
        assert!(shelf.kept.lock().contains_key(&*blob.location));
    }
    test.advance(500 * SECOND).await;
    assert_eq!(shelf.kept.lock().len(), 3);
    *shelf.fails.lock() = 2;
    test.advance(HOUR).await;
    assert_eq!(shelf.kept.lock().len(), 0, "also what could not be removed at first");
    assert_eq!(host.ownership().inspect(&key(1)).await.unwrap().state.as_str(), "expired");
}

#[tokio::test(start_paused = true)]
async fn own_p6_what_a_host_kept_and_was_refused_is_removed() {
    let settings = Settings { prune_every: 60 * SECOND, ..settings() };
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let other = test.another().await;
    let shelf = Arc::new(Shelf::default());
    let (host, peer) = (owning(&test, &shelf), owning(&other, &shelf));
    let work = |_| async {
        pass(10 * SECOND).await;
        Ok("more than ten".into())
    };
    host.start(host.request(key(1)), work).await.unwrap();
    test.advance(5 * SECOND).await;
    test.cut_off();
    test.advance(10 * SECOND).await;
    assert_eq!((shelf.kept.lock().len(), test.health().unstored), (1, 1), "kept, and to be published");
    peer.ownership().request_cancel(&CancelScope::Task(key(1)), &force()).await.unwrap();
    test.reconnect();
    test.advance(5 * SECOND).await;
    assert_eq!(test.health().unstored, 0, "it is told, and does not wait for the shelf");
    test.advance(60 * SECOND).await;
    assert_eq!(shelf.kept.lock().len(), 0, "who looks after what is over has it removed");
    assert_eq!(peer.ownership().inspect(&key(1)).await.unwrap().state.as_str(), "cancelled");
}

/// Takes its time to remove something.
struct Slow(Arc<Shelf>);

impl Blobs for Slow {
    fn put(&self, name: String, outcome: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>> {
        self.0.put(name, outcome)
    }

    fn remove(&self, location: Arc<str>) -> BoxFuture<'_, Result<(), String>> {
        async move {
            pass(4 * SECOND).await;
            self.0.remove(location).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn own_s5_1_nobody_who_is_lost_waits_until_what_is_over_was_removed() {
    let retain_owned = Retention { unacknowledged: Seconds::new(60), ..Retention::default() };
    let settings = Settings { retain_owned, prune_every: 100 * SECOND, ..settings() };
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let slow = Arc::new(Slow(Arc::default()));
    let host = with(&test, Arc::clone(&slow));
    for task in 1..=50 {
        host.start(host.request(key(task)), |_| async { Ok("more than ten".into()) }).await.unwrap();
    }
    test.advance(95 * SECOND).await;
    let dying = test.another().await;
    let other = Host::new(&dying, OwnershipSettings::default());
    other
        .start(other.request(key(51)), |_| async {
            pass(HOUR).await;
            Ok("late".into())
        })
        .await
        .unwrap();
    dying.kill();
    test.advance(LAPSE).await;
    let left = slow.0.kept.lock().len();
    assert!((1..50).contains(&left), "{left} are left: it is being removed");
    assert_eq!(host.ownership().inspect(&key(51)).await.unwrap().state.as_str(), "lost");
}

#[tokio::test(start_paused = true)]
async fn own_p11_what_cannot_be_removed_is_in_nobodys_way() {
    let test = TestHost::open("2026-01-01T00:00:00Z").await;
    let shelf = Arc::new(Shelf::default());
    let host = owning(&test, &shelf);
    let mut nailed = BTreeSet::new();
    for task in 1..=4 {
        let place = done(&test, &host, of("broken", task)).await;
        done(&test, &host, of("sound", task)).await;
        // Wherever it begins among the four, something comes after one of these.
        if task % 2 == 1 {
            nailed.insert(place);
        }
    }
    shelf.refuses.lock().clone_from(&nailed);
    assert_eq!(look(&host).await.tasks, 8);
    assert_eq!(shelf.places(), nailed, "all others went, of this session and of the other");
    let next = done(&test, &host, of("broken", 5)).await;
    done(&test, &host, of("sound", 5)).await;
    assert_eq!(look(&host).await.tasks, 2);
    let rests: BTreeSet<_> = nailed.iter().cloned().chain([next]).collect();
    assert_eq!(shelf.places(), rests, "a session of which something failed rests, and no other");
    test.advance(RESTED).await;
    look(&host).await;
    assert_eq!(shelf.places(), nailed);
    shelf.refuses.lock().clear();
    test.advance(RESTED).await;
    look(&host).await;
    assert!(shelf.places().is_empty());
}

#[tokio::test(start_paused = true)]
async fn own_p11_a_hook_that_hangs_takes_ten_seconds_and_the_turn_of_others_but_once() {
    let test = TestHost::open("2026-01-01T00:00:00Z").await;
    let shelf = Arc::new(Shelf::default());
    let host = with(&test, Arc::new(Slow(Arc::clone(&shelf))));
    let mut stay = BTreeSet::new();
    for task in 1..=4 {
        let place = done(&test, &host, of("a", task)).await;
        // After four seconds it hangs, or fails.
        let stuck = if task % 2 == 0 { &shelf.hangs } else { &shelf.refuses };
        stuck.lock().insert(place.clone());
        stay.insert(place);
    }
    done(&test, &host, of("b", 1)).await;
    // Who comes first is drawn: in half of these rounds the other does.
    for _ in 0..64 {
        let begun = Instant::now();
        look(&host).await;
        assert!(begun.elapsed() <= 10 * SECOND, "{:?}", begun.elapsed());
        test.advance(RESTED).await;
    }
    assert_eq!(shelf.places(), stay);
}

/// Ends so many runs of a task with something that is too large.
async fn runs(own: &Ownership, key: &TaskKey, runs: u32) {
    for run in 0..runs {
        let expect = if run == 0 { Expected::NotExists } else { Expected::TerminalRun(run) };
        let request =
            Acquire::new(key.clone(), InstanceId::from_bits(0xA), format!("{key} {run}"), Seconds::new(30));
        let Acquired::Acquired(held) = own.acquire(&Acquire { expect, ..request }).await.unwrap() else {
            panic!("run {run} of {key} is not granted")
        };
        let published = own.publish(&held, Outcome::completed("more than ten")).await.unwrap();
        assert_eq!(published, Published::Committed);
    }
}

/// Listens to what this thread is warned of.
fn listen(log: &Lines) -> tracing::subscriber::DefaultGuard {
    let warned = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    traced::listen(warned.with_writer(log.clone()).with_ansi(false).finish())
}

/// The lines that say so.
fn told(log: &Lines, says: &str) -> Vec<String> {
    log.text().lines().filter(|line| line.contains(says)).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn own_p11_the_log_is_told_once_of_all_that_a_session_waits_for() {
    let test = TestHost::open("2026-01-01T00:00:00Z").await;
    let shelf = Arc::new(Shelf::default());
    let host = owning(&test, &shelf);
    runs(host.ownership(), &of("one", 1), 30).await;
    runs(host.ownership(), &of("two", 1), 20).await;
    shelf.is_down(true);
    let log = Lines::default();
    let _listens = listen(&log);
    look(&host).await;
    let first = told(&log, "could not be removed");
    assert_eq!(first.len(), 2, "{first:?}");
    for says in ["places=30", "places=20"] {
        assert_eq!(first.iter().filter(|line| line.contains(says)).count(), 1, "{first:?}");
    }
    assert!(first.iter().all(|line| line.contains("the shelf is not up")), "{first:?}");
    look(&host).await;
    assert_eq!(told(&log, "could not be removed"), first, "they rest");
}

#[tokio::test(start_paused = true)]
async fn own_p11_what_is_held_up_goes_once_the_hook_works_though_nobody_looks_after_it() {
    let test = TestHost::open("2026-01-01T00:00:00Z").await;
    let shelf = Arc::new(Shelf::default());
    let settings =
        OwnershipSettings { outcome_limit: 10, blobs: Some(shelf.clone()), ..OwnershipSettings::default() };
    // No host: what is over is not looked for.
    let own = Ownership::new(test.store(), settings);
    for (task, many) in [(1, 1000), (2, 1)] {
        runs(&own, &key(task), many).await;
    }
    shelf.is_down(true);
    assert_eq!(own.forget(&key(1)).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(own.forget(&key(2)).await.unwrap(), Forgotten::HeldUp { waiting: 1000 });
    assert_eq!(own.inspect(&key(2)).await.unwrap().state.as_str(), "completed");
    shelf.is_down(false);
    assert_eq!(own.forget(&key(2)).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(shelf.places(), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn own_p11_while_a_thousand_places_wait_for_the_hook_no_record_goes_that_names_one_more() {
    let test = TestHost::open("2026-01-01T00:00:00Z").await;
    let other = test.another().await;
    let shelf = Arc::new(Shelf::default());
    let (host, peer) = (owning(&test, &shelf), owning(&other, &shelf));
    let own = host.ownership();
    shelf.is_down(true);
    for task in 1..=10 {
        runs(own, &key(task), 100).await;
        assert_eq!(own.forget(&key(task)).await.unwrap(), Forgotten::Forgotten);
    }
    let kept = done(&test, &host, key(11)).await;
    assert_eq!(shelf.places().len(), 1001);
    assert_eq!(own.forget(&key(11)).await.unwrap(), Forgotten::HeldUp { waiting: 1000 });
    assert_eq!((look(&host).await.tasks, shelf.places().len()), (0, 1001), "nor does it expire");
    assert_eq!(own.inspect(&key(11)).await.unwrap().state.as_str(), "completed");

    // What is put and refused now is not noted, and is in nobody's way: the log has its place.
    let log = Lines::default();
    let listens = listen(&log);
    let work = |_| async {
        pass(10 * SECOND).await;
        Ok("more than ten, too late".into())
    };
    host.start(host.request(key(12)), work).await.unwrap();
    test.advance(5 * SECOND).await;
    test.cut_off();
    test.advance(10 * SECOND).await;
    peer.ownership().request_cancel(&CancelScope::Task(key(12)), &force()).await.unwrap();
    test.reconnect();
    test.advance(5 * SECOND).await;
    assert_eq!((test.health().unstored, shelf.places().len()), (0, 1002));
    let warned = told(&log, "too much is to be removed");
    drop(listens);
    assert!(warned.len() == 1 && warned[0].contains("place=owned.test.host.s.12.1."), "{warned:?}");
    assert_eq!(own.forget(&key(12)).await.unwrap(), Forgotten::Forgotten, "its record names no place");

    shelf.is_down(false);
    test.advance(RESTED).await;
    look(&host).await;
    let left = shelf.places();
    assert!(left.len() == 2 && left.contains(&kept), "what is kept, and what was not noted: {left:?}");
    assert_eq!(own.inspect(&key(11)).await.unwrap().state.as_str(), "completed");
    assert_eq!(own.forget(&key(11)).await.unwrap(), Forgotten::Forgotten);
    assert!(shelf.places().len() == 1 && !shelf.places().contains(&kept));
}
