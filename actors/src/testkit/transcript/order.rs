//! The canonical line-up of what was recorded: causes first, then time, path, the subject's start order, and
//! the actor's own sequence. So a transcript shows the partial order of a run, not the scheduler's luck.
//!
//! Besides recorded causes three things bind the order, so that no line-up tells what cannot be:
//!
//! 1. *A name has one owner at a time.* Lines that change who owns a process id or an operation id keep the
//!    order in which they happened, and a refusal stays between the line that took the name and the line that
//!    gave it up.
//! 2. *A child has one life.* Its lines from admission to end keep the order in which they happened.
//! 3. *Authority comes before its end.* What needs it and happened before its seal, or before the id was given
//!    up, stays before it: a commit that was applied is never shown behind the seal that would have refused it,
//!    nor the end of a child that the close did not find any more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::event::{ActorName, ChildName, Event, EventId, EventKind};
use crate::id::Epoch;

/// Where a line goes among those that do not depend on each other. Smaller comes first.
type Key<'a> = (u64, (u64, u64), (u64, u64), &'a str, EventId);

/// The positions of `events`, which are in recorded order, in canonical order.
pub(super) fn line_up(events: &[Arc<Event>], is_virtual: bool) -> Vec<usize> {
    let edges = Edges::of(events);
    let keys = keys(events, is_virtual);
    let mut open: Vec<usize> = edges.before.clone();
    let mut ready: BinaryHeap<Reverse<(Key<'_>, usize)>> =
        (0..events.len()).filter(|at| open[*at] == 0).map(|at| Reverse((keys[at], at))).collect();
    let mut order = Vec::with_capacity(events.len());
    while let Some(Reverse((_, at))) = ready.pop() {
        order.push(at);
        for after in &edges.after[at] {
            open[*after] -= 1;
            if open[*after] == 0 {
                ready.push(Reverse((keys[*after], *after)));
            }
        }
    }
    // Nothing is left but what several threads recorded in contradiction to each other; none of it is hidden.
    let left = (0..events.len()).filter(|at| open[*at] > 0);
    order.extend(left.collect::<Vec<_>>());
    order
}

fn keys(events: &[Arc<Event>], is_virtual: bool) -> Vec<Key<'_>> {
    // A registration is a subject of its own: an operation id may be reserved again.
    let mut reserved: HashMap<(Option<Epoch>, &str), u64> = HashMap::new();
    let key = |event: &'_ Arc<Event>, subject, name| {
        let time = if is_virtual { event.at_ms } else { 0 };
        (time, event.actor.tree_path(), subject, name, event.id)
    };
    let mut keys = Vec::with_capacity(events.len());
    for event in events {
        let epoch = event.actor.epoch();
        let order = epoch.map_or(0, Epoch::get);
        keys.push(match &event.kind {
            EventKind::Reserved { operation, .. } => {
                reserved.insert((epoch, operation.as_str()), event.id.get());
                key(event, (order, event.id.get()), "")
            }
            EventKind::Released { operation, .. } => {
                let since = reserved.get(&(epoch, operation.as_str())).copied().unwrap_or(0);
                key(event, (order, since), "")
            }
            EventKind::Refused { what, .. } => key(event, (u64::MAX, 0), what),
            kind => key(event, subject(kind, &event.actor), ""),
        });
    }
    keys
}

/// Start order of the child that an event is about.
fn subject(kind: &EventKind, actor: &ActorName) -> (u64, u64) {
    match kind {
        EventKind::Admitted { child, .. }
        | EventKind::Bound { child, .. }
        | EventKind::Unbound { child, .. }
        | EventKind::UnbindRefused { owner: Some(child), .. }
        | EventKind::Committed { child, .. }
        | EventKind::DroppedLate { child, .. } => path_of(child),
        EventKind::Started { child }
        | EventKind::StopSent { child, .. }
        | EventKind::Escalated { child, .. }
        | EventKind::Killed { child, .. }
        | EventKind::Retried { child, .. } => child.tree_path(),
        _ => actor.tree_path(),
    }
}

fn path_of(child: &ChildName) -> (u64, u64) {
    ActorName::Child(child.clone()).tree_path()
}

/// What has to come before what.
struct Edges {
    after: Vec<Vec<usize>>,
    before: Vec<usize>,
}

impl Edges {
    fn of(events: &[Arc<Event>]) -> Self {
        let mut edges = Self { after: vec![Vec::new(); events.len()], before: vec![0; events.len()] };
        let by_id: HashMap<EventId, usize> =
            events.iter().enumerate().map(|(at, event)| (event.id, at)).collect();
        for (at, event) in events.iter().enumerate() {
            for cause in event.causes.iter().filter_map(|cause| by_id.get(cause)) {
                edges.add(*cause, at);
            }
        }
        edges.add_owners(events, &by_id);
        edges.add_lives(events);
        edges.add_authority(events);
        edges
    }

    fn add(&mut self, first: usize, then: usize) {
        // Events are numbered before they are handed on, so threads may record an effect before its cause;
        // both count, but only one of them can come first.
        if first != then {
            self.after[first].push(then);
            self.before[then] += 1;
        }
    }

