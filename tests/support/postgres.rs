//! Empty PostgreSQL stores: each in a schema of its own, of the one server of this test process.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tenure::clock::{Clock, ManualClock};
use tenure::model::Timestamp;
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{PostgresOptions, PostgresStore, Store};

use super::servers;

/// Schemas that nobody uses any more: emptied and used again, as making one costs more than most cases.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Gives the schema back.
struct Lent(String);

impl Drop for Lent {
    fn drop(&mut self) {
        FREE.lock().push(std::mem::take(&mut self.0));
    }
}

/// An empty store whose clock stands still at an instant.
pub(crate) fn fixture(start: Timestamp) -> Fixture {
    let clock = Arc::new(ManualClock::at(start));
    let (url, lent) = lend();
    let mut options = options(&url, &lent.0);
    options.clock = Some(Arc::clone(&clock) as Arc<dyn Clock>);
    let open = move || {
        let options = options.clone();
        async move { Arc::new(PostgresStore::connect(options).await.expect("a store")) as Arc<dyn Store> }
    };
    let store = wait(open());
    let reopen: Reopen = Arc::new(move || Box::pin(open()));
    Fixture { store, clock, reopen: Some(reopen), keep: Some(Arc::new(lent)) }
}

pub(crate) fn options(url: &str, schema: &str) -> PostgresOptions {
    let mut options = PostgresOptions::parse(url).expect("an address");
    options.schema = schema.to_owned();
    options
}

/// A schema with nothing in it.
fn lend() -> (String, Lent) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let url = servers::postgres().clone().expect("a server");
    let free = FREE.lock().pop();
    let schema = free.unwrap_or_else(|| {
        // Another process may use the same server.
        format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
    });
    wait(empty(url.clone(), schema.clone()));
    (url, Lent(schema))
}

async fn empty(url: String, schema: String) {
    let sql = format!(
        "SET client_min_messages = warning;
         DO $$ DECLARE t text; BEGIN
             FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'
                 AND tablename NOT IN ('meta', 'schema_migrations')
             LOOP EXECUTE format('DELETE FROM {schema}.%I', t); END LOOP;
             IF to_regclass('{schema}.meta') IS NOT NULL THEN
                 UPDATE {schema}.meta SET next_rid = 1, next_cursor = 1, next_tid = 1, next_aid = 1, next_lid = 1,
                     lane_version = 0;
             END IF;
         END $$"
    );
    let client = client(&url).await;
    client.batch_execute(&sql).await.expect("an empty schema");
}

/// A session beside those of the store.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
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
