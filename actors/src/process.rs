//! Managed processes: the three kinds there are, and what is known about one from outside.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorRef, ActorRuntime, SpawnErr};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::child::Child;
use crate::contain::Kept;
use crate::event::StopReason;
use crate::exit::{ExitReason, ProcessResult};
use crate::generation::core::Core;
use crate::id::{Epoch, FencingToken, InvalidId, ProcessId, Role, RoleText};
use crate::operations::OperationLease;
use crate::process::guarded::Guarded;
use crate::rules::Patience;
pub use crate::rules::ProcessKind;

mod context;
mod guarded;
mod held;
pub(crate) mod wrapper;

pub use context::{Permit, ProcessContext};

/// An object that owns background work of its own: the protocol of the brief.
///
/// Both methods must be prompt. They run in the process's own actor, each within its bound, and a panic in
/// them is contained. A method that blocks its thread cannot be cut off: hand blocking work to
/// `tokio::task::spawn_blocking` or to a thread.
///
/// Other methods of the object are its plugin's business; the registry finds the same concrete object again
/// (`Registry::get`) and never serialises calls of them.
pub trait ManagedProcess: Send + Sync + 'static {
    /// Launches the work and returns; does not wait for it.
    ///
    /// # Errors
    /// Any error refuses the start: [`ManagedProcess::close`] is called once as best-effort clean-up, the id
    /// is given up, and the error reaches the caller of `start` unchanged.
    fn start(self: Arc<Self>, context: ProcessContext) -> impl Future<Output = ProcessResult> + Send;

    /// Signals the end, invalidates late work, and returns; does not wait for a provider.
    ///
    /// Authority to commit has been revoked before it is called. Not called when the process removed itself.
    ///
    /// # Errors
    /// An error is reported in the close report; it stops no other close.
    fn close(self: Arc<Self>) -> impl Future<Output = ProcessResult> + Send {
        async { Ok(()) }
    }
}

/// What a process does under its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ProcessState {
    /// Reserved, its start is in progress.
    Starting,
    /// Started.
    Running,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
        })
    }
}

/// How far a process says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// 0 to 100, if the process knows.
    pub percent: Option<u8>,
    /// What it is doing.
    pub text: Arc<str>,
}

/// A process to be started: its kind, its code, and how it is to be treated.
///
/// ```
/// # use tenure_actors::{ProcessContext, ProcessSpec, rules::Patience};
/// let spec = ProcessSpec::function("index", |context: ProcessContext| async move {
///     context.cancelled().await;
///     Ok(())
/// })
/// .patience(Patience::Time(500));
/// ```
pub struct ProcessSpec {
    /// Invalid roles are told when the process is started. Boxed, as all that few processes bring: a spec is
    /// moved several times on its way.
    role: Result<Role, Box<InvalidId>>,
    kind: ProcessKind,
    /// It may be dropped anywhere in the kernel: refused, or left in the mailbox of a registry that has failed.
    pub(crate) body: Kept<Body>,
    pub(crate) patience: Option<Patience>,
    start_bound: Option<Duration>,
    extras: Option<Box<Extras>>,
}

#[derive(Default)]
struct Extras {
    leases: Vec<OperationLease>,
    fence: Option<FencingToken>,
}

/// Code that was not run yet.
pub(crate) enum Body {
    Function(FunctionBody),
    Object(Arc<dyn ErasedProcess>),
    Actor(Box<dyn ErasedActor>),
}

pub(crate) type FunctionBody = Box<dyn FnOnce(ProcessContext) -> BoxFuture<'static, ProcessResult> + Send>;

impl ProcessSpec {
    /// A process that is an asynchronous function. It is told to stop through
    /// [`ProcessContext::cancelled`], and cut off at an await when it does not end within its patience.
    ///
    /// `role` names the kind of process in trees, events and transcripts.
    pub fn function<F, Fut>(role: impl Into<RoleText>, body: F) -> Self
    where
        F: FnOnce(ProcessContext) -> Fut + Send + 'static,
        Fut: Future<Output = ProcessResult> + Send + 'static,
    {
        Self::new(role, Body::Function(Box::new(move |context| Box::pin(body(context)))))
    }

    /// A process that is an object; `Registry::get` finds the very same object.
    pub fn object<P: ManagedProcess>(role: impl Into<RoleText>, object: Arc<P>) -> Self {
        Self::new(role, Body::Object(object))
    }

