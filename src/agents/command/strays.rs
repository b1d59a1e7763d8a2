//! Processes that left the group of their program, as daemons do: found by the mark that every process of an attempt
//! inherits.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::mark::Mark;

/// How often is looked again for what was started while it was looked.
const ROUNDS: usize = 32;

/// Kills every process that bears this.
pub(super) fn kill(mark: &Mark) {
    // One that was killed may take a moment to be gone: it is no new one.
    let mut killed = HashSet::new();
    for _ in 0..ROUNDS {
        let before = killed.len();
        let new = pids().into_iter().filter(|pid| !killed.contains(pid) && kill_if(*pid, mark));
        let new: Vec<i32> = new.collect();
        killed.extend(new);
        if killed.len() == before {
            return;
        }
    }
    tracing::warn!("processes of a program start others faster than they are killed");
}

fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The process is held before it is looked at, so that no other that came by its number is killed.
fn kill_if(pid: i32, mark: &Mark) -> bool {
    let Some(number) = Pid::from_raw(pid) else { return false };
    if !mark.is_on(pid) {
        return false;
    }
    let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return false };
    mark.is_on(pid) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}
