//! The background tasks of a conversation, as its model starts, awaits, reads, lists, continues and clears them:
//! from whichever replica serves the turn.
//!
//! The store's index is the truth, and the session of the host's framework at most a cache (U5). Nothing here writes
//! to a task by looking at it (S1.3); only an owner whose lease lapsed for the whole grace is declared lost.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::answers::{
    Acknowledgement, Acquire, Acquired, Cancel, CancelAnswer, CancelScope, DeclaredLost, Expected, Forgotten,
    IdempotencyKey, Inspection, Release, Released, SessionInspection, TaskState,
};
use super::host::{Done, Host};
use super::key::{SessionKey, TaskKey};
use super::registration::Registered;
use super::{deadline, digest};
use crate::error::Error;
use crate::instance::RunContext;
use crate::model::CancelMode;
use crate::store::StoreError;

mod answers;
mod child;
mod text;

pub use answers::{Continued, StartedTask, Waited};
pub use child::{ChildAgent, ChildDone, ChildSession};

use child::ErasedChild;

/// What becomes of tasks whose user pressed stop (S3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenStopped {
    /// They go on.
    #[default]
    Keep,
    /// They are cancelled.
    Cancel,
}

/// What every replica has to agree on.
#[derive(Debug, Clone)]
pub struct SessionTasksSettings {
    /// Where this is hosted: a tenant, an environment.
    pub namespace: Arc<str>,
    /// The component that starts the tasks: two in one session count apart.
    pub source: Arc<str>,
    /// What becomes of tasks whose user pressed stop.
    pub when_stopped: WhenStopped,
}

/// A task that a model starts.
#[derive(Debug, Clone, Default)]
pub struct StartTask {
    /// The agent.
    pub agent: Arc<str>,
    /// What it is asked.
    pub input: Arc<str>,
    /// What the task is called.
    pub description: Arc<str>,
    /// Of the turn and the tool call: a repeated call is the same task (U1).
    pub idempotency_key: Option<Arc<str>>,
    /// A lost task that this one does again (U6).
    pub supersedes: Option<u64>,
}

/// Child sessions that are objects, each of a run.
type Objects = BTreeMap<(TaskKey, u32), Arc<dyn Any + Send + Sync>>;

/// How many outcomes that a listing left out are read one by one.
const MOST_LEFT_OUT: usize = 8;

/// The tasks of conversations. A cheap clone.
///
/// What a model calls: [`start`](Self::start), [`wait_for_first`](Self::wait_for_first), [`result`](Self::result),
/// [`list`](Self::list), [`continue_task`](Self::continue_task), [`clear`](Self::clear), [`cancel`](Self::cancel).
/// Every answer can be shown as text. What a host puts before each turn: [`status_block`](Self::status_block). What
/// it calls when a conversation is deleted: [`release`](Self::release).
#[derive(Clone)]
pub struct SessionTasks {
    host: Host,
    settings: Arc<SessionTasksSettings>,
    agents: Arc<BTreeMap<Arc<str>, Arc<dyn ErasedChild>>>,
    /// Child sessions that are objects of this OS process, each of a run.
    local: Arc<Mutex<Objects>>,
}

