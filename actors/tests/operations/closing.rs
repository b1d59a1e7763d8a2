//! O19 to O21 and H6: close clears everything, refuses what comes, and stops no worker.

use tenure_actors::{OperationFilter, ReserveError, testkit};

use crate::bench::{self, request};
use crate::via::{Via, both_ways};

#[tokio::test(start_paused = true)]
async fn op_o19_after_close_everything_is_empty_and_closed() {
    both_ways(async |via| {
        let _a = via.reserve(request("a", &["k1"])).await.unwrap();
        let _b = via.reserve(request("b", &["k2"])).await.unwrap();
        via.close().await;

        assert!(via.get("a").await.is_none());
        assert!(via.list(&OperationFilter::default()).await.is_empty());
        let refused = via.reserve(request("c", &["k3"])).await;
        assert!(matches!(refused, Err(ReserveError::Closed)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o19_closing_again_answers_again() {
    both_ways(async |via| {
        via.close().await;
        via.close().await;
        assert!(matches!(via.reserve(request("a", &["k"])).await, Err(ReserveError::Closed)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o19_the_operations_of_a_closed_generation_answer_the_same() {
    for by_messages in [false, true] {
        let application = bench::open().await;
        let via = Via::to(&application, by_messages);
        let operations = application.current().operations();
        let lease = via.reserve(request("a", &["k"])).await.unwrap();
        bench::close(&application).await;

        assert!(!lease.is_held());
        assert!(via.get("a").await.is_none());
        assert!(via.list(&OperationFilter::default()).await.is_empty());
        assert!(matches!(via.reserve(request("b", &["k"])).await, Err(ReserveError::Closed)));
        via.close().await;
        assert_eq!(operations.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn op_o19_an_invalid_request_is_told_so_before_it_is_told_closed() {
    both_ways(async |via| {
        via.close().await;
        let refused = via.reserve(request("a", &[])).await;
        assert!(matches!(refused, Err(ReserveError::Invalid { .. })), "{refused:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o19_from_the_seal_on_nothing_is_reserved() {
    let application = bench::open().await;
    let generation = application.current();
    generation.registry().start("deaf", bench::deaf()).await.unwrap();
    let mut closing = std::pin::pin!(generation.close());
    assert!(futures_util::poll!(&mut closing).is_pending());

    let refused = generation.operations().reserve(request("a", &["k"])).await;

    assert!(matches!(refused, Err(ReserveError::Closed)));
    assert!(generation.report().is_none(), "the close is still under way");
    bench::assert_balanced(&closing.await.unwrap());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o20_a_reservation_sent_before_the_close_is_cleared_by_it() {
    both_ways(async |via| {
        let mut reserving = std::pin::pin!(via.reserve(request("a", &["k"])));
        assert!(futures_util::poll!(&mut reserving).is_pending(), "sent");
        via.close().await;
        let lease = reserving.await.unwrap();
        assert!(!lease.is_held());
        assert!(via.get("a").await.is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o21_a_lease_outstanding_at_close_is_harmless() {
    both_ways(async |via| {
        let a = via.reserve(request("a", &["k"])).await.unwrap();
        via.close().await;
        assert!(!a.is_held());
        assert!(!a.release());
        assert_eq!(a.registration().operation.as_str(), "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o21_a_lease_may_outlive_its_application_and_its_runtime() {
    let application = bench::open().await;
    let lease = application.current().operations().reserve(request("a", &["k"])).await.unwrap();
    bench::close(&application).await;
    drop(application);
    let late = std::thread::spawn(move || lease.release());
    assert!(!late.join().unwrap());
}

#[tokio::test(start_paused = true)]
async fn op_h6_closing_the_operations_stops_no_worker() {
    for by_messages in [false, true] {
        let application = bench::open().await;
        let via = Via::to(&application, by_messages);
        let lease = via.reserve(request("a", &["k"])).await.unwrap();
        let registry = application.current().registry();
        let process = bench::Plain::new();
        let handle = registry.start("a", process.spec().holding(lease)).await.unwrap();
        via.close().await;

        assert!(handle.exit().is_none());
        assert_eq!(process.context().commit(|| 7), Ok(7));
        let report = bench::close(&application).await;
        assert_eq!((report.closed, process.counts()), (1, (1, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn op_o21_a_lease_is_harmless_after_the_operations_failed() {
    let application = bench::open().await;
    let generation = application.current();
    let lease = generation.operations().reserve(request("a", &["k"])).await.unwrap();
    testkit::fail_operations(&generation, "boom");
    bench::assert_balanced(&generation.closed().await.unwrap());
    assert!(!lease.is_held());
    assert!(!lease.release());
    assert_eq!(generation.operations().count(), 0);
    bench::close(&application).await;
}
