//! What a process may ask for from inside itself: R33 and R34. Nothing waits for its own end.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_actors::{
    Application, CloseError, ExitReason, ProcessContext, ProcessKind, ProcessState, ReplaceError, StartError,
};
use tokio::time::Instant;

use super::support::{Ask, Door, Play, close, end, is_revoked, open, soon};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    CloseRegistry,
    CloseGeneration,
    Replace,
    CloseApplication,
}

const WISHES: [Wish; 4] = [Wish::CloseRegistry, Wish::CloseGeneration, Wish::Replace, Wish::CloseApplication];

/// Asks, and answers the epoch that cannot be waited for from here.
async fn ask(wish: Wish, context: &ProcessContext, application: &Application) -> Option<u64> {
    let inside = |error| match error {
        CloseError::Inside { epoch } => Some(epoch.get()),
        CloseError::RuntimeEnded { .. } => None,
    };
    match wish {
        Wish::CloseRegistry => context.generation().registry().close().await.err().and_then(inside),
        Wish::CloseGeneration => context.generation().close().await.err().and_then(inside),
        Wish::CloseApplication => application.close().await.err().and_then(inside),
        Wish::Replace => match application.replace().await {
            Err(ReplaceError::Close(error)) => inside(error),
            _ => None,
        },
    }
}

type Answers = Arc<Mutex<Vec<(Wish, Option<u64>)>>>;

