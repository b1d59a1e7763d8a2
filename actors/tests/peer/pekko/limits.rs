//! How often, within how long, and what is left afterwards.

use std::time::Duration;

use tenure_actors::rules::{Intensity, Strategy};
use tenure_actors::{ApplicationEnd, ExitReason, Verb};

use crate::kit::{End, Kind, Part, Plot, Start, World, after_ms, elapse, limited, quiet};

async fn open(strategy: Strategy, intensity: Intensity) -> (World, Part) {
    let mut plot = Plot::new(strategy).once();
    plot.spec.generation.intensity = intensity;
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec()).open().await;
    (world, a)
}

async fn crash_and_return(world: &World, part: &Part, number: usize) {
    part.crash();
    world.until_running(&format!("{}#{number}", part.name())).await;
}

/// The service crashes once more, and that is the end of everything.
async fn crash_for_good(world: World, part: &Part) {
    let last = world.get(part.name()).unwrap().process.unwrap();
    let made = part.made();
    part.crash();
    assert!(matches!(world.application.ended().await, ApplicationEnd::GaveUp { .. }));
    assert!(matches!(last.ended().await, ExitReason::Failed(_)));
    elapse(Duration::from_secs(3_600)).await;
    assert_eq!(part.made(), made, "it stays dead");
    assert!(last.actor::<()>().is_none_or(|actor| actor.cast(()).is_err()), "nobody answers");
    world.end().await;
}

