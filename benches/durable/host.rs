//! Finished runs through a whole host: claimed, executed as managed processes, their outcomes stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::model::RunStatus;
use tenure::store::Store;
use tenure::{RunContext, Settings, Tenure};

use crate::cycles::{bare_cycles, runtime};
use crate::delays::percentile;
use crate::measure::{Samples, interleave_numbers, per_second};
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

pub(crate) async fn host(bench: &Bench, concurrency: usize) -> Tenure {
    open(Arc::clone(&bench.store), concurrency).await
}

pub(crate) async fn open(store: Arc<dyn Store>, concurrency: usize) -> Tenure {
    let settings = Settings { concurrency, retain_runs: u64::MAX, ..Settings::default() };
    Tenure::open(store, settings).await.expect("a host")
}

/// The hosts execute everything that waits; answers runs per second.
async fn drain(bench: &Bench, hosts: &[Tenure], count: usize, done_before: u64) -> f64 {
    let clock = Instant::now();
    for tenure in hosts {
        tenure.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
    }
    let wanted = done_before + u64::try_from(count).expect("a count");
    loop {
        let counts = bench.store.counts(None).await.expect("counts");
        if counts.iter().any(|(status, count)| *status == RunStatus::Completed && *count >= wanted) {
            break;
        }
        // Not so often that what is asked shares the store with what is measured.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = per_second(count, clock.elapsed());
    for tenure in hosts {
        tenure.shutdown().await.expect("a shutdown");
    }
    rate
}

/// A fresh backlog, drained by so many instances: each with a store of its own on the same records, as OS processes
/// have them.
fn drained(kind: Kind, count: usize, instances: usize) -> f64 {
    runtime().block_on(async {
        let bench = Bench::open(kind).await;
        bench.enqueue(count, 500, Duration::ZERO).await;
        let mut stores = vec![Arc::clone(&bench.store)];
        while stores.len() < instances {
            stores.push(bench.another().await);
        }
        let mut hosts = Vec::new();
        for store in &stores {
            hosts.push(open(Arc::clone(store), 1024).await);
        }
        let rate = drain(&bench, &hosts, count, 0).await;
        for store in stores {
            store.close().await.expect("a close");
        }
        rate
    })
}

fn goal(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Full => Some(30_000.0),
        Kind::Memory => Some(100_000.0),
        Kind::Postgres => Some(18_000.0),
        Kind::Redis => Some(20_000.0),
        Kind::Normal => None,
    }
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Normal, Kind::Memory, Kind::Postgres, Kind::Redis]) {
        let ours = || drained(kind, plan.backlog, 1);
        let bare = || per_second(plan.backlog, bare_cycles(kind, plan.backlog, 500).rest);
        let figure = format!("{} no-op runs of a backlog finished by a host", show(plan.backlog));
        let beside = matches!(kind, Kind::Postgres | Kind::Redis) && plan.compares();
        let (row, rate) = if beside {
            let [rate, bare] = interleave_numbers(plan.rounds, [&ours as &dyn Fn() -> f64, &bare]);
            let row = Row::new(figure, kind.name(), &rate, Unit::PerSecond);
            let row = row.beside("bare driver in calls of 500", &bare, Unit::PerSecond);
            (row.compared(&rate.over(&bare), Unit::Times), rate)
        } else {
            let [rate] = interleave_numbers(plan.rounds, [&ours as &dyn Fn() -> f64]);
            (Row::new(figure, kind.name(), &rate, Unit::PerSecond), rate)
        };
        table.print(match goal(kind) {
            Some(goal) => row.goal(Goal::AtLeast(goal), &rate, Unit::PerSecond),
            None => row,
        });
    }
}