/// A script that asks and notes the answer.
fn asker(
    wish: Wish,
    application: &Application,
) -> (
    Answers,
    impl Fn(ProcessContext) -> futures_util::future::BoxFuture<'static, tenure_actors::ProcessResult> + use<>,
) {
    let answers = Answers::default();
    let (noted, application) = (Arc::clone(&answers), application.clone());
    let script = move |context: ProcessContext| {
        let (noted, application) = (Arc::clone(&noted), application.clone());
        let asking: futures_util::future::BoxFuture<'static, tenure_actors::ProcessResult> =
            Box::pin(async move {
                let answer = ask(wish, &context, &application).await;
                noted.lock().push((wish, answer));
                Ok(())
            });
        asking
    };
    (answers, script)
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r33_a_process_that_closes_or_replaces_from_inside_its_start_does_not_wait_for_itself(kind) {
        for wish in WISHES {
            let application = open().await;
            let registry = application.current().registry();
            let (answers, script) = asker(wish, &application);
            let (play, began) = (Play::starting(script), Instant::now());
            let process = registry.start("x", play.spec(kind)).await.expect("it was admitted, and its start succeeded");
            soon(process.ended()).await;
            assert_eq!(*answers.lock(), [(wish, Some(1))]);
            // Told to stop, it ends by itself: nothing had to be killed.
            assert_eq!((play.closes(), began.elapsed()), (1, Duration::ZERO), "{wish:?}");
            assert!(play.context().await.commit(|| ()).is_err());
            assert_eq!(application.current().epoch().get(), if wish == Wish::Replace { 2 } else { 1 });
            end(&application).await;
            assert_eq!(play.closes(), 1);
        }
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r33_a_process_that_closes_or_replaces_from_inside_its_close_does_not_wait_for_itself(kind) {
        for wish in WISHES {
            let application = open().await;
            let registry = application.current().registry();
            let (answers, script) = asker(wish, &application);
            let (play, began) = (Play::closing(script), Instant::now());
            registry.start("x", play.spec(kind)).await.expect("started");
            play.context().await;
            close(&registry).await;
            assert_eq!(*answers.lock(), [(wish, Some(1))]);
            assert_eq!((play.closes(), began.elapsed()), (1, Duration::ZERO), "{wish:?}");
            end(&application).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r33_an_actor_that_closes_or_replaces_from_inside_a_handler_does_not_wait_for_itself() {
    for wish in WISHES {
        let application = open().await;
        let registry = application.current().registry();
        let (answers, script) = asker(wish, &application);
        let (play, began) = (Play::quiet(), Instant::now());
        let process = registry.start("x", play.spec(ProcessKind::Actor)).await.expect("started");
        let actor = process.actor::<Ask>().expect("an actor");
        let run = Ask::Run(Box::new(move |context| {
            Box::pin(async move { script(context).await.expect("it answers nothing else") })
        }));
        actor.cast(run).expect("it runs");
        soon(process.ended()).await;
        assert_eq!(*answers.lock(), [(wish, Some(1))]);
        assert_eq!((play.closes(), began.elapsed()), (1, Duration::ZERO));
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r33_a_process_of_a_replaced_generation_that_closes_the_application_does_not_wait_for_itself() {
    let application = open().await;
    let registry = application.current().registry();
    let (answers, script) = asker(Wish::CloseApplication, &application);
    let play = Play::closing(script);
    let process = registry.start("x", play.object()).await.expect("started");
    let began = Instant::now();
    soon(application.replace()).await.expect("replaced");
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody's patience was spent");
    assert!(matches!(process.exit(), Some(ExitReason::Stopped)), "{:?}", process.exit());
    assert_eq!(*answers.lock(), [(Wish::CloseApplication, Some(1))]);
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r33_a_process_that_starts_its_own_id_again_is_told_that_it_exists(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (second, seen) = (Play::quiet(), Arc::new(Mutex::new(None)));
        let play = Play::starting({
            let (second, seen) = (Arc::clone(&second), Arc::clone(&seen));
            move |context| {
                let (second, seen) = (Arc::clone(&second), Arc::clone(&seen));
                async move {
                    let again = context.generation().registry().start("x", second.object()).await;
                    let Err(StartError::AlreadyExists { state, .. }) = again else { panic!("{again:?}") };
                    *seen.lock() = Some(state);
                    Ok(())
                }
            }
        });
        registry.start("x", play.spec(kind)).await.expect("started");
        soon(async {
            while seen.lock().is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let report = end(&application).await;
        // A function has no start that could be in progress.
        let expected = if kind == ProcessKind::Function { ProcessState::Running } else { ProcessState::Starting };
        assert_eq!((*seen.lock(), report.started), (Some(expected), 1));
        assert_eq!((second.starts(), second.closes()), (0, 0));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r33_a_process_that_removes_itself_inside_its_start_is_gone_when_it_has_started(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::starting(|context: ProcessContext| async move {
            let registry = context.generation().registry();
            assert!(registry.remove("x", &context.handle().identity()));
            Ok(())
        });
        registry.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        assert!(registry.lookup("x").is_none());
        assert_eq!((registry.count(), play.closes()), (0, 0));
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r34_a_process_may_start_another_from_inside_its_start_while_the_registry_is_open(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let child = Play::quiet();
        let started = Arc::clone(&child);
        let parent = Play::starting(move |context: ProcessContext| {
            let child = Arc::clone(&started);
            async move {
                context.generation().registry().start("child", child.spec(kind)).await?;
                Ok(())
            }
        });
        registry.start("parent", parent.spec(kind)).await.expect("started");
        child.context().await;
        assert!(registry.lookup("child").is_some() && registry.lookup("parent").is_some());
        let report = end(&application).await;
        assert_eq!((report.closed, parent.closes(), child.closes()), (2, 1, 1));
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r34_a_process_may_start_no_other_from_inside_its_start_while_the_registry_closes(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (door, child) = (Door::closed(), Play::quiet());
        let parent = Play::starting({
            let (door, child) = (Arc::clone(&door), Arc::clone(&child));
            move |context: ProcessContext| {
                let (door, child) = (Arc::clone(&door), Arc::clone(&child));
                async move {
                    door.pass().await;
                    let refused = context.generation().registry().start("child", child.spec(kind)).await;
                    assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
                    Ok(())
                }
            }
        });
        let starting = tokio::spawn({
            let (registry, parent) = (registry.clone(), Arc::clone(&parent));
            async move { registry.start("parent", parent.spec(kind)).await }
        });
        door.reached().await;
        let closing = tokio::spawn({
            let registry = registry.clone();
            async move { close(&registry).await }
        });
        is_revoked(&parent).await;
        door.open();
        starting.await.expect("no panic").expect("it was admitted");
        let report = soon(closing).await.expect("no panic");
        assert_eq!((report.started, report.closed, parent.closes()), (1, 1, 1));
        assert_eq!((child.starts(), child.closes()), (0, 0));
        end(&application).await;
    }
}
