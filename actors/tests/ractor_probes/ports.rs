//! The ports of one actor: their priority, and what stop, drain and kill do to handler and queue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use ractor::rpc::CallResult;
use ractor::{ActorStatus, MessagingErr};

use crate::kit::{Log, Plan, Work, gate, quiet, section, soon, work};

/// Handlers of supervision events must be short: a burst of events holds up messages sent before them.
#[tokio::test(start_paused = true)]
async fn supervision_events_are_handled_before_messages_sent_earlier() {
    let log = Log::default();
    let supervisor = Plan::default().log_events(&log).spawn().await;
    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.fence().await;
    supervisor.fence().await;
    let busy = supervisor.busy().await;
    supervisor.cast(log.noting("first message"));
    supervisor.cast(log.noting("second message"));
    child.actor.stop(None);
    child.ended().await;

    busy.open();
    supervisor.fence().await;
    assert_eq!(
        log.lines(),
        ["started", "terminated: no reason, with state", "first message", "second message"]
    );
}

/// Close goes through the stop port, ahead of any flood; the events still queued are lost, so nothing may
/// depend on them.
#[tokio::test(start_paused = true)]
async fn a_stop_is_taken_before_queued_supervision_events() {
    let mut supervisor = Plan::default().spawn().await;
    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.fence().await;
    assert_eq!(supervisor.heard().await, ["started"]);
    let busy = supervisor.busy().await;
    child.actor.stop(None);
    child.ended().await;
    supervisor.actor.stop(None);
    busy.open();
    supervisor.ended().await;
    assert!(supervisor.heard().await.is_empty(), "the child's end was never handled");
}

/// An escalation from stop to kill wins even if the actor has looked at neither yet.
#[tokio::test(start_paused = true)]
async fn a_kill_is_taken_before_a_stop_and_a_stop_before_a_message() {
    let mut supervisor = Plan::default().spawn().await;
    let log = Log::default();
    for kill in [true, false] {
        let mut child = Plan::default().post_stop(log.noting("post_stop")).spawn_under(&supervisor).await;
        child.fence().await;
        child.cast(log.noting("message"));
        child.actor.stop(None);
        if kill {
            child.actor.kill();
        }
        child.ended().await;
        let end = if kill { "terminated: killed, with state" } else { "terminated: no reason, with state" };
        assert_eq!(supervisor.heard().await, ["started", end]);
        assert_eq!(log.lines().is_empty(), kill, "only the kill skips post_stop");
    }
    assert_eq!(log.lines(), ["post_stop"], "the message was handled by neither");
}

/// Stop is cooperative: patience bounds the handler, and permits in queued messages come back only after
/// `post_stop`.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_handler_and_drops_the_queue_after_post_stop() {
    let log = Log::default();
    let mut actor = Plan::default().post_stop(log.noting("post_stop")).spawn().await;
    let (mut door, hold) = gate();
    actor.cast(work(hold.wait_holding(log.on_drop("handler ended"))));
    door.reached().await;
    let (queued, note) = (log.clone(), log.on_drop("queued message dropped"));
    actor.cast(work(async move {
        let _note = note;
        queued.note("queued message handled");
    }));

    actor.actor.stop(None);
    quiet().await;
    assert!(!actor.task.is_finished(), "the stop does not interrupt the handler");
    assert!(log.lines().is_empty());

    door.open();
    actor.ended().await;
    assert_eq!(log.lines(), ["handler ended", "post_stop", "queued message dropped"]);
}

/// A call that a close cuts off does not hang: its caller gets a sender error when the queue is dropped.
#[tokio::test(start_paused = true)]
async fn a_queued_call_gets_a_sender_error_when_a_stop_drops_it() {
    let actor = Plan::default().spawn().await;
    let busy = actor.busy().await;
    let caller = actor.actor.clone();
    let call = tokio::spawn(async move {
        caller.call(|reply| work(async move { drop(reply.send(7)) }), None).await.unwrap()
    });
    quiet().await;
    actor.actor.stop(None);
    quiet().await;
    assert!(!call.is_finished(), "the call waits as long as the queue exists");
    busy.open();
    assert_eq!(soon(call).await.unwrap(), CallResult::SenderError);
}

