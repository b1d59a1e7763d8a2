//! What hosts promise of the work they own: leases, shutdown, limits.

use std::iter::repeat_n;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::model::{AgentId, CancelMode, Payload, Seconds, TaskId, TaskSpec, Timestamp};
use tenure::ownership::{
    Acquired, Cancel, CancelAnswer, CancelScope, Continued, CutOff, Done, Host, OwnershipSettings, Release,
    Released, Retention, SessionKey, StartedTask, TaskKey, TaskState, WhenStopped,
};
use tenure::store::faulty::{self, Fault, Faulty, Method};
use tenure::store::{MemoryStore, PageRequest, RunFilter, Store};
use tenure::testkit::{Script, TestHost};
use tenure::{AuthorityError, Error, RunContext, RunRequest, Settings, Tenure};
use tokio::sync::Notify;

use crate::replicas::*;

fn key(task: u64) -> TaskKey {
    SessionKey::new("test", "host", "s").unwrap().task(task)
}

fn owning(host: &TestHost) -> Host {
    Host::new(host, OwnershipSettings::default())
}

async fn start<F, Fut>(host: &Host, task: u64, work: F) -> Acquired
where
    F: FnOnce(RunContext) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Done, tenure::AgentError>> + Send + 'static,
{
    host.start(host.request(key(task)), work).await.unwrap()
}

async fn state(host: &Host, task: u64) -> String {
    let seen = host.ownership().inspect(&key(task)).await.unwrap();
    let finished = seen.state.finished();
    let class =
        finished.and_then(|finished| finished.error.as_ref()).map(|error| format!(" {}", error.class));
    format!("{}{}", seen.state.as_str(), class.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn own_l9_work_that_lost_its_task_changes_nothing_any_more() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "600 found").await;
    a.host.advance(10 * SECOND).await;
    a.host.cut_off();
    // It goes on for as long as its lease may be relied on, and no longer.
    b.host.advance(LAPSE).await;
    assert_eq!(b.line(task).await, "Task 1 [lost] stored: a test");
    let before = a.effects();
    assert!(before <= 10 + 30, "{before} effects");
    a.host.reconnect();
    a.host.advance(20 * SECOND).await;
    assert_eq!(
        (a.effects(), a.host.health().executing),
        (before, 0),
        "fenced by its first call, and cut off"
    );
    assert_eq!(b.line(task).await, "Task 1 [lost] stored: a test", "it had not finished");
}

#[tokio::test(start_paused = true)]
async fn own_s2_1_nothing_is_held_of_work_whose_outcome_is_stored() {
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = owning(&test);
    let object = Arc::new(());
    let held = Arc::clone(&object);
    start(&host, 1, move |_| async move {
        let _held = held;
        pass(10 * SECOND).await;
        Ok("found".into())
    })
    .await;
    test.advance(5 * SECOND).await;
    assert_eq!(Arc::strong_count(&object), 2);
    test.advance(10 * SECOND).await;
    assert_eq!((state(&host, 1).await.as_str(), Arc::strong_count(&object)), ("completed", 1));
}

#[tokio::test(start_paused = true)]
async fn own_s6_8_a_second_release_does_not_fail_with_the_first() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stubborn", "20").await;
    a.host.advance(SECOND).await;
    let release = Release::Cancel { wait: Seconds::new(10) };
    let (first, second, ()) =
        tokio::join!(a.tasks.release(CHAT, release), b.tasks.release(CHAT, release), async {
            pass(2 * SECOND).await;
            a.host.cut_off();
        });
    assert!(matches!(first, Err(Error::Store(_))), "it must not be believed: {first:?}");
    let second = second.unwrap();
    assert!(matches!(second, Released::Released { still_running: 1, .. }), "{second:?}");
    assert_eq!(b.see(task).await.state.as_str(), "cancelled");
}

