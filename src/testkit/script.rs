//! Agents that do as they are told, and note what they were asked.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::sleep;

use super::Gate;
use crate::agent::{Agent, AgentError, AgentResult, Answer};
use crate::instance::RunContext;
use crate::model::{ApprovalAnswer, RunId, Timestamp};

/// What an agent does, one step for each attempt of a run; the last step repeats.
///
/// What a step does on its way ([`Script::takes`], [`Script::waits_at`], [`Script::progress`],
/// [`Script::commits`]) is said before how it ends. A step that waits ends early, with an error of the class
/// `stopped`, when its attempt is told to stop; a [stubborn](Script::stubborn) one does not listen.
///
/// ```
/// # use tenure::testkit::{Script, TestHost};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let host = TestHost::open("2026-01-01T00:00:00Z").await;
/// let writer = host.agent("writer", Script::new().fails("exception", "no ink").answers("done"));
/// host.task(r#"{ "task_id": "t", "agent_id": "writer", "query": "write",
///                "retry_policy": { "max_retries": 1 } }"#).await;
/// host.run("t").await;
/// host.drain().await; // the first attempt failed
/// host.advance(std::time::Duration::from_secs(60)).await;
/// assert_eq!(writer.attempts(), [1, 2]);
/// host.see("t").await.assert_statuses("completed");
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Script {
    steps: Vec<Step>,
    /// What the step being said does before it ends.
    acts: Vec<Act>,
    stubborn: bool,
}

#[derive(Clone)]
struct Step {
    acts: Vec<Act>,
    end: End,
}

#[derive(Clone)]
enum Act {
    Waits(Gate),
    Takes(Duration),
    Progress(Option<u8>, Arc<str>),
    Commits(Arc<str>),
}

#[derive(Clone)]
enum End {
    Answers(Arc<str>),
    Echoes,
    Fails(AgentError),
    Panics(Arc<str>),
    Hangs,
    Asks(Arc<str>),
}

impl Script {
    /// An agent that answers its query, until it is told otherwise.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The step answers this.
    #[must_use]
    pub fn answers(self, text: &str) -> Self {
        self.end(End::Answers(text.into()))
    }

    /// The step answers its query.
    #[must_use]
    pub fn echoes(self) -> Self {
        self.end(End::Echoes)
    }

    /// The step fails with an error of this class.
    #[must_use]
    pub fn fails(self, class: &str, message: &str) -> Self {
        self.end(End::Fails(AgentError::new(class, message)))
    }

    /// The step fails with this error.
    #[must_use]
    pub fn fails_with(self, error: AgentError) -> Self {
        self.end(End::Fails(error))
    }

    /// The step panics.
    #[must_use]
    pub fn panics(self, message: &str) -> Self {
        self.end(End::Panics(message.into()))
    }

    /// The step never ends, and does not listen.
    #[must_use]
    pub fn hangs(self) -> Self {
        self.end(End::Hangs)
    }

    /// The step asks a person.
    #[must_use]
    pub fn asks(self, question: &str) -> Self {
        self.end(End::Asks(question.into()))
    }

    /// The step waits at a gate.
    #[must_use]
    pub fn waits_at(self, gate: &Gate) -> Self {
        self.act(Act::Waits(gate.clone()))
    }

    /// The step takes this long.
    #[must_use]
    pub fn takes(self, length: Duration) -> Self {
        self.act(Act::Takes(length))
    }

    /// The step tells its progress.
    #[must_use]
    pub fn progress(self, percent: impl Into<Option<u8>>, message: &str) -> Self {
        self.act(Act::Progress(percent.into(), message.into()))
    }

    /// The step has an effect, if it still has the authority: see [`ScriptedAgent::effects`].
    #[must_use]
    pub fn commits(self, effect: &str) -> Self {
        self.act(Act::Commits(effect.into()))
    }

    /// No step listens when it is told to stop.
    #[must_use]
    pub fn stubborn(mut self) -> Self {
        self.stubborn = true;
        self
    }

    fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    fn end(mut self, end: End) -> Self {
        let acts = std::mem::take(&mut self.acts);
        self.steps.push(Step { acts, end });
        self
    }

    /// The step of an attempt. What was said last without an end ends by echoing.
    fn step(&self, attempt: u32) -> Step {
        let at = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = || Step { acts: self.acts.clone(), end: End::Echoes };
        match self.steps.get(at) {
            Some(step) => step.clone(),
            None if !self.acts.is_empty() => last(),
            None => self.steps.last().cloned().unwrap_or_else(last),
        }
    }
}

