//! How promptly an idle host begins, and what it costs when it has nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure::model::TaskSpec;
use tenure::{RunContext, RunRequest};
use tokio::sync::mpsc;

use crate::cycles::runtime;
use crate::delays::percentile;
use crate::host::host;
use crate::measure::Samples;
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit};

pub(crate) fn measure(plan: &Plan, table: &Table) {
    if !plan.wants_store(Kind::Full) {
        return;
    }
    let (mut once, mut enqueued) = runtime().block_on(async {
        let bench = Bench::open(Kind::Full).await;
        (delays_of_once(&bench, plan.prompt).await, delays_of_enqueued(&bench, plan.prompt).await)
    });
    for (figure, delays, goal) in [
        ("from the due time of a `once` task to its start, idle host", &mut once, 10.0),
        ("from an enqueue to the start of the run, idle host", &mut enqueued, 2.0),
    ] {
        let half = Samples(vec![percentile(delays, 50)]);
        table.print(Row::new(format!("p50 {figure}"), Kind::Full.name(), &half, Unit::Milliseconds));
        let p99 = Samples(vec![percentile(delays, 99)]);
        let row = Row::new(format!("p99 {figure}"), Kind::Full.name(), &p99, Unit::Milliseconds);
        table.print(row.goal(Goal::AtMost(goal), &p99, Unit::Milliseconds));
    }
}

/// How late agents began after the due times of their tasks, by the wall clock that the store uses.
async fn delays_of_once(bench: &Bench, count: usize) -> Vec<Duration> {
    let tenure = host(bench, 16).await;
    let (told, mut starts) = mpsc::unbounded_channel();
    let store = Arc::clone(&bench.store);
    tenure
        .register_agent("once", move |context: RunContext| {
            let (told, store) = (told.clone(), Arc::clone(&store));
            async move {
                let now = store.now().await.expect("the time");
                told.send(now.since(context.spec().first_due_at)).expect("heard");
                Ok(().into())
            }
        })
        .expect("an agent");
    let now = bench.now().await;
    for n in 0..count {
        let due = now.plus(Duration::from_millis(500 + 20 * u64::try_from(n).expect("a number")));
        let spec = format!(
            r#"{{"task_id":"once-{n}","agent_id":"once","query":"q","schedule":{{"type":"once","run_at":"{due}"}}}}"#
        );
        tenure.create_task(TaskSpec::parse(&spec).expect("a task")).await.expect("stored");
    }
    let mut delays = Vec::with_capacity(count);
    while delays.len() < count {
        delays.push(starts.recv().await.expect("a start"));
    }
    tenure.shutdown().await.expect("a shutdown");
    delays
}

async fn delays_of_enqueued(bench: &Bench, count: usize) -> Vec<Duration> {
    let tenure = host(bench, 16).await;
    let (told, mut starts) = mpsc::unbounded_channel();
    let asked = Arc::new(Mutex::new(Instant::now()));
    let began = Arc::clone(&asked);
    tenure
        .register_agent("noop", move |_: RunContext| {
            told.send(began.lock().elapsed()).expect("heard");
            async { Ok(().into()) }
        })
        .expect("an agent");
    let mut delays = Vec::with_capacity(count);
    for _ in 0..count {
        *asked.lock() = Instant::now();
        let run = tenure.run_now(&bench.task.spec.task_id, RunRequest::default()).await.expect("queued");
        delays.push(starts.recv().await.expect("a start"));
        tenure.wait(&run.run_id, None).await.expect("settled");
    }
    tenure.shutdown().await.expect("a shutdown");
    delays
}

/// What share of a core a host takes that has nothing to do but know of tasks.
pub(crate) fn measure_idle(plan: &Plan, table: &Table) {
    if !plan.wants_store(Kind::Full) {
        return;
    }
    let share = runtime().block_on(async {
        let bench = Bench::open(Kind::Full).await;
        bench.enqueue(1000, 500, Duration::from_secs(86_400)).await;
        let tenure = host(&bench, 16).await;
        tenure.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = processor_time();
        tokio::time::sleep(plan.idle).await;
        let share = (processor_time() - before).as_secs_f64() / plan.idle.as_secs_f64();
        tenure.shutdown().await.expect("a shutdown");
        share * 100.0
    });
    let share = Samples(vec![share]);
    let row = Row::new("an idle host, in hundredths of a core", Kind::Full.name(), &share, Unit::Times);
    table.print(row.goal(Goal::AtMost(1.0), &share, Unit::Times));
}

/// What this OS process has used of the processors so far, all its threads together.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let spent = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    let nanoseconds = spent.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanoseconds.sum())
}
