//! Everything at once on four workers: whatever happens, every book balances.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_actors::rules::Patience;
use tenure_actors::{
    Application, Event, EventKind, ExitReason, Limits, ManagedProcess, ProcessContext, ProcessResult,
    ProcessSpec, Recorder, ReplaceError, ReserveError, StartError,
};

use crate::bench::{self, Gate, Order, Plain, Worker, request};

/// How often each thing was begun, less how often it was ended; 0 everywhere when the books balance.
fn open_books(recorder: &Recorder) -> BTreeMap<String, i64> {
    let mut books = BTreeMap::new();
    let mut book = |what: String, by: i64| *books.entry(what).or_insert(0) += by;
    for event in recorder.events() {
        match &event.kind {
            EventKind::Bound { process, child } => book(format!("bound {process} {child:?}"), 1),
            EventKind::Unbound { process, child } => book(format!("bound {process} {child:?}"), -1),
            EventKind::Started { child } => book(format!("started {child:?}"), 1),
            EventKind::Ended { .. } => book(format!("started {:?}", event.actor), -1),
            EventKind::Reserved { operation, .. } => book(format!("{:?} {operation}", event.actor), 1),
            EventKind::Released { operation, .. } => book(format!("{:?} {operation}", event.actor), -1),
            EventKind::Opened { epoch } => book(format!("opened {epoch}"), 1),
            EventKind::Sealed { epoch } => book(format!("opened {epoch}"), -1),
            _ => {}
        }
    }
    books.retain(|_, count| *count != 0);
    books
}

fn process(kind: usize) -> ProcessSpec {
    match kind {
        0 => ProcessSpec::function("brief", |context| async move {
            let _ = context.commit(|| ());
            Ok(())
        }),
        1 => bench::waiting(),
        2 => Plain::new().spec(),
        3 => Worker::spec(),
        4 => ProcessSpec::function("removes itself", |context| async move {
            context.remove_self();
            tokio::task::yield_now().await;
            Ok(())
        }),
        _ => ProcessSpec::function("fails", |_| async { Err("told to fail".into()) }),
    }
}

/// One plugin: reserves, starts, ends in some way, again and again until the application is over.
async fn plugin(application: Application, number: usize, stop: Gate) {
    let mut round = number;
    while !stop.is_open() {
        round += 7;
        let generation = application.current();
        let id = format!("p{}", round % 5);
        let lease = match generation.operations().reserve(request(&id, &[&id])).await {
            Ok(lease) => lease,
            Err(ReserveError::Closed | ReserveError::DuplicateOperation(_) | ReserveError::Busy(_)) => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        match generation.registry().start(id.as_str(), process(round % 6).holding(lease)).await {
            Ok(process) => match round % 4 {
                0 => drop(process.close().await),
                1 => drop(process.remove()),
                2 => drop(process.actor::<Order>().map(|actor| actor.cast(Order::Panic))),
                _ => drop(process),
            },
            // Whoever removed itself, or lost its caller, may still hold the id: its operation went first
            // only if it was cleared by a close.
            Err(StartError::RegistryClosed { .. } | StartError::StartFailed { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_storm_of_starts_ends_and_replacements_leaves_every_book_balanced() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let before = [format!("{:?}", application.current().epoch())];
    let stop = Gate::new();
    let plugins = [0, 1, 2, 3].map(|number| tokio::spawn(plugin(application.clone(), number, stop.clone())));
    for _ in 0..60 {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let report = application.replace().await.unwrap();
        bench::assert_balanced(&report);
        assert!(report.killed.is_empty() && report.abandoned.is_empty(), "all of them listen: {report:?}");
    }
    stop.open();
    for plugin in plugins {
        plugin.await.unwrap();
    }
    bench::close(&application).await;
    // The first generation was opened before the recorder listened.
    let mut books = open_books(&recorder);
    books.retain(|what, _| {
        !(what == "opened 1"
            || before.iter().any(|epoch| what.starts_with("started") && what.contains(epoch)))
    });
    assert!(books.is_empty(), "{books:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_storm_a_recorder_keeps_events_in_the_order_of_their_numbers() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let operations = application.current().operations();
    let busy = [0, 1, 2, 3].map(|thread| {
        let operations = operations.clone();
        tokio::spawn(async move {
            for _ in 0..2_000 {
                let id = format!("o{thread}");
                operations.reserve(request(&id, &[&id])).await.unwrap().release();
            }
        })
    });
    for busy in busy {
        busy.await.unwrap();
    }
    bench::close(&application).await;
    let events: Vec<Arc<Event>> = recorder.events();
    let out_of_order = events.windows(2).find(|pair| pair[0].id > pair[1].id);
    assert!(out_of_order.is_none(), "{out_of_order:?}");
}

/// An object that holds its thread while it starts: nothing can cut it off.
struct Blocking {
    entered: Gate,
    release: Mutex<Receiver<()>>,
    starts: AtomicUsize,
    closes: AtomicUsize,
}

impl ManagedProcess for Blocking {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        self.entered.open();
        let _ = self.release.lock().recv();
        self.starts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.closes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_a_start_that_held_its_thread_beyond_the_kill_leaves_the_books_balanced() {
    let bound = Duration::from_millis(20);
    let limits =
        Limits { close_deadline: bound, cleanup_bound: bound, patience: Patience::Kill, ..Limits::default() };
    let application = bench::open_with(limits).await;
    let registry = application.current().registry();
    let (release, held) = channel();
    let (entered, starts, closes) = (Gate::new(), AtomicUsize::new(0), AtomicUsize::new(0));
    let blocking = Arc::new(Blocking { entered: entered.clone(), release: Mutex::new(held), starts, closes });
    let spec = ProcessSpec::object("blocking", Arc::clone(&blocking));
    let starting = tokio::spawn({
        let registry = registry.clone();
        async move { registry.start("x", spec).await }
    });
    entered.passed().await;
    let process = registry.lookup("x").unwrap();
    assert!(matches!(process.close().await, ExitReason::Abandoned));
    release.send(()).unwrap();
    let started = starting.await.unwrap();

    assert!(started.is_err(), "it was abandoned: {started:?}");
    bench::close(&application).await;
    assert_eq!((blocking.starts.load(Ordering::SeqCst), blocking.closes.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_storm_a_close_that_races_replacements_and_failures_ends_them_all() {
    for round in 0..100 {
        let application = bench::open().await;
        let start = Gate::new();
        let racing = [0, 1, 2].map(|racer| {
            let (application, start) = (application.clone(), start.clone());
            tokio::spawn(async move {
                start.passed().await;
                match racer {
                    0 => drop(tenure_actors::testkit::fail_registry(&application.current(), "boom")),
                    1 => drop(tenure_actors::testkit::fail_supervisor(&application.current(), "boom")),
                    _ => drop(application.current().registry().start("x", bench::waiting()).await),
                }
                match application.replace().await {
                    Ok(report) => bench::assert_balanced(&report),
                    Err(ReplaceError::ApplicationClosed) => {}
                    Err(other) => panic!("round {round}: {other}"),
                }
            })
        });
        start.open();
        for _ in 0..round % 10 {
            tokio::task::yield_now().await;
        }
        bench::close(&application).await;
        for racer in racing {
            racer.await.unwrap();
        }
        assert!(!application.current().is_open());
        assert!(application.current().report().is_some());
    }
}