/// An accepted cast is no promise of anything: whatever must have an outcome carries a guard or a reply port.
#[tokio::test(start_paused = true)]
async fn a_cast_between_the_stop_and_its_handling_is_accepted_and_lost() {
    let log = Log::default();
    let (mut in_post_stop, hold) = gate();
    let mut actor = Plan::default().post_stop(work(hold.wait())).spawn().await;
    let busy = actor.busy().await;
    actor.actor.stop(None);
    assert!(actor.actor.cast(log.noting("handled")).is_ok(), "admission is still open");

    busy.open();
    in_post_stop.reached().await;
    let refused = actor.actor.cast(log.noting("handled"));
    assert!(matches!(refused, Err(MessagingErr::SendErr(_))), "once stopping, a cast gives the message back");
    in_post_stop.open();
    actor.ended().await;
    assert!(matches!(actor.actor.cast(log.noting("handled")), Err(MessagingErr::SendErr(_))));
    assert!(log.lines().is_empty(), "none was handled");
}

/// Drain is the one way to end an actor without losing what it has accepted.
#[tokio::test(start_paused = true)]
async fn a_drain_handles_all_that_was_admitted_and_refuses_the_rest() {
    let mut supervisor = Plan::default().spawn().await;
    let log = Log::default();
    let mut actor = Plan::default().post_stop(log.noting("post_stop")).spawn_under(&supervisor).await;
    let busy = actor.busy().await;
    actor.cast(log.noting("first"));
    actor.cast(log.noting("second"));
    actor.actor.drain().unwrap();
    assert_eq!(actor.actor.get_status(), ActorStatus::Draining);
    assert!(matches!(actor.actor.cast(log.noting("late")), Err(MessagingErr::SendErr(_))));

    busy.open();
    actor.ended().await;
    assert_eq!(log.lines(), ["first", "second", "post_stop"]);
    assert_eq!(supervisor.heard().await, ["started", "terminated: Drained, with state"]);
}

/// Work that counts that it was handled.
fn counting(handled: &Arc<AtomicUsize>) -> Work {
    let handled = handled.clone();
    work(async move {
        handled.fetch_add(1, Ordering::Relaxed);
    })
}

/// The drain is exact under real parallelism: what was accepted is handled, with no cast lost at the edge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_exact_while_threads_are_sending() {
    const SENDERS: usize = 4;
    const EACH: usize = 1_000;
    let actor = Plan::default().spawn().await;
    let handled = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(SENDERS + 1));
    let drained = Arc::new(Barrier::new(SENDERS + 1));
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (actor, handled) = (actor.actor.clone(), handled.clone());
            let (start, drained) = (start.clone(), drained.clone());
            std::thread::spawn(move || {
                let send = || usize::from(actor.cast(counting(&handled)).is_ok());
                let before = send();
                start.wait();
                let during: usize = (0..EACH).map(|_| send()).sum();
                drained.wait();
                (before, during, send())
            })
        })
        .collect();
    start.wait();
    actor.actor.drain().unwrap();
    drained.wait();
    let counts: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    actor.task.await.unwrap();
    assert!(counts.iter().all(|(before, _, after)| (*before, *after) == (1, 0)), "open before, closed after");
    let accepted: usize = counts.iter().map(|(before, during, _)| before + during).sum();
    assert_eq!(handled.load(Ordering::Relaxed), accepted);
}