impl fmt::Debug for SessionTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTasks").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl SessionTasks {
    /// The tasks of a host, without agents.
    #[must_use]
    pub fn new(host: Host, settings: SessionTasksSettings) -> Self {
        Self { host, settings: Arc::new(settings), agents: Arc::default(), local: Arc::default() }
    }

    /// The same, with an agent.
    #[must_use]
    pub fn agent<A: ChildAgent>(self, name: impl Into<Arc<str>>, agent: A) -> Self {
        let mut agents = BTreeMap::clone(&self.agents);
        agents.insert(name.into(), Arc::new(agent) as Arc<dyn ErasedChild>);
        Self { agents: Arc::new(agents), ..self }
    }

    /// The agents, each with what it can do.
    #[must_use]
    pub fn agents(&self) -> Vec<(Arc<str>, String)> {
        self.agents.iter().map(|(name, agent)| (Arc::clone(name), agent.description())).collect()
    }

    /// The host that executes the tasks.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The key of a conversation.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is none.
    pub fn key(&self, session: &str) -> Result<SessionKey, Error> {
        let SessionTasksSettings { namespace, source, .. } = &*self.settings;
        Ok(SessionKey::new(Arc::clone(namespace), Arc::clone(source), session)?)
    }

    // --- what a model calls -----------------------------------------------------------------------------

    /// Starts a task.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing runs that is owned by nobody (L18); [`Error::Draining`].
    pub async fn start(&self, session: &str, start: StartTask) -> Result<StartedTask, Error> {
        let key = self.key(session)?;
        let Some(agent) = self.agents.get(&start.agent).cloned() else {
            let known = self.agents.keys().cloned().collect();
            return Ok(StartedTask::UnknownAgent { agent: start.agent, known });
        };
        let digest = digest(&[&start.agent, &start.input]);
        let idempotency = start.idempotency_key.map(|key| IdempotencyKey { key, digest });
        // A call that is repeated uses up no number.
        if let Some(given) = &idempotency
            && let Some((begun, same)) = self.host.ownership().begun_by(&key, given).await?
        {
            return Ok(match same {
                true => StartedTask::Already(self.look_at(&begun).await?),
                false => StartedTask::InputConflict { task: begun.task },
            });
        }
        let revision = self.host.ownership().revision(&key).await?;
        let task = self.host.ownership().next_task_id(&key).await?;
        let request = Acquire {
            // A session that the number made has the revision it was made with.
            revision: (revision > 0).then_some(revision),
            supersedes: start.supersedes,
            idempotency,
            input: start.input,
            agent: Some(start.agent),
            description: Some(start.description),
            ..self.host.request(key.task(task))
        };
        Ok(match self.execute(request, agent, None).await? {
            Acquired::Acquired(held) => StartedTask::Started { task: held.key.task },
            Acquired::Held { key, .. } => StartedTask::Already(self.look_at(&key).await?),
            Acquired::Conflict { actual } if Some(actual.key.task) == start.supersedes => {
                StartedTask::NotSuperseded(actual)
            }
            Acquired::Conflict { actual } => StartedTask::Already(actual),
            Acquired::IdempotencyConflict { key } => StartedTask::InputConflict { task: key.task },
            Acquired::SessionReleased { .. } => StartedTask::SessionReleased,
        })
    }

    /// Waits until the first of some tasks is over, no longer than the limit. Tasks go on whoever waits (S7.3); an
    /// outage of the store is waited through (S7.6).
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub async fn wait_for_first(
        &self,
        session: &str,
        tasks: &[u64],
        limit: Duration,
    ) -> Result<Waited, Error> {
        let (key, deadline) = (self.key(session)?, deadline(limit));
        let mut watch = self.host.ownership().watch();
        loop {
            let waited = match self.look_at_all(&key, tasks).await {
                Ok(waited) => waited,
                Err(Error::Store(error)) if error.is_transient() => unavailable(&error),
                Err(error) => return Err(error),
            };
            let nothing_to_wait_for = waited.running.is_empty() && waited.unavailable.is_none();
            if !waited.over.is_empty() || nothing_to_wait_for || Instant::now() >= deadline {
                return Ok(waited);
            }
            watch.changed_until(deadline).await;
        }
    }

    async fn look_at_all(&self, key: &SessionKey, tasks: &[u64]) -> Result<Waited, Error> {
        let mut waited = Waited::default();
        for task in tasks {
            let inspection = self.look_at(&key.task(*task)).await?;
            match &inspection.state {
                TaskState::Unknown => waited.unknown.push(*task),
                state if state.is_live() => waited.running.push(inspection),
                _ => waited.over.push(inspection),
            }
        }
        Ok(waited)
    }

    /// How a task stands, with its outcome if it has one.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of it by that.
    pub async fn result(&self, session: &str, task: u64) -> Result<Inspection, Error> {
        self.look_at(&self.key(session)?.task(task)).await
    }

    /// How tasks stand that the host's own record of the conversation says were started. One of which the store knows
    /// nothing is lost: it ran in an OS process whose store is another, or is gone (M2).
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of them by that.
    pub async fn recall(&self, session: &str, started: &[u64]) -> Result<Vec<Inspection>, Error> {
        let key = self.key(session)?;
        let mut recalled = Vec::with_capacity(started.len());
        for task in started {
            let seen = self.look_at(&key.task(*task)).await?;
            let state = match seen.state {
                TaskState::Unknown => TaskState::Lost { last_owner: None, since: None, superseded_by: None },
                state => state,
            };
            recalled.push(Inspection { state, ..seen });
        }
        Ok(recalled)
    }

    /// All tasks of a conversation that are kept.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of them by that.
    pub async fn list(&self, session: &str) -> Result<SessionInspection, Error> {
        let mut all = self.host.ownership().inspect_session(&self.key(session)?).await?;
        for inspection in &mut all.tasks {
            if let Some(verdict) = self.verdict(inspection).await? {
                *inspection = verdict;
            }
        }
        Ok(all)
    }

    /// Continues a task that is over, from where its agent's session was.
    ///
    /// # Errors
    /// [`Error::Store`]: it may run; asked again, it is still running. [`Error::Draining`].
    pub async fn continue_task(&self, session: &str, task: u64, input: &str) -> Result<Continued, Error> {
        let key = self.key(session)?.task(task);
        // From before the look: a conversation that is deleted after it is not gone on with.
        let revision = self.host.ownership().revision(&key.session).await?;
        let before = self.look_at(&key).await?;
        let finished = match &before.state {
            state if state.is_live() => return Ok(Continued::StillRunning(before)),
            TaskState::Terminal(finished) => finished,
            _ => return Ok(Continued::NotContinuable(before)),
        };
        if self.agent_of(&before).is_none() {
            return Ok(unavailable_agent(&before));
        }
        let here = self.local.lock().get(&(key.clone(), before.run)).cloned();
        let session = match (&finished.snapshot, here) {
            (Some(snapshot), _) => ChildSession::Stored(snapshot.clone()),
            (None, Some(object)) => ChildSession::Local(object),
            (None, None) => return self.not_here(&key, before.run).await,
        };
        self.next_run(before, revision, input.into(), Some(session)).await
    }

    /// Goes on with a task that the shutdown of its host interrupted (V2, V3): asked what it was asked, from where it
    /// said that it was, or from the beginning if it said nothing. Of several replicas one does.
    ///
    /// # Errors
    /// [`Error::Store`]: it may run; asked again, it is still running. [`Error::Draining`].
    pub async fn take_on(&self, session: &str, task: u64) -> Result<Continued, Error> {
        let key = self.key(session)?.task(task);
        let revision = self.host.ownership().revision(&key.session).await?;
        let before = self.look_at(&key).await?;
        let finished = match &before.state {
            state if state.is_live() => return Ok(Continued::StillRunning(before)),
            TaskState::Terminal(finished) if finished.is_interrupted() => finished,
            _ => return Ok(Continued::NotContinuable(before)),
        };
        let Some(input) = self.host.ownership().input_of(&key, before.run).await? else {
            return Ok(Continued::NotContinuable(self.look_at(&key).await?));
        };
        let session = finished.snapshot.clone().map(ChildSession::Stored);
        self.next_run(before, revision, input, session).await
    }

    fn agent_of(&self, task: &Inspection) -> Option<Arc<dyn ErasedChild>> {
        self.agents.get(task.agent.as_ref()?).cloned()
    }

    /// Begins the next run of a task that is over.
    async fn next_run(
        &self,
        before: Inspection,
        revision: u64,
        input: Arc<str>,
        session: Option<ChildSession>,
    ) -> Result<Continued, Error> {
        let task = before.key.task;
        let Some(agent) = self.agent_of(&before) else {
            return Ok(unavailable_agent(&before));
        };
        let request = Acquire {
            revision: Some(revision),
            expect: Expected::TerminalRun(before.run),
            input,
            agent: before.agent,
            description: before.description,
            ..self.host.request(before.key)
        };
        Ok(match self.execute(request, agent, session).await? {
            Acquired::Acquired(held) => Continued::Started { task, run: held.run },
            Acquired::Conflict { actual } => Continued::Conflict(actual),
            Acquired::SessionReleased { .. } => Continued::SessionReleased,
            Acquired::Held { key, .. } | Acquired::IdempotencyConflict { key } => {
                Continued::Conflict(self.look_at(&key).await?)
            }
        })
    }

    async fn not_here(&self, key: &TaskKey, run: u32) -> Result<Continued, Error> {
        let instance = self.host.ownership().owner_of(key, run).await?;
        let all = self.host.ownership().inspect_session(&key.session).await?;
        let alive = all
            .tasks
            .iter()
            .any(|task| matches!(&task.state, TaskState::Running { owner, .. } if Some(*owner) == instance));
        Ok(Continued::Unavailable { task: key.task, instance, alive })
    }

    /// Removes a task that is over, with its outcome and its agent's session, for every replica.
    ///
    /// # Errors
    /// [`Error::Store`]: it may have been removed; clear it again.
    pub async fn clear(&self, session: &str, task: u64) -> Result<Forgotten, Error> {
        let key = self.key(session)?.task(task);
        let forgotten = self.host.ownership().forget(&key).await?;
        if forgotten == Forgotten::Forgotten {
            self.local.lock().retain(|(of, _), _| *of != key);
        }
        Ok(forgotten)
    }

    /// Asks for a task to be cancelled, on whichever instance it runs.
    ///
    /// # Errors
    /// [`Error::Store`]: it must not be believed to be cancelled (X12).
    pub async fn cancel(&self, session: &str, task: u64, reason: &str) -> Result<CancelAnswer, Error> {
        let scope = CancelScope::Task(self.key(session)?.task(task));
        self.host.ownership().request_cancel(&scope, &asked(reason)).await
    }

    // --- what a host calls ------------------------------------------------------------------------------

    /// Declares what this replica was told to the others of its host, by the name of that. Called at the start: a
    /// replica that was told otherwise would see none of the tasks of the others (V9).
    ///
    /// # Errors
    /// [`Error::Store`]: register again.
    pub async fn register(&self, host: &str, replace: bool) -> Result<Registered, Error> {
        let SessionTasksSettings { namespace, source, .. } = &*self.settings;
        let declared = self.host.declared(Arc::clone(namespace), Arc::clone(source));
        self.host.ownership().register(host, &declared, replace).await
    }

    /// What a model is told before a turn: one line for each task.
    ///
    /// # Errors
    /// [`Error::Invalid`]. An outage of the store is part of the text.
    pub async fn status_block(&self, session: &str) -> Result<String, Error> {
        match self.list(session).await {
            Ok(all) => Ok(text::block(&all, self.host.instance_id())),
            Err(Error::Store(error)) => Ok(text::no_block(&error)),
            Err(error) => Err(error),
        }
    }

    /// One task as text, as seen from this instance.
    #[must_use]
    pub fn describe(&self, inspection: &Inspection) -> String {
        text::task(inspection, self.host.instance_id())
    }

    /// What became of clearing a task, as text.
    #[must_use]
    pub fn describe_clear(&self, task: u64, forgotten: &Forgotten) -> String {
        text::cleared(task, forgotten)
    }

    /// What became of cancelling a task, as text.
    #[must_use]
    pub fn describe_cancel(&self, task: u64, answer: &CancelAnswer) -> String {
        text::cancelled(task, answer)
    }

    /// Why something could not be done, as text for a model: an outage of the store says nothing about any task (S7.6),
    /// and what was asked to stop may not have been (X12).
    #[must_use]
    pub fn describe_error(&self, error: &Error) -> String {
        text::error(error)
    }

    /// What was waited for, as text.
    #[must_use]
    pub fn describe_wait(&self, waited: &Waited) -> String {
        text::waited(waited, self.host.instance_id())
    }

    /// Outcomes that nobody has acknowledged: to be announced, each at least once. Where there are more than one answer
    /// holds, the others come when these were acknowledged. Who announces one says so by
    /// [`acknowledge`](Self::acknowledge); another replica may announce it at the same time, and the consumer tells
    /// them apart by task and run (P14).
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn undelivered(&self, session: &str) -> Result<Vec<Inspection>, Error> {
        let all = self.list(session).await?;
        let is_new = |task: &Inspection| task.state.finished().is_some() && !task.acknowledged;
        let (mut new, mut room) = (Vec::new(), MOST_LEFT_OUT);
        for task in all.tasks.into_iter().filter(is_new) {
            if all.left_out.binary_search(&task.key.task).is_err() {
                new.push(task);
            } else if room > 0 {
                room -= 1;
                new.push(self.look_at(&task.key).await?);
            }
        }
        Ok(new)
    }

    /// Says that the outcome of a run was delivered to its conversation.
    ///
    /// # Errors
    /// [`Error::Store`]: acknowledge it again.
    pub async fn acknowledge(&self, session: &str, task: u64, run: u32) -> Result<Acknowledgement, Error> {
        self.host.ownership().ack(&self.key(session)?.task(task), run, "conversation").await
    }

    /// The user pressed stop: tasks go on or are cancelled, by the settings. Answers how many were asked to stop.
    ///
    /// # Errors
    /// [`Error::Store`]: they must not be believed to be cancelled (X12).
    pub async fn user_stopped(&self, session: &str) -> Result<usize, Error> {
        if self.settings.when_stopped == WhenStopped::Keep {
            return Ok(0);
        }
        let scope = CancelScope::Session(self.key(session)?);
        match self.host.ownership().request_cancel(&scope, &asked("the user pressed stop")).await? {
            CancelAnswer::Requested { runs } => Ok(runs),
            _ => Ok(0),
        }
    }

    /// The conversation is deleted: its tasks are cancelled on whichever instances they run, and nothing of it begins
    /// any more.
    ///
    /// # Errors
    /// [`Error::Store`]: it must not be believed to be released; release it again.
    pub async fn release(&self, session: &str, release: Release) -> Result<Released, Error> {
        let key = self.key(session)?;
        let released = self.host.ownership().release_session(&key, release).await?;
        if matches!(released, Released::Released { .. }) {
            self.local.lock().retain(|(of, _), _| of.session != key);
        }
        Ok(released)
    }

    // --- the rest ---------------------------------------------------------------------------------------

    async fn execute(
        &self,
        request: Acquire,
        agent: Arc<dyn ErasedChild>,
        session: Option<ChildSession>,
    ) -> Result<Acquired, Error> {
        let (key, local) = (request.key.clone(), Arc::clone(&self.local));
        let run = match request.expect {
            Expected::NotExists => 1,
            Expected::TerminalRun(run) | Expected::LostRun(run) => run.saturating_add(1),
        };
        let work = move |context: RunContext| async move {
            let ChildDone { result, session } = agent.run(context, session).await?;
            let done = Done::from(result);
            Ok(match session {
                Some(ChildSession::Stored(snapshot)) => done.with_snapshot(snapshot),
                Some(ChildSession::Local(object)) => {
                    let mut local = local.lock();
                    // Only the latest run of a task is continued.
                    local.retain(|(of, _), _| *of != key);
                    local.insert((key, run), object);
                    done
                }
                None => done,
            })
        };
        self.host.start(request, work).await
    }

    async fn look_at(&self, key: &TaskKey) -> Result<Inspection, Error> {
        let asked = Instant::now();
        let inspected = self.host.ownership().inspect(key).await;
        if let Err(Error::Store(_)) = &inspected {
            self.host.was_away(asked);
        }
        let inspection = inspected?;
        Ok(self.verdict(&inspection).await?.unwrap_or(inspection))
    }

    /// Declares a task lost whose owner did not renew its lease for the whole grace, if this host may judge of that.
    async fn verdict(&self, inspection: &Inspection) -> Result<Option<Inspection>, Error> {
        let TaskState::Suspect { fence, expired_for, .. } = inspection.state else { return Ok(None) };
        let ownership = self.host.ownership();
        let Inspection { key, run, .. } = inspection;
        if expired_for.duration() < ownership.settings().grace {
            return Ok(None);
        }
        match ownership.declare_lost(key, *run, fence, None).await? {
            DeclaredLost::Lost { state } | DeclaredLost::Changed { state } => Ok(Some(state)),
        }
    }

    /// Forgets child sessions of this OS process whose tasks are no longer kept. A host calls it now and then.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is forgotten for want of an answer.
    pub async fn tidy(&self) -> Result<(), Error> {
        let kept: Vec<(TaskKey, u32)> = self.local.lock().keys().cloned().collect();
        for (key, run) in kept {
            let now = self.host.ownership().inspect(&key).await?;
            if now.run != run || matches!(now.state, TaskState::Expired | TaskState::Unknown) {
                self.local.lock().remove(&(key, run));
            }
        }
        Ok(())
    }
}

fn unavailable_agent(task: &Inspection) -> Continued {
    Continued::AgentUnavailable { agent: task.agent.clone().unwrap_or_default() }
}

fn unavailable(error: &StoreError) -> Waited {
    Waited { unavailable: Some(error.to_string()), ..Waited::default() }
}

fn asked(reason: &str) -> Cancel {
    Cancel {
        mode: CancelMode::Cooperative,
        reason: reason.into(),
        requested_by: "conversation".into(),
        force_after: None,
    }
}
