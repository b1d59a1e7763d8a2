//! Leases: many renewed in one call, and how soon the runs of an instance that is gone begin elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::model::Token;
use tenure::store::{RenewRequest, Renewal};
use tenure::{RunContext, Settings, Tenure};
use tokio::sync::mpsc;

use crate::cycles::runtime;
use crate::delays::percentile;
use crate::measure::Samples;
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};
use crate::{bare_postgres, bare_redis};

/// How often they are renewed; the first is not counted.
const TIMES: usize = 6;

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Postgres, Kind::Redis]) {
        let ours = samples(runtime().block_on(renews(kind, plan.leases)));
        let figure = format!("{} leases renewed in one call", show(plan.leases));
        let mut row = Row::new(figure, kind.name(), &ours, Unit::Milliseconds);
        if let Some(bare) = runtime().block_on(bare_renews(kind, plan.leases)) {
            let bare = samples(bare);
            row = row.beside("bare driver", &bare, Unit::Milliseconds);
            row = row.compared(&ours.over(&bare), Unit::Times);
        }
        table.print(row.goal(Goal::AtMost(100.0), &ours, Unit::Milliseconds));
    }
    for kind in plan.stores([Kind::Full, Kind::Postgres, Kind::Redis]) {
        let mut delays = runtime().block_on(taken_over(kind));
        let last = Samples(vec![percentile(&mut delays, 100)]);
        let figure = format!(
            "the last of {ORPHANS} runs of an instance that is gone begins elsewhere, after its last renewal: lease \
             {} s, grace {} s, sweep {} s",
            LEASE.as_secs(),
            GRACE.as_secs(),
            SWEEP.as_secs()
        );
        let bound = (LEASE + GRACE + SWEEP).as_secs_f64() * 1000.0;
        let row = Row::new(figure, kind.name(), &last, Unit::Milliseconds);
        table.print(row.goal(Goal::AtMost(bound), &last, Unit::Milliseconds));
    }
}

fn samples(took: Vec<Duration>) -> Samples {
    Samples(took.into_iter().skip(1).map(|took| took.as_secs_f64() * 1000.0).collect())
}

async fn bare_renews(kind: Kind, count: usize) -> Option<Vec<Duration>> {
    match kind {
        Kind::Postgres => Some(bare_postgres::Bare::open().await.renews(count, TIMES).await),
        Kind::Redis => Some(bare_redis::Bare::open().await.renews(count, TIMES).await),
        Kind::Memory | Kind::Full | Kind::Normal => None,
    }
}

async fn renews(kind: Kind, count: usize) -> Vec<Duration> {
    let bench = Bench::open(kind).await;
    bench.enqueue(count, 500, Duration::ZERO).await;
    let mut leases = Vec::new();
    while leases.len() < count {
        let claimed = bench.claim(500.min(count - leases.len())).await;
        let started = bench.begin(&claimed, bench.now().await).await;
        let token = |run: &tenure::model::Run| -> Token { run.token().expect("a token") };
        leases.extend(started.iter().map(|write| (write.run.run_id.clone(), token(&write.run))));
    }
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let (instance, leases) = (bench.instance, leases.clone());
        let request = RenewRequest { instance, leases, lease: Duration::from_secs(900) };
        let clock = Instant::now();
        let answers = bench.store.renew(request).await.expect("renewed");
        took.push(clock.elapsed());
        let all = answers.iter().all(|answer| matches!(answer, Renewal::Renewed { .. }));
        assert!(all && answers.len() == count, "every lease stands");
    }
    bench.end().await;
    took
}

const ORPHANS: usize = 100;
const LEASE: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_secs(1);

/// How long after they were claimed by an instance that never says a word again they begin elsewhere.
async fn taken_over(kind: Kind) -> Vec<Duration> {
    let bench = Bench::open(kind).await;
    bench.enqueue(ORPHANS, 500, Duration::ZERO).await;
    let store = bench.another().await;
    let settings = Settings {
        lease: LEASE,
        heartbeat: Some(Duration::from_secs(1)),
        grace: Some(GRACE),
        sweep: Some(SWEEP),
        concurrency: ORPHANS,
        ..Settings::default()
    };
    let tenure = Tenure::open(Arc::clone(&store), settings).await.expect("a host");
    let (told, mut begun) = mpsc::unbounded_channel();
    let claimed = bench.claim_for(ORPHANS, LEASE).await;
    let last_word = Instant::now();
    assert_eq!(claimed.len(), ORPHANS, "all are held by who is gone");
    bench.begin(&claimed, bench.now().await).await;
    tenure
        .register_agent("noop", move |_: RunContext| {
            told.send(last_word.elapsed()).expect("heard");
            async { Ok(().into()) }
        })
        .expect("an agent");
    let mut delays = Vec::new();
    while delays.len() < ORPHANS {
        delays.push(begun.recv().await.expect("a start"));
    }
    tenure.shutdown().await.expect("a shutdown");
    store.close().await.expect("a close");
    bench.end().await;
    delays
}
