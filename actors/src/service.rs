//! Services: children that a generation keeps running, each by its own spec.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::error::StartError;
use crate::generation::core::Core;
use crate::generation::{GenerationMessage, ServiceCommand};
use crate::id::InvalidId;
use crate::process::{ProcessHandle, ProcessSpec};
use crate::rules::{Backoff, ChildPolicy, Intensity, Patience, Restart};

/// How to make a service, again for every incarnation, and when to start it again.
#[derive(Clone)]
pub struct ServiceSpec {
    pub(crate) name: Arc<str>,
    pub(crate) make: Arc<dyn Fn() -> ProcessSpec + Send + Sync>,
    pub(crate) policy: ChildPolicy,
    pub(crate) patience: Option<Patience>,
}

impl ServiceSpec {
    /// A permanent service without limits of its own. `make` builds what runs, of any kind that a process
    /// can be; it is called again for every incarnation and must be prompt. Its role is the service's name.
    pub fn new(name: impl Into<Arc<str>>, make: impl Fn() -> ProcessSpec + Send + Sync + 'static) -> Self {
        Self { name: name.into(), make: Arc::new(make), policy: ChildPolicy::default(), patience: None }
    }

    /// When it is started again. Default: always.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.policy.restart = restart;
        self
    }

    /// How many restarts of this service are put up with, besides those of all together. Default: unlimited.
    #[must_use]
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.policy.intensity = intensity;
        self
    }

    /// How long to wait before each restart.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// How long it is waited for after it was told to stop. Default: that of its generation.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ServiceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceSpec")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// What a service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ServiceState {
    /// Its start is in progress.
    Starting,
    /// It runs.
    Running,
    /// It is told to stop and has not ended yet.
    Stopping,
    /// It waits for its back-off, or for its turn.
    Restarting,
    /// It ended by itself and is not started again; its spec is kept.
    Ended,
    /// It was stopped by name; its spec is kept.
    Stopped,
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Restarting => "restarting",
            Self::Ended => "ended",
            Self::Stopped => "stopped",
        })
    }
}

/// A service as [`Services::list`] shows it.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceInfo {
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub state: ServiceState,
    /// When it is started again, and within which limits.
    pub policy: ChildPolicy,
    /// How long it is waited for after it was told to stop.
    pub patience: Patience,
    /// The current incarnation, as in `scheduler#2`; none while it has no process.
    pub incarnation: Option<String>,
    /// The process of the current incarnation.
    #[serde(skip)]
    pub process: Option<ProcessHandle>,
}

/// Why a service was not started, restarted, terminated or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The name is no identifier.
    #[error(transparent)]
    Invalid(#[from] InvalidId),
    /// The name is taken.
    #[error("service \"{name}\" already exists and is {state}; terminate and delete it first")]
    AlreadyExists {
        /// The name.
        name: Arc<str>,
        /// What it does.
        state: ServiceState,
    },
    /// There is no service of this name.
    #[error("service \"{name}\" does not exist")]
    NotFound {
        /// The name.
        name: Arc<str>,
    },
    /// It has a process, or will have one soon; it must be terminated first.
    #[error("service \"{name}\" is {state}; terminate it first")]
    InUse {
        /// The name.
        name: Arc<str>,
        /// What it does.
        state: ServiceState,
    },
    /// The generation has as many services as it may.
    #[error("service \"{name}\" was not started: there are {limit}, which is the limit")]
    TooManyServices {
        /// The name.
        name: Arc<str>,
        /// The limit.
        limit: usize,
    },
    /// Its start failed. A service that was being added is not kept.
    #[error("service \"{name}\": {source}")]
    StartFailed {
        /// The name.
        name: Arc<str>,
        /// Why.
        source: StartError,
    },
    /// It was terminated before its start had settled.
    #[error("service \"{name}\" was terminated before it had started")]
    Terminated {
        /// The name.
        name: Arc<str>,
    },
    /// The generation closes or is closed.
    #[error("services are closed; ask the application for its current generation")]
    Closed,
}

/// A handle to the services of one generation. A cheap clone; after the generation was closed it answers
/// *closed*.
#[derive(Clone)]
pub struct Services {
    core: Arc<Core>,
}

impl Services {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Adds a service, started after those there are, and answers when its start has settled.
    ///
    /// # Errors
    /// Any [`ServiceError`]; a service whose first start fails is not kept (peer case OS-10).
    ///
    /// Cancel safety: the start goes on when the future is dropped after its first poll.
    pub async fn start(&self, spec: ServiceSpec) -> Result<ProcessHandle, ServiceError> {
        self.command(|reply| ServiceCommand::Start(spec, reply)).await
    }

    /// Starts a service that was terminated, or that ended by itself.
    ///
    /// # Errors
    /// [`ServiceError::InUse`] while it runs or restarts; the error of its start, and then it stays stopped.
    ///
    /// Cancel safety: the start goes on when the future is dropped after its first poll.
    pub async fn restart(&self, name: &str) -> Result<ProcessHandle, ServiceError> {
        self.command(|reply| ServiceCommand::Restart(name.into(), reply)).await
    }

    /// Stops a service and keeps it stopped; a temporary one is forgotten. Answers when it has ended.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    ///
    /// Cancel safety: the stop goes on when the future is dropped after its first poll.
    pub async fn terminate(&self, name: &str) -> Result<(), ServiceError> {
        self.command(|reply| ServiceCommand::Terminate(name.into(), reply)).await
    }

    /// Forgets a service that has no process.
    ///
    /// # Errors
    /// [`ServiceError::InUse`] while it runs or restarts.
    ///
    /// Cancel safety: the service is forgotten all the same when the future is dropped after its first poll.
    pub async fn delete(&self, name: &str) -> Result<(), ServiceError> {
        self.command(|reply| ServiceCommand::Delete(name.into(), reply)).await
    }

    /// The services in start order; none once the generation is closed. Reads what is published; never waits
    /// for the actor.
    #[must_use]
    pub fn list(&self) -> Vec<ServiceInfo> {
        if self.core.closing.report().is_some() {
            return Vec::new();
        }
        self.core.service_list.read().values().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ServiceInfo> {
        if self.core.closing.report().is_some() {
            return None;
        }
        self.core.service_list.read().values().find(|service| &*service.name == name).cloned()
    }

    async fn command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, ServiceError>>) -> ServiceCommand,
    ) -> Result<T, ServiceError> {
        let (reply, answer) = oneshot::channel();
        let Some(generation) = self.core.actors.generation.get() else {
            return Err(ServiceError::Closed);
        };
        if generation.cast(GenerationMessage::Service(command(reply))).is_err() {
            return Err(ServiceError::Closed);
        }
        self.core.answer(answer).await.unwrap_or(Err(ServiceError::Closed))
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list().iter().map(|service| &service.name)).finish()
    }
}
