//! Events as the text of a stream (`text/event-stream`).

use axum::body::Bytes;

use crate::model::{self, RunStatus, Subject, TaskId};
use crate::view::EventView;

/// Which of all events are told.
#[derive(Clone)]
pub(super) enum Only {
    /// Those of this task and its runs.
    Task(TaskId),
    /// Those of what hosts own.
    Owned,
}

impl Only {
    pub(super) fn meets(&self, task_id: &TaskId) -> bool {
        match self {
            Self::Task(only) => only == task_id,
            Self::Owned => task_id.is_reserved(),
        }
    }
}

/// Events as text, each found again by its place.
#[derive(Default)]
pub(super) struct Text {
    bytes: Bytes,
    events: Vec<Event>,
}

/// One of them.
pub(super) struct Event {
    task_id: TaskId,
    /// Its number within its run, or its cursor among all.
    pub(super) place: u64,
    /// How it left its run, if for good.
    pub(super) terminal: Option<RunStatus>,
    end: usize,
}

impl Text {
    pub(super) fn of<'a>(subject: &Subject, events: impl IntoIterator<Item = &'a &'a model::Event>) -> Self {
        let mut bytes = Vec::new();
        let mut index = Vec::new();
        for event in events {
            let place = if *subject == Subject::All { event.cursor } else { event.sequence };
            write(&mut bytes, place, event);
            let terminal = event.status.filter(|status| status.is_terminal());
            index.push(Event { task_id: event.task_id.clone(), place, terminal, end: bytes.len() });
        }
        Self { bytes: bytes.into(), events: index }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn last(&self) -> Option<&Event> {
        self.events.last()
    }

    /// What comes after a place.
    pub(super) fn after(&self, place: u64) -> Bytes {
        self.bytes.slice(self.begin_of(self.known(place))..)
    }

    /// What of it is to be told.
    pub(super) fn only_after(&self, only: &Only, place: u64) -> Bytes {
        let mut found = Vec::new();
        for (n, event) in self.events.iter().enumerate().skip(self.known(place)) {
            if only.meets(&event.task_id) {
                found.extend_from_slice(&self.bytes[self.begin_of(n)..event.end]);
            }
        }
        found.into()
    }

    /// How many of them are not after a place.
    fn known(&self, place: u64) -> usize {
        self.events.partition_point(|event| event.place <= place)
    }

    fn begin_of(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|before| self.events.get(before)).map_or(0, |before| before.end)
    }
}

/// JSON has no line breaks of its own, so that an event is one line of data.
fn write(bytes: &mut Vec<u8>, place: u64, event: &model::Event) {
    let kind = serde_json::to_value(event.event).unwrap_or_default();
    let kind = kind.as_str().unwrap_or("message");
    bytes.extend_from_slice(format!("id: {place}\nevent: {kind}\ndata: ").as_bytes());
    // Writing to memory fails only if a view cannot be written at all; the event is then told without its data.
    let _told = serde_json::to_writer(&mut *bytes, &EventView::from(event));
    bytes.extend_from_slice(b"\n\n");
}

/// A word of the stream's own: not an event of the store, so that it has no place.
pub(super) fn word(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
