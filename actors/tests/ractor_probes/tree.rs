//! Supervisors and children: what the end of one does to the other.

use ractor::{Actor, ActorProcessingErr, ActorRef, ActorStatus};
use tokio::sync::oneshot;

use crate::kit::{Live, Log, Plan, failures, gate, quiet, soon, work};

/// An actor that keeps ractor's own `handle_supervisor_evt`.
struct DefaultSupervisor;

impl Actor for DefaultSupervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// Every supervisor of ours overrides the event handler, since the default ends it with its first child.
#[tokio::test(start_paused = true)]
async fn the_default_event_handler_stops_the_supervisor_when_any_child_ends_even_normally() {
    let (supervisor, task) = Actor::spawn(None, DefaultSupervisor, ()).await.unwrap();
    let mut child = Plan::default().try_spawn_under(&supervisor).await.unwrap();
    let mut sibling = Plan::default().try_spawn_under(&supervisor).await.unwrap();
    child.fence().await;
    quiet().await;
    assert!(!task.is_finished(), "a start does not end it");
    child.actor.stop(None);
    child.ended().await;
    soon(task).await.unwrap();
    sibling.ended().await;

    let supervisor = Plan::default().spawn().await;
    let mut child = Plan::default().spawn_under(&supervisor).await;
    child.actor.stop(None);
    child.ended().await;
    quiet().await;
    assert!(!supervisor.task.is_finished(), "an overridden handler lets it live");
}

/// A graceful end of a tree is ours to write: left to ractor, children are killed where they stand.
#[tokio::test(start_paused = true)]
async fn a_stop_of_the_parent_is_a_kill_for_its_children() {
    let log = Log::default();
    let mut parent = Plan::default().post_stop(log.noting("parent's post_stop")).spawn().await;
    let mut child = Plan::default()
        .post_stop(log.noting("child's post_stop"))
        .keep(log.on_drop("child's state dropped"))
        .spawn_under(&parent)
        .await;
    let (mut door, hold) = gate();
    child.cast(work(hold.wait_holding(log.on_drop("child's handler dropped"))));
    door.reached().await;
    parent.actor.stop(None);
    parent.ended().await;
    child.ended().await;
    assert_eq!(log.lines(), ["parent's post_stop", "child's handler dropped", "child's state dropped"]);

    let log = Log::default();
    let mut child = Plan::default().post_stop(log.noting("post_stop")).spawn().await;
    child.actor.stop(None);
    child.ended().await;
    assert_eq!(log.lines(), ["post_stop"], "a stop of its own would have run it");
}

/// The close report counts handles and gates, since no event tells of children killed with their parent.
#[tokio::test(start_paused = true)]
async fn children_killed_by_a_parents_exit_report_to_nobody() {
    let mut root = Plan::default().spawn().await;
    let mut parent = Plan::default().spawn_under(&root).await;
    let mut child = Plan::default().spawn_under(&parent).await;
    child.fence().await;
    parent.fence().await;
    assert_eq!(child.actor.try_get_supervisor(), Some(parent.actor.get_cell()));
    parent.actor.stop(None);
    parent.ended().await;
    child.ended().await;
    assert_eq!(child.actor.try_get_supervisor(), None);
    assert_eq!(parent.heard().await, ["started"], "the parent hears nothing");
    assert_eq!(root.heard().await, ["started", "terminated: no reason, with state"], "nor does the root");
}

/// One kill of a generation reaches everything below, however deep, in one go.
#[tokio::test(start_paused = true)]
async fn a_kill_goes_down_through_all_generations_of_children() {
    const DEPTH: usize = 200;
    let log = Log::default();
    let mut line = vec![Plan::default().spawn().await];
    for _ in 0..DEPTH {
        let plan = Plan::default().post_stop(log.noting("post_stop"));
        line.push(plan.spawn_under(&line[line.len() - 1]).await);
    }
    quiet().await;
    line[0].actor.kill();
    for live in &mut line {
        live.ended().await;
        assert_eq!(live.actor.get_status(), ActorStatus::Stopped);
    }
    assert!(log.lines().is_empty());
}

/// The generation stops its children in its `post_stop`: they live until then, and end in the order it picks.
#[tokio::test(start_paused = true)]
async fn children_live_until_their_supervisors_post_stop_has_ended() {
    let log = Log::default();
    let (give, take) = oneshot::channel::<Vec<Live>>();
    let closing = log.clone();
    let mut supervisor = Plan::default()
        .post_stop(work(async move {
            for mut child in take.await.unwrap().into_iter().rev() {
                assert_eq!(child.actor.get_status(), ActorStatus::Running, "it was not killed");
                child.actor.stop(None);
                child.ended().await;
            }
            closing.note("supervisor's post_stop");
        }))
        .spawn()
        .await;
    let mut children = Vec::new();
    for name in ["first", "second", "third"] {
        let child = Plan::default().post_stop(log.noting(name)).spawn_under(&supervisor).await;
        child.fence().await;
        children.push(child);
    }
    assert!(give.send(children).is_ok());
    supervisor.actor.stop(None);
    supervisor.ended().await;
    assert_eq!(log.lines(), ["third", "second", "first", "supervisor's post_stop"]);
}