/// peer: PC-01, PC-27, PC-39, PS-26
#[tokio::test(start_paused = true)]
async fn peer_pc_01_a_child_is_not_restarted_more_often_than_permitted_and_one_end_is_told() {
    let (world, a) = open(Strategy::OneForOne, limited(2, 60_000)).await;
    crash_and_return(&world, &a, 2).await;
    crash_and_return(&world, &a, 3).await;
    let recorded = world.application.journal().record();
    crash_for_good(world, &a).await;
    let told = |verb| recorded.events().iter().filter(|event| event.kind.verb() == verb).count();
    assert_eq!((told(Verb::Retry), told(Verb::Escalate), told(Verb::GiveUp)), (2, 1, 1));
    assert_eq!((a.made(), a.alive()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn peer_ps_11_a_limit_of_zero_means_never() {
    for own in [false, true] {
        let mut plot = Plot::new(Strategy::OneForOne).once();
        let a = plot.part("a", Kind::Actor);
        let spec = if own { a.spec().intensity(limited(0, 60_000)) } else { a.spec() };
        if !own {
            plot = plot.limited(0, 60_000);
        }
        let world = plot.with(spec).open().await;
        let recorded = world.application.journal().record();
        crash_for_good(world, &a).await;
        assert_eq!(a.made(), 1);
        let whose = if own { "a#1, its limit of 0" } else { "a#1, the limit of 0" };
        let escalated = recorded.events().iter().any(|event| event.kind.to_string().starts_with(whose));
        assert!(escalated, "the report says whose limit it was");
    }
}

/// peer: PS-27, PC-41
#[tokio::test(start_paused = true)]
async fn peer_pc_41_crashes_that_are_not_within_the_window_are_put_up_with() {
    let (world, a) = open(Strategy::OneForOne, limited(2, 1_000)).await;
    for number in 2..8 {
        crash_and_return(&world, &a, number).await;
        elapse(Duration::from_millis(501)).await;
    }
    crash_and_return(&world, &a, 8).await;
    crash_for_good(world, &a).await;
}

/// peer: PC-42, PC-43
#[tokio::test(start_paused = true)]
async fn peer_pc_42_without_an_end_to_the_window_the_count_alone_decides() {
    let (world, a) = open(Strategy::OneForOne, limited(2, u64::MAX)).await;
    for number in 2..4 {
        crash_and_return(&world, &a, number).await;
        elapse(Duration::from_secs(86_400)).await;
    }
    crash_for_good(world, &a).await;
    // And with a count of one, the window alone.
    let (world, a) = open(Strategy::OneForOne, limited(1, 1_000)).await;
    crash_and_return(&world, &a, 2).await;
    elapse(Duration::from_millis(1_001)).await;
    crash_and_return(&world, &a, 3).await;
    crash_for_good(world, &a).await;
}

#[tokio::test(start_paused = true)]
async fn peer_pc_21_no_limit_means_no_limit() {
    let (world, a) = open(Strategy::OneForOne, Intensity::Unlimited).await;
    for number in 2..100 {
        crash_and_return(&world, &a, number).await;
    }
    world.end().await;
}

/// peer: PC-24, PC-25
#[tokio::test(start_paused = true)]
async fn peer_pc_24_a_window_of_thirty_days_does_not_overflow_into_no_limit() {
    const DAY: Duration = Duration::from_secs(86_400);
    for strategy in [Strategy::OneForOne, Strategy::OneForAll] {
        let (world, a) = open(strategy, limited(2, 30 * 86_400_000)).await;
        crash_and_return(&world, &a, 2).await;
        elapse(14 * DAY).await;
        crash_and_return(&world, &a, 3).await;
        elapse(15 * DAY).await;
        crash_for_good(world, &a).await;
    }
}

/// peer: PS-43, PC-49
#[tokio::test(start_paused = true)]
async fn peer_pc_49_a_start_is_tried_once_and_as_often_as_the_limit_allows_then_never_again() {
    for delay_ms in [0, 50] {
        let (mut plot, [a]) = Plot::new(Strategy::OneForOne).limited(3, 60_000).once().cast(["a"]);
        if delay_ms > 0 {
            plot = plot.with_backoff("a", delay_ms);
        }
        a.start(Start::Fails);
        let opened = tenure_actors::Application::open(plot.spec).await;
        assert!(matches!(opened, Err(tenure_actors::OpenError::GaveUp { .. })), "{opened:?}");
        elapse(Duration::from_secs(60)).await;
        assert_eq!((a.made(), a.alive()), (4, 0));
    }
}

/// peer: PC-09, PC-10, PC-11
#[tokio::test(start_paused = true)]
async fn peer_pc_09_only_the_killed_one_of_many_fails_and_its_siblings_answer_throughout() {
    let (plot, parts) = Plot::new(Strategy::OneForOne).cast(["a", "b", "c", "d"]);
    let world = plot.open().await;
    for killed in [0, 2] {
        let number = parts[killed].made() + 1;
        parts[killed].crash();
        let siblings = parts.iter().enumerate().filter(|(index, _)| *index != killed);
        for (_, sibling) in siblings.clone() {
            assert!(world.get(sibling.name()).unwrap().process.unwrap().exit().is_none());
        }
        world.until_running(&format!("{}#{number}", parts[killed].name())).await;
        for (_, sibling) in siblings {
            assert_eq!(sibling.alive(), 1);
        }
    }
    assert_eq!(world.cast(), ["a running a#2", "b running b#1", "c running c#2", "d running d#1"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pc_17_failures_while_it_goes_down_and_while_it_is_made_anew_are_put_up_with_within_the_limit() {
    let (plot, [a, b]) = Plot::new(Strategy::OneForAll).limited(4, 60_000).cast(["a", "b"]);
    b.stop(crate::kit::Stop::Fails);
    let world = plot.open().await;
    a.make_panics(1);
    b.next_starts([Start::Panics]);
    a.crash();
    world.until_running("b#3").await;
    assert_eq!(
        world.said(Verb::Retry).len(),
        3,
        "the crash, the make that panicked, the start that panicked"
    );
    world.until_running("a#4").await;
    world.end().await;
}

/// peer: PC-44, PC-45, PC-46, PS-25
#[tokio::test(start_paused = true)]
async fn peer_pc_44_the_old_incarnation_is_gone_before_the_new_one_starts_and_the_last_one_is_final() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, quiet_one) = (plot.part("a", Kind::Actor), plot.part("q", Kind::Actor));
    let world = plot.with(a.spec()).with(quiet_one.spec()).open().await;
    crash_and_return(&world, &a, 2).await;
    a.end(End::Normal);
    world.until_running("a#3").await;
    let diary = world.diary.clone();
    world.end().await;
    let of = |name: &str| -> Vec<String> {
        diary.lines().into_iter().filter(|line| line.contains(name)).collect()
    };
    assert_eq!(
        of("a#"),
        [
            // A crash runs no hook but the drop of the state; an orderly end does.
            "start a#1",
            "up a#1",
            "gone a#1",
            "start a#2",
            "up a#2",
            "down a#2",
            "gone a#2",
            "start a#3",
            "up a#3",
            "down a#3",
            "gone a#3",
        ]
    );
    assert_eq!(
        of("q#"),
        ["start q#1", "up q#1", "down q#1", "gone q#1"],
        "never restarted: start and stop only"
    );
}

#[tokio::test(start_paused = true)]
async fn peer_pc_37_the_decision_names_the_child_that_failed() {
    let (plot, [a, b]) = Plot::new(Strategy::OneForAll).cast(["a", "b"]);
    let world = plot.with_backoff("b", 30).open().await;
    crash_and_return(&world, &b, 2).await;
    assert_eq!(world.said(Verb::Retry), ["b#1, restart 1 in 30ms"]);
    assert_eq!(a.made(), 2);
    world.end().await;
}

/// peer: PC-35, PC-36
#[tokio::test(start_paused = true)]
async fn peer_pc_35_a_name_is_refused_while_its_owner_lives_and_given_when_it_has_gone() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec().backoff(after_ms(1_000))).open().await;
    assert!(world.services().start(a.spec()).await.is_err());
    a.crash();
    world.until_state("a", tenure_actors::ServiceState::Restarting).await;
    assert!(world.services().start(a.spec()).await.is_err(), "its spec still holds the name");
    world.services().terminate("a").await.unwrap();
    world.services().delete("a").await.unwrap();
    world.services().start(a.spec()).await.unwrap();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ps_79_a_stop_during_a_restart_is_honoured() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec()).open().await;
    a.next_starts([Start::Gated]);
    a.crash();
    world.until_line("start a#2").await;
    let services = world.services();
    let terminated = tokio::spawn(async move { services.terminate("a").await });
    quiet().await;
    a.open_start();
    terminated.await.unwrap().unwrap();
    elapse(Duration::from_secs(60)).await;
    assert_eq!((world.cast(), a.made()), (vec!["a stopped".to_owned()], 2));
    world.end().await;
}
