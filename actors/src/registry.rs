//! The registry: admits, finds and removes managed processes, and owns nothing else.
//!
//! Reads load a concurrent index and never wait for the actor. Nor does a start: admission is serialised by the
//! ledger, and whoever starts a process spawns it. The actor serves those who send its messages and tidies up
//! after processes that ended; it runs no user code and awaits neither a start nor a close in its handlers: one
//! slow or hanging start delays nobody. Numbered promises: supervision contract, G1 to G13 and R1 to R42.

use std::fmt;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, Message, RpcReplyPort};
use tokio::time::Instant;

use crate::child::{Child, Place};
use crate::error::{CloseError, StartError};
use crate::event::{ActorName, CloseReason, EventKind, StopReason};
use crate::exit::ExitReason;
use crate::generation::close::{self, Stop};
use crate::generation::core::Core;
use crate::generation::report::CloseReport;
use crate::id::ProcessId;
use crate::inside;
use crate::process::wrapper::{Starter, launch};
use crate::process::{
    ManagedProcess, ProcessHandle, ProcessIdentity, ProcessInfo, ProcessKind, ProcessSpec, object_of,
};
use crate::tasks;

/// So many starts of a generation go on in a row: what they began has its first turns while it lies in the caches.
const BURST: u64 = 16;

/// The registry's protocol. Public, so that plugin actors written with plain ractor use it directly; what
/// handles them are the methods of [`Registry`].
///
/// A registry that is closed and gone drops messages and their reply ports: `ractor::call!` then answers an
/// error, which means *closed*. Give calls a time limit (`ractor::call_t!`): a message that is being sent in the
/// moment in which the registry fails may stay in its mailbox unanswered.
pub enum RegistryMessage {
    /// Starts a process under an id. Answered when the start has settled.
    Start {
        /// The id; free, or the start is refused.
        id: ProcessId,
        /// The process.
        process: ProcessSpec,
        /// Answers the started process, or why there is none.
        reply: RpcReplyPort<Result<ProcessHandle, StartError>>,
    },
    /// Finds a process, starting or running.
    Get {
        /// Its id.
        id: ProcessId,
        /// Answers the process; none if the id is free.
        reply: RpcReplyPort<Option<ProcessHandle>>,
    },
    /// Gives up an id, if `identity` owns it. Never calls the process's `close`.
    Remove {
        /// The id.
        id: ProcessId,
        /// Who gives it up.
        identity: ProcessIdentity,
        /// Answers whether this removal did it.
        reply: RpcReplyPort<bool>,
    },
    /// Lists the registered processes in start order.
    List {
        /// Answers a line each.
        reply: RpcReplyPort<Vec<ProcessInfo>>,
    },
    /// Counts the registered processes.
    Count {
        /// Answers how many ids are taken.
        reply: RpcReplyPort<usize>,
    },
    /// Waits for the end of a process.
    Watch {
        /// Its id.
        id: ProcessId,
        /// Answers how it ended, when it has ended; at once with none if the id is free.
        reply: RpcReplyPort<Option<ExitReason>>,
    },
    /// Closes the registry: rejects new starts, waits for starts in progress, closes every process.
    Close {
        /// Answers the report, the same to every caller.
        reply: RpcReplyPort<Arc<CloseReport>>,
    },
    /// The kernel's own affairs.
    Kernel(KernelNotice),
}

/// What the kernel tells its own registry.
pub struct KernelNotice(Notice);

enum Notice {
    /// Fail, as a test wants it.
    #[cfg(feature = "testkit")]
    Panic(String),
}

impl RegistryMessage {
    #[cfg(feature = "testkit")]
    pub(crate) fn panic(text: &str) -> Self {
        Self::Kernel(KernelNotice(Notice::Panic(text.to_owned())))
    }
}

impl fmt::Debug for RegistryMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start { .. } => "Start",
            Self::Get { .. } => "Get",
            Self::Remove { .. } => "Remove",
            Self::List { .. } => "List",
            Self::Count { .. } => "Count",
            Self::Watch { .. } => "Watch",
            Self::Close { .. } => "Close",
            Self::Kernel(_) => "Kernel",
        })
    }
}

