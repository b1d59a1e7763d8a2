//! Owners that are held up: a thread that is blocked, one that dies, a machine that was suspended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tenure::clock::{Clock, ManualClock, SystemClock};
use tenure::model::{EventKind, InstanceId, RunStatus, Seconds, Subject, TaskId, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, DeclaredLost, Expected, Host, Ownership, OwnershipSettings, SessionKey, TaskKey,
    TaskState,
};
use tenure::store::faulty::{Fault, Faulty, Method};
use tenure::store::{MemoryStore, Store};
use tenure::{Settings, Tenure};

/// Longer than anything here takes.
const MOST: Duration = Duration::from_secs(60);

fn key() -> TaskKey {
    SessionKey::new("test", "host", "s").unwrap().task(1)
}

/// The whole runtime of a host is one thread, and its work blocks it for three leases.
#[test]
fn own_l14_work_that_blocks_its_thread_keeps_its_lease() {
    const LEASE: Duration = Duration::from_millis(600);
    // However busy this machine is.
    const GRACE: Duration = Duration::from_secs(30);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let at_host = Arc::clone(&store);
    let host = thread::spawn(move || {
        let settings = Settings { lease: LEASE, grace: Some(GRACE), ..Settings::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tenure = Tenure::open(at_host, settings).await.unwrap();
            let host = Host::new(&tenure, OwnershipSettings::default());
            let work = move |_| async move {
                begun.send(()).unwrap();
                // No await: nothing else runs on this runtime until the test says so.
                goes.recv_timeout(MOST).unwrap();
                Ok("found".into())
            };
            let owned = host.start(host.request(key()), work).await.unwrap();
            assert!(matches!(owned, Acquired::Acquired(_)));
            let mut watch = host.ownership().watch();
            while host.ownership().is_alive(&key()).await.unwrap() {
                watch.changed().await;
            }
            tenure.shutdown().await.unwrap();
        });
    });
    begins.recv_timeout(MOST).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let other = Ownership::new(store, OwnershipSettings { grace: GRACE, ..OwnershipSettings::default() });
        let (mut watch, blocked, mut renewed) = (other.watch(), Instant::now(), false);
        // Nobody but its heartbeat makes it running again once its first lease has expired.
        while blocked.elapsed() < 3 * LEASE || !renewed {
            watch.changed().await;
            let seen = other.inspect(&key()).await.unwrap().state;
            let (TaskState::Running { fence, .. } | TaskState::Suspect { fence, .. }) = seen else {
                panic!("it is neither lost nor over: {seen:?}")
            };
            renewed = matches!(seen, TaskState::Running { .. });
            let declared = other.declare_lost(&key(), 1, fence, None).await.unwrap();
            assert!(matches!(declared, DeclaredLost::Changed { .. }));
        }
        go.send(()).unwrap();
        while other.is_alive(&key()).await.unwrap() {
            watch.changed().await;
        }
        let seen = other.inspect(&key()).await.unwrap();
        assert_eq!(seen.state.as_str(), "completed");
    });
    host.join().unwrap();
}

/// Tells what time it is, and which threads of heartbeats have renewed by it; one of them dies of that.
#[derive(Debug, Default)]
struct Deadly {
    is: AtomicBool,
    asked_by: Mutex<Vec<ThreadId>>,
}

impl Clock for Deadly {
    fn now(&self) -> Timestamp {
        let asks = thread::current();
        if asks.name() == Some("tenure-heartbeat") {
            self.asked_by.lock().unwrap().push(asks.id());
            assert!(!self.is.swap(false, Ordering::SeqCst), "the thread of the heartbeat dies");
        }
        SystemClock.now()
    }
}

impl Deadly {
    /// How many threads have renewed, and how often the latest has.
    fn threads(&self) -> (usize, usize) {
        let mut threads = self.asked_by.lock().unwrap().clone();
        let latest = threads.last().copied();
        let times = threads.iter().filter(|id| Some(**id) == latest).count();
        threads.dedup();
        (threads.len(), times)
    }
}

