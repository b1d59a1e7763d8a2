//! The gate: one atomic word that decides, atomically with revocation, whether an effect may begin.
//!
//! Every process has one for its commits, every generation two for its admissions. The word holds a closed
//! bit, a bit that says whether effects are to be told of, the number of effects in flight and the number of
//! effects ever begun:
//!
//! ```text
//! 63                                  17 16             2   1   0
//! +------------------------------------+----------------+---+---+
//! | begun (wraps harmlessly)           | in flight      | W | C |
//! +------------------------------------+----------------+---+---+
//! ```
//!
//! Invariants, each with the reason it holds:
//!
//! 1. *An effect begins before the closed bit is set, or not at all.* Entering and closing are
//!    read-modify-writes of the same word, so they have one order; [`Gate::enter`] writes only over a word in
//!    which the closed bit was not set.
//! 2. *Whoever closed the gate can wait for every effect that began.* Such an effect is counted in flight from
//!    the write that let it in until its [`Pass`] is dropped.
//! 3. *The last one out wakes the closer.* The subtraction that leaves a closed word without effects in flight
//!    sees exactly that in its own result; the closer registers before it looks.
//! 4. *Counting is free.* Entering adds to both counters at once, so `begun` needs no write of its own.
//! 5. *The refused leave no mark.* They write nothing, so the number in flight in a closed word only falls, and
//!    what a drained word says stays true. An addition taken back after looking would not do: it could be seen.
//!
//! Checking an epoch and then committing would not do: between the two the generation may close, and the
//! commit would land after close had returned. `--cfg tenure_toy_gate` builds that mistake on purpose; the
//! loom model and the two-thread storm must both fail on it.

#[cfg(all(test, tenure_loom))]
mod model;
#[cfg(all(test, not(tenure_loom)))]
mod storm;
#[cfg(all(test, not(tenure_loom)))]
mod tests;

use crate::sync::{AtomicU64, Notify, Ordering};

const CLOSED: u64 = 1;
/// Here, so that the fast path reads one word.
const WATCHED: u64 = 1 << 1;
const ONE_IN_FLIGHT: u64 = 1 << IN_FLIGHT_SHIFT;
const IN_FLIGHT_SHIFT: u32 = 2;
const IN_FLIGHT_MASK: u64 = 0x7fff << IN_FLIGHT_SHIFT;
const ONE_BEGUN: u64 = 1 << BEGUN_SHIFT;
const BEGUN_SHIFT: u32 = 17;

/// Admits effects until it is closed, and lets the closer wait for those inside.
#[derive(Debug)]
pub(crate) struct Gate {
    word: AtomicU64,
    drained: Notify,
}

/// Why an effect may not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// The gate is closed, for good.
    Closed,
    /// As many effects are in flight as can be counted, 32,767: passes are being leaked.
    Full,
}

/// An effect in flight; dropping it ends the effect.
#[derive(Debug)]
#[must_use = "the effect is over as soon as the pass is dropped"]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), drained: Notify::default() }
    }

    /// Lets one effect begin, unless the gate is closed.
    #[cfg(not(tenure_toy_gate))]
    #[inline]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Turned> {
        match self.word.fetch_update(Ordering::Acquire, Ordering::Acquire, admit) {
            Ok(_) => Ok(Pass { gate: self }),
            Err(word) if word & CLOSED != 0 => Err(Turned::Closed),
            Err(_) => Err(Turned::Full),
        }
    }

    /// The mistake this module exists to prevent: a plain load, then the effect.
    #[cfg(tenure_toy_gate)]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Turned> {
        if self.word.load(Ordering::Acquire) & CLOSED != 0 {
            return Err(Turned::Closed);
        }
        // Counted all the same, so that the only thing the toy gets wrong is the promise.
        self.word.fetch_add(ONE_BEGUN, Ordering::Relaxed);
        Ok(Pass { gate: self })
    }

    /// Lets no further effect begin. Idempotent. Returns how many are still in flight.
    pub(crate) fn close(&self) -> u64 {
        in_flight(self.word.fetch_or(CLOSED, Ordering::AcqRel))
    }

    /// Has effects told of from here on.
    pub(crate) fn watch(&self) {
        self.word.fetch_or(WATCHED, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// How many effects ever began, those in flight included. Final once the gate is closed.
    pub(crate) fn begun(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> BEGUN_SHIFT
    }

    /// Completes once the gate is closed and no effect is in flight.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn drained(&self) {
        loop {
            let woken = self.drained.notified();
            if self.is_drained() {
                return;
            }
            woken.await;
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & CLOSED != 0 && in_flight(word) == 0
    }

    #[cfg(not(tenure_toy_gate))]
    #[inline]
    fn leave(&self) {
        let before = self.word.fetch_sub(ONE_IN_FLIGHT, Ordering::Release);
        if before & CLOSED != 0 {
            self.left_closed(before);
        }
    }

    #[cfg(not(tenure_toy_gate))]
    #[cold]
    fn left_closed(&self, before: u64) {
        if in_flight(before) == 1 {
            self.drained.notify_waiters();
        }
    }

    #[cfg(tenure_toy_gate)]
    fn leave(&self) {}
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave();
    }
}

/// The word with one more effect in flight, or none if that may not be.
fn admit(word: u64) -> Option<u64> {
    let may_begin = word & CLOSED == 0 && word & IN_FLIGHT_MASK < IN_FLIGHT_MASK;
    may_begin.then(|| word.wrapping_add(ONE_BEGUN + ONE_IN_FLIGHT))
}

fn in_flight(word: u64) -> u64 {
    (word & IN_FLIGHT_MASK) >> IN_FLIGHT_SHIFT
}
