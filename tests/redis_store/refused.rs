//! What is refused, and says why: never with the password.

use serde_json::json;
use tenure::store::{RedisOptions, RedisStore, RefusedKind, Store, StoreError};

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[
    ("a_server_that_is_not_there_is_refused", not_there),
    ("a_password_that_is_wrong_is_refused_and_not_shown", wrong_password),
    ("a_server_that_evicts_keys_is_refused", evicts),
    ("keys_of_a_newer_version_are_refused_by_their_number", newer),
    ("keys_of_a_version_before_the_first_release_are_refused_by_their_number", older),
    ("a_full_server_refuses_writes_and_answers_reads", full),
];

async fn refused(options: RedisOptions) -> (RefusedKind, String) {
    match RedisStore::open(options).await {
        Err(StoreError::Refused { kind, message }) => (kind, message),
        other => panic!("refused was expected: {other:?}"),
    }
}

fn not_there() {
    block_on(async {
        let (kind, message) = refused(RedisOptions::new("redis://:secret@127.0.0.1:1/0")).await;
        assert_eq!(kind, RefusedKind::Unavailable, "{message}");
        assert!(!message.contains("secret") && message.contains("127.0.0.1:1"), "{message}");
    });
}

fn wrong_password() {
    block_on(async {
        let server = redis_server::Server::start(&["--requirepass", "right"]).unwrap();
        for url in [server.url(), server.url().replace("127", ":secret@127")] {
            let (kind, message) = refused(RedisOptions::new(url)).await;
            assert_eq!(kind, RefusedKind::Invalid, "{message}");
            assert!(!message.contains("secret") && message.contains("password"), "{message}");
        }
        let right =
            RedisStore::open(RedisOptions::new(server.url().replace("127", ":right@127"))).await.unwrap();
        assert!(!format!("{right:?}").contains("right"), "{right:?}");
    });
}

fn evicts() {
    block_on(async {
        let server = redis_server::Server::start(&["--maxmemory-policy", "allkeys-lru"]).unwrap();
        let (kind, message) = refused(RedisOptions::new(server.url())).await;
        assert_eq!(kind, RefusedKind::NotSupported);
        assert!(message.contains("noeviction"), "{message}");
    });
}

fn newer() {
    block_on(async {
        let (store, options) = room::store().await;
        store.close().await.unwrap();
        room::ask(&options.url, &["HSET", &format!("{}:meta", room::prefix(&options)), "schema", "7"]);
        let (kind, message) = refused(options).await;
        assert_eq!(kind, RefusedKind::NewerSchema);
        assert!(message.contains("version 7"), "{message}");
    });
}

fn older() {
    block_on(async {
        let (store, options) = room::store().await;
        store.close().await.unwrap();
        room::ask(&options.url, &["HSET", &format!("{}:meta", room::prefix(&options)), "schema", "1"]);
        let (kind, message) = refused(options).await;
        assert_eq!(kind, RefusedKind::NotSupported);
        assert!(message.contains("version 1"), "{message}");
    });
}

fn full() {
    block_on(async {
        let server = redis_server::Server::start(&["--maxmemory-policy", "noeviction"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        let task = runs::task(&store, json!({})).await;
        room::ask(&server.url(), &["CONFIG", "SET", "maxmemory", "1"]);
        let error = runs::queue(&store, &task, "r").await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { kind: RefusedKind::Full, .. }), "{error}");
        assert_eq!(store.counts(None).await.unwrap(), [], "nothing was made");
        room::ask(&server.url(), &["CONFIG", "SET", "maxmemory", "0"]);
        runs::queue(&store, &task, "r").await.expect("there is room again");
    });
}
