//! How long a close waits, and for whom: patience, deadline, kill, and what is not gone even then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenure_actors::{
    Application, EventKind, ExitReason, KillReason, Limits, ManagedProcess, ProcessContext, ProcessKind,
    ProcessResult, ProcessSpec, rules::Patience,
};
use tokio::time::Instant;

use super::support::{Door, Play, balanced, end, open, open_within, soon};

fn deaf() -> Arc<Play> {
    Play::closing(|_| std::future::pending())
}

/// What became of the one process of a report.
fn buckets(report: &tenure_actors::CloseReport) -> (u64, usize, usize) {
    (report.closed, report.killed.len(), report.abandoned.len())
}

/// A kill drops all that a function or an actor is; what an object has set going may still be there.
fn cut_off(kind: ProcessKind) -> (u64, usize, usize) {
    if kind == ProcessKind::Object { (0, 0, 1) } else { (0, 1, 0) }
}

async fn killed_after(
    kind: ProcessKind,
    patience: Patience,
    limits: Limits,
) -> (Duration, ExitReason, Arc<Play>) {
    let application = open_within(limits).await;
    let play = deaf();
    let spec = play.spec(kind).patience(patience);
    let process = application.current().registry().start("x", spec).await.expect("started");
    play.context().await;
    let asked = Instant::now();
    let report = end(&application).await;
    let took = asked.elapsed();
    assert_eq!(buckets(&report), cut_off(kind), "{report:?}");
    (took, process.exit().expect("ended"), play)
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_process_with_patience_kill_is_cut_off_without_being_told(kind) {
        let (took, exit, play) = killed_after(kind, Patience::Kill, Limits::default()).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::PatienceSpent)), "{exit:?}");
        assert_eq!((took, play.closes()), (Duration::ZERO, 0));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_process_with_patience_kill_is_killed_once(kind) {
        let application = open().await;
        let recorder = application.journal().record();
        let play = deaf();
        let spec = play.spec(kind).patience(Patience::Kill);
        application.current().registry().start("x", spec).await.expect("started");
        play.context().await;
        end(&application).await;
        let kills = recorder.events().iter().filter(|event| matches!(event.kind, EventKind::Killed { .. })).count();
        assert_eq!(kills, 1);
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_process_with_patience_in_time_is_killed_when_it_is_spent(kind) {
        let (took, exit, play) = killed_after(kind, Patience::Time(70), Limits::default()).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::PatienceSpent)), "{exit:?}");
        assert_eq!((took.as_millis(), play.closes()), (70, 1));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_process_with_unlimited_patience_is_killed_at_the_close_deadline(kind) {
        let (took, exit, play) = killed_after(kind, Patience::Unlimited, Limits::default()).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::DeadlineReached)), "{exit:?}");
        assert_eq!((took, play.closes()), (Limits::default().close_deadline, 1));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_the_close_deadline_cuts_every_patience_short(kind) {
        let limits = Limits { close_deadline: Duration::from_millis(90), ..Limits::default() };
        let (took, exit, _) = killed_after(kind, Patience::Time(60_000), limits).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::DeadlineReached)), "{exit:?}");
        assert_eq!(took.as_millis(), 90);
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_process_with_unlimited_patience_that_ends_late_is_closed_in_order(kind) {
        let application = open().await;
        let door = Door::closed();
        let visited = Arc::clone(&door);
        let play = Play::closing(move |_| {
            let visited = Arc::clone(&visited);
            async move {
                visited.pass().await;
                Ok(())
            }
        });
        let spec = play.spec(kind).patience(Patience::Unlimited);
        application.current().registry().start("x", spec).await.expect("started");
        play.context().await;
        let closing = tokio::spawn({
            let application = application.clone();
            async move { balanced(application.close().await.expect("from outside")) }
        });
        door.reached().await;
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(!closing.is_finished());
        door.open();
        assert_eq!(buckets(&soon(closing).await.expect("no panic")), (1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn reg_processes_with_different_patience_are_each_killed_at_their_own() {
    let application = open().await;
    let registry = application.current().registry();
    let recorder = application.journal().record();
    for (id, patience) in [("a", 300), ("b", 100), ("c", 200)] {
        let play = deaf();
        let spec = play.spec(ProcessKind::Function).patience(Patience::Time(patience));
        registry.start(id, spec).await.expect("started");
        play.context().await;
    }
    let begun = recorder.events().last().map_or(0, |event| event.at_ms);
    let report = end(&application).await;
    assert_eq!((report.killed.len(), report.took.as_millis()), (3, 300));
    let kills: Vec<_> = recorder
        .events()
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Killed { .. }))
        .map(|event| event.at_ms - begun)
        .collect();
    assert_eq!(kills, [100, 200, 300]);
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_one_process_is_closed_by_its_handle_and_leaves_the_others_alone(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (one, other) = (Play::quiet(), Play::quiet());
        let process = registry.start("x", one.spec(kind)).await.expect("started");
        registry.start("y", other.spec(kind)).await.expect("started");
        one.context().await;
        assert!(matches!(soon(process.close()).await, ExitReason::Stopped));
        assert!(registry.lookup("x").is_none() && registry.lookup("y").is_some());
        assert_eq!((one.closes(), other.closes(), registry.count()), (1, 0, 1));
        assert!(matches!(soon(process.close()).await, ExitReason::Stopped), "again, and the same");
        assert_eq!(one.closes(), 1);
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_deaf_process_closed_by_its_handle_is_killed_when_its_patience_is_spent(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = deaf();
        let process = registry.start("x", play.spec(kind).patience(Patience::Time(70))).await.expect("started");
        play.context().await;
        let asked = Instant::now();
        let exit = soon(process.close()).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::PatienceSpent)), "{exit:?}");
        assert_eq!((asked.elapsed().as_millis(), registry.count()), (70, 0));
        assert_eq!(buckets(&*end(&application).await), cut_off(kind));
    }
}

