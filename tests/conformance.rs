//! Every promise of the port, by every store: a visible test for each pair. Beside them, what a caller sees of
//! a store that fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::clock::ManualClock;
use tenure::model::Timestamp;
use tenure::store::conformance::{Case, Fixture, Reopen, cases};
use tenure::store::faulty::{Fault, Faulty, Method, Retrying};
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Store, Synchronous};

#[path = "conformance/faults.rs"]
mod faults;
#[cfg(feature = "mongodb")]
#[path = "support/mongodb.rs"]
mod mongo;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;
#[path = "support/servers.rs"]
mod servers;

#[cfg(feature = "mongodb")]
use servers::mongodb as mongodb_server;
use servers::redis as redis_server;

/// A store under test: its name, and how to get an empty one.
type Named = (&'static str, fn() -> Fixture);

/// The stores under test, one line each.
const STORES: &[Named] = &[
    ("memory", memory),
    ("faulty-memory", || with(memory(), |store| Arc::new(each_method_fails_first(store)))),
    ("seeded-memory", || with(memory(), |store| Arc::new(Faulty::seeded(store, SEED, 300)))),
    ("sqlite", sqlite),
    ("faulty-sqlite", || with(sqlite(), |store| Arc::new(each_method_fails_first(store)))),
    ("seeded-sqlite", || with(sqlite(), |store| Arc::new(Faulty::seeded(store, SEED, 300)))),
    #[cfg(feature = "postgres")]
    ("postgres", || postgres::fixture(START)),
    #[cfg(feature = "postgres")]
    ("faulty-postgres", || with(postgres::fixture(START), |store| Arc::new(each_method_fails_first(store)))),
    #[cfg(feature = "postgres")]
    ("seeded-postgres", || {
        with(postgres::fixture(START), |store| Arc::new(Faulty::seeded(store, SEED, 300)))
    }),
    #[cfg(feature = "redis")]
    ("redis", || redis::fixture(START)),
    #[cfg(feature = "redis")]
    ("faulty-redis", || with(redis::fixture(START), |store| Arc::new(each_method_fails_first(store)))),
    #[cfg(feature = "redis")]
    ("seeded-redis", || with(redis::fixture(START), |store| Arc::new(Faulty::seeded(store, SEED, 300)))),
    #[cfg(feature = "mongodb")]
    ("mongodb", || mongo::fixture(START)),
    #[cfg(feature = "mongodb")]
    ("faulty-mongodb", || with(mongo::fixture(START), |store| Arc::new(each_method_fails_first(store)))),
    #[cfg(feature = "mongodb")]
    ("seeded-mongodb", || with(mongo::fixture(START), |store| Arc::new(Faulty::seeded(store, SEED, 300)))),
];

/// 2026-01-31T09:00:00.123Z
const START: Timestamp = Timestamp::from_ms(1_769_850_000_123);

const SEED: u64 = 20_260_131;

fn memory() -> Fixture {
    let clock = Arc::new(ManualClock::at(START));
    Fixture { store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)), clock, reopen: None, keep: None }
}

fn sqlite() -> Fixture {
    let clock = Arc::new(ManualClock::at(START));
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let options = SqliteOptions {
        poll: Duration::from_millis(5),
        // The disk is not what is tested; tests/sqlite_store.rs does that.
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(folder.path().join("tenure.db"), Arc::clone(&clock) as _)
    };
    let open = move || Arc::new(SqliteStore::open(options.clone()).expect("a store")) as Arc<dyn Store>;
    let store = open();
    let reopen: Reopen = Arc::new(move || Box::pin(std::future::ready(open())));
    Fixture { store, clock, reopen: Some(reopen), keep: Some(folder) }
}

