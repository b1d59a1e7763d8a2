//! The configured agents of one host: those of its file, and those that were made over HTTP and lie in the store.
//!
//! # Invariants
//!
//! 1. What is registered with the facade is what the file and the store say, the file first; an agent that the host
//!    has in its code is never replaced by either.
//! 2. What was answered as made or removed is stored. Other hosts on the store hear of it by its hints, or within
//!    the poll bound where it has none.
//! 3. Programs come from the file alone: no `command` is taken from a request, nor from the store.
//! 4. An agent that was made over HTTP is given no variable of the environment but those that this host allows: it
//!    would send its value to whom it likes. One that names others is not registered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex as AsyncMutex, broadcast};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::chat::ChatRunner;
use super::command::CommandRunner;
use super::definition::AgentDefinition;
use super::toolbox::Toolbox;
use super::view::{AgentSource, AgentView};
use super::webhook::HttpRunner;
use crate::error::Error;
use crate::model::{AgentId, Invalid, Problem};
use crate::store::{Hint, StoreError};
use crate::tenure::Tenure;

/// The most agents that are made over HTTP, and the longest definition of one.
const MOST_STORED: usize = 1000;
const MOST_BYTES: usize = 256 * 1024;

/// How often the store is asked anyway, when it tells of changes by itself: a hint may be missed.
const SELDOM: u32 = 30;

/// The agents of one host that are configured.
///
/// Its agents stay registered when it is dropped; programs can tell their progress until it is.
pub struct Directory {
    shared: Arc<Shared>,
    /// Owns the task that listens to the store, which ends with it.
    _listening: Mutex<JoinSet<()>>,
}

struct Shared {
    tenure: Tenure,
    tools: Arc<Toolbox>,
    known: Mutex<Known>,
    /// Held while what is stored is read or changed, so that an older reading does not come after a newer one.
    changing: AsyncMutex<()>,
}

#[derive(Default)]
struct Known {
    file: BTreeMap<AgentId, AgentDefinition>,
    stored: BTreeMap<AgentId, AgentDefinition>,
    /// The variables that stored agents may name.
    allowed: BTreeSet<String>,
    /// What lies in the store and cannot be used.
    unusable: BTreeSet<AgentId>,
    /// What the facade was given.
    registered: BTreeMap<AgentId, AgentDefinition>,
}

impl Directory {
    /// The directory of a host: the agents that lie in its store are registered when this returns.
    ///
    /// # Errors
    /// [`Error::Store`] when the store does not answer.
    pub async fn open(tenure: Tenure) -> Result<Arc<Self>, Error> {
        Self::open_with(tenure, []).await
    }

