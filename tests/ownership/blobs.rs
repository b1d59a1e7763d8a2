//! What a host keeps elsewhere, by its hook: in time, and in no longer.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tenure::Settings;
use tenure::model::{CancelMode, Seconds};
use tenure::ownership::{
    Blobs, Cancel, CancelScope, Host, Outcome, OwnershipSettings, Retention, SessionKey, TaskKey,
};
use tenure::testkit::TestHost;

use crate::replicas::{HOUR, LAPSE, SECOND, pass, settings};

/// Keeps outcomes, each in a place of its name; fails a few times before it removes one.
#[derive(Default)]
struct Shelf {
    kept: Mutex<BTreeMap<String, Outcome>>,
    fails: Mutex<u32>,
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
        self.kept.lock().remove(&*location);
        ready(Ok(())).boxed()
    }
}

fn key(task: u64) -> TaskKey {
    SessionKey::new("test", "host", "s").unwrap().task(task)
}

fn owning(test: &TestHost, shelf: &Arc<Shelf>) -> Host {
    let blobs = Some(Arc::clone(shelf) as Arc<dyn Blobs>);
    Host::new(test, OwnershipSettings { outcome_limit: 10, blobs, ..OwnershipSettings::default() })
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
    let force = Cancel {
        mode: CancelMode::Force,
        reason: "enough".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    peer.ownership().request_cancel(&CancelScope::Task(key(1)), &force).await.unwrap();
    test.reconnect();
    test.advance(5 * SECOND).await;
    assert_eq!(test.health().unstored, 0, "it is told, and does not wait for the shelf");
    test.advance(60 * SECOND).await;
    assert_eq!(shelf.kept.lock().len(), 0, "who looks after what is over has it removed");
    assert_eq!(peer.ownership().inspect(&key(1)).await.unwrap().state.as_str(), "cancelled");
}

/// Takes its time to remove something.
struct Slow(Shelf);

impl Blobs for Slow {
    fn put(&self, name: String, outcome: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>> {
        self.0.put(name, outcome)
    }

    fn remove(&self, location: Arc<str>) -> BoxFuture<'_, Result<(), String>> {
        async move {
            pass(9 * SECOND).await;
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
    let slow = Arc::new(Slow(Shelf::default()));
    let blobs = Some(Arc::clone(&slow) as Arc<dyn Blobs>);
    let host =
        Host::new(&test, OwnershipSettings { outcome_limit: 10, blobs, ..OwnershipSettings::default() });
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
