//! The journal of a storm: every child's events in the only order they may have.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tenure_actors::{ActorName, Event, EventKind};

use crate::script::Timing;
use crate::world::World;

/// What is known of one child.
#[derive(Default, Debug)]
struct Life {
    admitted: u32,
    started: u32,
    bound: u32,
    unbound: u32,
    ended: u32,
    /// The number of the event that told its end.
    end: u64,
}

#[derive(Default)]
struct Chronicle {
    lives: BTreeMap<String, Life>,
    /// By epoch and id: who has it.
    ids: HashMap<(u64, String), String>,
    /// By epoch and operation: its owner.
    operations: HashMap<(u64, String), String>,
    /// By epoch: the number of the event that told the seal.
    sealed: HashMap<u64, u64>,
    closed: HashMap<u64, u64>,
    last_epoch: u64,
}

pub(crate) fn read(world: &World, events: &[Arc<Event>]) {
    let mut chronicle = Chronicle::default();
    let mut last = 0;
    for event in events {
        let before = world.faults.lock().len();
        world.check(event.id.get() > last, || "numbers do not rise".to_owned());
        last = event.id.get();
        chronicle.read(world, event);
        chronicle.order(world, event);
        if world.faults.lock().len() > before {
            world.fault(format!(
                "  by event {} of {}: {} {}",
                last,
                event.actor,
                event.kind.verb(),
                event.kind
            ));
        }
    }
    for (name, life) in &chronicle.lives {
        let never_started = life.bound == 0;
        let is_whole = life.admitted == 1
            && life.started == 1
            && life.ended == 1
            && life.bound <= 1
            && life.unbound == life.bound;
        world.check(is_whole, || format!("the life of {name} (never started {never_started}): {life:?}"));
    }
}

/// The child that an event is about, as epoch and name.
fn subject(event: &Event) -> Option<String> {
    let of_child = |child: &tenure_actors::ChildName| Some(format!("{}/{child}", child.epoch));
    let of_actor = |actor: &ActorName| match actor {
        ActorName::Child(child) => of_child(child),
        _ => None,
    };
    match &event.kind {
        EventKind::Started { child }
        | EventKind::StopSent { child, .. }
        | EventKind::Killed { child, .. } => of_actor(child),
        EventKind::Admitted { child, .. }
        | EventKind::Bound { child, .. }
        | EventKind::Unbound { child, .. }
        | EventKind::Committed { child, .. }
        | EventKind::DroppedLate { child, .. } => of_child(child),
        _ => of_actor(&event.actor),
    }
}

/// On several workers these may cross with the end: they look before they are told, and the moment passes.
fn may_cross(kind: &EventKind) -> bool {
    matches!(kind, EventKind::StopSent { .. } | EventKind::Killed { .. } | EventKind::Progressed { .. })
}

impl Chronicle {
    fn read(&mut self, world: &World, event: &Event) {
        if let Some(name) = subject(event) {
            self.live(world, event, name);
        }
        let epoch = event.actor.epoch().map_or(0, tenure_actors::Epoch::get);
        match &event.kind {
            EventKind::Opened { epoch } => {
                world.check(epoch.get() > self.last_epoch, || format!("epoch {epoch} is opened again"));
                self.last_epoch = epoch.get();
            }
            EventKind::Sealed { epoch } => drop(self.sealed.insert(epoch.get(), event.id.get())),
            EventKind::Closed { .. } => drop(self.closed.insert(epoch, event.id.get())),
            EventKind::Reserved { operation, owner, .. } => {
                let before = self.operations.insert((epoch, operation.to_string()), owner.to_string());
                if world.timing == Timing::Virtual {
                    world.check(before.is_none(), || format!("{operation} is active twice: {before:?}"));
                    self.exclude(world, epoch, owner.as_str());
                }
            }
            EventKind::Released { operation, .. } => {
                self.operations.remove(&(epoch, operation.to_string()));
            }
            _ => {}
        }
    }

    /// At most one active operation has any key.
    fn exclude(&self, world: &World, epoch: u64, newcomer: &str) {
        let keys = world.keys.lock();
        let none = Vec::new();
        let of = |owner: &str| keys.get(owner).unwrap_or(&none);
        for ((_, operation), owner) in self.operations.iter().filter(|((other, _), _)| *other == epoch) {
            let shared = owner != newcomer && of(owner).iter().any(|key| of(newcomer).contains(key));
            world.check(!shared, || format!("{newcomer} shares a key with {operation} of {owner}"));
        }
    }

    fn live(&mut self, world: &World, event: &Event, name: String) {
        let exact = world.timing == Timing::Virtual;
        let life = self.lives.entry(name.clone()).or_default();
        let ids = &mut self.ids;
        match &event.kind {
            EventKind::Admitted { process, child } => {
                life.admitted += 1;
                world.check(life.started == 0, || format!("{name} was started before it was admitted"));
                let before = ids.insert((child.epoch.get(), process.to_string()), name.clone());
                world.check(!exact || before.is_none(), || {
                    format!("{process} is had by {before:?} and {name}")
                });
            }
            EventKind::Started { .. } => {
                life.started += 1;
                world.check(life.admitted == 1, || format!("{name} was started before it was admitted"));
            }
            EventKind::Bound { .. } => {
                life.bound += 1;
                world.check(life.started == 1 && life.ended == 0, || format!("{name} is bound: {life:?}"));
            }
            EventKind::Unbound { process, child } => {
                life.unbound += 1;
                ids.remove(&(child.epoch.get(), process.to_string()));
                world.check(life.bound == 1, || format!("{name} was unbound before it was bound"));
            }
            EventKind::Ended { .. } => {
                life.ended += 1;
                life.end = event.id.get();
                if life.bound == 0 {
                    ids.retain(|_, owner| *owner != name);
                }
            }
            EventKind::DroppedLate { .. } | EventKind::Submitted { .. } => {}
            EventKind::Committed { .. } => {
                let begun = event.causes.iter().all(|cause| life.ended == 0 || cause.get() < life.end);
                world.check(begun, || format!("an effect of {name} began after its end"));
            }
            kind if !exact && may_cross(kind) => {}
            _ => world.check(life.ended == 0, || format!("{name} has ended, but goes on")),
        }
    }

    /// After the seal no effect begins; after the close nothing happens but refusals.
    fn order(&self, world: &World, event: &Event) {
        let Some(epoch) = event.actor.epoch().map(tenure_actors::Epoch::get) else {
            return;
        };
        if let (EventKind::Committed { .. }, Some(sealed)) = (&event.kind, self.sealed.get(&epoch)) {
            let begun = event.causes.iter().all(|cause| cause.get() < *sealed);
            world.check(begun, || format!("an effect of epoch {epoch} began after its seal"));
        }
        let closed = self.closed.get(&epoch).is_some_and(|closed| *closed < event.id.get());
        // A removal is told by the thread that removed, once the id is free; the close does not wait for it.
        let is_late_word = may_cross(&event.kind) || matches!(event.kind, EventKind::Unbound { .. });
        let may_come = world.timing == Timing::Real && is_late_word
            || matches!(
                event.kind,
                EventKind::DroppedLate { .. }
                    | EventKind::Submitted { .. }
                    | EventKind::Committed { .. }
                    | EventKind::Refused { .. }
            );
        world.check(!closed || may_come, || format!("epoch {epoch} is closed, but goes on"));
    }
}