/// Its thread panics in the middle of a renewal. Its service starts another, which renews before the lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_l14_a_heartbeat_whose_thread_has_died_begins_again_and_nothing_is_lost() {
    const LEASE: Duration = Duration::from_secs(3);
    // However busy this machine is.
    const GRACE: Duration = Duration::from_secs(60);
    let clock = Arc::new(Deadly::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let heartbeat = Some(Duration::from_millis(200));
    let settings = Settings { lease: LEASE, heartbeat, grace: Some(GRACE), ..Settings::default() };
    let tenure = Tenure::open(Arc::clone(&store), settings).await.unwrap();
    let host = Host::new(&tenure, OwnershipSettings::default());
    let (go, goes) = tokio::sync::oneshot::channel();
    let work = |context: tenure::RunContext| async move {
        goes.await.unwrap();
        context.commit_now(|| ()).unwrap();
        Ok("found".into())
    };
    let owned = host.start(host.request(key()), work).await.unwrap();
    assert!(matches!(owned, Acquired::Acquired(_)));
    let generation = tenure.application().current().epoch();
    let mut watch = host.ownership().watch();
    while clock.threads() < (1, 2) {
        watch.changed().await;
    }
    let died = Instant::now();
    for threads in 2..=3 {
        clock.is.store(true, Ordering::SeqCst);
        // Another thread goes on for longer than the lease was when the first one died.
        while clock.threads() < (threads, 3) || died.elapsed() < LEASE {
            watch.changed().await;
        }
    }
    let seen = host.ownership().inspect(&key()).await.unwrap().state;
    assert!(matches!(seen, TaskState::Running { fence: 1, .. }), "{seen:?}");
    assert_eq!(tenure.application().current().epoch(), generation, "nothing else was restarted");
    go.send(()).unwrap();
    while host.ownership().is_alive(&key()).await.unwrap() {
        watch.changed().await;
    }
    let seen = host.ownership().inspect(&key()).await.unwrap();
    let TaskState::Terminal(finished) = seen.state else { panic!("{seen:?}") };
    assert_eq!((finished.status, finished.recovered), (RunStatus::Completed, false));
    let run = TaskId::new("owned.test.host.s").unwrap();
    let events = store.events(Subject::All, 0, 100).await.unwrap();
    let of_run: Vec<_> =
        events.iter().filter(|e| e.task_id == run && e.run_id.is_some()).map(|e| e.event).collect();
    assert_eq!(of_run, [EventKind::Started, EventKind::Completed]);
    tenure.shutdown().await.unwrap();
}

/// The machine of a host is suspended: nothing of it runs, and its own clock stands. When it wakes its work acts on a
/// lease that it still relies on.
#[test]
fn own_l13_who_was_suspended_is_refused_by_the_store_whatever_its_own_clock_says() {
    const LEASE: Duration = Duration::from_secs(3600);
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let (begun, begins) = mpsc::channel();
    let (wake, wakes) = mpsc::channel::<()>();
    let (effect, effects) = mpsc::channel();
    // The heartbeat has a thread of its own here; of a machine that is suspended nothing hears anything.
    let at_host = Arc::new(Faulty::new(Arc::clone(&store)));
    at_host.script(Method::Renew, std::iter::repeat_n(Some(Fault::Refuse), 1000));
    let host = thread::spawn(move || {
        let settings = Settings { lease: LEASE, grace: Some(LEASE), ..Settings::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tenure = Tenure::open(at_host, settings).await.unwrap();
            let host = Host::new(&tenure, OwnershipSettings::default());
            let work = move |context: tenure::RunContext| async move {
                begun.send(()).unwrap();
                wakes.recv_timeout(MOST).unwrap();
                let fence = context.fence();
                context.commit_now(|| effect.send(fence)).unwrap().unwrap();
                Ok("late".into())
            };
            let owned = host.start(host.request(key()), work).await.unwrap();
            assert!(matches!(owned, Acquired::Acquired(_)));
            // Ends when the work has ended, and what it came to was stored or refused.
            tenure.shutdown().await.unwrap();
        });
    });
    begins.recv_timeout(MOST).unwrap();
    clock.advance(3 * LEASE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = OwnershipSettings { grace: LEASE, ..OwnershipSettings::default() };
        let other = Ownership::new(Arc::clone(&store), settings);
        let declared = other.declare_lost(&key(), 1, 1, None).await.unwrap();
        assert!(matches!(declared, DeclaredLost::Lost { .. }), "{declared:?}");
        let again = Acquire { expect: Expected::LostRun(1), ..request_of_another() };
        let Acquired::Acquired(held) = other.acquire(&again).await.unwrap() else { panic!("it is lost") };
        wake.send(()).unwrap();
        let late = effects.recv_timeout(MOST).expect("the host fences itself too late");
        assert!(late.fence < held.token.fence, "a sink that keeps the highest fence refuses it");
        host.join().unwrap();
        let seen = other.inspect(&key()).await.unwrap();
        let of_another = |owner| owner == InstanceId::from_bits(0xB);
        assert!(matches!(seen.state, TaskState::Running { owner, .. } if of_another(owner)), "{seen:?}");
        let session = TaskId::new("owned.test.host.s").unwrap();
        let events = store.events(Subject::Task(session), 0, 10).await.unwrap();
        assert!(events.iter().any(|event| event.event == EventKind::OutcomeRefused), "{events:?}");
    });
}

fn request_of_another() -> Acquire {
    Acquire::new(key(), InstanceId::from_bits(0xB), "again", Seconds::new(30))
}
