//! Starting: `pre_start`, the link to the supervisor, `post_start`.

use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{ActorRuntime, ActorStatus, SpawnErr};

use crate::kit::{Log, Plan, Work, failures, gate, quiet, soon, work};

/// The generation awaits spawns in its own handler, so that no stop comes between `pre_start` and the link.
#[tokio::test(start_paused = true)]
async fn pre_start_runs_in_the_callers_task_and_post_start_in_the_actors_own() {
    let ids = Arc::new(Mutex::new(Vec::new()));
    let noting = || {
        let ids = ids.clone();
        work(async move { ids.lock().push(tokio::task::id()) })
    };
    let plan = Plan::default().pre_start(noting()).post_start(noting());
    let (caller, live) = tokio::spawn(async move { (tokio::task::id(), plan.spawn().await) }).await.unwrap();
    live.cast(noting());
    live.fence().await;
    let ids = ids.lock().clone();
    assert_eq!(ids[0], caller, "pre_start runs inline");
    assert_ne!(ids[1], caller, "post_start does not");
    assert_eq!(ids[1], ids[2], "post_start and handle share the actor's task");
}

/// Start-up belongs after `pre_start`: until that is done, no stop of the supervisor can reach the child.
#[tokio::test(start_paused = true)]
async fn a_child_in_pre_start_is_invisible_to_its_supervisor() {
    let supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let (plan, born) = Plan::default().pre_start(work(hold.wait())).announced();
    let spawning = tokio::spawn(plan.try_spawn_under(&supervisor.actor));
    let child = soon(born).await.unwrap();
    door.reached().await;
    assert_eq!(child.get_status(), ActorStatus::Starting);
    assert!(supervisor.actor.get_children().is_empty(), "the supervisor does not know the child");
    assert_eq!(child.try_get_supervisor(), None, "the child does not know the supervisor");

    door.open();
    soon(spawning).await.unwrap().unwrap();
    assert_eq!(supervisor.actor.get_children(), [child.get_cell()], "it is linked once pre_start is done");
    assert_eq!(child.try_get_supervisor(), Some(supervisor.actor.get_cell()));
}

/// `pre_start` must have no effect on the world, since it goes on when its supervisor has long been closed.
#[tokio::test(start_paused = true)]
async fn pre_start_runs_to_its_end_after_its_supervisor_is_gone() {
    let log = Log::default();
    let mut supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let effect = log.clone();
    let (plan, born) = Plan::default()
        .pre_start(work(async move {
            hold.wait().await;
            effect.note("effect");
        }))
        .keep(log.on_drop("state dropped"))
        .announced();
    let spawning = tokio::spawn(plan.try_spawn_under(&supervisor.actor));
    let child = soon(born).await.unwrap();
    door.reached().await;

    soon(supervisor.actor.stop_and_wait(None, None)).await.unwrap();
    supervisor.ended().await;
    quiet().await;
    assert_eq!(child.get_status(), ActorStatus::Starting, "the close did not reach the child");
    assert!(log.lines().is_empty());

    door.open();
    let refused = soon(spawning).await.unwrap().err().unwrap();
    assert_eq!(refused.to_string(), "Actor panicked during startup 'Supervisor is shutting down'");
    assert_eq!(log.lines(), ["effect", "state dropped"], "the effect came after the close");
    assert_eq!(child.get_status(), ActorStatus::Stopped);
}

/// Once the generation is closing nothing new can be born under it, whoever asks.
#[tokio::test(start_paused = true)]
async fn spawn_linked_is_refused_while_the_supervisor_is_draining_or_stopping() {
    let (mut in_post_stop, hold) = gate();
    let supervisor = Plan::default().post_stop(work(hold.wait())).spawn().await;
    assert!(
        Plan::default().try_spawn_under(&supervisor.actor).await.is_ok(),
        "a running supervisor takes it"
    );

    let log = Log::default();
    let refusal = async || {
        let plan = Plan::default().pre_start(log.noting("pre_start"));
        plan.try_spawn_under(&supervisor.actor).await.err().unwrap().to_string()
    };
    let busy = supervisor.busy().await;
    supervisor.actor.drain().unwrap();
    assert_eq!(supervisor.actor.get_status(), ActorStatus::Draining);
    assert_eq!(refusal().await, "Actor panicked during startup 'Supervisor is shutting down'");

    busy.open();
    in_post_stop.reached().await;
    assert_eq!(supervisor.actor.get_status(), ActorStatus::Stopping);
    assert_eq!(refusal().await, "Actor panicked during startup 'Supervisor is shutting down'");
    assert_eq!(log.lines(), ["pre_start", "pre_start"], "the refusal comes only after pre_start has run");
}

/// The kernel reports spawn results itself: a supervisor never hears of a child that did not come up.
#[tokio::test(start_paused = true)]
async fn a_failed_pre_start_is_an_error_of_the_spawn_and_no_event() {
    let mut supervisor = Plan::default().spawn().await;
    for failure in failures() {
        let spawned = Plan::default().pre_start(failure).try_spawn_under(&supervisor.actor).await;
        let error = spawned.err().unwrap();
        assert!(matches!(error, SpawnErr::StartupFailed(_)));
        assert_eq!(error.to_string(), "Actor panicked during startup 'no'", "error and panic read the same");
        assert!(supervisor.heard().await.is_empty(), "the supervisor hears nothing");
    }
    let child = Plan::default().spawn_under(&supervisor).await;
    child.fence().await;
    assert_eq!(supervisor.heard().await, ["started"], "it hears of a child that came up");
}

