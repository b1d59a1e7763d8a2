//! Who is asked whether an owner is gone right after something happened to the store, before they have looked for
//! lapsed leases themselves.

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::model::{InstanceId, Seconds, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, DeclaredLost, Host, Ownership, OwnershipSettings, SessionKey, TaskKey, TaskState,
};
use tenure::store::{MemoryStore, Store};
use tenure::testkit::TestHost;
use tenure::{Error, Settings, Tenure};

use crate::replicas::*;

fn key(task: u64) -> TaskKey {
    SessionKey::new("test", "host", "s").unwrap().task(task)
}

/// Nothing is looked for by itself while a test lasts.
fn unswept() -> Settings {
    Settings { sweep: Some(24 * HOUR), ..settings() }
}

/// Owns a task and works on it for so long.
async fn works(host: &Host, task: u64, length: Duration) {
    let work = move |_| async move {
        pass(length).await;
        Ok("found".into())
    };
    let owned = host.start(host.request(key(task)), work).await.unwrap();
    assert!(matches!(owned, Acquired::Acquired(_)), "{owned:?}");
}

/// What comes of saying that the owner of a task is gone: whether it is, and how it stands.
async fn declared(own: &Ownership, task: u64) -> (bool, &'static str) {
    match own.declare_lost(&key(task), 1, 1, None).await.unwrap() {
        DeclaredLost::Lost { state } => (true, state.state.as_str()),
        DeclaredLost::Changed { state } if matches!(state.state, TaskState::Suspect { .. }) => {
            (false, "suspect")
        }
        DeclaredLost::Changed { state } => (false, state.state.as_str()),
    }
}

#[tokio::test(start_paused = true)]
async fn own_l8_who_is_asked_right_after_a_jump_of_the_clock_takes_nobody_for_gone() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let a = Tenure::open(Arc::clone(&store), unswept()).await.unwrap();
    let b = Tenure::open(Arc::clone(&store), unswept()).await.unwrap();
    works(&Host::new(&a, OwnershipSettings::default()), 1, 60 * SECOND).await;
    // Another owner dies where it begins.
    let bare = Ownership::new(store, OwnershipSettings::default());
    let dead = Acquire::new(key(2), InstanceId::from_bits(0xD), "dead", Seconds::new(30));
    assert!(matches!(bare.acquire(&dead).await.unwrap(), Acquired::Acquired(_)));
    pass(3 * SECOND).await;
    clock.advance(600 * SECOND);
    // As its HTTP interface asks.
    let own = Ownership::of(&b, OwnershipSettings::default());
    for task in [1, 2] {
        assert_eq!(declared(&own, task).await, (false, "suspect"), "task {task}");
    }
    pass(15 * SECOND).await;
    assert_eq!(declared(&own, 1).await, (false, "running"), "its owner lives");
    assert_eq!(declared(&own, 2).await, (false, "suspect"), "not all owners had the time to renew");
    pass(6 * SECOND).await;
    assert_eq!(declared(&own, 2).await, (true, "lost"));
    assert_eq!(declared(&own, 2).await, (true, "lost"), "as before");
    pass(60 * SECOND).await;
    let seen = own.inspect(&key(1)).await.unwrap();
    let TaskState::Terminal(finished) = &seen.state else { panic!("{seen:?}") };
    assert!(!finished.recovered, "it was never lost");
    for host in [a, b] {
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn own_l23_who_is_asked_right_after_an_outage_takes_nobody_for_gone() {
    let a = TestHost::open_with("2026-01-01T00:00:00Z", unswept()).await;
    let b = a.another().await;
    let own = Ownership::of(&b, OwnershipSettings::default());
    works(&Host::new(&a, OwnershipSettings::default()), 1, 300 * SECOND).await;
    a.advance(SECOND).await;
    for host in [&a, &b] {
        host.cut_off();
    }
    let asked = own.declare_lost(&key(1), 1, 1, None).await;
    assert!(matches!(asked, Err(Error::Store(_))), "{asked:?}");
    a.advance(180 * SECOND).await;
    b.reconnect();
    assert_eq!(declared(&own, 1).await, (false, "suspect"));
    b.advance(10 * SECOND).await;
    assert_eq!(declared(&own, 1).await, (false, "suspect"));
    a.reconnect();
    b.advance(15 * SECOND).await;
    assert_eq!(declared(&own, 1).await, (false, "running"));
    a.kill();
    b.advance(LAPSE).await;
    assert_eq!(declared(&own, 1).await, (true, "lost"));
}

#[tokio::test(start_paused = true)]
async fn own_l10_a_host_that_was_paused_does_not_take_its_own_work_for_lost_when_it_is_asked_to() {
    let a = TestHost::open_with("2026-01-01T00:00:00Z", unswept()).await;
    let host = Host::new(&a, OwnershipSettings::default());
    works(&host, 1, 90 * SECOND).await;
    a.advance(10 * SECOND).await;
    a.cut_off();
    a.advance(LAPSE).await;
    a.reconnect();
    assert_eq!(declared(host.ownership(), 1).await, (false, "suspect"), "its heartbeat has its say first");
    a.advance(60 * SECOND).await;
    let seen = host.ownership().inspect(&key(1)).await.unwrap();
    assert_eq!(seen.state.as_str(), "completed");
}
