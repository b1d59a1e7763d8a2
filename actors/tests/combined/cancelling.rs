//! C6 and C7: a cancel action that comes late, and one that comes early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_actors::{Generation, ManagedProcess, ProcessContext, ProcessResult, ProcessSpec};

use crate::bench::{self, Count, Gate};
use crate::kinds::begin;

/// A plugin's process as in the brief: its own cancel method, its own worker.
struct Compaction {
    starting: Gate,
    cancelled: AtomicBool,
    provider: Count,
    done: Gate,
}

impl Compaction {
    fn new(provider: &Count) -> Arc<Self> {
        let (starting, done) = (Gate::new(), Gate::new());
        Arc::new(Self { starting, cancelled: AtomicBool::new(false), provider: provider.clone(), done })
    }

    fn request_cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    async fn work(self: Arc<Self>, context: ProcessContext) {
        if !self.cancelled.load(Ordering::SeqCst) {
            self.provider.add();
        }
        context.remove_self();
        self.done.open();
    }
}

impl ManagedProcess for Compaction {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        self.starting.passed().await;
        tokio::spawn(self.work(context));
        Ok(())
    }
}

/// The plugin's cancel action.
fn cancel(generation: &Generation) -> &'static str {
    match generation.registry().get::<Compaction>("a") {
        Some(process) => {
            process.request_cancel();
            "cancellation requested"
        }
        None => "not found",
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c06_a_cancel_after_completion_finds_nothing() {
    let application = bench::open().await;
    let compaction = Compaction::new(&Count::new());
    compaction.starting.open();
    let process = begin(&application, ProcessSpec::object("compaction", Arc::clone(&compaction))).await;
    process.ended().await;

    assert_eq!(cancel(&application.current()), "not found");
    assert!(!compaction.cancelled.load(Ordering::SeqCst));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c06_a_cancel_meant_for_one_process_never_reaches_the_next_under_its_id() {
    let application = bench::open().await;
    let first = begin(&application, bench::waiting()).await;
    let identity = first.identity();
    first.close().await;
    let second = begin(&application, bench::waiting()).await;

    // By handle, by identity, by the type of the object: none of them is the second.
    assert!(!first.remove());
    first.close().await;
    assert!(!application.current().registry().remove("a", &identity));
    assert_eq!(cancel(&application.current()), "not found");
    assert!(second.exit().is_none());
    assert!(application.current().operations().get("a").is_some());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c06_a_cancel_meant_for_one_process_never_reaches_a_successor_of_the_same_type() {
    let application = bench::open().await;
    let begun = async |compaction: &Arc<Compaction>| {
        begin(&application, ProcessSpec::object("compaction", Arc::clone(compaction))).await
    };
    let [earlier, later] = [(), ()].map(|()| Compaction::new(&Count::new()));
    earlier.starting.open();
    let first = begun(&earlier).await;
    let identity = first.identity();
    first.ended().await;
    let mut second = std::pin::pin!(begun(&later));
    while application.current().registry().lookup("a").is_none() {
        assert!(futures_util::poll!(&mut second).is_pending());
        tokio::task::yield_now().await;
    }

    // Whoever still holds the first: its handle, its identity, its object.
    assert!(!first.remove());
    first.close().await;
    assert!(!application.current().registry().remove("a", &identity));
    earlier.request_cancel();
    assert!(application.current().registry().lookup("a").is_some());
    assert!(!later.cancelled.load(Ordering::SeqCst));

    // Who asks by the id finds the second, and only that.
    assert_eq!(cancel(&application.current()), "cancellation requested");
    later.starting.open();
    second.await.ended().await;
    assert!(later.cancelled.load(Ordering::SeqCst));
    assert_eq!(later.provider.get(), 0);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c07_a_cancel_during_the_start_is_seen_before_the_provider_is_called() {
    let application = bench::open().await;
    let (generation, provider) = (application.current(), Count::new());
    let compaction = Compaction::new(&provider);
    let spec = ProcessSpec::object("compaction", Arc::clone(&compaction));
    let mut starting = std::pin::pin!(begin(&application, spec));
    while generation.registry().lookup("a").is_none() {
        assert!(futures_util::poll!(&mut starting).is_pending());
        tokio::task::yield_now().await;
    }

    assert_eq!(cancel(&generation), "cancellation requested");
    compaction.starting.open();
    starting.await;
    compaction.done.passed().await;
    assert_eq!(provider.get(), 0);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c07_a_close_during_the_start_revokes_the_authority_before_the_worker_runs() {
    let application = bench::open().await;
    let generation = application.current();
    let (gate, provider) = (Gate::new(), Count::new());
    struct Held(Gate, Count);
    impl ManagedProcess for Held {
        async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
            self.0.passed().await;
            // The commit is what a cancelled start may not do.
            let _ = context.commit(|| self.1.add());
            Ok(())
        }
    }
    let held = ProcessSpec::object("held", Arc::new(Held(gate.clone(), provider.clone())));
    let mut starting = std::pin::pin!(begin(&application, held));
    while generation.registry().lookup("a").is_none() {
        assert!(futures_util::poll!(&mut starting).is_pending());
        tokio::task::yield_now().await;
    }
    let handle = generation.registry().lookup("a").unwrap();
    let mut closing = std::pin::pin!(handle.close());
    assert!(futures_util::poll!(&mut closing).is_pending());
    gate.open();
    starting.await;
    closing.await;
    assert_eq!(provider.get(), 0);
    assert!(generation.operations().get("a").is_none());
    bench::close(&application).await;
}
