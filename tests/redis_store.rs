//! What is particular of the Redis store: its server ends and comes back, is of the wrong kind, or takes no more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "support/tls.rs"]
mod certificates;
#[path = "redis_store/flights.rs"]
mod flights;
#[path = "redis_store/kept.rs"]
mod kept;
#[path = "redis_store/lists.rs"]
mod lists;
#[path = "redis_store/quick.rs"]
mod quick;
#[path = "support/redis.rs"]
mod redis;
#[path = "redis_store/refused.rs"]
mod refused;
#[path = "redis_store/replicas.rs"]
mod replicas;
#[path = "redis_store/restart.rs"]
mod restart;
#[path = "redis_store/room.rs"]
mod room;
#[path = "support/servers.rs"]
mod servers;
#[path = "redis_store/tls.rs"]
mod tls;
#[path = "redis_store/unreadable.rs"]
mod unreadable;

use servers::redis as redis_server;

/// A test: its name, and what it does.
type Named = (&'static str, fn());

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let all = [
        flights::TESTS,
        kept::TESTS,
        lists::TESTS,
        quick::TESTS,
        refused::TESTS,
        replicas::TESTS,
        restart::TESTS,
        room::TESTS,
        tls::TESTS,
        unreadable::TESTS,
    ]
    .concat();
    let missing = !arguments.list && redis_server::redis().is_err();
    let trials = all.into_iter().map(|(name, run): Named| {
        let trial = Trial::test(name, move || {
            if missing {
                return Err(Failed::from("TENURE_TEST_REQUIRE names redis, and there is none"));
            }
            run();
            Ok(())
        });
        if missing {
            return trial.with_kind("no server").with_ignored_flag(!servers::is_required("redis"));
        }
        trial
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Runs a test within a runtime of its own.
fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}
