//! Group F: each verb, and a store that refuses it, takes it and does not say so, or says nothing for too long.

use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tenure::clock::{ManualClock, SystemClock};
use tenure::model::{CancelMode, InstanceId, RunStatus, Seconds, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, Cancel, CancelAnswer, CancelScope, Declared, DeclaredLost, Finished, Forgotten, Held,
    Host, Outcome, Ownership, OwnershipSettings, Published, Registered, Regranted, Release, Released,
    Renewed, Retention, SessionKey, TaskKey,
};
use tenure::store::faulty::{Fault, Faulty, Gate, Method};
use tenure::store::{MemoryStore, StoreError};
use tenure::{Error, Settings, Tenure};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::replicas::SECOND;

const TTL: Seconds = Seconds::new(30);

struct World {
    clock: Arc<ManualClock>,
    faulty: Arc<Faulty>,
    own: Ownership,
    /// The same store, without faults.
    sound: Ownership,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
        let faulty = Arc::new(Faulty::new(Arc::clone(&store) as _));
        let own = |store| Ownership::new(store, OwnershipSettings::default());
        Self { own: own(Arc::clone(&faulty) as _), sound: own(store), clock, faulty }
    }

    async fn started(&self) -> Held {
        let request = Acquire::new(session().task(1), owner(), "first", TTL);
        match self.sound.acquire(&request).await.unwrap() {
            Acquired::Acquired(held) => held,
            other => panic!("{other:?}"),
        }
    }

    fn fail(&self, method: Method, fault: Fault) {
        self.faulty.script(method, [Some(fault)]);
    }
}

fn session() -> SessionKey {
    SessionKey::new("test", "host", "s").unwrap()
}

fn owner() -> InstanceId {
    InstanceId::from_bits(0xA)
}

/// What did not happen is told from what may have. A call that is not answered in time is given up by who made it.
#[track_caller]
fn failed<T: std::fmt::Debug>(call: impl Future<Output = Result<T, Error>>, fault: &Fault) {
    match (call.now_or_never(), fault) {
        (Some(Err(Error::Store(StoreError::Refused { .. }))), Fault::Refuse) => {}
        (Some(Err(Error::Store(StoreError::Unknown { .. }))), Fault::LoseAnswer) => {}
        (None, Fault::Hang | Fault::HangAfter) => {}
        (other, fault) => panic!("{fault:?}: {other:?}"),
    }
}

const FAULTS: [Fault; 4] = [Fault::Refuse, Fault::LoseAnswer, Fault::Hang, Fault::HangAfter];

/// Whether what failed had happened.
fn happened(fault: &Fault) -> bool {
    matches!(fault, Fault::LoseAnswer | Fault::HangAfter)
}

#[tokio::test]
async fn own_f1_a_start_that_fails_is_asked_for_again() {
    for fault in FAULTS {
        let w = World::new();
        let request = Acquire::new(session().task(1), owner(), "first", TTL);
        w.fail(Method::Commit, fault.clone());
        failed(w.own.acquire(&request), &fault);
        let Acquired::Acquired(held) = w.own.acquire(&request).await.unwrap() else { panic!("asked again") };
        assert_eq!((held.run, held.token.fence), (1, 1), "one grant");
    }
}

#[tokio::test]
async fn own_f1_a_renewal_that_fails_moves_nothing_back() {
    for fault in FAULTS {
        let w = World::new();
        let held = w.started().await;
        w.clock.advance(10 * SECOND);
        w.fail(Method::Renew, fault.clone());
        failed(w.own.renew(owner(), std::slice::from_ref(&held), TTL), &fault);
        let renewed = w.own.renew(owner(), &[held], TTL).await.unwrap().remove(0);
        assert!(matches!(renewed, Renewed::Renewed { ttl_left, .. } if ttl_left == TTL), "{renewed:?}");
    }
}

#[tokio::test]
async fn own_f1_an_outcome_that_fails_is_published_once() {
    for fault in FAULTS {
        let w = World::new();
        let held = w.started().await;
        w.fail(Method::Commit, fault.clone());
        failed(w.own.publish(&held, Outcome::completed("found")), &fault);
        let again = w.own.publish(&held, Outcome::completed("found")).await.unwrap();
        let expected = if happened(&fault) { Published::AlreadyCommitted } else { Published::Committed };
        assert_eq!(again, expected);
    }
}

/// Between the two looks that it takes to tell of a lost task.
#[tokio::test]
async fn own_s7_5_a_task_that_is_given_back_while_it_is_listed_is_listed() {
    let w = World::new();
    let held = w.started().await;
    w.clock.advance(50 * SECOND);
    let lost = w.sound.declare_lost(&held.key, held.run, held.token.fence, None).await.unwrap();
    assert!(matches!(lost, DeclaredLost::Lost { .. }), "{lost:?}");
    let gate = Gate::default();
    w.fail(Method::Attempts, Fault::Hold(gate.clone()));
    let back = async {
        gate.reached().await;
        let back = w.sound.reinstate(&held, owner(), TTL).await.unwrap();
        assert!(matches!(back, Regranted::Acquired(_)), "{back:?}");
        gate.pass();
    };
    let s = session();
    let (listed, ()) = tokio::join!(w.own.inspect_session(&s), back);
    let states: Vec<_> = listed.unwrap().tasks.into_iter().map(|task| task.state.as_str()).collect();
    assert_eq!(states, ["running"]);
}

