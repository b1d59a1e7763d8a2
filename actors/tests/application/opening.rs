//! What an application refuses to be opened with, and when it counts as open.

use std::sync::Arc;

use tenure_actors::rules::{Backoff, Intensity};
use tenure_actors::{
    Application, ApplicationSpec, CloseReason, Epoch, GenerationSpec, Limits, ManagedProcess, OpenError,
    ProcessContext, ProcessResult, ProcessSpec, ServiceSpec, ServiceState,
};

use crate::bench::{self, Gate, waiting};

pub(crate) fn service(name: &str) -> ServiceSpec {
    ServiceSpec::new(name, waiting)
}

/// A service whose every start panics, in a generation that puts up with no restart.
pub(crate) fn hopeless() -> GenerationSpec {
    let service = ServiceSpec::new("hopeless", || panic!("told to panic"));
    GenerationSpec::default().service(service).intensity(Intensity::limited(0, 5_000).unwrap())
}

#[tokio::test(start_paused = true)]
async fn app_open_refuses_two_services_of_one_name() {
    let spec = GenerationSpec::default().service(service("a")).service(service("b")).service(service("a"));
    let refused = Application::open(spec).await.unwrap_err();
    assert!(matches!(&refused, OpenError::DuplicateService { name } if &**name == "a"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn app_open_refuses_a_service_whose_name_is_no_identifier() {
    for name in ["", "a\nb", "x".repeat(513).as_str()] {
        let refused = Application::open(GenerationSpec::default().service(service(name))).await.unwrap_err();
        assert!(matches!(&refused, OpenError::InvalidService(_)), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn app_open_refuses_more_services_than_the_limit() {
    let limits = Limits { max_services: Some(1), ..Limits::default() };
    let one = GenerationSpec::default().limits(limits).service(service("a"));
    let refused = Application::open(one.clone().service(service("b"))).await.unwrap_err();
    assert!(matches!(refused, OpenError::TooManyServices { services: 2, limit: 1 }), "{refused}");
    bench::close(&Application::open(one).await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn app_open_answers_when_the_services_have_started() {
    let spec = GenerationSpec::default().service(service("a")).service(service("b"));
    let application = Application::open(spec).await.unwrap();
    let services = application.current().services().list();
    assert!(services.iter().all(|service| service.state == ServiceState::Running), "{services:?}");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_open_gives_up_after_as_many_failed_generations_as_it_may_replace() {
    let intensity = Intensity::limited(2, 60_000).unwrap();
    let spec =
        ApplicationSpec { generation: hopeless(), intensity, backoff: Backoff::none(), ..Default::default() };
    let refused = Application::open(spec).await.unwrap_err();
    match refused {
        OpenError::GaveUp { limit } => assert_eq!(&*limit, "limit of 2 restarts in 60000ms exceeded"),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn app_open_answers_although_a_service_closed_its_generation_meanwhile() {
    struct Slow(Gate);
    impl ManagedProcess for Slow {
        async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
            self.0.passed().await;
            Ok(())
        }
    }
    let closer = || {
        ProcessSpec::function("closer", |context| async move {
            let _ = context.generation().close().await;
            Ok(())
        })
    };
    let slow = || ProcessSpec::object("slow", Arc::new(Slow(Gate::new())));
    let spec =
        GenerationSpec::default().service(ServiceSpec::new("a", closer)).service(ServiceSpec::new("b", slow));

    let opening = tokio::time::timeout(std::time::Duration::from_secs(600), Application::open(spec)).await;

    let application = opening.expect("open must not hang").unwrap();
    let report = application.current().closed().await.unwrap();
    assert_eq!(report.reason, CloseReason::Requested);
    bench::assert_balanced(&report);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_epochs_begin_where_the_host_says() {
    let first_epoch = Epoch::new(41).unwrap();
    let application = Application::open(ApplicationSpec { first_epoch, ..Default::default() }).await.unwrap();
    assert_eq!(application.current().epoch(), first_epoch);
    assert_eq!(application.replace().await.unwrap().epoch, first_epoch);
    assert_eq!(application.current().epoch().get(), 42);
    bench::close(&application).await;
}