/// One attempt, as the agent was asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The run.
    pub run_id: RunId,
    /// What was asked.
    pub query: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The fence under which it holds the run.
    pub fence: u64,
    /// When it began, by the store's clock.
    pub at: Timestamp,
    /// What a person answered to the attempt before.
    pub approval: Option<ApprovalAnswer>,
}

/// What an attempt wanted to have as an effect, and whether it had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// What.
    pub what: String,
    /// The fence of the attempt.
    pub fence: u64,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

/// A scripted agent, and what it was asked. A cheap clone; several hosts may have the same.
#[derive(Clone)]
pub struct ScriptedAgent {
    inner: Arc<Inner>,
}

struct Inner {
    script: Script,
    calls: Mutex<Vec<Call>>,
    effects: Mutex<Vec<Effect>>,
    executing: AtomicUsize,
    most: AtomicUsize,
}

impl From<Script> for ScriptedAgent {
    fn from(script: Script) -> Self {
        let inner = Inner {
            script,
            calls: Mutex::default(),
            effects: Mutex::default(),
            executing: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl From<&ScriptedAgent> for ScriptedAgent {
    fn from(agent: &ScriptedAgent) -> Self {
        agent.clone()
    }
}

impl ScriptedAgent {
    /// Every attempt it was asked for, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.inner.calls.lock().clone()
    }

    /// The numbers of these attempts, in order.
    #[must_use]
    pub fn attempts(&self) -> Vec<u32> {
        self.inner.calls.lock().iter().map(|call| call.attempt).collect()
    }

    /// The effects its attempts had, or were refused, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        self.inner.effects.lock().clone()
    }

    /// How many of its attempts execute.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.inner.executing.load(Ordering::SeqCst)
    }

    /// How many of its attempts executed at once, at most.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.inner.most.load(Ordering::SeqCst)
    }
}

/// Counts something for as long as it lives.
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(super) fn on(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The agent as one host has it: it tells that host which attempts only wait for the test.
pub(super) struct OnHost {
    pub(super) agent: ScriptedAgent,
    pub(super) parked: Arc<AtomicUsize>,
}

impl Agent for OnHost {
    async fn run(self: Arc<Self>, context: RunContext) -> AgentResult {
        let inner = &self.agent.inner;
        let _executing = Executing::of(inner);
        inner.calls.lock().push(Call {
            run_id: context.run_id().clone(),
            query: context.query().to_owned(),
            attempt: context.attempt(),
            fence: context.fence().fence,
            at: context.attempt_started_at().unwrap_or_default(),
            approval: context.approval().cloned(),
        });
        let step = inner.script.step(context.attempt());
        for act in step.acts {
            self.act(act, &context).await?;
        }
        self.end(step.end, &context).await
    }
}

impl OnHost {
    async fn act(&self, act: Act, context: &RunContext) -> Result<(), AgentError> {
        match act {
            Act::Waits(gate) => {
                let _parked = Counted::on(&self.parked);
                self.unless_stopped(gate.pass(), context).await
            }
            Act::Takes(length) => self.unless_stopped(sleep(length), context).await,
            Act::Progress(percent, message) => {
                context.progress(percent, message);
                Ok(())
            }
            Act::Commits(what) => {
                let refused = context.commit(|| ()).await.err().map(|error| error.to_string());
                let effect = Effect { what: what.as_ref().to_owned(), fence: context.fence().fence, refused };
                self.agent.inner.effects.lock().push(effect);
                Ok(())
            }
        }
    }

    async fn unless_stopped(
        &self,
        wait: impl Future<Output = ()>,
        context: &RunContext,
    ) -> Result<(), AgentError> {
        let stopped = async {
            if self.agent.inner.script.stubborn {
                pending::<()>().await;
            }
            context.cancelled().await;
        };
        tokio::select! {
            biased;
            () = stopped => Err(AgentError::new("stopped", "the attempt was told to stop")),
            () = wait => Ok(()),
        }
    }

    #[allow(clippy::panic, reason = "the script says so")]
    async fn end(&self, end: End, context: &RunContext) -> AgentResult {
        match end {
            End::Answers(text) => Ok(text.as_ref().into()),
            End::Echoes => Ok(context.query().into()),
            End::Fails(error) => Err(error),
            End::Panics(message) => panic!("{message}"),
            End::Asks(question) => Ok(Answer::AwaitingApproval { question, data: Value::Null }),
            End::Hangs => {
                let _parked = Counted::on(&self.parked);
                pending().await
            }
        }
    }
}

struct Executing<'a>(&'a Inner);

impl<'a> Executing<'a> {
    fn of(inner: &'a Inner) -> Self {
        let now = inner.executing.fetch_add(1, Ordering::SeqCst) + 1;
        inner.most.fetch_max(now, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.executing.fetch_sub(1, Ordering::SeqCst);
    }
}
