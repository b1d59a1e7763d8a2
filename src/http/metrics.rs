//! What is counted, for Prometheus: requests here; claims and attempts in the host, through the `metrics` facade.
//!
//! What the interface counts is its own, also where several hosts live in one OS process. What the host counts goes
//! to the recorder of the OS process: ours if the program has set none.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::Api;
use crate::instance::StoreHealth;
use crate::tenure::Status;

/// Upper bounds of durations, in seconds: from a request that hits memory to an attempt of an hour.
const BOUNDS: [f64; 16] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0];

/// The recorder of the OS process, if it is ours.
static HOST: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// What one interface counts.
pub(super) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    host: Option<PrometheusHandle>,
}

/// A request that was answered.
pub(super) struct Served<'a> {
    /// The route, not the path: there are few.
    pub(super) route: &'a str,
    pub(super) method: &'a str,
    pub(super) status: u16,
    pub(super) took: Duration,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let recorder = builder().build_recorder();
        let host = HOST.get_or_init(|| builder().install_recorder().ok()).clone();
        metrics::with_local_recorder(&recorder, describe);
        describe_host();
        Self { handle: recorder.handle(), recorder, host }
    }

    pub(super) fn served(&self, request: &Served<'_>) {
        let labels = [
            ("route", request.route.to_owned()),
            ("method", request.method.to_owned()),
            ("status", request.status.to_string()),
        ];
        metrics::with_local_recorder(&self.recorder, || {
            counter!("tenure_http_requests_total", &labels).increment(1);
            let route = [("route", request.route.to_owned()), ("method", request.method.to_owned())];
            histogram!("tenure_http_request_seconds", &route).record(request.took.as_secs_f64());
        });
    }

    /// Events that slow readers were not sent at once.
    pub(super) fn missed(&self, events: u64) {
        metrics::with_local_recorder(&self.recorder, || {
            counter!("tenure_http_stream_missed_events_total").increment(events);
        });
    }

    /// Folds what was recorded, so that it takes no more room than its bounds.
    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
        self.host.iter().for_each(PrometheusHandle::run_upkeep);
    }

    /// All of it as text. Counts of the store are left out when it does not answer.
    pub(super) fn render(&self, api: &Api, status: Option<&Status>) -> String {
        metrics::with_local_recorder(&self.recorder, || look(api, status));
        let mut text = self.handle.render();
        if let Some(host) = &self.host {
            text.push_str(&host.render());
        }
        text
    }
}

fn builder() -> PrometheusBuilder {
    // Only an empty list is refused.
    PrometheusBuilder::new().set_buckets(&BOUNDS).unwrap_or_else(|_| PrometheusBuilder::new())
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn look(api: &Api, status: Option<&Status>) {
    let health = api.tenure().health();
    let answering = health.store == StoreHealth::Answering;
    gauge!("tenure_store_up").set(f64::from(u8::from(answering && status.is_some())));
    gauge!("tenure_draining").set(f64::from(u8::from(health.draining)));
    gauge!("tenure_executing_attempts").set(health.executing as f64);
    gauge!("tenure_unstored_outcomes").set(health.unstored as f64);
    gauge!("tenure_agents").set(api.tenure().agents().len() as f64);
    gauge!("tenure_http_event_streams").set(api.streams().taken() as f64);
    gauge!("tenure_http_waits").set(api.waits().taken() as f64);
    for run_status in crate::model::RunStatus::ALL {
        let Some(status) = status else { return };
        let count = status.counts.iter().find(|(of, _)| *of == run_status).map_or(0, |(_, count)| *count);
        gauge!("tenure_runs", "status" => run_status.as_str()).set(count as f64);
    }
}

fn describe() {
    describe_counter!("tenure_http_requests_total", "requests answered, by route, method and status");
    describe_histogram!("tenure_http_request_seconds", "how long requests took to the head of their answer");
    describe_counter!(
        "tenure_http_stream_missed_events_total",
        "events that slow readers of streams were not sent at once"
    );
    describe_gauge!("tenure_http_event_streams", "open event streams");
    describe_gauge!("tenure_http_waits", "requests that wait for a run");
    describe_gauge!("tenure_runs", "runs in the store, by status");
    describe_gauge!("tenure_store_up", "1 if the store answers");
    describe_gauge!("tenure_draining", "1 if this host starts nothing new");
    describe_gauge!("tenure_executing_attempts", "attempts that execute here");
    describe_gauge!("tenure_unstored_outcomes", "outcomes that wait for the store");
    describe_gauge!("tenure_agents", "agents registered here");
}

fn describe_host() {
    describe_counter!("tenure_claims_total", "runs that were granted to hosts of this OS process");
    describe_counter!(
        "tenure_firings_forestalled_total",
        "schedules that were to be fired here and that another host fired first"
    );
    describe_counter!("tenure_attempts_total", "attempts that ended, by outcome");
    describe_histogram!("tenure_attempt_seconds", "how long attempts took");
    describe_counter!(
        "tenure_ownership_revoked_total",
        "runs of released sessions that did not stop in time and lost their authority"
    );
    describe_counter!("tenure_ownership_undelivered_total", "outcomes that expired and nobody acknowledged");
    describe_counter!("tenure_ownership_unremoved_total", "times that a hook failed to remove what is over");
}
