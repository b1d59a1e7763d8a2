//! OS processes that are hosts on one store, and the stage that starts, holds, pauses and kills them.
//!
//! A test binary that uses it is both sides: run by cargo it is the stage; run by itself with [`wire::WORKER`] in the
//! environment it is a worker.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::pin::Pin;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::servers;
use ground::Ground;

#[path = "workers/dice.rs"]
pub(crate) mod dice;
#[path = "workers/gate.rs"]
pub(crate) mod gate;
#[path = "workers/ground.rs"]
pub(crate) mod ground;
#[path = "workers/proxy.rs"]
pub(crate) mod proxy;
#[path = "workers/sink.rs"]
pub(crate) mod sink;
#[path = "workers/stage.rs"]
pub(crate) mod stage;
#[path = "workers/verdict.rs"]
pub(crate) mod verdict;
#[path = "workers/wire.rs"]
pub(crate) mod wire;
#[path = "workers/worker.rs"]
pub(crate) mod worker;

/// A test by its name, on a kind of store.
pub(crate) type Test = (&'static str, fn(Ground) -> Pin<Box<dyn Future<Output = ()>>>);

/// Lists tests by the names of their functions.
macro_rules! tests {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((stringify!($name), |ground| Box::pin($module::$name(ground)))),+),+]
    };
}
pub(crate) use tests;

/// Tests, and the kinds of stores that each is run on.
pub(crate) type Plan = (Vec<Ground>, &'static [Test]);

/// How many tests go on at once, unless it is said otherwise. Most of the time a test waits: for OS processes that
/// start, for leases that end, for those who are paused.
const AT_ONCE: usize = 6;

/// A worker if it was started as one; else runs every test on every store of its plan, and tells how many there were.
pub(crate) fn main(plans: &[Plan], more: Vec<Trial>) -> ExitCode {
    if let Some(setup) = std::env::var_os(wire::WORKER) {
        return worker::main(&setup.to_string_lossy());
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let (mut trials, mut told) = (more, Vec::new());
    for (grounds, tests) in plans {
        let (mut cases, mut stores, mut all, mut skipped) = (0, 0, 0, 0);
        for ground in grounds {
            let missing = if is_wanted(&arguments, ground) { ground.missing() } else { None };
            // Nobody is told that what was not asked for was tested.
            let asked = tests.iter().filter(|(name, _)| is_asked(&arguments, ground, name)).count();
            (cases, stores, all) = (asked.max(cases), stores + usize::from(asked > 0), all + asked);
            skipped += missing.as_ref().map_or(0, |_| asked);
            trials.extend(tests.iter().map(|test| trial(*ground, *test, missing.clone())));
        }
        if all > 0 {
            told.push(format!("{cases} cases x {stores} stores = {all} tests, skipped {skipped}"));
        }
    }
    let list = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !list {
        told.iter().for_each(|line| dice::say(line));
    }
    conclusion.exit_code()
}

/// Whether tests on it are asked for: else no server is started for them.
fn is_wanted(arguments: &Arguments, ground: &Ground) -> bool {
    let names = format!("{}::", ground.name);
    let meets = |filter: &String| {
        filter.starts_with(&names) || names.contains(filter.as_str()) || !filter.contains("::")
    };
    !arguments.list && arguments.filter.as_ref().is_none_or(meets)
}

/// Whether a test is asked for, as the harness sees it.
fn is_asked(arguments: &Arguments, ground: &Ground, test: &str) -> bool {
    let name = format!("{}::{test}", ground.name);
    let meets = |filter: &String| if arguments.exact { name == *filter } else { name.contains(filter) };
    arguments.filter.as_ref().is_none_or(meets)
}

/// A test on a store. One without its server is counted as ignored; as failed if the server is required.
fn trial(ground: Ground, (name, test): Test, missing: Option<String>) -> Trial {
    let is_there = missing.is_none();
    let trial = Trial::test(format!("{}::{name}", ground.name), move || {
        if let Some(why) = missing {
            return Err(Failed::from(format!("TENURE_TEST_REQUIRE names what {} needs: {why}", ground.name)));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| Failed::from(error.to_string()))?.block_on(test(ground));
        Ok(())
    });
    if is_there {
        return trial;
    }
    let required = ground.needs().iter().any(|need| servers::is_required(need));
    trial.with_kind("no server").with_ignored_flag(!required)
}
