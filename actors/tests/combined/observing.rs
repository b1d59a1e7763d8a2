//! C3 and C8 as a racing observer sees them, on threads of its own.

use std::fmt::Write as _;

use tenure_actors::{Generation, ProcessKind, ProcessSpec, ReserveError};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::bench::{self, Order, Plain, Worker, request};
use crate::kinds::{KINDS, begin};

/// Calls `seen` with the text of every event that is traced on this thread, in the middle of what it tells.
pub(crate) fn on_event(seen: impl Fn(&str) + Send + Sync + 'static) -> tracing::subscriber::DefaultGuard {
    struct Hook<F>(F);
    struct Text(String);
    impl tracing::field::Visit for Text {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            let _ = write!(self.0, "{field}={value:?} ");
        }
    }
    impl<S: tracing::Subscriber, F: Fn(&str) + 'static> Layer<S> for Hook<F> {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let mut text = Text(String::new());
            event.record(&mut text);
            (self.0)(&text.0);
        }
    }
    crate::traced::listen(tracing_subscriber::registry().with(Hook(seen)))
}

/// Tries until the operation can be reserved, then starts the same id: it must be free.
async fn take_over(generation: Generation) {
    let lease = loop {
        match generation.operations().reserve(request("a", &["k"])).await {
            Ok(lease) => break lease,
            Err(ReserveError::DuplicateOperation(_)) => {}
            Err(other) => panic!("{other}"),
        }
    };
    let successor = generation.registry().start("a", bench::waiting().holding(lease)).await;
    assert!(successor.is_ok(), "the key was free before the id: {successor:?}");
    successor.unwrap().close().await;
}

/// A process that ends at once, in its own way.
fn brief(kind: ProcessKind, round: usize) -> ProcessSpec {
    match (kind, round % 3) {
        (ProcessKind::Function, 0) => ProcessSpec::function("p", |_| async { Ok(()) }),
        (ProcessKind::Function, 1) => ProcessSpec::function("p", |_| async { Err("told to fail".into()) }),
        (ProcessKind::Function, _) => ProcessSpec::function("p", |context| async move {
            context.remove_self();
            Ok(())
        }),
        (ProcessKind::Object, _) => Plain::new().spec(),
        (ProcessKind::Actor, _) => Worker::spec(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sup_c03_whoever_finds_the_key_free_can_start_the_id() {
    let application = bench::open().await;
    let generation = application.current();
    for round in 0..600 {
        for kind in KINDS {
            let process = begin(&application, brief(kind, round)).await;
            let observer = tokio::spawn(take_over(generation.clone()));
            match kind {
                ProcessKind::Function => {}
                ProcessKind::Object => assert!(process.remove()),
                ProcessKind::Actor => {
                    let order = if round % 2 == 0 { Order::Complete } else { Order::Fail };
                    process.actor::<Order>().unwrap().cast(order).unwrap();
                }
            }
            observer.await.unwrap();
        }
    }
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sup_c08_once_the_operation_is_gone_the_process_is_gone() {
    let application = bench::open().await;
    let generation = application.current();
    for round in 0..600 {
        for kind in KINDS {
            let process = begin(&application, brief(kind, round)).await;
            let looking = generation.clone();
            let observer = std::thread::spawn(move || {
                while looking.operations().get("a").is_some() {
                    std::hint::spin_loop();
                }
                assert!(looking.registry().lookup("a").is_none(), "a process without its operation");
            });
            if kind != ProcessKind::Function {
                process.close().await;
            }
            process.ended().await;
            observer.join().unwrap();
        }
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c08_both_views_agree_before_during_and_after() {
    let application = bench::open().await;
    let generation = application.current();
    let views = || (generation.operations().get("a").is_some(), generation.registry().lookup("a").is_some());
    for kind in KINDS {
        assert_eq!(views(), (false, false));
        let process = begin(&application, crate::kinds::process(kind)).await;
        assert_eq!(views(), (true, true));
        process.close().await;
        assert_eq!(views(), (false, false));
    }
    bench::close(&application).await;
    assert_eq!(views(), (false, false));
}

/// At each event of the end, whatever was told so far, a process is never seen without its operation.
#[tokio::test(start_paused = true)]
async fn sup_c08_at_no_event_of_its_end_is_a_process_seen_without_its_operation() {
    for kind in KINDS {
        let application = bench::open().await;
        let generation = application.current();
        let process = begin(&application, crate::kinds::process(kind)).await;
        let looking = generation.clone();
        let _tracing = on_event(move |text| {
            let operation = looking.operations().get("a").is_some();
            let process = looking.registry().lookup("a").is_some();
            assert!(operation || !process, "{text}");
        });
        process.close().await;
        bench::close(&application).await;
    }
}
