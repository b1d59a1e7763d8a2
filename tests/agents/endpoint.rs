//! An endpoint on loopback that answers as it is told, and tells what it was asked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt};

/// Longer than anything here takes.
const MOST: Duration = Duration::from_secs(60);

/// What it was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// Answers in the order they are given, the last of them from then on.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    asked: Mutex<mpsc::UnboundedReceiver<Asked>>,
    _serving: JoinSet<()>,
}

pub(crate) type Reply = Box<dyn Fn(&HeaderMap) -> Response<Body> + Send + Sync>;

/// An answer of this status with these headers.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<String>) -> Reply {
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = body.into();
    Box::new(move |_| {
        let mut response = Response::builder().status(status);
        for (name, value) in &headers {
            response = response.header(name, value);
        }
        response.body(Body::from(body.clone())).unwrap()
    })
}

pub(crate) fn json_reply(value: &Value) -> Reply {
    reply(200, &[("content-type", "application/json; charset=utf-8")], value.to_string())
}

/// An event with this part of an answer.
pub(crate) fn delta(text: &str) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }))
}

/// The end of an answer.
pub(crate) fn finish(reason: &str) -> String {
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    format!("data: {last}\n\ndata: [DONE]\n\n")
}

pub(crate) fn stream_reply(events: &[String]) -> Reply {
    reply(200, &[("content-type", "text/event-stream")], events.concat())
}

impl Endpoint {
    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::unbounded_channel();
        let replies = Arc::new((replies, std::sync::atomic::AtomicUsize::new(0)));
        let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let (replies, tell) = (Arc::clone(&replies), tell.clone());
            async move {
                let n = replies.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst).min(replies.0.len() - 1);
                let response = replies.0[n](&headers);
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let _ = tell.send(Asked { path: uri.path().to_owned(), headers, body });
                response
            }
        };
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            axum::serve(listener, Router::new().fallback(answer)).await.unwrap();
        });
        Self { url, asked: Mutex::new(asked), _serving: serving }
    }

    pub(crate) async fn asked(&self) -> Asked {
        let mut asked = self.asked.lock().await;
        tokio::time::timeout(MOST, asked.recv()).await.expect("it is asked in time").unwrap()
    }

    /// How often it was asked and nobody looked.
    pub(crate) async fn unseen(&self) -> usize {
        let mut asked = self.asked.lock().await;
        std::iter::from_fn(|| asked.try_recv().ok()).count()
    }
}

/// An answer that the test writes, piece by piece; an error breaks the connection.
pub(crate) struct Live {
    pub(crate) pieces: mpsc::UnboundedSender<Result<String, std::io::Error>>,
    dropped: mpsc::UnboundedReceiver<()>,
}

impl Live {
    pub(crate) fn new() -> (Self, Reply) {
        let (pieces, receive) = mpsc::unbounded_channel();
        let (drop_told, dropped) = mpsc::unbounded_channel();
        let receive = std::sync::Mutex::new(Some((receive, drop_told)));
        let reply: Reply = Box::new(move |_| {
            let (receive, drop_told) = receive.lock().unwrap().take().expect("it is asked once");
            let pieces = tokio_stream::wrappers::UnboundedReceiverStream::new(receive);
            let body = Body::from_stream(Watched { pieces, _drop_told: drop_told });
            Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
        });
        (Self { pieces, dropped }, reply)
    }

    pub(crate) fn say(&self, piece: String) {
        self.pieces.send(Ok(piece)).unwrap();
    }

    pub(crate) fn die(&self) {
        self.pieces.send(Err(std::io::Error::other("dies"))).unwrap();
    }

    /// Waits until nobody listens any more.
    pub(crate) async fn hung_up(&mut self) {
        let dropped = tokio::time::timeout(MOST, self.dropped.recv());
        assert!(dropped.await.expect("it hangs up in time").is_none());
    }
}

struct Watched {
    pieces: tokio_stream::wrappers::UnboundedReceiverStream<Result<String, std::io::Error>>,
    /// Closed when the stream is dropped.
    _drop_told: mpsc::UnboundedSender<()>,
}

impl Stream for Watched {
    type Item = Result<String, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.pieces).poll_next(context)
    }
}

/// The first of what comes, for who reads bit by bit.
pub(crate) async fn until(mut look: impl FnMut() -> bool) {
    let ticks = tokio::time::interval(Duration::from_millis(5));
    let mut ticks = tokio_stream::wrappers::IntervalStream::new(ticks);
    let found = async {
        while !look() {
            ticks.next().await;
        }
    };
    tokio::time::timeout(MOST, found).await.expect("it comes in time");
}