/// Blocks its thread where it is told to, until the test lets it go.
struct Blocker {
    reached: mpsc::SyncSender<()>,
    release: parking_lot::Mutex<mpsc::Receiver<()>>,
    in_start: bool,
    closes: AtomicUsize,
}

struct Remote {
    reached: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
}

impl Remote {
    /// Returns when the thread is blocked.
    fn reached(&self) {
        self.reached.recv_timeout(Duration::from_secs(60)).expect("it blocks");
    }
}

impl Blocker {
    fn new(in_start: bool) -> (Arc<Self>, Remote) {
        let (reached, is_reached) = mpsc::sync_channel(1);
        let (release, released) = mpsc::channel();
        let blocker = Self {
            reached,
            release: parking_lot::Mutex::new(released),
            in_start,
            closes: AtomicUsize::new(0),
        };
        (Arc::new(blocker), Remote { reached: is_reached, release })
    }

    fn block(&self) {
        let _ = self.reached.send(());
        // Ends with an error if the test is gone: then nobody waits for this.
        let _ = self.release.lock().recv();
    }
}

impl ManagedProcess for Blocker {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        if self.in_start {
            self.block();
        }
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.closes.fetch_add(1, Ordering::SeqCst);
        if !self.in_start {
            self.block();
        }
        Ok(())
    }
}

/// Small bounds: where a thread is blocked, the clock has to be the real one.
async fn open_impatient() -> Application {
    open_patient_for(50).await
}

