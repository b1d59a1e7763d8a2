//! A store whose writes are answered when replicas have them.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tenure::model::RunId;
use tenure::store::{RedisOptions, RedisStore, Store as _, StoreError};

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[(
    "own_l19_a_write_that_no_replica_has_is_unknown_also_when_the_server_forgot_the_scripts",
    waits_for_replicas,
)];

fn waits_for_replicas() {
    block_on(async {
        let first = redis_server::Server::start(&["--repl-diskless-sync-delay", "0"]).unwrap();
        let port = first.url().trim_end_matches("/0").rsplit(':').next().unwrap().to_owned();
        let second = redis_server::Server::start(&["--replicaof", "127.0.0.1", &port]).unwrap();
        let pid = room::info(&second.url(), "process_id");
        while !room::info(&first.url(), "slave0").contains("state=online") {}
        let options = RedisOptions {
            replicas: 1,
            response_timeout: Duration::from_secs(2),
            ..RedisOptions::new(first.url())
        };
        let store = RedisStore::open(options).await.unwrap();
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        runs::queue(&store, &task, "both").await.expect("the replica has it");
        let stop = |word: &str| assert!(Command::new("kill").args([word, &pid]).status().unwrap().success());
        // Nobody reads meanwhile, who would bring the scripts as well.
        let now = store.now().await.unwrap();
        let alone = runs::queued(&task, RunId::new("alone").unwrap(), now, Duration::ZERO);
        let has_all = || {
            let offset = format!("offset={},", room::info(&first.url(), "master_repl_offset"));
            room::info(&first.url(), "slave0").contains(&offset)
        };
        while !has_all() {}
        stop("-STOP");
        room::ask(&first.url(), &["SCRIPT", "FLUSH"]);
        let alone = store.commit(vec![alone]).await;
        assert!(matches!(alone, Err(StoreError::Unknown { .. })), "{alone:?}");
        stop("-CONT");
        while room::info(&second.url(), "slave_repl_offset") != room::info(&first.url(), "master_repl_offset")
        {
        }
        runs::queue(&store, &task, "again").await.expect("it has all of it now");
    });
}