/// The store is away for longer than leases and grace last, and comes back for one replica first.
async fn after_a_long_outage(comes_back: bool) {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "600 found").await;
    a.host.advance(SECOND).await;
    a.host.cut_off();
    b.host.cut_off();
    a.host.advance(180 * SECOND).await;
    b.host.reconnect();
    b.host.advance(10 * SECOND).await;
    assert_eq!(b.line(task).await, "Task 1 [running, its owner is not responding] stored: a test");
    if comes_back {
        a.host.reconnect();
    } else {
        a.host.kill();
    }
    b.host.advance(15 * SECOND).await;
    let state = if comes_back { "running on another instance" } else { "lost" };
    assert_eq!(b.line(task).await, format!("Task 1 [{state}] stored: a test"));
    if comes_back {
        b.host.advance(600 * SECOND).await;
        assert_eq!(b.answer(task).await, "found, asked 1");
    }
}

#[tokio::test(start_paused = true)]
async fn own_l23_after_a_long_outage_owners_have_the_grace_to_renew() {
    for comes_back in [true, false] {
        after_a_long_outage(comes_back).await;
    }
}

/// The store takes nothing, and shows what it has: no lease is renewed, and all look expired when it takes something
/// again.
#[tokio::test(start_paused = true)]
async fn own_l23_after_a_store_took_nothing_for_long_owners_have_the_grace_to_renew() {
    for looks in [false, true] {
        let a = Replica::open().await;
        let b = a.another().await;
        let task = a.start("stored", "600 found").await;
        a.host.advance(SECOND).await;
        a.host.fill_store();
        b.host.fill_store();
        a.host.advance(180 * SECOND).await;
        b.host.reconnect();
        b.host.advance(if looks { Duration::ZERO } else { 5 * SECOND }).await;
        assert_eq!(b.line(task).await, "Task 1 [running, its owner is not responding] stored: a test");
        a.host.reconnect();
        b.host.advance(15 * SECOND).await;
        assert_eq!(b.line(task).await, "Task 1 [running on another instance] stored: a test");
        a.host.kill();
        b.host.advance(2 * LAPSE).await;
        assert_eq!(b.line(task).await, "Task 1 [lost] stored: a test", "and no longer");
    }
}

/// A conversation goes on before the host has looked after anything again.
#[tokio::test(start_paused = true)]
async fn own_l23_who_looks_at_once_after_a_long_outage_takes_nobody_for_lost() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "600 found").await;
    a.host.advance(SECOND).await;
    a.host.cut_off();
    b.host.cut_off();
    a.host.advance(180 * SECOND).await;
    b.host.reconnect();
    assert_eq!(b.line(task).await, "Task 1 [running, its owner is not responding] stored: a test");
    a.host.reconnect();
    b.host.advance(15 * SECOND).await;
    assert_eq!(b.line(task).await, "Task 1 [running on another instance] stored: a test");
}

