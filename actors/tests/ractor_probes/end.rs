//! The end of one actor: what its supervisor hears, and when its state is gone.

use std::future::pending;
use std::sync::Arc;

use ractor::{ActorRef, ActorStatus, SupervisionEvent};
use tokio::sync::oneshot;

use crate::kit::{Live, Log, Memory, Plan, Work, failures, fallible, gate, quiet, section, soon, work};

/// The error type of our own handlers: downcast in `ActorFailed`, it tells an error from a panic.
#[derive(Debug, thiserror::Error)]
#[error("no")]
struct Refusal;

/// A failed clean-up hides that the stop was asked for: the kernel catches failures before ractor does.
#[tokio::test(start_paused = true)]
async fn a_failed_post_stop_replaces_the_termination() {
    let mut supervisor = Plan::default().spawn().await;
    for failure in failures() {
        let log = Log::default();
        let mut child = Plan::default()
            .post_stop(failure)
            .keep(log.on_drop("state dropped"))
            .spawn_under(&supervisor)
            .await;
        child.actor.stop(Some("asked".to_owned()));
        child.ended().await;
        assert_eq!(log.lines(), ["state dropped"], "the state is lost");
        assert_eq!(supervisor.heard().await, ["started", "failed: no"], "the reason is lost");
    }
    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.actor.stop(Some("asked".to_owned()));
    child.ended().await;
    assert_eq!(supervisor.heard().await, ["started", "terminated: asked, with state"]);
}

/// Errors of our handlers are a type of their own, since nothing else tells an error from a panic in
/// `ActorFailed`.
#[tokio::test(start_paused = true)]
async fn an_error_and_a_panic_look_alike_but_for_the_type_of_the_error() {
    let mut supervisor = Plan::default().spawn().await;
    let [_, panic] = failures();
    for (failure, is_ours) in [(fallible(async { Err(Refusal.into()) }), true), (panic, false)] {
        let log = Log::default();
        let mut child = Plan::default()
            .post_stop(log.noting("post_stop"))
            .keep(log.on_drop("state dropped"))
            .spawn_under(&supervisor)
            .await;
        child.fence().await;
        child.cast(failure);
        child.ended().await;
        assert_eq!(log.lines(), ["state dropped"], "no post_stop after a failure");
        supervisor.fence().await;
        assert!(matches!(supervisor.events.try_recv(), Ok(SupervisionEvent::ActorStarted(_))));
        let Ok(SupervisionEvent::ActorFailed(_, error)) = supervisor.events.try_recv() else {
            panic!("the child failed");
        };
        assert_eq!(error.to_string(), "no");
        assert_eq!(error.is::<Refusal>(), is_ours);
    }
}

/// Exit reasons are free text, and a kill brings the state too: the kernel never tells its own exits by them.
#[tokio::test(start_paused = true)]
async fn nothing_in_its_event_tells_a_kill_from_a_stop_with_the_reason_killed() {
    let mut supervisor = Plan::default().spawn().await;
    for kill in [true, false] {
        let log = Log::default();
        let mut child = Plan::default().post_stop(log.noting("post_stop")).spawn_under(&supervisor).await;
        child.fence().await;
        if kill {
            child.actor.kill();
        } else {
            child.actor.stop(Some("killed".to_owned()));
        }
        child.ended().await;
        assert_eq!(supervisor.heard().await, ["started", "terminated: killed, with state"]);
        assert_eq!(log.lines().is_empty(), kill, "only the child's post_stop knows");
    }
}

/// What an ended child held lives on in its supervisor's queue, after a kill too: no permit may depend on it.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_child_ended_by_stop_drain_or_kill_travels_in_its_event() {
    let held = Arc::new(());
    let ends: [fn(&Live); 3] =
        [|child| child.actor.stop(None), |child| child.actor.drain().unwrap(), |child| child.actor.kill()];
    for end in ends {
        let supervisor = Plan::default().spawn().await;
        let mut child = Plan::default().keep(held.clone()).spawn_under(&supervisor).await;
        child.fence().await;
        let busy = supervisor.busy().await;
        end(&child);
        child.ended().await;
        assert_eq!(Arc::strong_count(&held), 2, "the state outlives the child's task");
        busy.open();
        assert_eq!(state_in_last_event(supervisor).await.map(|state| state.keeps_its_thing()), Some(true));
        assert_eq!(Arc::strong_count(&held), 1, "it died with the event, by the supervisor's hand");
    }
}

/// The state that came with the last event of a child, taken out of its box.
async fn state_in_last_event(mut supervisor: Live) -> Option<Memory> {
    supervisor.fence().await;
    let event = std::iter::from_fn(|| supervisor.events.try_recv().ok()).last();
    match event {
        Some(SupervisionEvent::ActorTerminated(_, state, _)) => state?.take().ok(),
        _ => None,
    }
}

/// "Gone" means the `JoinHandle`: a state that travels in no event is dropped in the task when it reads
/// Stopped already.
#[tokio::test(start_paused = true)]
async fn the_state_of_a_child_that_failed_or_was_killed_in_a_hook_is_dropped_in_its_task() {
    let mut supervisor = Plan::default().spawn().await;
    let busy = supervisor.busy().await;
    type Case = (Plan, fn(&Live));
    let cases: [Case; 3] = [
        (Plan::default().post_start(work(pending())), |_| ()),
        (Plan::default().post_stop(work(pending())), |child| child.actor.stop(None)),
        (Plan::default(), |child| child.cast(fallible(async { Err(Refusal.into()) }))),
    ];
    for (plan, end) in cases {
        let log = Log::default();
        let (plan, born) = plan.announced();
        let plan = plan.keep(Witness { log: log.clone(), born }).part(log.on_drop("actor value dropped"));
        let mut child = plan.spawn_under(&supervisor).await;
        end(&child);
        quiet().await;
        child.actor.kill();
        child.ended().await;
        assert_eq!(log.lines(), ["state dropped while Ok(Stopped)", "actor value dropped"]);
    }
    busy.open();
    let [killed, failed] = ["terminated: killed, no state", "failed: no"];
    assert_eq!(supervisor.heard().await, [killed, "started", killed, "started", failed]);
}

