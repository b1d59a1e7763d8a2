//! Starting: R1 to R13.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_actors::{
    CloseFailure, EventKind, Heard, Limits, PanicText, ProcessKind, ProcessState, StartError, StartFailure,
};
use tokio::time::Instant;

use super::support::{Ask, Broken, Door, Play, end, open, open_within, soon};

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r01_a_process_is_started_once_and_found_under_its_id(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        let process = registry.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        assert_eq!((play.starts(), play.closes()), (1, 0));
        assert_eq!(process.state(), Some(ProcessState::Running));
        let found = registry.lookup("x").expect("registered");
        assert_eq!((found.name(), found.kind()), (process.name(), kind));
        let object = registry.get::<Play>("x");
        assert_eq!(object.is_some_and(|object| Arc::ptr_eq(&object, &play)), kind == ProcessKind::Object);
        let actor = registry.get_actor::<Ask>("x");
        assert_eq!(actor.is_some(), kind == ProcessKind::Actor);
        assert!(registry.get_actor::<String>("x").is_none(), "another message type is not found");
        let report = end(&application).await;
        assert_eq!((report.started, report.closed, play.closes()), (1, 1, 1));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r02_a_second_start_under_an_id_is_refused_and_touches_neither_process(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (first, second) = (Play::quiet(), Play::quiet());
        let process = registry.start("x", first.spec(kind)).await.expect("started");
        first.context().await;
        let refused = registry.start("x", second.spec(kind)).await;
        let Err(StartError::AlreadyExists { id, state }) = refused else { panic!("{refused:?}") };
        assert_eq!((id.as_str(), state), ("x", ProcessState::Running));
        assert_eq!((second.starts(), second.closes()), (0, 0));
        assert_eq!((first.starts(), first.closes()), (1, 0));
        assert_eq!(registry.lookup("x").expect("registered").name(), process.name());
        assert_eq!(Arc::strong_count(&second), 1, "the refused process is kept by nobody");
        end(&application).await;
        assert_eq!((second.starts(), second.closes()), (0, 0));
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r03_a_start_in_progress_refuses_the_same_id_at_once(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let starting = tokio::spawn({
            let (registry, play) = (registry.clone(), Arc::clone(&play));
            async move { registry.start("x", play.spec(kind)).await }
        });
        door.reached().await;
        let (second, asked) = (Play::quiet(), Instant::now());
        let refused = registry.start("x", second.spec(kind)).await;
        assert!(
            matches!(&refused, Err(StartError::AlreadyExists { state: ProcessState::Starting, .. })),
            "{refused:?}"
        );
        assert_eq!(asked.elapsed(), Duration::ZERO, "it did not wait for the first");
        assert_eq!((second.starts(), second.closes()), (0, 0));
        door.open();
        starting.await.expect("no panic").expect("started");
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r06_a_process_is_found_while_it_starts_and_its_own_methods_work_object() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.object()).await }
    });
    door.reached().await;
    let found = registry.get::<Play>("x").expect("reserved");
    assert!(Arc::ptr_eq(&found, &play));
    assert_eq!(found.starts(), 1, "a method of the plugin's own answers");
    assert_eq!(registry.lookup("x").and_then(|found| found.state()), Some(ProcessState::Starting));
    door.open();
    starting.await.expect("no panic").expect("started");
    assert!(Arc::ptr_eq(&registry.get::<Play>("x").expect("running"), &play));
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r06_a_process_is_found_while_it_starts_and_takes_messages_actor() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.spec(ProcessKind::Actor)).await }
    });
    door.reached().await;
    let early = registry.get_actor::<Ask>("x").expect("its mailbox is there");
    let echo = tokio::spawn(async move { ractor::call!(early, Ask::Echo, 7) });
    door.open();
    let process = starting.await.expect("no panic").expect("started");
    assert_eq!(echo.await.expect("no panic").expect("answered after its start"), 7);
    assert!(process.actor::<Ask>().is_some());
    end(&application).await;
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r07_a_start_at_the_gate_blocks_neither_lookup_nor_list_nor_another_start(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let starting = tokio::spawn({
            let (registry, play) = (registry.clone(), Arc::clone(&play));
            async move { registry.start("x", play.spec(kind)).await }
        });
        door.reached().await;
        let asked = Instant::now();
        assert!(registry.lookup("y").is_none());
        let other = Play::quiet();
        registry.start("y", other.spec(kind)).await.expect("started");
        let states: Vec<_> = registry.list().iter().map(|line| (line.id.to_string(), line.state)).collect();
        let expected = [("x".to_owned(), ProcessState::Starting), ("y".to_owned(), ProcessState::Running)];
        assert_eq!((states.as_slice(), registry.count()), (expected.as_slice(), 2));
        assert_eq!(asked.elapsed(), Duration::ZERO);
        assert!(!starting.is_finished());
        door.open();
        starting.await.expect("no panic").expect("started");
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r08_a_start_that_fails_answers_its_own_error_and_frees_the_id(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::broken(8);
        let failed = registry.start("x", play.spec(kind)).await;
        assert!(registry.lookup("x").is_none(), "free before the caller hears of it");
        let Err(StartError::StartFailed { id, kind: StartFailure::Error, source, cleanup: None }) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!((id.as_str(), source.downcast_ref::<Broken>()), ("x", Some(&Broken(8))));
        // An actor whose pre_start failed has no state that could be closed.
        assert_eq!((play.starts(), play.closes()), (1, usize::from(kind == ProcessKind::Object)));
        assert_eq!((registry.count(), registry.list().len()), (0, 0));
        let again = Play::quiet();
        registry.start("x", again.spec(kind)).await.expect("the id is free");
        let report = end(&application).await;
        assert_eq!((report.started, report.closed), (1, 1), "what never started is not counted");
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r09_an_error_of_the_clean_up_is_attached_and_does_not_replace_the_error_of_the_start() {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::scripted(|_| async { Err(Broken(9).into()) }, |_| async { Err(Broken(99).into()) });
    let failed = registry.start("x", play.object()).await;
    let Err(StartError::StartFailed { source, cleanup: Some(CloseFailure::Failed(cleanup)), .. }) = failed
    else {
        panic!("{failed:?}")
    };
    assert_eq!(source.downcast_ref::<Broken>(), Some(&Broken(9)));
    assert_eq!(cleanup.downcast_ref::<Broken>(), Some(&Broken(99)));
    assert_eq!(play.closes(), 1);
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r10_a_clean_up_that_hangs_is_given_up_at_its_bound_and_reported() {
    let application = open().await;
    let registry = application.current().registry();
    let mut events = application.events();
    let play = Play::scripted(|_| async { Err(Broken(10).into()) }, |_| std::future::pending());
    let asked = Instant::now();
    let failed = registry.start("x", play.object()).await;
    assert_eq!(asked.elapsed(), Limits::default().cleanup_bound);
    let Err(StartError::StartFailed { source, cleanup: Some(CloseFailure::TimedOut(bound)), .. }) = failed
    else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (source.downcast_ref::<Broken>(), bound),
        (Some(&Broken(10)), Limits::default().cleanup_bound)
    );
    assert!(registry.lookup("x").is_none());
    let mut reported = false;
    while let Some(Heard::Event(event)) = events.try_next() {
        reported |= matches!(&event.kind, EventKind::Failed { stage: "close", .. });
    }
    assert!(reported, "the abandoned close is an event");
    registry.start("x", Play::quiet().object()).await.expect("the id is free");
    end(&application).await;
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r11_a_start_that_panics_is_a_failed_start_and_harms_nobody_else(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let other = Play::quiet();
        registry.start("other", other.spec(kind)).await.expect("started");
        let play = Play::starting(|_| async { panic!("no such luck\nsecond line") });
        let failed = registry.start("x", play.spec(kind)).await;
        let Err(StartError::StartFailed { kind: StartFailure::Panic, source, .. }) = failed else {
            panic!("{failed:?}")
        };
        let text = source.downcast_ref::<PanicText>().expect("the text of the panic");
        assert_eq!(&*text.0, "no such luck");
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
        assert!(registry.lookup("x").is_none());
        assert!(registry.lookup("other").is_some());
        assert_eq!(other.closes(), 0);
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        assert!(application.current().is_open());
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r12_a_start_that_never_returns_is_cut_off_at_its_bound(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let asked = Instant::now();
        let failed = registry.start("x", play.spec(kind).start_bound(Duration::from_millis(700))).await;
        let Err(StartError::StartTimedOut { id, limit, cleanup: None }) = failed else { panic!("{failed:?}") };
        assert_eq!((id.as_str(), limit, asked.elapsed()), ("x", Duration::from_millis(700), limit));
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
        assert!(registry.lookup("x").is_none());
        // What comes later comes to nothing.
        door.open();
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        let late = play.context().await;
        assert!(late.commit(|| ()).is_err(), "it has no authority");
        assert!(!late.remove_self(), "and no id");
        assert!(registry.lookup("x").is_some());
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r12_a_start_that_returns_ok_after_its_bound_is_closed_and_not_registered(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let bound = Duration::from_millis(50);
        // As if it had blocked its thread: when it lets go of it, its start has succeeded and its time is over.
        let play = Play::starting(move |_| async move {
            let context = std::pin::pin!(tokio::time::advance(bound * 2));
            let _ = futures_util::poll!(context);
            Ok(())
        });
        let late = registry.start("x", play.spec(kind).start_bound(bound)).await;
        assert!(matches!(&late, Err(StartError::StartTimedOut { limit, .. }) if *limit == bound), "{late:?}");
        assert!(registry.lookup("x").is_none());
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
        assert!(play.context().await.commit(|| ()).is_err());
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        let report = end(&application).await;
        assert_eq!((report.started, report.closed), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r12_the_bound_of_a_start_is_that_of_the_generation_unless_the_process_names_one() {
    let limits = Limits { start_bound: Duration::from_millis(30), ..Limits::default() };
    let application = open_within(limits).await;
    let (play, _door) = Play::at_the_gate();
    let failed = application.current().registry().start("x", play.object()).await;
    assert!(
        matches!(&failed, Err(StartError::StartTimedOut { limit, .. }) if limit.as_millis() == 30),
        "{failed:?}"
    );
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reg_r13_nobody_finds_a_process_after_its_failed_start_was_answered() {
    let application = open().await;
    let registry = application.current().registry();
    for round in 0..50 {
        let id = format!("x{round}");
        let answered = Arc::new(AtomicBool::new(false));
        let looking = tokio::spawn({
            let (registry, id, answered) = (registry.clone(), id.clone(), Arc::clone(&answered));
            async move {
                loop {
                    let was_answered = answered.load(Ordering::SeqCst);
                    let seen = registry.get::<Play>(&id).is_some();
                    assert!(!(was_answered && seen), "found after the error was answered, round {round}");
                    if was_answered {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        let failed = registry.start(id.as_str(), Play::broken(13).object()).await;
        answered.store(true, Ordering::SeqCst);
        assert!(registry.get::<Play>(&id).is_none());
        assert!(matches!(failed, Err(StartError::StartFailed { .. })));
        soon(looking).await.expect("no panic");
    }
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r13_a_process_is_found_during_its_clean_up_at_most_and_never_after() {
    let application = open().await;
    let registry = application.current().registry();
    let door = Door::closed();
    let visited = Arc::clone(&door);
    let play = Play::scripted(
        |_| async { Err(Broken(13).into()) },
        move |_| {
            let visited = Arc::clone(&visited);
            async move {
                visited.pass().await;
                Ok(())
            }
        },
    );
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.object()).await }
    });
    door.reached().await;
    let during = registry.get::<Play>("x").expect("its id is free only after the clean-up");
    assert!(Arc::ptr_eq(&during, &play));
    let taken = registry.start("x", Play::quiet().object()).await;
    assert!(matches!(taken, Err(StartError::AlreadyExists { .. })), "{taken:?}");
    door.open();
    assert!(starting.await.expect("no panic").is_err());
    assert!(registry.get::<Play>("x").is_none());
    end(&application).await;
}
