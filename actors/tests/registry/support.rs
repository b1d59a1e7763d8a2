//! What the tests share: a door to wait at, a process of each kind that plays a script, and applications.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tenure_actors::{
    Application, ApplicationSpec, CloseReport, GenerationSpec, Limits, ManagedProcess, ProcessContext,
    ProcessKind, ProcessResult, ProcessSpec, Registry,
};
use tokio::sync::watch;

/// A test for each kind of process: `name::function`, `name::object`, `name::actor`.
macro_rules! each_kind {
    ($(#[$test:meta])+ async fn $name:ident($kind:ident) $body:block) => {
        mod $name {
            use super::*;

            async fn check($kind: ProcessKind) $body

            $(#[$test])+
            async fn function() {
                check(ProcessKind::Function).await;
            }

            $(#[$test])+
            async fn object() {
                check(ProcessKind::Object).await;
            }

            $(#[$test])+
            async fn actor() {
                check(ProcessKind::Actor).await;
            }
        }
    };
}

/// A test for each kind that has a start of its own, which can wait and fail: `name::object`, `name::actor`.
macro_rules! each_kind_with_a_start {
    ($(#[$test:meta])+ async fn $name:ident($kind:ident) $body:block) => {
        mod $name {
            use super::*;

            async fn check($kind: ProcessKind) $body

            $(#[$test])+
            async fn object() {
                check(ProcessKind::Object).await;
            }

            $(#[$test])+
            async fn actor() {
                check(ProcessKind::Actor).await;
            }
        }
    };
}

/// A place to wait at, closed until a test opens it.
pub(crate) struct Door {
    arrivals: watch::Sender<usize>,
    opened: watch::Sender<bool>,
}

impl Door {
    pub(crate) fn closed() -> Arc<Self> {
        Arc::new(Self { arrivals: watch::Sender::new(0), opened: watch::Sender::new(false) })
    }

    pub(crate) async fn pass(&self) {
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
        let mut opened = self.opened.subscribe();
        opened.wait_for(|opened| *opened).await.expect("the door outlives its visitors");
    }

    pub(crate) fn open(&self) {
        self.opened.send_replace(true);
    }

    /// Completes when somebody stands at the door, or has passed it.
    pub(crate) async fn reached(&self) {
        self.reached_by(1).await;
    }

    pub(crate) async fn reached_by(&self, visitors: usize) {
        let mut arrivals = self.arrivals.subscribe();
        soon(arrivals.wait_for(|arrivals| *arrivals >= visitors))
            .await
            .expect("the door outlives its visitors");
    }
}

/// An error with a value, so that it can be told from any other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken {0}")]
pub(crate) struct Broken(pub(crate) u32);

type Hook = Box<dyn Fn(ProcessContext) -> BoxFuture<'static, ProcessResult> + Send + Sync>;

/// A process that counts what is done to it and plays a script: as an object it is itself the process, the
/// function and the actor play it.
pub(crate) struct Play {
    starts: AtomicUsize,
    closes: AtomicUsize,
    on_start: Hook,
    on_close: Hook,
    context: watch::Sender<Option<ProcessContext>>,
}

fn hook<F, Fut>(script: F) -> Hook
where
    F: Fn(ProcessContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ProcessResult> + Send + 'static,
{
    Box::new(move |context| Box::pin(script(context)))
}

impl Play {
    /// Starts and closes without a fuss.
    pub(crate) fn quiet() -> Arc<Self> {
        Self::starting(|_| async { Ok(()) })
    }

    pub(crate) fn starting<F, Fut>(script: F) -> Arc<Self>
    where
        F: Fn(ProcessContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ProcessResult> + Send + 'static,
    {
        Self::scripted(script, |_| async { Ok(()) })
    }

    pub(crate) fn closing<F, Fut>(script: F) -> Arc<Self>
    where
        F: Fn(ProcessContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ProcessResult> + Send + 'static,
    {
        Self::scripted(|_| async { Ok(()) }, script)
    }

    pub(crate) fn scripted<F, Fut, G, Gut>(on_start: F, on_close: G) -> Arc<Self>
    where
        F: Fn(ProcessContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ProcessResult> + Send + 'static,
        G: Fn(ProcessContext) -> Gut + Send + Sync + 'static,
        Gut: Future<Output = ProcessResult> + Send + 'static,
    {
        Arc::new(Self {
            starts: AtomicUsize::new(0),
            closes: AtomicUsize::new(0),
            on_start: hook(on_start),
            on_close: hook(on_close),
            context: watch::Sender::new(None),
        })
    }

    /// Waits at a door in its start; then starts.
    pub(crate) fn at_the_gate() -> (Arc<Self>, Arc<Door>) {
        Self::at_the_gate_then(Ok(()))
    }

    /// Waits at a door in its start; then answers so.
    pub(crate) fn at_the_gate_then(outcome: Result<(), Broken>) -> (Arc<Self>, Arc<Door>) {
        let door = Door::closed();
        let (visited, code) = (Arc::clone(&door), outcome.err().map(|broken| broken.0));
        let play = Self::starting(move |_| {
            let visited = Arc::clone(&visited);
            async move {
                visited.pass().await;
                code.map_or(Ok(()), |code| Err(Broken(code).into()))
            }
        });
        (play, door)
    }

    /// Fails in its start, with this code.
    pub(crate) fn broken(code: u32) -> Arc<Self> {
        Self::starting(move |_| async move { Err(Broken(code).into()) })
    }

    pub(crate) fn spec(self: &Arc<Self>, kind: ProcessKind) -> ProcessSpec {
        let play = Arc::clone(self);
        match kind {
            ProcessKind::Object => ProcessSpec::object("play", play),
            ProcessKind::Actor => ProcessSpec::actor("play", Player, move |context| (play, context)),
            ProcessKind::Function => ProcessSpec::function("play", move |context| async move {
                play.enter(context.clone()).await?;
                context.cancelled().await;
                play.leave().await
            }),
        }
    }

    pub(crate) fn object(self: &Arc<Self>) -> ProcessSpec {
        self.spec(ProcessKind::Object)
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    pub(crate) fn closes(&self) -> usize {
        self.closes.load(Ordering::SeqCst)
    }

    /// Its context, as soon as its start was called.
    pub(crate) async fn context(&self) -> ProcessContext {
        let mut context = self.context.subscribe();
        let context = soon(context.wait_for(Option::is_some)).await.expect("the play outlives its audience");
        context.clone().expect("just seen")
    }

    async fn enter(&self, context: ProcessContext) -> ProcessResult {
        self.starts.fetch_add(1, Ordering::SeqCst);
        self.context.send_replace(Some(context.clone()));
        (self.on_start)(context).await
    }

    async fn leave(&self) -> ProcessResult {
        self.closes.fetch_add(1, Ordering::SeqCst);
        let context = self.context.borrow().clone();
        match context {
            Some(context) => (self.on_close)(context).await,
            None => Ok(()),
        }
    }
}

impl ManagedProcess for Play {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        self.enter(context).await
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.leave().await
    }
}

/// The actor that plays a [`Play`].
pub(crate) struct Player;

/// What the actor is told.
pub(crate) enum Ask {
    Echo(u32, RpcReplyPort<u32>),
    Fail(u32),
    Panic(&'static str),
    Wait(Arc<Door>),
    Run(Box<dyn FnOnce(ProcessContext) -> BoxFuture<'static, ()> + Send>),
}

impl Actor for Player {
    type Msg = Ask;
    type State = Arc<Play>;
    type Arguments = (Arc<Play>, ProcessContext);

    async fn pre_start(
        &self,
        _: ActorRef<Ask>,
        (play, context): Self::Arguments,
    ) -> Result<Arc<Play>, ActorProcessingErr> {
        play.enter(context).await?;
        Ok(play)
    }

    async fn handle(
        &self,
        _: ActorRef<Ask>,
        ask: Ask,
        play: &mut Arc<Play>,
    ) -> Result<(), ActorProcessingErr> {
        match ask {
            Ask::Echo(number, reply) => drop(reply.send(number)),
            Ask::Fail(code) => return Err(Broken(code).into()),
            Ask::Panic(text) => panic!("{text}"),
            Ask::Wait(door) => door.pass().await,
            Ask::Run(code) => code(play.context().await).await,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Ask>, play: &mut Arc<Play>) -> Result<(), ActorProcessingErr> {
        play.leave().await
    }
}

/// Opens an application with the default limits.
pub(crate) async fn open() -> Application {
    Application::open(ApplicationSpec::default()).await.expect("an application opens")
}

/// Opens an application with these limits.
pub(crate) async fn open_within(limits: Limits) -> Application {
    Application::open(GenerationSpec::default().limits(limits)).await.expect("an application opens")
}

/// Closes an application. Its last report balances, and nothing is left in its registry.
pub(crate) async fn end(application: &Application) -> Arc<CloseReport> {
    let report = soon(application.close()).await.expect("asked from outside");
    let registry = application.current().registry();
    assert_eq!((registry.count(), registry.list().len()), (0, 0), "left over after close");
    balanced(report)
}

/// The report, which balances.
pub(crate) fn balanced(report: Arc<CloseReport>) -> Arc<CloseReport> {
    assert_eq!(report.imbalance(), None, "{report:?}");
    report
}

/// Closes the registry alone.
pub(crate) async fn close(registry: &Registry) -> Arc<CloseReport> {
    balanced(soon(registry.close()).await.expect("asked from outside"))
}

/// Completes when a process has lost its authority: the close of its registry or generation has begun.
pub(crate) async fn is_revoked(play: &Play) {
    let context = play.context().await;
    while context.commit(|| ()).is_ok() {
        tokio::task::yield_now().await;
    }
}

/// An answer that comes before anybody gives up: a test that would hang fails instead.
pub(crate) async fn soon<F: Future>(answer: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(300), answer).await.expect("no answer came")
}

/// Numbers that a seed repeats (Steele, Lea and Flood's splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
