//! A close that comes in the middle of something.

use std::time::Duration;

use tenure_actors::rules::Strategy;
use tenure_actors::{CloseReason, ServiceError, ServiceState, Verb};

use crate::kit::{KINDS, Kind, Plot, Start, Stop, World, after_ms, elapse, quiet, soon};

/// Begins the close of everything without waiting for it.
async fn begin_close(world: &World) -> tokio::task::JoinHandle<()> {
    let application = world.application.clone();
    let closed = tokio::spawn(async move { drop(application.close().await) });
    world.until("the seal", |world| !world.generation().is_open()).await;
    closed
}

#[tokio::test(start_paused = true)]
async fn a_close_in_the_middle_of_a_group_restart_stops_the_rest_in_reverse_order() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).cast(["a", "b", "c"]);
    c.stop(Stop::Gated);
    let world = plot.open().await;
    b.crash();
    world.until_line("down c#1").await;
    let closed = begin_close(&world).await;
    quiet().await;
    assert_eq!(world.diary.of("down"), ["c#1"], "a waits for c");
    c.open_stop();
    closed.await.unwrap();
    assert_eq!(world.diary.of("down"), ["c#1", "a#1"]);
    assert_eq!((a.made(), b.made(), c.made()), (1, 1, 1), "nothing starts after the seal");
    let report = world.end().await;
    assert_eq!((report.started, report.ended, report.closed), (3, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_close_in_the_middle_of_a_back_off_starts_nothing() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let mut plot = Plot::new(strategy);
        let a = plot.part("a", Kind::Actor);
        let world = plot.with(a.spec().backoff(after_ms(1_000))).open().await;
        a.crash();
        world.until_state("a", ServiceState::Restarting).await;
        let report = world.application.close().await.unwrap();
        elapse(Duration::from_secs(2)).await;
        assert_eq!(a.made(), 1);
        assert_eq!((report.started, report.ended, report.took.as_millis()), (1, 1, 0));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_a_hanging_start_no_longer_than_its_bound() {
    for kind in [Kind::Object, Kind::Actor] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", kind));
        let world =
            plot.with(a.spec()).limits(|limits| limits.start_bound = Duration::from_millis(400)).open().await;
        b.start(Start::Hangs);
        let (services, spec) = (world.services(), b.spec());
        let started = tokio::spawn(async move { services.start(spec).await });
        world.until_line("start b#1").await;
        let report = world.application.close().await.unwrap();
        assert!(report.took <= Duration::from_millis(400), "{:?}", report.took);
        assert!(matches!(started.await.unwrap(), Err(ServiceError::Closed)));
        assert_eq!((report.started, report.closed), (1, 1), "one that never started is not counted");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_during_the_close_is_neither_counted_nor_tried_again() {
    let mut plot = Plot::new(Strategy::OneForOne).limited(0, 60_000);
    let a = plot.part("a", Kind::Object);
    let world = plot.limits(|limits| limits.start_bound = Duration::from_millis(400)).open().await;
    world.services().start(a.spec()).await.unwrap();
    world.services().terminate("a").await.unwrap();
    a.start(Start::Hangs);
    let services = world.services();
    let restarted = tokio::spawn(async move { services.restart("a").await });
    world.until_state("a", ServiceState::Starting).await;
    let report = world.application.close().await.unwrap();
    assert_eq!(report.reason, CloseReason::ApplicationClosed);
    assert!(matches!(restarted.await.unwrap(), Err(ServiceError::Closed)));
    assert_eq!(world.said(Verb::Retry), Vec::<String>::new());
    assert_eq!(world.said(Verb::Escalate), Vec::<String>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_crashes_during_the_close_is_not_restarted_and_others_still_close_in_order() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).limited(0, 60_000).cast(["a", "b", "c"]);
    c.stop(Stop::Gated);
    let world = plot.open().await;
    let closed = begin_close(&world).await;
    world.until_line("down c#1").await;
    a.crash();
    world.until_line("gone a#1").await;
    c.open_stop();
    closed.await.unwrap();
    assert_eq!(world.diary.of("down"), ["c#1", "b#1"]);
    assert_eq!((a.made(), b.made()), (1, 1));
    assert_eq!(world.said(Verb::Escalate), Vec::<String>::new());
    let report = world.end().await;
    assert_eq!(report.reason, CloseReason::ApplicationClosed);
    assert_eq!((report.started, report.ended, report.closed), (3, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_terminate_in_progress_is_told_closed_and_the_close_waits_for_its_service() {
    let (plot, [_a, b]) = Plot::new(Strategy::OneForOne).cast(["a", "b"]);
    b.stop(Stop::Gated);
    let world = plot.open().await;
    let services = world.services();
    let terminated = tokio::spawn(async move { services.terminate("b").await });
    world.until_line("down b#1").await;
    let closed = begin_close(&world).await;
    quiet().await;
    assert!(!closed.is_finished());
    b.open_stop();
    closed.await.unwrap();
    assert!(matches!(terminated.await.unwrap(), Err(ServiceError::Closed) | Ok(())));
    assert_eq!(world.diary.of("down"), ["b#1", "a#1"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_close_every_command_answers_closed_and_nothing_is_listed() {
    let (mut plot, [_a]) = Plot::new(Strategy::OneForOne).cast(["a"]);
    let b = plot.part("b", Kind::Function);
    let world = plot.open().await;
    let services = world.services();
    world.application.close().await.unwrap();
    assert!(matches!(services.start(b.spec()).await, Err(ServiceError::Closed)));
    assert!(matches!(services.restart("a").await, Err(ServiceError::Closed)));
    assert!(matches!(services.terminate("a").await, Err(ServiceError::Closed)));
    assert!(matches!(services.delete("a").await, Err(ServiceError::Closed)));
    assert!(services.list().is_empty() && services.get("a").is_none());
    assert_eq!(b.made(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn services_of_all_kinds_that_never_stop_are_reported_and_the_report_balances() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = KINDS.map(|kind| plot.part(&format!("{kind:?}").to_lowercase(), kind));
    for part in &parts {
        part.stop(Stop::Never);
        plot = plot.with(part.spec().patience(soon(200)));
    }
    let world = plot.open().await;
    let report = world.end().await;
    let killed: Vec<_> = report.killed.iter().map(|id| id.as_str()).collect();
    let abandoned: Vec<_> = report.abandoned.iter().map(|id| id.as_str()).collect();
    assert_eq!((killed, abandoned), (vec!["function", "actor"], vec!["object"]));
    assert_eq!(report.took, Duration::from_millis(600), "one after the other, each with its patience");
}
