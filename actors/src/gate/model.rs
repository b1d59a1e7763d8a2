//! The gate in every schedule, by loom.
//!
//! ```text
//! RUSTFLAGS="--cfg tenure_loom" cargo test -p tenure-actors --lib --release --target-dir target/loom gate::
//! ```
//!
//! loom runs each model once for every order of its threads' steps, and for every value that a relaxed read
//! may return in that order; it also wakes waiters for no reason, and fails when all threads wait. An order
//! counts as long as it takes no more than the stated number of preemptions, that is, switches away from a
//! thread that could have gone on:
//!
//! | model                           | threads                              | preemptions |
//! | ------------------------------- | ------------------------------------ | ----------- |
//! | `revoke_against_commit`         | 2 committers, 1 closer               | 6           |
//! | `close_against_start`           | 2 admitters that commit, 1 closer    | 5           |
//! | `two_closers_against_commit`    | 1 committer, 2 closers               | 5           |
//! | `last_one_out_wakes_the_closer` | 2 committers, 1 closer               | any number  |
//! | `refused_entries_leave_no_mark` | 2 that enter twice, 1 closer         | 5           |
//!
//! The effects are relaxed writes and the closer reads them relaxed, so that what it sees of them is the gate's
//! doing alone. The gate is the source that production runs; only tokio's `Notify` is replaced, by a model of its own.
//!
//! Not explored: counts that run over; those of the refused do in a plain test.

use std::array;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::AtomicUsize as Counter;

use loom::future::block_on;
use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::Gate;

#[test]
fn revoke_against_commit() {
    explore(Some(6), || {
        let process = Arc::new(Process::<2>::new());
        let committers = array::from_fn::<_, 2, _>(|n| {
            let process = process.clone();
            thread::spawn(move || process.commit(n))
        });

        let seen = process.close();
        let begun = process.gate.begun();

        let ran = committers.map(|committer| committer.join().unwrap());
        assert_eq!(seen, ran, "{UNSEEN}");
        assert_eq!(begun, count(&ran), "the effects counted must be those that ran");
    });
}

#[test]
fn close_against_start() {
    struct Generation {
        admissions: Gate,
        ledger: Mutex<Vec<Arc<Process<1>>>>,
    }

    impl Generation {
        /// Whether a process was admitted, and whether its effect ran.
        fn start(&self) -> (bool, bool) {
            let Ok(admission) = self.admissions.enter() else { return (false, false) };
            let process = Arc::new(Process::new());
            self.ledger.lock().unwrap().push(process.clone());
            drop(admission);
            (true, process.commit(0))
        }
    }

    explore(Some(5), || {
        let generation = Arc::new(Generation { admissions: Gate::new(), ledger: Mutex::new(Vec::new()) });
        let admitters = array::from_fn::<_, 2, _>(|_| {
            let generation = generation.clone();
            thread::spawn(move || generation.start())
        });

        generation.admissions.close();
        block_on(generation.admissions.drained());
        let ledger = generation.ledger.lock().unwrap().clone();
        let seen: Vec<bool> = ledger.iter().flat_map(|process| process.close()).collect();

        let (admitted, ran): (Vec<bool>, Vec<bool>) =
            admitters.into_iter().map(|admitter| admitter.join().unwrap()).unzip();
        assert_eq!(ledger.len() as u64, count(&admitted), "the closer missed a process that was admitted");
        assert_eq!(count(&seen), count(&ran), "{UNSEEN}");
    });
}

#[test]
fn two_closers_against_commit() {
    explore(Some(5), || {
        let process = Arc::new(Process::<1>::new());
        let committer = {
            let process = process.clone();
            thread::spawn(move || process.commit(0))
        };
        let other_closer = {
            let process = process.clone();
            thread::spawn(move || process.close())
        };

        let seen = process.close();
        let seen_by_other = other_closer.join().unwrap();

        let ran = [committer.join().unwrap()];
        assert_eq!([seen, seen_by_other], [ran, ran], "{UNSEEN}");
    });
}

