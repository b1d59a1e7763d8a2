//! Supervisors, fixed and dynamic. A dynamic child is a service added at run time, or a managed process.

use futures_util::FutureExt;
use tenure_actors::rules::{Intensity, Patience, Restart, Strategy};
use tenure_actors::{
    ApplicationEnd, GenerationSpec, Limits, ServiceError, ServiceSpec, ServiceState, StartError,
    StartFailure, Verb,
};

use crate::kit::{End, Kind, Part, Plot, Start, Stop, World, after_ms, soon};

/// peer: ES-03, ED-04
#[tokio::test(start_paused = true)]
async fn peer_es_03_defaults_are_three_restarts_in_five_seconds_one_for_one_and_no_limit_of_children() {
    let spec = GenerationSpec::default();
    assert_eq!(spec.strategy, Strategy::OneForOne);
    assert_eq!(Some(spec.intensity), Intensity::limited(3, 5_000).ok());
    assert_eq!((spec.limits.max_services, spec.limits.max_processes), (None, None));
    let mut plot = Plot::new(Strategy::OneForOne).once();
    plot.spec.generation.intensity = spec.intensity;
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec()).open().await;
    for number in 2..=4 {
        a.crash();
        world.until_running(&format!("a#{number}")).await;
    }
    a.crash();
    assert!(matches!(world.application.ended().await, ApplicationEnd::GaveUp { .. }));
}

#[tokio::test(start_paused = true)]
async fn peer_es_08_a_stopped_permanent_child_comes_back_under_its_name_with_fresh_state() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec()).open().await;
    let old = world.get("a").unwrap().process.unwrap();
    old.close().await;
    world.until_running("a#2").await;
    let new = world.get("a").unwrap().process.unwrap();
    assert_eq!((new.id().as_str(), new.name().as_str()), ("a", "a#2"));
    assert!(new.progress().is_none() && new.exit().is_none());
    let refused = world.services().start(ServiceSpec::new("\u{7}", || unreachable!("never made"))).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("control character") && told.contains("expected printable text"), "{told}");
    world.end().await;
}

/// peer: ES-15, ED-29
#[tokio::test(start_paused = true)]
async fn peer_es_15_a_patience_of_zero_and_of_one_millisecond_is_legal() {
    for (patience_ms, killed) in [(0, 2), (1, 1)] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (quick, slow) = (plot.part("quick", Kind::Function), plot.part("slow", Kind::Function));
        slow.stop(Stop::Never);
        let world = plot.open().await;
        for part in [&quick, &slow] {
            world.services().start(part.spec().patience(soon(patience_ms))).await.unwrap();
        }
        let report = world.end().await;
        assert!((1..=killed).contains(&report.killed.len()), "{report:?}");
        assert!(report.killed.iter().any(|id| id.as_str() == "slow"));
        assert!(report.took.as_millis() <= u128::from(2 * patience_ms));
    }
}

