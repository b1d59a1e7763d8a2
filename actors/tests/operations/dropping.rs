//! O16: a lease that nobody releases is released by its drop, or by the end of the process it belongs to.

use tenure_actors::rules::Patience;
use tenure_actors::{
    Application, ExitReason, OperationLease, Operations, OperationsMessage, ProcessHandle, ProcessSpec,
};

use crate::bench::{self, Order, Worker, request};
use crate::via::both_ways;

/// Makes a process that ends by itself.
type Make = fn() -> ProcessSpec;

async fn lease(operations: &Operations) -> OperationLease {
    operations.reserve(request("a", &["k"])).await.unwrap()
}

/// The key is free: whoever saw the end can reserve.
async fn assert_free(application: &Application) {
    let again = application.current().operations().reserve(request("a", &["k"])).await;
    assert!(again.is_ok(), "{again:?}");
    drop(again);
}

async fn start(application: &Application, process: ProcessSpec) -> ProcessHandle {
    application.current().registry().start("a", process).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_dropped_lease_is_released() {
    both_ways(async |via| {
        drop(via.reserve(request("a", &["k"])).await.unwrap());
        assert!(via.reserve(request("a", &["k"])).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_inside_a_panicking_function_is_released() {
    let application = bench::open().await;
    let lease = lease(&application.current().operations()).await;
    let process = ProcessSpec::function("panicking", |_| async move {
        let _mine = lease;
        panic!("told to panic")
    });
    let exit = start(&application, process).await.ended().await;
    assert!(matches!(exit, ExitReason::Panicked(_)), "{exit}");
    assert_free(&application).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_inside_a_killed_function_is_released() {
    let application = bench::open().await;
    let lease = lease(&application.current().operations()).await;
    let process = ProcessSpec::function("deaf", |_| async move {
        let _mine = lease;
        std::future::pending().await
    });
    let exit = start(&application, process.patience(Patience::Kill)).await.close().await;
    assert!(matches!(exit, ExitReason::Killed(_)), "{exit}");
    assert_free(&application).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_held_by_a_process_is_released_however_it_ends() {
    let ends: [(&str, Make); 4] = [
        ("completed", || ProcessSpec::function("p", |_| async { Ok(()) })),
        ("failed", || ProcessSpec::function("p", |_| async { Err("told to fail".into()) })),
        ("panicked", || ProcessSpec::function("p", |_| async { panic!("told to panic") })),
        ("removed", || {
            ProcessSpec::function("p", |context| async move {
                context.remove_self();
                Ok(())
            })
        }),
    ];
    for (end, process) in ends {
        let application = bench::open().await;
        let lease = lease(&application.current().operations()).await;
        start(&application, process().holding(lease)).await.ended().await;
        let again = application.current().operations().reserve(request("a", &["k"])).await;
        assert!(again.is_ok(), "{end}: {again:?}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_held_by_an_actor_that_dies_is_released() {
    for order in [Order::Fail, Order::Panic, Order::Complete] {
        let application = bench::open().await;
        let lease = lease(&application.current().operations()).await;
        let process = start(&application, Worker::spec().holding(lease)).await;
        process.actor::<Order>().unwrap().cast(order).unwrap();
        process.ended().await;
        assert_free(&application).await;
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_held_by_an_actor_that_a_stranger_kills_is_released() {
    let application = bench::open().await;
    let lease = lease(&application.current().operations()).await;
    let process = start(&application, Worker::spec().holding(lease)).await;
    process.actor::<Order>().unwrap().kill();
    let exit = process.ended().await;
    assert!(matches!(exit, ExitReason::Killed(tenure_actors::KillReason::Stranger)), "{exit}");
    assert_free(&application).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_whose_caller_went_away_is_released() {
    let application = bench::open().await;
    let operations = application.current().operations();
    {
        let mut asking = std::pin::pin!(operations.reserve(request("a", &["k"])));
        assert!(futures_util::poll!(&mut asking).is_pending(), "sent, not answered");
    }
    assert_free(&application).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_that_was_answered_but_not_taken_is_released() {
    let application = bench::open().await;
    let actor = application.current().operations().actor_ref().unwrap();
    let (reply, answer) = tokio::sync::oneshot::channel();
    actor.cast(OperationsMessage::Reserve { request: request("a", &["k"]), reply: reply.into() }).unwrap();
    // The answer to the second message comes after the answer to the first.
    let seen =
        ractor::call!(actor, |reply| OperationsMessage::Get { operation: "a".try_into().unwrap(), reply });
    assert!(seen.unwrap().is_some());
    drop(answer);
    assert_free(&application).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o16_a_lease_left_with_a_process_that_has_ended_is_released_at_once() {
    let application = bench::open().await;
    let process = bench::Plain::new();
    let handle = start(&application, process.spec()).await;
    handle.close().await;
    let lease = lease(&application.current().operations()).await;
    process.context().hold(lease);
    assert!(application.current().operations().get("a").is_none());
    bench::close(&application).await;
}
