//! Empty MongoDB stores: each in a database of its own, of a server of this test process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::model::Timestamp;
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{MongoOptions, MongoStore, Store};

use super::mongodb_server::Lease;

/// A database with nothing in it, while a test uses it. Nobody uses it again: to empty one costs more than to make one.
pub(crate) struct Lent {
    server: Lease,
    database: String,
}

impl Lent {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Another process may use the same server.
        let database = format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        Self { server: Lease::take().expect("a server"), database }
    }

    pub(crate) fn options(&self) -> MongoOptions {
        MongoOptions::parse(&self.url()).expect("an address")
    }

    /// The database beside the store.
    pub(crate) async fn beside(&self) -> mongodb::Database {
        mongodb::Client::with_uri_str(self.url()).await.expect("an address").database(&self.database)
    }

    fn url(&self) -> String {
        let (address, query) = self.server.url().split_once('?').unwrap_or((self.server.url(), ""));
        // The server may be slow.
        let patient = "connectTimeoutMS=60000&serverSelectionTimeoutMS=60000";
        let url = format!("{}/{}?{patient}&{query}", address.trim_end_matches('/'), self.database);
        url.trim_end_matches('&').to_owned()
    }
}

/// An empty store whose clock stands still at an instant.
pub(crate) fn fixture(start: Timestamp) -> Fixture {
    let clock = Arc::new(ManualClock::at(start));
    let lent = Lent::new();
    let mut options = lent.options();
    options.patience = Duration::from_secs(120);
    options.clock = Some(Arc::clone(&clock) as Arc<dyn Clock>);
    let open = move || {
        let options = options.clone();
        async move { Arc::new(MongoStore::connect(options).await.expect("a store")) as Arc<dyn Store> }
    };
    let store = wait(open());
    let reopen: Reopen = Arc::new(move || Box::pin(open()));
    Fixture { store, clock, reopen: Some(reopen), keep: Some(Arc::new(lent)) }
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
