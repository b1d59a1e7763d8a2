//! A generation that fails is replaced, after a delay, as often as the application may.

use std::time::Duration;

use tenure_actors::rules::{Backoff, BackoffSettings, Intensity};
use tenure_actors::{
    Application, ApplicationEnd, ApplicationSpec, CloseReason, CommitError, Event, EventKind, Generation,
    ReplaceError, testkit,
};
use tokio::time::Instant;

use crate::bench::{self, Plain};
use crate::opening::hopeless;

/// 100 ms, 200 ms, 400 ms ...
fn doubling() -> Backoff {
    Backoff::new(BackoffSettings { jitter: 0.0, ..Default::default() }).unwrap()
}

async fn open(restarts: u32) -> Application {
    let intensity = Intensity::limited(restarts, 600_000).unwrap();
    Application::open(ApplicationSpec { intensity, backoff: doubling(), ..Default::default() }).await.unwrap()
}

/// Has one of a generation's own actors fail.
type Fail = fn(&Generation, &str) -> bool;

/// Fails the current generation and waits for the next one.
async fn fail(application: &Application, how: Fail) {
    let mut events = application.events();
    how(&application.current(), "boom");
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
    // Announced before it is published, in the same turn of the application's actor.
    tokio::task::yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn app_a_generation_is_replaced_when_any_of_its_own_actors_fails() {
    let ways: [(&str, Fail); 3] = [
        ("registry#1 failed: boom", testkit::fail_registry),
        ("operations#1 failed: boom", testkit::fail_operations),
        ("g1 failed: ", testkit::fail_supervisor),
    ];
    for (why, how) in ways {
        let application = open(3).await;
        let old = application.current();
        fail(&application, how).await;
        let report = old.closed().await.unwrap();
        bench::assert_balanced(&report);
        let CloseReason::Failed(told) = &report.reason else { panic!("{report:?}") };
        assert!(told.starts_with(why) && told.ends_with("boom"), "{told}");
        assert_eq!(application.current().epoch().get(), 2);
        assert!(application.current().registry().start("x", bench::waiting()).await.is_ok());
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn app_authority_ends_with_the_failure_and_the_processes_are_closed_in_order() {
    let application = open(3).await;
    let old = application.current();
    let object = Plain::new();
    old.registry().start("x", object.spec()).await.unwrap();
    let mut events = application.events();
    testkit::fail_registry(&old, "boom");
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Sealed { .. })).await;
    let late = object.context().commit(|| ());
    assert!(matches!(late, Err(CommitError::AuthorityRevoked { .. })));

    let report = old.closed().await.unwrap();
    bench::assert_balanced(&report);
    assert_eq!((report.closed, object.counts()), (1, (1, 1)));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_each_failure_in_a_row_is_waited_out_longer() {
    let application = open(3).await;
    for (wanted, epoch) in [(100, 2), (200, 3), (400, 4)] {
        let begun = Instant::now();
        fail(&application, testkit::fail_registry).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(wanted));
        assert_eq!(application.current().epoch().get(), epoch);
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_the_retry_is_announced_with_its_number_and_its_delay() {
    let application = open(3).await;
    let recorder = application.journal().record();
    fail(&application, testkit::fail_operations).await;
    fail(&application, testkit::fail_operations).await;
    let retried = |event: &std::sync::Arc<Event>| match &event.kind {
        EventKind::Retried { child, attempt, delay_ms } => Some(format!("{child} {attempt} {delay_ms}")),
        _ => None,
    };
    let retried: Vec<_> = recorder.events().iter().filter_map(retried).collect();
    assert_eq!(retried, ["g2 1 100", "g3 2 200"]);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_one_failure_more_than_it_may_replace_is_the_end() {
    let application = open(2).await;
    fail(&application, testkit::fail_registry).await;
    fail(&application, testkit::fail_registry).await;
    let mut events = application.events();
    testkit::fail_registry(&application.current(), "boom");
    bench::hear(&mut events, |kind| matches!(kind, EventKind::GaveUp { .. })).await;

    let limit = "limit of 2 restarts in 600000ms exceeded".into();
    assert_eq!(application.ended().await, ApplicationEnd::GaveUp { limit });
    assert!(matches!(application.replace().await, Err(ReplaceError::ApplicationClosed)));
    let report = bench::close(&application).await;
    assert_eq!(report.epoch.get(), 3);
    assert!(matches!(report.reason, CloseReason::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn app_a_service_that_cannot_be_kept_fails_its_generation() {
    let application = open(3).await;
    application.replace_with(hopeless()).await.unwrap();
    // Four generations of it: one and its three replacements.
    assert!(matches!(application.ended().await, ApplicationEnd::GaveUp { .. }));
    let report = bench::close(&application).await;
    assert_eq!(report.epoch.get(), 5);
    assert!(matches!(&report.reason, CloseReason::Failed(why) if why.contains("\"hopeless\"")), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn app_a_replace_during_the_back_off_opens_at_once_and_only_one() {
    let application = open(3).await;
    let old = application.current();
    testkit::fail_registry(&old, "boom");
    old.closed().await.unwrap();
    let begun = Instant::now();
    let report = application.replace().await.unwrap();
    assert!(matches!(report.reason, CloseReason::Failed(_)), "{report:?}");
    assert_eq!(begun.elapsed(), Duration::ZERO);

    bench::a_minute_passes().await;
    assert_eq!(application.current().epoch().get(), 2, "the back-off that was overtaken opens nothing");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_a_close_during_the_back_off_is_the_end() {
    let application = open(3).await;
    let old = application.current();
    testkit::fail_registry(&old, "boom");
    old.closed().await.unwrap();
    let report = bench::close(&application).await;
    assert_eq!(report.epoch.get(), 1);
    assert_eq!(application.ended().await, ApplicationEnd::Closed);

    bench::a_minute_passes().await;
    assert_eq!(application.current().epoch().get(), 1);
    assert!(!application.current().is_open());
}

#[tokio::test(start_paused = true)]
async fn app_a_failure_of_a_generation_that_was_replaced_is_nobodys_business() {
    let application = open(0).await;
    let old = application.current();
    bench::assert_balanced(&application.replace().await.unwrap());
    testkit::fail_registry(&old, "boom");
    testkit::fail_supervisor(&old, "boom");
    bench::a_minute_passes().await;
    assert_eq!(application.current().epoch().get(), 2);
    assert!(application.current().is_open());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_a_failure_while_it_closes_is_not_replaced() {
    let application = open(3).await;
    let old = application.current();
    old.registry().start("deaf", bench::deaf()).await.unwrap();
    let mut closing = std::pin::pin!(application.close());
    assert!(futures_util::poll!(&mut closing).is_pending());
    testkit::fail_registry(&old, "boom");
    let report = closing.await.unwrap();
    bench::assert_balanced(&report);
    assert_eq!(report.reason, CloseReason::ApplicationClosed);
    bench::a_minute_passes().await;
    assert_eq!(application.current().epoch().get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_a_generation_that_failed_while_it_opened_is_never_told_as_the_current_one() {
    let intensity = Intensity::Unlimited;
    let never = Backoff::new(BackoffSettings { min_ms: 3_600_000, max_ms: 3_600_000, ..Default::default() });
    let spec = ApplicationSpec { intensity, backoff: never.unwrap(), ..Default::default() };
    let application = Application::open(spec).await.unwrap();
    let object = Plain::new();
    application.current().registry().start("x", object.spec()).await.unwrap();
    for _ in 0..500 {
        application.replace_with(hopeless()).await.unwrap();
        application.current().closed().await.unwrap();
        match object.context().commit(|| ()) {
            Err(CommitError::AuthorityRevoked { current: None, .. }) => {}
            other => panic!("no generation is open: {other:?}"),
        }
    }
    bench::close(&application).await;
}
