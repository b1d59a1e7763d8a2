//! Empty PostgreSQL stores: each in a schema of its own, of the one server of this test process.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure::clock::{Clock, ManualClock};
use tenure::model::Timestamp;
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{PostgresOptions, PostgresStore, Store};

use super::servers;

/// Schemas that nobody uses any more, and how often they were: emptied and used again, as making one costs more than
/// most cases. Not for ever: what was deleted stays in its tables.
static FREE: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
const MOST_USES: u32 = 12;

/// Longer than anything takes.
const PATIENT: Duration = Duration::from_secs(120);

/// Gives the schema back.
pub(crate) struct Lent(pub(crate) String, u32);

impl Drop for Lent {
    fn drop(&mut self) {
        if self.1 < MOST_USES {
            FREE.lock().push((std::mem::take(&mut self.0), self.1));
        }
    }
}

/// An empty store whose clock stands still at an instant.
pub(crate) fn fixture(start: Timestamp) -> Fixture {
    let clock = Arc::new(ManualClock::at(start));
    let (url, lent) = lend();
    let mut options = options(&url, &lent.0);
    // A busy machine may leave a test alone for longer than a server waits for its host. No case waits for either.
    (options.patience, options.most_idle) = (PATIENT, PATIENT);
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
pub(crate) fn lend() -> (String, Lent) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let url = servers::postgres().clone().expect("a server");
    if let Some((schema, uses)) = FREE.lock().pop() {
        wait(empty(url.clone(), schema.clone()));
        return (url, Lent(schema, uses + 1));
    }
    // Another process may use the same server.
    let schema = format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    (url, Lent(schema, 1))
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
