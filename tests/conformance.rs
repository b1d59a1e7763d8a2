//! Every promise of the port, by every store: a visible test for each pair.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::clock::ManualClock;
use tenure::model::Timestamp;
use tenure::store::conformance::{Case, Fixture, Reopen, cases};
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Store, Synchronous};

/// A store under test: its name, and how to get an empty one. One line each.
const STORES: &[(&str, fn() -> Fixture)] = &[("memory", memory), ("sqlite", sqlite)];

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

/// 2026-01-31T09:00:00.123Z
const START: Timestamp = Timestamp::from_ms(1_769_850_000_123);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let cases = cases();
    let pairs = STORES.iter().flat_map(|store| cases.iter().map(move |case| trial(store, *case)));
    let trials: Vec<Trial> = pairs.collect();
    let (stores, count, all) = (STORES.len(), cases.len(), trials.len());
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let line = format!("{count} cases x {stores} stores = {all} tests\n");
        // Where nobody reads it, the tests still ran.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    conclusion.exit_code()
}

fn trial((name, fixture): &'static (&'static str, fn() -> Fixture), case: Case) -> Trial {
    Trial::test(format!("{name}::{}", case.name), move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| Failed::from(error.to_string()))?.block_on((case.run)(fixture()));
        Ok(())
    })
}
