//! Finished runs through the port of a store, without a host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::bare::{Bare, Took};
use crate::delays::percentile;
use crate::measure::{Samples, interleave, per_second};
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};
use crate::{bare_postgres, bare_redis};

/// Runs in one call.
const BATCH: usize = 500;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Enqueues, and the rest of the cycles, per second.
type Rates = (f64, f64);

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Normal, Kind::Memory, Kind::Postgres, Kind::Redis]) {
        let ours = || ours(kind, plan.backlog);
        let bare = || bare(kind, plan.backlog);
        let [ours, bare] = if kind == Kind::Memory || !plan.compares() {
            let [ours] = interleave(plan.rounds, [&ours as &dyn Fn() -> Rates]);
            [ours, Vec::new()]
        } else {
            interleave(plan.rounds, [&ours as &dyn Fn() -> Rates, &bare])
        };
        let (goal_enqueue, goal_rest) = match kind {
            Kind::Memory => (None, Some(100_000.0)),
            Kind::Full => (Some(50_000.0), Some(30_000.0)),
            Kind::Normal | Kind::Postgres | Kind::Redis => (None, None),
        };
        let (enqueued, rest) = (firsts(&ours), seconds(&ours));
        rows(plan, table, kind, goal_enqueue, &enqueued, &firsts(&bare), "enqueued in calls of 500");
        let what = "claimed, begun, finished in calls of 500";
        rows(plan, table, kind, goal_rest, &rest, &seconds(&bare), what);
    }
}

fn ours(kind: Kind, backlog: usize) -> Rates {
    runtime().block_on(async {
        let bench = Bench::open(kind).await;
        let clock = Instant::now();
        bench.enqueue(backlog, BATCH, Duration::ZERO).await;
        let enqueue = clock.elapsed();
        let clock = Instant::now();
        let mut done = 0;
        while done < backlog {
            done += bench.cycle(BATCH).await;
        }
        let rest = clock.elapsed();
        bench.end().await;
        (per_second(backlog, enqueue), per_second(backlog, rest))
    })
}

fn bare(kind: Kind, backlog: usize) -> Rates {
    let took = bare_cycles(kind, backlog, BATCH);
    (per_second(backlog, took.enqueue), per_second(backlog, took.rest))
}

/// So many cycles by the bare driver of a store.
pub(crate) fn bare_cycles(kind: Kind, count: usize, batch: usize) -> Took {
    match kind {
        Kind::Memory | Kind::Full | Kind::Normal => Bare::open(kind == Kind::Full).cycles(count, batch),
        Kind::Postgres => {
            runtime().block_on(async { bare_postgres::Bare::open().await.cycles(count, batch).await })
        }
        Kind::Redis => {
            runtime().block_on(async { bare_redis::Bare::open().await.cycles(count, batch).await })
        }
    }
}

fn rows(
    plan: &Plan,
    table: &Table,
    kind: Kind,
    goal: Option<f64>,
    ours: &Samples,
    bare: &Samples,
    what: &str,
) {
    let mut row = Row::new(format!("{} runs {what}", show(plan.backlog)), kind.name(), ours, Unit::PerSecond);
    if !bare.0.is_empty() {
        row = row.beside("bare driver", bare, Unit::PerSecond).compared(&ours.over(bare), Unit::Times);
    }
    if let Some(goal) = goal {
        row = row.goal(Goal::AtLeast(goal), ours, Unit::PerSecond);
    }
    table.print(row);
}

fn firsts(rates: &[Rates]) -> Samples {
    Samples(rates.iter().map(|rates| rates.0).collect())
}

fn seconds(rates: &[Rates]) -> Samples {
    Samples(rates.iter().map(|rates| rates.1).collect())
}

/// Callers, each of which awaits every step of a run of its own.
const CALLERS: usize = 64;

pub(crate) fn measure_callers(plan: &Plan, table: &Table) {
    let cycles = plan.backlog / CALLERS;
    for kind in plan.stores([Kind::Full, Kind::Normal, Kind::Postgres, Kind::Redis]) {
        let ours = || -> (f64, f64) { runtime().block_on(callers(kind, cycles)) };
        let bare = || -> (f64, f64) {
            let took = bare_cycles(kind, cycles * CALLERS, CALLERS);
            (per_second(cycles * CALLERS, took.enqueue + took.rest), 0.0)
        };
        let [ours, bare] = if plan.compares() {
            interleave(plan.rounds, [&ours as &dyn Fn() -> (f64, f64), &bare])
        } else {
            let [ours] = interleave(plan.rounds, [&ours as &dyn Fn() -> (f64, f64)]);
            [ours.clone(), ours]
        };
        let (rate, bare) = (firsts(&ours), firsts(&bare));
        let figure = format!("{CALLERS} callers, each awaits its enqueue, claim, start and end");
        let mut row = Row::new(figure, kind.name(), &rate, Unit::PerSecond)
            .beside("bare driver in transactions of 64", &bare, Unit::PerSecond)
            .compared(&rate.over(&bare), Unit::Times);
        if kind == Kind::Full {
            row = row.aim(Goal::AtLeast(20_000.0), &rate, Unit::PerSecond);
        }
        table.print(row);
        let figure = format!("{CALLERS} callers: p99 of an enqueue");
        let p99 = seconds(&ours);
        let row = Row::new(figure, kind.name(), &p99, Unit::Milliseconds);
        table.print(match kind {
            Kind::Full | Kind::Normal => row.goal(Goal::AtMost(3.0), &p99, Unit::Milliseconds),
            Kind::Memory | Kind::Postgres | Kind::Redis => row,
        });
    }
}

async fn callers(kind: Kind, cycles: usize) -> (f64, f64) {
    let bench = Arc::new(Bench::open(kind).await);
    let mut callers = JoinSet::new();
    let clock = Instant::now();
    for _ in 0..CALLERS {
        let bench = Arc::clone(&bench);
        callers.spawn(async move {
            let mut delays = Vec::with_capacity(cycles);
            for _ in 0..cycles {
                let asked = Instant::now();
                let now = bench.now().await;
                bench.commit(vec![bench.queued(now, Duration::ZERO).into()]).await;
                delays.push(asked.elapsed());
                // Somebody else may have been granted it: then there is another one.
                while bench.cycle(1).await == 0 {}
            }
            delays
        });
    }
    let mut delays: Vec<Duration> = callers.join_all().await.into_iter().flatten().collect();
    let rate = per_second(cycles * CALLERS, clock.elapsed());
    bench.end().await;
    (rate, percentile(&mut delays, 99))
}
