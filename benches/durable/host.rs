//! Finished runs through a whole host: claimed, executed as managed processes, their outcomes stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::model::RunStatus;
use tenure::{RunContext, Settings, Tenure};

use crate::delays::percentile;
use crate::measure::{Samples, interleave_numbers, per_second};
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub(crate) async fn host(bench: &Bench, concurrency: usize) -> Tenure {
    let settings = Settings { concurrency, retain_runs: u64::MAX, ..Settings::default() };
    Tenure::open(Arc::clone(&bench.store), settings).await.expect("a host")
}

/// Executes everything that waits; answers runs per second.
async fn drain(bench: &Bench, count: usize, done_before: u64) -> f64 {
    let tenure = host(bench, 1024).await;
    let clock = Instant::now();
    tenure.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
    let wanted = done_before + u64::try_from(count).expect("a count");
    loop {
        let counts = bench.store.counts(None).await.expect("counts");
        if counts.iter().any(|(status, count)| *status == RunStatus::Completed && *count >= wanted) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = per_second(count, clock.elapsed());
    tenure.shutdown().await.expect("a shutdown");
    rate
}

fn drained(kind: Kind, count: usize) -> f64 {
    runtime().block_on(async {
        let bench = Bench::open(kind).await;
        bench.enqueue(count, 500, Duration::ZERO).await;
        drain(&bench, count, 0).await
    })
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for (kind, goal) in [(Kind::Full, Some(30_000.0)), (Kind::Normal, None), (Kind::Memory, Some(100_000.0))]
    {
        if !plan.wants_store(kind.word()) {
            continue;
        }
        let sample = || drained(kind, plan.backlog);
        let [rate] = interleave_numbers(plan.rounds, [&sample as &dyn Fn() -> f64]);
        let figure = format!("{} no-op runs of a backlog finished by a host", show(plan.backlog));
        let row = Row::new(figure, kind.name(), &rate, Unit::PerSecond);
        table.print(match goal {
            Some(goal) => row.goal(Goal::AtLeast(goal), &rate, Unit::PerSecond),
            None => row,
        });
    }
}

/// The same with a file that is full of the past and the future.
pub(crate) fn measure_full(plan: &Plan, table: &Table) {
    let kind = Kind::Full;
    let (full, empty, mut delays) = runtime().block_on(async {
        let bench = Bench::open(kind).await;
        bench.finished(plan.finished, 1000).await;
        bench.enqueue(plan.future, 1000, Duration::from_secs(365 * 86_400)).await;
        let mut full = Vec::new();
        for round in 0..=plan.rounds {
            let before = plan.finished + round * plan.backlog;
            bench.enqueue(plan.backlog, 500, Duration::ZERO).await;
            let rate = drain(&bench, plan.backlog, u64::try_from(before).expect("a count")).await;
            if round > 0 {
                full.push(rate);
            }
        }
        let mut delays = Vec::new();
        for _ in 0..200 {
            bench.enqueue(10, 10, Duration::ZERO).await;
            let clock = Instant::now();
            let claimed = bench.claim(10).await;
            delays.push(clock.elapsed());
            assert_eq!(claimed.len(), 10, "the ready ones are found");
        }
        (full, (), delays)
    });
    let () = empty;
    let sample = || drained(kind, plan.backlog);
    let [empty] = interleave_numbers(plan.rounds, [&sample as &dyn Fn() -> f64]);
    let full = Samples(full);
    let figure = format!(
        "the same with {} finished and {} future runs in the file",
        show(plan.finished),
        show(plan.future)
    );
    let row =
        Row::new(figure, kind.name(), &full, Unit::PerSecond).beside("empty file", &empty, Unit::PerSecond);
    table.print(row.ratio_goal(Goal::AtLeast(0.75), &full.over(&empty)));
    let p95 = Samples(vec![percentile(&mut delays, 95)]);
    let row = Row::new("p95 of a claim of 10 there", kind.name(), &p95, Unit::Milliseconds);
    table.print(row.goal(Goal::AtMost(10.0), &p95, Unit::Milliseconds));
}
