//! A generation fails, and the application opens the next epoch.

use tenure_actors::rules::Strategy;
use tenure_actors::{ApplicationEnd, CloseReason, Generation, OpenError, Verb, testkit};

use crate::kit::{Kind, Plot, Start, Stop, after_ms, elapse, limited};

#[tokio::test(start_paused = true)]
async fn a_generation_that_cannot_keep_a_service_is_replaced_and_nothing_of_it_can_commit() {
    let (mut plot, [a, b]) = Plot::new(Strategy::OneForOne).limited(0, 60_000).cast(["a", "b"]);
    let worker = plot.part("worker", Kind::Function);
    worker.stop(Stop::Gated);
    let world = plot.open().await;
    let first = world.generation();
    first.registry().start("worker", worker.process()).await.unwrap();
    a.crash();
    world.until_epoch(2).await;
    world.until_running("b#1").await;
    for context in [&a.contexts()[0], &b.contexts()[0], &worker.contexts()[0]] {
        assert_eq!(context.epoch().get(), 1);
        assert!(context.commit(|| ()).is_err(), "{context:?} outlives its authority, not more");
    }
    assert!(b.contexts()[1].commit(|| ()).is_ok());
    worker.open_stop();
    let report = first.closed().await.unwrap();
    assert_eq!(report.imbalance(), None);
    assert!(
        matches!(&report.reason, CloseReason::Failed(why) if why.contains("service \"a\"")),
        "{report:?}"
    );
    world.application.close().await.unwrap();
    assert_eq!((a.alive(), b.alive(), worker.alive()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn each_kernel_actor_that_fails_takes_its_generation_with_it_and_only_that() {
    type Fault = fn(&Generation, &str) -> bool;
    let faults: [(Fault, &str); 3] = [
        (testkit::fail_registry, "registry#1 failed"),
        (testkit::fail_operations, "operations#1 failed"),
        (testkit::fail_supervisor, "g1 failed"),
    ];
    for (fail, who) in faults {
        let (plot, [a, b]) = Plot::new(Strategy::OneForOne).cast(["a", "b"]);
        let world = plot.open().await;
        let first = world.generation();
        fail(&first, "out of luck");
        let report = first.closed().await.unwrap();
        assert_eq!(report.imbalance(), None);
        assert!(
            matches!(&report.reason, CloseReason::Failed(why) if why.starts_with(who)),
            "{:?}",
            report.reason
        );
        assert_eq!((report.started, report.closed), (2, 2), "services are stopped, not cut off");
        assert_eq!(world.diary.of("down"), ["b#1", "a#1"]);
        world.until_epoch(2).await;
        world.until_running("b#1").await;
        assert_eq!((a.alive(), b.alive()), (1, 1));
        world.application.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn generations_that_fail_too_often_end_the_application() {
    let (mut plot, [a]) = Plot::new(Strategy::OneForOne).limited(0, 60_000).cast(["a"]);
    plot.spec.intensity = limited(2, 60_000);
    let world = plot.open().await;
    a.crash();
    world.until_epoch(2).await;
    a.crash();
    world.until_epoch(3).await;
    a.crash();
    let ApplicationEnd::GaveUp { limit } = world.application.ended().await else {
        panic!("expected it to give up");
    };
    assert_eq!(&*limit, "limit of 2 restarts in 60000ms exceeded");
    assert_eq!((a.made(), a.alive()), (3, 0));
    assert_eq!(world.said(Verb::GiveUp).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_application_whose_services_never_start_gives_up_instead_of_opening() {
    let mut plot = Plot::new(Strategy::OneForOne).limited(2, 60_000).once();
    let a = plot.part("a", Kind::Object);
    a.start(Start::Fails);
    let spec = plot.with(a.spec()).spec;
    let refused = tenure_actors::Application::open(spec).await;
    assert!(matches!(refused, Err(OpenError::GaveUp { .. })), "{refused:?}");
    assert_eq!((a.made(), a.alive()), (3, 0), "once and two retries");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_during_the_back_off_after_a_failure_opens_one_generation_not_two() {
    let (mut plot, [a]) = Plot::new(Strategy::OneForOne).limited(0, 60_000).cast(["a"]);
    plot.spec.backoff = after_ms(1_000);
    let world = plot.open().await;
    a.crash();
    world.until("the failure", |world| !world.generation().is_open()).await;
    let report = world.application.replace().await.unwrap();
    assert!(matches!(report.reason, CloseReason::Failed(_)), "{:?}", report.reason);
    assert_eq!(world.generation().epoch().get(), 2);
    elapse(std::time::Duration::from_secs(2)).await;
    assert_eq!(world.generation().epoch().get(), 2, "the end of the back-off finds nothing left to do");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_close_during_the_back_off_after_a_failure_opens_nothing() {
    let (mut plot, [a]) = Plot::new(Strategy::OneForOne).limited(0, 60_000).cast(["a"]);
    plot.spec.backoff = after_ms(1_000);
    let world = plot.open().await;
    a.crash();
    world.until("the failure", |world| !world.generation().is_open()).await;
    let application = world.application.clone();
    world.end().await;
    elapse(std::time::Duration::from_secs(2)).await;
    assert_eq!((application.current().epoch().get(), a.made()), (1, 1));
    assert_eq!(application.ended().await, ApplicationEnd::Closed);
}

#[tokio::test(start_paused = true)]
async fn an_application_whose_generation_is_closed_from_inside_while_it_opens_is_opened_closed() {
    let plot = Plot::new(Strategy::OneForOne);
    let service = tenure_actors::ServiceSpec::new("a", || {
        tenure_actors::ProcessSpec::object("a", std::sync::Arc::new(ClosesAll))
    });
    let world = plot.with(service).open().await;
    assert!(!world.generation().is_open());
    world.end().await;
}

struct ClosesAll;

impl tenure_actors::ManagedProcess for ClosesAll {
    async fn start(
        self: std::sync::Arc<Self>,
        context: tenure_actors::ProcessContext,
    ) -> tenure_actors::ProcessResult {
        let _ = context.generation().close().await;
        Err("not in this world".into())
    }
}