#[tokio::test(start_paused = true)]
async fn own_l8_who_looks_at_once_after_a_jump_of_the_stores_clock_takes_nobody_for_lost() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let a = Tenure::open(Arc::clone(&store), settings()).await.unwrap();
    let b = Tenure::open(store, settings()).await.unwrap();
    let [on_a, on_b] = [&a, &b].map(|tenure| tasks(tenure, WhenStopped::Keep, &Arc::default()));
    on_a.start(CHAT, ask("stored", "60 found")).await.unwrap();
    pass(3 * SECOND).await;
    clock.advance(600 * SECOND);
    let seen = on_b.result(CHAT, 1).await.unwrap();
    assert!(matches!(seen.state, TaskState::Suspect { .. }), "{seen:?}");
    pass(15 * SECOND).await;
    let seen = on_b.result(CHAT, 1).await.unwrap();
    assert!(matches!(seen.state, TaskState::Running { .. }), "{seen:?}");
    for host in [a, b] {
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn own_l8_a_jump_of_the_stores_clock_loses_nobody_who_renews_within_the_grace() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let settings = Settings { sweep: Some(SECOND), ..settings() };
    let a = Tenure::open(Arc::clone(&store), settings.clone()).await.unwrap();
    let b = Tenure::open(store, settings).await.unwrap();
    let host = Host::new(&a, OwnershipSettings::default());
    start(&host, 1, |_| async {
        pass(60 * SECOND).await;
        Ok("found".into())
    })
    .await;
    pass(3 * SECOND).await;
    // All leases look expired, to who looks before owners renew as well.
    clock.advance(600 * SECOND);
    pass(3 * SECOND).await;
    let seen = host.ownership().inspect(&key(1)).await.unwrap();
    assert!(matches!(seen.state, TaskState::Suspect { .. }), "{seen:?}");
    pass(10 * SECOND).await;
    let seen = host.ownership().inspect(&key(1)).await.unwrap();
    assert!(matches!(seen.state, TaskState::Running { .. }), "{seen:?}");
    pass(60 * SECOND).await;
    assert_eq!(state(&host, 1).await, "completed");
    for host in [a, b] {
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn own_l10_a_host_that_was_paused_does_not_take_its_own_work_for_lost() {
    let a = Replica::open().await;
    let task = a.start("stored", "90 found").await;
    a.host.advance(10 * SECOND).await;
    a.host.cut_off();
    a.host.advance(LAPSE).await;
    // A turn comes before the next heartbeat does.
    a.host.reconnect();
    let line = a.line(task).await;
    assert!(line.starts_with(&format!("Task {task} [running")), "{line}");
    a.host.advance(60 * SECOND).await;
    assert_eq!(a.answer(task).await, "found, asked 1");
}

#[tokio::test(start_paused = true)]
async fn own_l12_work_of_a_host_that_is_cut_off_pauses_or_stops() {
    for policy in [CutOff::Pause, CutOff::Cancel] {
        let test = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
        let host = owning(&test).when_cut_off(policy);
        let told = Arc::new(Notify::new());
        let listens = Arc::clone(&told);
        let work = |context: RunContext| async move {
            tokio::select! {
                () = context.cancelled() => listens.notify_one(),
                () = pass(45 * SECOND) => {}
            }
            match context.commit_now(|| ()) {
                Err(AuthorityError::Suspended { .. }) => Ok("suspended".into()),
                other => Ok(format!("{}", other.is_ok()).into()),
            }
        };
        assert!(matches!(start(&host, 1, work).await, Acquired::Acquired(_)));
        test.advance(SECOND).await;
        test.cut_off();
        test.advance(40 * SECOND).await;
        let stopped = futures_util::FutureExt::now_or_never(told.notified()).is_some();
        assert_eq!(stopped, policy == CutOff::Cancel, "at the end of what it relied on");
        test.advance(10 * SECOND).await;
        test.reconnect();
        test.advance(5 * SECOND).await;
        let seen = host.ownership().inspect(&key(1)).await.unwrap();
        let text = seen.state.finished().unwrap().result.as_ref().unwrap().preview();
        assert_eq!(text, "suspended", "no effect, and its outcome was published under the lease that stood");
    }
}

#[tokio::test(start_paused = true)]
async fn own_l12_a_grant_that_is_asked_for_again_is_relied_on_from_when_it_was_made() {
    let on = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let store = Arc::new(Faulty::new(on.store()));
    let tenure =
        Tenure::open(Arc::clone(&store) as _, Settings { seed: Some(9), ..settings() }).await.unwrap();
    let host = Host::new(&tenure, OwnershipSettings::default());
    let said: Arc<Mutex<Vec<bool>>> = Arc::default();
    let work = || {
        let said = Arc::clone(&said);
        |context: RunContext| async move {
            for _ in 0..2 {
                said.lock().unwrap().push(context.commit_now(|| ()).is_ok());
                pass(15 * SECOND).await;
            }
            Ok("done".into())
        }
    };
    let request = host.request(key(1));
    // It is granted, and the host does not hear of it.
    store.script(Method::Commit, [Some(Fault::LoseAnswer)]);
    store.script(Method::Task, [None, Some(Fault::Refuse)]);
    store.script(Method::Renew, repeat_n(Some(Fault::Refuse), 1000));
    assert!(matches!(host.start(request.clone(), work()).await, Err(Error::Store(_))));
    on.advance(20 * SECOND).await;
    let again = host.start(request, work()).await.unwrap();
    assert!(matches!(again, Acquired::Acquired(_)), "{again:?}");
    on.advance(20 * SECOND).await;
    assert_eq!(*said.lock().unwrap(), [true, false], "at 20 s and at 35 s of a lease of 30 s");
}

#[tokio::test(start_paused = true)]
async fn own_v1_a_task_that_is_granted_while_its_host_ends_is_interrupted_and_not_lost() {
    let on = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let store = Arc::new(Faulty::new(on.store()));
    let tenure =
        Tenure::open(Arc::clone(&store) as _, Settings { seed: Some(9), ..settings() }).await.unwrap();
    let (host, gate) = (Host::new(&tenure, OwnershipSettings::default()), faulty::Gate::default());
    store.script(Method::Commit, [Some(Fault::HoldAnswer(gate.clone()))]);
    let begins = host.start(host.request(key(1)), |_| async { Ok("found".into()) });
    let ends = async {
        gate.reached().await;
        tenure.shutdown().await.unwrap();
        gate.pass();
    };
    let (begun, ()) = tokio::join!(begins, ends);
    assert!(matches!(begun, Err(Error::Draining)), "{begun:?}");
    assert_eq!((state(&host, 1).await.as_str(), tenure.health().unstored), ("failed interrupted", 0));
}

#[tokio::test(start_paused = true)]
async fn own_l15_work_that_tells_nothing_for_too_long_has_failed() {
    let settings = Settings { stall: Some(60 * SECOND), ..settings() };
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let host = owning(&test);
    start(&host, 1, |_| async {
        pass(HOUR).await;
        Ok("late".into())
    })
    .await;
    start(&host, 2, |context| async move {
        for step in 0..5 {
            context.progress(step, "on it");
            pass(50 * SECOND).await;
        }
        Ok("found".into())
    })
    .await;
    test.advance(300 * SECOND).await;
    assert_eq!((state(&host, 1).await, state(&host, 2).await), ("failed stalled".into(), "completed".into()));
}

#[tokio::test(start_paused = true)]
async fn own_l18_work_is_not_begun_while_the_store_is_away() {
    let a = Replica::open().await;
    let b = a.another().await;
    a.host.cut_off();
    assert!(matches!(a.tasks.start(CHAT, ask("stored", "5 x")).await, Err(Error::Store(_))));
    a.host.reconnect();
    a.host.advance(10 * SECOND).await;
    assert_eq!((a.effects(), a.host.health().executing), (0, 0));
    assert_eq!(b.tasks.list(CHAT).await.unwrap().tasks, [], "no record");
}

#[tokio::test(start_paused = true)]
async fn own_p2_an_outcome_is_published_when_the_store_is_back() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "5 found").await;
    a.host.advance(SECOND).await;
    a.host.cut_off();
    a.host.advance(10 * SECOND).await;
    assert_eq!(a.host.health().unstored, 1, "it waits here");
    a.host.reconnect();
    a.host.advance(5 * SECOND).await;
    assert_eq!(b.answer(task).await, "found, asked 1");
    // And P4: its answer may be lost.
    let task = a.start("stored", "5 more").await;
    a.host.advance(SECOND).await;
    a.host.lose_replies();
    a.host.advance(10 * SECOND).await;
    a.host.reconnect();
    a.host.advance(5 * SECOND).await;
    assert_eq!((b.answer(task).await.as_str(), a.host.health().unstored), ("more, asked 1", 0));
}

