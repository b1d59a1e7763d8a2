//! One registry for each generation: R35 to R38 and R42, and what old handles answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_actors::{
    Application, CloseReason, CommitError, EventKind, ExitReason, Generation, Heard, OperationRequest,
    ProcessKind, Resource, ResourceError, StartError, Subscription, testkit,
};

use super::support::{Ask, Door, Play, balanced, close, end, open, soon};

struct Shared(Arc<AtomicUsize>);

impl Resource for Shared {
    async fn close(self: Arc<Self>) -> tenure_actors::ProcessResult {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r35_plugins_that_ask_for_the_registry_share_one() {
    let application = open().await;
    let (one, two) = (application.current().registry(), application.current().registry());
    let play = Play::quiet();
    one.start("x", play.object()).await.expect("started");
    assert!(Arc::ptr_eq(&two.get::<Play>("x").expect("the same registry"), &play));
    let taken = two.start("x", Play::quiet().object()).await;
    assert!(matches!(taken, Err(StartError::AlreadyExists { .. })), "{taken:?}");
    assert_eq!(one.actor_ref().map(|actor| actor.get_id()), two.actor_ref().map(|actor| actor.get_id()));
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r35_a_shared_resource_that_many_ask_for_together_is_made_once() {
    let application = open().await;
    let store = application.current().runtime_store();
    let (made, closed, door) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Door::closed());
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let (store, made, closed, door) =
                (store.clone(), Arc::clone(&made), Arc::clone(&closed), Arc::clone(&door));
            tokio::spawn(async move {
                door.pass().await;
                let make = || async {
                    made.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok(Arc::new(Shared(Arc::clone(&closed))))
                };
                store.get_or_create("shared", make).await.expect("made")
            })
        })
        .collect();
    door.reached_by(16).await;
    door.open();
    let mut shared = Vec::new();
    for caller in callers {
        shared.push(soon(caller).await.expect("no panic"));
    }
    assert!(shared.iter().all(|one| Arc::ptr_eq(one, &shared[0])));
    assert_eq!(made.load(Ordering::SeqCst), 1);
    end(&application).await;
    assert_eq!(closed.load(Ordering::SeqCst), 1, "closed once, with its generation");
}

