//! What a child does under its id: one atomic word, so that the id is given up once, whoever asks for it.
//!
//! ```text
//! starting --bind--> running --begin_removal--> removing --end_removal--> unbound
//!    |                  `-------------------------- give_up --------------^  ^
//!    `--begin_removal--> removal requested ---------- give_up ---------------'
//! ```

use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::ProcessState;

const STARTING: u8 = 0;
/// Starting, and to be removed as soon as it has started.
const REMOVAL_REQUESTED: u8 = 1;
const RUNNING: u8 = 2;
/// Its authority is being ended; its id is free in a moment.
const REMOVING: u8 = 3;
/// The id is free; what was started may still run.
const UNBOUND: u8 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Phase(AtomicU8);

/// What came of asking for a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is remembered until the start has settled.
    Requested,
    /// It is ours to carry out: end the authority, then [`Phase::end_removal`].
    Begun,
    /// It had been asked for, or done, before.
    Late,
}

impl Phase {
    pub(super) const fn starting() -> Self {
        Self(AtomicU8::new(STARTING))
    }

    fn load(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn state(&self) -> Option<ProcessState> {
        match self.load() {
            STARTING | REMOVAL_REQUESTED => Some(ProcessState::Starting),
            RUNNING | REMOVING => Some(ProcessState::Running),
            _ => None,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        self.load() != UNBOUND
    }

    pub(super) fn is_starting(&self) -> bool {
        self.load() <= REMOVAL_REQUESTED
    }

    /// The start succeeded. False if its removal was requested, or it was given up.
    pub(super) fn bind(&self) -> bool {
        self.change(STARTING, RUNNING)
    }

    pub(super) fn begin_removal(&self) -> Removal {
        if self.change(STARTING, REMOVAL_REQUESTED) {
            Removal::Requested
        } else if self.change(RUNNING, REMOVING) {
            Removal::Begun
        } else {
            Removal::Late
        }
    }

    /// Gives up the id. False if the child ended meanwhile and gave it up itself.
    pub(super) fn end_removal(&self) -> bool {
        self.change(REMOVING, UNBOUND)
    }

    /// Gives up the id, whatever the phase. Answers whether it was bound; none if it was free before.
    pub(super) fn give_up(&self) -> Option<bool> {
        match self.0.swap(UNBOUND, Ordering::AcqRel) {
            UNBOUND => None,
            before => Some(before >= RUNNING),
        }
    }
}
