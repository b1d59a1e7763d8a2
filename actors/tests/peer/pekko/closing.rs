//! Coordinated shutdown: the close, whose phases are fixed.

use std::sync::Arc;

use tenure_actors::rules::Strategy;
use tenure_actors::{ApplicationEnd, CloseReason, ProcessResult, Resource};

use crate::kit::{Diary, End, Kind, Part, Plot, Stop, World, quiet, soon};

/// A service `s` and processes `p1` and `p2`, and a resource that notes its close.
async fn open() -> (World, [Part; 3]) {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["s", "p1", "p2"].map(|name| plot.part(name, Kind::Function));
    let world = plot.with(parts[0].spec()).limits(|limits| limits.patience = soon(100)).open().await;
    for part in &parts[1..] {
        world.generation().registry().start(part.name(), part.process()).await.unwrap();
    }
    let diary = world.diary.clone();
    let store = world.generation().runtime_store();
    store.get_or_create("pool", || async { Ok(Arc::new(Pool { diary })) }).await.unwrap();
    quiet().await;
    world.diary.take();
    (world, parts)
}

struct Pool {
    diary: Diary,
}

impl Resource for Pool {
    async fn close(self: Arc<Self>) -> ProcessResult {
        self.diary.note("down pool");
        Ok(())
    }
}

/// peer: PB-25, PW-19, PB-44
#[tokio::test(start_paused = true)]
async fn peer_pb_25_what_belongs_to_one_phase_ends_together_and_the_next_phase_waits_for_all() {
    let (world, [s, p1, p2]) = open().await;
    p1.stop(Stop::Gated);
    p2.stop(Stop::Gated);
    let application = world.application.clone();
    let closed = tokio::spawn(async move { application.close().await });
    world.until_line("down p1#1").await;
    quiet().await;
    assert_eq!(world.diary.take(), ["down p2#1", "down p1#1"], "both are told, in reverse start order");
    p2.open_stop();
    quiet().await;
    assert_eq!(world.diary.take(), ["gone p2#1"], "the service waits for the last process");
    assert_eq!(s.alive(), 1);
    p1.open_stop();
    closed.await.unwrap().unwrap();
    assert_eq!(world.diary.take(), ["gone p1#1", "down s#1", "gone s#1", "down pool"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pb_32_later_phases_run_although_something_failed_and_something_had_to_be_killed() {
    let (world, [_s, p1, p2]) = open().await;
    p1.stop(Stop::Fails);
    p2.stop(Stop::Never);
    let diary = world.diary.clone();
    let report = world.end().await;
    assert_eq!(diary.take().last().map(String::as_str), Some("down pool"));
    let failed: Vec<_> = report.failed.iter().map(|(id, error)| format!("{id}: {error}")).collect();
    assert_eq!(failed, ["p1: failed: no stop"]);
    assert_eq!(report.killed.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["p2"]);
    assert_eq!((report.started, report.closed), (3, 1));
}

/// peer: PB-38, PB-39
#[tokio::test(start_paused = true)]
async fn peer_pb_38_after_the_close_everything_is_down_and_the_reason_is_readable() {
    let (world, _) = open().await;
    let report = world.application.close().await.unwrap();
    assert_eq!(report.reason, CloseReason::ApplicationClosed);
    assert_eq!(world.application.ended().await, ApplicationEnd::Closed);
    let order = world.diary.take();
    world.end().await;
    // Closing the generation goes the same way; only its reason differs.
    let (world, _) = open().await;
    let report = world.generation().close().await.unwrap();
    assert_eq!(report.reason, CloseReason::Requested);
    assert_eq!(world.diary.take(), order);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pb_45_an_end_that_comes_about_otherwise_is_waited_for_as_well() {
    let (world, [_s, p1, _p2]) = open().await;
    p1.stop(Stop::Never);
    let application = world.application.clone();
    let closed = tokio::spawn(async move { application.close().await });
    world.until_line("down p1#1").await;
    // Not its answer to the stop: it was waiting for something else, which now fails it.
    p1.end(End::Error);
    let report = closed.await.unwrap().unwrap();
    assert_eq!(report.imbalance(), None);
    assert_eq!(report.started, 3);
    world.end().await;
}

/// peer: PB-47, PB-48
#[tokio::test(start_paused = true)]
async fn peer_pb_47_what_is_closed_twice_is_waited_for_once() {
    let (world, [_s, p1, _p2]) = open().await;
    p1.stop(Stop::After(60));
    let before = tokio::time::Instant::now();
    let handle = world.generation().registry().lookup("p1").unwrap();
    let (first, second) = tokio::join!(handle.close(), handle.close());
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(before.elapsed().as_millis(), 60);
    // The registry's own close is the same phase; when it is over the generation's passes it at once.
    world.generation().registry().close().await.unwrap();
    let report = world.application.close().await.unwrap();
    assert_eq!(before.elapsed().as_millis(), 60);
    assert_eq!((report.started, report.closed), (3, 3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pw_20_what_has_no_children_runs_its_own_hook_and_ends() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Object);
    let world = plot.with(a.spec()).open().await;
    let diary = world.diary.clone();
    world.end().await;
    assert_eq!(diary.lines(), ["start a#1", "up a#1", "down a#1", "gone a#1"]);
}
