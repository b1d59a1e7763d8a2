//! Restarts that fail for ever: every command is answered all the same.

use tenure_actors::rules::{Restart, Strategy};
use tenure_actors::{ServiceError, ServiceState};

use crate::kit::{Kind, Plot, Start, World, after_ms, quiet};

/// While `name` cannot be started again, every command but terminate is refused.
async fn assert_only_terminate_works(world: &World, name: &str, spec: tenure_actors::ServiceSpec) {
    let services = world.services();
    assert!(matches!(services.start(spec).await, Err(ServiceError::AlreadyExists { .. })), "already present");
    assert!(matches!(services.restart(name).await, Err(ServiceError::InUse { .. })), "restarting");
    assert!(matches!(services.delete(name).await, Err(ServiceError::InUse { .. })), "restarting");
    services.terminate(name).await.expect("terminate works");
    assert_eq!(world.state(name), Some(ServiceState::Stopped));
}

#[tokio::test(start_paused = true)]
async fn peer_os_78_every_command_is_answered_while_a_restart_fails_for_ever() {
    for delay_ms in [0, 20] {
        for kind in [Kind::Actor, Kind::Object] {
            let mut plot = Plot::new(Strategy::OneForOne);
            let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", kind));
            let world = plot.with(a.spec().backoff(backoff(delay_ms))).open().await;
            a.start(Start::Fails);
            a.crash();
            while a.made() < 20 {
                pass(delay_ms).await;
            }
            assert_only_terminate_works(&world, "a", a.spec()).await;
            let tried = a.made();
            quiet().await;
            assert_eq!(a.made(), tried, "nobody tries any more");
            a.start(Start::Works);
            world.services().restart("a").await.unwrap();
            world.services().start(b.spec()).await.unwrap();
            a.start(Start::Fails);
            a.crash();
            while a.made() < tried + 20 {
                pass(delay_ms).await;
            }
            let report = world.end().await;
            assert!(report.took.as_millis() < 20, "the close does not wait for it");
        }
    }
}

fn backoff(delay_ms: u64) -> tenure_actors::rules::Backoff {
    if delay_ms == 0 { tenure_actors::rules::Backoff::none() } else { after_ms(delay_ms) }
}

/// A restart without delay keeps the runtime busy, so that the paused clock would never move.
async fn pass(delay_ms: u64) {
    if delay_ms == 0 { tokio::task::yield_now().await } else { quiet().await }
}

#[tokio::test(start_paused = true)]
async fn peer_os_79_in_a_rest_for_one_chain_the_earlier_sibling_stays_up_and_the_later_ones_are_down() {
    let (plot, [a, b, c]) = Plot::new(Strategy::RestForOne).cast(["a", "b", "c"]);
    let world = plot.with_backoff("b", 20).open().await;
    b.start(Start::Fails);
    b.crash();
    world.until("many tries", |_| b.made() > 10).await;
    assert_eq!(world.incarnation("a").as_deref(), Some("a#1"));
    assert_eq!((c.alive(), world.state("c")), (0, Some(ServiceState::Restarting)));
    assert_only_terminate_works(&world, "b", b.spec()).await;
    world.until_running("c#2").await;
    assert_eq!(world.cast(), ["a running a#1", "b stopped", "c running c#2"]);
    assert_eq!(a.made(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_80_a_child_added_at_run_time_is_listed_as_restarting_and_goes_by_its_old_handle_too() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["1", "2"].map(|name| plot.part(name, Kind::Actor));
    let world = plot.open().await;
    for part in &parts {
        let spec = part.spec().restart(Restart::Transient).backoff(after_ms(20));
        world.services().start(spec).await.unwrap();
    }
    let old = world.get("1").unwrap().process.unwrap();
    parts[0].start(Start::Fails);
    parts[0].crash();
    world.until("many tries", |_| parts[0].made() > 10).await;
    world.until_state("1", ServiceState::Restarting).await;
    assert_eq!(old.close().await.to_string(), "failed: crash", "its own end, long ago; nothing waits");
    world.services().terminate("1").await.unwrap();
    world.services().delete("1").await.unwrap();
    assert_eq!(world.cast(), ["2 running 2#1"]);
    parts[1].start(Start::Fails);
    parts[1].crash();
    world.until("many tries", |_| parts[1].made() > 10).await;
    let report = world.end().await;
    assert!(report.took.as_millis() < 20, "the close does not hang");
}
