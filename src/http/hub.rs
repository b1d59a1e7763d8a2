//! One reader of all events for all streams of a host: the store is read once, however many listen, and each event
//! is written as text once.
//!
//! # Invariants
//!
//! 1. A subscription that was answered is given every event that is stored afterwards, or is told how many it missed.
//! 2. Nobody waits for a subscriber: one whose queue is full loses what is in it, and reads it from the store.
//! 3. The reader lives while there are subscribers. It reads no more often than it can hand on at a twentieth of a
//!    core, so that a thousand streams take nothing from the runs that they watch.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::text::{Only, Text};
use crate::model::{self, Subject};
use crate::tenure::Tenure;

/// The most that is kept for a subscriber that does not take it.
const MOST_PAGES: usize = 64;
const MOST_BYTES: usize = 256 << 10;

/// How long handing a page on to a subscriber keeps the reader from reading on: twenty times what it takes.
const PAUSE_FOR_EACH: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long a reader may be left with nobody who listens.
const LOOK: Duration = Duration::from_secs(10);

/// How long the reader waits when the store does not answer.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The hub of a host.
#[derive(Default)]
pub(super) struct Hub {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The reader, while it lives; it ends with the hub.
    reader: JoinSet<()>,
    /// The cursor of the newest event that was handed on; none while the reader looks where to begin.
    cursor: Option<watch::Sender<Option<u64>>>,
    subscribers: HashMap<Subject, HashMap<u64, Arc<Slot>>>,
    last_id: u64,
}

/// What waits for a subscriber.
#[derive(Default)]
struct Slot {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Default)]
struct Queue {
    pages: VecDeque<Arc<Page>>,
    bytes: usize,
    missed: Missed,
}

/// Events that were not kept for a subscriber: they are in the store.
#[derive(Clone, Copy, Default)]
pub(super) struct Missed {
    /// How many.
    pub(super) events: u64,
    /// The place of the last of them.
    pub(super) last: u64,
}

/// What a subscriber is given.
pub(super) enum Item {
    /// Events, in order.
    Page(Arc<Page>),
    /// That events were not kept for it.
    Missed(Missed),
}

/// Events of one subject that follow each other, as text.
pub(super) struct Page {
    /// The place of the event before the first.
    pub(super) after: u64,
    text: Text,
}

impl Page {
    pub(super) fn of(subject: &Subject, after: u64, events: &[&model::Event]) -> Self {
        Self { after, text: Text::of(subject, events) }
    }

    /// The place of the last event.
    pub(super) fn last(&self) -> u64 {
        self.text.last().map_or(self.after, |event| event.place)
    }

    /// How the last event left the run.
    pub(super) fn ends(&self) -> Option<model::RunStatus> {
        self.text.last().and_then(|event| event.terminal)
    }

    fn count(&self) -> u64 {
        u64::try_from(self.text.len()).unwrap_or(u64::MAX)
    }

    /// The text of what comes after a place; of some events alone, if that is asked for.
    pub(super) fn text_after(&self, place: u64, only: Option<&Only>) -> Bytes {
        match only {
            Some(only) => self.text.only_after(only, place),
            None => self.text.after(place),
        }
    }
}

/// A subscription. Gone when it is dropped.
pub(super) struct Subscription {
    shared: Weak<Shared>,
    subject: Subject,
    id: u64,
    slot: Arc<Slot>,
    /// The cursor up to which everything was stored when it was made.
    pub(super) cursor: u64,
}

impl Hub {
    /// Subscribes to the events of a run, or to all.
    pub(super) async fn subscribe(&self, tenure: &Tenure, subject: Subject) -> Subscription {
        let slot = Arc::<Slot>::default();
        let (id, mut cursor) = {
            let mut state = self.shared.state.lock();
            state.last_id += 1;
            let id = state.last_id;
            state.subscribers.entry(subject.clone()).or_default().insert(id, Arc::clone(&slot));
            (id, self.shared.reader(&mut state, tenure))
        };
        let shared = Arc::downgrade(&self.shared);
        let mut subscription = Subscription { shared, subject, id, slot, cursor: 0 };
        // The sender lives as long as there is a subscriber, and this is one.
        if let Ok(begun) = cursor.wait_for(Option::is_some).await {
            subscription.cursor = begun.unwrap_or_default();
        }
        subscription
    }
}

impl Subscription {
    /// What comes next.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(super) async fn next(&self) -> Item {
        loop {
            if let Some(item) = self.slot.take() {
                return item;
            }
            self.slot.filled.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut state = shared.state.lock();
        if let Some(slots) = state.subscribers.get_mut(&self.subject) {
            slots.remove(&self.id);
            if slots.is_empty() {
                state.subscribers.remove(&self.subject);
            }
        }
    }
}

impl Slot {
    fn take(&self) -> Option<Item> {
        let mut queue = self.queue.lock();
        // What was missed came before what is kept.
        if queue.missed.events > 0 {
            return Some(Item::Missed(std::mem::take(&mut queue.missed)));
        }
        let page = queue.pages.pop_front()?;
        queue.bytes = queue.bytes.saturating_sub(page.text.bytes());
        Some(Item::Page(page))
    }

    fn put(&self, page: &Arc<Page>) {
        let mut queue = self.queue.lock();
        if queue.pages.len() >= MOST_PAGES || queue.bytes >= MOST_BYTES {
            let lost = std::mem::take(&mut queue.pages);
            queue.missed.events += lost.iter().map(|page| page.count()).sum::<u64>();
            queue.missed.last = lost.back().map_or(0, |page| page.last());
            queue.bytes = 0;
        }
        queue.bytes += page.text.bytes();
        queue.pages.push_back(Arc::clone(page));
        drop(queue);
        self.filled.notify_one();
    }
}

