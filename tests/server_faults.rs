//! What holds when the server of a store is away, hangs, loses its last writes, or is reached by a bad line; and, of
//! every store that OS processes share, when they are killed and paused at random for a while.
//!
//! This binary is both sides, as that of `tests/kills.rs` is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "server_faults/gone.rs"]
mod gone;
#[path = "server_faults/line.rs"]
mod line;
#[path = "server_faults/outages.rs"]
mod outages;
#[path = "server_faults/set_back.rs"]
mod set_back;
#[path = "server_faults/soak.rs"]
mod soak;

#[path = "support/servers.rs"]
mod servers;
#[path = "support/workers.rs"]
mod workers;

use std::process::ExitCode;

use workers::ground::GROUNDS;
use workers::{Test, dice, gate, ground, proxy, sink, stage, tests, wire};

/// On every store in a server.
const IN_A_SERVER: &[Test] = tests! {
    outages:
        field_g09_runs_outlast_a_server_that_ends_and_comes_back,
        field_g09_runs_outlast_a_server_that_hangs_and_goes_on;
    set_back:
        own_l19_a_server_that_lost_its_last_writes_gives_nobody_authority_back,
        own_l19_what_was_lost_is_not_mixed_up_with_what_came_in_its_place;
    line:
        own_f1_a_line_that_loses_cuts_and_delays_leaves_every_run_done_as_often_as_it_was_granted,
        field_g10_a_line_that_falls_silent_is_given_up_and_another_one_used;
};

/// On every store that OS processes share.
const SHARED: &[Test] = tests! {
    soak: task_t45_hosts_killed_and_paused_at_random_lose_nothing_and_complete_nothing_twice;
};

fn main() -> ExitCode {
    let is_worker = std::env::var_os(wire::WORKER).is_some();
    if !is_worker && std::env::var_os(gone::PANICS).is_some() {
        return gone::panics();
    }
    let in_a_server = GROUNDS.iter().filter(|ground| ground.server.is_some()).copied().collect();
    // What takes longest begins first.
    let plans = [(GROUNDS.to_vec(), SHARED), (in_a_server, IN_A_SERVER)];
    workers::main(&plans, gone::trials())
}