/// A state whose actor nobody supervises is dropped in the task too, before the actor reads Stopped.
#[tokio::test(start_paused = true)]
async fn the_state_of_an_actor_without_supervisor_is_dropped_while_it_is_stopping() {
    for kill in [false, true] {
        let log = Log::default();
        let (plan, born) = Plan::default().announced();
        let plan = plan.keep(Witness { log: log.clone(), born }).part(log.on_drop("actor value dropped"));
        let mut actor = plan.spawn().await;
        actor.fence().await;
        if kill {
            actor.actor.kill();
        } else {
            actor.actor.stop(None);
        }
        actor.ended().await;
        assert_eq!(log.lines(), ["state dropped while Ok(Stopping)", "actor value dropped"]);
    }
}

/// Notes the status that its actor shows at the moment when the state is dropped.
struct Witness {
    log: Log,
    born: oneshot::Receiver<ActorRef<Work>>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let status = self.born.try_recv().map(|actor| actor.get_status());
        self.log.note(format!("state dropped while {status:?}"));
    }
}

/// `wait` and every `_and_wait` promise less than the `JoinHandle`: this one returns with the state alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_and_wait_returns_while_the_state_is_still_being_dropped() {
    let (dropping, leave, block) = section();
    let (mut door, hold) = gate();
    let plan = Plan::default().post_start(work(hold.wait())).keep(BlockOnDrop(Some(block)));
    let mut actor = plan.spawn().await;
    door.reached().await;
    actor.actor.kill_and_wait(None).await.unwrap();
    dropping.await.unwrap();
    assert_eq!(actor.actor.get_status(), ActorStatus::Stopped);
    assert!(!actor.task.is_finished(), "its task is still at it");
    leave.send(()).unwrap();
    actor.ended().await;
}

/// Runs its section when it is dropped.
struct BlockOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for BlockOnDrop<F> {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            block();
        }
    }
}

/// After the `JoinHandle` nothing of the process is left: close awaits that, on worker threads as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_handle_completes_after_state_and_actor_are_dropped() {
    for kill in [false, true].repeat(20) {
        let log = Log::default();
        let mut actor = Plan::default().keep(log.on_drop("gone")).part(log.on_drop("gone")).spawn().await;
        if kill {
            actor.actor.kill();
        } else {
            actor.actor.stop(None);
        }
        actor.ended().await;
        assert_eq!(log.lines(), ["gone", "gone"]);
    }
}

/// Whoever has seen an actor end knows that its event is on the way, though not that it was handled.
///
/// Nor does it come ahead of a message sent from then on: a supervisor that is just between its event port
/// and its message port takes the message first. A busy one looks at both ports afresh, hence the door.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_is_queued_before_waiters_wake() {
    let mut supervisor = Plan::default().spawn().await;
    for _ in 0..50 {
        let busy = supervisor.busy().await;
        let child = Plan::default().spawn_under(&supervisor).await;
        child.actor.stop_and_wait(None, None).await.unwrap();
        assert!(supervisor.events.try_recv().is_err(), "it is not handled");
        busy.open();
        assert_eq!(supervisor.heard().await, ["started", "terminated: no reason, with state"]);
    }
}

/// An aborted task is an exit like the others: nothing that counts actors may leak by it.
#[tokio::test(start_paused = true)]
async fn an_aborted_task_reports_actor_task_cancelled() {
    let mut supervisor = Plan::default().spawn().await;
    let log = Log::default();
    let mut actor = Plan::default()
        .post_stop(log.noting("post_stop"))
        .keep(log.on_drop("state dropped"))
        .spawn_under(&supervisor)
        .await;
    let mut child = Plan::default().spawn_under(&actor).await;
    let (mut door, hold) = gate();
    actor.cast(work(hold.wait_holding(log.on_drop("handler dropped"))));
    door.reached().await;

    actor.task.abort();
    assert!(soon(&mut actor.task).await.err().unwrap().is_cancelled());
    soon(actor.actor.wait(None)).await.unwrap();
    child.ended().await;
    assert_eq!(log.lines(), ["handler dropped", "state dropped"]);
    assert_eq!(supervisor.heard().await, ["started", "terminated: actor_task_cancelled, no state"]);
    assert!(supervisor.actor.get_children().is_empty());
}

/// A runtime that is shut down ends its actors by their guards: a test's universe leaves nothing running.
#[test]
fn a_dropped_runtime_ends_its_actors() {
    let log = Log::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (actor, _door) = runtime.block_on(async {
        let actor = Plan::default().keep(log.on_drop("state dropped")).spawn().await;
        let (mut door, hold) = gate();
        actor.cast(work(hold.wait_holding(log.on_drop("handler dropped"))));
        door.reached().await;
        (actor, door)
    });
    assert_eq!(actor.actor.get_status(), ActorStatus::Running);
    assert!(log.lines().is_empty());
    drop(runtime);
    assert_eq!(actor.actor.get_status(), ActorStatus::Stopped);
    assert_eq!(log.lines(), ["handler dropped", "state dropped"]);
}
