//! Delays before restarts, on the virtual clock.

use std::time::Duration;

use tenure_actors::rules::{Backoff, BackoffSettings, Strategy};
use tenure_actors::{ApplicationEnd, ServiceState, Verb};

use crate::kit::{End, Kind, Part, Plot, Start, World, after_ms, elapse, limited};

fn exponential(min_ms: u64, max_ms: u64, reset_after_ms: Option<u64>) -> Backoff {
    let settings = BackoffSettings { min_ms, max_ms, factor: 2.0, jitter: 0.0, reset_after_ms };
    Backoff::new(settings).expect("a back-off")
}

async fn open(backoff: Backoff) -> (World, Part) {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec().backoff(backoff)).open().await;
    (world, a)
}

/// How long after its end the next incarnation was there, in whole virtual milliseconds.
async fn return_after(world: &World, part: &Part, end: End) -> u64 {
    let next = part.made() + 1;
    let old = world.get(part.name()).unwrap().process.unwrap();
    part.end(end);
    old.ended().await;
    let ended = tokio::time::Instant::now();
    world.until_running(&format!("{}#{next}", part.name())).await;
    u64::try_from(ended.elapsed().as_millis()).unwrap()
}

/// Looking takes up to two virtual milliseconds.
fn assert_about(delay_ms: u64, expected_ms: u64) {
    assert!((expected_ms..=expected_ms + 2).contains(&delay_ms), "{delay_ms} ms, expected {expected_ms} ms");
}

/// peer: PB-01, PB-04
#[tokio::test(start_paused = true)]
async fn peer_pb_01_a_new_instance_appears_after_the_delay_and_the_count_goes_up() {
    for end in [End::Normal, End::Error] {
        let (world, a) = open(after_ms(300)).await;
        assert_about(return_after(&world, &a, end).await, 300);
        assert_eq!(world.said(Verb::Retry), ["a#1, restart 1 in 300ms"]);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn peer_pb_09_the_delay_doubles_up_to_its_maximum_and_stays_there() {
    let (world, a) = open(exponential(3, 20, Some(60_000))).await;
    for expected_ms in [3, 6, 12, 20, 20, 20] {
        return_after(&world, &a, End::Error).await;
        let said = world.said(Verb::Retry);
        assert!(said.last().unwrap().ends_with(&format!("in {expected_ms}ms")), "{said:?}");
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pb_15_delays_are_exponential_and_there_is_exactly_one_child_afterwards() {
    let (world, a) = open(exponential(200, 10_000, Some(60_000))).await;
    for expected_ms in [200, 400, 800, 1_600] {
        assert_about(return_after(&world, &a, End::Error).await, expected_ms);
        assert_eq!(a.alive(), 1);
    }
    assert_eq!((world.services().list().len(), a.overlaps()), (1, 0));
    world.end().await;
}

/// peer: PS-44, PS-51
#[tokio::test(start_paused = true)]
async fn peer_ps_44_a_quiet_period_of_the_mean_of_both_bounds_brings_the_delay_back_to_the_minimum() {
    let (world, a) = open(exponential(100, 900, None)).await;
    assert_about(return_after(&world, &a, End::Error).await, 100);
    elapse(Duration::from_millis(400)).await;
    assert_about(return_after(&world, &a, End::Error).await, 200);
    elapse(Duration::from_millis(500)).await;
    assert_about(return_after(&world, &a, End::Error).await, 100);
    world.end().await;
}

/// peer: PS-45, PS-46
#[tokio::test(start_paused = true)]
async fn peer_ps_45_two_back_offs_with_timers_of_their_own_do_not_disturb_each_other() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Actor));
    let plot = plot.with(a.spec().backoff(exponential(100, 900, Some(60_000))));
    let world = plot.with(b.spec().backoff(exponential(10, 40, Some(20)))).open().await;
    assert_about(return_after(&world, &a, End::Error).await, 100);
    assert_about(return_after(&world, &b, End::Error).await, 10);
    assert_about(return_after(&world, &a, End::Error).await, 200);
    elapse(Duration::from_millis(20)).await;
    assert_about(return_after(&world, &b, End::Error).await, 10);
    assert_about(return_after(&world, &a, End::Error).await, 400);
    world.end().await;
}

/// peer: PS-52, PS-47
#[tokio::test(start_paused = true)]
async fn peer_ps_52_services_start_without_being_asked_and_a_first_start_that_fails_is_tried_after_the_delay()
{
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    a.next_starts([Start::Fails, Start::Panics]);
    let before = tokio::time::Instant::now();
    let world = plot.with(a.spec().backoff(exponential(200, 10_000, None))).open().await;
    assert_about(u64::try_from(before.elapsed().as_millis()).unwrap(), 600);
    assert_eq!((world.incarnation("a").as_deref(), a.alive()), (Some("a#3"), 1));
    world.end().await;
}

/// peer: PB-10, PB-11
#[tokio::test(start_paused = true)]
async fn peer_pb_10_the_end_after_the_last_restart_allowed_ends_the_parent() {
    for end in [End::Normal, End::Error] {
        let mut plot = Plot::new(Strategy::OneForOne).once();
        let a = plot.part("a", Kind::Actor);
        let spec = a.spec().backoff(after_ms(50)).intensity(limited(2, 60_000));
        let world = plot.with(spec).open().await;
        assert_about(return_after(&world, &a, end).await, 50);
        assert_about(return_after(&world, &a, end).await, 50);
        a.end(end);
        assert!(matches!(world.application.ended().await, ApplicationEnd::GaveUp { .. }));
        assert_eq!(a.made(), 3);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn peer_pb_08_while_a_service_is_down_its_senders_are_told() {
    let (world, a) = open(after_ms(500)).await;
    let actor = world.get("a").unwrap().process.unwrap().actor::<()>().unwrap();
    a.crash();
    world.until_state("a", ServiceState::Restarting).await;
    assert!(actor.cast(()).is_err(), "no message is lost in silence");
    assert!(world.get("a").unwrap().process.is_none());
    world.until_running("a#2").await;
    assert!(actor.cast(()).is_err(), "the old address does not lead to the new one");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pb_18_questions_are_answered_during_a_slow_end_and_show_the_old_child_until_it_ended() {
    let (plot, [a, b]) = Plot::new(Strategy::OneForAll).cast(["a", "b"]);
    b.stop(crate::kit::Stop::Gated);
    let world = plot.open().await;
    a.crash();
    world.until_line("down b#1").await;
    assert_eq!(world.cast(), ["a restarting", "b stopping b#1"]);
    let unknown = world.services().delete("nobody").await;
    assert!(unknown.is_err(), "commands are answered meanwhile");
    b.open_stop();
    world.until_running("b#2").await;
    world.end().await;
}
