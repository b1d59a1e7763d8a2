//! Group restarts that something else gets into.

use tenure_actors::ServiceState;
use tenure_actors::Verb;
use tenure_actors::rules::Strategy;

use crate::kit::{Kind, Plot, Stop, after_ms, quiet};

#[tokio::test(start_paused = true)]
async fn two_that_crash_in_one_instant_cause_one_group_restart() {
    for strategy in [Strategy::OneForAll, Strategy::RestForOne] {
        let (plot, [a, b, _c]) = Plot::new(strategy).limited(1, 60_000).cast(["a", "b", "c"]);
        let world = plot.open().await;
        world.diary.take();
        a.crash();
        b.crash();
        world.until_running("c#2").await;
        assert_eq!(world.said(Verb::Retry).len(), 1, "the second crash is part of the first one's restart");
        assert_eq!(world.cast(), ["a running a#2", "b running b#2", "c running c#2"]);
        assert!(world.generation().is_open(), "one restart is within the limit of one");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_crashes_before_its_turn_to_stop_does_not_count() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).limited(1, 60_000).cast(["a", "b", "c"]);
    c.stop(Stop::Gated);
    let world = plot.open().await;
    a.crash();
    world.until_line("down c#1").await;
    b.crash();
    world.until_line("gone b#1").await;
    c.stop(Stop::Obeys);
    c.open_stop();
    world.until_running("c#2").await;
    assert_eq!(world.said(Verb::Retry).len(), 1);
    assert_eq!(world.diary.of("down"), ["c#1"], "b was gone before it could be told");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_group_starts_again_begins_it_anew() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).cast(["a", "b", "c"]);
    let world = plot.open().await;
    b.next_starts([crate::kit::Start::Gated]);
    c.crash();
    world.until_line("start b#2").await;
    a.crash();
    world.until_line("gone a#2").await;
    b.open_start();
    world.until_running("c#2").await;
    assert_eq!(world.cast(), ["a running a#3", "b running b#3", "c running c#2"]);
    assert_eq!(world.diary.of("down"), ["b#1", "a#1", "b#2"], "b was stopped after its start had settled");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_stopped_or_started_under_the_feet_of_one_that_is_being_terminated() {
    let (plot, [a, _b, c]) = Plot::new(Strategy::RestForOne).cast(["a", "b", "c"]);
    c.stop(Stop::Gated);
    let world = plot.open().await;
    a.crash();
    world.until_line("down c#1").await;
    let services = world.services();
    let terminated = tokio::spawn(async move { services.terminate("c").await });
    quiet().await;
    assert!(!world.diary.of("down").contains(&"b#1".to_owned()), "c depends on b and still runs");
    assert!(!world.diary.of("start").contains(&"a#2".to_owned()));
    c.open_stop();
    terminated.await.unwrap().unwrap();
    world.until_running("b#2").await;
    assert_eq!(
        world.cast(),
        ["a running a#2", "b running b#2", "c stopped"],
        "the word of whoever stopped it stands"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_sibling_terminated_before_its_turn_is_stopped_at_once_and_stays_stopped() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).cast(["a", "b", "c"]);
    c.stop(Stop::Gated);
    let world = plot.open().await;
    a.crash();
    world.until_line("down c#1").await;
    world.services().terminate("b").await.unwrap();
    assert_eq!(world.state("b"), Some(ServiceState::Stopped));
    c.open_stop();
    world.until_running("c#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b stopped", "c running c#2"]);
    assert_eq!(b.made(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_temporary_sibling_ends_before_the_group_starts_again_and_is_forgotten() {
    let mut plot = Plot::new(Strategy::OneForAll);
    let (a, t) = (plot.part("a", Kind::Actor), plot.part("t", Kind::Function));
    t.stop(Stop::Gated);
    let world = plot.with(a.spec()).with(t.temporary()).open().await;
    a.crash();
    world.until_line("down t#1").await;
    quiet().await;
    assert_eq!(world.diary.of("start"), ["a#1", "t#1"], "a waits for t");
    t.open_stop();
    world.until_running("a#2").await;
    assert_eq!(world.cast(), ["a running a#2"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_failure_does_not_forget_a_temporary_sibling_that_is_still_going_down() {
    let mut plot = Plot::new(Strategy::RestForOne);
    let (a, b, t) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Actor), plot.part("t", Kind::Actor));
    t.stop(Stop::Gated);
    let world = plot.with(a.spec()).with(b.spec()).with(t.temporary()).open().await;
    b.crash();
    world.until_line("down t#1").await;
    a.crash();
    world.until_line("gone a#1").await;
    quiet().await;
    assert_eq!(world.diary.of("start"), ["a#1", "b#1", "t#1"], "both wait for t, which depends on them");
    t.open_stop();
    world.until_running("b#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b running b#2"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_temporary_service_that_has_not_run_yet_survives_the_failure_of_one_before_it() {
    for strategy in [Strategy::OneForAll, Strategy::RestForOne] {
        let mut plot = Plot::new(strategy);
        let (a, t) = (plot.part("a", Kind::Object), plot.part("t", Kind::Actor));
        a.next_starts([crate::kit::Start::Fails]);
        let world = plot.with(a.spec()).with(t.temporary()).open().await;
        assert_eq!(world.cast(), ["a running a#2", "t running t#1"]);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_temporary_service_being_added_survives_the_failure_of_a_sibling() {
    let (mut plot, [a]) = Plot::new(Strategy::OneForAll).cast(["a"]);
    let t = plot.part("t", Kind::Actor);
    let world = plot.with_backoff("a", 500).open().await;
    a.crash();
    world.until_state("a", ServiceState::Restarting).await;
    let services = world.services();
    let started = tokio::spawn(async move { services.start(t.temporary()).await });
    world.until_state("t", ServiceState::Restarting).await;
    a.next_starts([crate::kit::Start::Fails]);
    assert_eq!(started.await.unwrap().unwrap().name(), "t#1");
    assert_eq!(world.cast(), ["a running a#3", "t running t#1"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_exceeded_during_a_group_restart_closes_everything_in_order() {
    let (plot, [a, b, c]) = Plot::new(Strategy::OneForAll).limited(1, 60_000).once().cast(["a", "b", "c"]);
    let world = plot.open().await;
    c.stop(Stop::Gated);
    b.next_starts([crate::kit::Start::Fails]);
    a.crash();
    world.until_line("down c#1").await;
    c.open_stop();
    // The retry of b's failed start is one too many; a#2 is up by then.
    world.application.ended().await;
    assert_eq!(world.diary.of("up"), ["a#1", "b#1", "c#1", "a#2"]);
    assert_eq!(world.diary.of("down"), ["c#1", "b#1", "a#2"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_whole_group_waits_for_the_back_off_of_the_one_that_failed() {
    let mut plot = Plot::new(Strategy::OneForAll);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Actor));
    let world = plot.with(a.spec()).with(b.spec().backoff(after_ms(700))).open().await;
    let before = tokio::time::Instant::now();
    b.crash();
    world.until_running("b#2").await;
    let waited = before.elapsed().as_millis();
    assert!((700..710).contains(&waited), "{waited} ms");
    assert_eq!(world.diary.of("start"), ["a#1", "b#1", "a#2", "b#2"]);
    world.end().await;
}