/// Clean-up that must happen sits in drop guards: a kill ends the handler at its await, without `post_stop`.
#[tokio::test(start_paused = true)]
async fn a_kill_drops_the_handler_at_its_await_and_skips_post_stop() {
    let mut supervisor = Plan::default().spawn().await;
    let log = Log::default();
    let mut actor = Plan::default()
        .post_stop(log.noting("post_stop"))
        .keep(log.on_drop("state dropped"))
        .spawn_under(&supervisor)
        .await;
    let (mut door, hold) = gate();
    let (after, guard) = (log.clone(), log.on_drop("handler dropped"));
    actor.cast(work(async move {
        let _guard = guard;
        hold.wait().await;
        after.note("went on");
    }));
    door.reached().await;
    actor.cast(log.noting("queued"));
    actor.actor.kill();
    actor.ended().await;
    assert_eq!(log.lines(), ["handler dropped"]);
    assert_eq!(supervisor.heard().await, ["started", "terminated: killed, with state"]);
    assert_eq!(log.lines(), ["handler dropped", "state dropped"], "the state came with the event");
}

/// Only the gate can end authority: a commit section that has begun runs on after a kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_lets_a_synchronous_section_run_to_its_next_await() {
    let log = Log::default();
    let actor = Plan::default().spawn().await;
    let (begun, leave, block) = section();
    let inside = log.clone();
    actor.cast(work(async move {
        block();
        inside.note("section ended");
        std::future::pending::<()>().await;
        inside.note("went on");
    }));
    begun.await.unwrap();
    actor.actor.kill();
    assert!(!actor.task.is_finished());
    assert_eq!(actor.actor.get_status(), ActorStatus::Running, "the kill has not even been seen");
    leave.send(()).unwrap();
    actor.task.await.unwrap();
    assert_eq!(log.lines(), ["section ended"]);
}

/// Work that is killed before its turn has had no effect at all, so it may be reported as never started.
#[tokio::test(start_paused = true)]
async fn a_kill_of_an_idle_actor_drops_its_queue_unhandled() {
    let log = Log::default();
    let mut actor = Plan::default().spawn().await;
    actor.fence().await;
    let (handled, note) = (log.clone(), log.on_drop("dropped"));
    actor.cast(work(async move {
        let _note = note;
        handled.note("handled");
    }));
    actor.actor.kill();
    actor.ended().await;
    assert_eq!(log.lines(), ["dropped"]);
}

/// The first cause is the one that is kept: a later stop with another reason changes nothing, silently.
#[tokio::test(start_paused = true)]
async fn only_the_first_stop_and_its_reason_count() {
    let mut supervisor = Plan::default().spawn().await;
    let mut actor = Plan::default().spawn_under(&supervisor).await;
    let busy = actor.busy().await;
    actor.actor.stop(Some("first".to_owned()));
    actor.actor.stop(Some("second".to_owned()));
    busy.open();
    actor.ended().await;
    actor.actor.stop(Some("third".to_owned()));
    actor.actor.kill();
    assert_eq!(supervisor.heard().await, ["started", "terminated: first, with state"]);
}

/// The clean-up bound ends a hanging `post_stop` by kill, which drops it at its await.
#[tokio::test(start_paused = true)]
async fn post_stop_can_be_killed() {
    let mut supervisor = Plan::default().spawn().await;
    let log = Log::default();
    let (mut door, hold) = gate();
    let mut actor = Plan::default()
        .post_stop(work(hold.wait_holding(log.on_drop("post_stop dropped"))))
        .spawn_under(&supervisor)
        .await;
    actor.actor.stop(Some("first".to_owned()));
    door.reached().await;
    quiet().await;
    assert!(log.lines().is_empty());
    actor.actor.kill();
    actor.ended().await;
    assert_eq!(log.lines(), ["post_stop dropped"]);
    assert_eq!(supervisor.heard().await, ["started", "terminated: killed, no state"], "the reason is lost");
}

/// The mailbox bounds nothing, so that admission by permits is ours to do.
#[tokio::test(start_paused = true)]
async fn the_mailbox_of_a_busy_actor_refuses_nothing() {
    const MANY: usize = 10_000;
    let actor = Plan::default().spawn().await;
    let busy = actor.busy().await;
    let handled = Arc::new(AtomicUsize::new(0));
    for _ in 0..MANY {
        actor.cast(counting(&handled));
    }
    assert_eq!(handled.load(Ordering::Relaxed), 0);
    busy.open();
    actor.fence().await;
    assert_eq!(handled.load(Ordering::Relaxed), MANY);
}