    /// A process that is any ractor actor, spawned as a child of the kernel's wrapper; `Registry::get_actor`
    /// finds its `ActorRef`. `arguments` is called in the process, just before the actor is spawned.
    ///
    /// It is told to stop by ractor's `stop`. Its `pre_start` runs under the start bound and delays nobody.
    pub fn actor<A, F>(role: impl Into<RoleText>, actor: A, arguments: F) -> Self
    where
        A: Actor,
        F: FnOnce(ProcessContext) -> A::Arguments + Send + 'static,
    {
        Self::new(role, Body::Actor(Box::new(ActorBody { actor, arguments })))
    }

    fn new(role: impl Into<RoleText>, body: Body) -> Self {
        let kind = match body {
            Body::Function(_) => ProcessKind::Function,
            Body::Object(_) => ProcessKind::Object,
            Body::Actor(_) => ProcessKind::Actor,
        };
        Self {
            role: Role::new(role).map_err(Box::new),
            kind,
            body: Kept::new(body),
            patience: None,
            start_bound: None,
            extras: None,
        }
    }

    /// How long it is waited for after it was told to stop. Default: that of its generation.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The longest its start may take. Default: that of its generation.
    #[must_use]
    pub fn start_bound(mut self, bound: Duration) -> Self {
        self.start_bound = Some(bound);
        self
    }

    /// Binds an operation to the process: it is released after the process has ended and its id is free, and
    /// at once if the process is not started (contract, C1 to C4).
    #[must_use]
    pub fn holding(mut self, lease: OperationLease) -> Self {
        self.extras.get_or_insert_default().leases.push(lease);
        self
    }

    /// The fencing token under which the process runs; its permits show it to their effects.
    #[must_use]
    pub fn fence(mut self, fence: FencingToken) -> Self {
        self.extras.get_or_insert_default().fence = Some(fence);
        self
    }

    pub(crate) fn role(&self) -> Result<Role, InvalidId> {
        self.role.clone().map_err(|invalid| *invalid)
    }

    pub(crate) fn kind(&self) -> ProcessKind {
        self.kind
    }

    /// The longest its start may take, in a generation with these limits.
    pub(crate) fn start_limit(&self, core: &Core) -> Duration {
        self.start_bound.unwrap_or(core.limits.start_bound)
    }

    /// Gives the child what it keeps of this spec.
    pub(crate) fn equip(&mut self, child: &Child) {
        if let Some(Body::Object(object)) = self.body.get() {
            child.set_object(&Arc::clone(object).into_any());
        }
        let Some(extras) = self.extras.take() else {
            return;
        };
        if let Some(fence) = extras.fence {
            child.set_fence(fence);
        }
        extras.leases.into_iter().for_each(|lease| child.hold(lease));
    }

    /// Drops what is not started: its leases first, then what it brought along, which may panic.
    pub(crate) fn discard(self) {
        let Self { extras, body, .. } = self;
        drop(extras);
        drop(body);
    }
}

impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("role", &self.role)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

/// [`ManagedProcess`] behind a pointer.
pub(crate) trait ErasedProcess: Send + Sync {
    fn start(self: Arc<Self>, context: ProcessContext) -> BoxFuture<'static, ProcessResult>;
    fn close(self: Arc<Self>) -> BoxFuture<'static, ProcessResult>;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<P: ManagedProcess> ErasedProcess for P {
    fn start(self: Arc<Self>, context: ProcessContext) -> BoxFuture<'static, ProcessResult> {
        Box::pin(ManagedProcess::start(self, context))
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ProcessResult> {
        Box::pin(ManagedProcess::close(self))
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A ractor actor that has not been spawned yet.
pub(crate) trait ErasedActor: Send {
    fn spawn(self: Box<Self>, context: ProcessContext, wrapper: ActorCell) -> Result<SpawnedActor, SpawnErr>;
}

/// A ractor actor whose `pre_start` runs.
pub(crate) struct SpawnedActor {
    pub(crate) cell: ActorCell,
    /// Its `ActorRef<M>`.
    pub(crate) reference: Arc<dyn Any + Send + Sync>,
    pub(crate) started: JoinHandle<Result<JoinHandle<()>, SpawnErr>>,
}

struct ActorBody<A, F> {
    actor: A,
    arguments: F,
}

impl<A, F> ErasedActor for ActorBody<A, F>
where
    A: Actor,
    F: FnOnce(ProcessContext) -> A::Arguments + Send,
{
    fn spawn(self: Box<Self>, context: ProcessContext, wrapper: ActorCell) -> Result<SpawnedActor, SpawnErr> {
        // First, so that it is guarded too when there are no arguments.
        let guarded = Guarded::new(self.actor, Arc::clone(context.child()));
        let arguments = (self.arguments)(context);
        // "Instant": its mailbox is there before its `pre_start` has run, so it is found while it starts.
        let (actor, started) = ActorRuntime::spawn_linked_instant(None, guarded, arguments, wrapper)?;
        let cell = actor.get_cell();
        Ok(SpawnedActor { cell, reference: Arc::new(actor), started })
    }
}

/// Tells one process from any other, also from one that had or will have the same id.
#[derive(Clone)]
pub struct ProcessIdentity(Identity);

#[derive(Clone)]
enum Identity {
    /// The very child.
    Child(Arc<Child>),
    /// The child of this very object. Holding it keeps its address from being used again.
    Object(Arc<dyn Any + Send + Sync>),
}

impl ProcessIdentity {
    /// The identity of the process that is this very object; not of one that equals it.
    #[must_use]
    pub fn of_object<P: ManagedProcess>(object: &Arc<P>) -> Self {
        Self(Identity::Object(Arc::clone(object) as Arc<dyn Any + Send + Sync>))
    }

    pub(crate) fn of_child(child: &Arc<Child>) -> Self {
        Self(Identity::Child(Arc::clone(child)))
    }

    pub(crate) fn is(&self, child: &Arc<Child>) -> bool {
        match &self.0 {
            Identity::Child(own) => Arc::ptr_eq(own, child),
            Identity::Object(own) => child.is_object(own),
        }
    }
}

impl fmt::Debug for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Identity::Child(child) => write!(f, "ProcessIdentity({})", child.name),
            Identity::Object(_) => f.write_str("ProcessIdentity(object)"),
        }
    }
}

