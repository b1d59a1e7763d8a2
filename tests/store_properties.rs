//! Random commands against stores: after each, the invariants hold; in the end, everything comes to its end;
//! and every store answers as the memory store does.
//!
//! A failure prints its seed; `TENURE_TEST_SEED=number` runs it again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::io::Write as _;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tenure::clock::ManualClock;
use tenure::model::{InstanceId, Timestamp};
use tenure::store::conformance::Fixture;
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Synchronous};

#[path = "store_properties/command.rs"]
mod command;
#[path = "store_properties/invariants.rs"]
mod invariants;
#[path = "store_properties/world.rs"]
mod world;

use world::World;

/// The tests of each store.
macro_rules! stores {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn keeps_the_invariants_whatever_happens() {
                super::explore(stringify!($name), || vec![super::$name()]);
            }

            #[test]
            fn answers_as_the_memory_store_does() {
                super::explore(stringify!($name), || vec![super::memory(), super::$name()]);
            }
        }
    )*};
}

// One line for each store, and a function that makes an empty one.
stores! {
    memory,
    sqlite,
}

fn memory() -> Fixture {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_123)));
    Fixture { store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)), clock, reopen: None, keep: None }
}

fn sqlite() -> Fixture {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_123)));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SqliteOptions {
        // The disk is not what is tested.
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(folder.path().join("tenure.db"), Arc::clone(&clock) as _)
    };
    let store = Arc::new(SqliteStore::open(options).expect("a store"));
    Fixture { store, clock, reopen: None, keep: Some(Arc::new(folder)) }
}

const SEQUENCES: u32 = 64;
const MOST_COMMANDS: usize = 120;

fn explore(store: &str, fixtures: fn() -> Vec<Fixture>) {
    let seed = match std::env::var("TENURE_TEST_SEED") {
        Ok(text) => text.parse().expect("TENURE_TEST_SEED is a number"),
        Err(_) => InstanceId::generate().bits() as u64,
    };
    // To the handle: what a test prints is swallowed when it passes.
    let line = format!("{store}: {SEQUENCES} sequences, TENURE_TEST_SEED={seed}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
    let config = Config {
        cases: SEQUENCES,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sequences = vec(command::any(), 1..MOST_COMMANDS);
    let outcome = TestRunner::new(config).run(&sequences, |commands| {
        runtime.block_on(async {
            let mut world = World::new(fixtures()).await;
            for command in commands {
                world.perform(command).await;
                world.holds().await;
            }
            world.comes_to_an_end().await;
        });
        Ok::<(), TestCaseError>(())
    });
    if let Err(failure) = outcome {
        panic!("TENURE_TEST_SEED={seed}: {failure}");
    }
}
