//! What a host keeps in its own memory of what is stored.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tenure::model::{RunStatus, TaskSpec};
use tenure::{RunContext, Tenure};

use crate::cycles::runtime;
use crate::host::host;
use crate::measure::{Samples, number};
use crate::options::Plan;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

pub(crate) fn measure(plan: &Plan, table: &Table) {
    if !plan.wants_store(Kind::Full) {
        return;
    }
    let (task, run) = runtime().block_on(kept(plan.kept));
    let (tasks, runs) = (plan.kept, COUNTED * plan.kept);
    for (what, bytes, of, goal) in
        [("scheduled task", task, tasks, 1024.0), ("finished run", run, runs, 16.0)]
    {
        let bytes = Samples(vec![bytes]);
        let figure = format!("resident bytes that a host keeps of a {what}, of {} more", show(of));
        let row = Row::new(figure, Kind::Full.name(), &bytes, Unit::MoreBytes);
        table.print(row.goal(Goal::AtMost(goal), &bytes, Unit::MoreBytes));
    }
}

/// So many times as many runs come first, so that caches are full that have an end.
const WARM: usize = 10;
/// So many times as many runs are counted: an allocator takes and gives back by the megabyte.
const COUNTED: usize = 40;

/// Of a task, of a run.
async fn kept(count: usize) -> (f64, f64) {
    let bench = Bench::open(Kind::Full).await;
    let tenure = host(&bench, 64).await;
    tenure.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
    schedule(&bench, &tenure, 0..count).await;
    finish(&bench, WARM * count, WARM * count).await;
    let begun = resident_bytes();
    schedule(&bench, &tenure, count..2 * count).await;
    let scheduled = resident_bytes();
    finish(&bench, COUNTED * count, (WARM + COUNTED) * count).await;
    let finished = resident_bytes();
    tenure.shutdown().await.expect("a shutdown");
    ((scheduled - begun) / number(count), (finished - scheduled) / number(COUNTED * count))
}

/// Tasks that begin tomorrow.
async fn schedule(bench: &Bench, tenure: &Tenure, numbers: std::ops::Range<usize>) {
    let due = bench.now().await.plus(Duration::from_secs(86_400));
    let create = |n: usize| async move {
        let schedule = format!(r#"{{"type":"once","run_at":"{due}"}}"#);
        let spec =
            format!(r#"{{"task_id":"later-{n}","agent_id":"noop","query":"q","schedule":{schedule}}}"#);
        tenure.create_task(TaskSpec::parse(&spec).expect("a task")).await.expect("stored");
    };
    stream::iter(numbers).for_each_concurrent(64, create).await;
}

/// More runs, until so many have ended.
async fn finish(bench: &Bench, count: usize, all: usize) {
    bench.enqueue(count, 500, Duration::ZERO).await;
    let all = u64::try_from(all).expect("a count");
    let ended = async || {
        let counts = bench.store.counts(None).await.expect("counts");
        counts.iter().any(|(status, count)| *status == RunStatus::Completed && *count >= all)
    };
    while !ended().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes * 1024.0
}
