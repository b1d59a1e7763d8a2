//! Tasks: managed processes that are asynchronous functions.

use std::time::Duration;

use tenure_actors::rules::{Patience, Strategy};
use tenure_actors::{ExitReason, RegistryMessage, StartError};

use crate::kit::{End, Kind, Plot, Stop, quiet};

#[tokio::test(start_paused = true)]
async fn peer_et_04_none_are_counted_and_listed_by_both_interfaces() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let actor = registry.actor_ref().unwrap();
    for expected in [0, 1] {
        let count = ractor::call!(actor, |reply| RegistryMessage::Count { reply }).unwrap();
        let list = ractor::call!(actor, |reply| RegistryMessage::List { reply }).unwrap();
        assert_eq!((count, list.len()), (expected, expected));
        assert_eq!((registry.count(), registry.list()), (count, list));
        if expected == 0 {
            registry.start("a", a.process()).await.unwrap();
        }
    }
    world.end().await;
}

/// peer: ET-10, ET-14
#[tokio::test(start_paused = true)]
async fn peer_et_10_a_task_outlives_who_started_it_and_its_end_is_still_told() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let (registry, process) = (world.generation().registry(), a.process());
    let caller = tokio::spawn(async move {
        let started = registry.start("a", process).await;
        std::future::pending::<()>().await;
        drop(started);
    });
    world.until_line("up a#1").await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    let process = world.generation().registry().lookup("a").expect("listed");
    assert!(process.exit().is_none(), "not linked to who started it");
    a.end(End::Normal);
    assert!(matches!(process.ended().await, ExitReason::Completed));
    world.end().await;
}

/// peer: ET-11, ET-16
#[tokio::test(start_paused = true)]
async fn peer_et_16_a_task_with_a_patience_of_its_own_is_waited_for_so_long_and_no_longer() {
    for (patience, took_ms, told) in
        [(Patience::Kill, 0, 0), (Patience::Time(120), 120, 1), (Patience::Unlimited, 30_000, 1)]
    {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", Kind::Function);
        a.stop(Stop::Never);
        let world = plot.open().await;
        let registry = world.generation().registry();
        registry.start("a", a.process().patience(patience)).await.unwrap();
        quiet().await;
        let diary = world.diary.clone();
        let report = world.end().await;
        assert_eq!((report.took.as_millis(), report.killed.len()), (took_ms, 1));
        assert_eq!(diary.of("down").len(), told);
    }
}

#[tokio::test(start_paused = true)]
async fn peer_et_12_one_task_more_than_allowed_is_refused_until_another_has_ended() {
    let mut plot = Plot::new(Strategy::OneForOne).limits(|limits| limits.max_processes = Some(2));
    let parts = ["a", "b", "c"].map(|name| plot.part(name, Kind::Function));
    let world = plot.open().await;
    let registry = world.generation().registry();
    let first = registry.start("a", parts[0].process()).await.unwrap();
    registry.start("b", parts[1].process()).await.unwrap();
    let refused = registry.start("c", parts[2].process()).await;
    assert!(matches!(refused, Err(StartError::TooManyProcesses { limit: 2, .. })), "{refused:?}");
    assert_eq!((registry.count(), parts[2].alive()), (2, 0));
    parts[0].end(End::Normal);
    first.ended().await;
    registry.start("c", parts[2].process()).await.expect("there is room");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_et_17_a_permanent_task_told_to_stop_by_a_third_party_starts_again() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.with(a.spec()).open().await;
    let process = world.get("a").unwrap().process.unwrap();
    assert!(matches!(process.close().await, ExitReason::Stopped));
    world.until_running("a#2").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_et_19_closing_a_task_ends_it_empties_the_list_and_the_second_lookup_finds_nothing() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let process = registry.start("a", a.process()).await.unwrap();
    assert!(matches!(process.close().await, ExitReason::Stopped));
    assert!(registry.list().is_empty() && registry.lookup("a").is_none());
    assert!(registry.watch("a").await.is_none(), "not found");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_et_20_who_gave_up_waiting_hears_nothing_late_and_may_ask_again() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let process = registry.start("a", a.process()).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(10), process.ended()).await;
    assert!(waited.is_err(), "it runs");
    let watched = tokio::time::timeout(Duration::from_millis(10), registry.watch("a")).await;
    assert!(watched.is_err(), "it runs");
    a.end(End::Normal);
    assert!(matches!(process.ended().await, ExitReason::Completed));
    assert!(matches!(process.ended().await, ExitReason::Completed), "at once, again");
    world.end().await;
}

/// After stop has returned there is nothing left of what was stopped.
#[tokio::test(start_paused = true)]
async fn peer_ep_07_a_close_is_synchronous() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Object));
    let world = plot.with(a.spec()).open().await;
    let (registry, services) = (world.generation().registry(), world.services());
    registry.start("b", b.process()).await.unwrap();
    world.application.close().await.unwrap();
    assert_eq!((a.alive(), b.alive()), (0, 0));
    assert_eq!((registry.count(), registry.list().len(), services.list().len()), (0, 0, 0));
    assert!(registry.lookup("b").is_none() && registry.get_actor::<()>("a").is_none());
    assert!(world.application.tree().generations.is_empty());
    world.end().await;
}
