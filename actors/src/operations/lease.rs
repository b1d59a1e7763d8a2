//! The lease of an operation: whoever has it ends the registration.

use std::fmt;
use std::sync::Arc;

use crate::event::Cause;
use crate::generation::core::Core;
use crate::operations::{Active, OperationRegistration, OperationsMessage, announce_release};

/// Holds a registration. Releasing it, or dropping it, ends that registration and no other: a stale lease
/// cannot touch a later one with the same id (contract, H3).
#[must_use = "the operation is released as soon as its lease is dropped"]
pub struct OperationLease {
    pub(super) active: Arc<Active>,
    pub(super) core: Arc<Core>,
}

impl OperationLease {
    /// What it holds, or held.
    #[must_use]
    pub fn registration(&self) -> &OperationRegistration {
        &self.active.registration
    }

    /// Whether the registration still stands: not released, and not cleared by a close.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.active.is_held()
    }

    /// Ends the registration: when this returns, the operation is gone and its keys are free. Callable from
    /// any thread, again and after the close of its generation: then it does nothing and answers false.
    pub fn release(&self) -> bool {
        self.release_after(None).is_some()
    }

    /// [`OperationLease::release`] because of this event. The event of the release; none if there was nothing
    /// to release.
    pub(crate) fn release_after(&self, cause: Cause) -> Option<Cause> {
        if !self.core.operations.end(&self.active) {
            return None;
        }
        let released = announce_release(&self.core, &self.active, false, cause.or(self.active.reserved));
        let forget = OperationsMessage::forget(&self.active);
        let actor = self.core.actors.operations.get();
        if actor.is_none_or(|actor| actor.cast(forget).is_err()) {
            self.core.operations.forget(&self.active);
        }
        Some(released)
    }

    /// The event of its reservation, if it belongs to this generation.
    pub(crate) fn reserved_in(&self, core: &Arc<Core>) -> Cause {
        self.active.reserved.filter(|_| Arc::ptr_eq(&self.core, core))
    }
}

impl Drop for OperationLease {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for OperationLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys and the identity are private (contract, H3).
        write!(f, "OperationLease({}, held {})", self.active.registration.operation, self.is_held())
    }
}
