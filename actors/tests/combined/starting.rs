//! C1 and C2: reserve, then start; a start that does not succeed leaves the keys free.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::{
    Application, Limits, ManagedProcess, Operations, ProcessContext, ProcessResult, ProcessSpec,
    ReserveError, StartError,
};

use crate::bench::{self, Plain, request};
use crate::kinds::{KINDS, process, reserve};

/// An object whose start goes wrong.
enum Faulty {
    Fails,
    Panics,
    Hangs,
}

impl ManagedProcess for Faulty {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        match *self {
            Self::Fails => Err("told to fail".into()),
            Self::Panics => panic!("told to panic"),
            Self::Hangs => std::future::pending().await,
        }
    }
}

/// An actor whose start goes wrong in the same ways.
impl Actor for Faulty {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        match self {
            Self::Fails => Err("told to fail".into()),
            Self::Panics => panic!("told to panic"),
            Self::Hangs => std::future::pending().await,
        }
    }
}

fn faulty() -> Vec<ProcessSpec> {
    let objects = [Faulty::Fails, Faulty::Panics, Faulty::Hangs]
        .map(|faulty| ProcessSpec::object("faulty", Arc::new(faulty)));
    let actors = [Faulty::Fails, Faulty::Panics, Faulty::Hangs]
        .map(|faulty| ProcessSpec::actor("faulty", faulty, |_| ()));
    let arguments = ProcessSpec::actor("faulty", Faulty::Fails, |_| panic!("told to panic"));
    objects.into_iter().chain(actors).chain([arguments]).collect()
}

/// The plugin's sequence; answers what the user is told.
async fn accept(application: &Application, process: ProcessSpec) -> Result<(), String> {
    let generation = application.current();
    let lease =
        generation.operations().reserve(request("a", &["k"])).await.map_err(|busy| busy.to_string())?;
    let started = generation.registry().start("a", process.holding(lease)).await;
    started.map(drop).map_err(|error| error.to_string())
}

async fn assert_free(operations: &Operations) {
    let again = operations.reserve(request("a", &["k"])).await;
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn sup_c01_who_is_busy_never_starts_its_process() {
    for kind in KINDS {
        let application = bench::open().await;
        let generation = application.current();
        let _held = generation.operations().reserve(request("other", &["k"])).await.unwrap();
        let refused = accept(&application, process(kind)).await.unwrap_err();
        assert!(refused.starts_with("busy"), "{refused}");
        assert_eq!(generation.registry().count(), 0);
        assert_eq!(bench::close(&application).await.started, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c01_a_busy_object_is_neither_started_nor_closed() {
    let application = bench::open().await;
    let _held = application.current().operations().reserve(request("other", &["k"])).await.unwrap();
    let object = Plain::new();
    assert!(accept(&application, object.spec()).await.is_err());
    bench::close(&application).await;
    assert_eq!(object.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn sup_c02_a_failed_start_has_released_the_lease_when_its_caller_hears_of_it() {
    let application = bench::open().await;
    for process in faulty() {
        let text = format!("{process:?}");
        let refused = accept(&application, process).await;
        assert!(refused.is_err(), "{text}");
        // At once: no turn is given away between the two.
        assert!(application.current().operations().get("a").is_none(), "{text}");
        accept(&application, bench::waiting()).await.unwrap();
        application.current().registry().lookup("a").unwrap().close().await;
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c02_a_refused_start_has_released_the_lease() {
    let limits = Limits { max_processes: Some(1), ..Limits::default() };
    let application = bench::open_with(limits).await;
    let generation = application.current();
    let (registry, operations) = (generation.registry(), generation.operations());
    registry.start("a", bench::waiting()).await.unwrap();

    let refused = registry.start("a", bench::waiting().holding(reserve(&generation).await)).await;
    assert!(matches!(refused, Err(StartError::AlreadyExists { .. })));
    assert_free(&operations).await;

    let refused = registry.start("b", bench::waiting().holding(reserve(&generation).await)).await;
    assert!(matches!(refused, Err(StartError::TooManyProcesses { .. })));
    assert_free(&operations).await;

    let refused = registry.start("", bench::waiting().holding(reserve(&generation).await)).await;
    assert!(matches!(refused, Err(StartError::Invalid(_))));
    assert_free(&operations).await;

    let nameless = ProcessSpec::object("", Plain::new());
    let refused = registry.start("b", nameless.holding(reserve(&generation).await)).await;
    assert!(matches!(refused, Err(StartError::Invalid(_))));
    assert_free(&operations).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c02_a_start_refused_by_a_closed_registry_has_released_the_lease() {
    let application = bench::open().await;
    let generation = application.current();
    bench::assert_balanced(&generation.registry().close().await.unwrap());
    let lease = reserve(&generation).await;
    let refused = generation.registry().start("a", bench::waiting().holding(lease)).await;
    assert!(matches!(refused, Err(StartError::RegistryClosed { .. })));
    assert_free(&generation.operations()).await;
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sup_c02_a_refused_start_has_released_the_lease_before_its_caller_hears_of_it() {
    let application = bench::open().await;
    let generation = application.current();
    generation.registry().start("a", bench::waiting()).await.unwrap();
    for _ in 0..5_000 {
        let lease = reserve(&generation).await;
        let refused = generation.registry().start("a", bench::waiting().holding(lease)).await;
        assert!(matches!(refused, Err(StartError::AlreadyExists { .. })));
        assert!(generation.operations().get("a").is_none(), "still held after the refusal");
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c02_a_refused_process_that_panics_in_its_drop_harms_nobody() {
    struct Rude;
    impl Drop for Rude {
        fn drop(&mut self) {
            panic!("told to panic in drop");
        }
    }
    let application = bench::open().await;
    let generation = application.current();
    let existing = generation.registry().start("a", bench::waiting()).await.unwrap();
    let lease = reserve(&generation).await;
    let rude = Rude;
    let process = ProcessSpec::function("rude", |_| async move {
        let _rude = rude;
        Ok(())
    });
    let refused = generation.registry().start("a", process.holding(lease)).await;

    assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
    assert!(existing.exit().is_none());
    assert_free(&generation.operations()).await;
    assert!(generation.registry().start("b", bench::waiting()).await.is_ok(), "the registry lives");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c02_a_start_cut_off_by_the_close_releases_the_lease() {
    for process in [
        ProcessSpec::object("faulty", Arc::new(Faulty::Hangs)),
        ProcessSpec::actor("faulty", Faulty::Hangs, |_| ()),
    ] {
        let application = bench::open().await;
        let generation = application.current();
        let lease = reserve(&generation).await;
        let registry = generation.registry();
        let mut starting = std::pin::pin!(registry.start("a", process.holding(lease)));
        assert!(futures_util::poll!(&mut starting).is_pending());
        let (started, report) = tokio::join!(starting, application.close());
        assert!(matches!(started, Err(StartError::StartTimedOut { .. })), "{started:?}");
        bench::assert_balanced(&report.unwrap());
        assert!(generation.operations().get("a").is_none());
        let refused = generation.operations().reserve(request("b", &["k"])).await;
        assert!(matches!(refused, Err(ReserveError::Closed)));
    }
}
