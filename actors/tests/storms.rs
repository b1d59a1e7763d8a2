//! Seeded storms: random scripts against a whole application, and the invariants that hold whatever they do.
//!
//! Most run on a current-thread runtime with a paused clock, so that a seed repeats the whole run; the last
//! ones run on four workers, with real races. A failure names its seed; `TENURE_SEED=<seed>` in the
//! environment makes the test of that failure run this one script alone.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

use std::time::Duration;

use crate::script::{Leaning, Script, Timing};

#[path = "storms/dice.rs"]
mod dice;

#[path = "storms/script.rs"]
mod script;

#[path = "storms/world.rs"]
mod world;

#[path = "storms/workers.rs"]
mod workers;

#[path = "storms/driver.rs"]
mod driver;

#[path = "storms/verdict.rs"]
mod verdict;

#[path = "storms/chronicle.rs"]
mod chronicle;

/// Far beyond every bound of a script, on the paused clock: who waits for it hangs.
const VIRTUAL_END: Duration = Duration::from_secs(3_600);

/// For real time, on a machine that is busy with other things.
const WATCHDOG: Duration = Duration::from_secs(120);

fn on_a_paused_clock(test: &str, scripts: u64, leaning: Leaning) {
    for seed in dice::seeds(test, scripts) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        judge(&runtime, test, Script::write(seed, Timing::Virtual, leaning), VIRTUAL_END);
    }
}

fn with_real_races(test: &str, scripts: u64, leaning: Leaning) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .expect("a runtime");
    for seed in dice::seeds(test, scripts) {
        judge(&runtime, test, Script::write(seed, Timing::Real, leaning), WATCHDOG);
    }
}

fn judge(runtime: &tokio::runtime::Runtime, test: &str, script: Script, end: Duration) {
    let seed = script.seed;
    let played = runtime.block_on(async { tokio::time::timeout(end, driver::play(&script)).await });
    let faults = played.unwrap_or_else(|_| vec!["it hangs".to_owned()]);
    assert!(
        faults.is_empty(),
        "{test}: seed {seed}\n{}\n\n{script:#?}\n\nrepeat it with TENURE_SEED={seed}",
        faults.join("\n")
    );
}

#[test]
fn invariants_hold_when_processes_come_and_go() {
    on_a_paused_clock("invariants_hold_when_processes_come_and_go", 3_000, Leaning::Processes);
}

#[test]
fn invariants_hold_when_generations_are_closed_and_replaced() {
    on_a_paused_clock(
        "invariants_hold_when_generations_are_closed_and_replaced",
        3_000,
        Leaning::Generations,
    );
}

#[test]
fn invariants_hold_when_operations_are_reserved_and_released() {
    on_a_paused_clock(
        "invariants_hold_when_operations_are_reserved_and_released",
        2_000,
        Leaning::Operations,
    );
}

#[test]
fn invariants_hold_when_parts_of_the_kernel_fail() {
    on_a_paused_clock("invariants_hold_when_parts_of_the_kernel_fail", 1_000, Leaning::Failures);
}

#[test]
fn invariants_hold_when_processes_race_on_four_workers() {
    with_real_races("invariants_hold_when_processes_race_on_four_workers", 500, Leaning::Processes);
}

#[test]
fn invariants_hold_when_generations_race_on_four_workers() {
    with_real_races("invariants_hold_when_generations_race_on_four_workers", 500, Leaning::Generations);
}