/// A handle to the registry of one generation. A cheap clone; after the generation was closed it answers
/// *closed* and *none*, and never reaches the next generation.
#[derive(Clone)]
pub struct Registry {
    core: Arc<Core>,
}

impl Registry {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The actor behind this handle, for plugin actors that send its messages themselves; none only before
    /// the generation has opened.
    #[must_use]
    pub fn actor_ref(&self) -> Option<ActorRef<RegistryMessage>> {
        self.core.actors.registry.get().cloned()
    }

    /// Starts a process and answers when its start has settled: registered and running, or not at all.
    ///
    /// # Errors
    /// Any [`StartError`]. When it is refused before its start ran, neither `start` nor `close` was called.
    ///
    /// Cancel safety: dropping the future does not cancel the start, which settles one way (contract, R40).
    ///
    /// ```
    /// # use tenure_actors::*;
    /// # async fn f(registry: Registry) -> Result<(), StartError> {
    /// let process = registry
    ///     .start("index:docs", ProcessSpec::function("index", |context| async move {
    ///         context.commit(|| println!("indexed"))?;
    ///         Ok(())
    ///     }))
    ///     .await?;
    /// println!("{}", process.ended().await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start<I>(&self, id: I, process: ProcessSpec) -> Result<ProcessHandle, StartError>
    where
        I: TryInto<ProcessId>,
        StartError: From<I::Error>,
    {
        let (id, mut process) = (id.try_into()?, process);
        // Here, for nothing of it waits, and the way to the actor and back would cost as much again.
        let admitted = match admit(&self.core, &id, &mut process) {
            Ok(child) if child.kind == ProcessKind::Function => {
                begin(&self.core, &child, process, None);
                // It has started, so there is nothing to wait for; but whoever starts many is to let others run.
                if child.name.seq.0 % BURST == BURST - 1 {
                    tasks::give_way().await;
                }
                self.core.chaos.pause().await;
                return Ok(ProcessHandle::new(child));
            }
            admitted => admitted,
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        match admitted {
            Ok(child) => begin(&self.core, &child, process, Some(Starter::Caller(reply.into()))),
            // The actor decides again, and tells of it, unless it is gone.
            Err(_) => {
                let (id, reply) = (id.clone(), reply.into());
                self.send(RegistryMessage::Start { id, process, reply });
            }
        }
        self.core.chaos.pause().await;
        self.core.answer(answer).await.unwrap_or(Err(StartError::RegistryClosed { id }))
    }

    async fn call<T>(&self, message: impl FnOnce(RpcReplyPort<T>) -> RegistryMessage) -> Option<T> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.send(message(reply.into()));
        self.core.answer(answer).await
    }

    /// A message to an actor that is gone drops its reply port, which says so.
    fn send(&self, message: RegistryMessage) {
        if let Some(actor) = self.core.actors.registry.get() {
            drop(actor.cast(message));
        }
    }

    /// The process object registered under `id`, starting or running: the same concrete object that was
    /// started. None if the id is free, or the process is no object of this type.
    ///
    /// Reads the index; never waits for the actor.
    #[must_use]
    pub fn get<P: ManagedProcess>(&self, id: &str) -> Option<Arc<P>> {
        object_of(&*self.core.find(id)?)
    }

    /// The actor registered under `id`; none if the id is free, or the process is no actor with this message
    /// type, or it has not been spawned yet.
    #[must_use]
    pub fn get_actor<M: Message>(&self, id: &str) -> Option<ActorRef<M>> {
        self.lookup(id)?.actor()
    }

    /// The process registered under `id`, of whatever kind.
    #[must_use]
    pub fn lookup(&self, id: &str) -> Option<ProcessHandle> {
        self.core.find(id).map(ProcessHandle::new)
    }