#[tokio::test(start_paused = true)]
async fn peer_es_16_a_child_lives_its_life_cycle() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    let services = world.services();
    assert!(services.list().is_empty());
    services.start(a.spec()).await.unwrap();
    assert_eq!(world.cast(), ["a running a#1"]);
    assert!(matches!(
        services.delete("a").await,
        Err(ServiceError::InUse { state: ServiceState::Running, .. })
    ));
    services.terminate("a").await.unwrap();
    assert_eq!(world.cast(), ["a stopped"]);
    assert_eq!(services.restart("a").await.unwrap().name(), "a#2");
    services.terminate("a").await.unwrap();
    services.delete("a").await.unwrap();
    assert!(services.list().is_empty());
    assert_eq!(world.diary.of("up"), ["a#1", "a#2"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ed_15_an_invalid_spec_is_refused_in_the_caller_before_the_registry_is_contacted() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let refused = registry.start("", a.process()).now_or_never().expect("answered without waiting");
    assert!(matches!(refused, Err(StartError::Invalid(_))), "{refused:?}");
    assert_eq!(registry.count(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ed_17_a_start_that_fails_panics_or_hangs_is_an_error_for_the_caller_and_harms_nobody() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Object), plot.part("b", Kind::Actor));
    let world = plot.with(b.spec()).open().await;
    let registry = world.generation().registry();
    for (start, failure) in [
        (Start::Fails, Some(StartFailure::Error)),
        (Start::Panics, Some(StartFailure::Panic)),
        (Start::Hangs, None),
    ] {
        a.next_starts([start]);
        match registry.start("a", a.process()).await {
            Err(StartError::StartFailed { kind, .. }) => assert_eq!(Some(kind), failure),
            Err(StartError::StartTimedOut { .. }) => assert_eq!(None, failure),
            other => panic!("{other:?}"),
        }
        assert_eq!(registry.count(), 0);
    }
    registry.start("a", a.process()).await.expect("the registry goes on");
    assert_eq!(world.cast(), ["b running b#1"]);
    world.end().await;
}

async fn with_child(restart: Restart, end: impl AsyncFnOnce(&World, &Part)) -> (World, Part) {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    world.services().start(a.spec().restart(restart)).await.unwrap();
    end(&world, &a).await;
    (world, a)
}

async fn shutdown(world: &World, part: &Part) {
    let process = world.get(part.name()).unwrap().process.unwrap();
    process.close().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ed_19_a_temporary_child_is_not_restarted_whatever_its_reason() {
    let (world, _) = with_child(Restart::Temporary, shutdown).await;
    world.until("none", |world| world.services().list().is_empty()).await;
    world.end().await;
    let (world, _) = with_child(Restart::Temporary, async |_, part| part.crash()).await;
    world.until("none", |world| world.services().list().is_empty()).await;
    world.end().await;
}

/// Where a dynamic supervisor drops the spec of a child that is not restarted, services keep it.
#[tokio::test(start_paused = true)]
async fn peer_ed_20_a_transient_child_is_restarted_unless_it_ended_in_order() {
    let (world, _) = with_child(Restart::Transient, shutdown).await;
    world.until_state("a", ServiceState::Ended).await;
    world.end().await;
    let (world, _) = with_child(Restart::Transient, async |_, part| part.end(End::Normal)).await;
    world.until_state("a", ServiceState::Ended).await;
    world.end().await;
    let (world, _) = with_child(Restart::Transient, async |_, part| part.crash()).await;
    world.until_running("a#2").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ed_21_a_permanent_child_is_restarted_whatever_its_reason() {
    let (world, a) = with_child(Restart::Permanent, shutdown).await;
    world.until_running("a#2").await;
    for (end, next) in [(End::Normal, "a#3"), (End::Error, "a#4"), (End::Panic, "a#5")] {
        a.end(end);
        world.until_running(next).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ed_26_a_failed_restart_is_tried_again_and_succeeds_within_the_limit() {
    let mut plot = Plot::new(Strategy::OneForOne).limited(2, 60_000);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    world.services().start(a.spec()).await.unwrap();
    a.next_starts([Start::Fails]);
    a.crash();
    world.until_running("a#3").await;
    assert!(world.generation().is_open());
    world.end().await;
}

/// peer: ED-27, ED-28
#[tokio::test(start_paused = true)]
async fn peer_ed_28_tries_themselves_count_against_the_limit_and_end_the_supervisor() {
    for limit in [1, 10] {
        let mut plot = Plot::new(Strategy::OneForOne).limited(limit, 60_000).once();
        let a = plot.part("a", Kind::Object);
        let b = plot.part("b", Kind::Actor);
        let world = plot.open().await;
        for part in [&a, &b] {
            world.services().start(part.spec()).await.unwrap();
        }
        b.start(Start::Fails);
        b.crash();
        assert!(matches!(world.application.ended().await, ApplicationEnd::GaveUp { .. }));
        assert_eq!(b.made(), 1 + limit as usize);
        assert_eq!(world.said(Verb::Retry).len(), limit as usize);
        world.end().await;
    }
}

/// Three of a kind, closed together; answers how they ended, and what they were told.
async fn close_three(patience: [Patience; 3], stop: [Stop; 3]) -> (Vec<String>, Vec<String>) {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["x", "y", "z"].map(|name| plot.part(name, Kind::Function));
    let world = plot.open().await;
    let mut handles = Vec::new();
    for ((part, patience), stop) in parts.iter().zip(patience).zip(stop) {
        part.stop(stop);
        handles.push(world.services().start(part.spec().patience(patience)).await.unwrap());
    }
    let diary = world.diary.clone();
    world.end().await;
    let ends = handles.iter().map(|handle| handle.exit().map(|exit| exit.to_string()).unwrap_or_default());
    (ends.collect(), diary.of("down"))
}

#[tokio::test(start_paused = true)]
async fn peer_ed_31_children_with_patience_kill_all_end_killed_and_are_told_nothing() {
    let (ends, told) = close_three([Patience::Kill; 3], [Stop::Obeys; 3]).await;
    assert_eq!(ends, ["killed"; 3]);
    assert_eq!(told, Vec::<String>::new());
}

/// peer: ED-32, ED-33
#[tokio::test(start_paused = true)]
async fn peer_ed_32_children_with_unlimited_patience_end_in_their_own_way_and_time() {
    let stop = [Stop::Obeys, Stop::After(20_000), Stop::Fails];
    let (ends, told) = close_three([Patience::Unlimited; 3], stop).await;
    assert_eq!(ends, ["stopped (graceful)", "stopped (graceful)", "failed: no stop"]);
    assert_eq!(told, ["z#1", "y#1", "x#1"]);
}

#[tokio::test(start_paused = true)]
async fn peer_ed_38_each_child_is_waited_for_with_its_own_patience() {
    let patience = [soon(100), soon(300), Patience::Kill];
    let (ends, _) = close_three(patience, [Stop::After(200); 3]).await;
    assert_eq!(ends, ["killed", "stopped (graceful)", "killed"]);
}

/// peer: ED-39, ED-40
#[tokio::test(start_paused = true)]
async fn peer_ed_39_terminate_ends_a_child_and_the_second_call_does_not_find_it() {
    for (patience, expected) in [(Patience::Kill, "killed"), (soon(1_000), "stopped (graceful)")] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", Kind::Function);
        let world = plot.open().await;
        let handle = world.services().start(a.temporary().patience(patience)).await.unwrap();
        world.services().terminate("a").await.unwrap();
        assert_eq!(handle.exit().map(|exit| exit.to_string()).as_deref(), Some(expected));
        assert!(matches!(world.services().terminate("a").await, Err(ServiceError::NotFound { .. })));
        assert!(world.services().list().is_empty());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn peer_ed_41_a_child_in_failing_restart_is_removed_and_then_not_found() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    world.services().start(a.spec().backoff(after_ms(5))).await.unwrap();
    a.start(Start::Fails);
    a.crash();
    world.until("some tries", |_| a.made() > 5).await;
    world.services().terminate("a").await.unwrap();
    world.services().delete("a").await.unwrap();
    assert!(matches!(world.services().terminate("a").await, Err(ServiceError::NotFound { .. })));
    assert_eq!(Limits::default().max_services, None);
    world.end().await;
}
