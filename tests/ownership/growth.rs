//! What is over leaves nothing behind, however much it was (P13, I10); and the store that a host has by default.

use std::sync::Arc;

use tenure::clock::{Clock as _, ManualClock, RuntimeClock, SystemClock};
use tenure::model::{InstanceId, Seconds, Subject, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, Outcome, Ownership, OwnershipSettings, Published, Release, Released, Renewed,
    Retention, SessionKey, TaskState,
};
use tenure::store::conformance::{Fixture, cases};
use tenure::store::{MemoryStore, PageRequest, RunFilter, Store};

use crate::replicas::{HOUR, SECOND};

const TTL: Seconds = Seconds::new(30);

/// How many sessions the contract asks for, and how many of them are over before the next ones begin.
const SESSIONS: usize = 100_000;
const WAVE: usize = 2_000;

/// How much the process may grow once it has seen some waves: 200 bytes a session, and the noise of the allocator.
const MOST_GROWTH: u64 = 24 << 20;

#[tokio::test]
async fn own_p13_a_hundred_thousand_sessions_leave_nothing_behind() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let own = Ownership::new(Arc::clone(&store) as _, OwnershipSettings::default());
    let kept = Retention { acknowledged: TTL, unacknowledged: TTL, sessions: TTL, batch: 1_000 };
    let mut before = None;
    for wave in 0..SESSIONS / WAVE {
        for n in 0..WAVE {
            let session = SessionKey::new("test", "researcher", format!("chat-{wave}-{n}")).unwrap();
            over(&own, &session).await;
        }
        for _ in 0..2 {
            clock.advance(60 * SECOND);
            while own.reap(kept).await.unwrap().more {}
        }
        assert_nothing_is_left(&store).await;
        if wave == 9 {
            before = resident();
        }
    }
    let (Some(before), Some(after)) = (before, resident()) else { return };
    assert!(after < before + MOST_GROWTH, "the process grew by {} bytes", after - before);
}

/// A session that starts a task, finishes it and is released.
async fn over(own: &Ownership, session: &SessionKey) {
    let task = own.next_task_id(session).await.unwrap();
    let request = Acquire::new(session.task(task), InstanceId::from_bits(0xA), "first", TTL);
    let Acquired::Acquired(held) = own.acquire(&request).await.unwrap() else { panic!("it was free") };
    assert_eq!(own.publish(&held, Outcome::completed("found")).await.unwrap(), Published::Committed);
    let released = own.release_session(session, Release::Refuse).await.unwrap();
    assert!(matches!(released, Released::Released { .. }));
}

async fn assert_nothing_is_left(store: &MemoryStore) {
    assert!(store.tasks(PageRequest::default()).await.unwrap().items.is_empty());
    assert!(store.runs(RunFilter::default(), PageRequest::default()).await.unwrap().items.is_empty());
    assert!(store.counts(None).await.unwrap().is_empty());
    assert!(store.events(Subject::All, 0, 10).await.unwrap().is_empty());
    assert_eq!(store.agenda().await.unwrap().wake, None);
}

/// How much memory the process has; none where that is not told.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
}

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
