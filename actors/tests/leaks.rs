//! What has ended costs nothing: live bytes come back to where they were.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tenure_actors::rules::Patience;
use tenure_actors::{
    Application, ExitReason, Generation, GenerationSpec, Limits, ManagedProcess, ProcessContext,
    ProcessHandle, ProcessResult, ProcessSpec, StartError,
};

#[path = "support/bench.rs"]
mod bench;

#[path = "leaks/counting.rs"]
mod counting;

use bench::{Order, Plain, Worker, request};
use counting::{Counting, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Maps and queues keep some room, and freed nodes of an index wait for their batch: less than this.
const TOLERANCE: isize = 48 * 1024;

const ROUNDS: usize = 100;
const EACH: usize = 100;

/// Runs rounds in one application; after the first ones no memory may be added.
fn check<F: Future<Output = ()>>(rounds: usize, round: impl Fn(Application) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let limits = Limits {
            start_bound: Duration::from_millis(20),
            cleanup_bound: Duration::from_millis(10),
            close_deadline: Duration::from_millis(100),
            patience: Patience::Time(20),
            ..Limits::default()
        };
        let application =
            Application::open(GenerationSpec::default().limits(limits)).await.expect("it has no services");
        for _ in 0..3 {
            round(application.clone()).await;
            settle().await;
        }
        let base = live_bytes();
        for _ in 0..rounds {
            round(application.clone()).await;
            settle().await;
        }
        let grown = live_bytes() - base;
        assert!(grown < TOLERANCE, "{grown} bytes more after {rounds} rounds, {base} before");
        bench::close(&application).await;
    });
}

/// A virtual moment: it comes when nobody has anything left to do.
async fn settle() {
    let _ = tokio::time::timeout(Duration::from_millis(1), pending::<()>()).await;
}

async fn start(generation: &Generation, process: ProcessSpec) -> ProcessHandle {
    generation.registry().start("a", process).await.expect("the id is free")
}

async fn one_after_another<F: Future<Output = ()>>(
    application: Application,
    one: impl Fn(Generation, usize) -> F,
) {
    let generation = application.current();
    for number in 0..EACH {
        one(generation.clone(), number).await;
    }
    assert_eq!(generation.registry().count(), 0);
}

#[test]
fn functions_that_end_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, number| async move {
            let process = start(
                &generation,
                ProcessSpec::function("p", move |context| async move {
                    context.progress(10, "begun");
                    context.commit(|| ())?;
                    match number % 3 {
                        0 => Ok(()),
                        1 => Err("told to fail".into()),
                        _ => std::panic::resume_unwind(Box::new("told to panic")),
                    }
                }),
            );
            process.await.ended().await;
        })
    });
}

#[test]
fn many_processes_at_once_leave_nothing() {
    check(ROUNDS, async |application| {
        let generation = application.current();
        let mut processes = Vec::new();
        for number in 0..EACH {
            let process = generation.registry().start(format!("p{number}").as_str(), bench::waiting()).await;
            processes.push(process.expect("the id is free"));
        }
        for process in &processes {
            process.close().await;
        }
    });
}

struct Quiet;

impl ManagedProcess for Quiet {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        Ok(())
    }
}

#[test]
fn objects_that_are_removed_or_closed_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, number| async move {
            let process = start(&generation, ProcessSpec::object("p", Arc::new(Quiet))).await;
            if number % 2 == 0 {
                assert!(process.remove());
                process.ended().await;
            } else {
                process.close().await;
            }
        })
    });
}

#[test]
fn actors_that_end_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, number| async move {
            let process = start(&generation, Worker::spec()).await;
            let actor = process.actor::<Order>().expect("it is a worker");
            match number % 3 {
                0 => actor.cast(Order::Complete).expect("it runs"),
                1 => actor.cast(Order::Fail).expect("it runs"),
                _ => drop(process.close().await),
            }
            process.ended().await;
        })
    });
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    check(ROUNDS, async |application| {
        one_after_another(application.clone(), |generation, number| async move {
            let patience = if number % 2 == 0 { Patience::Kill } else { Patience::Time(1) };
            let process = start(&generation, bench::deaf().patience(patience)).await;
            assert!(matches!(process.close().await, ExitReason::Killed(_)));
        })
        .await;
        // Their names are kept for the report, as long as there will be one.
        let report = application.replace().await.expect("it is open");
        assert_eq!(report.killed.len(), EACH);
    });
}

