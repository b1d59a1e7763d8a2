//! Commands that meet each other, and what readers see of them.

use tenure_actors::rules::{Patience, Strategy};
use tenure_actors::{ExitReason, ServiceError, ServiceState};

use crate::kit::{KINDS, Kind, Plot, Start, Stop, quiet, soon};

#[tokio::test(start_paused = true)]
async fn two_terminates_of_one_service_are_both_answered_when_it_has_ended() {
    for kind in KINDS {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", kind);
        a.stop(Stop::Gated);
        let world = plot.with(a.spec()).open().await;
        let terminate = || {
            let services = world.services();
            tokio::spawn(async move { services.terminate("a").await })
        };
        let (first, second) = (terminate(), terminate());
        world.until_line("down a#1").await;
        quiet().await;
        assert!(!first.is_finished() && !second.is_finished());
        a.open_stop();
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(world.cast(), ["a stopped"]);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn restart_and_delete_are_refused_while_a_service_goes_down() {
    let (plot, [a]) = Plot::new(Strategy::OneForOne).cast(["a"]);
    a.stop(Stop::Gated);
    let world = plot.open().await;
    let services = world.services();
    let terminated = tokio::spawn(async move { services.terminate("a").await });
    world.until_line("down a#1").await;
    for refused in [world.services().restart("a").await.map(drop), world.services().delete("a").await] {
        assert!(
            matches!(&refused, Err(ServiceError::InUse { state: ServiceState::Stopping, .. })),
            "{refused:?}"
        );
    }
    a.open_stop();
    terminated.await.unwrap().unwrap();
    world.services().restart("a").await.unwrap();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_a_terminate_overtakes_does_not_count() {
    let (plot, [a]) = Plot::new(Strategy::OneForOne).limited(0, 60_000).cast(["a"]);
    let world = plot.open().await;
    let services = world.services();
    // Both before the supervisor's next turn: the order is in its mailbox when the end arrives.
    let terminated = tokio::spawn(async move { services.terminate("a").await });
    tokio::task::yield_now().await;
    a.crash();
    terminated.await.unwrap().unwrap();
    assert_eq!(world.cast(), ["a stopped"]);
    assert!(world.generation().is_open());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_closed_by_its_handle_follows_its_restart_type() {
    for kind in KINDS {
        let mut plot = Plot::new(Strategy::OneForOne);
        let parts = ["permanent", "transient", "temporary"].map(|name| plot.part(name, kind));
        let [permanent, transient, temporary] = &parts;
        let specs = [permanent.spec(), transient.transient(), temporary.temporary()];
        let world = specs.into_iter().fold(plot, Plot::with).open().await;
        for part in &parts {
            let process = world.get(part.name()).unwrap().process.unwrap();
            assert!(matches!(process.close().await, ExitReason::Stopped));
        }
        world.until_running("permanent#2").await;
        assert_eq!(world.cast(), ["permanent running permanent#2", "transient ended"]);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_removes_itself_is_restarted_like_one_that_stopped() {
    // A service has no id to give up; what it asks for is its own end.
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Object);
    let world = plot.with(a.spec()).open().await;
    assert!(a.contexts()[0].remove_self());
    world.until_running("a#2").await;
    assert!(!a.contexts()[0].remove_self(), "a removal of an earlier incarnation is stale");
    assert_eq!(world.cast(), ["a running a#2"]);
    drop(world.application.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_stop_is_killed_and_its_successor_never_meets_it() {
    for kind in [Kind::Actor, Kind::Function] {
        let mut plot = Plot::new(Strategy::OneForAll);
        let (a, b) = (plot.part("a", kind), plot.part("b", kind));
        b.stop(Stop::Never);
        let world = plot.with(a.spec()).with(b.spec().patience(soon(250))).open().await;
        a.crash();
        world.until_running("b#2").await;
        let lines = world.diary.lines();
        let at = |line: &str| lines.iter().position(|seen| seen == line).unwrap();
        assert!(at("gone b#1") < at("start b#2"), "{lines:?}");
        let report = world.end().await;
        // Both incarnations of b had to be killed: one by the group restart, one by the close.
        assert_eq!(report.killed.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn patience_kill_tells_nobody_and_is_answered_all_the_same() {
    for kind in [Kind::Actor, Kind::Function] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", kind);
        let world = plot.open().await;
        let (services, spec) = (world.services(), a.spec().patience(Patience::Kill));
        let started = tokio::spawn(async move { services.start(spec).await });
        let services = world.services();
        let terminated = tokio::spawn(async move { services.terminate("a").await });
        let (started, terminated) = (started.await.unwrap(), terminated.await.unwrap());
        assert!(started.is_ok() || matches!(started, Err(ServiceError::StartFailed { .. })), "{started:?}");
        terminated.unwrap();
        assert_eq!(world.diary.of("down"), Vec::<String>::new());
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_answered_finds_the_answer_in_the_list() {
    let (plot, [_a]) = Plot::new(Strategy::OneForOne).cast(["a"]);
    let world = plot.open().await;
    let services = world.services();
    for _ in 0..500 {
        services.terminate("a").await.unwrap();
        assert_eq!(services.get("a").unwrap().state, ServiceState::Stopped);
        services.restart("a").await.unwrap();
        assert_eq!(services.get("a").unwrap().state, ServiceState::Running);
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_list_keeps_start_order_through_everything() {
    let (mut plot, [a, _b, _c]) = Plot::new(Strategy::OneForOne).cast(["z", "m", "b"]);
    let late = plot.part("a", Kind::Function);
    let world = plot.open().await;
    world.services().start(late.spec()).await.unwrap();
    world.services().terminate("m").await.unwrap();
    a.crash();
    world.until_running("z#2").await;
    world.services().restart("m").await.unwrap();
    assert_eq!(world.cast(), ["z running z#2", "m running m#2", "b running b#1", "a running a#1"]);
    world.services().terminate("z").await.unwrap();
    world.services().delete("z").await.unwrap();
    world.services().start(a.spec()).await.unwrap();
    assert_eq!(world.cast(), ["m running m#2", "b running b#1", "a running a#1", "z running z#3"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn max_services_counts_every_spec_that_is_kept() {
    let (mut plot, [a, _b]) = Plot::new(Strategy::OneForOne).cast(["a", "b"]);
    let (c, d) = (plot.part("c", Kind::Function), plot.part("d", Kind::Object));
    let world = plot.limits(|limits| limits.max_services = Some(3)).open().await;
    d.next_starts([Start::Fails]);
    assert!(matches!(world.services().start(d.spec()).await, Err(ServiceError::StartFailed { .. })));
    world.services().start(c.spec()).await.unwrap();
    world.services().terminate("a").await.unwrap();
    let refused = world.services().start(d.spec()).await;
    assert!(matches!(&refused, Err(ServiceError::TooManyServices { limit: 3, .. })), "{refused:?}");
    world.services().delete("a").await.unwrap();
    world.services().start(d.spec()).await.unwrap();
    assert_eq!(a.made(), 1);
    world.end().await;
}
