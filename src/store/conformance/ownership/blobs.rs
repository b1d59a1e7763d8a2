//! Outcomes that are too large for the store: kept by a hook of the host, and removed with their task.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::outcomes::{HOUR, KEPT};
use super::*;
use crate::error::Error;
use crate::model::{Payload, RunId, RunResult};
use crate::ownership::{Blobs, Forgotten};
use crate::store::conformance::list;
use crate::store::{RunFilter, Store};

list! {
    own_p6_a_large_outcome_is_kept_by_the_hook,
    own_p1_a_second_large_outcome_overwrites_nothing,
    own_p11_what_the_hook_kept_goes_after_its_task,
    own_p11_what_the_hook_could_not_remove_is_asked_for_again,
    own_p8_what_the_hook_kept_goes_when_it_expires,
    own_p6_what_was_refused_is_not_kept,
}

/// How it is with the shelf.
#[derive(Default)]
struct State {
    kept: BTreeMap<String, Outcome>,
    puts: usize,
    removes: usize,
    /// It keeps nothing, and removes nothing.
    fails: bool,
}

/// Keeps outcomes, each in a place of its name.
struct Shelf {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    /// Whoever puts something there waits, once he has told so.
    waits: Option<(Notify, Notify)>,
}

impl Shelf {
    fn in_front_of(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), state: Mutex::default(), waits: None }
    }

    fn places(&self) -> Vec<String> {
        self.state.lock().kept.keys().cloned().collect()
    }

    fn fails(&self, fails: bool) {
        self.state.lock().fails = fails;
    }
}

impl Blobs for Shelf {
    fn put(&self, name: String, outcome: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>> {
        async move {
            if let Some((reached, goes_on)) = &self.waits {
                reached.notify_one();
                goes_on.notified().await;
            }
            let mut state = self.state.lock();
            state.puts += 1;
            if state.fails {
                return Err("the shelf is not up".to_owned());
            }
            state.kept.insert(name.clone(), outcome);
            Ok(name.into())
        }
        .boxed()
    }

    fn remove(&self, location: Arc<str>) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let (run_id, _) = location.rsplit_once('.').expect("a run, and what tells its outcomes apart");
            let run = self.store.run(&RunId::new(run_id).unwrap()).await.unwrap();
            let names = run.and_then(|run| run.result).is_some_and(|result| {
                let RunResult::Inline(payload) = result else { return false };
                String::from_utf8_lossy(&payload.bytes).contains(&*location)
            });
            assert!(!names, "the record that names it goes first");
            let mut state = self.state.lock();
            state.removes += 1;
            if state.fails {
                return Err("the shelf is not up".to_owned());
            }
            state.kept.remove(&*location);
            Ok(())
        }
        .boxed()
    }
}

/// Replicas that share a shelf.
fn with(f: Fixture) -> (Own, Arc<Shelf>) {
    let shelf = Arc::new(Shelf::in_front_of(&f.store));
    (on(f, &shelf), shelf)
}

fn on(f: Fixture, shelf: &Arc<Shelf>) -> Own {
    let blobs = Some(Arc::clone(shelf) as Arc<dyn Blobs>);
    Own::with(f, OwnershipSettings { outcome_limit: 10, blobs, ..OwnershipSettings::default() })
}

async fn own_p6_a_large_outcome_is_kept_by_the_hook(f: Fixture) {
    let (o, shelf) = with(f);
    let held = o.start(A, 1).await;
    let outcome = Outcome::completed("more than ten").with_snapshot(Payload::text("and where it was"));
    shelf.fails(true);
    assert!(matches!(o.own.publish(&held, outcome.clone()).await, Err(Error::Store(_))), "not kept");
    assert_eq!(word(&o.state(1).await), "running");
    shelf.fails(false);
    assert_eq!(o.own.publish(&held, outcome.clone()).await.unwrap(), Published::Committed);
    assert_eq!(o.own.publish(&held, outcome.clone()).await.unwrap(), Published::AlreadyCommitted);
    let blob = o.finished(1).await.blob.expect("where it is kept");
    assert_eq!((blob.size, &*blob.preview), (29, "more than ten"));
    assert!(blob.location.starts_with("owned.test.researcher.s.1.1."), "{}", blob.location);
    assert_eq!(shelf.state.lock().kept, [(blob.location.to_string(), outcome)].into());
    assert_eq!(shelf.state.lock().puts, 2, "what is published is not kept again");
}

async fn own_p1_a_second_large_outcome_overwrites_nothing(f: Fixture) {
    let (o, shelf) = with(f);
    let held = o.start(A, 1).await;
    let first = Outcome::completed("this is the first");
    assert_eq!(o.own.publish(&held, first.clone()).await.unwrap(), Published::Committed);
    let place = shelf.places();
    // As long as the first, and of the same beginning: only what it says differs.
    let second = o.own.publish(&held, Outcome::completed("this is the other")).await.unwrap();
    assert!(
        matches!(&second, Published::AlreadyTerminal { outcome } if outcome.blob.is_some()),
        "{second:?}"
    );
    assert_eq!(shelf.places(), place);
    assert_eq!(shelf.state.lock().kept[&place[0]], first);
    assert_eq!(o.own.publish(&held, first).await.unwrap(), Published::AlreadyCommitted);
}

