//! Many children: counts that agree, and costs that grow with the number and no faster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_actors::rules::{Backoff, Strategy};
use tenure_actors::{Application, Generation, GenerationSpec, ManagedProcess, ProcessContext, ProcessResult};
use tenure_actors::{ProcessSpec, ServiceSpec};

use crate::kit::Plot;

fn sleeper() -> ProcessSpec {
    ProcessSpec::function("sleeper", |context| async move {
        context.cancelled().await;
        Ok(())
    })
}

struct Still;

impl ManagedProcess for Still {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        Ok(())
    }
}

async fn start_many(generation: &Generation, ids: std::ops::Range<usize>) {
    for id in ids {
        let process = if id % 2 == 0 { sleeper() } else { ProcessSpec::object("still", Arc::new(Still)) };
        generation.registry().start(format!("p{id}"), process).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_70_list_and_counts_agree_for_a_thousand_then_two_and_are_empty_after_all_ended() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let generation = world.generation();
    let registry = generation.registry();
    for (ids, expected) in [(0..1_000, 1_000), (1_000..2_000, 2_000)] {
        start_many(&generation, ids).await;
        assert_eq!((registry.count(), registry.list().len()), (expected, expected));
        assert_eq!(generation.tree().generations[0].children.len(), expected);
    }
    let handles: Vec<_> =
        registry.list().iter().filter_map(|info| registry.lookup(info.id.as_str())).collect();
    for handle in &handles {
        tokio::spawn({
            let handle = handle.clone();
            async move { drop(handle.close().await) }
        });
    }
    for handle in &handles {
        handle.ended().await;
    }
    assert_eq!((registry.count(), registry.list().len()), (0, 0));
    world.end().await;
}

/// Does the work once for many and ten times for a tenth of them; answers how much longer the many took.
async fn growth<F: Future<Output = Duration>>(many: usize, work: impl Fn(usize) -> F) -> f64 {
    work(many / 10).await;
    let mut few = Duration::ZERO;
    for _ in 0..10 {
        few += work(many / 10).await;
    }
    work(many).await.as_secs_f64() / few.as_secs_f64()
}

#[tokio::test]
async fn peer_os_76_ending_ten_times_as_many_dynamic_children_costs_about_ten_times_as_much() {
    let growth = growth(2_000, |count| async move {
        let application = Application::open(GenerationSpec::default()).await.unwrap();
        start_many(&application.current(), 0..count).await;
        let began = Instant::now();
        let report = application.close().await.unwrap();
        assert_eq!((report.started, report.closed), (count as u64, count as u64));
        began.elapsed()
    })
    .await;
    assert!(growth < 5.0, "the peers allow a factor of 5 over linear; it was {growth:.1}");
}

#[tokio::test]
async fn peer_os_86_starting_and_terminating_ten_times_as_many_services_costs_about_ten_times_as_much() {
    let growth = growth(1_500, |count| async move {
        let mut spec = GenerationSpec::default();
        for number in 0..count {
            spec = spec.service(ServiceSpec::new(format!("s{number}"), sleeper).backoff(Backoff::none()));
        }
        let began = Instant::now();
        let application = Application::open(spec).await.unwrap();
        let services = application.current().services();
        for number in 0..count {
            services.terminate(&format!("s{number}")).await.unwrap();
        }
        let took = began.elapsed();
        assert_eq!(services.list().len(), count);
        application.close().await.unwrap();
        took
    })
    .await;
    assert!(growth < 5.0, "quadratic would be 10; it was {growth:.1}");
}