/// Two instances share what one has for itself.
pub(crate) fn measure_two(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Postgres, Kind::Redis]) {
        let two = || drained(kind, plan.backlog, 2);
        let one = || drained(kind, plan.backlog, 1);
        let [two, one] = interleave_numbers(plan.rounds, [&two as &dyn Fn() -> f64, &one]);
        let figure = format!("{} no-op runs of a backlog finished by two instances", show(plan.backlog));
        let row = Row::new(figure, kind.name(), &two, Unit::PerSecond);
        let row = row.beside("one instance", &one, Unit::PerSecond);
        table.print(row.ratio_goal(Goal::AtLeast(1.0), &two.over(&one)));
    }
}

/// The same with a store that is full of the past and the future.
pub(crate) fn measure_full(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Postgres]) {
        let Filled { rates: full, mut before, mut there, mut after } = runtime().block_on(fill(plan, kind));
        let sample = || drained(kind, plan.backlog, 1);
        let [empty] = interleave_numbers(plan.rounds, [&sample as &dyn Fn() -> f64]);
        let (finished, future, held) = (show(plan.finished), show(plan.future), show(plan.held));
        let figure = format!(
            "the same with {finished} finished, {future} future, {held} held and {held} blocked runs in the store"
        );
        let row = Row::new(figure, kind.name(), &full, Unit::PerSecond);
        let row = row.beside("empty store", &empty, Unit::PerSecond);
        table.print(row.ratio_goal(Goal::AtLeast(0.75), &full.over(&empty)));
        let drained = format!("right after {} more were drained", show((plan.rounds + 1) * plan.backlog));
        for (when, claims) in [("there", &mut there), (drained.as_str(), &mut after)] {
            for percent in [50, 95] {
                let full = Samples(vec![percentile(claims, percent)]);
                let empty = Samples(vec![percentile(&mut before, percent)]);
                let figure = format!("p{percent} of a claim of 10 {when}");
                let row = Row::new(figure, kind.name(), &full, Unit::Milliseconds);
                let row = row.beside("empty store", &empty, Unit::Milliseconds);
                let row = row.compared(&full.over(&empty), Unit::Times);
                table.print(row.goal(Goal::AtMost(10.0), &full, Unit::Milliseconds));
            }
        }
    }
}

/// What a full store is measured by.
struct Filled {
    rates: Samples,
    /// Claims, before it was full.
    before: Vec<Duration>,
    /// When it was full.
    there: Vec<Duration>,
    /// Right after many more were drained from it.
    after: Vec<Duration>,
}

async fn fill(plan: &Plan, kind: Kind) -> Filled {
    let bench = Bench::open(kind).await;
    let before = claims(&bench).await;
    let mut done = u64::try_from(2 * 10 * CLAIMS).expect("a count");
    bench.finished(plan.finished, 1000).await;
    bench.enqueue(plan.future, 1000, Duration::from_secs(365 * 86_400)).await;
    done += u64::try_from(plan.finished).expect("a count");
    bench.held(plan.held, 1000).await;
    bench.blocked(plan.held, 1000).await;
    bench.tidy().await;
    let there = claims(&bench).await;
    let mut rates = Vec::new();
    for round in 0..=plan.rounds {
        bench.enqueue(plan.backlog, 500, Duration::ZERO).await;
        let hosts = [host(&bench, 1024).await];
        let rate = drain(&bench, &hosts, plan.backlog, done).await;
        done += u64::try_from(plan.backlog).expect("a count");
        if round > 0 {
            rates.push(rate);
        }
    }
    let after = claims(&bench).await;
    bench.end().await;
    Filled { rates: Samples(rates), before, there, after }
}

/// How often a few are claimed to see how long that takes.
const CLAIMS: usize = 200;

async fn claims(bench: &Bench) -> Vec<Duration> {
    let mut delays = Vec::new();
    for _ in 0..CLAIMS {
        bench.enqueue(10, 10, Duration::ZERO).await;
        let clock = Instant::now();
        let claimed = bench.claim(10).await;
        delays.push(clock.elapsed());
        assert_eq!(claimed.len(), 10, "the ready ones are found");
        bench.carry_out(&claimed).await;
    }
    delays
}
