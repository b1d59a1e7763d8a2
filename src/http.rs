//! The HTTP interface, as a router that any host may serve (contract durable-tasks.md, section 10).
//!
//! ```text
//! request -> around (who may ask, panics, problem documents, what is counted) -> in time -> handler -> facade
//! ```
//!
//! A handler reads strictly what was asked, asks the facade, and shows the answer; it decides nothing. What a caller
//! can do wrong is a problem document, made in one place. [`openapi()`] is made from the handlers, so that it names
//! what is served and nothing else.
//!
//! Hosts in other languages ask for the verbs of ownership below `/ownership`: one path a verb, on the same records.
//!
//! Event streams are fed by one reader of the store for all of them; a slow reader slows nobody, and goes on from the
//! store.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::agents::Directory;
use crate::ownership::{Ownership, OwnershipSettings};
use crate::tenure::Tenure;

mod accept;
mod agents;
mod answer;
mod auth;
mod body;
mod events;
mod fields;
mod files;
mod hub;
mod late;
mod limits;
mod metrics;
mod names;
mod openapi;
mod options;
mod ownership;
mod pages;
mod problem;
mod query;
mod runs;
mod schemas;
mod serve;
mod status;
mod stream;
mod tasks;
mod text;
mod wanted;
mod wording;

pub use openapi::openapi;
pub use options::{HttpOptions, OwnershipOptions, Token};

use hub::Hub;
use limits::Room;
use metrics::{Metrics, Served};
use problem::{Kind, Problem};

/// The HTTP interface of one host. A cheap clone.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    tenure: Tenure,
    directory: Arc<Directory>,
    options: RwLock<Arc<HttpOptions>>,
    ownership: RwLock<Option<Ownership>>,
    hub: Hub,
    metrics: Metrics,
    waits: Room,
    streams: Room,
    connections: Room,
    closing: watch::Sender<bool>,
}

/// Marks an answer that is no problem document though its status is that of one.
#[derive(Clone, Copy)]
struct AsItIs;

impl Api {
    /// The interface of a host, with its agents.
    #[must_use]
    pub fn new(tenure: Tenure, directory: Arc<Directory>, options: HttpOptions) -> Self {
        let inner = Inner {
            ownership: RwLock::new(owning(&tenure, &options)),
            tenure,
            directory,
            options: RwLock::new(Arc::new(options)),
            hub: Hub::default(),
            metrics: Metrics::new(),
            waits: Room::default(),
            streams: Room::default(),
            connections: Room::default(),
            closing: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Everything that is served.
    pub fn router(&self) -> Router {
        let bounded = openapi::bounded().layer(from_fn_with_state(self.clone(), limits::in_time));
        let (router, _) = bounded.merge(openapi::waiting()).split_for_parts();
        router.fallback(nothing_here).layer(from_fn_with_state(self.clone(), around)).with_state(self.clone())
    }

    /// Replaces the options. Requests in progress go on under those they began with.
    pub fn reload(&self, options: HttpOptions) {
        *self.inner.ownership.write() = owning(self.tenure(), &options);
        *self.inner.options.write() = Arc::new(options);
    }

    /// Ends event streams and waits: their callers are told. [`Api::serve`] does it when it is shut down.
    pub fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    pub(crate) fn options(&self) -> Arc<HttpOptions> {
        Arc::clone(&self.inner.options.read())
    }

    fn tenure(&self) -> &Tenure {
        &self.inner.tenure
    }

    /// The verbs of ownership, if they are served.
    fn ownership(&self) -> Option<Ownership> {
        self.inner.ownership.read().clone()
    }

    fn directory(&self) -> &Directory {
        &self.inner.directory
    }

    fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    fn waits(&self) -> &Room {
        &self.inner.waits
    }

    fn streams(&self) -> &Room {
        &self.inner.streams
    }

    fn connections(&self) -> &Room {
        &self.inner.connections
    }

    fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }
}

fn owning(tenure: &Tenure, options: &HttpOptions) -> Option<Ownership> {
    let served = options.ownership.as_ref()?;
    let settings = OwnershipSettings {
        namespace: served.namespace.clone(),
        grace: tenure.settings().grace(),
        outcome_limit: served.max_outcome_bytes,
        poll: tenure.settings().poll,
        blobs: None,
    };
    Some(Ownership::of(tenure, settings))
}

async fn nothing_here() -> axum::http::StatusCode {
    axum::http::StatusCode::NOT_FOUND
}

/// What every request passes: who may ask, what a failure is shown as, what is counted.
async fn around(State(api): State<Api>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let route = parts.extensions.get::<MatchedPath>().cloned();
    let response = match admit(&api, &parts, route.as_ref()) {
        Ok(()) => answer(Request::from_parts(parts, body), next).await,
        Err(problem) => problem.into_response(),
    };
    let response = match response.extensions().get::<AsItIs>() {
        Some(AsItIs) => response,
        None => problem::dress(response, &path),
    };
    let took = began.elapsed();
    let status = response.status().as_u16();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    tracing::debug!(%method, path, status, ?took, "request");
    api.metrics().served(&Served { route, method: method.as_str(), status, took });
    response
}

fn admit(api: &Api, parts: &axum::http::request::Parts, route: Option<&MatchedPath>) -> Result<(), Problem> {
    auth::admit(&api.options(), parts)?;
    match route {
        Some(route) if answers_json(route.as_str()) => accepts_json(&parts.headers),
        _ => Ok(()),
    }
}

/// Whether nothing but JSON is answered there.
fn answers_json(route: &str) -> bool {
    let streams = route.ends_with("/events") || route.ends_with("/watch");
    is_work(route) && !streams && !route.ends_with("{*path}")
}

/// Whether it is asked of the store there, and not of how the host is.
fn is_work(route: &str) -> bool {
    ["/background/", "/ownership/"].iter().any(|work| route.starts_with(work))
}

fn accepts_json(headers: &HeaderMap) -> Result<(), Problem> {
    accept::choose(headers, &["application/json", problem::MEDIA_TYPE]).map(drop)
}

/// The answer, also of a handler that panics.
async fn answer(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!("a request failed with a panic");
            Problem::new(Kind::Internal, "the answer could not be made; the log says more").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::settings::Settings;
    use crate::store::MemoryStore;
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_handler_that_panics_is_a_problem_of_this_side_alone() {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let tenure = Tenure::open(store, Settings::default()).await.unwrap();
        let directory = Directory::open(tenure.clone()).await.unwrap();
        let api = Api::new(tenure.clone(), directory, HttpOptions::default());
        async fn fails() -> axum::http::StatusCode {
            panic!("a secret")
        }
        let router = Router::new()
            .route("/fails", axum::routing::get(fails))
            .layer(from_fn_with_state(api.clone(), around));
        let request = Request::get("/fails").header("host", "localhost").body(Body::empty()).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 500);
        assert_eq!(answer.headers()["content-type"], problem::MEDIA_TYPE);
        let body = to_bytes(answer.into_body(), 1 << 16).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains("urn:tenure:problem:internal") && !body.contains("a secret"), "{body}");
        tenure.shutdown().await.unwrap();
    }
}
