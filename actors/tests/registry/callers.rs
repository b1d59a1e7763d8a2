//! Callers that go away and owners that crash: R40 and R41.

use std::sync::Arc;

use futures_util::FutureExt;
use tenure_actors::{
    ExitReason, KillReason, ProcessHandle, ProcessKind, ProcessSpec, ProcessState, RegistryMessage,
    StartError, StartFailure,
};

use super::support::{Ask, Broken, Door, Play, end, open, soon};

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r40_a_start_whose_caller_goes_away_still_registers_the_process(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let calling = tokio::spawn({
            let (registry, play) = (registry.clone(), Arc::clone(&play));
            async move { registry.start("x", play.spec(kind)).await }
        });
        door.reached().await;
        calling.abort();
        assert!(calling.await.expect_err("aborted").is_cancelled());
        assert_eq!(registry.lookup("x").and_then(|found| found.state()), Some(ProcessState::Starting));
        door.open();
        soon(async {
            while registry.lookup("x").and_then(|found| found.state()) != Some(ProcessState::Running) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        play.context().await.commit(|| ()).expect("its authority stands");
        assert_eq!((play.starts(), play.closes()), (1, 0));
        let report = end(&application).await;
        assert_eq!((report.started, report.closed, play.closes()), (1, 1, 1));
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r40_a_failing_start_whose_caller_goes_away_is_still_cleaned_up(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate_then(Err(Broken(40)));
        let calling = tokio::spawn({
            let (registry, play) = (registry.clone(), Arc::clone(&play));
            async move { registry.start("x", play.spec(kind)).await }
        });
        door.reached().await;
        let process = registry.lookup("x").expect("reserved");
        calling.abort();
        door.open();
        assert!(matches!(soon(process.ended()).await, ExitReason::NeverStarted));
        assert!(registry.lookup("x").is_none());
        assert_eq!((registry.count(), play.closes()), (0, usize::from(kind == ProcessKind::Object)));
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r40_a_process_outlives_the_caller_that_started_it(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        let calling = tokio::spawn({
            let (registry, play) = (registry.clone(), Arc::clone(&play));
            async move {
                let process = registry.start("x", play.spec(kind)).await.expect("started");
                std::future::pending::<ProcessHandle>().await;
                process
            }
        });
        let context = play.context().await;
        while registry.lookup("x").and_then(|found| found.state()) != Some(ProcessState::Running) {
            tokio::task::yield_now().await;
        }
        calling.abort();
        assert!(calling.await.expect_err("aborted").is_cancelled());
        assert!(registry.lookup("x").is_some());
        assert!(!context.is_cancelled());
        context.commit(|| ()).expect("its authority stands");
        assert_eq!(play.closes(), 0);
        end(&application).await;
    }
}

/// The kernel's own actor above a plugin's; ractor shows it to whoever asks.
fn above(process: &ProcessHandle) -> ractor::ActorCell {
    process.actor::<Ask>().expect("an actor").get_cell().try_get_supervisor().expect("linked")
}

#[tokio::test(start_paused = true)]
async fn reg_r41_a_stranger_that_ends_the_wrapper_of_an_actor_ends_the_actor_and_tells_who_waits() {
    for kill in [true, false] {
        let application = open().await;
        let registry = application.current().registry();
        let process = registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
        let (actor, wrapper) = (process.actor::<Ask>().expect("an actor"), above(&process));
        if kill {
            wrapper.kill()
        } else {
            wrapper.stop(None)
        }
        let exit = soon(process.ended()).await;
        assert!(matches!(exit, ExitReason::Killed(KillReason::Stranger)), "{exit:?}");
        assert_eq!((registry.count(), process.state()), (0, None));
        soon(actor.wait(None)).await.expect("gone as well");
        registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("the id is free");
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r41_an_actor_that_leaves_its_supervisor_is_still_found_stopped_and_killed() {
    let application = open().await;
    let registry = application.current().registry();
    let process = registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
    let actor = process.actor::<Ask>().expect("an actor");
    actor.get_cell().unlink(above(&process));
    assert!(registry.lookup("x").is_some());
    let report = end(&application).await;
    assert_eq!(report.started, 1);
    soon(actor.wait(None)).await.expect("gone");
    assert!(process.exit().is_some());
}

/// How a process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    Fails,
    Panics,
    IsKilled,
    IsKilledInAHandler,
}

const CRASHES: [Crash; 4] = [Crash::Fails, Crash::Panics, Crash::IsKilled, Crash::IsKilledInAHandler];

impl Crash {
    async fn happen(self, process: &ProcessHandle) {
        let actor = process.actor::<Ask>().expect("an actor");
        match self {
            Self::Fails => actor.cast(Ask::Fail(41)).expect("it runs"),
            Self::Panics => actor.cast(Ask::Panic("out of luck")).expect("it runs"),
            Self::IsKilled => actor.kill(),
            Self::IsKilledInAHandler => {
                let door = Door::closed();
                actor.cast(Ask::Wait(Arc::clone(&door))).expect("it runs");
                door.reached().await;
                actor.kill();
            }
        }
    }

    fn is_told_by(self, exit: &ExitReason) -> bool {
        match (self, exit) {
            (Self::Fails, ExitReason::Failed(error)) => error.downcast_ref::<Broken>() == Some(&Broken(41)),
            (Self::Panics, ExitReason::Panicked(text)) => &**text == "out of luck",
            (Self::IsKilled | Self::IsKilledInAHandler, ExitReason::Killed(KillReason::Stranger)) => true,
            _ => false,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r41_everybody_who_waits_for_an_actor_that_crashes_gets_an_answer() {
    for crash in CRASHES {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        let process = registry.start("x", play.spec(ProcessKind::Actor)).await.expect("started");
        let ended = tokio::spawn({
            let process = process.clone();
            async move { process.ended().await }
        });
        let watched = tokio::spawn({
            let registry = registry.clone();
            async move { registry.watch("x").await }
        });
        let asked = tokio::spawn({
            let actor = registry.actor_ref().expect("open");
            let id = process.id().clone();
            async move { actor.call(|reply| RegistryMessage::Watch { id, reply }, None).await }
        });
        tokio::task::yield_now().await;
        crash.happen(&process).await;
        let ended = soon(ended).await.expect("no panic");
        let watched = soon(watched).await.expect("no panic").expect("it was there");
        let asked =
            soon(asked).await.expect("no panic").expect("sent").expect("answered").expect("it was there");
        for exit in [ended, watched, asked, process.exit().expect("ended")] {
            assert!(crash.is_told_by(&exit), "{crash:?} was told as {exit:?}");
            assert!(exit.is_abnormal());
        }
        assert!(registry.lookup("x").is_none() && registry.count() == 0, "the entry is removed");
        assert!(play.context().await.commit(|| ()).is_err());
        assert_eq!(play.closes(), 0);
        registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("the id is free");
        let report = end(&application).await;
        assert_eq!((report.started, report.ended, report.closed), (2, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r41_an_actor_that_crashes_removes_its_own_entry_and_not_that_of_its_successor() {
    let application = open().await;
    let registry = application.current().registry();
    let first = registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
    assert!(first.remove());
    let second = registry.start("x", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
    Crash::Panics.happen(&first).await;
    soon(first.ended()).await;
    assert_eq!(registry.lookup("x").expect("untouched").name(), second.name());
    assert_eq!(registry.count(), 1);
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r41_a_function_that_fails_or_panics_is_told_to_those_who_wait() {
    let application = open().await;
    let registry = application.current().registry();
    for panics in [false, true] {
        let door = Door::closed();
        let visited = Arc::clone(&door);
        let body = ProcessSpec::function("short", move |_| async move {
            visited.pass().await;
            if panics {
                panic!("out of luck");
            }
            Err(Broken(41).into())
        });
        let process = registry.start("x", body).await.expect("started");
        let watched = tokio::spawn({
            let registry = registry.clone();
            async move { registry.watch("x").await }
        });
        door.reached().await;
        tokio::task::yield_now().await;
        door.open();
        let exit = soon(watched).await.expect("no panic").expect("it was there");
        let crash = if panics { Crash::Panics } else { Crash::Fails };
        assert!(crash.is_told_by(&exit) && crash.is_told_by(&soon(process.ended()).await), "{exit:?}");
        assert_eq!(registry.count(), 0);
    }
    let report = end(&application).await;
    assert_eq!((report.started, report.ended), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn reg_r41_an_actor_that_is_killed_while_it_starts_is_a_failed_start() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, play) = (registry.clone(), Arc::clone(&play));
        async move { registry.start("x", play.spec(ProcessKind::Actor)).await }
    });
    door.reached().await;
    let waiting = registry.lookup("x").expect("reserved");
    registry.get_actor::<Ask>("x").expect("its mailbox is there").kill();
    let failed = soon(starting).await.expect("no panic");
    let Err(StartError::StartFailed { kind, .. }) = failed else { panic!("{failed:?}") };
    assert!(matches!(kind, StartFailure::Error | StartFailure::Killed), "{kind:?}");
    assert!(matches!(soon(waiting.ended()).await, ExitReason::NeverStarted));
    assert_eq!(registry.count(), 0);
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r41_those_who_wait_for_a_process_get_an_answer_when_its_generation_closes() {
    let application = open().await;
    let registry = application.current().registry();
    let process = registry.start("x", Play::quiet().object()).await.expect("started");
    let watched = tokio::spawn({
        let registry = registry.clone();
        async move { registry.watch("x").await }
    });
    let actor = registry.actor_ref().expect("open");
    let id = process.id().clone();
    let asked =
        tokio::spawn(async move { actor.call(|reply| RegistryMessage::Watch { id, reply }, None).await });
    tokio::task::yield_now().await;
    end(&application).await;
    assert!(matches!(soon(watched).await.expect("no panic"), Some(ExitReason::Stopped)));
    let asked = soon(asked).await.expect("no panic").expect("sent").expect("answered");
    assert!(matches!(asked, Some(ExitReason::Stopped)));
}

/// Not where its caller happens to be, which may be gone at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reg_a_process_lives_on_the_runtime_of_its_generation_whoever_starts_it() {
    let application = open().await;
    for kind in [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor] {
        let (play, registry) = (Play::quiet(), application.current().registry());
        let spec = play.spec(kind);
        let guest = std::thread::spawn(move || {
            let another = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            another.block_on(registry.start("x", spec))
        });
        let process = guest.join().expect("no panic").expect("started");
        play.context().await.commit(|| ()).expect("it is alive");
        assert!(matches!(soon(process.close()).await, ExitReason::Stopped));
    }
    let (play, registry) = (Play::quiet(), application.current().registry());
    let spec = play.spec(ProcessKind::Function);
    let guest = std::thread::spawn(move || registry.start("x", spec).now_or_never().expect("at once"));
    guest.join().expect("no panic").expect("started, without a runtime");
    play.context().await.commit(|| ()).expect("it is alive");
    end(&application).await;
}
