//! The journal: where events are numbered and handed on.
//!
//! Nobody listening costs one relaxed load and one look at tracing's level an event: no event is built.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::event::{ActorName, Cause, Event, EventId, EventKind};

const TARGET: &str = "tenure";

/// Numbers events and hands them to `tracing`, to subscriptions and to recorders.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    opened: Instant,
    next: AtomicU64,
    /// Somebody subscribed once; stays set, so that a reader that comes and goes costs no lock.
    heard: AtomicBool,
    recording: AtomicBool,
    /// Held while an event is numbered and handed on: whoever listens hears them in the order of their numbers.
    turn: Mutex<()>,
    subscribers: broadcast::Sender<Arc<Event>>,
    recorder: RwLock<Option<Arc<Recorder>>>,
    /// Those who tell of applied commits, once a recorder is attached.
    watchable: Mutex<Vec<Weak<dyn Watchable>>>,
}

/// Tells of what costs nothing while nobody records.
pub(crate) trait Watchable: Send + Sync {
    fn watch(&self);
}

impl std::fmt::Debug for dyn Watchable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watchable")
    }
}

/// Keeps every event, commits included, in order. For tests and for tools that draw what happened.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Mutex<Vec<Arc<Event>>>,
}

impl Recorder {
    /// The events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.events.lock().clone()
    }
}

/// A bounded, live view of the journal.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
}

/// What a [`Subscription`] yields.
#[derive(Debug, Clone)]
pub enum Heard {
    /// The next event.
    Event(Arc<Event>),
    /// The reader was too slow: this many events are gone. The next ones follow.
    Missed(u64),
}

impl Subscription {
    /// The next event, or how many were missed; none once the application is gone.
    ///
    /// Cancel safety: an event is taken only when the future completes.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Like [`Subscription::next`], without waiting.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.receiver.try_recv() {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => None,
        }
    }
}

impl Journal {
    /// A journal whose subscriptions hold back at most `capacity` events each.
    pub(crate) fn open(capacity: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                opened: Instant::now(),
                next: AtomicU64::new(1),
                heard: AtomicBool::new(false),
                recording: AtomicBool::new(false),
                turn: Mutex::new(()),
                subscribers: broadcast::Sender::new(capacity.clamp(1, 1 << 20)),
                recorder: RwLock::new(None),
                watchable: Mutex::default(),
            }),
        }
    }

    /// Follows the journal from here on. A reader that falls behind is told how many events it missed.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        let receiver = self.inner.subscribers.subscribe();
        self.inner.heard.store(true, Ordering::Release);
        Subscription { receiver }
    }

    /// Keeps every event from here on, in memory and without a bound, commits included.
    #[must_use]
    pub fn record(&self) -> Arc<Recorder> {
        let mut recorder = self.inner.recorder.write();
        let recorder = recorder.get_or_insert_with(Arc::default);
        let recorder = Arc::clone(recorder);
        self.inner.recording.store(true, Ordering::Release);
        // Set before anybody is asked: who comes after this list was read looks at the flag.
        let watchable = self.inner.watchable.lock().clone();
        watchable.iter().filter_map(Weak::upgrade).for_each(|one| one.watch());
        recorder
    }

    /// Has `one` told when a recorder is attached; it looks by itself whether one is already.
    pub(crate) fn tell_of_recorder(&self, one: Weak<dyn Watchable>) {
        let mut watchable = self.inner.watchable.lock();
        watchable.retain(|one| one.strong_count() > 0);
        watchable.push(one);
    }

    /// A recorder is attached: applied commits make events too.
    pub(crate) fn is_recording(&self) -> bool {
        self.inner.recording.load(Ordering::Relaxed)
    }

    /// Milliseconds since the journal was opened.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.inner.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_heard(&self) -> bool {
        self.inner.heard.load(Ordering::Relaxed) || self.is_recording()
    }

    /// Records what `event` builds, if anybody listens at debug level. Returns the event's number as the
    /// cause of what follows from it. For what happens in the life of every process.
    pub(crate) fn emit(&self, cause: Cause, event: impl FnOnce() -> (ActorName, EventKind)) -> Cause {
        let traced = tracing::enabled!(target: TARGET, tracing::Level::DEBUG);
        self.hand_out(traced, || cause.into_iter().collect(), event)
    }

    /// [`Journal::emit`] for what is rare: built also where nothing but errors is read.
    pub(crate) fn announce(&self, cause: Cause, event: impl FnOnce() -> (ActorName, EventKind)) -> Cause {
        self.announce_from(|| cause.into_iter().collect(), event)
    }

    /// [`Journal::announce`] with several causes.
    pub(crate) fn announce_from(
        &self,
        causes: impl FnOnce() -> Vec<EventId>,
        event: impl FnOnce() -> (ActorName, EventKind),
    ) -> Cause {
        let traced = tracing::enabled!(target: TARGET, tracing::Level::ERROR);
        self.hand_out(traced, causes, event)
    }

    fn hand_out(
        &self,
        traced: bool,
        causes: impl FnOnce() -> Vec<EventId>,
        event: impl FnOnce() -> (ActorName, EventKind),
    ) -> Cause {
        if !traced && !self.is_heard() {
            return None;
        }
        let (actor, kind) = event();
        if traced {
            trace(&actor, &kind);
        }
        if !self.is_heard() {
            return self.number();
        }
        let mut causes = causes();
        causes.sort_unstable();
        causes.dedup();
        let _turn = self.inner.turn.lock();
        let id = self.number()?;
        self.hand_on(Arc::new(Event { id, at_ms: self.now_ms(), actor, kind, causes }));
        Some(id)
    }

    fn number(&self) -> Cause {
        NonZeroU64::new(self.inner.next.fetch_add(1, Ordering::Relaxed)).map(EventId)
    }

    fn hand_on(&self, event: Arc<Event>) {
        if let Some(recorder) = &*self.inner.recorder.read() {
            recorder.events.lock().push(Arc::clone(&event));
        }
        // Nobody subscribed at this moment is no error.
        let _ = self.inner.subscribers.send(event);
    }
}

/// Level = who must act: an operator reads warnings and errors, a developer the rest.
fn trace(actor: &ActorName, kind: &EventKind) {
    let generation = actor.epoch().map(|epoch| epoch.get());
    let verb = kind.verb();
    macro_rules! at {
        ($level:ident) => {
            tracing::$level!(target: TARGET, generation, %actor, %verb, detail = %kind)
        };
    }
    match kind {
        EventKind::GaveUp { .. } | EventKind::Escalated { .. } => at!(error),
        EventKind::Failed { .. } | EventKind::Killed { .. } | EventKind::Lost { .. } => at!(warn),
        EventKind::Retried { .. } => at!(warn),
        _ => at!(debug),
    }
}
