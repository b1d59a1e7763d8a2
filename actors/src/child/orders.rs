//! What a child was told: bits that are only ever added.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::exit::KillReason;

/// One bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    Stop = 1,
    KillPatience = 2,
    KillDeadline = 4,
    /// Asynchronous effects in flight end at their next await.
    Cut = 8,
    /// Somebody ends this child, or has.
    End = 16,
    /// Not an order: its own actor reached its orderly stop.
    Stopped = 32,
}

/// The orders so far.
#[derive(Debug)]
pub(super) struct Orders(AtomicU8);

impl Orders {
    pub(super) const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Gives orders at once. True if the first of them is new.
    pub(super) fn give(&self, orders: &[Order]) -> bool {
        let all = orders.iter().fold(0, |bits, order| bits | *order as u8);
        let before = self.0.fetch_or(all, Ordering::AcqRel);
        orders.first().is_some_and(|first| before & *first as u8 == 0)
    }

    pub(super) fn has(&self, order: Order) -> bool {
        self.0.load(Ordering::Acquire) & order as u8 != 0
    }

    /// Why it was killed, if we had it killed.
    pub(super) fn kill_reason(&self) -> Option<KillReason> {
        if self.has(Order::KillPatience) {
            Some(KillReason::PatienceSpent)
        } else if self.has(Order::KillDeadline) {
            Some(KillReason::DeadlineReached)
        } else {
            None
        }
    }
}
