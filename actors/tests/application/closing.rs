//! close(): once, the same report for everybody, and no waiting for oneself.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{
    ApplicationEnd, CloseError, CloseReason, EventKind, ProcessSpec, ReserveError, ServiceError, StartError,
};

use crate::bench::{self, Gate, Plain, request, waiting};
use crate::opening::service;

#[tokio::test(start_paused = true)]
async fn app_close_answers_the_same_report_again() {
    let application = bench::open().await;
    let object = Plain::new();
    application.current().registry().start("x", object.spec()).await.unwrap();
    let first = bench::close(&application).await;
    let second = bench::close(&application).await;
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &application.current().close().await.unwrap()));
    assert!(Arc::ptr_eq(&first, &application.current().report().unwrap()));
    assert_eq!(first.reason, CloseReason::ApplicationClosed);
    assert_eq!(object.counts(), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_concurrent_closes_answer_one_report() {
    let application = bench::open().await;
    let object = Plain::new();
    application.current().registry().start("x", object.spec()).await.unwrap();
    let start = Gate::new();
    let closing = [(); 16].map(|()| {
        let (application, start) = (application.clone(), start.clone());
        tokio::spawn(async move {
            start.passed().await;
            application.close().await.unwrap()
        })
    });
    start.open();
    let mut reports = Vec::new();
    for closing in closing {
        reports.push(closing.await.unwrap());
    }
    bench::assert_balanced(&reports[0]);
    assert!(reports.iter().all(|report| Arc::ptr_eq(report, &reports[0])));
    assert_eq!(object.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn app_ended_tells_everybody_before_and_after() {
    let application = bench::open().await;
    let mut early = std::pin::pin!(application.ended());
    assert!(futures_util::poll!(&mut early).is_pending());
    bench::close(&application).await;
    assert_eq!(early.await, ApplicationEnd::Closed);
    assert_eq!(application.ended().await, ApplicationEnd::Closed);
}

#[tokio::test(start_paused = true)]
async fn app_after_close_everything_answers_closed() {
    let application = bench::open().await;
    bench::close(&application).await;
    let generation = application.current();
    assert!(!generation.is_open());
    let started = generation.registry().start("x", waiting()).await;
    assert!(matches!(started, Err(StartError::RegistryClosed { .. })));
    let reserved = generation.operations().reserve(request("a", &["k"])).await;
    assert!(matches!(reserved, Err(ReserveError::Closed)));
    let added = generation.services().start(service("late")).await;
    assert!(matches!(added, Err(ServiceError::Closed)));
    assert!(application.tree().generations.is_empty());
}

#[tokio::test(start_paused = true)]
async fn app_close_goes_on_when_its_caller_goes_away() {
    let application = bench::open().await;
    {
        let mut closing = std::pin::pin!(application.close());
        assert!(futures_util::poll!(&mut closing).is_pending());
    }
    assert_eq!(application.ended().await, ApplicationEnd::Closed);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_close_from_inside_goes_on_without_the_asker() {
    let application = bench::open().await;
    let (asker, answer) = (application.clone(), tokio::sync::oneshot::channel());
    let spec = ProcessSpec::function("asker", |context| async move {
        let _ = answer.0.send(asker.close().await);
        context.cancelled().await;
        Ok(())
    });
    application.current().registry().start("asker", spec).await.unwrap();
    assert!(matches!(answer.1.await.unwrap(), Err(CloseError::Inside { .. })));
    assert_eq!(application.ended().await, ApplicationEnd::Closed);
    let report = bench::close(&application).await;
    assert_eq!((report.closed, report.killed.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn app_close_from_inside_a_generation_that_still_drains_does_not_wait_for_itself() {
    let application = bench::open().await;
    let (asker, answer) = (application.clone(), tokio::sync::oneshot::channel());
    let gate = Gate::new();
    let held = gate.clone();
    let spec = ProcessSpec::function("asker", |_| async move {
        held.passed().await;
        let _ = answer.0.send(asker.close().await);
        Ok(())
    });
    let old = application.current();
    old.registry().start("asker", spec).await.unwrap();
    let mut events = application.events();
    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
    let begun = tokio::time::Instant::now();
    gate.open();

    let answer = answer.1.await.expect("it was killed while it waited for its own end");
    assert!(matches!(answer, Err(CloseError::Inside { .. })), "{answer:?}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let report = replacing.await.unwrap();
    bench::assert_balanced(&report);
    assert_eq!((report.closed, report.killed.len()), (1, 0));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_close_waits_for_generations_that_still_drain() {
    let application = bench::open().await;
    let gate = Gate::new();
    let held = gate.clone();
    let spec = ProcessSpec::function("lingering", |_| async move {
        held.passed().await;
        Ok(())
    });
    let old = application.current();
    old.registry().start("lingering", spec).await.unwrap();
    let mut events = application.events();
    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
    let mut closing = std::pin::pin!(application.close());
    bench::hear(&mut events, |kind| {
        assert!(!matches!(kind, EventKind::Closed { .. }), "nothing has closed yet");
        matches!(kind, EventKind::StopSent { .. })
    })
    .await;
    assert!(futures_util::poll!(&mut closing).is_pending());
    gate.open();
    let report = closing.await.unwrap();
    assert!(old.report().is_some());
    assert_eq!(report.epoch.get(), 2);
    bench::assert_balanced(&replacing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn app_a_generation_closed_on_purpose_is_not_replaced_by_itself() {
    let application = bench::open().await;
    let report = application.current().close().await.unwrap();
    bench::assert_balanced(&report);
    assert_eq!(report.reason, CloseReason::Requested);
    bench::a_minute_passes().await;
    assert_eq!(application.current().epoch().get(), 1);
    assert!(!application.current().is_open());

    assert_eq!(application.replace().await.unwrap().reason, CloseReason::Requested);
    assert!(application.current().is_open());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_a_close_of_the_application_after_that_of_its_generation_tells_its_report() {
    let application = bench::open().await;
    let report = application.current().close().await.unwrap();
    assert!(Arc::ptr_eq(&report, &bench::close(&application).await));
}
