//! Events as the text of a stream (`text/event-stream`).

use axum::body::Bytes;

use crate::model::{self, RunStatus, Subject};
use crate::view::EventView;

/// Events as text, each found again by its place.
#[derive(Default)]
pub(super) struct Text {
    bytes: Bytes,
    events: Vec<Event>,
}

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct Event {
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
            index.push(Event { place, terminal, end: bytes.len() });
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
        let known = self.events.partition_point(|event| event.place <= place);
        let begin = known.checked_sub(1).and_then(|last| self.events.get(last)).map_or(0, |event| event.end);
        self.bytes.slice(begin..)
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
