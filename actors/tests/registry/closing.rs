//! Closing the registry: R22 to R30.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{Application, CloseReport, ExitReason, Limits, ProcessKind, Registry, StartError};
use tokio::time::Instant;

use super::support::{Broken, Play, balanced, close, end, is_revoked, open, open_within, soon};

fn begin_close(registry: &Registry) -> tokio::task::JoinHandle<Arc<CloseReport>> {
    let registry = registry.clone();
    tokio::spawn(async move { close(&registry).await })
}

fn begin_start(
    registry: &Registry,
    play: &Arc<Play>,
    kind: ProcessKind,
) -> tokio::task::JoinHandle<Result<tenure_actors::ProcessHandle, StartError>> {
    let (registry, play) = (registry.clone(), Arc::clone(play));
    tokio::spawn(async move { registry.start("x", play.spec(kind)).await })
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r22_close_closes_every_process_once_and_counts_them(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let plays = [Play::quiet(), Play::quiet()];
        let first = registry.start("p", plays[0].spec(kind)).await.expect("started");
        let second = registry.start("q", plays[1].spec(kind)).await.expect("started");
        for play in &plays {
            play.context().await;
        }
        let report = close(&registry).await;
        assert_eq!((report.started, report.closed, report.ended), (2, 2, 0));
        assert_eq!((plays[0].closes(), plays[1].closes()), (1, 1));
        assert!(registry.lookup("p").is_none() && registry.lookup("q").is_none());
        assert!(matches!(first.exit(), Some(ExitReason::Stopped)));
        assert!(matches!(second.exit(), Some(ExitReason::Stopped)));
        end(&application).await;
        assert_eq!((plays[0].closes(), plays[1].closes()), (1, 1));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r23_a_close_that_fails_is_reported_and_stops_no_other(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (before, after) = (Play::quiet(), Play::quiet());
        let broken = Play::closing(|_| async { Err(Broken(23).into()) });
        for (id, play) in [("a", &before), ("p", &broken), ("z", &after)] {
            registry.start(id, play.spec(kind)).await.expect("started");
            play.context().await;
        }
        let report = close(&registry).await;
        assert_eq!((before.closes(), broken.closes(), after.closes()), (1, 1, 1));
        assert_eq!((report.closed, report.failed.len()), (2, 1));
        let (id, text) = &report.failed[0];
        assert_eq!((id.as_str(), text.as_str()), ("p", "failed: broken 23"));
        let refused = registry.start("y", Play::quiet().spec(kind)).await;
        assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r23_a_close_that_panics_is_reported_and_stops_no_other(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (broken, after) = (Play::closing(|_| async { panic!("at the last moment") }), Play::quiet());
        for (id, play) in [("p", &broken), ("z", &after)] {
            registry.start(id, play.spec(kind)).await.expect("started");
            play.context().await;
        }
        let report = close(&registry).await;
        assert_eq!((broken.closes(), after.closes()), (1, 1));
        assert_eq!((report.closed, report.failed.len()), (1, 1));
        assert_eq!(report.failed[0].1, "panicked: at the last moment");
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r24_a_close_that_hangs_is_reported_and_close_answers_within_its_bound(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (deaf, other) = (Play::closing(|_| std::future::pending()), Play::quiet());
        let process = registry.start("p", deaf.spec(kind)).await.expect("started");
        registry.start("q", other.spec(kind)).await.expect("started");
        deaf.context().await;
        other.context().await;
        let asked = Instant::now();
        let report = close(&registry).await;
        assert!(asked.elapsed() <= Duration::from_secs(6), "patience and clean-up, {:?}", asked.elapsed());
        assert_eq!((other.closes(), deaf.closes(), report.closed), (1, 1, 1));
        let (abandoned, killed) = (report.abandoned.len(), report.killed.len());
        // Of an object the kernel cuts off the close alone: nobody knows what of it still runs.
        let expected = if kind == ProcessKind::Object { (1, 0) } else { (0, 1) };
        assert_eq!((abandoned, killed), expected);
        assert!(process.exit().is_some() && registry.lookup("p").is_none());
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r25_close_waits_for_a_start_in_progress_and_then_closes_what_it_started(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let starting = begin_start(&registry, &play, kind);
        door.reached().await;
        let closing = begin_close(&registry);
        is_revoked(&play).await;
        assert!(!closing.is_finished() && !starting.is_finished());
        assert_eq!(play.closes(), 0, "its start has not settled");
        door.open();
        let process = starting.await.expect("no panic").expect("it was admitted");
        let report = soon(closing).await.expect("no panic");
        assert_eq!((play.closes(), report.started, report.closed), (1, 1, 1));
        assert!(process.exit().is_some());
        assert!(play.context().await.commit(|| ()).is_err(), "the object reports revoked");
        end(&application).await;
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r26_a_start_that_fails_while_close_waits_is_cleaned_up_once(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate_then(Err(Broken(26)));
        let starting = begin_start(&registry, &play, kind);
        door.reached().await;
        let closing = begin_close(&registry);
        is_revoked(&play).await;
        door.open();
        let failed = starting.await.expect("no panic");
        let Err(StartError::StartFailed { source, .. }) = failed else { panic!("{failed:?}") };
        assert_eq!(source.downcast_ref::<Broken>(), Some(&Broken(26)));
        let report = soon(closing).await.expect("no panic");
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
        assert_eq!((report.started, report.closed), (0, 0));
        end(&application).await;
        assert_eq!(play.closes(), usize::from(kind == ProcessKind::Object));
    }
}

each_kind_with_a_start! {
    #[tokio::test(start_paused = true)]
    async fn reg_r27_close_waits_for_a_hanging_start_no_longer_than_its_bound(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let began = Instant::now();
        let starting = begin_start(&registry, &play, kind);
        door.reached().await;
        let report = close(&registry).await;
        assert_eq!(began.elapsed(), Limits::default().start_bound);
        let failed = starting.await.expect("no panic");
        assert!(matches!(failed, Err(StartError::StartTimedOut { .. })), "{failed:?}");
        assert_eq!((report.started, play.closes()), (0, usize::from(kind == ProcessKind::Object)));
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r28_a_registry_that_closes_refuses_starts_and_calls_nothing(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = Play::at_the_gate();
        let starting = begin_start(&registry, &play, ProcessKind::Object);
        door.reached().await;
        let closing = begin_close(&registry);
        is_revoked(&play).await;
        let late = Play::quiet();
        let refused = registry.start("y", late.spec(kind)).await;
        assert!(matches!(&refused, Err(StartError::RegistryClosed { id }) if id.as_str() == "y"), "{refused:?}");
        // Also for an id that is taken: it will not be free for anybody again.
        let refused = registry.start("x", late.spec(kind)).await;
        assert!(matches!(&refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
        assert_eq!((late.starts(), late.closes()), (0, 0));
        door.open();
        starting.await.expect("no panic").expect("it was admitted");
        soon(closing).await.expect("no panic");
        end(&application).await;
        assert_eq!((late.starts(), late.closes()), (0, 0));
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r29_a_closed_registry_answers_closed_and_none_and_the_same_report(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let play = Play::quiet();
        let process = registry.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        let report = close(&registry).await;
        let late = Play::quiet();
        let refused = registry.start("x", late.spec(kind)).await;
        assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
        assert!(registry.lookup("x").is_none() && registry.list().is_empty());
        assert!(!registry.remove("x", &process.identity()));
        assert!(Arc::ptr_eq(&close(&registry).await, &report));
        assert_eq!((play.closes(), late.starts(), late.closes()), (1, 0, 0));
        end(&application).await;
        assert!(Arc::ptr_eq(&close(&registry).await, &report), "also after its generation was closed");
        assert_eq!(play.closes(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r29_a_registry_closed_by_its_generation_answers_the_report_of_the_generation() {
    let application = open().await;
    let registry = application.current().registry();
    registry.start("x", Play::quiet().object()).await.expect("started");
    let report = end(&application).await;
    assert!(Arc::ptr_eq(&close(&registry).await, &report));
    assert!(Arc::ptr_eq(&application.current().report().expect("closed"), &report));
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_r30_two_closers_both_wait_for_every_close_and_share_one_report(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let (play, door) = slow_to_close();
        registry.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        let (one, two) = (begin_close(&registry), begin_close(&registry));
        door.reached().await;
        tokio::task::yield_now().await;
        assert!(!one.is_finished() && !two.is_finished());
        door.open();
        let (one, two) = (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!((play.closes(), one.closed), (1, 1));
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r30_registry_generation_and_application_closed_together_close_each_process_once() {
    let application = open().await;
    let generation = application.current();
    let registry = generation.registry();
    let (play, door) = slow_to_close();
    registry.start("x", play.object()).await.expect("started");
    let one = begin_close(&registry);
    let two = tokio::spawn({
        let generation = generation.clone();
        async move { balanced(generation.close().await.expect("from outside")) }
    });
    let three = tokio::spawn({
        let application = application.clone();
        async move { balanced(application.close().await.expect("from outside")) }
    });
    door.reached().await;
    assert!(!one.is_finished() && !two.is_finished() && !three.is_finished());
    door.open();
    for report in [one, two, three] {
        let report = soon(report).await.expect("no panic");
        assert_eq!((report.started, report.closed), (1, 1));
    }
    assert_eq!(play.closes(), 1);
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r30_a_close_whose_caller_goes_away_goes_on() {
    let application = open().await;
    let registry = application.current().registry();
    let (play, door) = slow_to_close();
    registry.start("x", play.object()).await.expect("started");
    let closing = begin_close(&registry);
    door.reached().await;
    closing.abort();
    assert!(closing.await.expect_err("aborted").is_cancelled());
    door.open();
    let report = close(&registry).await;
    assert_eq!((play.closes(), report.closed), (1, 1));
    end(&application).await;
}

fn slow_to_close() -> (Arc<Play>, Arc<super::support::Door>) {
    let door = super::support::Door::closed();
    let visited = Arc::clone(&door);
    let play = Play::closing(move |_| {
        let visited = Arc::clone(&visited);
        async move {
            visited.pass().await;
            Ok(())
        }
    });
    (play, door)
}

#[tokio::test(start_paused = true)]
async fn reg_r22_a_registry_closed_beside_a_running_service_reports_in_balance() {
    let application = open().await;
    let generation = application.current();
    let (service, process) = (Play::quiet(), Play::quiet());
    let served = Arc::clone(&service);
    let spec = tenure_actors::ServiceSpec::new("s", move || served.spec(ProcessKind::Function));
    generation.services().start(spec).await.expect("started");
    generation.registry().start("x", process.object()).await.expect("started");
    close(&generation.registry()).await;
    assert_eq!((process.closes(), service.closes()), (1, 0), "the service goes on");
    let report = end(&application).await;
    assert_eq!((report.started, report.closed, service.closes()), (2, 2, 1));
}

async fn closed_in_order(application: &Application, kind: ProcessKind) -> Vec<&'static str> {
    let registry = application.current().registry();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    for id in ["a", "b", "c"] {
        let told = Arc::clone(&order);
        let play = Play::closing(move |_| {
            told.lock().push(id);
            async { Ok(()) }
        });
        registry.start(id, play.spec(kind)).await.expect("started");
        play.context().await;
    }
    end(application).await;
    std::mem::take(&mut *order.lock())
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_g08_processes_are_told_to_stop_in_reverse_start_order(kind) {
        let application = open().await;
        assert_eq!(closed_in_order(&application, kind).await, ["c", "b", "a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r24_the_bound_of_a_close_is_the_patience_of_the_generation() {
    let limits = Limits { patience: tenure_actors::rules::Patience::Time(40), ..Limits::default() };
    let application = open_within(limits).await;
    let deaf = Play::closing(|_| std::future::pending());
    application.current().registry().start("p", deaf.object()).await.expect("started");
    let asked = Instant::now();
    let report = end(&application).await;
    assert_eq!((asked.elapsed().as_millis(), report.abandoned.len()), (40, 1));
}
