//! The names in the path of a request.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::problem::{Kind, Problem};
use crate::model::{AgentId, Invalid, RunId, TaskId};

/// A name that is the last of its kind in a path.
pub(super) struct Named<T>(pub(super) T);

/// What is named in paths.
pub(super) trait Name: Sized {
    fn read(text: String) -> Result<Self, Invalid>;
}

impl Name for TaskId {
    fn read(text: String) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl Name for RunId {
    fn read(text: String) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl Name for AgentId {
    fn read(text: String) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl<T: Name, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(unreadable)?;
        Ok(Self(T::read(text)?))
    }
}

/// A run, and the path of a file of it.
pub(super) struct File(pub(super) RunId, pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for File {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((run_id, path)) = path.map_err(unreadable)?;
        Ok(Self(RunId::new(run_id)?, path))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what an extractor refuses with is given away")]
fn unreadable(rejection: axum::extract::rejection::PathRejection) -> Problem {
    Problem::new(Kind::Unparsable, rejection.body_text())
}