#[tokio::test(start_paused = true)]
async fn own_p6_an_outcome_that_is_too_large_has_failed() {
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = Host::new(&test, OwnershipSettings { outcome_limit: 10, ..OwnershipSettings::default() });
    start(&host, 1, |_| async { Ok("more than ten".into()) }).await;
    test.advance(SECOND).await;
    assert_eq!(state(&host, 1).await, "failed result_too_large");
}

#[tokio::test(start_paused = true)]
async fn own_p13_what_was_owned_and_is_over_leaves_nothing_behind() {
    let retain = Retention {
        acknowledged: Seconds::new(60),
        unacknowledged: Seconds::new(600),
        sessions: Seconds::new(600),
        batch: 100,
    };
    let settings =
        Settings { retain_owned: retain, prune_every: 60 * SECOND, sweep: Some(60 * SECOND), ..settings() };
    let a = Replica::open_with(settings).await;
    for n in 0..300 {
        let session = format!("chat-{n}");
        a.tasks.start(&session, ask("stored", "1 found")).await.unwrap();
    }
    a.host.advance(2 * SECOND).await;
    for n in 0..300 {
        a.tasks.release(&format!("chat-{n}"), Release::Refuse).await.unwrap();
    }
    assert_eq!(a.host.status().await.unwrap().counts[0].1, 300);
    a.host.advance(30 * 60 * SECOND).await;
    assert_eq!(a.host.status().await.unwrap().counts, []);
    let left = a.host.store().tasks(PageRequest { limit: 1000, cursor: None }).await.unwrap();
    assert_eq!(left.items.len(), 0, "sessions as well");
}

