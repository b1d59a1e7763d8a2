//! Calls that are made while others are under way: a second flight follows the first.

use std::time::Duration;

use serde_json::json;
use tenure::model::{Run, RunId};
use tenure::store::{ClaimRequest, RedisOptions, RedisStore, RenewRequest, Store};
use tokio::time::timeout;

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[
    ("own_l17_a_large_claim_that_is_asked_again_while_the_server_works_on_it_is_answered", large_claim_again),
    ("claims_of_all_there_is_are_answered", claims_of_all),
];

/// Much longer than an answer takes.
const MOST: Duration = Duration::from_secs(10);

/// The server takes no writes until it is told to go on.
fn hold(url: &str) {
    room::ask(url, &["CLIENT", "PAUSE", "60000", "WRITE"]);
}

fn go_on(url: &str) {
    room::ask(url, &["CLIENT", "UNPAUSE"]);
}

fn renewal() -> RenewRequest {
    RenewRequest { instance: runs::claim(1).instance, leases: Vec::new(), lease: Duration::from_secs(30) }
}

async fn queue(store: &RedisStore, count: usize) {
    let task = runs::task(store, json!({ "overlap_policy": "allow_parallel" })).await;
    let now = store.now().await.unwrap();
    let names = (0..count).map(|n| RunId::new(format!("r{n}")).unwrap());
    let decisions = names.map(|name| runs::queued(&task, name, now, Duration::ZERO)).collect();
    assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
}

fn large_claim_again() {
    block_on(async {
        let server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        queue(&store, 300).await;
        let first = runs::claim(200);
        let again = ClaimRequest { repeat: true, ..first.clone() };
        hold(&server.url());
        let given_up = timeout(Duration::from_millis(200), store.claim(first)).await;
        assert!(given_up.is_err(), "the server takes no writes: {given_up:?}");
        let asked = timeout(MOST, store.claim(again));
        let goes_on = async {
            // Another call was made meanwhile, so that the writer has seen what was asked again.
            assert!(timeout(Duration::from_millis(200), store.renew(renewal())).await.is_err());
            go_on(&server.url());
        };
        let (granted, ()) = tokio::join!(asked, goes_on);
        let granted: Vec<Run> = granted.expect("an answer").unwrap();
        assert_eq!(granted.len(), 200, "what was granted before, and no more");
    });
}

fn claims_of_all() {
    block_on(async {
        let (store, _) = room::store().await;
        queue(&store, 3).await;
        let all = || store.claim(runs::claim(usize::MAX));
        let (one, other) = tokio::join!(all(), all());
        assert_eq!([one.unwrap(), other.unwrap()].concat().len(), 3);
    });
}
