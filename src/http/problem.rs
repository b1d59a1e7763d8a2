//! How a request fails: problem documents (RFC 9457), made in one place of whatever went wrong.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::wording::expected;
use crate::error::Error;
use crate::model::{self, InstanceId, Invalid, RunId};
use crate::store::{RefusedKind, StoreError};
use crate::workspace::WorkspaceError;

/// The media type of problem documents.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// What kind of problem: the last part of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unparsable,
    Unauthorized,
    Forbidden,
    NotFound,
    Method,
    NotAcceptable,
    Slow,
    Exists,
    KeyConflict,
    Paused,
    WrongState,
    Elsewhere,
    Held,
    Conflict,
    SessionReleased,
    Fenced,
    AlreadyTerminal,
    NotTerminal,
    StillRunning,
    HeldUp,
    NotLost,
    Superseded,
    Mismatch,
    Expired,
    UnfitFolder,
    TooLarge,
    MediaType,
    Range,
    Misdirected,
    Invalid,
    Internal,
    NotSupported,
    Busy,
    Contended,
    Draining,
    StoreRefused,
    StoreUnknown,
    TimedOut,
}

impl Kind {
    /// Its word, its status, and what it is called.
    const fn facts(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::Unparsable => ("unparsable", 400, "the request cannot be read"),
            Self::Unauthorized => ("unauthorized", 401, "a token is needed"),
            Self::Forbidden => ("forbidden", 403, "this is not allowed"),
            Self::NotFound => ("not_found", 404, "there is no such thing"),
            Self::Method => ("method_not_allowed", 405, "this cannot be done with it"),
            Self::NotAcceptable => ("not_acceptable", 406, "no answer of an accepted media type"),
            Self::Slow => ("request_timeout", 408, "the request took too long to arrive"),
            Self::Exists => ("exists", 409, "it exists already"),
            Self::KeyConflict => ("key_conflict", 409, "the idempotency key was used for another request"),
            Self::Paused => ("paused", 409, "the task is paused"),
            Self::WrongState => ("wrong_state", 409, "the run is in another state"),
            Self::Elsewhere => ("elsewhere", 409, "the files are at another instance"),
            Self::Held => ("held", 409, "somebody owns the task"),
            Self::Conflict => ("conflict", 409, "something else stands than was expected"),
            Self::SessionReleased => ("session_released", 409, "the session was released"),
            Self::Fenced => ("fenced", 409, "the token has lost its authority"),
            Self::AlreadyTerminal => ("already_terminal", 409, "the run has ended"),
            Self::NotTerminal => ("not_terminal", 409, "the run has not ended"),
            Self::StillRunning => ("still_running", 409, "somebody executes it"),
            Self::HeldUp => ("held_up", 409, "something else has to be removed first"),
            Self::NotLost => ("not_lost", 409, "it is not lost"),
            Self::Superseded => ("superseded", 409, "there is another run by now"),
            Self::Mismatch => ("mismatch", 409, "replicas of one host have different settings"),
            Self::Expired => ("expired", 410, "it is no longer kept"),
            Self::UnfitFolder => ("unfit_folder", 409, "the folder of the run is not as it was made"),
            Self::TooLarge => ("too_large", 413, "the request is too large"),
            Self::MediaType => ("media_type", 415, "the body has another media type"),
            Self::Range => ("range", 416, "there are no such bytes"),
            Self::Misdirected => ("misdirected", 421, "this host has another name"),
            Self::Invalid => ("invalid", 422, "what was given cannot be taken"),
            Self::Internal => ("internal", 500, "something went wrong here"),
            Self::NotSupported => ("not_supported", 501, "the store cannot do this"),
            Self::Busy => ("busy", 503, "too much is asked at once"),
            Self::Contended => ("contended", 503, "others changed it at the same time"),
            Self::Draining => ("draining", 503, "this host is shutting down"),
            Self::StoreRefused => ("store_unavailable", 503, "the store is not available"),
            Self::StoreUnknown => ("store_unknown", 503, "the store did not answer"),
            Self::TimedOut => ("timeout", 503, "the request took too long"),
        }
    }
}

/// A problem in the making. It is written as a document by [`dress`], which knows what was asked for.
#[derive(Debug, Clone)]
pub(super) struct Problem(Box<Facts>);

#[derive(Debug, Clone)]
struct Facts {
    kind: Kind,
    detail: String,
    hint: Option<Cow<'static, str>>,
    errors: Vec<model::Problem>,
    retry_after: Option<u64>,
    run_id: Option<RunId>,
    held_by: Option<InstanceId>,
    answer: Option<Value>,
}

