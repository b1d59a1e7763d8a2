//! Removal: R14 to R21.

use std::sync::Arc;

use tenure_actors::{
    ExitReason, Limits, ManagedProcess, ProcessContext, ProcessIdentity, ProcessKind, ProcessResult,
    ProcessSpec, ProcessState, Registry, ServiceSpec, StartError, rules::Restart,
};

use super::support::{Broken, Door, Play, end, open, open_within, soon};

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r14_a_removed_process_is_found_no_more_and_its_close_is_not_called(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        let process = registry.start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        assert!(registry.remove("x", &process.identity()));
        assert!(registry.lookup("x").is_none());
        assert_eq!((registry.count(), registry.list().len(), process.state()), (0, 0, None));
        assert!(context.commit(|| ()).is_err(), "its authority ended with it");
        if kind == ProcessKind::Object {
            assert!(matches!(soon(process.ended()).await, ExitReason::Removed));
        }
        assert_eq!(play.closes(), 0);
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free at once");
        end(&application).await;
        assert_eq!(play.closes(), usize::from(kind != ProcessKind::Object), "what ran on was stopped with the rest");
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r14_an_object_is_removed_by_its_own_identity() {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::quiet();
    registry.start("x", play.object()).await.expect("started");
    assert!(registry.remove("x", &ProcessIdentity::of_object(&play)));
    assert!(registry.get::<Play>("x").is_none());
    assert_eq!(play.closes(), 0);
    let report = end(&application).await;
    assert_eq!((report.started, report.ended, report.closed), (1, 1, 0));
    assert_eq!(play.closes(), 0);
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r15_an_old_worker_cannot_remove_the_process_that_has_its_id_now(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (old, new) = (Play::quiet(), Play::quiet());
        let first = registry.start("x", old.spec(kind)).await.expect("started");
        let late = old.context().await;
        assert!(registry.remove("x", &first.identity()));
        let second = registry.start("x", new.spec(kind)).await.expect("started");
        let context = new.context().await;
        assert!(!registry.remove("x", &first.identity()));
        assert!(!registry.remove("x", &ProcessIdentity::of_object(&old)));
        assert!(!late.remove_self());
        assert!(!first.remove());
        assert_eq!(registry.lookup("x").expect("untouched").name(), second.name());
        assert_eq!((second.state(), new.closes()), (Some(ProcessState::Running), 0));
        context.commit(|| ()).expect("its authority stands");
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r16_removing_an_unknown_id_or_twice_is_false_and_no_error(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let process = registry.start("x", Play::quiet().spec(kind)).await.expect("started");
        assert!(!registry.remove("unknown", &process.identity()));
        assert!(registry.lookup("x").is_some());
        assert!(registry.remove("x", &process.identity()));
        assert!(!registry.remove("x", &process.identity()));
        assert_eq!(registry.count(), 0, "given up once");
        end(&application).await;
    }
}

/// Two of them may be equal and not the same.
#[derive(PartialEq, Eq, Debug)]
struct Valued(u32);

impl ManagedProcess for Valued {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r17_an_equal_object_that_is_not_the_same_removes_nothing() {
    let application = open().await;
    let registry = application.current().registry();
    let (own, equal) = (Arc::new(Valued(17)), Arc::new(Valued(17)));
    assert_eq!(own, equal);
    registry.start("x", ProcessSpec::object("valued", Arc::clone(&own))).await.expect("started");
    assert!(!registry.remove("x", &ProcessIdentity::of_object(&equal)));
    assert!(Arc::ptr_eq(&registry.get::<Valued>("x").expect("still there"), &own));
    assert!(registry.remove("x", &ProcessIdentity::of_object(&own)));
    end(&application).await;
}

async fn at_the_gate(
    registry: &Registry,
    kind: ProcessKind,
    outcome: Result<(), Broken>,
) -> (Arc<Play>, Arc<Door>, tokio::task::JoinHandle<Result<tenure_actors::ProcessHandle, StartError>>) {
    let (play, door) = Play::at_the_gate_then(outcome);
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.spec(kind)).await }
    });
    door.reached().await;
    (play, door, starting)
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r18_a_removal_during_the_start_is_honoured_when_the_start_has_succeeded(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door, starting) = at_the_gate(&registry, kind, Ok(())).await;
        let context = play.context().await;
        assert!(context.remove_self());
        assert!(!context.remove_self(), "requested once");
        assert_eq!(registry.lookup("x").and_then(|found| found.state()), Some(ProcessState::Starting));
        assert_eq!(registry.count(), 1);
        door.open();
        let process = starting.await.expect("no panic").expect("the start itself succeeded");
        assert!(registry.lookup("x").is_none());
        assert_eq!((registry.count(), process.state(), play.closes()), (0, None, 0));
        assert!(context.commit(|| ()).is_err());
        if kind == ProcessKind::Object {
            assert!(matches!(soon(process.ended()).await, ExitReason::Removed));
        }
        assert_eq!(play.closes(), 0);
        end(&application).await;
        assert_eq!(play.closes(), usize::from(kind != ProcessKind::Object));
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r18_a_function_that_removes_itself_first_of_all_has_started_already() {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::starting(|context| async move {
        assert!(context.remove_self());
        Ok(())
    });
    let process = registry.start("x", play.spec(ProcessKind::Function)).await.expect("started");
    play.context().await;
    assert_eq!((registry.count(), process.state(), play.closes()), (0, None, 0));
    end(&application).await;
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r19_an_id_whose_removal_was_requested_stays_reserved_until_the_start_settles(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door, starting) = at_the_gate(&registry, kind, Ok(())).await;
        assert!(play.context().await.remove_self());
        let second = Play::quiet();
        let refused = registry.start("x", second.spec(kind)).await;
        assert!(
            matches!(&refused, Err(StartError::AlreadyExists { state: ProcessState::Starting, .. })),
            "{refused:?}"
        );
        assert_eq!((second.starts(), second.closes()), (0, 0));
        door.open();
        starting.await.expect("no panic").expect("started");
        registry.start("x", second.spec(kind)).await.expect("free as soon as the start was answered");
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r20_a_start_that_fails_after_its_removal_was_requested_is_cleaned_up_once(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door, starting) = at_the_gate(&registry, kind, Err(Broken(20))).await;
        let context = play.context().await;
        assert!(context.remove_self());
        door.open();
        let failed = starting.await.expect("no panic");
        let Err(StartError::StartFailed { source, .. }) = failed else { panic!("{failed:?}") };
        assert_eq!(source.downcast_ref::<Broken>(), Some(&Broken(20)));
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
        assert_eq!((registry.count(), registry.list().len()), (0, 0), "given up once");
        assert!(!context.remove_self());
        registry.start("x", Play::quiet().spec(kind)).await.expect("the id is free");
        assert_eq!(registry.count(), 1);
        end(&application).await;
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r21_a_removal_with_a_foreign_identity_during_the_start_is_ignored(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let stranger = registry.start("y", Play::quiet().spec(kind)).await.expect("started");
        let (play, door, starting) = at_the_gate(&registry, kind, Ok(())).await;
        assert!(!registry.remove("x", &stranger.identity()));
        assert!(!registry.remove("x", &ProcessIdentity::of_object(&Play::quiet())));
        door.open();
        let process = starting.await.expect("no panic").expect("started");
        assert_eq!(process.state(), Some(ProcessState::Running));
        assert_eq!(registry.lookup("x").expect("registered").name(), process.name());
        assert!(registry.lookup("y").is_some());
        play.context().await.commit(|| ()).expect("its authority stands");
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_a_service_that_removes_itself_gives_up_no_id_of_the_registry() {
    let application = open_within(Limits { max_processes: Some(1), ..Limits::default() }).await;
    let generation = application.current();
    let play = Play::quiet();
    let served = Arc::clone(&play);
    let service = ServiceSpec::new("s", move || served.object()).restart(Restart::Temporary);
    let process = generation.services().start(service).await.expect("started");
    assert!(play.context().await.remove_self());
    soon(process.ended()).await;
    let registry = generation.registry();
    assert_eq!(registry.count(), 0);
    registry.start("x", Play::quiet().object()).await.expect("there is room for one");
    assert_eq!(registry.count(), 1);
    end(&application).await;
}
