//! The services of a generation: kept in start order, found by name, published when they change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::child::Child;
use crate::event::Cause;
use crate::generation::core::Core;
use crate::generation::supervisor::Reply;
use crate::process::ProcessHandle;
use crate::rules::{ChildState, ChildView, Restart, RestartState};
use crate::service::{ServiceInfo, ServiceSpec, ServiceState};

/// The place of a service in start order. Never given to another.
pub(crate) type Key = u64;

/// One service, between its spec and its process.
pub(super) struct Slot {
    pub(super) spec: ServiceSpec,
    pub(super) restarts: RestartState,
    /// What its next start or stop follows from.
    pub(super) cause: Cause,
    /// Who waits for the start in progress.
    pub(super) starter: Option<Reply<ProcessHandle>>,
    pub(super) terminators: Vec<Reply<()>>,
    /// It is being added: its first start decides whether it is kept.
    pub(super) is_new: bool,
    stage: Stage,
}

pub(super) enum Stage {
    /// Will be started, not before this instant.
    Waiting {
        not_before_ms: u64,
    },
    Starting(Arc<Child>),
    Running(Arc<Child>),
    Stopping {
        child: Arc<Child>,
        then: Then,
    },
    Ended,
    Stopped,
}

/// What follows the stop of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Start { not_before_ms: u64 },
    StayStopped,
    Forget,
}

impl Slot {
    pub(super) fn new(spec: ServiceSpec) -> Self {
        Self {
            restarts: RestartState::new(&spec.policy),
            spec,
            cause: None,
            starter: None,
            terminators: Vec::new(),
            is_new: false,
            stage: Stage::Waiting { not_before_ms: 0 },
        }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.spec.policy.restart == Restart::Temporary
    }

    pub(super) fn state(&self) -> ServiceState {
        match self.stage {
            Stage::Waiting { .. } => ServiceState::Restarting,
            Stage::Starting(_) => ServiceState::Starting,
            Stage::Running(_) => ServiceState::Running,
            Stage::Stopping { .. } => ServiceState::Stopping,
            Stage::Ended => ServiceState::Ended,
            Stage::Stopped => ServiceState::Stopped,
        }
    }

    fn child(&self) -> Option<&Arc<Child>> {
        match &self.stage {
            Stage::Starting(child) | Stage::Running(child) | Stage::Stopping { child, .. } => Some(child),
            Stage::Waiting { .. } | Stage::Ended | Stage::Stopped => None,
        }
    }

    /// How it looks to the plan of a group restart.
    pub(super) fn view(&self) -> ChildView {
        let state = match &self.stage {
            // It has not had its one life yet: the group's restart does not take it away.
            Stage::Waiting { .. } if self.is_temporary() => ChildState::StoppedOnPurpose,
            Stage::Waiting { .. } | Stage::Stopping { then: Then::Start { .. }, .. } => {
                ChildState::BackingOff
            }
            Stage::Starting(_) => ChildState::Starting,
            Stage::Running(_) => ChildState::Running,
            Stage::Stopping { then: Then::StayStopped | Then::Forget, .. } | Stage::Stopped => {
                ChildState::StoppedOnPurpose
            }
            Stage::Ended => ChildState::Ended,
        };
        ChildView { state, restart: self.spec.policy.restart }
    }

    fn info(&self, core: &Core) -> ServiceInfo {
        ServiceInfo {
            name: Arc::clone(&self.spec.name),
            state: self.state(),
            policy: self.spec.policy,
            patience: self.spec.patience.unwrap_or(core.limits.patience),
            incarnation: self.child().map(|child| child.name.to_string()),
            process: self.child().map(|child| ProcessHandle::new(Arc::clone(child))),
        }
    }
}

/// All of them. Every change of a stage goes through [`Slots::set`], which keeps the sets below true.
#[derive(Default)]
pub(super) struct Slots {
    slots: BTreeMap<Key, Slot>,
    keys: HashMap<Arc<str>, Key>,
    next: Key,
    /// With the instant before which each is not started.
    waiting: BTreeMap<Key, u64>,
    starting: BTreeSet<Key>,
    stopping: BTreeSet<Key>,
    unpublished: BTreeSet<Key>,
}

impl Slots {
    /// Adds a service after those there are.
    pub(super) fn add(&mut self, slot: Slot) -> Key {
        let key = self.next;
        self.next += 1;
        self.keys.insert(Arc::clone(&slot.spec.name), key);
        self.slots.insert(key, slot);
        self.set(key, Stage::Waiting { not_before_ms: 0 });
        key
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.leave_sets(key);
        self.unpublished.insert(key);
        if let Some(slot) = self.slots.remove(&key) {
            self.keys.remove(&slot.spec.name);
        }
    }

    pub(super) fn set(&mut self, key: Key, stage: Stage) {
        self.leave_sets(key);
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        match stage {
            Stage::Waiting { not_before_ms } => drop(self.waiting.insert(key, not_before_ms)),
            Stage::Starting(_) => drop(self.starting.insert(key)),
            Stage::Stopping { .. } => drop(self.stopping.insert(key)),
            Stage::Running(_) | Stage::Ended | Stage::Stopped => {}
        }
        slot.stage = stage;
        self.unpublished.insert(key);
    }

    fn leave_sets(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.starting.remove(&key);
        self.stopping.remove(&key);
    }

    /// Changes what follows the stop in progress.
    pub(super) fn set_then(&mut self, key: Key, next: Then) {
        if let Some(Slot { stage: Stage::Stopping { then, .. }, .. }) = self.slots.get_mut(&key) {
            *then = next;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, key: Key) -> Option<&Slot> {
        self.slots.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Slot)> {
        self.slots.iter().map(|(key, slot)| (*key, slot))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.values_mut()
    }

    pub(super) fn find(&self, name: &str) -> Option<Key> {
        self.keys.get(name).copied()
    }

    /// The service whose current incarnation this child is.
    pub(super) fn key_of(&self, child: &Arc<Child>) -> Option<Key> {
        let key = self.find(child.id.as_str())?;
        let own = self.get(key)?.child()?;
        Arc::ptr_eq(own, child).then_some(key)
    }

    /// Those that wait to be started, in start order, with the instant before which each is not.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Key, u64)> {
        self.waiting.iter().map(|(key, not_before_ms)| (*key, *not_before_ms))
    }

    /// The first whose start is in progress.
    pub(super) fn first_starting(&self) -> Option<Key> {
        self.starting.first().copied()
    }

    pub(super) fn is_any_stopping(&self) -> bool {
        !self.stopping.is_empty()
    }

    /// Everyone is started, ended or on its way down.
    pub(super) fn are_settled(&self) -> bool {
        self.waiting.is_empty() && self.starting.is_empty()
    }

    /// Shows readers what changed.
    pub(super) fn publish(&mut self, core: &Core) {
        if self.unpublished.is_empty() {
            return;
        }
        let mut published = core.service_list.write();
        for key in std::mem::take(&mut self.unpublished) {
            match self.slots.get(&key) {
                Some(slot) => drop(published.insert(key, slot.info(core))),
                None => drop(published.remove(&key)),
            }
        }
    }
}
