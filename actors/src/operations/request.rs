//! What is asked of the operations, and what they answer about one.

use std::fmt;

use serde::Serialize;

use crate::error::ReserveError;
use crate::id::{ExclusivityKey, InvalidId, OperationId, OwnerId, SessionId, session_key};

/// What is known of an active operation: who it is, who interprets it, which session it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct OperationRegistration {
    /// Its id, unique within the generation while it is active.
    pub operation: OperationId,
    /// The component that interprets and controls it; opaque here.
    pub owner: OwnerId,
    /// Its session; none for application-wide work.
    pub session: Option<SessionId>,
}

impl fmt::Display for OperationRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation \"{}\" of owner \"{}\"", self.operation, self.owner)?;
        match &self.session {
            Some(session) => write!(f, " on session \"{session}\""),
            None => f.write_str(", application-wide"),
        }
    }
}

/// A reservation to be made, all of it or nothing.
///
/// ```
/// # use tenure_actors::{OperationRequest, ReserveError};
/// let request = OperationRequest::new("compact:s1:1", "compaction")?.on_session("s1")?;
/// # Ok::<(), ReserveError>(())
/// ```
#[derive(Debug, Clone)]
pub struct OperationRequest {
    pub(super) registration: OperationRegistration,
    pub(super) keys: Vec<ExclusivityKey>,
    pub(super) without_exclusivity: bool,
}

impl OperationRequest {
    /// An application-wide operation without keys so far.
    ///
    /// # Errors
    /// [`ReserveError::Invalid`] when an id is no identifier.
    pub fn new<O, W>(operation: O, owner: W) -> Result<Self, ReserveError>
    where
        O: TryInto<OperationId>,
        W: TryInto<OwnerId>,
        ReserveError: From<O::Error> + From<W::Error>,
    {
        let (operation, owner) = (operation.try_into()?, owner.try_into()?);
        let registration = OperationRegistration { operation, owner, session: None };
        Ok(Self { registration, keys: Vec::new(), without_exclusivity: false })
    }

    /// The same as work of a session, without excluding anything by that.
    ///
    /// # Errors
    /// [`ReserveError::Invalid`] when it is no identifier.
    pub fn session<S>(mut self, session: S) -> Result<Self, ReserveError>
    where
        S: TryInto<SessionId>,
        ReserveError: From<S::Error>,
    {
        self.registration.session = Some(session.try_into()?);
        Ok(self)
    }

    /// The same as work of a session that excludes every other operation with the session's key
    /// ([`session_key`]).
    ///
    /// # Errors
    /// [`ReserveError::Invalid`] when it is no identifier.
    pub fn on_session<S>(self, session: S) -> Result<Self, ReserveError>
    where
        S: TryInto<SessionId>,
        ReserveError: From<S::Error>,
    {
        let mut request = self.session(session)?;
        request.keys.extend(request.registration.session.as_ref().map(session_key));
        Ok(request)
    }

    /// The same with one more exclusivity key. A key named twice counts once.
    ///
    /// # Errors
    /// [`ReserveError::Invalid`] when it is no identifier.
    pub fn key<K>(mut self, key: K) -> Result<Self, ReserveError>
    where
        K: TryInto<ExclusivityKey>,
        ReserveError: From<K::Error>,
    {
        self.keys.push(key.try_into()?);
        Ok(self)
    }

    /// The same, registered although it excludes nothing. Without this a request needs a key.
    #[must_use]
    pub fn without_exclusivity(mut self) -> Self {
        self.without_exclusivity = true;
        self
    }
}

impl From<InvalidId> for ReserveError {
    fn from(invalid: InvalidId) -> Self {
        Self::Invalid { field: invalid.kind, problem: invalid.problem.to_string() }
    }
}

impl From<std::convert::Infallible> for ReserveError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// Which operations to list. Its parts are conjunctive; the default lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// By session.
    pub session: SessionFilter,
    /// By owner.
    pub owner: Option<OwnerId>,
}

/// Which sessions to list operations of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionFilter {
    /// All, application-wide ones included.
    #[default]
    Any,
    /// This one; application-wide operations are excluded.
    Only(SessionId),
    /// None: application-wide operations alone.
    ApplicationWide,
}

impl OperationFilter {
    /// The operations of a session.
    #[must_use]
    pub fn session(session: SessionId) -> Self {
        Self { session: SessionFilter::Only(session), owner: None }
    }

    /// The operations of an owner.
    #[must_use]
    pub fn owner(owner: OwnerId) -> Self {
        Self { session: SessionFilter::Any, owner: Some(owner) }
    }

    pub(super) fn admits(&self, registration: &OperationRegistration) -> bool {
        let by_session = match &self.session {
            SessionFilter::Any => true,
            SessionFilter::Only(session) => registration.session.as_ref() == Some(session),
            SessionFilter::ApplicationWide => registration.session.is_none(),
        };
        by_session && self.owner.as_ref().is_none_or(|owner| *owner == registration.owner)
    }
}
