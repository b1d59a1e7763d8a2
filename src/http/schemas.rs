//! What is asked and answered, as the document describes it. Never made: the views and readers are what counts, and
//! `tests/http` holds every answer against these.
#![allow(dead_code, reason = "only described")]

use utoipa::{IntoParams, ToSchema};

mod events;
mod host;
mod ownership;
mod runs;
mod tasks;

pub(super) use events::*;
pub(super) use host::*;
pub(super) use ownership::*;
pub(super) use runs::*;
pub(super) use tasks::*;

// --- problems -----------------------------------------------------------------------------------------------

/// Why a request was not done (RFC 9457).
#[derive(ToSchema)]
pub(super) struct Problem {
    /// What kind of problem: `urn:tenure:problem:WORD`.
    r#type: String,
    /// The kind in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// This problem in words.
    detail: String,
    /// The path that was asked for.
    instance: String,
    /// What to do next.
    #[schema(required = false, nullable = false)]
    hint: Option<String>,
    /// Every field that cannot be taken.
    #[schema(required = false)]
    errors: Vec<FieldProblem>,
    /// When asking again may help.
    #[schema(required = false, nullable = false)]
    retry_after_seconds: Option<u64>,
    /// The run that is in the way.
    #[schema(required = false, nullable = false)]
    run_id: Option<String>,
    /// The instance that has the files.
    #[schema(required = false, nullable = false)]
    held_by: Option<String>,
    /// What a verb of ownership answered instead of what was asked for, such as how the task stands.
    #[schema(required = false)]
    answer: serde_json::Value,
}

/// A field that cannot be taken.
#[derive(ToSchema)]
pub(super) struct FieldProblem {
    /// Where, as a path: `schedule.expression`.
    field: String,
    /// What was expected there, with what was found.
    expected: String,
}

// --- queries ------------------------------------------------------------------------------------------------

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// How many entries, up to 1,000 unless the settings say otherwise; 100 if left out.
    limit: Option<u32>,
    /// Where to go on: the `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunQuery {
    /// Of this task.
    task_id: Option<String>,
    /// Of this agent.
    agent_id: Option<String>,
    /// Of this session.
    session_id: Option<String>,
    /// In this state; given several times, in any of them.
    #[param(inline)]
    status: Option<Vec<RunStatus>>,
    /// Wanted by this.
    #[param(inline)]
    trigger_type: Option<Trigger>,
    /// Queued at or after.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Queued before.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// With this in the query, ignoring case of ASCII letters.
    text: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// Whether to wait until it has settled.
    wait: Option<bool>,
    /// How long to wait at most.
    timeout_seconds: Option<f64>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// The place of the last event that was seen: the number of one of a run, the cursor of one of all.
    after: Option<u64>,
    /// How many at most, for a list; up to 1,000 unless the settings say otherwise.
    limit: Option<u32>,
}