impl Shared {
    /// Where the reader is; it is started if there is none.
    fn reader(self: &Arc<Self>, state: &mut State, tenure: &Tenure) -> watch::Receiver<Option<u64>> {
        if let Some(cursor) = &state.cursor {
            return cursor.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        state.cursor = Some(sender);
        // One that ended because nobody listened.
        while state.reader.try_join_next().is_some() {}
        state.reader.spawn(read(Arc::downgrade(self), tenure.clone()));
        receiver
    }

    /// Hands events on; answers how many subscribers there are, if there are any.
    fn hand_on(&self, after: u64, events: &[model::Event]) -> Option<u32> {
        let mut state = self.state.lock();
        if state.subscribers.is_empty() {
            state.cursor = None;
            return None;
        }
        if let Some(slots) = state.subscribers.get(&Subject::All)
            && !events.is_empty()
        {
            let all: Vec<&model::Event> = events.iter().collect();
            give(slots, Page::of(&Subject::All, after, &all));
        }
        for (run_id, events) in by_run(events, &state.subscribers) {
            let subject = Subject::Run(run_id.clone());
            let before = events.first().map_or(0, |event| event.sequence.saturating_sub(1));
            if let Some(slots) = state.subscribers.get(&subject) {
                give(slots, Page::of(&subject, before, &events));
            }
        }
        let last = events.last().map_or(after, |event| event.cursor);
        if let Some(cursor) = &state.cursor {
            cursor.send_replace(Some(last));
        }
        let subscribers = state.subscribers.values().map(HashMap::len).sum::<usize>();
        Some(u32::try_from(subscribers).unwrap_or(u32::MAX))
    }
}

fn give(slots: &HashMap<u64, Arc<Slot>>, page: Page) {
    let page = Arc::new(page);
    slots.values().for_each(|slot| slot.put(&page));
}

type ByRun<'a> = HashMap<&'a model::RunId, Vec<&'a model::Event>>;

/// The events of the runs that somebody watches.
fn by_run<'a>(
    events: &'a [model::Event],
    subscribers: &HashMap<Subject, HashMap<u64, Arc<Slot>>>,
) -> ByRun<'a> {
    let mut found = ByRun::new();
    for event in events {
        let Some(run_id) = &event.run_id else { continue };
        if found.contains_key(run_id) || subscribers.contains_key(&Subject::Run(run_id.clone())) {
            found.entry(run_id).or_default().push(event);
        }
    }
    found
}

/// Reads events and hands them on, until nobody listens or the hub is gone.
async fn read(shared: Weak<Shared>, tenure: Tenure) {
    let Some(mut last) = begin(&shared, &tenure).await else { return };
    let mut stream = tenure.follow(Subject::All, last);
    loop {
        // Nobody may listen any more while nothing happens.
        let page = match tokio::time::timeout(LOOK, stream.next_page()).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => {
                tenure.instance.outage.seldom("event streams wait", &error);
                sleep(AFTER_FAILURE).await;
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let Some(shared) = shared.upgrade() else { return };
        let Some(subscribers) = shared.hand_on(last, &page) else { return };
        drop(shared);
        if let Some(newest) = page.last() {
            last = newest.cursor;
            sleep(PAUSE_FOR_EACH.saturating_mul(subscribers).min(LONGEST_PAUSE)).await;
        }
    }
}

/// The cursor of the newest event; told to who waits for it.
async fn begin(shared: &Weak<Shared>, tenure: &Tenure) -> Option<u64> {
    loop {
        match tenure.newest_cursor().await {
            Ok(cursor) => {
                shared.upgrade()?.hand_on(cursor, &[])?;
                return Some(cursor);
            }
            Err(error) => {
                tenure.instance.outage.seldom("event streams wait", &error);
                let shared = shared.upgrade()?;
                let mut state = shared.state.lock();
                if state.subscribers.is_empty() {
                    state.cursor = None;
                    return None;
                }
            }
        }
        sleep(AFTER_FAILURE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::model::TaskSpec;
    use crate::settings::Settings;
    use crate::store::MemoryStore;
    use crate::tenure::RunRequest;

    #[tokio::test]
    async fn who_does_not_take_what_comes_is_told_how_much_was_missed_and_where_it_goes_on() {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let tenure = Tenure::open(store, Settings::default()).await.unwrap();
        let spec =
            r#"{ "task_id": "t", "agent_id": "nobody", "query": "q", "overlap_policy": "allow_parallel" }"#;
        let task = tenure.create_task(TaskSpec::parse(spec).unwrap()).await.unwrap();
        let hub = Hub::default();
        let slow = hub.subscribe(&tenure, Subject::All).await;
        let quick = hub.subscribe(&tenure, Subject::All).await;
        assert_eq!(slow.cursor, tenure.newest_cursor().await.unwrap());
        let mut last = slow.cursor;
        for _ in 0..=MOST_PAGES {
            tenure.run_now(&task.spec.task_id, RunRequest::default()).await.unwrap();
            // Each run is handed on before the next is wanted.
            let Item::Page(page) = quick.next().await else { panic!("the quick one missed something") };
            assert_eq!(page.after, last);
            last = page.last();
        }
        let Item::Missed(missed) = slow.next().await else { panic!("the queue has no end") };
        let Item::Page(page) = slow.next().await else { panic!("nothing is kept") };
        assert_eq!(missed.events, u64::try_from(MOST_PAGES).unwrap());
        assert_eq!((missed.last, page.last()), (page.after, last));
        drop((slow, quick));
        assert!(hub.shared.state.lock().subscribers.is_empty());
        tenure.shutdown().await.unwrap();
    }
}
