//! How soon one instance knows what another did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::model::{CancelMode, RunStatus, Subject};
use tenure::rules::CancelRequest;
use tenure::store::Store;
use tenure::store::faulty::Faulty;
use tenure::{RunContext, RunRequest, Settings, Tenure};
use tokio::sync::mpsc;

use crate::cycles::runtime;
use crate::delays::percentile;
use crate::measure::Samples;
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit};

const HEARTBEAT: Duration = Duration::from_secs(1);

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Full, Kind::Postgres, Kind::Redis]) {
        // Who shares a file looks at it four times a second: fewer, so that it does not take minutes.
        let is_server = kind != Kind::Full;
        let count = if is_server { plan.prompt } else { plan.unheard };
        let visible = runtime().block_on(visible(kind, count));
        let figure = "p99 from a run wanted of one instance to its start told by another, both idle";
        print(table, figure, kind, visible, is_server.then_some(50.0));
        let heard = runtime().block_on(cancelled(kind, count, true));
        let figure = "p99 from a cancel by one instance to the attempt of another that hears of it";
        print(table, figure, kind, heard, is_server.then_some(200.0));
        let unheard = runtime().block_on(cancelled(kind, plan.unheard, false));
        let figure = "the same without hints, with a heartbeat of 1 s";
        print(table, figure, kind, unheard, Some(HEARTBEAT.as_secs_f64() * 1000.0));
    }
}

fn print(table: &Table, figure: &str, kind: Kind, mut delays: Vec<Duration>, goal: Option<f64>) {
    let p99 = Samples(vec![percentile(&mut delays, 99)]);
    let row = Row::new(figure, kind.name(), &p99, Unit::Milliseconds);
    table.print(match goal {
        Some(goal) => row.goal(Goal::AtMost(goal), &p99, Unit::Milliseconds),
        None => row,
    });
}

fn settings() -> Settings {
    Settings {
        heartbeat: Some(HEARTBEAT),
        lease: 3 * HEARTBEAT,
        retain_runs: u64::MAX,
        ..Settings::default()
    }
}

/// Two instances on the same records: one that executes, and one that is asked. The first may be deaf.
async fn pair(bench: &Bench, hears: bool) -> (Tenure, Tenure, Arc<dyn Store>) {
    let own = Arc::clone(&bench.store);
    let own: Arc<dyn Store> = if hears { own } else { Arc::new(Faulty::deaf(own)) };
    let other = bench.another().await;
    let executes = Tenure::open(own, settings()).await.expect("a host");
    let asks = Tenure::attach(Arc::clone(&other), settings()).await.expect("a facade");
    (executes, asks, other)
}

async fn end(executes: Tenure, asks: Tenure, other: Arc<dyn Store>, bench: Bench) {
    executes.shutdown().await.expect("a shutdown");
    asks.shutdown().await.expect("a shutdown");
    other.close().await.expect("a close");
    bench.end().await;
}

async fn visible(kind: Kind, count: usize) -> Vec<Duration> {
    let bench = Bench::open(kind).await;
    let (executes, asks, other) = pair(&bench, true).await;
    executes.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
    let mut told = asks.follow(Subject::All, asks.newest_cursor().await.expect("a cursor"));
    let mut delays = Vec::with_capacity(count);
    for _ in 0..count {
        let asked = Instant::now();
        executes.run_now(&bench.task.spec.task_id, RunRequest::default()).await.expect("queued");
        loop {
            match told.next().await.expect("an event").status {
                Some(RunStatus::Running) => delays.push(asked.elapsed()),
                Some(RunStatus::Completed) => break,
                _ => {}
            }
        }
    }
    end(executes, asks, other, bench).await;
    delays
}

async fn cancelled(kind: Kind, count: usize, hears: bool) -> Vec<Duration> {
    let bench = Bench::open(kind).await;
    let (executes, asks, other) = pair(&bench, hears).await;
    let (begins, mut begun) = mpsc::unbounded_channel();
    let (stops, mut stopped) = mpsc::unbounded_channel();
    let wanted = Arc::new(Mutex::new(Instant::now()));
    let wanted_at = Arc::clone(&wanted);
    let waits = move |context: RunContext| {
        let (begins, stops, wanted_at) = (begins.clone(), stops.clone(), Arc::clone(&wanted_at));
        async move {
            begins.send(()).expect("heard");
            context.cancelled().await;
            stops.send(wanted_at.lock().elapsed()).expect("heard");
            Ok(().into())
        }
    };
    executes.register_agent("noop", waits).expect("an agent");
    let cancel = CancelRequest {
        mode: CancelMode::Cooperative,
        reason: "measured".into(),
        requested_by: "benchmark".into(),
        force_after: None,
    };
    let mut delays = Vec::with_capacity(count);
    for _ in 0..count {
        let run = asks.run_now(&bench.task.spec.task_id, RunRequest::default()).await.expect("queued");
        begun.recv().await.expect("a start");
        *wanted.lock() = Instant::now();
        asks.cancel_run(&run.run_id, &cancel).await.expect("asked for");
        delays.push(stopped.recv().await.expect("an end"));
        executes.wait(&run.run_id, None).await.expect("settled");
    }
    end(executes, asks, other, bench).await;
    delays
}