/// The start bound of the wrapper kills a hanging `pre_start` by its cell; a stop would wait for ever.
#[tokio::test(start_paused = true)]
async fn pre_start_is_broken_by_kill_and_not_by_stop() {
    let log = Log::default();
    let (mut door, hold) = gate();
    let note = log.on_drop("pre_start dropped");
    let (plan, born) = Plan::default().pre_start(work(hold.wait_holding(note))).announced();
    let spawning = tokio::spawn(plan.try_spawn());
    let child = soon(born).await.unwrap();
    door.reached().await;

    child.stop(None);
    quiet().await;
    assert!(!spawning.is_finished(), "a stop does not reach pre_start");
    assert!(log.lines().is_empty());

    child.kill();
    let killed = soon(spawning).await.unwrap().err().unwrap();
    assert_eq!(killed.to_string(), "Actor panicked during startup 'Actor killed during startup'");
    assert_eq!(log.lines(), ["pre_start dropped"]);
    assert_eq!(child.get_status(), ActorStatus::Stopped);
}

/// A generation that is killed in the middle of a spawn leaves nothing half-born behind.
#[tokio::test(start_paused = true)]
async fn a_dropped_spawn_ends_the_child_in_pre_start() {
    let log = Log::default();
    let (mut door, hold) = gate();
    let note = log.on_drop("pre_start dropped");
    let (plan, born) = Plan::default().pre_start(work(hold.wait_holding(note))).announced();
    let spawning = tokio::spawn(plan.try_spawn());
    let child = soon(born).await.unwrap();
    door.reached().await;
    assert_eq!(child.get_status(), ActorStatus::Starting);

    spawning.abort();
    assert!(soon(spawning).await.err().unwrap().is_cancelled());
    assert_eq!(log.lines(), ["pre_start dropped"]);
    assert_eq!(child.get_status(), ActorStatus::Stopped);
    soon(child.wait(None)).await.unwrap();
}

/// The life-cycle rules must take a failure of a child that was never reported as started.
#[tokio::test(start_paused = true)]
async fn a_failed_post_start_gives_actor_failed_without_actor_started() {
    let mut supervisor = Plan::default().spawn().await;
    for failure in failures() {
        let log = Log::default();
        let plan = Plan::default().post_start(failure).post_stop(log.noting("post_stop"));
        let mut child = plan.spawn_under(&supervisor).await;
        child.ended().await;
        assert_eq!(supervisor.heard().await, ["failed: no"], "the spawn was ok, yet nothing started");
        assert!(log.lines().is_empty(), "and no post_stop");
    }
}

/// Real start-up lives in `post_start` or the first message: there a child is linked, visible and killable.
#[tokio::test(start_paused = true)]
async fn post_start_is_killable_and_its_future_dropped_at_its_await() {
    let log = Log::default();
    let mut supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let mut child = Plan::default()
        .post_start(work(hold.wait_holding(log.on_drop("post_start dropped"))))
        .post_stop(log.noting("post_stop"))
        .keep(log.on_drop("state dropped"))
        .spawn_under(&supervisor)
        .await;
    door.reached().await;
    assert_eq!(supervisor.actor.get_children(), [child.actor.get_cell()]);

    child.actor.stop(None);
    quiet().await;
    assert!(!child.task.is_finished(), "a stop waits for post_start");
    assert!(log.lines().is_empty());

    child.actor.kill();
    child.ended().await;
    assert_eq!(log.lines(), ["post_start dropped", "state dropped"]);
    assert_eq!(supervisor.heard().await, ["terminated: killed, no state"], "terminated without started");
}

/// "Started" in the transcript may be taken from the event: it comes only when `post_start` has succeeded.
#[tokio::test(start_paused = true)]
async fn actor_started_comes_after_post_start() {
    let mut supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let child = Plan::default().post_start(work(hold.wait())).spawn_under(&supervisor).await;
    door.reached().await;
    assert_eq!(child.actor.get_status(), ActorStatus::Starting);
    assert!(supervisor.heard().await.is_empty());

    door.open();
    child.fence().await;
    assert_eq!(child.actor.get_status(), ActorStatus::Running);
    assert_eq!(supervisor.heard().await, ["started"]);
}

/// The kernel uses no instant spawns: they admit messages to actors that may never come up, and tell nobody.
#[tokio::test(start_paused = true)]
async fn an_instant_spawn_takes_messages_first_and_fails_only_in_its_nested_handle() {
    let mut supervisor = Plan::default().spawn().await;
    let instant = |mut plan: Plan, message: Work| {
        let (name, probe, _) = plan.actor();
        let cell = supervisor.actor.get_cell();
        let (actor, starting) = ActorRuntime::spawn_linked_instant(name, probe, plan, cell).unwrap();
        assert_eq!(actor.get_status(), ActorStatus::Unstarted);
        actor.cast(message).unwrap();
        (actor, starting)
    };
    let log = Log::default();
    let (healthy, starting) = instant(Plan::default(), log.noting("handled"));
    let task = soon(starting).await.unwrap().unwrap();
    healthy.drain().unwrap();
    soon(task).await.unwrap();
    assert_eq!(log.lines(), ["handled"], "the early message was handled after pre_start");

    let [failure, _] = failures();
    let (_, starting) = instant(Plan::default().pre_start(failure), log.noting("never"));
    let error = soon(starting).await.unwrap().err().unwrap();
    assert!(matches!(error, SpawnErr::StartupFailed(_)));
    assert_eq!(log.lines(), ["handled"], "the accepted message is lost");
    assert_eq!(supervisor.heard().await, ["started", "terminated: Drained, with state"]);
}
