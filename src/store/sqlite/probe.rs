//! Looks into transactions, for tests that end the OS process in the middle of one. Without the feature
//! `conformance` there is nothing to look with, and the calls are no code.
#![cfg_attr(not(feature = "conformance"), allow(unreachable_pub, reason = "seen from outside with it"))]

#[cfg(feature = "conformance")]
use std::sync::Arc;

use crate::model::EventKind;

/// Between which statements of a transaction the writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// The row of the run is written, its attempt in it, and nothing else: not this event of it.
    RunAndAttempt(EventKind),
    /// What came before this event is written, the event is not.
    AttemptAndEvent(EventKind),
    /// A lease is renewed, the transaction is not committed.
    RenewalAndCommit,
    /// Something is committed, and others see it; the disk is not waited for yet, and nobody is answered.
    CommitAndDisk,
}

/// Is called by the writer in its transaction, and by who waits for the disk.
#[cfg(feature = "conformance")]
pub type Look = Arc<dyn Fn(Between) + Send + Sync>;

/// Who looks, if anybody.
#[derive(Clone, Default)]
pub(super) struct Probe {
    #[cfg(feature = "conformance")]
    pub(super) look: Option<Look>,
}

impl Probe {
    #[cfg(feature = "conformance")]
    pub(super) fn at(&self, between: Between) {
        if let Some(look) = &self.look {
            look(between);
        }
    }

    #[cfg(not(feature = "conformance"))]
    #[inline(always)]
    #[allow(clippy::unused_self, reason = "there is nobody who looks")]
    pub(super) fn at(&self, _: Between) {}
}
