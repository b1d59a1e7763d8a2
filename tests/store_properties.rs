//! Random commands against stores: after each, the invariants hold; in the end, everything comes to its end;
//! and every store answers as the memory store does.
//!
//! A failure prints its seed; `TENURE_TEST_SEED=number` runs it again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use proptest::collection::vec;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tenure::clock::ManualClock;
use tenure::model::{InstanceId, Timestamp};
use tenure::store::conformance::{Fixture, Reopen};
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Store, Synchronous};

#[path = "store_properties/command.rs"]
mod command;
#[path = "store_properties/invariants.rs"]
mod invariants;
#[path = "support/kit.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod kit;
#[cfg(feature = "mongodb")]
#[path = "support/mongodb.rs"]
mod mongo;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;
#[path = "store_properties/relay.rs"]
mod relay;
#[path = "support/servers.rs"]
mod servers;
#[path = "store_properties/world.rs"]
mod world;

#[cfg(feature = "mongodb")]
use servers::mongodb as mongodb_server;
use servers::redis as redis_server;
use world::World;

use crate::kit::as_many;

/// A store under test: its name, how many sequences, and how to get an empty one.
type Named = (&'static str, Sequences, fn() -> Fixture);

/// How many sequences there are at length, and in a build for tests.
type Sequences = (usize, usize);

const SEQUENCES: Sequences = (320, 24);
/// Of a server there are fewer: each command crosses to it and back.
#[cfg(any(feature = "postgres", feature = "redis", feature = "mongodb"))]
const FEW: Sequences = (40, 6);

/// The stores under test, one line each.
const STORES: &[Named] = &[
    ("memory", SEQUENCES, memory),
    ("sqlite", SEQUENCES, sqlite),
    #[cfg(feature = "postgres")]
    ("postgres", FEW, || postgres::fixture(NOW)),
    #[cfg(feature = "redis")]
    ("redis", FEW, || redis::fixture(NOW)),
    #[cfg(feature = "mongodb")]
    ("mongodb", FEW, || mongo::fixture(NOW)),
];

const NOW: Timestamp = Timestamp::from_ms(1_769_850_000_123);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert_with(servers::enough_tests_at_once);
    let asked = |store: &str| {
        !arguments.list && arguments.filter.as_ref().is_none_or(|f| f.contains(store) || !f.contains("::"))
    };
    let trials = STORES.iter().flat_map(|store| {
        let missing = asked(store.0)
            && match store.0 {
                "postgres" => servers::postgres().is_err(),
                "redis" => redis_server::redis().is_err(),
                "mongodb" => servers::mongodb::mongodb().is_err(),
                _ => false,
            };
        let ways = [Way::Alone, Way::Beside, Way::Shared];
        ways.into_iter().filter(|way| way.fits(store.0)).map(move |way| trial(store, way, missing))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// What a store is looked at beside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    /// The memory store lives through the same.
    Beside,
    /// The same, while two have it open and take turns.
    Shared,
}

impl Way {
    /// What is in the memory of one process is opened by nobody else.
    fn fits(self, store: &str) -> bool {
        self != Self::Shared || store != "memory"
    }

    fn promise(self) -> &'static str {
        match self {
            Self::Alone => "keeps_the_invariants_whatever_happens",
            Self::Beside => "answers_as_the_memory_store_does",
            Self::Shared => "answers_as_the_memory_store_does_to_two_who_share_it",
        }
    }

    /// Both that look at the memory store share what is compared with it.
    fn part_of(self, sequences: usize) -> usize {
        if self == Self::Alone { sequences } else { sequences.div_ceil(2) }
    }

    async fn stores(self, fixture: Fixture) -> Vec<Fixture> {
        match self {
            Self::Alone => vec![fixture],
            Self::Beside => vec![memory(), fixture],
            Self::Shared => vec![memory(), relay::relayed(fixture).await],
        }
    }
}

fn trial((name, sequences, fixture): &'static Named, way: Way, missing: bool) -> Trial {
    let trial = Trial::test(format!("{name}::{}", way.promise()), move || {
        if missing {
            return Err(Failed::from(format!("TENURE_TEST_REQUIRE names {name}, and there is none")));
        }
        explore(name, way.part_of(as_many(sequences.0, sequences.1)), way, *fixture);
        Ok(())
    });
    if missing {
        return trial.with_kind("no server").with_ignored_flag(!servers::is_required(name));
    }
    trial
}

fn memory() -> Fixture {
    let clock = Arc::new(ManualClock::at(NOW));
    Fixture { store: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)), clock, reopen: None, keep: None }
}

fn sqlite() -> Fixture {
    let clock = Arc::new(ManualClock::at(NOW));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SqliteOptions {
        // The disk is not what is tested.
        synchronous: Synchronous::Normal,
        ..SqliteOptions::new(folder.path().join("tenure.db"), Arc::clone(&clock) as _)
    };
    let open = move || Arc::new(SqliteStore::open(options.clone()).expect("a store")) as Arc<dyn Store>;
    let store = open();
    let reopen: Reopen = Arc::new(move || Box::pin(std::future::ready(open())));
    Fixture { store, clock, reopen: Some(reopen), keep: Some(Arc::new(folder)) }
}

const MOST_COMMANDS: usize = 120;

fn explore(store: &str, count: usize, way: Way, fixture: fn() -> Fixture) {
    let seed = match std::env::var("TENURE_TEST_SEED") {
        Ok(text) => text.parse().expect("TENURE_TEST_SEED is a number"),
        Err(_) => InstanceId::generate().bits() as u64,
    };
    // To the handle: what a test prints is swallowed when it passes.
    let line = format!("{store}: {count} sequences, TENURE_TEST_SEED={seed}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
    let config = Config {
        cases: count.try_into().expect("a number of sequences"),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sequences = vec(command::any(), 1..MOST_COMMANDS);
    let outcome = TestRunner::new(config).run(&sequences, |commands| {
        runtime.block_on(async {
            let mut world = World::new(way.stores(fixture()).await).await;
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