async fn open_patient_for(bound_ms: u64) -> Application {
    open_within(Limits {
        patience: Patience::Time(bound_ms),
        cleanup_bound: Duration::from_millis(50),
        close_deadline: Duration::from_millis(bound_ms),
        ..Limits::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r24_a_function_that_blocks_its_thread_beyond_the_kill_is_abandoned_and_close_returns() {
    let application = open_impatient().await;
    let (blocker, remote) = Blocker::new(true);
    let body = ProcessSpec::function("blocks", move |context| async move {
        blocker.block();
        context.commit(|| ())?;
        Ok(())
    });
    let process = application.current().registry().start("x", body).await.expect("started");
    remote.reached();
    let report = end(&application).await;
    assert_eq!(buckets(&report), (0, 0, 1), "{report:?}");
    assert!(report.took < Duration::from_secs(10), "{:?}", report.took);
    assert!(matches!(soon(process.ended()).await, ExitReason::Abandoned));
    remote.release.send(()).expect("it waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r24_a_process_that_is_killed_and_stays_is_killed_once() {
    let application = open_impatient().await;
    let recorder = application.journal().record();
    let (blocker, remote) = Blocker::new(true);
    let body = ProcessSpec::function("blocks", move |_| async move {
        blocker.block();
        Ok(())
    });
    let spec = body.patience(Patience::Kill);
    application.current().registry().start("x", spec).await.expect("started");
    remote.reached();
    assert_eq!(buckets(&*end(&application).await), (0, 0, 1));
    let kills =
        recorder.events().iter().filter(|event| matches!(event.kind, EventKind::Killed { .. })).count();
    assert_eq!(kills, 1);
    remote.release.send(()).expect("it waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r05_a_function_that_blocks_its_thread_at_once_does_not_keep_its_caller_waiting() {
    let application = open_impatient().await;
    let (blocker, remote) = Blocker::new(true);
    let (registry, other) = (application.current().registry(), application.current().registry());
    let body = ProcessSpec::function("blocks", move |_| async move {
        blocker.block();
        Ok(())
    });
    // On a worker of its own runtime, where the answer could wait for the thread that is blocked.
    let starting = tokio::spawn(async move { registry.start("x", body).await });
    remote.reached();
    let started = tokio::time::timeout(Duration::from_secs(10), starting).await;
    remote.release.send(()).expect("it waits");
    started.expect("answered").expect("no panic").expect("started");
    other.start("y", Play::quiet().object()).await.expect("started");
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r24_an_object_whose_close_blocks_its_thread_is_abandoned_and_close_returns() {
    // Long enough for its close to be reached on a busy machine.
    let application = open_patient_for(500).await;
    let (blocker, remote) = Blocker::new(false);
    let spec = ProcessSpec::object("blocks", blocker);
    let process = application.current().registry().start("x", spec).await.expect("started");
    let report = end(&application).await;
    remote.reached();
    assert_eq!(buckets(&report), (0, 0, 1), "{report:?}");
    assert!(matches!(soon(process.ended()).await, ExitReason::Abandoned));
    remote.release.send(()).expect("it waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r24_an_effect_that_blocks_its_thread_is_named_in_flight_and_close_returns() {
    let application = open_impatient().await;
    let play = Play::quiet();
    application.current().registry().start("x", play.object()).await.expect("started");
    let context = play.context().await;
    let (blocker, remote) = Blocker::new(true);
    let committing = std::thread::spawn(move || context.commit(|| blocker.block()));
    remote.reached();
    let report = end(&application).await;
    assert_eq!(report.in_flight.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!(report.commits.applied, 1);
    remote.release.send(()).expect("it waits");
    committing.join().expect("no panic").expect("it had begun");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r12_a_start_that_blocks_its_thread_and_returns_after_it_was_abandoned_changes_nothing() {
    let application = open_impatient().await;
    let registry = application.current().registry();
    let (blocker, remote) = Blocker::new(true);
    let starting = tokio::spawn({
        let (registry, blocker) = (registry.clone(), Arc::clone(&blocker));
        async move { registry.start("x", ProcessSpec::object("blocks", blocker)).await }
    });
    remote.reached();
    let process = registry.lookup("x").expect("reserved");
    assert!(matches!(soon(process.close()).await, ExitReason::Abandoned));
    assert!(registry.lookup("x").is_none() && registry.count() == 0);
    remote.release.send(()).expect("it waits");
    let answer = soon(starting).await.expect("no panic");
    assert!(answer.is_err(), "it never ran: {answer:?}");
    assert_eq!(blocker.closes.load(Ordering::SeqCst), 1, "what it may have launched is told to end");
    assert_eq!((registry.count(), process.state()), (0, None));
    registry.start("x", Play::quiet().object()).await.expect("the id is free");
    let report = end(&application).await;
    assert_eq!((report.started, report.closed), (1, 1), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn reg_a_process_that_nobody_closes_lives_as_long_as_its_generation() {
    let application = open().await;
    let registry = application.current().registry();
    for kind in [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor] {
        let play = Play::quiet();
        registry.start(format!("{kind:?}"), play.spec(kind)).await.expect("started");
        play.context().await;
    }
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(registry.count(), 3);
    assert_eq!(end(&application).await.closed, 3);
}
