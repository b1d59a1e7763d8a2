//! The gate between two real threads: one commits as fast as it can, the other closes.
//!
//! loom covers every schedule of a few steps; this covers what loom leaves out: the machine's own memory,
//! tokio's own `Notify`, and thousands of closes. Built with `--cfg tenure_toy_gate` it must fail.

use std::hint;
use std::iter;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use futures_util::FutureExt;
use tokio::runtime;

use super::Gate;

const SEED: u64 = 0x7465_6e75_7265;
const ROUNDS: u64 = 5_000;

#[test]
fn no_effect_is_in_progress_or_begins_after_close_returned() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let mut random = random(SEED);
    for round in 0..ROUNDS {
        let [head_start, length] = [1 << 9, 1 << 4].map(|below| random.next().unwrap() % below);
        let storm = Storm::default();
        let at_close = thread::scope(|scope| {
            scope.spawn(|| storm.commit_until_refused(length));
            storm.close(&runtime, head_start)
        });
        let place = format!("seed {SEED:#x}, round {round}");
        assert_eq!(storm.late.load(Ordering::Relaxed), 0, "effects ended after close had returned, {place}");
        assert!(!at_close.in_progress, "an effect was in progress after close had returned, {place}");
        let ran = storm.ran.load(Ordering::Relaxed);
        assert_eq!(at_close.ran, ran, "an effect ran after close had returned, {place}");
        // Those that begin are counted until the gate closes: one that is not counted was let in by a closed gate.
        assert_eq!(
            at_close.begun, ran,
            "an effect that was not counted began after close had returned, {place}"
        );
    }
}

struct Storm {
    gate: Gate,
    start: Barrier,
    in_progress: AtomicBool,
    ran: AtomicU64,
    closed: AtomicBool,
    /// Effects that ended after close had returned.
    late: AtomicU64,
}

/// What the closer saw when close had returned.
struct AtClose {
    in_progress: bool,
    ran: u64,
    begun: u64,
}

impl Default for Storm {
    fn default() -> Self {
        Self {
            gate: Gate::new(),
            start: Barrier::new(2),
            in_progress: AtomicBool::new(false),
            ran: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            late: AtomicU64::new(0),
        }
    }
}

impl Storm {
    fn commit_until_refused(&self, length: u64) {
        self.start.wait();
        while let Ok(_pass) = self.gate.enter() {
            // Relaxed throughout: it is for the gate to order the effect before the return of close.
            self.in_progress.store(true, Ordering::Relaxed);
            spin(length);
            self.ran.fetch_add(1, Ordering::Relaxed);
            self.in_progress.store(false, Ordering::Relaxed);
            self.late.fetch_add(u64::from(self.closed.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    fn close(&self, runtime: &runtime::Runtime, head_start: u64) -> AtClose {
        self.start.wait();
        spin(head_start);
        self.gate.close();
        // Asked once first: entering the runtime takes longer than an effect, and would hide a close that
        // does not wait.
        if self.gate.drained().now_or_never().is_none() {
            runtime.block_on(self.gate.drained());
        }
        let at_close = AtClose {
            in_progress: self.in_progress.load(Ordering::Relaxed),
            ran: self.ran.load(Ordering::Relaxed),
            begun: self.gate.begun(),
        };
        self.closed.store(true, Ordering::Relaxed);
        at_close
    }
}

fn spin(turns: u64) {
    (0..turns).for_each(|_| hint::spin_loop());
}

/// Splitmix64.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