struct Faulty(usize);

impl ManagedProcess for Faulty {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        match self.0 % 3 {
            0 => Err("told to fail".into()),
            1 => std::panic::resume_unwind(Box::new("told to panic")),
            _ => pending().await,
        }
    }
}

#[test]
fn starts_that_fail_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, number| async move {
            let lease = generation.operations().reserve(request("a", &["k"])).await.expect("the key is free");
            let process = ProcessSpec::object("p", Arc::new(Faulty(number))).holding(lease);
            assert!(generation.registry().start("a", process).await.is_err());
        })
    });
}

#[test]
fn refused_starts_leave_nothing() {
    check(ROUNDS, async |application| {
        let generation = application.current();
        let existing = start(&generation, bench::waiting()).await;
        for _ in 0..EACH {
            let refused = generation.registry().start("a", bench::waiting()).await;
            assert!(matches!(refused, Err(StartError::AlreadyExists { .. })));
        }
        existing.close().await;
    });
}

#[test]
fn operations_that_are_released_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, number| async move {
            let operation = format!("op{number}");
            let keys = ["k1", "k2", operation.as_str()];
            let lease = generation.operations().reserve(request(&operation, &keys)).await;
            let lease = lease.expect("the keys are free");
            let busy = generation.operations().reserve(request("other", &["k2"])).await;
            assert!(busy.is_err());
            if number % 2 == 0 {
                assert!(lease.release());
            }
        })
    });
}

#[test]
fn processes_that_hold_operations_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, _| async move {
            let lease = generation.operations().reserve(request("a", &["k"])).await.expect("the key is free");
            start(&generation, bench::waiting().holding(lease)).await.close().await;
        })
    });
}

#[test]
fn watchers_of_what_has_ended_leave_nothing() {
    check(ROUNDS, |application| {
        one_after_another(application, |generation, _| async move {
            let process = start(&generation, bench::waiting()).await;
            let registry = generation.registry();
            let mut watching = Box::pin(registry.watch("a"));
            let mut ending = Box::pin(process.ended());
            assert!(futures_util::poll!(&mut watching).is_pending());
            assert!(futures_util::poll!(&mut ending).is_pending());
            process.close().await;
            // One hears of it, the other is dropped without having been polled again.
            assert!(watching.await.is_some());
            assert!(registry.watch("a").await.is_none());
        })
    });
}

#[test]
fn generations_that_were_replaced_leave_nothing() {
    check(200, async |application| {
        let generation = application.current();
        let lease = generation.operations().reserve(request("op", &["k"])).await.expect("the key is free");
        let process = start(&generation, bench::waiting().holding(lease)).await;
        let other = generation.registry().start("b", Worker::spec()).await;
        let object = generation.registry().start("c", ProcessSpec::object("p", Arc::new(Quiet))).await;
        bench::assert_balanced(&application.replace().await.expect("it is open"));
        assert!(process.exit().is_some() && other.is_ok() && object.is_ok());
    });
}

#[test]
fn generations_with_effects_that_outlive_them_leave_nothing() {
    check(200, async |application| {
        let generation = application.current();
        let object = Plain::new();
        start(&generation, object.spec()).await;
        // Polled once and never again: it cannot be cut off, so the report names it.
        let mut effect = Box::pin(object.context().commit_async(|_| pending::<()>()));
        assert!(futures_util::poll!(&mut effect).is_pending());
        let report = application.replace().await.expect("it is open");
        assert_eq!(report.in_flight.len(), 1);
    });
}

#[test]
fn objects_that_keep_their_context_leave_nothing() {
    check(200, async |application| {
        let generation = application.current();
        let (kept, closed) = (Plain::new(), Plain::new());
        let process = start(&generation, kept.spec()).await;
        assert!(process.remove());
        process.ended().await;
        start(&generation, closed.spec()).await.close().await;
        bench::assert_balanced(&application.replace().await.expect("it is open"));
    });
}
