//! replace(): seal n, open n + 1 at once, close n beside it.

use tenure_actors::{
    Application, CloseError, CloseReason, CommitError, EventKind, GenerationSpec, Heard, Limits, OpenError,
    ProcessSpec, ReplaceError, ReserveError, ResourceError, ServiceError, StartError,
};

use crate::bench::{self, Gate, Plain, request, waiting};
use crate::opening::service;

/// A process that ignores that it is told to stop, until the gate is opened.
async fn linger(application: &Application) -> Gate {
    let gate = Gate::new();
    let held = gate.clone();
    let spec = ProcessSpec::function("lingering", |_| async move {
        held.passed().await;
        Ok(())
    });
    application.current().registry().start("lingering", spec).await.unwrap();
    gate
}

#[tokio::test(start_paused = true)]
async fn app_replace_opens_the_next_generation_while_the_old_one_still_drains() {
    let application = bench::open().await;
    let old = application.current();
    let gate = linger(&application).await;
    let mut events = application.events();
    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { epoch } if epoch.get() == 2)).await;

    let new = application.current();
    assert_eq!(new.epoch().get(), 2);
    assert!(new.is_open() && !old.is_open());
    let process = new.registry().start("lingering", waiting()).await.unwrap();
    assert!(new.operations().reserve(request("a", &["k"])).await.is_ok());
    assert!(old.report().is_none() && futures_util::poll!(&mut replacing).is_pending(), "n still drains");

    gate.open();
    let report = replacing.await.unwrap();
    bench::assert_balanced(&report);
    assert_eq!((report.epoch.get(), &report.reason, report.closed), (1, &CloseReason::Superseded, 1));
    assert!(process.exit().is_none(), "the new one is untouched");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_seals_before_it_opens() {
    let application = bench::open().await;
    let mut events = application.events();
    bench::assert_balanced(&application.replace().await.unwrap());
    let mut seen = Vec::new();
    while let Some(Heard::Event(event)) = events.try_next() {
        match event.kind {
            EventKind::Sealed { epoch } => seen.push(format!("sealed {epoch}")),
            EventKind::Opened { epoch } => seen.push(format!("opened {epoch}")),
            _ => {}
        }
    }
    assert_eq!(seen, ["sealed 1", "opened 2"]);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_gives_strictly_rising_epochs_whatever_happened_to_the_one_before() {
    let application = bench::open().await;
    let mut epochs = vec![application.current().epoch()];
    for round in 0..6 {
        match round % 3 {
            0 => bench::assert_balanced(&application.replace().await.unwrap()),
            1 => {
                bench::assert_balanced(&application.current().close().await.unwrap());
                application.replace().await.unwrap();
            }
            _ => {
                let mut events = application.events();
                tenure_actors::testkit::fail_registry(&application.current(), "boom");
                bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
                tokio::task::yield_now().await;
            }
        }
        epochs.push(application.current().epoch());
    }
    assert!(epochs.is_sorted_by(|one, two| one < two), "{epochs:?}");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_old_handles_answer_closed_and_never_reach_the_new_generation() {
    let application = bench::open().await;
    let old = application.current();
    let (registry, operations) = (old.registry(), old.operations());
    let object = Plain::new();
    let process = registry.start("x", object.spec()).await.unwrap();
    bench::assert_balanced(&application.replace().await.unwrap());
    let new = application.current();
    let successor = new.registry().start("x", waiting()).await.unwrap();
    let lease = new.operations().reserve(request("x", &["k"])).await.unwrap();

    assert!(registry.lookup("x").is_none() && registry.get::<Plain>("x").is_none());
    assert!(registry.list().is_empty() && registry.watch("x").await.is_none());
    assert_eq!(registry.count(), 0);
    let refused = registry.start("y", waiting()).await;
    assert!(matches!(refused, Err(StartError::RegistryClosed { .. })));
    assert!(!registry.remove("x", &process.identity()) && !registry.remove("x", &successor.identity()));
    let refused = operations.reserve(request("y", &["y"])).await;
    assert!(matches!(refused, Err(ReserveError::Closed)));
    operations.close().await;
    let refused = old.services().start(service("late")).await;
    assert!(matches!(refused, Err(ServiceError::Closed)));
    process.close().await;

    assert!(successor.exit().is_none() && lease.is_held());
    assert!(new.registry().lookup("x").is_some() && new.registry().lookup("y").is_none());
    assert_eq!(registry.close().await.unwrap().epoch.get(), 1);
    assert_eq!(old.close().await.unwrap().reason, CloseReason::Superseded);
    assert!(new.is_open());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_old_store_answers_closed_after_a_replace() {
    struct Nothing;
    impl tenure_actors::Resource for Nothing {}
    let application = bench::open().await;
    let store = application.current().runtime_store();
    application.replace().await.unwrap();
    let refused = store.get_or_create("a", || async { Ok(std::sync::Arc::new(Nothing)) }).await;
    assert!(matches!(refused, Err(ResourceError::Closed(_))));
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn app_concurrent_replaces_each_replace_one_generation() {
    let application = bench::open().await;
    let start = Gate::new();
    let replacing = [(); 16].map(|()| {
        let (application, start) = (application.clone(), start.clone());
        tokio::spawn(async move {
            start.passed().await;
            application.replace().await.unwrap()
        })
    });
    start.open();
    let mut epochs = Vec::new();
    for replacing in replacing {
        let report = replacing.await.unwrap();
        bench::assert_balanced(&report);
        epochs.push(report.epoch.get());
    }
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=16).collect::<Vec<_>>());
    assert_eq!(application.current().epoch().get(), 17);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_with_a_bad_spec_is_refused_and_changes_nothing() {
    let limits = Limits { max_services: Some(0), ..Limits::default() };
    let bad = [
        GenerationSpec::default().service(service("a")).service(service("a")),
        GenerationSpec::default().service(service("")),
        GenerationSpec::default().limits(limits).service(service("a")),
    ];
    let application = bench::open().await;
    let process = application.current().registry().start("x", waiting()).await.unwrap();
    let mut events = application.events();
    for spec in bad {
        let refused = application.replace_with(spec).await.unwrap_err();
        let by_spec = matches!(
            refused,
            ReplaceError::Refused(
                OpenError::DuplicateService { .. }
                    | OpenError::InvalidService(_)
                    | OpenError::TooManyServices { .. }
            )
        );
        assert!(by_spec, "{refused}");
    }
    assert_eq!(application.current().epoch().get(), 1);
    assert!(application.current().is_open() && process.exit().is_none());
    assert!(events.try_next().is_none());
    // What was refused is not what the next generation is made of either.
    application.replace().await.unwrap();
    assert!(application.current().services().list().is_empty());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_with_a_spec_makes_this_and_every_later_generation_of_it() {
    let application = bench::open().await;
    let limits = Limits { max_processes: Some(0), ..Limits::default() };
    application.replace_with(GenerationSpec::default().limits(limits)).await.unwrap();
    for _ in 0..2 {
        let refused = application.current().registry().start("x", waiting()).await;
        assert!(matches!(refused, Err(StartError::TooManyProcesses { .. })), "{refused:?}");
        application.replace().await.unwrap();
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_a_late_commit_tells_which_epoch_is_open_now() {
    let application = bench::open().await;
    let object = Plain::new();
    application.current().registry().start("x", object.spec()).await.unwrap();
    let gate = linger(&application).await;
    let current = || match object.context().commit(|| ()) {
        Err(CommitError::AuthorityRevoked { process, epoch, current }) => {
            assert_eq!((process.as_str(), epoch.get()), ("x", 1));
            current.map(tenure_actors::Epoch::get)
        }
        other => panic!("{other:?}"),
    };
    let mut events = application.events();
    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;

    assert_eq!(current(), Some(2), "during");
    gate.open();
    bench::assert_balanced(&replacing.await.unwrap());
    assert_eq!(current(), Some(2), "after");
    application.replace().await.unwrap();
    assert_eq!(current(), Some(3), "after another");
    application.current().close().await.unwrap();
    assert_eq!(current(), None, "between generations");
    application.replace().await.unwrap();
    assert_eq!(current(), Some(4), "open again");
    bench::close(&application).await;
    assert_eq!(current(), None, "over");
}

#[tokio::test(start_paused = true)]
async fn app_replace_from_inside_is_made_and_not_waited_for() {
    let application = bench::open().await;
    let (asker, answer) = (application.clone(), tokio::sync::oneshot::channel());
    let spec = ProcessSpec::function("asker", |context| async move {
        let _ = answer.0.send(asker.replace().await);
        context.cancelled().await;
        Ok(())
    });
    let old = application.current();
    old.registry().start("asker", spec).await.unwrap();
    let refused = answer.1.await.unwrap();
    assert!(matches!(refused, Err(ReplaceError::Close(CloseError::Inside { epoch })) if epoch.get() == 1));
    bench::assert_balanced(&old.closed().await.unwrap());
    assert_eq!(application.current().epoch().get(), 2);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_goes_on_when_its_caller_goes_away() {
    let application = bench::open().await;
    let old = application.current();
    {
        let mut replacing = std::pin::pin!(application.replace());
        assert!(futures_util::poll!(&mut replacing).is_pending());
    }
    bench::assert_balanced(&old.closed().await.unwrap());
    assert_eq!(application.current().epoch().get(), 2);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_replace_after_the_application_is_over_is_refused() {
    let application = bench::open().await;
    bench::close(&application).await;
    let refused = application.replace().await;
    assert!(matches!(refused, Err(ReplaceError::ApplicationClosed)));
    assert_eq!(application.current().epoch().get(), 1);
}

#[tokio::test(start_paused = true)]
async fn app_the_generation_after_an_epoch_is_told_when_it_opens_and_none_at_the_end() {
    let application = bench::open().await;
    let first = application.current().epoch();
    let mut next = std::pin::pin!(application.after(first));
    assert!(futures_util::poll!(&mut next).is_pending());
    application.replace().await.unwrap();
    let next = next.await.unwrap().epoch();
    assert_eq!((next, application.current().epoch()), (first.next(), first.next()));
    let mut never = std::pin::pin!(application.after(next));
    assert!(futures_util::poll!(&mut never).is_pending());
    bench::close(&application).await;
    assert!(never.await.is_none());
    assert_eq!(application.after(first).await.unwrap().epoch(), next);
}
