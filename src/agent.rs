//! Agents: what executes a task's query.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::instance::RunContext;
use crate::model::{ErrorClass, Payload, RunError, Seconds};

/// Executes queries. A function of [`RunContext`] is one; so is an object of yours.
///
/// ```
/// # use tenure::{Agent, AgentResult, RunContext};
/// struct Greeter {
///     greeting: String,
/// }
///
/// impl Agent for Greeter {
///     async fn run(self: std::sync::Arc<Self>, context: RunContext) -> AgentResult {
///         Ok(format!("{}, {}!", self.greeting, context.query()).into())
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// One attempt. It is polled only while the run is held, and cut off at its next await when it does not
    /// end within the patience after [`RunContext::cancelled`].
    fn run(self: Arc<Self>, context: RunContext) -> impl Future<Output = AgentResult> + Send;
}

impl<F, Fut> Agent for F
where
    F: Fn(RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = AgentResult> + Send,
{
    fn run(self: Arc<Self>, context: RunContext) -> impl Future<Output = AgentResult> + Send {
        self(context)
    }
}

/// What an attempt comes to.
pub type AgentResult = Result<Answer, AgentError>;

/// What an agent answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The result.
    Done(Payload),
    /// The result lies in the workspace of the run already: what is too large to be held in memory.
    Written(WrittenResult),
    /// A question: the run waits until a person has answered, and is then attempted again.
    AwaitingApproval {
        /// The question; of at most [`Approval::MOST_QUESTION_BYTES`](crate::model::Approval::MOST_QUESTION_BYTES).
        question: Arc<str>,
        /// What belongs to it; of at most [`Approval::MOST_DATA_BYTES`](crate::model::Approval::MOST_DATA_BYTES). Its
        /// numbers are those of [`Value`]: what needs more digits is written as a text.
        data: Value,
    },
}

/// A result that the agent wrote to the workspace of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenResult {
    /// Its media type.
    pub media_type: Arc<str>,
    /// Its length in bytes.
    pub size: u64,
    /// Its path within the workspace.
    pub path: Arc<str>,
    /// Its first characters.
    pub preview: Arc<str>,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self::Done(Payload::text(text))
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        Self::Done(Payload::text(text))
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Self::Done(Payload::text(""))
    }
}

impl From<Payload> for Answer {
    fn from(payload: Payload) -> Self {
        Self::Done(payload)
    }
}

/// Why an attempt failed. Any error is one, of the class `exception`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentError {
    pub(crate) error: RunError,
    pub(crate) partial: Option<Payload>,
}

impl AgentError {
    /// An error of a class that retry policies may name.
    #[must_use]
    pub fn new(class: impl Into<ErrorClass>, message: impl Into<Arc<str>>) -> Self {
        Self { error: RunError::new(class, message), partial: None }
    }

    /// The same, as one of a broader class: a retry policy that names either tries it again. What is within
    /// `exception` or `timeout` is tried again by policies that say nothing else.
    #[must_use]
    pub fn within(mut self, class: impl Into<ErrorClass>) -> Self {
        self.error.within = Some(class.into());
        self
    }

    /// The same, to be tried again after this long at the earliest.
    #[must_use]
    pub fn retry_after(mut self, delay: Seconds) -> Self {
        self.error.retry_after = Some(delay);
        self
    }

    /// The same, with what was done so far; a cancelled run keeps it (P7).
    #[must_use]
    pub fn with_partial(mut self, partial: impl Into<Payload>) -> Self {
        self.partial = Some(partial.into());
        self
    }
}

impl<E: std::error::Error> From<E> for AgentError {
    fn from(error: E) -> Self {
        Self::new("exception", with_causes(&error))
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// An agent of any type.
pub(crate) trait ErasedAgent: Send + Sync {
    fn run(self: Arc<Self>, context: RunContext) -> BoxFuture<'static, AgentResult>;
}

impl<A: Agent> ErasedAgent for A {
    fn run(self: Arc<Self>, context: RunContext) -> BoxFuture<'static, AgentResult> {
        Box::pin(Agent::run(self, context))
    }
}
