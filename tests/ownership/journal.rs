//! What was computed and not stored when a machine died (P3).

use std::path::Path;
use std::sync::Arc;

use tenure::model::Payload;
use tenure::ownership::{Acquire, Acquired, Done, Host, OwnershipSettings, Recovered, SessionKey, TaskKey};
use tenure::store::faulty::{Fault, Faulty, Method};
use tenure::testkit::TestHost;
use tenure::{Error, Settings, Tenure};

use crate::replicas::{LAPSE, SECOND, pass, settings};

fn key(task: u64) -> TaskKey {
    SessionKey::new("test", "host", "s").unwrap().task(task)
}

fn owning(host: &TestHost, journal: &Path) -> Host {
    Host::new(host, OwnershipSettings::default()).with_journal(journal)
}

/// Begins a task that is done after a second.
async fn start(host: &Host, task: u64) {
    let work = |_| async {
        pass(SECOND).await;
        Ok(Done::from("found").with_snapshot(Payload::text("page 7")))
    };
    let begun = host.start(host.request(key(task)), work).await.unwrap();
    assert!(matches!(begun, Acquired::Acquired(_)), "{begun:?}");
}

async fn state(host: &Host, task: u64) -> (String, bool) {
    let seen = host.ownership().inspect(&key(task)).await.unwrap();
    let recovered = seen.state.finished().is_some_and(|finished| finished.recovered);
    (seen.state.as_str().to_owned(), recovered)
}

fn entries(journal: &Path) -> usize {
    std::fs::read_dir(journal).map_or(0, Iterator::count)
}

/// A host whose task is done, and that dies before the store has heard of it; and another on the same store.
async fn died(journal: &Path, tasks: u64) -> (TestHost, Host) {
    let first = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let second = first.another().await;
    let host = owning(&first, journal);
    for task in 1..=tasks {
        start(&host, task).await;
    }
    first.cut_off();
    first.advance(5 * SECOND).await;
    assert_eq!((first.health().unstored as u64, entries(journal) as u64), (tasks, tasks));
    first.kill();
    let again = owning(&second, journal);
    (second, again)
}

#[tokio::test(start_paused = true)]
async fn own_p3_what_was_not_stored_is_published_after_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, again) = died(folder.path(), 2).await;
    assert_eq!(state(&again, 1).await.0, "running", "its lease stands");
    let published = Recovered { published: 2, ..Recovered::default() };
    assert_eq!(again.recover().await.unwrap(), published);
    assert_eq!(state(&again, 1).await, ("completed".into(), false));
    let seen = again.ownership().inspect(&key(2)).await.unwrap();
    let finished = seen.state.finished().unwrap();
    assert_eq!(finished.result, Some(Payload::text("found")));
    assert_eq!(finished.snapshot, Some(Payload::text("page 7")));
    assert_eq!((entries(folder.path()), again.recover().await.unwrap()), (0, Recovered::default()));
}

#[tokio::test(start_paused = true)]
async fn own_p3_a_lost_task_is_recovered_unless_it_was_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let (host, again) = died(folder.path(), 2).await;
    host.advance(LAPSE).await;
    for task in [1, 2] {
        let fence = 1;
        again.ownership().declare_lost(&key(task), 1, fence, None).await.unwrap();
        assert_eq!(state(&again, task).await.0, "lost");
    }
    let successor = Acquire { supersedes: Some(2), ..again.request(key(3)) };
    again.ownership().acquire(&successor).await.unwrap();
    std::fs::write(folder.path().join("odd.outcome"), "{").unwrap();
    let recovered = Recovered { published: 1, refused: 1, unreadable: 1 };
    assert_eq!(again.recover().await.unwrap(), recovered);
    assert_eq!(state(&again, 1).await, ("completed".into(), true));
    assert_eq!(state(&again, 2).await, ("lost".into(), false), "its successor counts");
    assert_eq!(entries(folder.path()), 1, "what is no entry is left where it is");
}

#[tokio::test(start_paused = true)]
async fn own_p3_what_was_not_published_stays_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (host, again) = died(folder.path(), 1).await;
    host.cut_off();
    assert!(matches!(again.recover().await, Err(tenure::Error::Store(_))));
    assert_eq!(entries(folder.path()), 1);
    host.reconnect();
    assert_eq!(again.recover().await.unwrap().published, 1);
}

#[tokio::test(start_paused = true)]
async fn own_p3_what_was_stored_leaves_the_journal_with_the_next_entry() {
    let folder = tempfile::tempdir().unwrap();
    let first = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = owning(&first, folder.path());
    for task in 1..=5 {
        start(&host, task).await;
        first.advance(2 * SECOND).await;
        assert_eq!(state(&host, task).await, ("completed".into(), false));
        assert_eq!(entries(folder.path()), 1, "the last one");
    }
    let published = Recovered { published: 1, ..Recovered::default() };
    assert_eq!(owning(&first.another().await, folder.path()).recover().await.unwrap(), published);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_used_is_named_and_stops_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let first = TestHost::open_with("2026-01-01T00:00:00Z", settings()).await;
    let host = owning(&first, &file);
    let error = host.recover().await.unwrap_err().to_string();
    assert!(error.contains("the journal") && error.contains("file"), "{error}");
    start(&host, 1).await;
    first.advance(2 * SECOND).await;
    assert_eq!(state(&host, 1).await.0, "completed");
}

/// A host that recovers, and fails as the test says.
async fn recovering(on: &TestHost, journal: &Path) -> (Host, Arc<Faulty>) {
    let store = Arc::new(Faulty::new(on.store()));
    let settings = Settings { seed: Some(9), ..settings() };
    let tenure = Tenure::open(Arc::clone(&store) as _, settings).await.unwrap();
    (Host::new(&tenure, OwnershipSettings::default()).with_journal(journal), store)
}

#[tokio::test(start_paused = true)]
async fn own_p3_a_task_that_is_lost_once_more_before_it_is_published_is_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let (host, again) = died(folder.path(), 1).await;
    host.advance(LAPSE).await;
    again.ownership().declare_lost(&key(1), 1, 1, None).await.unwrap();
    let (between, store) = recovering(&host, folder.path()).await;
    // It is told that the outcome came late; the task is given back; the outcome is not published.
    store.script(Method::Commit, [None, None, Some(Fault::Refuse)]);
    assert!(matches!(between.recover().await, Err(Error::Store(_))));
    assert_eq!((state(&again, 1).await.0.as_str(), entries(folder.path())), ("running", 1));
    drop(between);
    host.advance(LAPSE).await;
    again.ownership().declare_lost(&key(1), 1, 2, None).await.unwrap();
    assert_eq!(state(&again, 1).await.0, "lost");
    assert_eq!(again.recover().await.unwrap(), Recovered { published: 1, ..Recovered::default() });
    assert_eq!((state(&again, 1).await, entries(folder.path())), (("completed".into(), true), 0));
}