/// What a close wants to know of a child it must ask the child's task: events are not handled during
/// `post_stop`.
#[tokio::test(start_paused = true)]
async fn a_supervisor_handles_no_event_during_its_own_post_stop() {
    let log = Log::default();
    let (give, take) = oneshot::channel::<Live>();
    let closing = log.clone();
    let mut supervisor = Plan::default()
        .post_stop(work(async move {
            let mut child = take.await.unwrap();
            child.actor.stop(None);
            child.ended().await;
            quiet().await;
            closing.note("post_stop ended");
        }))
        .spawn()
        .await;
    let child = Plan::default().keep(log.on_drop("child's state dropped")).spawn_under(&supervisor).await;
    child.fence().await;
    supervisor.fence().await;
    assert!(give.send(child).is_ok());
    supervisor.actor.stop(None);
    supervisor.ended().await;
    assert_eq!(supervisor.heard().await, ["started"], "the end was sent and never handled");
    assert_eq!(log.lines(), ["post_stop ended", "child's state dropped"], "the state waits in the queue");
}

/// A failing `post_stop` of the generation strands nobody: ractor's guard kills the children after it.
#[tokio::test(start_paused = true)]
async fn children_are_killed_when_their_supervisors_post_stop_fails() {
    for failure in failures() {
        let log = Log::default();
        let mut supervisor = Plan::default().post_stop(failure).spawn().await;
        let mut child = Plan::default().post_stop(log.noting("post_stop")).spawn_under(&supervisor).await;
        child.fence().await;
        supervisor.actor.stop(None);
        supervisor.ended().await;
        child.ended().await;
        assert!(log.lines().is_empty());
    }
}

/// Only the generation spawns, in its handler: a stop that comes meanwhile waits until the child is linked.
#[tokio::test(start_paused = true)]
async fn a_stop_cannot_come_between_pre_start_and_the_link_of_a_spawn_in_the_supervisors_handler() {
    let mut supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let (plan, born) = Plan::default().pre_start(work(hold.wait())).announced();
    let spawn = plan.try_spawn_under(&supervisor.actor);
    let (give, spawned) = oneshot::channel();
    supervisor.cast(work(async move {
        assert!(give.send(spawn.await).is_ok());
    }));
    let child = soon(born).await.unwrap();
    door.reached().await;
    supervisor.actor.stop(None);
    quiet().await;
    assert!(!supervisor.task.is_finished(), "the stop waits for the spawn");
    assert_eq!(child.get_status(), ActorStatus::Starting);

    door.open();
    let mut live = soon(spawned).await.unwrap().unwrap();
    supervisor.ended().await;
    live.ended().await;
    assert_eq!(child.get_status(), ActorStatus::Stopped, "linked in time, it went with its supervisor");
}

/// A kill of the generation in the middle of a spawn drops that spawn, and the child with it.
#[tokio::test(start_paused = true)]
async fn a_kill_of_the_supervisor_drops_a_spawn_in_its_handler_and_ends_the_child() {
    let log = Log::default();
    let mut supervisor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let note = log.on_drop("pre_start dropped");
    let (plan, born) = Plan::default().pre_start(work(hold.wait_holding(note))).announced();
    let spawn = plan.try_spawn_under(&supervisor.actor);
    supervisor.cast(work(async move { drop(spawn.await) }));
    let child = soon(born).await.unwrap();
    door.reached().await;
    supervisor.actor.kill();
    supervisor.ended().await;
    assert_eq!(log.lines(), ["pre_start dropped"]);
    assert_eq!(child.get_status(), ActorStatus::Stopped);
}

/// A child reports to one supervisor, the last it was linked to: the tree is never used for watching.
#[tokio::test(start_paused = true)]
async fn a_child_has_one_supervisor_and_a_link_moves_it() {
    let (mut old, mut new) = (Plan::default().spawn().await, Plan::default().spawn().await);
    let mut child = Plan::default().spawn_under(&old).await;
    child.fence().await;
    child.actor.link(new.actor.get_cell());
    assert!(old.actor.get_children().is_empty());
    assert_eq!(new.actor.get_children(), [child.actor.get_cell()]);
    child.actor.stop(None);
    child.ended().await;
    assert_eq!(old.heard().await, ["started"]);
    assert_eq!(new.heard().await, ["terminated: no reason, with state"]);
}

/// Stop order comes from our own list: ractor's children are in no order (the odds that a probe errs are 1 to
/// 24!).
#[tokio::test(start_paused = true)]
async fn children_are_listed_in_no_order() {
    let supervisor = Plan::default().spawn().await;
    let mut spawned = Vec::new();
    for _ in 0..24 {
        spawned.push(Plan::default().spawn_under(&supervisor).await.actor.get_cell());
    }
    let listed = supervisor.actor.get_children();
    assert_ne!(listed, spawned);
    assert_eq!(listed.len(), spawned.len());
    assert!(spawned.iter().all(|cell| listed.contains(cell)), "the same children all the same");
}
