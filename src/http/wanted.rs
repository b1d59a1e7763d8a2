//! A run that is wanted: what a request says of it, and how long it waits for that.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use super::body::Given;
use super::limits::{self, within};
use super::problem::{Answer, Problem};
use super::stream::closed;
use super::{Api, answer};
use crate::error::Error;
use crate::model::{Place, Run, RunStatus, Seconds, WaitReason, Waiting};
use crate::tenure::RunRequest;
use crate::view::RunView;

/// The longest text, in bytes: as long as a task's.
const MOST_QUERY_BYTES: usize = 1 << 20;
const MOST_KEY_BYTES: usize = 255;

/// How long a store that does not answer is left alone by who waits for a run.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// How long the last look at a run may take: who waited is answered in time, whatever the store does.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// What a request says of the run that it wants.
pub(super) struct Wanted {
    fields: WantedFields,
    key: Option<Arc<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WantedFields {
    query: Option<Arc<str>>,
    wait: bool,
    timeout_seconds: Option<Seconds>,
    override_pause: bool,
}

impl Wanted {
    pub(super) fn read(given: &Given, headers: &HeaderMap) -> Result<Self, Problem> {
        let fields: WantedFields = given.read()?;
        if let Some(query) = &fields.query {
            let fits = !query.trim().is_empty() && query.len() <= MOST_QUERY_BYTES;
            if !fits {
                let expected = format!("text that is not blank, of at most {MOST_QUERY_BYTES} bytes");
                return Err(Problem::field("query", expected));
            }
        }
        Ok(Self { fields, key: key(headers)? })
    }

    pub(super) const fn overrides_pause(&self) -> bool {
        self.fields.override_pause
    }

    pub(super) fn request(&self) -> RunRequest {
        RunRequest {
            query: self.fields.query.clone(),
            idempotency_key: self.key.clone(),
            override_pause: self.fields.override_pause,
        }
    }
}

/// The idempotency key of a request.
fn key(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    const NAME: &str = "idempotency-key";
    let mut given = headers.get_all(NAME).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let text = first.to_str().ok().filter(|_| given.next().is_none()).map(str::trim);
    match text {
        Some(text) if (1..=MOST_KEY_BYTES).contains(&text.len()) => Ok(Some(text.into())),
        _ => Err(Problem::field(
            "Idempotency-Key",
            format!("one header of 1 to {MOST_KEY_BYTES} visible ASCII characters"),
        )),
    }
}

/// Wants a run, and waits for it if that is asked for. Nothing is wanted when there is no room to wait.
pub(super) async fn begin(
    api: &Api,
    wanted: &Wanted,
    want: impl Future<Output = Result<Run, Error>>,
) -> Answer {
    let WantedFields { wait, timeout_seconds, .. } = wanted.fields;
    let place = wait.then(|| place(api)).transpose()?;
    let run = within(api, want).await?;
    let (run, settled) = match place {
        Some(_) => wait_for(api, run, timeout_seconds.map(Seconds::duration)).await?,
        None => (run, false),
    };
    let place = format!("/background/runs/{}", run.run_id);
    answer::at(status_of(settled), &place, &begun(api, &run))
}

/// A run as who wants it is told: without another look into the store, as who wants many wants them fast. That nobody
/// here can execute it is known without one; what else holds it up is told by who asks for the run.
fn begun(api: &Api, run: &Run) -> RunView {
    let agent_id = &run.spec.agent_id;
    // One that is new is in no place yet.
    let waits = run.status == RunStatus::Queued && matches!(run.place, Place::Nowhere | Place::Ready);
    let stuck = waits && !api.tenure().has_agent(agent_id);
    let reason = || WaitReason::NoAgent { agent_id: agent_id.clone() };
    RunView::from(run).waiting(stuck.then(|| Waiting { reason: reason(), since: run.due_at }))
}

/// A place for who waits for a run.
pub(super) fn place(api: &Api) -> Result<limits::Place, Problem> {
    let most = api.options().max_waits;
    api.waits().enter(most).ok_or_else(|| limits::full("requests wait for a run", most))
}

/// The run when it has settled, or as it is when the time is up or the interface is shut down. A store that does not
/// answer meanwhile is waited for: the run is wanted, and to answer a failure would say that it is not.
pub(super) async fn wait_for(api: &Api, run: Run, limit: Option<Duration>) -> Result<(Run, bool), Problem> {
    if run.status.is_settled() {
        return Ok((run, true));
    }
    let longest = api.options().max_wait;
    let until = Instant::now() + limit.map_or(longest, |limit| limit.min(longest));
    let mut closing = api.closing();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let waited = tokio::select! {
            waited = timeout_at(until + LAST_LOOK, api.tenure().wait(&run.run_id, Some(left))) => waited,
            () = closed(&mut closing) => return Ok(as_it_is(api, run).await),
        };
        let Ok(waited) = waited else { return Ok((run, false)) };
        match waited {
            Ok(state) => return Ok((state.run, state.settled)),
            Err(Error::Store(error)) if error.is_transient() => {
                tracing::debug!(%error, "a request that waits for a run waits for the store");
            }
            Err(error) => return Err(error.into()),
        }
        if left.is_zero() {
            return Ok((run, false));
        }
        tokio::select! {
            () = sleep(AFTER_FAILURE.min(left)) => {}
            () = closed(&mut closing) => return Ok((run, false)),
        }
    }
}

/// A run as it is now, or as it was if the store does not say.
async fn as_it_is(api: &Api, run: Run) -> (Run, bool) {
    let run = within(api, api.tenure().run(&run.run_id)).await.unwrap_or(run);
    let settled = run.status.is_settled();
    (run, settled)
}

pub(super) fn status_of(settled: bool) -> StatusCode {
    if settled { StatusCode::OK } else { StatusCode::ACCEPTED }
}

/// A run as it is shown, with the reason why it waits.
pub(super) async fn shown(api: &Api, run: &Run) -> Result<RunView, Problem> {
    let waiting = within(api, api.tenure().waiting(run)).await?;
    Ok(RunView::from(run).waiting(waiting))
}
