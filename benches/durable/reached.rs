//! Stores on private servers that are set up as servers are: an answer of PostgreSQL means that the write is on the
//! disk, Redis brings its file there every second.

use std::sync::{Arc, OnceLock};

use tenure::store::{PostgresOptions, PostgresStore, RedisOptions, RedisStore, Store};
use tokio_postgres::NoTls;

use crate::servers;

/// Everything else is as the server is installed.
const POSTGRES: [&str; 4] = ["synchronous_commit=on", "fsync=on", "shared_buffers=512MB", "max_wal_size=4GB"];
const REDIS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

const SCHEMA: &str = "bench";

/// Where the server is; none if the machine has none.
pub(crate) fn postgres() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    FOUND.get_or_init(|| there("postgres", servers::start_postgres(&POSTGRES))).as_deref()
}

/// Where the server is; none if the machine has none.
pub(crate) fn redis() -> Option<&'static str> {
    static FOUND: OnceLock<Option<(String, servers::redis::Server)>> = OnceLock::new();
    let start = || {
        let server = there("redis", servers::redis::Server::start(&REDIS))?;
        Some((server.url(), server))
    };
    FOUND.get_or_init(start).as_ref().map(|(url, _)| url.as_str())
}

fn there<T>(name: &str, started: Result<T, String>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(why) => {
            assert!(!servers::is_required(name), "TENURE_TEST_REQUIRE names {name}: {why}");
            println!("- not measured: {name}: {why}");
            None
        }
    }
}

/// A session beside those of a store.
pub(crate) async fn client() -> tokio_postgres::Client {
    let url = postgres().expect("a server");
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a session");
    tokio::spawn(connection);
    client
}

/// A connection beside those of a store.
pub(crate) async fn connection() -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis().expect("a server")).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

/// Nothing of an earlier sample is left, nor to be written.
pub(crate) async fn empty_postgres() {
    let sql = format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CHECKPOINT");
    client().await.batch_execute(&sql).await.expect("an empty database");
}

/// What autovacuum does about once a minute.
pub(crate) async fn vacuum_postgres() {
    client().await.batch_execute("VACUUM").await.expect("a vacuum");
}

/// Nothing of an earlier sample is left.
pub(crate) async fn empty_redis() {
    redis::cmd("FLUSHALL").exec_async(&mut connection().await).await.expect("an empty server");
}

pub(crate) async fn postgres_store() -> Arc<dyn Store> {
    let mut options = PostgresOptions::parse(postgres().expect("a server")).expect("an address");
    options.schema = SCHEMA.to_owned();
    Arc::new(PostgresStore::connect(options).await.expect("a store"))
}

pub(crate) async fn redis_store() -> Arc<dyn Store> {
    let options = RedisOptions::new(redis().expect("a server"));
    Arc::new(RedisStore::open(options).await.expect("a store"))
}

/// The bytes that the server has given to what it keeps.
pub(crate) async fn redis_memory() -> f64 {
    let mut ask = redis::cmd("INFO");
    let said: String = ask.arg("memory").query_async(&mut connection().await).await.expect("its word");
    let line = said.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a number");
    line.trim().parse().expect("a number")
}