/// A process that was started, or is starting. A cheap clone; outlives the process.
#[derive(Clone)]
pub struct ProcessHandle {
    child: Arc<Child>,
}

impl ProcessHandle {
    pub(crate) fn new(child: Arc<Child>) -> Self {
        Self { child }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.child.id
    }

    /// The generation it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.child.name.epoch
    }

    /// Its role and incarnation, as in `fetch#1`.
    #[must_use]
    pub fn name(&self) -> String {
        self.child.name.to_string()
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ProcessKind {
        self.child.kind
    }

    /// What tells it from any other.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        ProcessIdentity::of_child(&self.child)
    }

    /// What it does under its id; none once the id is free.
    #[must_use]
    pub fn state(&self) -> Option<ProcessState> {
        self.child.state()
    }

    /// The concrete object; none if the process is no object of this type, or has ended.
    #[must_use]
    pub fn object<P: ManagedProcess>(&self) -> Option<Arc<P>> {
        object_of(&self.child)
    }

    /// The concrete actor; none if the process is no actor with this message type, or has ended.
    #[must_use]
    pub fn actor<M: ractor::Message>(&self) -> Option<ActorRef<M>> {
        object_of::<ActorRef<M>>(&self.child).map(|actor| (*actor).clone())
    }

    /// The last progress it reported.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.child.progress()
    }

    /// How it ended; none while it runs.
    #[must_use]
    pub fn exit(&self) -> Option<ExitReason> {
        self.child.exit().cloned()
    }

    /// Completes when the process has ended, at once if it has ended already. Whoever sees the end finds the
    /// id free.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn ended(&self) -> ExitReason {
        self.child.ended().await
    }

    /// Gives up its id; see `Registry::remove`.
    #[must_use = "false means that the id had been given up before"]
    pub fn remove(&self) -> bool {
        self.child.remove()
    }

    /// Closes this one process: its authority ends in this call, then it is told to stop, and it is killed
    /// when its patience is spent. Answers how it ended; abandoned if it is not gone even then.
    ///
    /// Cancel safety: the close goes on when the future is dropped.
    pub async fn close(&self) -> ExitReason {
        self.child.revoke();
        crate::generation::close::close_one(&self.child, StopReason::Closed, None);
        self.child.ended().await
    }
}

/// The concrete object of a child, if it is of this type.
pub(crate) fn object_of<T: Send + Sync + 'static>(child: &Child) -> Option<Arc<T>> {
    child.object()?.downcast().ok()
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandle")
            .field("id", self.id())
            .field("name", &format_args!("{}", self.child.name))
            .field("epoch", &self.epoch().get())
            .field("state", &self.state())
            .finish()
    }
}

/// A line of `Registry::list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessInfo {
    /// Its id.
    pub id: ProcessId,
    /// Its role and incarnation, as in `fetch#1`.
    pub name: String,
    /// Its kind.
    pub kind: ProcessKind,
    /// What it does.
    pub state: ProcessState,
    /// The last progress it reported.
    pub progress: Option<Progress>,
}