#[tokio::test(start_paused = true)]
async fn own_v1_a_drain_with_enough_time_ends_and_publishes() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "20 found").await;
    let (shutdown, late) = tokio::join!(a.host.shutdown(), async {
        pass(SECOND).await;
        a.tasks.start(CHAT, ask("stored", "5 late")).await
    });
    assert!(matches!(late, Err(Error::Draining)));
    let shutdown = shutdown.unwrap();
    assert_eq!((shutdown.interrupted, shutdown.unstored), (0, 0));
    assert_eq!(b.answer(task).await, "found, asked 1");
    // And S5.3: nothing is lost.
    b.host.advance(HOUR).await;
    assert_eq!(b.line(task).await, "Task 1 [completed] stored: a test");
}

#[tokio::test(start_paused = true)]
async fn own_v3_a_drain_with_too_little_time_interrupts_and_says_so() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stubborn", "600").await;
    a.host.advance(SECOND).await;
    let shutdown = a.host.shutdown().await.unwrap();
    assert_eq!((shutdown.interrupted, shutdown.unstored), (1, 0));
    let expected = "Task 1 [failed] stubborn: a test\n\
                    interrupted: its host was shut down or replaced. It may be started again.";
    assert_eq!(b.tasks.describe(&b.see(task).await), expected);
}

#[tokio::test(start_paused = true)]
async fn own_v2_a_draining_host_asks_where_its_work_is_and_a_peer_goes_on_at_once() {
    let a = Replica::open().await;
    let b = a.another().await;
    let (asked, more) = (a.start("pages", "0").await, a.start("pages", "50").await);
    a.host.advance(SECOND).await;
    let shutdown = a.host.shutdown().await.unwrap();
    assert_eq!((shutdown.interrupted, shutdown.unstored), (2, 0));
    let expected = "Task 1 [failed] pages: a test\n\
                    interrupted: its host was shut down or replaced. It may be continued from where it was.";
    assert_eq!(b.tasks.describe(&b.see(asked).await), expected);
    // It read a page each second of its drain, and said which one it was at when it was asked.
    let snapshot = b.see(asked).await.state.finished().unwrap().snapshot.clone();
    assert_eq!(snapshot, Some(Payload::text("31")));

    let c = b.another().await;
    let both = tokio::join!(b.tasks.take_on(CHAT, asked), c.tasks.take_on(CHAT, asked));
    let is_started =
        |answer: &Result<Continued, Error>| matches!(answer, Ok(Continued::Started { run: 2, .. }));
    let started = [&both.0, &both.1].into_iter().filter(|answer| is_started(answer)).count();
    assert_eq!(started, 1, "{both:?}");
    assert_eq!(b.tasks.take_on(CHAT, more).await.unwrap(), Continued::Started { task: more, run: 2 });
    b.host.advance(70 * SECOND).await;
    assert_eq!(b.answer(asked).await, "read 100 pages from 31", "asked what it was asked");
    assert_eq!(b.answer(more).await, "read 100 pages from 81");
}

#[tokio::test(start_paused = true)]
async fn own_v2_a_replaced_generation_asks_where_its_work_is() {
    let a = Replica::open().await;
    let task = a.start("pages", "0").await;
    a.host.advance(10 * SECOND).await;
    a.host.replace().await.unwrap();
    a.host.advance(SECOND).await;
    assert_eq!(a.tasks.take_on(CHAT, task).await.unwrap(), Continued::Started { task, run: 2 });
    a.host.advance(100 * SECOND).await;
    assert_eq!(a.answer(task).await, "read 100 pages from 10");
}

