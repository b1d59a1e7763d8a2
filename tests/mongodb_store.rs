//! What only a store on a MongoDB server has to keep: its collections, its transactions, its clock, its order among
//! instances. What it has in common with other stores is in `conformance.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

#[path = "mongodb_store/cases.rs"]
mod cases;
#[path = "mongodb_store/ending.rs"]
mod ending;
#[path = "support/mongodb.rs"]
mod mongo;
#[path = "mongodb_store/refused.rs"]
mod refused;
#[path = "support/runs.rs"]
mod runs;
#[path = "support/servers.rs"]
mod servers;

use servers::mongodb as mongodb_server;

/// A promise, and how to find out.
type Case = (&'static str, fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>);

/// Lists the cases of a file.
macro_rules! list {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$((stringify!($name), || Box::pin($name()))),*];
    };
}
pub(crate) use list;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let there = arguments.list || mongodb_server::mongodb().is_ok();
    let trial = |(name, run): Case| {
        if there {
            return Trial::test(name, move || {
                mongo::wait(run());
                Ok(())
            });
        }
        let missing = || Err(Failed::from("TENURE_TEST_REQUIRE names mongodb, and there is none"));
        let trial = Trial::test(name, missing).with_kind("no server");
        trial.with_ignored_flag(!servers::is_required("mongodb"))
    };
    let all = [cases::CASES, refused::CASES, ending::CASES].concat();
    libtest_mimic::run(&arguments, all.into_iter().map(trial).collect()).exit_code()
}