    fn add_owners(&mut self, events: &[Arc<Event>], by_id: &HashMap<EventId, usize>) {
        let mut names: HashMap<Name<'_>, Tenancy> = HashMap::new();
        let mut starting: HashMap<&ChildName, Name<'_>> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            if let EventKind::Admitted { process, child } = &event.kind {
                starting.insert(child, Name::Process(child.epoch, process.as_str()));
            }
            if let Some(name) = given_or_taken(event, &starting) {
                let tenancy = names.entry(name).or_default();
                for before in tenancy.since.into_iter().chain(tenancy.refusals.drain(..)) {
                    self.add(before, at);
                }
                tenancy.since = Some(at);
            }
            for name in asked_for(event, events, by_id) {
                let tenancy = names.entry(name).or_default();
                tenancy.since.into_iter().for_each(|since| self.add(since, at));
                tenancy.refusals.push(at);
            }
        }
    }
}

impl Edges {
    fn add_lives(&mut self, events: &[Arc<Event>]) {
        let mut last: HashMap<&ChildName, usize> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            if let Some(before) = life_of(event).and_then(|child| last.insert(child, at)) {
                self.add(before, at);
            }
        }
    }

    fn add_authority(&mut self, events: &[Arc<Event>]) {
        let mut of_generation: HashMap<Epoch, Vec<usize>> = HashMap::new();
        let mut commits: HashMap<&ChildName, Vec<usize>> = HashMap::new();
        let mut unbound: HashMap<&ChildName, usize> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            match (&event.kind, event.actor.epoch()) {
                (EventKind::CloseBegan { epoch, .. } | EventKind::Sealed { epoch }, _) => {
                    let before = of_generation.remove(epoch).unwrap_or_default();
                    before.into_iter().for_each(|before| self.add(before, at));
                }
                (EventKind::Unbound { child, .. }, _) => {
                    let before = commits.remove(child).unwrap_or_default();
                    before.into_iter().for_each(|before| self.add(before, at));
                    unbound.insert(child, at);
                    of_generation.entry(child.epoch).or_default().push(at);
                }
                (EventKind::DroppedLate { child, .. }, _) => {
                    unbound.get(child).into_iter().for_each(|unbound| self.add(*unbound, at));
                }
                (kind, Some(epoch)) if is_bound_by_seal(kind) => {
                    of_generation.entry(epoch).or_default().push(at);
                    if let EventKind::Committed { child, .. } = kind {
                        commits.entry(child).or_default().push(at);
                    }
                }
                _ => {}
            }
        }
    }
}

fn life_of(event: &Event) -> Option<&ChildName> {
    match (&event.kind, &event.actor) {
        (
            EventKind::Admitted { child, .. }
            | EventKind::Bound { child, .. }
            | EventKind::Unbound { child, .. },
            _,
        )
        | (
            EventKind::Started { child: ActorName::Child(child) }
            | EventKind::StopSent { child: ActorName::Child(child), .. }
            | EventKind::Killed { child: ActorName::Child(child), .. },
            _,
        )
        | (EventKind::Ended { .. }, ActorName::Child(child)) => Some(child),
        _ => None,
    }
}

/// Whether it means something else before the seal of its generation than behind it.
fn is_bound_by_seal(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Admitted { .. }
            | EventKind::Started { .. }
            | EventKind::Bound { .. }
            | EventKind::Refused { .. }
            | EventKind::UnbindRefused { .. }
            | EventKind::Reserved { .. }
            | EventKind::Released { .. }
            | EventKind::Committed { .. }
            | EventKind::Ended { .. }
    )
}

/// A name within its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name<'a> {
    Process(Epoch, &'a str),
    Operation(Epoch, &'a str),
}

/// Who has a name, as lines: since which line, and who asked in vain since then.
#[derive(Default)]
struct Tenancy {
    since: Option<usize>,
    refusals: Vec<usize>,
}

/// The name whose owner changes in this event.
fn given_or_taken<'a>(event: &'a Event, starting: &HashMap<&ChildName, Name<'a>>) -> Option<Name<'a>> {
    match (&event.kind, &event.actor) {
        (EventKind::Admitted { process, child } | EventKind::Unbound { process, child }, _) => {
            Some(Name::Process(child.epoch, process.as_str()))
        }
        // Whoever never started held its id without being bound to it.
        (EventKind::Ended { exit, .. }, ActorName::Child(child)) if **exit == *"never started" => {
            starting.get(child).copied()
        }
        (EventKind::Reserved { operation, .. } | EventKind::Released { operation, .. }, actor) => {
            Some(Name::Operation(actor.epoch()?, operation.as_str()))
        }
        _ => None,
    }
}

/// The names that a refusal was about: the one that was asked for, and the one that was in the way.
fn asked_for<'a>(
    event: &'a Event,
    events: &'a [Arc<Event>],
    by_id: &HashMap<EventId, usize>,
) -> Vec<Name<'a>> {
    let (EventKind::Refused { what, .. }, Some(epoch)) = (&event.kind, event.actor.epoch()) else {
        return Vec::new();
    };
    let own = match event.actor {
        ActorName::Operations(_) => Name::Operation(epoch, what),
        _ => Name::Process(epoch, what),
    };
    let in_the_way = event.causes.iter().filter_map(|cause| match &events[*by_id.get(cause)?].kind {
        EventKind::Reserved { operation, .. } => Some(Name::Operation(epoch, operation.as_str())),
        _ => None,
    });
    let mut names: Vec<_> = in_the_way.filter(|name| *name != own).collect();
    names.push(own);
    names
}