    /// Gives up `id`, if `identity` owns it, without calling the process's `close`: its terminal path is
    /// done. The authority of the process ends with it. During its start the removal is remembered and
    /// honoured when the start has succeeded.
    ///
    /// False, and no error, when the id is free or belongs to another process (contract, R14 to R18).
    #[must_use = "false means that the id belongs to nobody, or to another process"]
    pub fn remove(&self, id: &str, identity: &ProcessIdentity) -> bool {
        let Some(child) = self.core.find(id) else {
            return false;
        };
        if identity.is(&child) {
            return child.remove();
        }
        self.core.journal.emit(child.trail().last, || {
            let (process, owner) = (child.id.clone(), Some(child.name.clone()));
            (ActorName::Registry(self.core.epoch), EventKind::UnbindRefused { process, owner })
        });
        false
    }

    /// The registered processes in start order.
    #[must_use]
    pub fn list(&self) -> Vec<ProcessInfo> {
        let mut children = self.core.indexed();
        children.sort_unstable_by_key(|child| child.name.seq);
        let line = |child: Arc<Child>| {
            child.state().map(|state| ProcessInfo {
                id: child.id.clone(),
                name: child.name.to_string(),
                kind: child.kind,
                state,
                progress: child.progress(),
            })
        };
        children.into_iter().filter_map(line).collect()
    }

    /// How many ids are taken.
    #[must_use]
    pub fn count(&self) -> usize {
        self.core.names.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Waits for the end of the process registered under `id`; none at once if the id is free.
    ///
    /// Keep a [`ProcessHandle`] to learn of an end that may have happened already.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn watch(&self, id: &str) -> Option<ExitReason> {
        Some(self.lookup(id)?.ended().await)
    }

    /// Closes the registry alone: rejects new starts, waits for starts in progress, closes every registered
    /// process in reverse start order, isolates failures. The generation goes on without processes. The
    /// close of the generation does the same and more.
    ///
    /// # Errors
    /// [`CloseError::Inside`] when a process of the generation asks: the close goes on without it waiting.
    ///
    /// Cancel safety: the close goes on when the future is dropped.
    pub async fn close(&self) -> Result<Arc<CloseReport>, CloseError> {
        let answer = self.call(|reply| RegistryMessage::Close { reply });
        if inside::is_inside(&self.core) {
            // Sent, not awaited: the asker is one of those that the close waits for.
            let mut answer = std::pin::pin!(answer);
            let _ = futures_util::poll!(&mut answer);
            return Err(CloseError::Inside { epoch: self.core.epoch });
        }
        match answer.await {
            Some(report) => Ok(report),
            // The actor is gone. Who closed the registry alone goes on getting the report of that close.
            None => match self.core.registry_report.get() {
                Some(report) => Ok(Arc::clone(report)),
                None => self.core.closing.outcome().await,
            },
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry(epoch {}, processes {})", self.core.epoch, self.count())
    }
}

/// The actor.
pub(crate) struct RegistryActor;

impl Actor for RegistryActor {
    type Msg = RegistryMessage;
    type State = Arc<Core>;
    type Arguments = Arc<Core>;

    async fn pre_start(
        &self,
        _: ActorRef<RegistryMessage>,
        core: Arc<Core>,
    ) -> Result<Arc<Core>, ActorProcessingErr> {
        Ok(core)
    }

