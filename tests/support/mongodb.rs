//! Empty MongoDB stores: each in a database of its own, of the one server of this test process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use parking_lot::Mutex;
use tenure::clock::{Clock, ManualClock};
use tenure::model::Timestamp;
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{MongoOptions, MongoStore, Store};

use super::mongodb_server;

/// Databases that nobody uses any more: emptied and used again, as making one costs more than most cases.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Gives the database back.
pub(crate) struct Lent(pub(crate) String);

impl Drop for Lent {
    fn drop(&mut self) {
        FREE.lock().push(std::mem::take(&mut self.0));
    }
}

/// An empty store whose clock stands still at an instant.
pub(crate) fn fixture(start: Timestamp) -> Fixture {
    let clock = Arc::new(ManualClock::at(start));
    let lent = lend();
    let mut options = options(&lent.0);
    // The server may be slow, and is shared by all tests of this process.
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

pub(crate) fn options(database: &str) -> MongoOptions {
    MongoOptions::parse(&url(database)).expect("an address")
}

pub(crate) fn url(database: &str) -> String {
    let server = mongodb_server::mongodb().as_ref().expect("a server");
    let (address, query) = server.split_once('?').map_or((server.as_str(), None), |(a, q)| (a, Some(q)));
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}/{database}{query}", address.trim_end_matches('/'))
}

/// A database with nothing in it.
pub(crate) fn lend() -> Lent {
    static LAST: AtomicU32 = AtomicU32::new(0);
    if let Some(database) = FREE.lock().pop() {
        wait(empty(&database));
        return Lent(database);
    }
    // Another process may use the same server.
    Lent(format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed)))
}

async fn empty(database: &str) {
    let db = self::database(database).await;
    for name in db.list_collection_names().await.expect("the collections") {
        db.collection::<Document>(&name).delete_many(doc! {}).await.expect("an empty collection");
    }
}

/// The database beside the store.
pub(crate) async fn database(name: &str) -> mongodb::Database {
    let client = mongodb::Client::with_uri_str(url(name)).await.expect("an address");
    client.database(name)
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
