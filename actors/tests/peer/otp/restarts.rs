//! Which ends are followed by a restart.

use tenure_actors::rules::{Restart, Strategy};
use tenure_actors::{CloseReason, ExitReason, ServiceError, ServiceState};

use crate::kit::{End, Kind, Part, Plot, Stop, World, soon};

/// How the test has a service end.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// It ends its work, fails or panics.
    Itself(End),
    /// Somebody closes it by its handle.
    Shutdown,
    /// Somebody closes it by its handle, and it has to be killed.
    Kill,
}

const CAUSES: [Cause; 5] = [
    Cause::Itself(End::Normal),
    Cause::Itself(End::Error),
    Cause::Itself(End::Panic),
    Cause::Shutdown,
    Cause::Kill,
];

async fn bring_about(world: &World, part: &Part, cause: Cause) {
    let process = world.get(part.name()).unwrap().process.unwrap();
    match cause {
        Cause::Itself(end) => part.end(end),
        Cause::Shutdown => drop(process.close().await),
        Cause::Kill => {
            part.stop(Stop::Never);
            assert!(matches!(process.close().await, ExitReason::Killed(_)));
            part.stop(Stop::Obeys);
        }
    }
    process.ended().await;
}

/// peer: OS-30, OS-31, OS-34, OS-37, OS-38
#[tokio::test(start_paused = true)]
async fn peer_os_30_each_restart_type_answers_each_end_as_its_table_says() {
    for cause in CAUSES {
        let is_abnormal = matches!(cause, Cause::Itself(End::Error | End::Panic) | Cause::Kill);
        for kind in [Kind::Actor, Kind::Function] {
            let mut plot = Plot::new(Strategy::OneForOne);
            let a = plot.part("a", kind);
            let world = plot.with(a.transient().patience(soon(50))).open().await;
            bring_about(&world, &a, cause).await;
            if is_abnormal {
                world.until_running("a#2").await;
            } else {
                world.until_state("a", ServiceState::Ended).await;
                assert_eq!(a.made(), 1, "its spec stays, its process does not come back");
            }
            let temporary = world.services();
            temporary.terminate("a").await.unwrap();
            temporary.delete("a").await.unwrap();
            temporary.start(a.temporary().patience(soon(50))).await.unwrap();
            let made = a.made();
            bring_about(&world, &a, cause).await;
            world.until_gone("a").await;
            assert_eq!(a.made(), made, "{cause:?}: a temporary service has one life");
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_75_the_name_of_an_ended_temporary_service_is_free_at_once_other_names_are_kept() {
    for cause in CAUSES {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", Kind::Actor);
        let world = plot.open().await;
        for _ in 0..3 {
            let process = world.services().start(a.temporary().patience(soon(50))).await.unwrap();
            bring_about(&world, &a, cause).await;
            assert!(process.exit().is_some());
        }
        world.services().start(a.temporary()).await.unwrap();
        world.services().terminate("a").await.unwrap();
        for restart in [Restart::Permanent, Restart::Transient] {
            world.services().start(a.spec().restart(restart)).await.unwrap();
            let running = world.services().start(a.spec()).await;
            assert!(
                matches!(running, Err(ServiceError::AlreadyExists { state: ServiceState::Running, .. })),
                "already started"
            );
            world.services().terminate("a").await.unwrap();
            let stopped = world.services().start(a.spec()).await;
            assert!(
                matches!(stopped, Err(ServiceError::AlreadyExists { state: ServiceState::Stopped, .. })),
                "already present"
            );
            world.services().delete("a").await.unwrap();
        }
        world.end().await;
    }
}

/// peer: OS-56, OS-57
#[tokio::test(start_paused = true)]
async fn peer_os_56_the_end_of_a_temporary_or_transient_service_never_closes_the_generation() {
    for cause in CAUSES {
        let (mut plot, [_a]) = Plot::new(Strategy::OneForAll).cast(["a"]);
        let (temporary, transient) = (plot.part("t", Kind::Actor), plot.part("u", Kind::Actor));
        let world = plot
            .with(temporary.temporary().patience(soon(50)))
            .with(transient.transient().patience(soon(50)));
        let world = world.open().await;
        bring_about(&world, &temporary, cause).await;
        world.until_gone("t").await;
        assert_eq!(world.incarnation("a").as_deref(), Some("a#1"), "{cause:?}");
        bring_about(&world, &transient, cause).await;
        match cause {
            Cause::Itself(End::Normal) | Cause::Shutdown => {
                world.until_state("u", ServiceState::Ended).await;
                assert_eq!(world.incarnation("a").as_deref(), Some("a#1"));
            }
            Cause::Itself(_) | Cause::Kill => world.until_running("u#2").await,
        }
        assert!(world.generation().is_open());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_21_services_that_end_by_themselves_while_they_are_closed_neither_hang_nor_fail_the_close() {
    let mut plot = Plot::new(Strategy::OneForAll);
    let last = plot.part("last", Kind::Function);
    let mut parts = Vec::new();
    for (number, cause) in CAUSES.into_iter().enumerate() {
        for (kind, restart) in [
            (Kind::Actor, Restart::Permanent),
            (Kind::Function, Restart::Transient),
            (Kind::Function, Restart::Temporary),
        ] {
            let part = plot.part(&format!("{restart:?}-{number}").to_lowercase(), kind);
            plot = plot.with(part.spec().restart(restart).patience(soon(50)));
            parts.push((part, cause));
        }
    }
    last.stop(Stop::Gated);
    let world = plot.with(last.spec()).open().await;
    let application = world.application.clone();
    let closed = tokio::spawn(async move { application.close().await });
    world.until_line("down last#1").await;
    // Sealed, and not told yet: each ends in its own way.
    for (part, cause) in &parts {
        bring_about(&world, part, *cause).await;
    }
    last.open_stop();
    let report = closed.await.unwrap().unwrap();
    assert_eq!(report.reason, CloseReason::ApplicationClosed);
    assert_eq!((report.started, report.ended, report.closed), (16, 9, 4));
    assert_eq!(report.killed.len(), 3);
    assert!(parts.iter().all(|(part, _)| part.made() == 1), "nobody came back");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_72_services_stuck_in_their_restart_are_listed_but_not_running() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["a", "b", "c"].map(|name| plot.part(name, Kind::Object));
    let others = ["x", "y"].map(|name| plot.part(name, Kind::Actor));
    for part in others.iter() {
        plot = plot.with(part.spec().backoff(crate::kit::after_ms(1_000)));
    }
    for part in &parts {
        plot = plot.with(part.spec());
    }
    let world = plot.open().await;
    let running = |world: &World| {
        world.services().list().iter().filter(|service| service.state == ServiceState::Running).count()
    };
    assert_eq!((world.services().list().len(), running(&world)), (5, 5));
    others.iter().for_each(Part::crash);
    world.until("both restart", |world| running(world) == 3).await;
    assert_eq!(world.services().list().len(), 5);
    world.services().terminate("y").await.unwrap();
    world.services().delete("y").await.unwrap();
    assert_eq!((world.services().list().len(), running(&world)), (4, 3));
    world.until_running("x#2").await;
    assert_eq!((world.services().list().len(), running(&world)), (4, 4));
    world.end().await;
}
