//! What holds when OS processes are killed, paused and set against each other on one store: a file, or a server.
//!
//! This binary is both sides: run by cargo it is the stage, which starts workers, decides when each of them
//! dies, and judges; run by itself with [`wire::WORKER`] in the environment it is such a worker. An effect
//! outside of the store is a write to a sink on the stage, which refuses who shows an older fence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "kills/ending.rs"]
mod ending;
#[path = "kills/overlap.rs"]
mod overlap;
#[path = "kills/owned.rs"]
mod owned;
#[path = "kills/pausing.rs"]
mod pausing;
#[path = "kills/sharing.rs"]
mod sharing;
#[path = "kills/skewed.rs"]
mod skewed;
#[path = "kills/stepped.rs"]
mod stepped;
#[path = "kills/windows.rs"]
mod windows;

#[path = "support/servers.rs"]
mod servers;
#[path = "support/workers.rs"]
mod workers;

use std::process::ExitCode;

use workers::ground::{GROUNDS, Ground};
use workers::{Test, dice, gate, ground, proxy, sink, stage, tests, wire};

const TESTS: &[Test] = tests! {
    windows: task_t45_a_kill_in_any_window_loses_nothing_and_completes_nothing_twice;
    owned:
        own_s5_1_an_owner_killed_in_any_call_is_gone_and_its_task_is_done_once,
        own_l09_an_owner_paused_past_lease_and_grace_is_fenced_or_given_its_task_back;
    sharing:
        field_k11_four_os_processes_start_a_thousand_runs_a_thousand_times,
        field_s06_two_schedulers_fire_each_occurrence_once,
        field_k09_a_hundred_requests_with_ten_keys_from_two_os_processes_make_ten_runs,
        field_c02_a_cancel_crosses_os_processes_within_the_poll_bound,
        field_c09_a_quick_restart_after_a_kill_keeps_to_the_limit_of_a_key;
    overlap:
        task_t20_of_simultaneous_triggers_one_runs_and_one_is_skipped,
        task_t21_of_simultaneous_triggers_each_runs_after_the_other,
        task_t21_of_simultaneous_occurrences_at_most_one_waits,
        task_t22_of_simultaneous_triggers_the_last_one_runs_to_its_end,
        task_t23_simultaneous_triggers_run_side_by_side;
    pausing:
        own_l09_a_worker_paused_past_its_lease_writes_nothing_when_it_wakes,
        own_l10_a_worker_paused_while_nobody_looked_goes_on,
        own_s2_3_a_result_of_a_lost_run_that_nobody_took_is_reinstated;
    ending:
        task_t44_a_drain_interrupts_and_queues_again_and_spends_no_retry;
};

/// Those that depend on time, on a server whose clock is an hour behind one instance and an hour ahead of another:
/// nothing changes (L6, G16).
const SKEWED: &[Test] = tests! {
    owned: own_l09_an_owner_paused_past_lease_and_grace_is_fenced_or_given_its_task_back;
    pausing:
        own_l09_a_worker_paused_past_its_lease_writes_nothing_when_it_wakes,
        own_l10_a_worker_paused_while_nobody_looked_goes_on,
        own_s2_3_a_result_of_a_lost_run_that_nobody_took_is_reinstated;
    skewed:
        own_l06_instances_whose_clocks_are_two_hours_apart_share_the_work_as_others_do,
        own_l06_a_killed_instance_is_taken_over_when_its_lease_is_over_by_nobodys_clock;
};

/// On any store, a file among them, whose clock is that of its machine.
const STEPPED: &[Test] = tests! {
    stepped: own_l07_hosts_whose_clocks_step_by_a_day_and_back_by_two_keep_what_they_hold;
};

fn main() -> ExitCode {
    let skewed = GROUNDS.iter().filter_map(Ground::skewed).collect();
    let stepped = GROUNDS.iter().filter_map(Ground::stepped).collect();
    workers::main(&[(GROUNDS.to_vec(), TESTS), (skewed, SKEWED), (stepped, STEPPED)], Vec::new())
}