#[tokio::test(start_paused = true)]
async fn own_v2_what_a_checkpoint_can_be() {
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = Host::new(&test, OwnershipSettings { outcome_limit: 100, ..OwnershipSettings::default() });
    start(&host, 1, |context| async move {
        context.checkpoint(Payload::text("first"))?;
        let refused = context.checkpoint(Payload::text("x".repeat(101))).unwrap_err().to_string();
        assert_eq!(refused, "checkpoint: expected at most 100 bytes, found 101");
        Err(tenure::AgentError::new("exception", "it broke"))
    })
    .await;
    start(&host, 2, |context| async move {
        context.checkpoint(Payload::text("never needed"))?;
        Ok("found".into())
    })
    .await;
    test.advance(SECOND).await;
    let snapshot = async |task| {
        let seen = host.ownership().inspect(&key(task)).await.unwrap();
        seen.state.finished().unwrap().snapshot.as_ref().map(Payload::preview)
    };
    assert_eq!(snapshot(1).await.as_deref(), Some("first"), "what failed may be continued as well");
    assert_eq!(snapshot(2).await, None, "what completed has its own");
}

#[tokio::test(start_paused = true)]
async fn own_v4_a_kill_during_a_drain_loses_only_what_had_not_ended() {
    let a = Replica::open().await;
    let b = a.another().await;
    let (short, long) = (a.start("stored", "5 found").await, a.start("stored", "600 more").await);
    let tasks = a.tasks.clone();
    let _ended = tokio::time::timeout(10 * SECOND, a.host.shutdown()).await;
    drop(tasks);
    a.host.kill();
    b.host.advance(LAPSE).await;
    assert_eq!(b.answer(short).await, "found, asked 1");
    assert_eq!(b.line(long).await, "Task 2 [lost] stored: a test");
}