    /// As [`open`](Self::open), where agents that are made over HTTP may name these variables of the environment for
    /// their secrets.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_with(
        tenure: Tenure,
        variables: impl IntoIterator<Item = String>,
    ) -> Result<Arc<Self>, Error> {
        let tools = Arc::new(Toolbox::default());
        let hints = tenure.instance.store.watch();
        let known = Known { allowed: variables.into_iter().collect(), ..Known::default() };
        let shared =
            Arc::new(Shared { tenure, tools, known: Mutex::new(known), changing: AsyncMutex::default() });
        shared.reload().await?;
        let mut listening = JoinSet::new();
        listening.spawn(listen(Arc::downgrade(&shared), hints, shared.patience()));
        Ok(Arc::new(Self { shared, _listening: Mutex::new(listening) }))
    }

    /// Takes these as the agents of the file, in place of those it had before: new and changed ones are
    /// registered, those that are gone are not claimed for any more. Attempts in progress go on.
    ///
    /// # Errors
    /// [`Error::Invalid`] with every field that makes no sense, as `agents.NAME.field`, or an agent that the host
    /// has in its code: then everything is as it was.
    pub fn set_file(&self, agents: BTreeMap<AgentId, AgentDefinition>) -> Result<(), Error> {
        let mut known = self.shared.known.lock();
        let mut problems = Vec::new();
        for (agent_id, definition) in &agents {
            if self.shared.is_hosts(&known, agent_id) {
                let expected = "another name: the host has an agent of this one in its code".to_owned();
                problems.push(Problem { field: format!("agents.{agent_id}"), expected });
            }
            let wrong = definition.check().err().map_or_else(Vec::new, |invalid| invalid.problems);
            problems.extend(wrong.into_iter().map(|Problem { field, expected }| Problem {
                field: format!("agents.{agent_id}.{field}"),
                expected,
            }));
        }
        if !problems.is_empty() {
            return Err(Invalid { problems }.into());
        }
        known.file = agents;
        self.shared.apply(&mut known);
        Ok(())
    }

    /// Allows agents that are made over HTTP, and those that were, to name these variables and no others.
    pub fn allow_variables(&self, variables: impl IntoIterator<Item = String>) {
        let mut known = self.shared.known.lock();
        known.allowed = variables.into_iter().collect();
        self.shared.apply(&mut known);
    }

    /// Makes an agent, or makes it anew, and stores it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the definition makes no sense, runs a program, names a variable that is not allowed, or
    /// the agent comes from the file or the code of the host; [`Error::Store`]: after an unknown outcome it may have
    /// been made.
    pub async fn put(&self, agent_id: AgentId, definition: AgentDefinition) -> Result<AgentView, Error> {
        self.store(agent_id, definition, false).await
    }

    /// Makes an agent that is not there yet, and stores it.
    ///
    /// # Errors
    /// As [`Directory::put`]; [`Error::Exists`] when there is an agent of this name.
    pub async fn create(&self, agent_id: AgentId, definition: AgentDefinition) -> Result<AgentView, Error> {
        self.store(agent_id, definition, true).await
    }

    /// Removes an agent that was made over HTTP. Its tasks stay: their runs wait until there is such an agent again,
    /// and say so (T5).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when it comes from the file or the code of the host; [`Error::Store`].
    pub async fn remove(&self, agent_id: &AgentId) -> Result<(), Error> {
        let shared = &self.shared;
        let _alone = shared.changing.lock().await;
        shared.read_stored().await?;
        let (fixed, stored) = {
            let known = shared.known.lock();
            let stored = known.stored.contains_key(agent_id) || known.unusable.contains(agent_id);
            (shared.fixed(&known, agent_id), stored)
        };
        match fixed {
            Some(fixed) if !stored => return Err(fixed.into()),
            _ if !stored => return Err(Error::NotFound { kind: "agent", id: agent_id.to_string() }),
            _ => {}
        }
        shared.tenure.instance.store.put_agent(agent_id, None).await?;
        let mut known = shared.known.lock();
        known.stored.remove(agent_id);
        known.unusable.remove(agent_id);
        shared.apply(&mut known);
        Ok(())
    }

    /// Every agent of the host by name, those in its code as well.
    #[must_use]
    pub fn list(&self) -> Vec<AgentView> {
        let known = self.shared.known.lock();
        let mut views: BTreeMap<AgentId, AgentView> = BTreeMap::new();
        for agent_id in self.shared.tenure.agents().iter() {
            views.insert(agent_id.clone(), AgentView::host(agent_id.clone()));
        }
        for (agent_id, definition) in &known.registered {
            views.insert(agent_id.clone(), known.view(agent_id, definition));
        }
        views.into_values().collect()
    }

    /// An agent of the host.
    #[must_use]
    pub fn get(&self, agent_id: &AgentId) -> Option<AgentView> {
        let known = self.shared.known.lock();
        if let Some(definition) = known.registered.get(agent_id) {
            return Some(known.view(agent_id, definition));
        }
        let is_hosts = self.shared.tenure.agents().contains(agent_id);
        is_hosts.then(|| AgentView::host(agent_id.clone()))
    }

    /// Takes no more progress from programs, and removes the socket for it: for the end of a host, which leaves
    /// nothing behind. Dropping the directory does the same.
    pub fn close(&self) {
        self.shared.tools.close();
    }

    async fn store(
        &self,
        agent_id: AgentId,
        definition: AgentDefinition,
        new: bool,
    ) -> Result<AgentView, Error> {
        definition.check()?;
        if matches!(definition, AgentDefinition::Command(_)) {
            return Err(no_program().into());
        }
        let shared = &self.shared;
        shared.known.lock().may_name(&definition)?;
        let _alone = shared.changing.lock().await;
        shared.read_stored().await?;
        let text = definition.to_json();
        shared.may_store(&agent_id, &text, new)?;
        shared.tenure.instance.store.put_agent(&agent_id, Some(text.into())).await?;
        let mut known = shared.known.lock();
        let view = AgentView::new(agent_id.clone(), AgentSource::Stored, &definition);
        known.unusable.remove(&agent_id);
        known.stored.insert(agent_id, definition);
        shared.apply(&mut known);
        Ok(view)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.close();
    }
}