#[tokio::test(start_paused = true)]
async fn reg_r36_a_closed_store_answers_closed_and_makes_nothing() {
    let application = open().await;
    let store = application.current().runtime_store();
    end(&application).await;
    let made = AtomicUsize::new(0);
    let answer = store
        .get_or_create("shared", || async {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(Shared(Arc::default())))
        })
        .await;
    assert!(matches!(answer, Err(ResourceError::Closed(_))));
    assert!(store.get::<Shared>("shared").is_err());
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r37_a_new_generation_has_an_empty_registry_and_old_handles_reach_the_old_one_alone(kind) {
        let application = open().await;
        let old = application.current().registry();
        let (first, second) = (Play::quiet(), Play::quiet());
        let process = old.start("x", first.spec(kind)).await.expect("started");
        let late = first.context().await;
        let report = balanced(soon(application.replace()).await.expect("replaced"));
        assert_eq!((report.reason.clone(), report.closed, first.closes()), (CloseReason::Superseded, 1, 1));
        let new = application.current().registry();
        assert_eq!((application.current().epoch().get(), new.count()), (2, 0), "nothing is restored");
        let successor = new.start("x", second.spec(kind)).await.expect("started");
        let context = second.context().await;
        assert!(!old.remove("x", &successor.identity()));
        assert!(!new.remove("x", &process.identity()));
        assert!(!late.remove_self() && !process.remove());
        assert_eq!(new.lookup("x").expect("untouched").name(), successor.name());
        context.commit(|| ()).expect("its authority stands");
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r37_an_id_can_be_started_in_the_new_generation_while_the_old_one_still_closes() {
    let application = open().await;
    let old = application.current();
    let door = Door::closed();
    let visited = Arc::clone(&door);
    let slow = Play::closing(move |_| {
        let visited = Arc::clone(&visited);
        async move {
            visited.pass().await;
            Ok(())
        }
    });
    old.registry().start("x", slow.object()).await.expect("started");
    let replacing = tokio::spawn({
        let application = application.clone();
        async move { application.replace().await }
    });
    door.reached().await;
    let new = application.current();
    assert_eq!((new.epoch().get(), old.is_open(), old.report().is_none()), (2, false, true));
    new.registry().start("x", Play::quiet().object()).await.expect("at once");
    let refused = old.registry().start("y", Play::quiet().object()).await;
    assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
    door.open();
    balanced(soon(replacing).await.expect("no panic").expect("replaced"));
    assert!(new.registry().lookup("x").is_some());
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r38_work_that_outlives_its_generation_publishes_nothing(kind) {
        let application = open().await;
        let play = Play::quiet();
        let generation = application.current();
        generation.registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        let request = OperationRequest::new("x", "plugin").and_then(|request| request.on_session("s"));
        let lease = generation.operations().reserve(request.expect("valid")).await.expect("free");
        soon(application.replace()).await.expect("replaced");
        let mut published = 0;
        let refused = context.commit(|| published += 1);
        let Err(CommitError::AuthorityRevoked { process, epoch, current }) = refused else { panic!("{refused:?}") };
        assert_eq!((process.as_str(), epoch.get(), current.map(|epoch| epoch.get())), ("x", 1, Some(2)));
        assert_eq!(published, 0);
        assert!(!lease.release(), "its lease is not there any more");
        assert_eq!(application.current().operations().count(), 0);
        end(&application).await;
        let refused = context.commit(|| published += 1);
        assert!(matches!(refused, Err(CommitError::AuthorityRevoked { current: None, .. })), "{refused:?}");
        assert_eq!(published, 0);
    }
}

/// The generation that the application opens after a failed one, on its own.
async fn opened_after(
    events: &mut Subscription,
    application: &Application,
    failed: &Generation,
) -> Generation {
    soon(async {
        // The clock moves on only while this waits: the next generation opens after a back-off.
        while let Some(heard) = events.next().await {
            let Heard::Event(event) = heard else { continue };
            if matches!(event.kind, EventKind::Opened { epoch } if epoch > failed.epoch()) {
                break;
            }
        }
        while application.current().epoch() <= failed.epoch() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    application.current()
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r42_when_the_registry_fails_its_processes_are_closed_and_the_next_epoch_opens(kind) {
        let application = open().await;
        let (failed, mut events) = (application.current(), application.events());
        let play = Play::quiet();
        let process = failed.registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        testkit::fail_registry(&failed, "the registry is out of order");
        let report = balanced(soon(failed.closed()).await.expect("from outside"));
        let CloseReason::Failed(why) = &report.reason else { panic!("{:?}", report.reason) };
        assert_eq!(&**why, "registry#1 failed: the registry is out of order");
        assert_eq!((report.closed, play.closes()), (1, 1));
        assert!(matches!(process.exit(), Some(ExitReason::Stopped)));
        assert!(context.commit(|| ()).is_err());
        assert_eq!((failed.registry().count(), failed.registry().lookup("x").is_none()), (0, true), "no id is leaked");
        let refused = failed.registry().start("y", Play::quiet().spec(kind)).await;
        assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
        let next = opened_after(&mut events, &application, &failed).await;
        assert_eq!(next.epoch().get(), 2);
        next.registry().start("x", Play::quiet().spec(kind)).await.expect("the same id, in the next epoch");
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r42_a_start_in_progress_when_the_registry_fails_settles_and_is_closed(kind) {
        let application = open().await;
        let (failed, mut events) = (application.current(), application.events());
        let (play, door) = Play::at_the_gate();
        let starting = tokio::spawn({
            let (registry, play) = (failed.registry(), Arc::clone(&play));
            async move { registry.start("x", play.spec(kind)).await }
        });
        door.reached().await;
        testkit::fail_registry(&failed, "out of order");
        while failed.is_open() {
            tokio::task::yield_now().await;
        }
        let waiting = tokio::spawn({
            let registry = failed.registry();
            async move { close(&registry).await }
        });
        door.open();
        let process = soon(starting).await.expect("no panic").expect("it was admitted");
        let report = balanced(soon(failed.closed()).await.expect("from outside"));
        assert_eq!((report.started, report.closed, play.closes()), (1, 1, 1));
        assert!(process.exit().is_some());
        assert!(Arc::ptr_eq(&soon(waiting).await.expect("no panic"), &report));
        opened_after(&mut events, &application, &failed).await;
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r42_a_registry_that_a_stranger_kills_or_stops_closes_its_generation() {
    for kill in [true, false] {
        let application = open().await;
        let (failed, mut events) = (application.current(), application.events());
        let play = Play::quiet();
        failed.registry().start("x", play.object()).await.expect("started");
        let actor = failed.registry().actor_ref().expect("open");
        if kill {
            actor.kill()
        } else {
            actor.stop(None)
        }
        let report = balanced(soon(failed.closed()).await.expect("from outside"));
        assert!(matches!(report.reason, CloseReason::Failed(_)), "{:?}", report.reason);
        assert_eq!((report.closed, play.closes(), failed.registry().count()), (1, 1, 0));
        assert_eq!(opened_after(&mut events, &application, &failed).await.epoch().get(), 2);
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r42_a_supervisor_that_a_stranger_kills_takes_its_processes_along_and_leaks_no_id() {
    for kind in [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor] {
        let application = open().await;
        let (failed, mut events) = (application.current(), application.events());
        let play = Play::quiet();
        let process = failed.registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        let registry = failed.registry().actor_ref().expect("open");
        registry.get_cell().try_get_supervisor().expect("linked").kill();
        let report = balanced(soon(failed.closed()).await.expect("from outside"));
        assert!(matches!(report.reason, CloseReason::Failed(_)), "{:?}", report.reason);
        soon(process.ended()).await;
        assert!(context.commit(|| ()).is_err());
        assert_eq!((report.started, failed.registry().count()), (1, 0));
        assert_eq!(opened_after(&mut events, &application, &failed).await.epoch().get(), 2);
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r42_a_supervisor_or_operations_actor_that_fails_closes_the_processes_too() {
    for fail in [testkit::fail_supervisor, testkit::fail_operations] {
        let application = open().await;
        let (failed, mut events) = (application.current(), application.events());
        let play = Play::quiet();
        failed.registry().start("x", play.object()).await.expect("started");
        fail(&failed, "out of order");
        let report = balanced(soon(failed.closed()).await.expect("from outside"));
        assert!(matches!(report.reason, CloseReason::Failed(_)), "{:?}", report.reason);
        assert_eq!((report.closed, play.closes(), failed.registry().count()), (1, 1, 0));
        opened_after(&mut events, &application, &failed).await;
        end(&application).await;
    }
}

/// Every handle of a generation that is over answers, at once, what its contract says.
async fn answers_closed(generation: &Generation) {
    let registry = generation.registry();
    let play = Play::quiet();
    let refused = soon(registry.start("new", play.object())).await;
    assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
    assert_eq!((play.starts(), play.closes()), (0, 0));
    assert!(registry.get::<Play>("x").is_none() && registry.get_actor::<Ask>("x").is_none());
    assert!(registry.lookup("x").is_none() && registry.list().is_empty());
    assert_eq!(registry.count(), 0);
    assert!(soon(registry.watch("x")).await.is_none());
    balanced(soon(registry.close()).await.expect("from outside"));
    balanced(soon(generation.close()).await.expect("from outside"));
    assert!(!generation.is_open() && generation.report().is_some());
    let request = OperationRequest::new("o", "plugin").expect("valid").without_exclusivity();
    assert!(soon(generation.operations().reserve(request)).await.is_err());
    assert_eq!(generation.operations().count(), 0);
    assert!(generation.runtime_store().get::<Shared>("shared").is_err());
    assert!(generation.tree().generations.is_empty());
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g12_handles_of_a_generation_that_is_over_answer_closed_and_never_hang(kind) {
        let application = open().await;
        let (old, play) = (application.current(), Play::quiet());
        let process = old.registry().start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        soon(application.replace()).await.expect("replaced");
        answers_closed(&old).await;
        assert!(!old.registry().remove("x", &process.identity()));
        assert!(matches!(soon(process.ended()).await, ExitReason::Stopped));
        assert!(matches!(soon(process.close()).await, ExitReason::Stopped));
        assert_eq!((process.state(), process.remove()), (None, false));
        let last = application.current();
        end(&application).await;
        answers_closed(&old).await;
        answers_closed(&last).await;
        assert!(matches!(soon(application.replace()).await, Err(tenure_actors::ReplaceError::ApplicationClosed)));
        assert_eq!(play.closes(), 1);
    }
}