#[tokio::test]
async fn own_f1_a_cancel_that_fails_is_an_error() {
    let cancel = Cancel {
        mode: CancelMode::Cooperative,
        reason: "enough".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    for fault in FAULTS {
        for scope in [CancelScope::Task(session().task(1)), CancelScope::Session(session())] {
            let w = World::new();
            w.started().await;
            w.fail(Method::Commit, fault.clone());
            failed(w.own.request_cancel(&scope, &cancel), &fault);
            let again = w.own.request_cancel(&scope, &cancel).await.unwrap();
            assert_eq!(again, CancelAnswer::Requested { runs: 1 });
        }
    }
}

#[tokio::test]
async fn own_f1_a_release_that_fails_is_an_error_and_is_made_once() {
    for fault in FAULTS {
        let w = World::new();
        w.started().await;
        let before = w.sound.revision(&session()).await.unwrap();
        w.fail(Method::Commit, fault.clone());
        let release = Release::Cancel { wait: Seconds::default() };
        failed(w.own.release_session(&session(), release), &fault);
        let again = w.own.release_session(&session(), release).await.unwrap();
        assert_eq!(again, Released::Released { revision: before + 1, still_running: 1 });
    }
}

#[tokio::test]
async fn own_f1_a_verdict_that_fails_is_made_once() {
    for fault in FAULTS {
        let w = World::new();
        let held = w.started().await;
        w.clock.advance(60 * SECOND);
        w.fail(Method::Commit, fault.clone());
        let fence = held.token.fence;
        failed(w.own.declare_lost(&held.key, 1, fence, None), &fault);
        let again = w.own.declare_lost(&held.key, 1, fence, None).await.unwrap();
        assert!(matches!(again, DeclaredLost::Lost { .. }));
        w.fail(Method::Commit, fault.clone());
        failed(w.own.reinstate(&held, owner(), TTL), &fault);
        let Regranted::Acquired(back) = w.own.reinstate(&held, owner(), TTL).await.unwrap() else {
            panic!("nobody succeeded it");
        };
        assert_eq!(back.token.fence, fence + 1, "one grant");
        w.fail(Method::Commit, fault.clone());
        let to = InstanceId::from_bits(0xB);
        failed(w.own.hand_over(&back, to, TTL), &fault);
        assert!(matches!(w.own.hand_over(&back, to, TTL).await.unwrap(), Regranted::Acquired(_)));
    }
}

#[tokio::test]
async fn own_f1_what_is_removed_is_removed_once() {
    for fault in FAULTS {
        let w = World::new();
        let held = w.started().await;
        w.sound.publish(&held, Outcome::completed("found")).await.unwrap();
        w.fail(Method::Commit, fault.clone());
        failed(w.own.ack(&held.key, 1, "chat"), &fault);
        w.own.ack(&held.key, 1, "chat").await.unwrap();
        w.fail(Method::Commit, fault.clone());
        failed(w.own.forget(&held.key), &fault);
        assert_eq!(w.own.forget(&held.key).await.unwrap(), Forgotten::Forgotten);
    }
}

#[tokio::test]
async fn own_f1_a_declaration_that_fails_is_made_once() {
    let told = Declared { namespace: "test".into(), source: "host".into(), lease: TTL, grace: TTL };
    for fault in FAULTS {
        let w = World::new();
        w.fail(Method::Commit, fault.clone());
        failed(w.own.register("web", &told, false), &fault);
        let expected = if happened(&fault) { Registered::Same } else { Registered::First };
        assert_eq!(w.own.register("web", &told, false).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn own_f1_a_look_that_fails_is_no_verdict() {
    for fault in [Fault::Refuse, Fault::Hang] {
        for method in [Method::Task, Method::Run, Method::Now] {
            let w = World::new();
            w.started().await;
            w.fail(method, fault.clone());
            failed(w.own.inspect(&session().task(1)), &fault);
            assert!(w.own.is_alive(&session().task(1)).await.unwrap());
        }
        let w = World::new();
        w.started().await;
        w.fail(Method::Runs, fault.clone());
        failed(w.own.inspect_session(&session()), &fault);
    }
}

#[tokio::test]
async fn own_f1_a_number_that_was_lost_is_given_out_to_nobody_else() {
    for fault in FAULTS {
        let w = World::new();
        w.started().await;
        w.fail(Method::Commit, fault.clone());
        failed(w.own.next_task_id(&session()), &fault);
        assert_eq!(w.own.next_task_id(&session()).await.unwrap(), if happened(&fault) { 3 } else { 2 });
    }
}

#[tokio::test]
async fn own_f1_what_is_over_is_removed_once() {
    let over =
        Retention { acknowledged: Seconds::new(0), unacknowledged: Seconds::new(0), ..Retention::default() };
    for fault in FAULTS {
        let w = World::new();
        let held = w.started().await;
        w.sound.publish(&held, Outcome::completed("found")).await.unwrap();
        w.fail(Method::Commit, fault.clone());
        failed(w.own.reap(over), &fault);
        let reaped = w.own.reap(over).await.unwrap();
        assert_eq!(reaped.tasks, usize::from(!happened(&fault)));
        assert_eq!(w.own.inspect(&held.key).await.unwrap().state.as_str(), "expired");
    }
}

#[tokio::test(start_paused = true)]
async fn own_u3_a_hundred_starts_on_a_slow_store_are_a_hundred_runs() {
    const SLOW: Duration = Duration::from_millis(50);
    let w = World::new();
    for method in [Method::Commit, Method::Task, Method::Run, Method::Now] {
        w.faulty.script(method, repeat_n(Some(Fault::Delay(SLOW)), 10_000));
    }
    let own = &w.own;
    let start = |n: u32| async move {
        let task = own.next_task_id(&session()).await.unwrap();
        let request = Acquire::new(session().task(task), owner(), format!("request-{n}"), TTL);
        match own.acquire(&request).await.unwrap() {
            Acquired::Acquired(held) => held.key.task,
            other => panic!("{other:?}"),
        }
    };
    let begun = tokio::time::Instant::now();
    let tasks: BTreeSet<u64> = join_all((0..100).map(start)).await.into_iter().collect();
    assert!(begun.elapsed() > SLOW, "it was slow");
    assert_eq!(tasks.len(), 100);
    assert_eq!(w.sound.inspect_session(&session()).await.unwrap().tasks.len(), 100);
}

#[tokio::test]
async fn own_l6_clocks_of_replicas_are_asked_by_nobody() {
    // Every verdict is by the clock of the store: replicas have none to differ by. It may be set back (L7), too.
    let w = World::new();
    let held = w.started().await;
    w.clock.set(Timestamp::from_ms(1_769_850_000_000 - 86_400_000));
    assert!(w.own.is_alive(&held.key).await.unwrap());
    let declared = w.own.declare_lost(&held.key, 1, held.token.fence, None).await.unwrap();
    assert!(matches!(declared, DeclaredLost::Changed { .. }));
    assert_eq!(w.own.publish(&held, Outcome::completed("found")).await.unwrap(), Published::Committed);
}

/// A caller repeats its request while the first one is under way: on another thread, and by another handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_l17_the_same_start_twice_at_once_is_executed_once() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let tenure = Tenure::open(store, Settings::default()).await.unwrap();
    let hosts = [(); 2].map(|()| Host::new(&tenure, OwnershipSettings::default()));
    let executed = Arc::new(AtomicUsize::new(0));
    for task in 1..=1_500 {
        let request = hosts[0].request(session().task(task));
        let (ready, go) = (Arc::new(Barrier::new(2)), Arc::new(Semaphore::new(0)));
        let starts = hosts.clone().map(|host| {
            let (request, ready, go) = (request.clone(), Arc::clone(&ready), Arc::clone(&go));
            let (executed, runtime) = (Arc::clone(&executed), Handle::current());
            spawn_blocking(move || {
                // What takes a while to be moved takes a while to begin: time enough to meet.
                let heavy = [1_u8; 1 << 16];
                let work = move |_| async move {
                    std::hint::black_box(&heavy);
                    executed.fetch_add(1, Ordering::SeqCst);
                    go.acquire().await.unwrap().forget();
                    Ok("found".into())
                };
                ready.wait();
                runtime.block_on(host.start(request, work))
            })
        });
        let answers = join_all(starts).await.into_iter().map(|start| start.unwrap().unwrap());
        let answers: Vec<Acquired> = answers.collect();
        assert!(matches!(answers[0], Acquired::Acquired(_)) && answers[0] == answers[1], "{answers:?}");
        go.add_permits(1);
        let seen = ended(hosts[0].ownership(), &session().task(task)).await;
        assert_eq!(seen.status, RunStatus::Completed, "task {task}: {seen:?}");
        assert_eq!(executed.load(Ordering::SeqCst) as u64, task);
    }
    tenure.shutdown().await.unwrap();
}

/// What a task has come to, once it has.
async fn ended(own: &Ownership, key: &TaskKey) -> Finished {
    let mut watch = own.watch();
    loop {
        if let Some(finished) = own.inspect(key).await.unwrap().state.finished() {
            return finished.clone();
        }
        watch.changed().await;
    }
}
