//! Who is restarted together, when the supervisor gives up, and in which order all this happens.

use tenure_actors::rules::Strategy;
use tenure_actors::{ApplicationEnd, ServiceState, Verb};

use crate::kit::{End, Kind, Part, Plot, Start, Stop, World};

/// Waits for the end of a world whose one generation failed.
async fn given_up(world: World, why: &str) {
    let ApplicationEnd::GaveUp { .. } = world.application.ended().await else {
        panic!("expected it to give up");
    };
    let escalated = world.said(Verb::Escalate);
    assert!(escalated.len() == 1 && escalated[0].contains(why), "{escalated:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_41_only_the_crashed_child_is_replaced_and_one_crash_too_many_ends_the_supervisor() {
    let (plot, [a, b]) = Plot::new(Strategy::OneForOne).limited(1, 10_000).once().cast(["a", "b"]);
    let world = plot.open().await;
    a.crash();
    world.until_running("a#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b running b#1"]);
    a.crash();
    given_up(world, "a#2, the limit of 1 restarts in 10000ms exceeded").await;
    assert_eq!((a.made(), b.made()), (2, 1));
}

/// peer: OS-42, OS-49
#[tokio::test(start_paused = true)]
async fn peer_os_42_a_restart_whose_start_fails_is_tried_until_the_limit_then_all_end() {
    for added in [false, true] {
        let mut plot = Plot::new(Strategy::OneForOne).limited(4, 10_000).once();
        let parts = ["a", "b", "c"].map(|name| plot.part(name, Kind::Actor));
        if !added {
            plot = parts.iter().fold(plot, |plot, part| plot.with(part.spec()));
        }
        let world = plot.open().await;
        if added {
            for part in &parts {
                world.services().start(part.spec()).await.unwrap();
            }
        }
        parts[0].start(Start::Fails);
        parts[0].crash();
        world.application.ended().await;
        assert_eq!(parts.each_ref().map(Part::made), [5, 1, 1], "four restarts were tried");
        assert_eq!(world.diary.of("down"), ["c#1", "b#1"], "the siblings were stopped in order");
        given_up(world, "a#5, the limit of 4 restarts").await;
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_43_every_child_gets_a_new_process_and_the_limit_ends_the_supervisor() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).limited(1, 10_000).once().cast(["a", "b", "c"]);
    let world = plot.open().await;
    let old: Vec<_> = world.services().list().into_iter().filter_map(|service| service.process).collect();
    b.crash();
    world.until_running("c#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b running b#2", "c running c#2"]);
    assert!(old.iter().all(|process| process.exit().is_some()), "none of the old ones lives");
    c.crash();
    given_up(world, "c#2, the limit").await;
    assert_eq!([a, b, c].each_ref().map(Part::made), [2, 2, 2]);
}

/// peer: OS-44, PC-20
#[tokio::test(start_paused = true)]
async fn peer_os_44_all_end_when_a_sibling_cannot_be_started_again() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).limited(1, 10_000).once().cast(["a", "b", "c"]);
    let world = plot.open().await;
    b.start(Start::Fails);
    a.crash();
    given_up(world, "b#2, the limit").await;
    assert_eq!([a, b, c].each_ref().map(Part::made), [2, 2, 1], "c was not reached");
}

