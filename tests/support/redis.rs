//! Empty Redis stores: each in a namespace of its own, of the one server of this test process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure::clock::{Clock, ManualClock};
use tenure::model::Timestamp;
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{RedisOptions, RedisStore, Store};

use super::redis_server;

/// An empty store whose clock stands still at an instant.
pub(crate) fn fixture(start: Timestamp) -> Fixture {
    let clock = Arc::new(ManualClock::at(start));
    let url = redis_server::redis().clone().expect("a server");
    let clock_of_store = Some(Arc::clone(&clock) as Arc<dyn Clock>);
    let options = RedisOptions { namespace: namespace(), clock: clock_of_store, ..RedisOptions::new(url) };
    let open = move || {
        let options = options.clone();
        async move { Arc::new(RedisStore::open(options).await.expect("a store")) as Arc<dyn Store> }
    };
    let store = wait(open());
    let reopen: Reopen = Arc::new(move || Box::pin(open()));
    Fixture { store, clock, reopen: Some(reopen), keep: None }
}

/// A namespace that nobody has used. Another process may use the same server.
pub(crate) fn namespace() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// Waits on a thread of its own: a fixture is made within a runtime that may not be kept waiting.
pub(crate) fn wait<T: Send>(until: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(until)
        });
        waits.join().expect("an answer")
    })
}
