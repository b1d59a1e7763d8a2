//! Admission: how a child enters its generation, and what may be in its way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;

use super::Core;
use super::order::StartOrder;
use crate::child::{Child, Place};
use crate::error::StartError;
use crate::event::ChildName;
use crate::id::{Epoch, ProcessId, Role, Seq};
use crate::process::ProcessSpec;

/// The children in start order, and the next incarnation of every role.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) processes: StartOrder<Arc<Child>>,
    pub(super) services: StartOrder<Arc<Child>>,
    incarnations: HashMap<Role, u32, RandomState>,
    next: u64,
}

impl Core {
    /// Enters a new child, before anything of it runs; refused if its generation or its registry is closed, or
    /// something is in its way.
    ///
    /// Everything here is one synchronous section inside the admission gate, so the closer sees the child whole
    /// or not at all. It holds the ledger, so that of two that want one id, or the last place, one gets it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        id: &ProcessId,
        place: Place,
        spec: &mut ProcessSpec,
        role: Role,
    ) -> Result<Arc<Child>, StartError> {
        // Closed comes first: what is in the way will not make room for anybody again.
        let Ok(_pass) = self.population(place).admissions.enter() else {
            return Err(StartError::RegistryClosed { id: id.clone() });
        };
        // Let go of after the ledger: it may be the last to hold an ended child and what that brought along.
        let existing: Option<Arc<Child>>;
        let slot = self.index.slot(id.as_str());
        let mut ledger = self.ledger.lock();
        if place == Place::Registry {
            existing = slot.child();
            if let Some(state) = existing.as_ref().and_then(|existing| existing.state()) {
                return Err(StartError::AlreadyExists { id: id.clone(), state });
            }
            let names = self.names.load(Ordering::Acquire);
            if let Some(limit) = self.limits.max_processes.filter(|limit| names >= *limit) {
                return Err(StartError::TooManyProcesses { id: id.clone(), limit });
            }
        }
        let name = ledger.name(self.epoch, role);
        let patience = spec.patience.unwrap_or(self.limits.patience);
        let child = Arc::new(Child::new(Arc::clone(self), name, id.clone(), place, spec.kind(), patience));
        spec.equip(&child);
        ledger.of(place).add(child.name.seq, Arc::clone(&child));
        // Looked at while the ledger is held: whoever seals, or records, either sees this child in it, or has
        // said so before.
        if self.is_sealed() {
            child.revoke();
        }
        if self.journal.is_recording() {
            child.gate.watch();
        }
        self.population(place).admit();
        if place == Place::Registry {
            self.names.fetch_add(1, Ordering::AcqRel);
            slot.enter(&child);
        }
        Ok(child)
    }
}

impl Ledger {
    pub(super) fn of(&mut self, place: Place) -> &mut StartOrder<Arc<Child>> {
        match place {
            Place::Registry => &mut self.processes,
            Place::Services => &mut self.services,
        }
    }

    fn name(&mut self, epoch: Epoch, role: Role) -> ChildName {
        let seq = Seq(self.next);
        self.next += 1;
        let incarnation = match self.incarnations.get_mut(&role) {
            Some(incarnation) => {
                *incarnation += 1;
                *incarnation
            }
            None => {
                self.incarnations.insert(role.clone(), 1);
                1
            }
        };
        ChildName { epoch, role, incarnation, seq }
    }
}
