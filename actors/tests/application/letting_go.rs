//! What has ended is let go of: objects, generations, applications. A host runs for months.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_actors::{
    Application, GenerationSpec, Heard, ManagedProcess, ProcessContext, ProcessResult, ProcessSpec, Resource,
    Subscription,
};

use crate::bench::{self, Worker, request};
use crate::opening::service;

/// An object that does not keep its context: one that does holds itself.
#[derive(Debug)]
struct Plain;

impl Plain {
    fn new() -> Arc<Self> {
        Arc::new(Self)
    }

    fn spec(self: &Arc<Self>) -> ProcessSpec {
        ProcessSpec::object("plain", Arc::clone(self))
    }
}

impl ManagedProcess for Plain {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        Ok(())
    }
}

/// Completes when nothing of the application is left; the journal lives as long as anything does.
async fn gone(mut events: Subscription) -> bool {
    let all = async { while let Some(Heard::Event(_) | Heard::Missed(_)) = events.next().await {} };
    tokio::time::timeout(Duration::from_secs(600), all).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn app_a_closed_application_is_let_go_of() {
    let application = bench::open().await;
    let events = application.events();
    bench::close(&application).await;
    drop(application);
    assert!(gone(events).await);
}

#[tokio::test(start_paused = true)]
async fn app_a_closed_application_with_processes_is_let_go_of() {
    let application = bench::open().await;
    let events = application.events();
    let registry = application.current().registry();
    for (id, process) in [("f", bench::waiting()), ("o", Plain::new().spec()), ("a", Worker::spec())] {
        registry.start(id, process).await.unwrap();
    }
    bench::close(&application).await;
    drop((application, registry));
    assert!(gone(events).await);
}

#[tokio::test(start_paused = true)]
async fn app_a_closed_application_with_services_and_operations_is_let_go_of() {
    let spec = GenerationSpec::default().service(service("a")).service(service("b"));
    let application = Application::open(spec).await.unwrap();
    let events = application.events();
    let lease = application.current().operations().reserve(request("a", &["k"])).await.unwrap();
    bench::close(&application).await;
    drop((lease, application));
    assert!(gone(events).await);
}

struct Kept(#[allow(dead_code, reason = "its drop is what is looked at")] Arc<()>);
impl Resource for Kept {}

#[tokio::test(start_paused = true)]
async fn app_a_replaced_generation_is_let_go_of() {
    let spec = GenerationSpec::default().service(service("a"));
    let application = Application::open(spec).await.unwrap();
    let mut watched: Vec<Weak<()>> = Vec::new();
    for round in 0..3 {
        let token = Arc::new(());
        watched.push(Arc::downgrade(&token));
        let object = Plain::new();
        let inside = Arc::clone(&token);
        let function = ProcessSpec::function("f", |context| async move {
            context.cancelled().await;
            drop(inside);
            Ok(())
        });
        let generation = application.current();
        generation.registry().start(format!("f{round}"), function).await.unwrap();
        generation.registry().start(format!("o{round}"), object.spec()).await.unwrap();
        generation
            .runtime_store()
            .get_or_create("kept", || async { Ok(Arc::new(Kept(token))) })
            .await
            .unwrap();
        bench::assert_balanced(&application.replace().await.unwrap());
    }
    assert!(watched.iter().all(|token| token.upgrade().is_none()));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_an_ended_process_lets_go_of_its_object() {
    let application = bench::open().await;
    let registry = application.current().registry();
    let object = Plain::new();
    let watched = Arc::downgrade(&object);
    let process = registry.start("x", object.spec()).await.unwrap();
    drop(object);
    process.close().await;
    drop(process);
    // The registry forgets what ended by a message, before it answers the next.
    let other = registry.start("y", bench::waiting()).await.unwrap();
    tokio::task::yield_now().await;
    assert!(watched.upgrade().is_none(), "{:?}", watched.upgrade());
    drop(other);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_an_object_that_panics_in_its_last_drop_harms_nobody() {
    struct Rude;
    impl ManagedProcess for Rude {
        async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
            Ok(())
        }
    }
    impl Drop for Rude {
        fn drop(&mut self) {
            panic!("told to panic in drop");
        }
    }
    let application = bench::open().await;
    let generation = application.current();
    let spec = ProcessSpec::object("rude", Arc::new(Rude));
    let process = generation.registry().start("x", spec).await.unwrap();
    process.close().await;
    drop(process);
    let other = generation.registry().start("x", bench::waiting()).await;
    tokio::task::yield_now().await;
    assert!(other.is_ok() && generation.is_open(), "{other:?}");
    let last = ProcessSpec::object("rude", Arc::new(Rude));
    generation.registry().start("y", last).await.unwrap();
    bench::close(&application).await;
}
