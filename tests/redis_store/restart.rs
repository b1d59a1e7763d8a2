//! A server that is killed and comes back on its append-only file: what was answered longer ago than the second of
//! `everysec` is there, and whole.

use std::time::Duration;

use serde_json::json;
use tenure::model::{RunId, Subject};
use tenure::store::{RedisOptions, RedisStore, RefusedKind, Store, StoreError};

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[
    ("own_s7_6_a_server_that_is_gone_is_refused_and_served_when_it_is_back", gone_and_back),
    ("what_is_on_the_disk_outlives_the_server_and_is_whole", outlives),
];

fn gone_and_back() {
    block_on(async {
        let mut server =
            redis_server::Server::start(&["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        runs::queue(&store, &task, "before").await.unwrap();
        server.kill();
        let now = tenure::model::Timestamp::from_ms(0);
        let write = || store.commit(vec![runs::queued(&task, RunId::new("x").unwrap(), now, Duration::ZERO)]);
        // The first may have been sent before the end was seen; the second finds nobody.
        let first = write().await.unwrap_err();
        assert!(first.is_transient(), "{first}");
        let second = write().await.unwrap_err();
        assert!(matches!(second, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{second}");
        let read = store.counts(None).await.unwrap_err();
        assert!(matches!(read, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{read}");
        server.begin().unwrap();
        runs::queue(&store, &task, "after").await.expect("served again");
        let events = store.events(Subject::All, 0, 10).await.unwrap();
        let names: Vec<_> =
            events.iter().filter_map(|event| event.run_id.as_ref()).map(RunId::as_str).collect();
        assert_eq!(names, ["before", "after"], "nothing that was answered is lost, cursors go on");
    });
}

fn outlives() {
    block_on(async {
        let mut server =
            redis_server::Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        let task = runs::task(&store, json!({ "overlap_policy": "queue_next" })).await;
        for n in 0..50 {
            runs::queue(&store, &task, &format!("r{n}")).await.unwrap();
            if n % 5 == 0 {
                let claimed = store.claim(runs::claim(1)).await.unwrap();
                runs::finish(&store, claimed).await;
            }
        }
        // What is known to be on the disk is what must be there.
        assert_eq!(
            room::ask(&server.url(), &["BGREWRITEAOF"]),
            "Background append only file rewriting started"
        );
        while room::info(&server.url(), "aof_rewrite_in_progress") != "0"
            || room::info(&server.url(), "aof_rewrite_scheduled") != "0"
        {
            tokio::task::yield_now().await;
        }
        let before = store.events(Subject::All, 0, 1000).await.unwrap();
        server.kill();
        server.begin().unwrap();
        let again = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        assert_eq!(again.events(Subject::All, 0, 1000).await.unwrap(), before);
        assert_eq!(again.check(false).await.unwrap(), Vec::<String>::new());
        assert_eq!(again.claim(runs::claim(1)).await.unwrap().len(), 1, "who waited still does");
    });
}