/// The same store behind one that fails, and a caller that tries again.
fn with(fixture: Fixture, fail: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Fixture {
    let store = Arc::new(Retrying::new(fail(Arc::clone(&fixture.store))));
    Fixture { store, ..fixture }
}

/// The first call of each method happens and its answer is lost, the second is refused. What was removed by a
/// prune without an answer cannot be asked for again, so that this is refused at first.
fn each_method_fails_first(store: Arc<dyn Store>) -> Faulty {
    let faulty = Faulty::new(store);
    for method in Method::ALL {
        let first = if method == Method::Prune { Fault::Refuse } else { Fault::LoseAnswer };
        faulty.script(method, [Some(first), Some(Fault::Refuse)]);
    }
    faulty
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert_with(servers::enough_tests_at_once);
    let cases = cases();
    let pairs = STORES.iter().flat_map(|store| {
        let there = !is_wanted(&arguments, store.0) || is_there(store.0);
        cases.iter().map(move |case| if there { pair(store, *case) } else { without(store.0, *case) })
    });
    let trials: Vec<Trial> = pairs.chain(faults::trials()).collect();
    // Nobody is told that what was not asked for was tested.
    let asked = STORES.iter().map(|(store, _)| {
        let asked = |case: &&Case| is_asked(&arguments, &format!("{store}::{}", case.name));
        (cases.iter().filter(asked).count(), is_wanted(&arguments, store) && !is_there(store))
    });
    let asked: Vec<(usize, bool)> = asked.filter(|(count, _)| *count > 0).collect();
    let others = faults::trials().iter().filter(|trial| is_asked(&arguments, trial.name())).count();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let (count, stores) = (asked.iter().map(|(count, _)| *count).max().unwrap_or(0), asked.len());
        let all: usize = asked.iter().map(|(count, _)| *count).sum();
        let skipped: usize = asked.iter().filter(|(_, missing)| *missing).map(|(count, _)| *count).sum();
        let line =
            format!("{count} cases x {stores} stores = {all} tests, skipped {skipped}, {others} of faults\n");
        // Where nobody reads it, the tests still ran.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    conclusion.exit_code()
}

/// The server that a store needs.
fn server_of(store: &str) -> Option<&'static str> {
    ["postgres", "redis", "mongodb"].into_iter().find(|server| store.ends_with(server))
}

/// Where a server is, started if need be; or why there is none.
fn found(server: &str) -> &'static servers::Found {
    match server {
        "redis" => redis_server::redis(),
        "mongodb" => servers::mongodb::mongodb(),
        _ => servers::postgres(),
    }
}

/// Whether tests of this store are asked for: else no server is started for them.
fn is_wanted(arguments: &Arguments, store: &str) -> bool {
    let names = format!("{store}::");
    let meets = |filter: &String| {
        filter.starts_with(&names) || names.contains(filter.as_str()) || !filter.contains("::")
    };
    !arguments.list && arguments.filter.as_ref().is_none_or(meets)
}

/// Whether a test is asked for, as the harness sees it.
fn is_asked(arguments: &Arguments, name: &str) -> bool {
    let meets = |filter: &String| if arguments.exact { name == filter } else { name.contains(filter) };
    arguments.filter.as_ref().is_none_or(meets)
}

/// Whether the server that a store needs runs.
fn is_there(store: &str) -> bool {
    server_of(store).is_none_or(|server| found(server).is_ok())
}

/// A case that cannot be run for want of a server: counted as ignored; as failed if the server is required.
fn without(store: &'static str, case: Case) -> Trial {
    let server = server_of(store).unwrap_or_default();
    let why = found(server).as_ref().err().cloned().unwrap_or_default();
    let trial = Trial::test(format!("{store}::{}", case.name), move || {
        Err(Failed::from(format!("TENURE_TEST_REQUIRE names {server}, and there is none: {why}")))
    });
    trial.with_kind("no server").with_ignored_flag(!servers::is_required(server))
}

fn pair((name, fixture): &'static Named, case: Case) -> Trial {
    trial(format!("{name}::{}", case.name), move || (case.run)(fixture()))
}

fn trial<F: Future<Output = ()>>(name: String, run: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| Failed::from(error.to_string()))?.block_on(async { run().await });
        Ok(())
    })
}
