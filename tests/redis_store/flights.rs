//! Calls that are made while others are under way: a second flight follows the first.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure::model::{Run, RunId};
use tenure::store::{ClaimRequest, Decision, RedisOptions, RedisStore, RenewRequest, Store, StoreError};
use tokio::time::timeout;

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[
    ("own_l17_a_large_claim_that_is_asked_again_while_the_server_works_on_it_is_answered", large_claim_again),
    ("field_g10_a_line_that_answers_no_more_is_waited_for_once", waited_for_once),
    ("who_closes_again_waits_as_well_for_what_is_under_way", closed_again),
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
    let decisions = queueing(store, count).await;
    assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
}

async fn queueing(store: &RedisStore, count: usize) -> Vec<Decision> {
    let task = runs::task(store, json!({ "overlap_policy": "allow_parallel" })).await;
    let now = store.now().await.unwrap();
    let names = (0..count).map(|n| RunId::new(format!("r{n}")).unwrap());
    names.map(|name| runs::queued(&task, name, now, Duration::ZERO)).collect()
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

/// What was sent second is given up with what was sent first: nothing is answered before that is, and another
/// connection may be had.
fn waited_for_once() {
    block_on(async {
        let server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let patience = Duration::from_secs(2);
        let options = RedisOptions { response_timeout: patience, ..RedisOptions::new(server.url()) };
        let store = RedisStore::open(options).await.unwrap();
        let decisions = queueing(&store, 100).await;
        hold(&server.url());
        let first = store.renew(renewal());
        let second = async {
            let _first_is_under_way = timeout(patience / 2, std::future::pending::<()>()).await;
            let asked = Instant::now();
            (store.commit(decisions.clone()).await, asked.elapsed())
        };
        let (first, (second, after)) = tokio::join!(first, second);
        assert!(matches!(first, Err(StoreError::Unknown { .. })), "{first:?}");
        assert!(matches!(second, Err(StoreError::Unknown { .. })), "{second:?}");
        assert!(after < patience, "waited for {after:?} besides");
        go_on(&server.url());
        assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok), "made, once");
    });
}

fn closed_again() {
    block_on(async {
        let server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        let decisions = queueing(&store, 3).await;
        hold(&server.url());
        let pending = timeout(MOST, store.commit(decisions));
        let closes = async {
            for round in 0..2 {
                let given_up = timeout(Duration::from_millis(200), store.close()).await;
                assert!(given_up.is_err(), "round {round}: closed with a write under way");
            }
            go_on(&server.url());
            timeout(MOST, store.close()).await.expect("an end").unwrap();
        };
        let (made, ()) = tokio::join!(pending, closes);
        assert!(made.expect("an answer").unwrap().iter().all(Result::is_ok), "before it was closed");
        store.close().await.unwrap();
    });
}
