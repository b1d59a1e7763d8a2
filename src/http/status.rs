//! How the host is: its status, its tree, and what watchers of hosts ask for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::openapi::OpenApi;

use super::problem::Answer;
use super::{Api, answer, openapi, query, schemas};
use crate::instance::{Health, StoreHealth};
use crate::model::{InstanceId, RunStatus, Seconds};
use crate::settings::Duty;

/// How many tasks are counted.
const MOST_TASKS: u64 = 10_000;

/// How a host is, in the shape that clients know.
#[derive(Serialize)]
struct Manager {
    running: bool,
    initialized: bool,
    worker_id: InstanceId,
    lease_seconds: Seconds,
    agents: usize,
    tasks: u64,
    runs: u64,
    active_runs: u64,
    status_counts: BTreeMap<RunStatus, u64>,
    health: Health,
    version: &'static str,
}

/// Every status with its count.
pub(super) fn by_status(counts: &[(RunStatus, u64)]) -> BTreeMap<RunStatus, u64> {
    let mut all: BTreeMap<RunStatus, u64> = RunStatus::ALL.into_iter().map(|status| (status, 0)).collect();
    all.extend(counts.iter().copied());
    all
}

/// How many of them are active.
pub(super) fn active(counts: &[(RunStatus, u64)]) -> u64 {
    counts.iter().filter(|(status, _)| status.is_active()).map(|(_, count)| count).sum()
}

/// How many there are.
pub(super) fn all(counts: &[(RunStatus, u64)]) -> u64 {
    counts.iter().map(|(_, count)| count).sum()
}

/// How this host is, with the counts of its store
#[utoipa::path(get, path = "/background/status", tag = "host", operation_id = "status", responses(
    (status = 200, body = schemas::Manager),
))]
pub(super) async fn status(State(api): State<Api>, parts: Parts) -> Answer {
    query::nothing(&parts)?;
    let status = api.tenure().status().await?;
    let (tasks, _) = api.tenure().count_tasks(MOST_TASKS).await?;
    let settings = api.tenure().settings();
    answer::ok(&Manager {
        // Who only looks at a store runs nothing.
        running: !status.health.draining && settings.duty != Duty::Nothing,
        initialized: true,
        worker_id: status.instance,
        lease_seconds: Seconds::from_ms(crate::instance::ms(settings.lease)),
        agents: status.agents.len(),
        tasks,
        runs: all(&status.counts),
        active_runs: active(&status.counts),
        status_counts: by_status(&status.counts),
        health: status.health,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// The live supervision tree of this host
#[utoipa::path(get, path = "/background/tree", tag = "host", operation_id = "tree", responses(
    (status = 200, body = schemas::Tree),
))]
pub(super) async fn tree(State(api): State<Api>, parts: Parts) -> Answer {
    query::nothing(&parts)?;
    answer::ok(&api.tenure().tree())
}

/// That this OS process answers
#[utoipa::path(get, path = "/healthz", tag = "host", operation_id = "healthz", security(()), responses(
    (status = 200, body = schemas::Alive),
))]
pub(super) async fn healthz() -> Answer {
    answer::ok(&BTreeMap::from([("status", "ok")]))
}

/// Whether this host is ready. Whoever asks shows no token: what the store says is told by the status alone.
#[derive(Serialize)]
struct Ready {
    ready: bool,
    store: &'static str,
    draining: bool,
}

/// Whether this host takes and does work: its store answers, and it is not shutting down
#[utoipa::path(get, path = "/readyz", tag = "host", operation_id = "readyz", security(()), responses(
    (status = 200, body = schemas::Ready),
    (status = 503, description = "the store does not answer, or the host is shutting down",
     body = schemas::Ready),
))]
pub(super) async fn readyz(State(api): State<Api>) -> Answer {
    // A host that nobody uses does not notice by itself that its store is gone.
    let answers = api.tenure().probe().await.is_ok();
    let health = api.tenure().health();
    let answering = answers && health.store == StoreHealth::Answering;
    let (ready, draining) = (answering && !health.draining, health.draining);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let store = if answering { "answering" } else { "failing" };
    let mut response = answer::json(status, &Ready { ready, store, draining })?;
    response.extensions_mut().insert(super::AsItIs);
    Ok(response)
}

/// What is counted, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "host", operation_id = "metrics", responses(
    (status = 200, content_type = "text/plain", body = String),
))]
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let status = api.tenure().status().await.ok();
    let text = api.metrics().render(&api, status.as_ref());
    let mut response = Response::new(Body::from(text));
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

/// This interface as an OpenAPI document
#[utoipa::path(get, path = "/openapi.json", tag = "host", operation_id = "openapi", responses(
    (status = 200, content_type = "application/json", body = schemas::Anything),
))]
pub(super) async fn document() -> Answer {
    static DOCUMENT: LazyLock<OpenApi> = LazyLock::new(openapi::openapi);
    answer::ok(&*DOCUMENT)
}