#[tokio::test(start_paused = true)]
async fn peer_os_46_of_children_added_at_run_time_the_crashed_one_is_replaced_the_others_are_untouched() {
    let mut plot = Plot::new(Strategy::OneForOne).limited(1, 10_000).once();
    let parts = ["1", "2", "3"].map(|name| plot.part(name, Kind::Function));
    let world = plot.open().await;
    for part in &parts {
        world.services().start(part.spec()).await.unwrap();
    }
    parts[1].crash();
    world.until_running("2#2").await;
    assert_eq!(world.cast(), ["1 running 1#1", "2 running 2#2", "3 running 3#1"]);
    parts[1].crash();
    given_up(world, "2#2").await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_52_a_later_sibling_that_cannot_start_again_ends_the_supervisor_at_the_limit() {
    let (plot, [a, b, c]) = Plot::new(Strategy::RestForOne).limited(3, 10_000).once().cast(["a", "b", "c"]);
    let world = plot.open().await;
    c.start(Start::Fails);
    b.crash();
    given_up(world, "c#4, the limit").await;
    assert_eq!([a, b, c].each_ref().map(Part::made), [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn peer_os_53_only_the_second_child_is_tried_again_the_first_is_up_and_stays_up() {
    let (plot, [a, b, c]) = Plot::new(Strategy::RestForOne).cast(["a", "b", "c"]);
    let world = plot.open().await;
    b.next_starts([Start::Fails, Start::Fails]);
    a.crash();
    world.until_running("c#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b running b#4", "c running c#2"]);
    assert_eq!(world.diary.of("down"), ["c#1", "b#1"], "a#2 was left alone, and c was down already");
    assert_eq!([a, b, c].each_ref().map(Part::made), [2, 4, 2]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_85_start_order_is_list_order_and_every_stop_is_its_exact_reverse() {
    // Neither the alphabet nor a hash would give this order.
    let names = ["m", "z", "a", "k", "b"];
    let (plot, parts) = Plot::new(Strategy::RestForOne).cast(names);
    let world = plot.open().await;
    let numbered = |names: &[&str], number: u32| -> Vec<String> {
        names.iter().map(|name| format!("{name}#{number}")).collect()
    };
    assert_eq!(world.diary.of("up"), numbered(&names, 1));
    world.diary.take();
    parts[2].crash();
    world.until_running("b#2").await;
    assert_eq!(world.diary.of("down"), ["b#1", "k#1"]);
    assert_eq!(world.diary.of("up"), ["a#2", "k#2", "b#2"]);
    world.diary.take();
    let diary = world.diary.clone();
    world.end().await;
    assert_eq!(diary.of("down"), ["b#2", "k#2", "a#2", "z#1", "m#1"]);
    // Each is gone before the next is told.
    let order: Vec<_> = diary.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(order, ["down", "gone"].repeat(5));
}

#[tokio::test(start_paused = true)]
async fn peer_os_85_a_service_that_was_started_again_alone_keeps_its_place_in_the_order_of_the_close() {
    let (plot, [a, _b, _c]) = Plot::new(Strategy::OneForOne).cast(["a", "b", "c"]);
    let world = plot.open().await;
    a.crash();
    world.until_running("a#2").await;
    world.services().terminate("b").await.unwrap();
    world.services().restart("b").await.unwrap();
    world.diary.take();
    let diary = world.diary.clone();
    world.end().await;
    assert_eq!(diary.of("down"), ["c#1", "b#2", "a#2"]);
}

#[tokio::test(start_paused = true)]
async fn peer_os_47_dynamic_children_end_in_parallel_within_the_slowest_and_within_their_patience() {
    for (stubborn, expected_ms) in [(false, 300), (true, 500)] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let parts = [100, 200, 300].map(|ms| (plot.part(&format!("p{ms}"), Kind::Function), Stop::After(ms)));
        let last = plot.part("last", Kind::Function);
        let world = plot.limits(|limits| limits.patience = crate::kit::soon(500)).open().await;
        let registry = world.generation().registry();
        for (part, stop) in &parts {
            part.stop(*stop);
            registry.start(part.name(), part.process()).await.unwrap();
        }
        last.stop(if stubborn { Stop::Never } else { Stop::Obeys });
        registry.start("last", last.process()).await.unwrap();
        let report = world.end().await;
        let took_ms = report.took.as_millis();
        assert!((expected_ms..expected_ms + 5).contains(&took_ms), "{took_ms} ms");
        assert_eq!((report.closed, report.killed.len()), (4 - u64::from(stubborn), usize::from(stubborn)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ended_transient_sibling_is_started_again_with_its_group() {
    let mut plot = Plot::new(Strategy::OneForAll);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Function));
    let world = plot.with(a.spec()).with(b.transient()).open().await;
    b.end(End::Normal);
    world.until_state("b", ServiceState::Ended).await;
    a.crash();
    world.until_running("b#2").await;
    world.end().await;
}
