//! What only a store on a PostgreSQL server has to keep: its schema, its sessions, its clock, its order among
//! instances. What it has in common with other stores is in `conformance.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

#[cfg(feature = "postgres")]
#[path = "postgres_store/cases.rs"]
mod cases;
#[cfg(feature = "postgres")]
#[path = "postgres_store/memory.rs"]
mod memory;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/servers.rs"]
mod servers;
#[cfg(feature = "postgres")]
#[path = "support/tls.rs"]
mod tls;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = if arguments.list { trials(true) } else { trials(servers::postgres().is_ok()) };
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[cfg(feature = "postgres")]
fn trials(there: bool) -> Vec<Trial> {
    let trial = |(name, run): &cases::Case| {
        let run = *run;
        if there {
            return Trial::test(*name, move || {
                postgres::wait(run());
                Ok(())
            });
        }
        let missing = || Err(Failed::from("TENURE_TEST_REQUIRE names postgres, and there is none"));
        let trial = Trial::test(*name, missing).with_kind("no server");
        trial.with_ignored_flag(!servers::is_required("postgres"))
    };
    cases::CASES.iter().map(trial).collect()
}

#[cfg(not(feature = "postgres"))]
fn trials(_: bool) -> Vec<Trial> {
    vec![Trial::test("the_store_is_compiled_in", || Err(Failed::from("no feature"))).with_ignored_flag(true)]
}
