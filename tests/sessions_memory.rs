//! What is over leaves nothing behind, however much it was (P13, I10). The only test of its process, for it measures
//! that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "support/kit.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod kit;

use std::sync::Arc;

use tenure::clock::ManualClock;
use tenure::model::{InstanceId, Seconds, Subject, Timestamp};
use tenure::ownership::{
    Acquire, Acquired, Outcome, Ownership, OwnershipSettings, Published, Release, Released, Retention,
    SessionKey,
};
use tenure::store::{MemoryStore, PageRequest, RunFilter, Store};

use crate::kit::{SECOND, as_many};

const TTL: Seconds = Seconds::new(30);

/// How many are over before the next ones begin.
const WAVE: usize = 2_000;

/// How many the contract asks for; a build for tests takes most of a minute for them.
fn sessions() -> usize {
    as_many(100_000, 20_000)
}

/// How much the process may grow after half of them: 200 bytes for each of the rest, and the noise of the allocator.
fn most_growth() -> u64 {
    100 * sessions() as u64 + (8 << 20)
}

#[tokio::test]
async fn own_p13_sessions_that_are_over_leave_nothing_behind() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
    let own = Ownership::new(Arc::clone(&store) as _, OwnershipSettings::default());
    let kept = Retention { acknowledged: TTL, unacknowledged: TTL, sessions: TTL, batch: 1_000 };
    let mut before = None;
    let waves = sessions() / WAVE;
    for wave in 0..waves {
        for n in 0..WAVE {
            let session = SessionKey::new("test", "researcher", format!("chat-{wave}-{n}")).unwrap();
            over(&own, &session).await;
        }
        for _ in 0..2 {
            clock.advance(60 * SECOND);
            while own.reap(kept).await.unwrap().more {}
        }
        assert_nothing_is_left(&store).await;
        if wave == waves / 2 {
            before = resident();
        }
    }
    let (Some(before), Some(after)) = (before, resident()) else { return };
    assert!(after < before + most_growth(), "the process grew by {} bytes", after - before);
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