#[tokio::test(start_paused = true)]
async fn own_x10_a_cancel_right_after_the_grant_stops_the_work() {
    let a = Replica::open().await;
    let b = a.another().await;
    for _ in 0..10 {
        let task = a.start("stored", "600 found").await;
        let answer = b.tasks.cancel(CHAT, task, "enough").await.unwrap();
        assert_eq!(answer, CancelAnswer::Requested { runs: 1 });
        a.host.advance(SECOND).await;
        assert_eq!(b.see(task).await.state.as_str(), "cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn own_x12_a_cancel_that_the_store_did_not_take_is_an_error() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "600 found").await;
    for lossy in [false, true] {
        if lossy {
            b.host.lose_replies();
        } else {
            b.host.cut_off();
        }
        assert!(matches!(b.tasks.cancel(CHAT, task, "enough").await, Err(Error::Store(_))));
        b.host.reconnect();
        if !lossy {
            assert!(b.tasks.release("none", Release::Refuse).await.is_ok());
            a.host.advance(5 * SECOND).await;
            assert_eq!(a.line(task).await, "Task 1 [running] stored: a test");
        }
    }
    b.host.cut_off();
    let wait = Seconds::new(1);
    assert!(matches!(b.tasks.release(CHAT, Release::Cancel { wait }).await, Err(Error::Store(_))));
}

#[tokio::test(start_paused = true)]
async fn own_i8_work_is_not_polled_before_its_grant_is_stored() {
    let test = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = owning(&test);
    let other = owning(&test.another().await);
    start(&other, 1, |_| async {
        pass(HOUR).await;
        Ok("x".into())
    })
    .await;
    let answer = start(&host, 1, |_| async { panic!("polled without a grant") }).await;
    assert!(matches!(answer, Acquired::Held { .. }), "{answer:?}");
    // The same request again is the same work, which is not begun twice.
    let request = host.request(key(2));
    for _ in 0..2 {
        let again = host.start(request.clone(), |_| async {
            pass(60 * SECOND).await;
            Ok("once".into())
        });
        assert!(matches!(again.await.unwrap(), Acquired::Acquired(_)));
    }
    assert_eq!(test.health().executing, 1);
    test.advance(61 * SECOND).await;
    assert_eq!(state(&host, 2).await, "completed");
}

#[tokio::test(start_paused = true)]
async fn owned_work_takes_no_room_from_what_is_claimed() {
    let settings = Settings { concurrency: 1, ..settings() };
    let a = Replica::open_with(settings).await;
    for _ in 0..5 {
        a.start("stored", "600 found").await;
    }
    a.host.agent("agent", Script::new().answers("done"));
    a.host.task(r#"{ "task_id": "t", "agent_id": "agent", "query": "q" }"#).await;
    a.host.run("t").await;
    a.host.advance(SECOND).await;
    a.host.see("t").await.run(1).assert_status("completed");
}

#[tokio::test(start_paused = true)]
async fn what_hosts_own_is_no_task_of_anybody() {
    let a = Replica::open().await;
    let task = a.start("stored", "600 found").await;
    let id: TaskId =
        a.host.store().tasks(PageRequest::default()).await.unwrap().items[0].0.spec.task_id.clone();
    let host = &a.host;
    assert!(matches!(tenure::Tenure::task(host, &id).await, Err(Error::NotFound { .. })));
    assert!(matches!(host.run_now(&id, RunRequest::default()).await, Err(Error::NotFound { .. })));
    assert!(matches!(host.resume_task(&id).await, Err(Error::NotFound { .. })));
    assert!(matches!(host.delete_task(&id, Default::default()).await, Err(Error::Invalid(_))));
    let spec = |task_id: &str, agent_id: &str| {
        let json = serde_json::json!({ "task_id": task_id, "agent_id": agent_id, "query": "q" });
        TaskSpec::parse(&json.to_string()).unwrap()
    };
    assert!(matches!(host.create_task(spec(id.as_str(), "agent")).await, Err(Error::Invalid(_))));
    assert!(matches!(host.put_task(spec("t", AgentId::host().as_str())).await, Err(Error::Invalid(_))));
    let agent = |_: RunContext| async { Ok("x".into()) };
    assert!(matches!(host.register_agent(AgentId::host().as_str(), agent), Err(Error::Invalid(_))));
    // Cancelling whatever runs does not mean what hosts own, unless it is named.
    let request = tenure::rules::CancelRequest {
        mode: CancelMode::Force,
        reason: "all".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    host.cancel_runs(RunFilter::default(), &request).await.unwrap();
    assert_eq!(a.line(task).await, "Task 1 [running] stored: a test");
    let of_session = RunFilter { task_id: Some(id), ..RunFilter::default() };
    assert_eq!(host.runs(of_session, PageRequest::default()).await.unwrap().items.len(), 1);
    let owned = RunFilter { owned: Some(true), ..RunFilter::default() };
    assert_eq!(host.runs(owned, PageRequest::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_page_by_page_without_what_hosts_own() {
    let a = Replica::open().await;
    for n in 0..10 {
        a.tasks.start(&format!("chat-{n}"), ask("stored", "600 x")).await.unwrap();
    }
    for name in ["a", "b", "z"] {
        let json = format!(r#"{{ "task_id": "{name}", "agent_id": "agent", "query": "q" }}"#);
        a.host.task(json).await;
    }
    let (mut names, mut page) = (Vec::new(), PageRequest { limit: 2, cursor: None });
    loop {
        let found = a.host.tasks(page.clone()).await.unwrap();
        names.extend(found.items.iter().map(|(task, _)| task.spec.task_id.to_string()));
        page.cursor = found.next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "z"]);
}

#[tokio::test(start_paused = true)]
async fn own_x4_a_forced_cancel_cuts_the_work_off_on_its_host() {
    let a = Replica::open().await;
    let b = a.another().await;
    let task = a.start("stored", "600 found").await;
    a.host.advance(5 * SECOND).await;
    let scope = CancelScope::Task(b.tasks.key(CHAT).unwrap().task(task));
    let cancel = Cancel {
        mode: CancelMode::Force,
        reason: "now".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    b.tasks.host().ownership().request_cancel(&scope, &cancel).await.unwrap();
    assert_eq!(b.see(task).await.state.as_str(), "cancelled");
    let before = a.effects();
    a.host.advance(30 * SECOND).await;
    assert_eq!((a.effects() - before, a.host.health().executing), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn own_s5_3_a_replaced_generation_interrupts_what_it_runs() {
    let a = Replica::open().await;
    let task = a.start("stubborn", "600").await;
    a.host.advance(SECOND).await;
    a.host.replace().await.unwrap();
    a.host.advance(SECOND).await;
    assert_eq!(a.see(task).await.state.as_str(), "failed", "and not lost");
    let again = a.tasks.start(CHAT, ask("stored", "5 again")).await.unwrap();
    assert_eq!(again, StartedTask::Started { task: 2 });
}
