//! The gate: one atomic word that decides, atomically with revocation, whether an effect may begin.
//!
//! Every process has one for its commits, every generation two for its admissions. Two words count, one those
//! that came in, one those that went out, each beside a closed bit:
//!
//! ```text
//!          63                              1   0
//!         +---------------------------------+---+
//! entered | begun                           | C |    decides
//!         +---------------------------------+---+
//! left    | over                            | C |    tells when all are out
//!         +---------------------------------+---+
//! ```
//!
//! An effect enters by adding to the first word and looks at what the addition found; it leaves by adding to
//! the second. Neither reads its word first, and each has a word of its own, because a locked instruction that
//! meets the one before on the same word, or a read that does, waits for it: that alone costs a third of a
//! commit. So the refused leave a mark in the first word, and how many began is kept beside it by the closer.
//!
//! Invariants, each with the reason it holds:
//!
//! 1. *An effect begins before the closed bit is set, or not at all.* Entering and closing are
//!    read-modify-writes of the same word, so they have one order; whoever finds the closed bit is refused.
//! 2. *Whoever closed the gate can wait for every effect that began.* The write that closes finds how many did.
//!    Each of them leaves once, when its [`Pass`] is dropped, and nobody else does.
//! 3. *A drained gate stays drained.* What began is final, and those that left only become more.
//! 4. *The last one out wakes the closer.* The closer says in the second word how many it waits for: who leaves
//!    after that finds the bit, who left before is found by the closer, who registers before it looks.
//! 5. *Counting is free.* Entering counts what began.
//! 6. *Nothing runs over.* A count has 63 bits.
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

use crate::sync::{AtomicBool, AtomicU64, Notify, Ordering, yield_now};

const CLOSED: u64 = 1;
const COUNT_SHIFT: u32 = 1;
const ONE: u64 = 1 << COUNT_SHIFT;

/// Admits effects until it is closed, and lets the closer wait for those inside.
#[derive(Debug)]
pub(crate) struct Gate {
    entered: AtomicU64,
    left: AtomicU64,
    /// How many effects began before it was closed; written once, before the closed bit of `left`.
    begun: AtomicU64,
    /// Effects are to be told of. Not a bit of `entered`, which is not to be read before it is added to.
    watched: AtomicBool,
    drained: Notify,
}

/// The gate is closed, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// An effect in flight; dropping it ends the effect.
#[derive(Debug)]
#[must_use = "the effect is over as soon as the pass is dropped"]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let [entered, left, begun] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { entered, left, begun, watched: AtomicBool::new(false), drained: Notify::default() }
    }

    /// Lets one effect begin, unless the gate is closed.
    #[cfg(not(tenure_toy_gate))]
    #[inline]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Closed> {
        let before = self.entered.fetch_add(ONE, Ordering::Acquire);
        if before & CLOSED != 0 { Err(Closed) } else { Ok(Pass { gate: self }) }
    }

    /// The mistake this module exists to prevent: a plain load, then the effect.
    #[cfg(tenure_toy_gate)]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Closed> {
        if self.entered.load(Ordering::Acquire) & CLOSED != 0 {
            return Err(Closed);
        }
        // Counted all the same, so that the only thing the toy gets wrong is the promise.
        self.entered.fetch_add(ONE, Ordering::Relaxed);
        self.leave();
        Ok(Pass { gate: self })
    }

    /// Lets no further effect begin. Idempotent.
    pub(crate) fn close(&self) {
        let before = self.entered.fetch_or(CLOSED, Ordering::AcqRel);
        if before & CLOSED == 0 {
            self.begun.store(before >> COUNT_SHIFT, Ordering::Relaxed);
            self.left.fetch_or(CLOSED, Ordering::AcqRel);
        }
    }

    /// Has effects told of from here on.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// How many effects ever began, those in flight included. Final once the gate is closed.
    pub(crate) fn begun(&self) -> u64 {
        let entered = self.entered.load(Ordering::Acquire);
        if entered & CLOSED == 0 {
            return entered >> COUNT_SHIFT;
        }
        self.left_of_closed();
        self.begun.load(Ordering::Relaxed)
    }

    /// Completes once no effect is in flight; to be called when the gate is closed.
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

    /// It is closed and no effect is in flight.
    pub(crate) fn is_drained(&self) -> bool {
        self.entered.load(Ordering::Acquire) & CLOSED != 0 && self.are_out(self.left_of_closed())
    }

    /// Those that left, once it is known how many will.
    fn left_of_closed(&self) -> u64 {
        loop {
            let left = self.left.load(Ordering::Acquire);
            if left & CLOSED != 0 {
                return left;
            }
            // Another thread is between the two writes of its close.
            yield_now();
        }
    }

    fn are_out(&self, left: u64) -> bool {
        left >> COUNT_SHIFT >= self.begun.load(Ordering::Relaxed)
    }

    #[inline]
    fn leave(&self) {
        let before = self.left.fetch_add(ONE, Ordering::AcqRel);
        if before & CLOSED != 0 {
            self.left_closed(before + ONE);
        }
    }

    #[cold]
    fn left_closed(&self, left: u64) {
        if self.are_out(left) {
            self.drained.notify_waiters();
        }
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(not(tenure_toy_gate))]
        self.gate.leave();
    }
}
