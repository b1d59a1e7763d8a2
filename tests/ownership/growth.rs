//! The store that a host has by default.

use std::sync::Arc;

use tenure::clock::{Clock as _, ManualClock, RuntimeClock, SystemClock};
use tenure::model::{InstanceId, Seconds, Timestamp};
use tenure::ownership::{Acquire, Acquired, Ownership, OwnershipSettings, Renewed, SessionKey, TaskState};
use tenure::store::MemoryStore;
use tenure::store::conformance::{Fixture, cases};

use crate::replicas::{HOUR, SECOND};

const TTL: Seconds = Seconds::new(30);

#[tokio::test(start_paused = true)]
async fn own_m4_a_clock_that_follows_the_runtime_is_moved_by_no_wall_clock() {
    // The wall clock may be set to whatever it likes once the store was made: it is a year behind here.
    let start = SystemClock.now().plus(365 * 24 * HOUR);
    let store = Arc::new(MemoryStore::new(Arc::new(RuntimeClock::starting_at(start))));
    let own = Ownership::new(store, OwnershipSettings::default());
    let session = SessionKey::new("test", "researcher", "s").unwrap();
    let request = Acquire::new(session.task(1), InstanceId::from_bits(0xA), "first", TTL);
    let Acquired::Acquired(held) = own.acquire(&request).await.unwrap() else { panic!("it was free") };
    tokio::time::advance(20 * SECOND).await;
    let seen = own.inspect(&held.key).await.unwrap().state;
    assert!(matches!(seen, TaskState::Running { ttl_left, .. } if ttl_left == Seconds::new(10)), "{seen:?}");
    let renewed = own.renew(InstanceId::from_bits(0xA), &[held], TTL).await.unwrap();
    assert!(matches!(renewed[0], Renewed::Renewed { ttl_left, .. } if ttl_left == TTL));
}

#[tokio::test]
async fn own_m5_the_default_store_passes_every_scenario() {
    let scenarios: Vec<_> = cases().into_iter().filter(|case| case.name.starts_with("own_")).collect();
    assert!(scenarios.len() > 90, "{} scenarios", scenarios.len());
    for case in scenarios {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_123)));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
        (case.run)(Fixture { store, clock, reopen: None, keep: None }).await;
    }
}