#[test]
fn last_one_out_wakes_the_closer() {
    /// How often, over all schedules, the closer found somebody inside and had to wait.
    static WAITS: Counter = Counter::new(0);

    explore(None, || {
        let process = Arc::new(Process::<2>::new());
        // Inside before the closer exists, so that the closer has somebody to wait for.
        let pass = process.gate.enter().unwrap();
        process.effects[0].store(IN_PROGRESS, Ordering::Relaxed);
        let committer = {
            let process = process.clone();
            thread::spawn(move || process.commit(1))
        };
        let closer = {
            let process = process.clone();
            thread::spawn(move || {
                process.gate.close();
                let mut drained = pin!(process.gate.drained());
                block_on(poll_fn(|context| {
                    let poll = drained.as_mut().poll(context);
                    WAITS.fetch_add(usize::from(poll.is_pending()), Ordering::Relaxed);
                    poll
                }));
                process.look()
            })
        };

        process.effects[0].store(DONE, Ordering::Relaxed);
        drop(pass);

        let ran = [true, committer.join().unwrap()];
        assert_eq!(closer.join().unwrap(), ran, "{UNSEEN}");
    });
    assert_ne!(WAITS.load(Ordering::Relaxed), 0, "the closer never had to wait");
}

#[test]
fn refused_entries_leave_no_mark() {
    explore(Some(5), || {
        let gate = Arc::new(Gate::new());
        let entrants = array::from_fn::<_, 2, _>(|_| {
            let gate = gate.clone();
            thread::spawn(move || count(&[gate.enter().is_ok(), gate.enter().is_ok()]))
        });

        gate.close();
        block_on(gate.drained());
        let begun = gate.begun();
        assert!(gate.is_drained(), "a gate once drained must stay drained");

        let admitted: u64 = entrants.map(|entrant| entrant.join().unwrap()).iter().sum();
        assert!(gate.is_drained(), "a refused entry was counted in flight");
        assert_eq!(begun, admitted, "a refused entry was counted as begun");
        assert_eq!(gate.begun(), admitted, "the count moved after close had returned");
    });
}

const NOT_BEGUN: usize = 0;
const IN_PROGRESS: usize = 1;
const DONE: usize = 2;

const UNSEEN: &str = "an effect began after close had returned, or the closer cannot see what it wrote";

/// A gate and the effects behind it.
struct Process<const EFFECTS: usize> {
    gate: Gate,
    effects: [AtomicUsize; EFFECTS],
    closed: AtomicBool,
}

impl<const EFFECTS: usize> Process<EFFECTS> {
    fn new() -> Self {
        Self {
            gate: Gate::new(),
            effects: array::from_fn(|_| AtomicUsize::new(NOT_BEGUN)),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether the gate let the n-th effect run.
    fn commit(&self, n: usize) -> bool {
        let Ok(_pass) = self.gate.enter() else { return false };
        assert!(!self.closed.load(Ordering::Relaxed), "an effect began after close had returned");
        self.effects[n].store(IN_PROGRESS, Ordering::Relaxed);
        self.effects[n].store(DONE, Ordering::Relaxed);
        true
    }

    /// Which effects the closer sees done once it closed the gate and waited.
    fn close(&self) -> [bool; EFFECTS] {
        self.gate.close();
        block_on(self.gate.drained());
        self.look()
    }

    fn look(&self) -> [bool; EFFECTS] {
        self.closed.store(true, Ordering::Relaxed);
        array::from_fn(|n| {
            let effect = self.effects[n].load(Ordering::Relaxed);
            assert_ne!(effect, IN_PROGRESS, "an effect was in progress after close had returned");
            effect == DONE
        })
    }
}

fn count(outcomes: &[bool]) -> u64 {
    outcomes.iter().filter(|outcome| **outcome).count() as u64
}

/// Runs the model in every schedule with at most so many preemptions; in every schedule, if none is given.
fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}