impl Known {
    /// Whether an agent that was made over HTTP names allowed variables alone.
    fn may_name(&self, definition: &AgentDefinition) -> Result<(), Invalid> {
        let named = definition.variables().into_iter();
        let refused = named.filter(|(_, name)| !self.allowed.contains(*name));
        let problems: Vec<Problem> = refused
            .map(|(field, name)| {
                let expected = format!(
                    "a variable that agents made by requests may use; \"{name}\" is not in agent_env of the section \
                     [server] of this host"
                );
                Problem { field, expected }
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(Invalid { problems }) }
    }

    fn view(&self, agent_id: &AgentId, definition: &AgentDefinition) -> AgentView {
        let from_file = self.file.contains_key(agent_id);
        let source = if from_file { AgentSource::File } else { AgentSource::Stored };
        AgentView::new(agent_id.clone(), source, definition)
    }
}

impl Shared {
    fn patience(&self) -> Duration {
        let poll = self.tenure.settings().poll;
        let capabilities = self.tenure.instance.store.capabilities();
        let told = capabilities.watch_across || !capabilities.shared;
        if told { poll.saturating_mul(SELDOM) } else { poll }
    }

    /// Whether the host has an agent of this name in its code.
    fn is_hosts(&self, known: &Known, agent_id: &AgentId) -> bool {
        !known.registered.contains_key(agent_id) && self.tenure.agents().contains(agent_id)
    }

    /// Why an agent cannot be changed by a request, if it cannot.
    fn fixed(&self, known: &Known, agent_id: &AgentId) -> Option<Invalid> {
        let from = if known.file.contains_key(agent_id) {
            "the file of the host: change it there"
        } else if self.is_hosts(known, agent_id) {
            "the code of the host"
        } else {
            return None;
        };
        let expected = format!("an agent that was made by a request; \"{agent_id}\" comes from {from}");
        Some(Invalid::one("agent_id", expected))
    }

    fn may_store(&self, agent_id: &AgentId, text: &str, new: bool) -> Result<(), Error> {
        let known = self.known.lock();
        let stored = known.stored.contains_key(agent_id);
        let fixed = self.fixed(&known, agent_id);
        if new && (stored || fixed.is_some()) {
            return Err(Error::Exists { kind: "agent", id: agent_id.to_string() });
        }
        if let Some(fixed) = fixed {
            return Err(fixed.into());
        }
        if text.len() > MOST_BYTES {
            let expected = format!("at most {MOST_BYTES} bytes, found {}", text.len());
            return Err(Invalid::one("agent", expected).into());
        }
        if !stored && known.stored.len() >= MOST_STORED {
            let expected = format!("at most {MOST_STORED} agents that are made by requests; remove some");
            return Err(Invalid::one("agent_id", expected).into());
        }
        Ok(())
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let _alone = self.changing.lock().await;
        self.read_stored().await
    }

