//! Agents that work in the background of a conversation.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::agent::AgentError;
use crate::instance::RunContext;
use crate::model::Payload;

/// A child session, from which an agent goes on.
#[derive(Clone)]
pub enum ChildSession {
    /// Stored with the outcome: it can be continued from any replica.
    Stored(Payload),
    /// An object of this OS process: it can be continued here only.
    Local(Arc<dyn Any + Send + Sync>),
}

impl fmt::Debug for ChildSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored(_) => "Stored",
            Self::Local(_) => "Local",
        })
    }
}

/// What a child agent came to.
#[derive(Debug)]
pub struct ChildDone {
    /// Its answer.
    pub result: Payload,
    /// Its session, if it can be continued.
    pub session: Option<ChildSession>,
}

impl From<&str> for ChildDone {
    fn from(text: &str) -> Self {
        Self { result: Payload::text(text), session: None }
    }
}

impl From<String> for ChildDone {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl ChildDone {
    /// The same, with a session from which it can be continued.
    #[must_use]
    pub fn with_session(self, session: ChildSession) -> Self {
        Self { session: Some(session), ..self }
    }
}

/// An agent that works in the background of a conversation.
pub trait ChildAgent: Send + Sync + 'static {
    /// What it can do, for the model that starts it.
    fn description(&self) -> String {
        String::new()
    }

    /// Works on [`RunContext::query`]; on a session of its own if it continues one.
    fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> impl Future<Output = Result<ChildDone, AgentError>> + Send;
}

pub(super) trait ErasedChild: Send + Sync {
    fn description(&self) -> String;

    fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> BoxFuture<'static, Result<ChildDone, AgentError>>;
}

impl<A: ChildAgent> ErasedChild for A {
    fn description(&self) -> String {
        ChildAgent::description(self)
    }

    fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> BoxFuture<'static, Result<ChildDone, AgentError>> {
        Box::pin(ChildAgent::run(self, context, session))
    }
}