    async fn handle(
        &self,
        _: ActorRef<RegistryMessage>,
        message: RegistryMessage,
        core: &mut Arc<Core>,
    ) -> Result<(), ActorProcessingErr> {
        core.chaos.pause().await;
        let registry = || Registry::new(Arc::clone(core));
        // An answer that nobody waits for any more is no fault of ours.
        match message {
            RegistryMessage::Start { id, process, reply } => start(core, id, process, reply),
            RegistryMessage::Get { id, reply } => drop(reply.send(registry().lookup(id.as_str()))),
            RegistryMessage::Remove { id, identity, reply } => {
                drop(reply.send(registry().remove(id.as_str(), &identity)));
            }
            RegistryMessage::List { reply } => drop(reply.send(registry().list())),
            RegistryMessage::Count { reply } => drop(reply.send(registry().count())),
            RegistryMessage::Watch { id, reply } => watch(core, &id, reply),
            RegistryMessage::Close { reply } => close(core, reply),
            #[cfg(feature = "testkit")]
            #[allow(clippy::panic, reason = "what a test asked for")]
            RegistryMessage::Kernel(KernelNotice(Notice::Panic(text))) => panic!("{text}"),
        }
        Ok(())
    }
}

fn start(
    core: &Arc<Core>,
    id: ProcessId,
    mut process: ProcessSpec,
    reply: RpcReplyPort<Result<ProcessHandle, StartError>>,
) {
    match admit(core, &id, &mut process) {
        Ok(child) => begin(core, &child, process, Some(Starter::Caller(reply))),
        Err(error) => {
            refused(core, &error);
            // Before the answer: whoever hears of it can reserve again at once (contract, C2).
            process.discard();
            drop(reply.send(Err(error)));
        }
    }
}

fn admit(core: &Arc<Core>, id: &ProcessId, process: &mut ProcessSpec) -> Result<Arc<Child>, StartError> {
    let role = process.role()?;
    core.admit(id, Place::Registry, process, role)
}

fn begin(core: &Arc<Core>, child: &Arc<Child>, process: ProcessSpec, starter: Option<Starter>) {
    let admitted = core.journal.emit(child.held_since().or(core.events.opened()), || {
        let (process, child) = (child.id.clone(), child.name.clone());
        (ActorName::Registry(core.epoch), EventKind::Admitted { process, child })
    });
    child.note_admitted(admitted);
    let started = core.journal.emit(admitted, || {
        let child = child.actor_name();
        (ActorName::Generation(core.epoch), EventKind::Started { child })
    });
    launch(core, child, process, starter, started);
}

fn refused(core: &Core, error: &StartError) {
    core.journal.emit(core.events.sealed().or(core.events.opened()), || {
        let (id, why) = match error {
            StartError::AlreadyExists { id, state } => (id.as_str(), format!("already {state}")),
            StartError::RegistryClosed { id } => (id.as_str(), "registry closed".to_owned()),
            StartError::TooManyProcesses { id, limit } => (id.as_str(), format!("limit of {limit} reached")),
            other => ("a process", other.to_string()),
        };
        (ActorName::Registry(core.epoch), EventKind::Refused { what: id.into(), why: why.into() })
    });
}

fn watch(core: &Arc<Core>, id: &ProcessId, reply: RpcReplyPort<Option<ExitReason>>) {
    let Some(child) = core.find(id.as_str()) else {
        drop(reply.send(None));
        return;
    };
    tasks::spawn(async move {
        let ended = child.ended().await;
        drop(reply.send(Some(ended)));
    });
}

/// Authority of the processes ends here; the rest happens beside the actor.
fn close(core: &Arc<Core>, reply: RpcReplyPort<Arc<CloseReport>>) {
    core.population(Place::Registry).admissions.close();
    core.gather_processes();
    let core = Arc::clone(core);
    tasks::spawn(async move {
        let report = core.registry_report.get_or_init(|| close_processes(&core)).await;
        drop(reply.send(Arc::clone(report)));
        // The answer does not wait for memory to be given back.
        tokio::task::yield_now().await;
        core.let_go();
    });
}

async fn close_processes(core: &Arc<Core>) -> Arc<CloseReport> {
    let begun = Instant::now();
    let deadline = begun + core.limits.close_deadline;
    let stop = Stop { reason: StopReason::Closed, cause: core.events.opened(), deadline };
    core.processes_ended.get_or_init(|| close::end_processes(core, stop)).await;
    let in_flight = core.undrained();
    let what = (core.epoch, CloseReason::Requested, begun.elapsed());
    Arc::new(core.counters.report(&[Place::Registry], what, &in_flight, Vec::new()))
}
