//! A stream of events: what came after a place is read from the store, then what comes is heard from the hub.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Api;
use super::hub::{Item, Page, Subscription};
use super::limits::Place;
use super::text::{Only, word};
use crate::model::{Event, RunStatus, Subject};

/// How many events are read from the store at once.
const PAGE: usize = 200;

/// How long a stream waits when the store does not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A stream in progress.
pub(super) struct Stream {
    api: Api,
    watched: Watched,
    subscription: Subscription,
    /// The place of the last event that was told, or passed over.
    last: u64,
    /// When something was told last.
    said: Instant,
    stage: Stage,
    closing: watch::Receiver<bool>,
    keep_alive: Duration,
    _place: Place,
}

/// What a stream tells.
pub(super) struct Watched {
    pub(super) subject: Subject,
    /// Of all events only some.
    pub(super) only: Option<Only>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// What is in the store is told.
    Replay,
    /// What comes is told.
    Live,
    /// The run has ended, and that was told.
    Ended(RunStatus),
    /// Nothing more is told.
    Over,
}

impl Stream {
    /// The events of a subject after a place; without one, what comes from now on.
    pub(super) async fn open(api: &Api, watched: Watched, after: Option<u64>, place: Place) -> Self {
        let subscription = api.hub().subscribe(api.tenure(), watched.subject.clone()).await;
        let (last, stage) = match after {
            Some(after) => (after, Stage::Replay),
            None => (subscription.cursor, Stage::Live),
        };
        let (closing, keep_alive) = (api.closing(), api.options().keep_alive);
        let (api, said) = (api.clone(), Instant::now());
        Self { api, watched, subscription, last, said, stage, closing, keep_alive, _place: place }
    }

    /// The answer whose body it is. The body is asked for more only when the caller has taken what it was sent.
    pub(super) fn into_response(self) -> Response {
        let chunks = futures_util::stream::unfold(Box::new(self), |mut stream| async {
            let chunk = stream.next().await?;
            Some((Ok::<Bytes, std::convert::Infallible>(chunk), stream))
        });
        let mut response = Response::new(Body::from_stream(chunks));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match self.stage {
                Stage::Replay => self.replay().await,
                Stage::Live => self.hear().await,
                Stage::Ended(status) => {
                    self.stage = Stage::Over;
                    return Some(word("end", &json!({ "reason": "settled", "status": status })));
                }
                Stage::Over => return None,
            };
            if !chunk.is_empty() {
                self.said = Instant::now();
                return Some(chunk);
            }
        }
    }

    /// A page of what is in the store; with the last of it the stream is live.
    async fn replay(&mut self) -> Bytes {
        let events = self.api.tenure().events(self.watched.subject.clone(), self.last, PAGE);
        let answer = tokio::select! {
            answer = events => answer,
            () = closed(&mut self.closing) => return self.close(),
        };
        match answer {
            Ok(events) => self.replayed(&events),
            Err(error) => {
                tracing::debug!(%error, "an event stream waits for the store");
                tokio::select! {
                    () = sleep(AFTER_FAILURE) => Bytes::from_static(b": the store does not answer\n\n"),
                    () = closed(&mut self.closing) => self.close(),
                }
            }
        }
    }

    fn replayed(&mut self, events: &[Event]) -> Bytes {
        let all: Vec<&Event> = events.iter().collect();
        let page = Page::of(&self.watched.subject, self.last, &all);
        let text = page.text_after(self.last, self.watched.only.as_ref());
        self.told(&page);
        if let Stage::Replay = self.stage
            && events.len() < PAGE
        {
            // The subscription is older than this look at the store: nothing falls between.
            self.stage = Stage::Live;
        }
        text
    }

    /// What the hub says next, or a sign of life.
    async fn hear(&mut self) -> Bytes {
        let item = tokio::select! {
            item = self.subscription.next() => item,
            () = closed(&mut self.closing) => return self.close(),
            () = sleep_until(self.said + self.keep_alive) => return self.sign_of_life(),
        };
        match item {
            Item::Page(page) if page.after > self.last => {
                // Something is between: it is read from the store.
                self.stage = Stage::Replay;
                Bytes::new()
            }
            Item::Page(page) => {
                let text = page.text_after(self.last, self.watched.only.as_ref());
                self.told(&page);
                text
            }
            // It was told from the store meanwhile.
            Item::Missed(missed) if missed.last <= self.last => Bytes::new(),
            Item::Missed(missed) => {
                self.stage = Stage::Replay;
                self.api.metrics().missed(missed.events);
                match self.watched.only {
                    // How many of them are to be told is not known.
                    Some(_) => Bytes::new(),
                    None => word("missed", &json!({ "missed": missed.events, "after": self.last })),
                }
            }
        }
    }

    /// That the stream goes on; of one that passes events over, also how far it is, so that a reader who comes back
    /// does not begin with those again.
    fn sign_of_life(&self) -> Bytes {
        match self.watched.only {
            Some(_) => format!(": keep-alive\nid: {}\n\n", self.last).into(),
            None => Bytes::from_static(b": keep-alive\n\n"),
        }
    }

    fn told(&mut self, page: &Page) {
        self.last = self.last.max(page.last());
        if let (Subject::Run(_), Some(status)) = (&self.watched.subject, page.ends()) {
            self.stage = Stage::Ended(status);
        }
    }

    fn close(&mut self) -> Bytes {
        self.stage = Stage::Over;
        word("end", &json!({ "reason": "closing" }))
    }
}

/// Waits until the interface is shut down.
pub(super) async fn closed(closing: &mut watch::Receiver<bool>) {
    // The sender lives as long as the interface, which the stream keeps.
    drop(closing.wait_for(|closing| *closing).await);
}
