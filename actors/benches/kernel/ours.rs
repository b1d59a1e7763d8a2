//! The kernel's side of the comparisons.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::{
    Application, ApplicationSpec, ManagedProcess, ProcessContext, ProcessId, ProcessResult, ProcessSpec,
    Registry,
};
use tokio::task::JoinSet;

use crate::life::{Begun, Clock, Life, settle};

/// Ids for so many processes.
pub(crate) fn ids(count: usize) -> Arc<[ProcessId]> {
    (0..count).map(|number| ProcessId::new(format!("process:{number}")).expect("a valid id")).collect()
}

pub(crate) async fn open() -> Application {
    Application::open(ApplicationSpec::default()).await.expect("an application")
}

/// Closes an application, and lets it give its memory back: it does so after it has answered, and what it has
/// not given back when its runtime is gone is lost to the next round.
pub(crate) async fn shut(application: &Application) {
    let report = application.close().await.expect("a close");
    assert!(report.imbalance().is_none(), "the report balances");
    settle().await;
}

static BEGUN: Begun = Begun::new();

/// An asynchronous function that waits until it is told to stop.
pub(crate) fn function() -> ProcessSpec {
    ProcessSpec::function("function", |context: ProcessContext| async move {
        BEGUN.one_more();
        context.cancelled().await;
        Ok(())
    })
}

/// An object with nothing to do.
pub(crate) struct Plain;

impl ManagedProcess for Plain {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        BEGUN.one_more();
        Ok(())
    }
}

pub(crate) fn object() -> ProcessSpec {
    ProcessSpec::object("object", Arc::new(Plain))
}

/// An actor of a plugin with nothing to do: the wrapper that answers for it is another.
struct Guest;

impl Actor for Guest {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        BEGUN.one_more();
        Ok(())
    }
}

pub(crate) fn actor() -> ProcessSpec {
    ProcessSpec::actor("actor", Guest, |_| ())
}

/// Starts a process under every id: so many callers, each one start after the other.
pub(crate) async fn start_all(
    registry: &Registry,
    ids: &Arc<[ProcessId]>,
    callers: usize,
    spec: fn() -> ProcessSpec,
) {
    let mut calling = JoinSet::new();
    for caller in 0..callers {
        let (registry, ids) = (registry.clone(), Arc::clone(ids));
        calling.spawn(async move {
            for id in &ids[ids.len() * caller / callers..ids.len() * (caller + 1) / callers] {
                registry.start(id, spec()).await.expect("a start");
            }
        });
    }
    calling.join_all().await;
}

/// Starts a process under every id, until the last has begun, and closes the application.
pub(crate) async fn life(ids: Arc<[ProcessId]>, callers: usize, spec: fn() -> ProcessSpec) -> Life {
    let application = open().await;
    let registry = application.current().registry();
    BEGUN.expect(ids.len());
    let clock = Clock::start();
    start_all(&registry, &ids, callers, spec).await;
    BEGUN.all().await;
    let start = clock.read();
    settle().await;
    let clock = Clock::start();
    let report = application.close().await.expect("a close");
    let close = clock.read();
    // As in `shut`.
    settle().await;
    assert_eq!(report.closed, ids.len() as u64, "all of them are closed in order");
    Life { start, close }
}

/// The authority of a function process that runs under `id`.
pub(crate) async fn context_of(registry: &Registry, id: &str) -> ProcessContext {
    let (sender, context) = tokio::sync::oneshot::channel();
    let spec = ProcessSpec::function("function", |context: ProcessContext| async move {
        let _ = sender.send(context.clone());
        context.cancelled().await;
        Ok(())
    });
    registry.start(id, spec).await.expect("a start");
    context.await.expect("the process runs")
}
