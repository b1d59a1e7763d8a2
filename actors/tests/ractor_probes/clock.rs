//! Time: ractor's timers and the paused clock of the test kit.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::kit::{Log, Plan, pass, soon, work};

const HOUR: Duration = Duration::from_secs(3_600);
const TICK: Duration = Duration::from_millis(1);

/// Scenarios of hours run in no time: ractor sleeps by tokio's clock, which the kit pauses.
#[tokio::test(start_paused = true)]
async fn ractors_timers_follow_the_paused_clock() {
    let begin = Instant::now();
    let mut supervisor = Plan::default().spawn().await;
    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.actor.exit_after(HOUR);
    child.ended().await;
    assert!((HOUR..=HOUR + TICK).contains(&begin.elapsed()), "an hour passed on the virtual clock");
    assert_eq!(supervisor.heard().await, ["started", "terminated: Exit after 3600000ms, with state"]);

    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.actor.kill_after(HOUR);
    child.ended().await;
    assert_eq!(supervisor.heard().await, ["started", "terminated: killed, with state"]);
}

/// Intervals are counted from a first tick that is one period away, without drift.
#[tokio::test(start_paused = true)]
async fn an_interval_first_fires_after_one_period() {
    let log = Log::default();
    let actor = Plan::default().spawn().await;
    let ticks = log.clone();
    actor.actor.send_interval(HOUR, move || ticks.noting("tick"));
    pass(HOUR - TICK).await;
    assert!(log.lines().is_empty());
    pass(2 * TICK).await;
    assert_eq!(log.lines(), ["tick"]);
    pass(HOUR).await;
    assert_eq!(log.lines(), ["tick", "tick"]);
}

/// Timer handles are kept and aborted at the end: a timer holds on to a dead actor until it fires.
#[tokio::test(start_paused = true)]
async fn a_timer_outlives_its_actor_until_it_fires_or_is_aborted() {
    let held = Arc::new(());
    let mut actor = Plan::default().spawn().await;
    let timer = |held: Arc<()>| actor.actor.send_after(HOUR, move || work(async move { drop(held) }));
    let (kept, aborted) = (timer(held.clone()), timer(held.clone()));
    actor.actor.stop(None);
    actor.ended().await;
    assert_eq!(Arc::strong_count(&held), 3, "both timers live");
    aborted.abort();
    assert!(soon(aborted).await.is_err());
    assert_eq!(Arc::strong_count(&held), 2);
    assert!(soon(kept).await.unwrap().is_err(), "it fires at a dead actor");
    assert_eq!(Arc::strong_count(&held), 1);
}

/// A test blocks only in `spawn_blocking`, for which the paused clock waits: for a bare thread it does not.
#[tokio::test(start_paused = true)]
async fn the_paused_clock_waits_for_blocking_tasks_and_not_for_threads() {
    let (release, released) = mpsc::channel::<()>();
    let (done, finished) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        released.recv().unwrap();
        done.send(()).unwrap();
    });
    assert!(timeout(TICK, finished).await.is_err(), "the clock jumped over the waiting thread");
    release.send(()).unwrap();
    assert!(thread.join().is_err(), "its answer came too late");

    let blocking = tokio::task::spawn_blocking(|| std::thread::spawn(|| 7).join().unwrap());
    assert_eq!(timeout(TICK, blocking).await.unwrap().unwrap(), 7, "the clock stood still");
}