    /// Takes what the store says of agents.
    async fn read_stored(&self) -> Result<(), StoreError> {
        let said = self.tenure.instance.store.agents().await?;
        let (mut stored, mut unusable) = (BTreeMap::new(), BTreeSet::new());
        let mut known = self.known.lock();
        for (agent_id, text) in said {
            match usable(&text) {
                Ok(definition) => drop(stored.insert(agent_id, definition)),
                Err(invalid) => {
                    if !known.unusable.contains(&agent_id) {
                        tracing::warn!(agent = %agent_id, error = %invalid, "a stored agent cannot be used");
                    }
                    unusable.insert(agent_id);
                }
            }
        }
        if known.stored != stored || known.unusable != unusable {
            (known.stored, known.unusable) = (stored, unusable);
            self.apply(&mut known);
        }
        Ok(())
    }

    /// Registers what is new or changed, and what is gone no longer.
    fn apply(&self, known: &mut Known) {
        let mut wanted = known.stored.clone();
        wanted.retain(|agent_id, definition| match known.may_name(definition) {
            Ok(()) => true,
            Err(invalid) => {
                tracing::warn!(agent = %agent_id, error = %invalid, "a stored agent may not be used here");
                false
            }
        });
        wanted.extend(known.file.iter().map(|(id, definition)| (id.clone(), definition.clone())));
        for agent_id in known.registered.keys().filter(|id| !wanted.contains_key(id)) {
            self.tenure.unregister_agent(agent_id);
        }
        wanted.retain(|agent_id, _| {
            let hosts = self.is_hosts(known, agent_id);
            if hosts {
                tracing::warn!(agent = %agent_id, "a stored agent has the name of one in the host's code");
            }
            !hosts
        });
        for (agent_id, definition) in &wanted {
            if known.registered.get(agent_id) != Some(definition) {
                self.register(agent_id, definition.clone());
            }
        }
        known.registered = wanted;
    }

    fn register(&self, agent_id: &AgentId, definition: AgentDefinition) {
        let (id, tools) = (agent_id.as_str(), Arc::clone(&self.tools));
        let registered = match definition {
            AgentDefinition::Command(agent) => {
                self.tenure.register_agent(id, CommandRunner::new(agent, tools))
            }
            AgentDefinition::Chat(agent) => self.tenure.register_agent(id, ChatRunner::new(agent, tools)),
            AgentDefinition::Http(agent) => self.tenure.register_agent(id, HttpRunner::new(agent, tools)),
        };
        if let Err(error) = registered {
            tracing::error!(agent = id, %error, "an agent was not registered");
        }
    }
}

fn usable(text: &str) -> Result<AgentDefinition, Invalid> {
    match AgentDefinition::parse(text)? {
        AgentDefinition::Command(_) => Err(no_program()),
        definition => Ok(definition),
    }
}

fn no_program() -> Invalid {
    Invalid::one(
        "kind",
        "\"chat\" or \"http\": agents that run programs come from the file of the host alone",
    )
}

/// Reads what is stored again whenever it may have changed.
async fn listen(shared: Weak<Shared>, mut hints: broadcast::Receiver<Hint>, patience: Duration) {
    loop {
        let told = timeout(patience, changed(&mut hints)).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.reload().await {
            tracing::debug!(%error, "what is stored of agents could not be read; tried again");
        }
        drop(shared);
        if told == Ok(false) {
            // The store tells nothing any more.
            sleep(patience).await;
        }
    }
}

/// Waits until agents may have changed. False if nobody will tell.
async fn changed(hints: &mut broadcast::Receiver<Hint>) -> bool {
    loop {
        match hints.recv().await {
            Ok(hint) if hint.agents => {
                // Others that wait already say the same.
                while hints.recv().now_or_never().is_some_and(|told| told.is_ok()) {}
                return true;
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}