/// What handlers answer.
pub(super) type Answer = Result<Response, Problem>;

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self(Box::new(Facts {
            kind,
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            retry_after: None,
            run_id: None,
            held_by: None,
            answer: None,
        }))
    }

    /// Fields that cannot be taken.
    pub(super) fn invalid(errors: Vec<model::Problem>) -> Self {
        // Readers of JSON say it in their own way.
        let told =
            |problem: model::Problem| model::Problem { expected: expected(&problem.expected), ..problem };
        let invalid = Invalid { problems: errors.into_iter().map(told).collect() };
        let mut problem = Self::new(Kind::Invalid, invalid.to_string());
        problem.0.errors = invalid.problems;
        problem
    }

    /// One field that cannot be taken.
    pub(super) fn field(field: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::invalid(Invalid::one(field, expected).problems)
    }

    pub(super) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    fn run(mut self, run_id: RunId) -> Self {
        self.0.run_id = Some(run_id);
        self
    }

    /// What a verb of ownership answered instead of what was asked for.
    pub(super) fn answer<T: Serialize>(mut self, answer: &T) -> Self {
        self.0.answer = serde_json::to_value(answer).ok();
        self
    }

    fn held_by(mut self, instance: InstanceId) -> Self {
        self.0.held_by = Some(instance);
        self
    }

    /// The document, for who asked for `path`.
    pub(super) fn document(&self, path: &str) -> Vec<u8> {
        let Self(problem) = self;
        let (word, status, title) = problem.kind.facts();
        let document = Document {
            r#type: format!("urn:tenure:problem:{word}"),
            title,
            status,
            detail: &problem.detail,
            instance: path,
            hint: problem.hint.as_deref(),
            errors: &problem.errors,
            retry_after_seconds: problem.retry_after,
            run_id: problem.run_id.as_ref(),
            held_by: problem.held_by,
            answer: problem.answer.as_ref(),
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }

    fn of_store(error: &StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Unknown { .. } => Self::new(Kind::StoreUnknown, detail).retry_after(1).hint(
                "look whether it was done before you ask again; for runs an Idempotency-Key makes asking again safe",
            ),
            StoreError::Refused { kind, message } => match kind {
                RefusedKind::Invalid => Self::field("cursor", message.clone()),
                RefusedKind::NotSupported => Self::new(Kind::NotSupported, detail),
                RefusedKind::Corrupt => Self::new(Kind::Internal, detail).hint("run `tenure store check`"),
                RefusedKind::Unavailable | RefusedKind::Closed => {
                    Self::new(Kind::StoreRefused, detail).retry_after(1)
                }
                RefusedKind::ReadOnly | RefusedKind::Full | RefusedKind::NewerSchema => {
                    Self::new(Kind::StoreRefused, detail).retry_after(30).hint("run `tenure doctor`")
                }
            },
        }
    }

    fn of_workspace(error: &WorkspaceError) -> Self {
        if let WorkspaceError::Unfit { .. } | WorkspaceError::Outside { .. } = error {
            return Self::new(Kind::UnfitFolder, format!("the folder of the run: {error}")).hint(
                "something else was put in its place, and is not looked into: \
                 put the folder back where the workspace of the run names it",
            );
        }
        let kind = if error.is_transient() { Kind::Busy } else { Kind::Internal };
        let problem = Self::new(kind, format!("workspace: {error}"));
        if error.is_transient() { problem.retry_after(5) } else { problem }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Invalid(invalid) => Self::invalid(invalid.problems),
            Error::NotFound { .. } => Self::new(Kind::NotFound, detail),
            Error::Exists { .. } => {
                Self::new(Kind::Exists, detail).hint("use another name, or change the one there is")
            }
            Error::KeyConflict { run_id } => Self::new(Kind::KeyConflict, detail)
                .run(run_id)
                .hint("ask for the same as before, or with another key"),
            Error::Paused { .. } => {
                Self::new(Kind::Paused, detail).hint("resume the task, or ask with \"override_pause\": true")
            }
            Error::WrongState { run_id, .. } => Self::new(Kind::WrongState, detail).run(run_id),
            Error::Contended { .. } => Self::new(Kind::Contended, detail).retry_after(1),
            Error::Draining => Self::new(Kind::Draining, detail).retry_after(5),
            Error::Store(error) => Self::of_store(&error),
            Error::Elsewhere { run_id, instance } => {
                Self::new(Kind::Elsewhere, detail).run(run_id).held_by(instance)
            }
            Error::Workspace(error) => Self::of_workspace(&error),
            Error::Supervision(_) => Self::new(Kind::Internal, detail),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.problems)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.0.kind.facts();
        let mut response = StatusCode::from_u16(status).unwrap_or_default().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    instance: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [model::Problem],
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<InstanceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a Value>,
}

/// Writes the document of a response that failed, whoever made it fail: a handler, or the router.
pub(super) fn dress(response: Response, path: &str) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    let problem: Problem = parts.extensions.remove().unwrap_or_else(|| unknown(status, path));
    let body = problem.document(path);
    let Problem(problem) = problem;
    let (_, status, _) = problem.kind.facts();
    parts.status = StatusCode::from_u16(status).unwrap_or(parts.status);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    parts.headers.remove(header::CONTENT_LENGTH);
    if let Some(seconds) = problem.retry_after {
        parts.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if problem.kind == Kind::Unauthorized {
        let challenge = HeaderValue::from_static("Bearer realm=\"tenure\"");
        parts.headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    Response::from_parts(parts, Body::from(body))
}

/// What the router answered by itself.
fn unknown(status: StatusCode, path: &str) -> Problem {
    let shown: String = path.chars().take(200).collect();
    match status {
        StatusCode::NOT_FOUND => Problem::new(Kind::NotFound, format!("nothing is served at {shown:?}"))
            .hint("GET /openapi.json lists what is"),
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(Kind::Method, format!("{shown:?} does not know this method"))
                .hint("the header Allow names those it knows")
        }
        status if status.is_client_error() => Problem::new(Kind::Unparsable, "the request cannot be read"),
        _ => Problem::new(Kind::Internal, "the answer could not be made; the log says more"),
    }
}