async fn own_p11_what_the_hook_kept_goes_after_its_task(f: Fixture) {
    let (o, shelf) = with(f);
    let first = o.start(A, 1).await;
    o.publish(&first, "the first of its outcomes").await;
    let second = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    o.publish(&second, "the second of its outcomes").await;
    let other = o.start(A, 2).await;
    o.publish(&other, "that of another task").await;
    assert_eq!(shelf.places().len(), 3);
    assert_eq!(o.peer.forget(&key(1)).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(word(&o.state(1).await), "expired");
    let left = shelf.places();
    assert!(left.len() == 1 && left[0].starts_with("owned.test.researcher.s.2.1."), "{left:?}");
    let removes = shelf.state.lock().removes;
    assert_eq!(o.own.forget(&key(1)).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(shelf.state.lock().removes, removes, "it was struck off the list");
    assert_eq!(o.finished(2).await.blob.map(|blob| blob.location.to_string()), left.first().cloned());
}

async fn own_p11_what_the_hook_could_not_remove_is_asked_for_again(f: Fixture) {
    let (o, shelf) = with(f);
    for task in [1, 2] {
        let held = o.start(A, task).await;
        o.publish(&held, "more than ten").await;
    }
    shelf.fails(true);
    for task in [1, 2] {
        assert_eq!(o.own.forget(&key(task)).await.unwrap(), Forgotten::Forgotten, "its record is gone");
        assert_eq!(word(&o.state(task).await), "expired");
    }
    assert_eq!(o.f.list(RunFilter::default()).await, []);
    assert_eq!(shelf.places().len(), 2);
    // Not even when everything else is over is it lost that something lies there.
    o.f.later(1000 * HOUR);
    assert_eq!(o.peer.reap(KEPT).await.unwrap().sessions, 0);
    assert_eq!(shelf.places().len(), 2);
    let removes = shelf.state.lock().removes;
    o.peer.reap(KEPT).await.unwrap();
    assert_eq!(shelf.state.lock().removes, removes, "a hook that failed just now is left alone for a while");
    shelf.fails(false);
    // Another replica, or the same after a restart.
    let later = Ownership::new(Arc::clone(&o.f.store), o.own.settings().clone());
    assert_eq!(later.reap(KEPT).await.unwrap().sessions, 0);
    assert_eq!(shelf.places(), [""; 0]);
    o.f.later(1000 * HOUR);
    assert_eq!(later.reap(KEPT).await.unwrap().sessions, 1, "then nothing is left of the session either");
}

async fn own_p8_what_the_hook_kept_goes_when_it_expires(f: Fixture) {
    let (o, shelf) = with(f);
    for task in 1..=3 {
        let held = o.start(A, task).await;
        o.publish(&held, "more than ten").await;
    }
    o.own.ack(&key(1), 1, "chat").await.unwrap();
    o.f.later(HOUR / 2);
    // Who looks after the store may have no hook: another does it then.
    let bare = OwnershipSettings { blobs: None, ..o.own.settings().clone() };
    let bare = Ownership::new(Arc::clone(&o.f.store), bare);
    assert_eq!(bare.reap(KEPT).await.unwrap().tasks, 1);
    assert_eq!(shelf.places().len(), 3);
    assert_eq!(o.own.reap(KEPT).await.unwrap().tasks, 0);
    assert_eq!(shelf.places().len(), 2);
    o.f.later(HOUR / 2);
    assert_eq!(o.own.reap(KEPT).await.unwrap().tasks, 2);
    assert_eq!(shelf.places(), [""; 0], "in the same call");
}

async fn own_p6_what_was_refused_is_not_kept(f: Fixture) {
    let shelf = Shelf { waits: Some(Default::default()), ..Shelf::in_front_of(&f.store) };
    let shelf = Arc::new(shelf);
    let o = on(f, &shelf);
    let held = o.start(A, 1).await;
    let (reached, goes_on) = shelf.waits.as_ref().unwrap();
    let cancels = async {
        reached.notified().await;
        o.cancel(CancelScope::Task(key(1)), CancelMode::Force).await;
        goes_on.notify_one();
    };
    let (published, ()) = tokio::join!(o.publish(&held, "more than ten"), cancels);
    assert!(matches!(published, Published::Fenced { .. }), "{published:?}");
    assert_eq!(shelf.places(), [""; 0], "it was put there, and removed");
    assert_eq!(shelf.state.lock().puts, 1);
    // And what comes later than that is not even put there.
    assert!(matches!(o.publish(&held, "more than ten").await, Published::Fenced { .. }));
    assert_eq!(shelf.state.lock().puts, 1);
}
