//! Names: one table for the OS process, and no mutual exclusion.

use ractor::{ActorRef, ActorStatus, MessagingErr, SpawnErr, registry};

use crate::kit::{Log, Plan, Work, failures, gate, soon, work};

/// Exclusivity never rests on a ractor name: it is free while the old holder is still running its
/// `post_stop`.
#[tokio::test(start_paused = true)]
async fn a_name_is_free_before_post_stop() {
    const NAME: &str = "a_name_is_free_before_post_stop";
    let (mut door, hold) = gate();
    let mut old = Plan::default().named(NAME).post_stop(work(hold.wait())).spawn().await;
    assert_eq!(registry::where_is(NAME), Some(old.actor.get_cell()));
    assert!(Plan::default().named(NAME).try_spawn().await.is_err(), "taken while the old one runs");

    old.actor.stop(None);
    door.reached().await;
    let mut new = Plan::default().named(NAME).spawn().await;
    assert_eq!(old.actor.get_status(), ActorStatus::Stopping, "two holders at once");
    assert_eq!(registry::where_is(NAME), Some(new.actor.get_cell()));
    door.open();
    old.ended().await;
    assert_eq!(registry::where_is(NAME), Some(new.actor.get_cell()), "the old one's end leaves the new one");
    new.actor.stop(None);
    new.ended().await;
    assert_eq!(registry::where_is(NAME), None);
}

/// The index is our own, keyed by epoch: ractor's names collide across generations, tests and runtimes.
#[tokio::test(start_paused = true)]
async fn names_are_process_wide_and_a_collision_is_refused() {
    const NAME: &str = "names_are_process_wide_and_a_collision_is_refused";
    let holder = Plan::default().named(NAME).spawn().await;
    let log = Log::default();
    let plan = Plan::default().named(NAME).pre_start(log.noting("pre_start"));
    let elsewhere = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(plan.try_spawn()).err()
    });
    let refused = elsewhere.join().unwrap().unwrap();
    assert!(matches!(refused, SpawnErr::ActorAlreadyRegistered(name) if name == NAME));
    assert!(log.lines().is_empty(), "the refused one has not begun");
    assert_eq!(registry::where_is(NAME), Some(holder.actor.get_cell()), "the holder keeps it");
}

/// A name found is no sign of life: it leads to actors that have not yet started, or never will.
#[tokio::test(start_paused = true)]
async fn a_name_is_visible_before_pre_start_is_done() {
    const NAME: &str = "a_name_is_visible_before_pre_start_is_done";
    let (mut door, hold) = gate();
    let spawning = tokio::spawn(Plan::default().named(NAME).pre_start(work(hold.wait())).try_spawn());
    door.reached().await;
    let found = registry::where_is(NAME).unwrap();
    assert_eq!(found.get_status(), ActorStatus::Starting);
    door.open();
    let live = soon(spawning).await.unwrap().unwrap();
    assert_eq!(live.actor.get_cell(), found);
}

/// A start that failed can be tried again under the same name at once.
#[tokio::test(start_paused = true)]
async fn a_failed_pre_start_frees_its_name() {
    const NAME: &str = "a_failed_pre_start_frees_its_name";
    for failure in failures() {
        assert!(Plan::default().named(NAME).pre_start(failure).try_spawn().await.is_err());
        assert_eq!(registry::where_is(NAME), None);
    }
    assert!(Plan::default().named(NAME).try_spawn().await.is_ok());
}

/// Typed handles are never made from found cells, where only these two checks stop a wrong message.
#[tokio::test(start_paused = true)]
async fn a_message_of_the_wrong_type_is_refused() {
    const NAME: &str = "a_message_of_the_wrong_type_is_refused";
    let live = Plan::default().named(NAME).spawn().await;
    assert_eq!(ActorRef::<Work>::where_is(NAME), Some(live.actor.clone()));
    assert_eq!(ActorRef::<u8>::where_is(NAME), None, "the typed look-up does not find it");
    let refused = live.actor.get_cell().send_message(7_u8);
    assert!(matches!(refused, Err(MessagingErr::InvalidActorType)));
    live.fence().await;
}
