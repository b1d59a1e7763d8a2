//! O12 to O15, H3: releasing, twice, late, and by a lease that is stale.

use tenure_actors::OperationFilter;

use crate::bench::{self, request};
use crate::via::{Via, both_ways};

#[tokio::test(start_paused = true)]
async fn op_o12_a_released_operation_is_gone_and_its_keys_are_free_at_once() {
    both_ways(async |via| {
        let a = via.reserve(request("a", &["k1", "k2"])).await.unwrap();
        assert!(a.release());

        assert!(!a.is_held());
        assert!(via.get("a").await.is_none());
        assert!(via.list(&OperationFilter::default()).await.is_empty());
        assert!(via.reserve(request("b", &["k1", "k2"])).await.is_ok());
        assert!(via.reserve(request("a", &["k3"])).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o12_a_release_is_seen_in_the_same_call_without_a_turn_of_the_actor() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let a = operations.reserve(request("a", &["k"])).await.unwrap();
    // No await between the release and the reads: the actor cannot have run.
    a.release();
    assert!(operations.get("a").is_none());
    assert!(operations.list(&OperationFilter::default()).is_empty());
    assert_eq!(operations.count(), 0);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o13_the_second_release_does_nothing() {
    both_ways(async |via| {
        let a = via.reserve(request("a", &["k"])).await.unwrap();
        assert!(a.release());
        assert!(!a.release());
        drop(a);
        assert!(via.reserve(request("a", &["k"])).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o14_a_stale_lease_does_not_touch_its_successor() {
    both_ways(async |via| {
        let old = via.reserve(request("a", &["k"])).await.unwrap();
        old.release();
        let new = via.reserve(request("a", &["k"])).await.unwrap();

        assert!(!old.release());
        drop(old);

        assert!(new.is_held());
        assert!(via.get("a").await.is_some());
        assert!(via.reserve(request("b", &["k"])).await.is_err(), "k is still held");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_h3_the_clean_up_after_a_release_does_not_touch_a_successor_made_before_it_ran() {
    both_ways(async |via| {
        for _ in 0..100 {
            let old = via.reserve(request("a", &["k1", "k2"])).await.unwrap();
            // The reservation overtakes nothing: the clean-up of `old` is in the mailbox before it, and the
            // clean-up of `new`'s rivals after it.
            old.release();
            let new = via.reserve(request("a", &["k2", "k3"])).await.unwrap();
            assert!(via.get("a").await.is_some());
            assert!(via.reserve(request("b", &["k3"])).await.is_err());
            assert!(new.release());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o15_a_lease_of_a_replaced_generation_does_not_touch_the_new_service() {
    let application = bench::open().await;
    let old = application.current().operations().reserve(request("a", &["k"])).await.unwrap();
    let report = application.replace().await.unwrap();
    bench::assert_balanced(&report);
    for by_messages in [false, true] {
        let via = Via::to(&application, by_messages);
        let new = via.reserve(request("a", &["k"])).await.unwrap();

        assert!(!old.is_held());
        assert!(!old.release());
        assert!(new.is_held());
        assert!(via.get("a").await.is_some());
    }
    drop(old);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o15_a_lease_of_a_generation_that_still_drains_releases_there_alone() {
    let application = bench::open().await;
    let generation = application.current();
    let gate = bench::Gate::new();
    let last = gate.clone();
    let lingering = tenure_actors::ProcessSpec::function("lingering", |_| async move {
        last.passed().await;
        Ok(())
    });
    generation.registry().start("lingering", lingering).await.unwrap();
    let old = generation.operations().reserve(request("a", &["k"])).await.unwrap();

    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    let mut opened = application.events();
    bench::hear(&mut opened, |kind| matches!(kind, tenure_actors::EventKind::Opened { .. })).await;
    let new = application.current().operations().reserve(request("a", &["k"])).await.unwrap();

    assert!(old.release());
    assert!(new.is_held());
    assert!(application.current().operations().get("a").is_some());
    gate.open();
    bench::assert_balanced(&replacing.await.unwrap());
    bench::close(&application).await;
}
