use std::array;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;

use super::*;

#[test]
fn a_closed_gate_refuses_and_counts_nothing() {
    let gate = Gate::new();
    drop(gate.enter().unwrap());
    gate.close();
    assert_eq!(gate.enter().unwrap_err(), Closed);
    assert_eq!(fields(&gate), Fields { begun: 1, in_flight: 0, closed: true });
}

#[test]
fn close_is_idempotent_and_those_inside_stay_counted() {
    let gate = Gate::new();
    let passes: [Pass<'_>; 2] = array::from_fn(|_| gate.enter().unwrap());
    assert_eq!(fields(&gate), Fields { begun: 2, in_flight: 2, closed: false });
    for _ in 0..2 {
        gate.close();
        assert_eq!(fields(&gate), Fields { begun: 2, in_flight: 2, closed: true });
    }
    drop(passes);
    gate.close();
    assert_eq!(fields(&gate), Fields { begun: 2, in_flight: 0, closed: true });
}

#[test]
fn an_open_gate_is_not_drained() {
    let gate = Gate::new();
    assert!(!gate.is_drained());
    assert_eq!(gate.drained().now_or_never(), None);
}

#[test]
fn the_refused_are_not_counted() {
    let gate = Gate::new();
    let passes: [Pass<'_>; 2] = array::from_fn(|_| gate.enter().unwrap());
    gate.close();
    let still_inside = Fields { begun: 2, in_flight: 2, closed: true };
    for _ in 0..1_000 {
        assert_eq!(gate.enter().unwrap_err(), Closed);
    }
    assert_eq!(fields(&gate), still_inside);
    // As if more had been refused than ever will be.
    gate.entered.store(u64::MAX << COUNT_SHIFT | CLOSED, Ordering::Relaxed);
    assert_eq!(gate.enter().unwrap_err(), Closed);
    assert_eq!(gate.enter().unwrap_err(), Closed);
    assert_eq!(fields(&gate), still_inside);
    drop(passes);
    assert_eq!(fields(&gate), Fields { begun: 2, in_flight: 0, closed: true });
}

#[test]
fn the_last_one_out_wakes_every_waiter() {
    let gate = Gate::new();
    let passes: [Pass<'_>; 2] = array::from_fn(|_| gate.enter().unwrap());
    gate.close();
    let mut waiters = array::from_fn::<_, 2, _>(|_| Box::pin(gate.drained()));
    let wakes = array::from_fn::<_, 2, _>(|_| Arc::new(Wakes::default()));
    let mut poll = || array::from_fn::<_, 2, _>(|n| wakes[n].poll(&mut waiters[n]));
    let woken = || array::from_fn::<_, 2, _>(|n| wakes[n].count());

    assert_eq!(poll(), [false, false]);
    let [first, last] = passes;
    drop(first);
    assert_eq!(woken(), [0, 0], "one effect is still in flight");
    drop(last);
    assert_eq!(woken(), [1, 1]);
    assert_eq!(poll(), [true, true]);
}

#[test]
fn dropping_a_waiter_loses_nothing_for_the_next() {
    let gate = Gate::new();
    let pass = gate.enter().unwrap();
    gate.close();
    let wakes = Arc::new(Wakes::default());

    // Dropped once before and once after it was woken.
    assert!(!wakes.poll(&mut pin!(gate.drained())));
    let mut woken = Box::pin(gate.drained());
    assert!(!wakes.poll(&mut woken));
    drop(pass);
    assert_eq!(wakes.count(), 1);
    drop(woken);

    assert!(wakes.poll(&mut pin!(gate.drained())));
}

#[derive(Debug, PartialEq, Eq)]
struct Fields {
    begun: u64,
    in_flight: u64,
    closed: bool,
}

fn fields(gate: &Gate) -> Fields {
    let left = gate.left.load(Ordering::Acquire) >> COUNT_SHIFT;
    let closed = gate.entered.load(Ordering::Acquire) & CLOSED != 0;
    Fields { begun: gate.begun(), in_flight: gate.begun() - left, closed }
}

/// Counts how often a waiter was woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wakes {
    /// Whether the future is done.
    fn poll(self: &Arc<Self>, future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        future.poll_unpin(&mut Context::from_waker(&Waker::from(self.clone()))).is_ready()
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
