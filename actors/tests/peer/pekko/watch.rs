//! Watching: whoever holds a handle learns of the end, once and for what it was.

use std::sync::{Arc, Mutex};

use tenure_actors::rules::Strategy;
use tenure_actors::{
    ExitReason, Heard, ManagedProcess, ProcessContext, ProcessIdentity, ProcessResult, ProcessSpec, Verb,
};

use crate::kit::{End, KINDS, Kind, Plot};

#[tokio::test(start_paused = true)]
async fn peer_pw_01_a_graceful_end_is_told_of_the_one_that_ended() {
    for kind in [Kind::Actor, Kind::Function] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (a, b) = (plot.part("a", kind), plot.part("b", kind));
        let world = plot.open().await;
        let registry = world.generation().registry();
        let process = registry.start("a", a.process()).await.unwrap();
        let other = registry.start("b", b.process()).await.unwrap();
        let watcher = tokio::spawn({
            let registry = registry.clone();
            async move { registry.watch("a").await }
        });
        tokio::task::yield_now().await;
        a.end(End::Normal);
        assert!(matches!(watcher.await.unwrap(), Some(ExitReason::Completed)));
        assert!(matches!(process.exit(), Some(ExitReason::Completed)) && other.exit().is_none());
        world.end().await;
    }
}

/// peer: PW-02, PW-03, PS-02, PS-14, PS-15, PS-23
#[tokio::test(start_paused = true)]
async fn peer_pw_02_a_failure_is_told_as_one_with_its_cause_and_what_failed_is_gone_once() {
    for kind in [Kind::Actor, Kind::Function] {
        for (end, is_told) in [
            (
                End::Error,
                (|exit| matches!(exit, ExitReason::Failed(error) if error.to_string() == "crash"))
                    as fn(&ExitReason) -> bool,
            ),
            (End::Panic, |exit| matches!(exit, ExitReason::Panicked(text) if &**text == "crash")),
        ] {
            let mut plot = Plot::new(Strategy::OneForOne);
            let (process, service) = (plot.part("p", kind), plot.part("s", kind));
            let world = plot.with(service.temporary()).open().await;
            let handles = [
                world.generation().registry().start("p", process.process()).await.unwrap(),
                world.get("s").unwrap().process.unwrap(),
            ];
            process.end(end);
            service.end(end);
            for handle in &handles {
                let exit = handle.ended().await;
                assert!(is_told(&exit), "{exit:?}");
            }
            world.until_gone("s").await;
            assert_eq!((process.made(), service.made()), (1, 1), "nobody restarts it");
            assert_eq!(world.diary.of("gone").len(), 2);
            assert_eq!(world.said(Verb::End).len(), 2, "each end is told once");
            world.end().await;
        }
    }
}

/// peer: PW-05, PW-31, PW-33, PW-34
#[tokio::test(start_paused = true)]
async fn peer_pw_31_every_current_watcher_is_told_once_and_who_stopped_watching_is_not() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.open().await;
    let process = world.generation().registry().start("a", a.process()).await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let watch = |name: &'static str| {
        let (process, told) = (process.clone(), Arc::clone(&told));
        tokio::spawn(async move {
            process.ended().await;
            told.lock().unwrap().push(name);
        })
    };
    // The first of them watches twice, by one handle.
    let watchers = [watch("first"), watch("first"), watch("second"), watch("third")];
    let unwatched = watch("unwatched");
    tokio::task::yield_now().await;
    unwatched.abort();
    a.end(End::Normal);
    for watcher in watchers {
        watcher.await.unwrap();
    }
    let mut told = told.lock().unwrap().clone();
    told.sort_unstable();
    assert_eq!(told, ["first", "first", "second", "third"], "once for each that waits");
    assert_eq!(world.said(Verb::End).len(), 1, "one end, however many watch");
    world.end().await;
}

