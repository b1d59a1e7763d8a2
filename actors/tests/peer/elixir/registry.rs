//! Unique names: ids of managed processes.

use tenure_actors::rules::Strategy;
use tenure_actors::{Heard, ProcessState, StartError, Verb};

use crate::kit::{Kind, Plot, quiet};

#[tokio::test(start_paused = true)]
async fn peer_er_01_after_two_owners_crashed_nothing_of_them_is_left() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["a", "b"].map(|name| plot.part(name, Kind::Actor));
    let world = plot.open().await;
    let registry = world.generation().registry();
    for part in &parts {
        let process = registry.start(part.name(), part.process()).await.unwrap();
        part.crash();
        process.ended().await;
    }
    quiet().await;
    assert_eq!((registry.count(), registry.list().len()), (0, 0));
    assert!(world.generation().tree().generations[0].children.is_empty());
    world.end().await;
}

/// peer: ER-08, ER-09, ER-30, PW-28
#[tokio::test(start_paused = true)]
async fn peer_er_08_an_empty_registry_counts_none_and_two_registrations_count_two() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = ["a", "b"].map(|name| plot.part(name, Kind::Function));
    let world = plot.open().await;
    let registry = world.generation().registry();
    assert_eq!((registry.count(), registry.list().len()), (0, 0));
    assert!(registry.lookup("a").is_none());
    for part in &parts {
        registry.start(part.name(), part.process()).await.unwrap();
    }
    assert_eq!(registry.count(), 2);
    let listed: Vec<_> = registry.list().into_iter().map(|info| (info.id.to_string(), info.name)).collect();
    assert_eq!(listed, [("a".to_owned(), "a#1".to_owned()), ("b".to_owned(), "b#1".to_owned())]);
    world.end().await;
}

/// peer: ER-10, ER-11, ER-40, ER-41
#[tokio::test(start_paused = true)]
async fn peer_er_10_a_taken_id_is_refused_to_everybody_and_refusals_leave_nothing_behind() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Object), plot.part("b", Kind::Object));
    let world = plot.open().await;
    let registry = world.generation().registry();
    let owner = registry.start("x", a.process()).await.unwrap();
    for part in [&a, &b] {
        for _ in 0..50 {
            let refused = registry.start("x", part.process()).await;
            let Err(StartError::AlreadyExists { id, state }) = refused else {
                panic!("expected it to be taken, got {refused:?}");
            };
            assert_eq!((id.as_str(), state), ("x", ProcessState::Running));
        }
    }
    assert_eq!(registry.lookup("x").map(|found| found.name()), Some(owner.name()), "the owner is found");
    assert_eq!((registry.count(), registry.list().len()), (1, 1));
    assert_eq!(world.generation().tree().generations[0].children.len(), 1);
    assert_eq!(world.diary.of("start"), ["a#1"], "the losers never ran");
    registry.start("y", b.process()).await.expect("the loser may have another id");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_er_12_the_id_of_a_dead_owner_is_free_at_once_and_shows_only_the_new_one() {
    for kind in [Kind::Actor, Kind::Function] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (a, b) = (plot.part("a", kind), plot.part("b", kind));
        let world = plot.open().await;
        let registry = world.generation().registry();
        for _ in 0..20 {
            let old = registry.start("x", a.process()).await.unwrap();
            a.crash();
            old.ended().await;
            assert!(registry.lookup("x").is_none(), "whoever sees the end finds the name free");
            let new = registry.start("x", b.process()).await.unwrap();
            assert_eq!(registry.lookup("x").unwrap().name(), new.name());
            b.crash();
            new.ended().await;
        }
        world.end().await;
    }
}

/// peer: ER-15, ER-54
#[tokio::test(start_paused = true)]
async fn peer_er_15_ids_that_look_like_patterns_or_like_each_other_are_kept_apart_exactly() {
    let ids = ["*", "_", "$1", "%", "a", "a*", "a:b", "a:b:c", "{a,b}", "(a, b)", "A", " a", "ä", "a\u{301}"];
    let world = Plot::new(Strategy::OneForOne).open().await;
    let registry = world.generation().registry();
    for id in ids {
        let process = tenure_actors::ProcessSpec::function("any", |context| async move {
            context.cancelled().await;
            Ok(())
        });
        registry.start(id, process).await.unwrap();
    }
    assert_eq!(registry.count(), ids.len());
    for (removed, id) in ids.into_iter().enumerate() {
        let process = registry.lookup(id).unwrap();
        assert_eq!(process.id().as_str(), id);
        assert!(registry.remove(id, &process.identity()));
        assert_eq!((registry.count(), registry.lookup(id).is_none()), (ids.len() - removed - 1, true));
    }
    world.end().await;
}

/// peer: ER-25, PW-24
#[tokio::test(start_paused = true)]
async fn peer_er_25_a_listener_hears_who_takes_and_who_gives_up_an_id_in_order() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Function), plot.part("b", Kind::Function));
    let world = plot.open().await;
    let mut listener = world.application.events();
    let registry = world.generation().registry();
    for part in [&a, &b, &a] {
        let process = registry.start("x", part.process()).await.unwrap();
        assert!(registry.remove("x", &process.identity()));
        process.close().await;
    }
    let mut heard = Vec::new();
    while let Some(Heard::Event(event)) = listener.try_next() {
        if let Verb::Bind | Verb::Unbind = event.kind.verb() {
            heard.push(format!("{} {} {}", event.actor, event.kind.verb(), event.kind));
        }
    }
    let lines = |name: &str| {
        [format!("registry#1 bind x to {name}, epoch 1"), format!("registry#1 unbind x from {name}")]
    };
    assert_eq!(heard, [lines("a#1"), lines("b#1"), lines("a#2")].concat());
    world.end().await;
}
