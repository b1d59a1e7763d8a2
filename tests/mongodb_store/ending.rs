//! A server that is killed and comes back on its data: what was answered is there, and whole.

use std::time::Duration;

use serde_json::json;
use tenure::model::{RunId, Subject, Timestamp};
use tenure::store::{MongoOptions, MongoStore, RefusedKind, Store, StoreError};

use super::{mongodb_server, runs};

super::list! {
    own_s7_6_a_server_that_is_gone_is_refused_and_served_when_it_is_back,
    what_was_answered_outlives_the_server_and_is_whole,
}

/// SecantusDB keeps its journal in memory for a while unless it is told otherwise, also when a write asks for it.
const DURABLE: &[&str] = &["--sync-on-commit"];

async fn own_s7_6_a_server_that_is_gone_is_refused_and_served_when_it_is_back() {
    let mut server = mongodb_server::Server::start(DURABLE).unwrap();
    let mut options = MongoOptions::parse(&format!("{}/gone", server.url())).unwrap();
    options.patience = Duration::from_secs(2);
    let store = MongoStore::connect(options).await.unwrap();
    let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
    runs::queue(&store, &task, "before").await.unwrap();
    let mut watcher = store.watch();
    server.kill();
    let write = || {
        let now = Timestamp::from_ms(0);
        store.commit(vec![runs::queued(&task, RunId::new("x").unwrap(), now, Duration::ZERO)])
    };
    // The first may have been sent before the end was seen; the second finds nobody.
    let first = write().await.unwrap_err();
    assert!(first.is_transient(), "{first}");
    let second = write().await.unwrap_err();
    assert!(matches!(second, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{second}");
    let read = store.counts(None).await.unwrap_err();
    assert!(matches!(read, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{read}");
    server.begin().unwrap();
    let everything = async {
        loop {
            let hint = watcher.recv().await.unwrap();
            if hint.ready && hint.agenda && hint.agents {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), everything)
        .await
        .expect("who listened is told of everything");
    runs::queue(&store, &task, "after").await.expect("served again");
    let events = store.events(Subject::All, 0, 10).await.unwrap();
    let names: Vec<_> = events.iter().filter_map(|event| event.run_id.as_ref()).map(RunId::as_str).collect();
    assert_eq!(names, ["before", "after"], "nothing that was answered is lost, cursors go on");
}

async fn what_was_answered_outlives_the_server_and_is_whole() {
    let mut server = mongodb_server::Server::start(DURABLE).unwrap();
    let options = MongoOptions::parse(&format!("{}/outlives", server.url())).unwrap();
    let store = MongoStore::connect(options.clone()).await.unwrap();
    let task = runs::task(&store, json!({ "overlap_policy": "queue_next" })).await;
    for n in 0..10 {
        runs::queue(&store, &task, &format!("r{n}")).await.unwrap();
        if n % 5 == 0 {
            let claimed = store.claim(runs::claim(1)).await.unwrap();
            runs::finish(&store, claimed).await;
        }
    }
    let before = store.events(Subject::All, 0, 1000).await.unwrap();
    server.kill();
    server.begin().unwrap();
    let again = MongoStore::connect(options).await.unwrap();
    assert_eq!(again.events(Subject::All, 0, 1000).await.unwrap(), before);
    assert_eq!(again.check(false).await.unwrap(), Vec::<String>::new());
    assert_eq!(again.claim(runs::claim(1)).await.unwrap().len(), 1, "who waited still does");
}