/// peer: PW-37, PW-38
#[tokio::test(start_paused = true)]
async fn peer_pw_37_a_successor_of_the_same_name_is_watched_for_itself_and_stale_words_do_not_touch_it() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let old = registry.start("x", a.process()).await.unwrap();
    a.crash();
    old.ended().await;
    let new = registry.start("x", a.process()).await.unwrap();
    assert!(new.exit().is_none());
    assert!(!registry.remove("x", &old.identity()), "a stale removal");
    assert!(!old.remove());
    old.close().await;
    assert!(a.contexts()[0].commit(|| ()).is_err());
    assert_eq!(registry.lookup("x").unwrap().name(), new.name());
    assert!(matches!(old.ended().await, ExitReason::Failed(_)) && new.exit().is_none());
    a.end(End::Normal);
    assert!(matches!(new.ended().await, ExitReason::Completed));
    world.end().await;
}

struct Shared;

impl ManagedProcess for Shared {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn peer_pw_23_what_is_registered_under_two_ids_is_removed_under_one_alone() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let registry = world.generation().registry();
    let shared = Arc::new(Shared);
    for id in ["x", "y"] {
        registry.start(id, ProcessSpec::object("shared", Arc::clone(&shared))).await.unwrap();
    }
    let identity = ProcessIdentity::of_object(&shared);
    assert!(registry.remove("x", &identity));
    assert!(registry.get::<Shared>("x").is_none());
    assert!(registry.get::<Shared>("y").is_some_and(|found| Arc::ptr_eq(&found, &shared)));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pw_25_a_listing_and_the_changes_after_it_give_the_tree_as_it_is() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let parts = KINDS.map(|kind| plot.part(&format!("{kind:?}").to_lowercase(), kind));
    let world = plot.open().await;
    let registry = world.generation().registry();
    registry.start("first", parts[0].process()).await.unwrap();
    let mut changes = world.application.events();
    let mut tree = world.application.tree();
    assert_eq!(tree.generations[0].children.len(), 1);
    for (part, id) in parts[1..].iter().zip(["second", "third"]) {
        registry.start(id, part.process()).await.unwrap();
    }
    for id in ["second", "first", "third"] {
        registry.lookup(id).unwrap().close().await;
    }
    let mut sizes = Vec::new();
    while let Some(Heard::Event(event)) = changes.try_next() {
        tree.apply(&event);
        let size = tree.generations[0].children.len();
        if sizes.last() != Some(&size) {
            sizes.push(size);
        }
    }
    assert_eq!(sizes, [2, 3, 2, 1, 0], "one change at a time, down to empty");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pw_30_each_registration_is_acknowledged_and_listed_step_by_step() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Object), plot.part("b", Kind::Object));
    let world = plot.open().await;
    let registry = world.generation().registry();
    let listing =
        || registry.list().into_iter().map(|info| format!("{} {}", info.id, info.name)).collect::<Vec<_>>();
    assert_eq!(listing(), Vec::<String>::new());
    assert_eq!(registry.start("x", a.process()).await.unwrap().name(), "a#1");
    assert_eq!(listing(), ["x a#1"]);
    assert_eq!(registry.start("y", b.process()).await.unwrap().name(), "b#1");
    assert_eq!(listing(), ["x a#1", "y b#1"]);
    assert!(registry.start("x", b.process()).await.is_err(), "one owner a key");
    assert_eq!(listing(), ["x a#1", "y b#1"]);
    assert_eq!(registry.start("z", a.process()).await.unwrap().name(), "a#2", "one kind under two keys");
    assert_eq!(listing(), ["x a#1", "y b#1", "z a#2"]);
    registry.lookup("x").unwrap().close().await;
    assert_eq!(listing(), ["y b#1", "z a#2"]);
    drop(world.application.close().await);
}

/// Notes in which order it learns of its stop.
struct Ordered {
    context: Mutex<Option<ProcessContext>>,
    heard_first: Arc<Mutex<Option<bool>>>,
}

impl ManagedProcess for Ordered {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        *self.context.lock().unwrap() = Some(context);
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        let context = self.context.lock().unwrap().take();
        *self.heard_first.lock().unwrap() = context.map(|context| context.is_cancelled());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn peer_pw_16_the_signal_to_stop_comes_before_the_hook() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let heard_first = Arc::new(Mutex::new(None));
    let ordered = Ordered { context: Mutex::default(), heard_first: Arc::clone(&heard_first) };
    let registry = world.generation().registry();
    registry.start("x", ProcessSpec::object("ordered", Arc::new(ordered))).await.unwrap();
    registry.close().await.unwrap();
    assert_eq!(*heard_first.lock().unwrap(), Some(true));
    world.end().await;
}
