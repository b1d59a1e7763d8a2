//! The commit gate as a process meets it: G13, R38 and R39.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use parking_lot::Mutex;
use tenure_actors::{CommitError, FencingToken, Limits, ProcessContext, ProcessKind, ProcessSpec, Refused};
use tokio::time::Instant;

use super::support::{Door, Play, balanced, close, end, open, open_within, soon};

fn is_revoked<T: std::fmt::Debug>(answer: &Result<T, CommitError>) -> bool {
    matches!(answer, Err(CommitError::AuthorityRevoked { .. }))
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_running_process_commits_and_gets_the_value_of_its_effect(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        assert_eq!(context.commit(|| 1), Ok(1));
        assert_eq!(context.commit_named("two rows", || 2), Ok(2));
        assert_eq!(context.commit_value(3, |value| value + 1), Ok(4));
        assert_eq!(context.commit_async(|_| async { 5 }).await, Ok(5));
        let report = end(&application).await;
        assert_eq!((report.commits.submitted, report.commits.applied, report.commits.dropped), (4, 4, 0));
    }
}

/// How authority can end.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Removed,
    Ended,
    Closed,
    RegistryClosed,
    GenerationClosed,
}

async fn refused_after(kind: ProcessKind, ends: Ends) {
    let application = open().await;
    let generation = application.current();
    let registry = generation.registry();
    let play = Play::quiet();
    let process = registry.start("x", play.spec(kind)).await.expect("started");
    let context = play.context().await;
    match ends {
        Ends::Removed => assert!(process.remove()),
        Ends::Ended if kind == ProcessKind::Actor => {
            process.actor::<super::support::Ask>().expect("an actor").stop(None);
            soon(process.ended()).await;
        }
        Ends::Ended | Ends::Closed => drop(soon(process.close()).await),
        Ends::RegistryClosed => drop(close(&registry).await),
        Ends::GenerationClosed => drop(balanced(soon(generation.close()).await.expect("from outside"))),
    }
    let ran = Mutex::new(0);
    let effect = || *ran.lock() += 1;
    assert!(is_revoked(&context.commit(effect)), "{kind:?}, {ends:?}");
    assert!(is_revoked(&context.commit_named("rows", effect)), "{kind:?}, {ends:?}");
    assert!(is_revoked(&context.commit_async(|_| async { effect() }).await), "{kind:?}, {ends:?}");
    let given_back = context.commit_value(String::from("mine"), |_| effect());
    let Err(Refused { value, error }) = given_back else { panic!("{kind:?}, {ends:?}: {given_back:?}") };
    assert_eq!(value, "mine");
    assert!(is_revoked::<()>(&Err(error)));
    assert_eq!(*ran.lock(), 0, "{kind:?}, {ends:?}: a refused effect was run");
    let report = balanced(soon(generation.close()).await.expect("from outside"));
    // What comes after the report is refused and counted by nobody.
    let expected = if matches!(ends, Ends::GenerationClosed) { 0 } else { 4 };
    assert_eq!((report.commits.applied, report.commits.dropped), (0, expected), "{kind:?}, {ends:?}");
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_commit_after_the_process_was_removed_is_refused(kind) {
        refused_after(kind, Ends::Removed).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_commit_after_the_process_has_ended_is_refused(kind) {
        refused_after(kind, Ends::Ended).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_commit_after_the_process_was_closed_by_its_handle_is_refused(kind) {
        refused_after(kind, Ends::Closed).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_commit_after_the_registry_was_closed_is_refused(kind) {
        refused_after(kind, Ends::RegistryClosed).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_a_commit_after_the_generation_was_closed_is_refused(kind) {
        refused_after(kind, Ends::GenerationClosed).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r38_authority_ends_before_close_is_called(kind) {
        let application = open().await;
        let seen = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&seen);
        let play = Play::closing(move |context: ProcessContext| {
            *noted.lock() = Some(is_revoked(&context.commit(|| ())));
            async { Ok(()) }
        });
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        end(&application).await;
        assert_eq!(*seen.lock(), Some(true));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g13_an_effect_that_panics_does_not_wedge_the_gate(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        for text in ["once", "twice"] {
            let panicking = context.clone();
            let commit = move || panicking.commit(|| panic!("{text}"));
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)).expect_err("the panic is the caller's");
        }
        context.commit(|| ()).expect("its authority stands");
        let asked = Instant::now();
        let report = end(&application).await;
        assert_eq!(asked.elapsed(), Duration::ZERO, "nothing is in flight");
        assert_eq!((report.commits.applied, report.in_flight.len()), (3, 0), "an effect counts as far as it ran");
    }
}

#[tokio::test(start_paused = true)]
async fn reg_g13_an_async_effect_that_panics_or_is_dropped_does_not_wedge_the_gate() {
    let application = open().await;
    let play = Play::quiet();
    application.current().registry().start("x", play.object()).await.expect("started");
    let context = play.context().await;
    let panicking = context.clone();
    let panicked =
        tokio::spawn(async move { panicking.commit_async(|_| async { panic!("in flight") }).await });
    assert!(panicked.await.expect_err("the panic is the caller's").is_panic());
    {
        let mut dropped = std::pin::pin!(context.commit_async(|_| std::future::pending::<()>()));
        assert!(poll!(&mut dropped).is_pending());
    }
    let asked = Instant::now();
    let report = end(&application).await;
    assert_eq!((asked.elapsed(), report.commits.applied, report.in_flight.len()), (Duration::ZERO, 2, 0));
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r39_close_waits_for_an_async_effect_that_began_before_it(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        let (context, door) = (play.context().await, Door::closed());
        let effect = tokio::spawn({
            let (context, door) = (context.clone(), Arc::clone(&door));
            async move {
                context
                    .commit_async(|_| async {
                        door.pass().await;
                        39
                    })
                    .await
            }
        });
        door.reached().await;
        let closing = tokio::spawn({
            let application = application.clone();
            async move { balanced(application.close().await.expect("from outside")) }
        });
        let mut probes = 0;
        while context.commit(|| probes += 1).is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished() && !effect.is_finished());
        door.open();
        assert_eq!(soon(effect).await.expect("no panic"), Ok(39), "wholly");
        let report = soon(closing).await.expect("no panic");
        assert_eq!((report.commits.applied, report.in_flight.len()), (1 + probes, 0));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r39_an_async_effect_past_the_bound_of_close_is_cut_off_at_its_await(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        let (context, door) = (play.context().await, Door::closed());
        let effect = tokio::spawn({
            let (context, door) = (context.clone(), Arc::clone(&door));
            async move { context.commit_async(|_| async { door.pass().await }).await }
        });
        door.reached().await;
        let asked = Instant::now();
        let report = end(&application).await;
        assert!(asked.elapsed() <= Duration::from_secs(6), "{:?}", asked.elapsed());
        let answer = soon(effect).await.expect("no panic");
        assert!(matches!(&answer, Err(CommitError::CutOff { process, .. }) if process.as_str() == "x"), "{answer:?}");
        assert_eq!((report.commits.applied, report.in_flight.len()), (1, 0), "it began, and it is over");
        assert!(is_revoked(&context.commit(|| ())));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r39_an_effect_that_nobody_drives_on_is_named_in_the_report(kind) {
        let application = open().await;
        let play = Play::quiet();
        application.current().registry().start("x", play.spec(kind)).await.expect("started");
        let context = play.context().await;
        let mut effect = Box::pin(context.commit_async(|_| std::future::pending::<()>()));
        assert!(poll!(&mut effect).is_pending());
        let report = end(&application).await;
        assert_eq!(report.in_flight.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["x"]);
        assert_eq!((report.started, report.commits.applied), (1, 1));
        assert!(matches!(effect.await, Err(CommitError::CutOff { .. })), "at its next await it is over");
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r39_a_permit_shows_who_commits_and_under_which_fence() {
    let application = open().await;
    let registry = application.current().registry();
    let (fenced, plain) = (Play::quiet(), Play::quiet());
    let fence = FencingToken { fence: 7, nonce: 11 };
    registry.start("fenced", fenced.object().fence(fence)).await.expect("started");
    registry.start("plain", plain.object()).await.expect("started");
    for (play, id, expected) in [(&fenced, "fenced", Some(fence)), (&plain, "plain", None)] {
        let context = play.context().await;
        let permit = context.commit_async(|permit| async { permit }).await.expect("its authority stands");
        assert_eq!((permit.process.as_str(), permit.epoch.get(), permit.fence), (id, 1, expected));
        assert_eq!(context.fence(), expected);
    }
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r38_a_function_that_was_cut_off_between_two_commits_makes_the_second_never() {
    let limits = Limits { patience: tenure_actors::rules::Patience::Time(10), ..Limits::default() };
    let application = open_within(limits).await;
    let (door, applied) = (Door::closed(), Arc::new(Mutex::new(Vec::new())));
    let (visited, sink) = (Arc::clone(&door), Arc::clone(&applied));
    let body = ProcessSpec::function("late", move |context| async move {
        context.commit(|| sink.lock().push("first"))?;
        visited.pass().await;
        context.commit(|| sink.lock().push("second"))?;
        Ok(())
    });
    application.current().registry().start("x", body).await.expect("started");
    door.reached().await;
    let report = end(&application).await;
    door.open();
    assert_eq!((report.killed.len(), report.commits.applied), (1, 1));
    assert_eq!(*applied.lock(), ["first"]);
}

#[tokio::test(start_paused = true)]
async fn reg_r38_a_function_that_commits_after_it_was_told_to_stop_is_refused() {
    let application = open().await;
    let body = ProcessSpec::function("late", |context| async move {
        context.cancelled().await;
        context.commit(|| ())?;
        Ok(())
    });
    let process = application.current().registry().start("x", body).await.expect("started");
    let report = end(&application).await;
    assert_eq!((report.commits.applied, report.commits.dropped, report.failed.len()), (0, 1, 1));
    assert!(process.exit().is_some_and(|exit| exit.to_string().contains("authority was revoked")));
}
