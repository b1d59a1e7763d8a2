//! The guarantees G1 to G13 in their plainest form; the scenarios show their corners.

use std::sync::Arc;

use tenure_actors::{CommitError, ExitReason, ProcessContext, ProcessIdentity, ProcessKind, StartError};

use super::support::{Ask, Broken, Door, Play, close, end, open, soon};

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g01_one_process_is_admitted_for_an_id_until_it_has_ended(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let first = Play::quiet();
        let process = registry.start("x", first.spec(kind)).await.expect("started");
        first.context().await;
        let refused = registry.start("x", Play::quiet().spec(kind)).await;
        assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
        soon(process.close()).await;
        // Whoever sees the end finds the id free.
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g02_an_id_is_reserved_before_the_start_runs(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::starting(|context: ProcessContext| async move {
            let found = context.generation().registry().lookup("x");
            if found.is_some_and(|found| found.name() == context.handle().name()) {
                Ok(())
            } else {
                Err(Broken(2).into())
            }
        });
        let process = registry.start("x", play.spec(kind)).await.expect("it found itself");
        play.context().await;
        assert!(process.exit().is_none());
        assert_eq!(end(&application).await.closed, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn reg_g03_lookups_while_starting_and_running_find_the_same_concrete_object() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.object()).await }
    });
    door.reached().await;
    let during = registry.get::<Play>("x").expect("reserved");
    door.open();
    let process = starting.await.expect("no panic").expect("started");
    let after = registry.get::<Play>("x").expect("running");
    assert!(Arc::ptr_eq(&during, &play) && Arc::ptr_eq(&after, &play));
    assert!(Arc::ptr_eq(&process.object::<Play>().expect("an object"), &play));
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_g03_an_actor_is_found_as_the_same_actor_while_it_starts_and_runs() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.spec(ProcessKind::Actor)).await }
    });
    door.reached().await;
    let during = registry.get_actor::<Ask>("x").expect("its mailbox is there");
    door.open();
    let process = starting.await.expect("no panic").expect("started");
    let after = registry.get_actor::<Ask>("x").expect("running");
    assert_eq!(during.get_id(), after.get_id());
    assert_eq!(process.actor::<Ask>().map(|actor| actor.get_id()), Some(after.get_id()));
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g04_removal_takes_the_id_and_the_identity(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let one = registry.start("a", Play::quiet().spec(kind)).await.expect("started");
        let two = registry.start("b", Play::quiet().spec(kind)).await.expect("started");
        assert!(!registry.remove("a", &two.identity()), "another identity");
        assert!(!registry.remove("b", &one.identity()), "another id");
        assert_eq!(registry.count(), 2);
        assert!(registry.remove("a", &one.identity()));
        assert!(registry.lookup("a").is_none() && registry.lookup("b").is_some());
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g05_normal_removal_never_calls_close(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        registry.start("x", play.spec(kind)).await.expect("started");
        assert!(play.context().await.remove_self());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(play.closes(), 0);
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_g05_removal_of_an_object_never_calls_close_not_even_at_the_close_of_its_generation() {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::quiet();
    let process = registry.start("x", play.object()).await.expect("started");
    assert!(registry.remove("x", &ProcessIdentity::of_object(&play)));
    assert!(matches!(soon(process.ended()).await, ExitReason::Removed));
    let report = end(&application).await;
    assert_eq!((play.closes(), report.ended), (0, 1));
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_g06_a_failed_start_leaves_nothing_behind_and_surfaces_its_error(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::broken(6);
        let failed = registry.start("x", play.spec(kind)).await.expect_err("it fails");
        assert_eq!(failed.to_string(), "process \"x\" failed to start: broken 6");
        let StartError::StartFailed { source, .. } = failed else { panic!("{failed:?}") };
        assert_eq!(source.downcast_ref::<Broken>(), Some(&Broken(6)));
        assert_eq!((registry.count(), registry.list().len()), (0, 0));
        assert!(play.context().await.commit(|| ()).is_err());
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_g07_a_removal_during_the_start_is_honoured_after_it(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::starting(|context: ProcessContext| async move {
            assert!(context.remove_self());
            assert!(context.generation().registry().lookup("x").is_some(), "not before");
            Ok(())
        });
        registry.start("x", play.spec(kind)).await.expect("started");
        assert!(registry.lookup("x").is_none());
        assert_eq!(play.closes(), 0);
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g08_close_refuses_closes_isolates_and_is_idempotent(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (good, bad) = (Play::quiet(), Play::closing(|_| async { Err(Broken(8).into()) }));
        registry.start("good", good.spec(kind)).await.expect("started");
        registry.start("bad", bad.spec(kind)).await.expect("started");
        good.context().await;
        bad.context().await;
        let report = close(&registry).await;
        assert_eq!((report.closed, report.failed.len()), (1, 1));
        assert!(Arc::ptr_eq(&report, &close(&registry).await));
        assert_eq!((good.closes(), bad.closes()), (1, 1));
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g09_nothing_starts_after_close(kind) {
        let application = open().await;
        let registry = application.current().registry();
        close(&registry).await;
        for _ in 0..3 {
            let play = Play::quiet();
            let refused = registry.start("x", play.spec(kind)).await;
            assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
            assert_eq!((play.starts(), play.closes()), (0, 0));
        }
        assert_eq!(end(&application).await.started, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn reg_g10_calls_of_the_plugins_own_methods_are_not_serialised() {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::quiet();
    registry.start("x", play.object()).await.expect("started");
    // Two callers are inside the same object together.
    let door = Door::closed();
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (registry, door) = (registry.clone(), Arc::clone(&door));
            tokio::spawn(async move {
                let found = registry.get::<Play>("x").expect("registered");
                door.pass().await;
                found.starts()
            })
        })
        .collect();
    door.reached_by(2).await;
    door.open();
    for caller in callers {
        assert_eq!(caller.await.expect("no panic"), 1);
    }
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_g11_ids_share_one_namespace_across_plugins_and_kinds() {
    let application = open().await;
    let mut taken = None;
    for kind in [ProcessKind::Object, ProcessKind::Actor, ProcessKind::Function] {
        // Each plugin asks for the registry itself.
        let answer = application.current().registry().start("x", Play::quiet().spec(kind)).await;
        match taken.is_none() {
            true => taken = Some(answer.expect("started")),
            false => assert!(matches!(answer, Err(StartError::AlreadyExists { .. })), "{answer:?}"),
        }
    }
    assert_eq!(application.current().registry().count(), 1);
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g12_nothing_is_restored_into_the_next_generation(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        soon(application.replace()).await.expect("replaced");
        let registry = application.current().registry();
        assert_eq!((registry.count(), registry.list().len()), (0, 0));
        assert_eq!((play.starts(), play.closes()), (1, 1), "closed, and not started again");
        assert_eq!(end(&application).await.started, 0);
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_after_close_a_late_worker_commits_nothing(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        registry.start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        close(&registry).await;
        let mut committed = false;
        let refused = context.commit(|| committed = true);
        let Err(CommitError::AuthorityRevoked { current, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((committed, current.map(|epoch| epoch.get())), (false, Some(1)), "the generation goes on");
        end(&application).await;
    }
}
