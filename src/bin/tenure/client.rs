//! Asks: one way to speak the HTTP interface, to a server or to the very same router in this process.
//!
//! The answers are the same by construction: straight on a store, the router answers over a facade that only
//! looks and writes, and runs nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Url;
use serde_json::Value;
use serde_json::value::RawValue;

mod ask;
mod here;
mod problem;
mod server;
mod sse;

pub(crate) use ask::Ask;
use sse::Message;

use crate::exit::{Exit, Failure};
use here::Here;
use server::Server;

/// The largest answer that is read, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// Who is asked.
pub(crate) struct Client {
    way: Way,
}

enum Way {
    Server(Server),
    Here(Here),
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The body, as it came.
    pub(crate) body: String,
}

/// An answer that has begun.
struct Response {
    status: u16,
    retry_after: Option<String>,
    bytes: BoxStream<'static, Result<bytes::Bytes, Failure>>,
}

impl Client {
    /// Of a server.
    ///
    /// # Errors
    /// When the URL is none of a server.
    pub(crate) fn server(url: &str, token: Option<String>) -> Result<Self, Failure> {
        Ok(Self { way: Way::Server(Server::new(url, token)?) })
    }

    /// Of a router in this process.
    pub(crate) fn here(router: axum::Router) -> Self {
        Self { way: Way::Here(Here::new(router)) }
    }

    /// The server that is asked, if it is one.
    pub(crate) fn url(&self) -> Option<&Url> {
        match &self.way {
            Way::Server(server) => Some(server.url()),
            Way::Here(_) => None,
        }
    }

    /// Asks, and answers what was answered, if that is what was asked for.
    ///
    /// # Errors
    /// When nobody answers, or the answer is a problem.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        let response = self.begin(ask).await?;
        Answer::read(response).await
    }

    /// Asks for bytes, in pieces as they come.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub(crate) async fn pieces(
        &self,
        ask: Ask,
    ) -> Result<BoxStream<'static, Result<bytes::Bytes, Failure>>, Failure> {
        Ok(self.begin(ask.without_limit()).await?.bytes)
    }

    /// Asks for events, as they come.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub(crate) async fn stream(&self, ask: Ask) -> Result<Messages, Failure> {
        let response = self.begin(ask.header("accept", "text/event-stream").without_limit()).await?;
        Ok(Messages { bytes: response.bytes, parser: sse::Parser::default(), read: Vec::new().into_iter() })
    }

    async fn begin(&self, ask: Ask) -> Result<Response, Failure> {
        let response = match &self.way {
            Way::Server(server) => server.begin(ask).await?,
            Way::Here(here) => here.begin(ask).await?,
        };
        if (200..300).contains(&response.status) {
            return Ok(response);
        }
        let (status, retry_after) = (response.status, response.retry_after.clone());
        let body = response.read_whole().await.unwrap_or_default();
        Err(problem::failure(status, retry_after.as_deref(), &body))
    }
}

impl Response {
    async fn read_whole(mut self) -> Result<String, Failure> {
        let mut whole = Vec::new();
        while let Some(piece) = self.bytes.next().await {
            let piece = piece?;
            if whole.len() + piece.len() > MOST_BYTES {
                let message = format!("the answer is longer than {} MiB", MOST_BYTES >> 20);
                return Err(Failure::new(Exit::Failed, message).hint("ask for less at once with --limit"));
            }
            whole.extend_from_slice(&piece);
        }
        String::from_utf8(whole).map_err(|_| Failure::new(Exit::Failed, "the answer is not text in UTF-8"))
    }
}

impl Answer {
    async fn read(response: Response) -> Result<Self, Failure> {
        Ok(Self { body: response.read_whole().await? })
    }

    /// The body, read: for people, with metadata as the text it came in. Scripts are given the body itself, so that
    /// no digit is lost.
    pub(crate) fn value(&self) -> Result<Value, Failure> {
        let mut value: Value = serde_json::from_str(&self.body).map_err(|error| strange(&error))?;
        if let Some(metadata) = value.get_mut("metadata") {
            let fields: BTreeMap<&str, &RawValue> =
                serde_json::from_str(&self.body).map_err(|error| strange(&error))?;
            *metadata = fields.get("metadata").map(|text| text.get()).into();
        }
        Ok(value)
    }
}

/// An answer that is not what this program speaks.
pub(crate) fn strange(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the answer cannot be read: {error}"))
        .hint("check that the URL is one of a tenure server of this version")
}

/// Events as they come.
pub(crate) struct Messages {
    bytes: BoxStream<'static, Result<bytes::Bytes, Failure>>,
    parser: sse::Parser,
    read: std::vec::IntoIter<Message>,
}

impl Messages {
    /// The next one; none once the stream has ended.
    ///
    /// # Errors
    /// When the connection breaks.
    ///
    /// Cancel safety: no message is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, Failure> {
        loop {
            if let Some(message) = self.read.next() {
                return Ok(Some(message));
            }
            let Some(piece) = self.bytes.next().await else { return Ok(None) };
            let read = self.parser.feed(&piece?).map_err(|error| Failure::new(Exit::Failed, error))?;
            self.read = read.into_iter();
        }
    }
}

/// How long an answer is waited for that nothing else delays.
const PATIENCE: Duration = Duration::from_secs(60);
