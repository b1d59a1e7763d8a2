//! What the tests of this folder share: gates to hold code at, processes to run, closes that balance.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::{
    Application, ApplicationSpec, CloseReport, Event, EventKind, Heard, Limits, ManagedProcess,
    OperationRequest, ProcessContext, ProcessResult, ProcessSpec, Recorder, Subscription,
};
use tokio::sync::watch;

/// Holds code until it is opened, and stays open.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn passed(&self) {
        let mut gate = self.0.subscribe();
        gate.wait_for(|open| *open).await.expect("the gate holds its own sender");
    }
}

/// Counts, and can be waited for.
#[derive(Clone, Debug)]
pub(crate) struct Count(Arc<watch::Sender<usize>>);

impl Count {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(crate) fn get(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) async fn reached(&self, wanted: usize) {
        let mut count = self.0.subscribe();
        count.wait_for(|count| *count >= wanted).await.expect("the count holds its own sender");
    }
}

// --- applications ---------------------------------------------------------------------------------------

pub(crate) async fn open() -> Application {
    Application::open(ApplicationSpec::default()).await.expect("an application without services opens")
}

pub(crate) async fn open_with(limits: Limits) -> Application {
    let generation = tenure_actors::GenerationSpec::default().limits(limits);
    Application::open(generation).await.expect("an application without services opens")
}

/// Closes, and demands that the report balances.
pub(crate) async fn close(application: &Application) -> Arc<CloseReport> {
    let report = application.close().await.expect("closed from outside");
    assert_balanced(&report);
    report
}

#[track_caller]
pub(crate) fn assert_balanced(report: &CloseReport) {
    assert_eq!(report.imbalance(), None, "{report:?}");
}

/// On the paused clock, which moves on when there is nothing left to do: whatever was due by then is done.
pub(crate) async fn a_minute_passes() {
    let minute = tokio::time::timeout(Duration::from_secs(60), std::future::pending::<()>());
    assert!(minute.await.is_err());
}

// --- operations -----------------------------------------------------------------------------------------

/// An application-wide operation of the owner `owner` with these keys.
pub(crate) fn request(operation: &str, keys: &[&str]) -> OperationRequest {
    let request = OperationRequest::new(operation, "owner").expect("a valid id");
    keys.iter().fold(request, |request, key| request.key(*key).expect("a valid key"))
}

// --- processes ------------------------------------------------------------------------------------------

/// A function that runs until it is told to stop.
pub(crate) fn waiting() -> ProcessSpec {
    ProcessSpec::function("waiting", |context| async move {
        context.cancelled().await;
        Ok(())
    })
}

/// A function that never ends by itself and does not listen.
pub(crate) fn deaf() -> ProcessSpec {
    ProcessSpec::function("deaf", |_| std::future::pending())
}

/// An object that counts its starts and closes and keeps its context.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) starts: AtomicUsize,
    pub(crate) closes: AtomicUsize,
    pub(crate) context: std::sync::OnceLock<ProcessContext>,
}

impl Plain {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn spec(self: &Arc<Self>) -> ProcessSpec {
        ProcessSpec::object("plain", Arc::clone(self))
    }

    pub(crate) fn context(&self) -> &ProcessContext {
        self.context.get().expect("started")
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.starts.load(Ordering::SeqCst), self.closes.load(Ordering::SeqCst))
    }
}

impl ManagedProcess for Plain {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let _ = self.context.set(context);
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.closes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// What a [`Worker`] is told.
pub(crate) enum Order {
    Complete,
    Fail,
    Panic,
    Remove,
    /// Never answers any message again.
    Hang,
}

/// A plugin's own actor.
pub(crate) struct Worker;

impl Worker {
    pub(crate) fn spec() -> ProcessSpec {
        ProcessSpec::actor("worker", Self, |context| context)
    }
}

impl Actor for Worker {
    type Msg = Order;
    type State = ProcessContext;
    type Arguments = ProcessContext;

    async fn pre_start(
        &self,
        _: ActorRef<Order>,
        context: ProcessContext,
    ) -> Result<ProcessContext, ActorProcessingErr> {
        Ok(context)
    }

    async fn handle(
        &self,
        myself: ActorRef<Order>,
        order: Order,
        context: &mut ProcessContext,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Complete => myself.stop(None),
            Order::Fail => return Err("told to fail".into()),
            Order::Panic => panic!("told to panic"),
            Order::Remove => drop(context.remove_self()),
            Order::Hang => std::future::pending().await,
        }
        Ok(())
    }
}

// --- the journal ----------------------------------------------------------------------------------------

/// Waits for the first event of this kind.
pub(crate) async fn hear(events: &mut Subscription, wanted: impl Fn(&EventKind) -> bool) -> Arc<Event> {
    loop {
        match events.next().await.expect("the application lives") {
            Heard::Event(event) if wanted(&event.kind) => return event,
            Heard::Event(_) => {}
            Heard::Missed(missed) => panic!("missed {missed} events"),
        }
    }
}

/// How often an id was given up, how often an operation was released, and whether in this order.
pub(crate) fn terminal_steps(recorder: &Recorder, id: &str) -> Vec<&'static str> {
    let step = |event: &Arc<Event>| match &event.kind {
        EventKind::Unbound { process, .. } if process.as_str() == id => Some("unbound"),
        EventKind::Released { operation, .. } if operation.as_str() == id => Some("released"),
        _ => None,
    };
    recorder.events().iter().filter_map(step).collect()
}
