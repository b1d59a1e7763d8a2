//! What a run takes in the memory of a server.

use std::time::Duration;

use tenure::model::Trigger;
use tenure::rules::{self, Wanted};
use tenure::store::RunWrite;

use crate::cycles::runtime;
use crate::measure::{Samples, number};
use crate::options::Plan;
use crate::reached;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

const BATCH: usize = 500;

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for kind in plan.stores([Kind::Redis]) {
        let bytes = Samples(vec![runtime().block_on(scheduled(kind, plan.backlog))]);
        let figure = format!("bytes of a scheduled run with its event, of {}", show(plan.backlog));
        let row = Row::new(figure, kind.name(), &bytes, Unit::Bytes);
        table.print(row.goal(Goal::AtMost(600.0), &bytes, Unit::Bytes));
    }
}

/// Runs as a schedule makes them, one a second, from tomorrow on.
async fn scheduled(kind: Kind, count: usize) -> f64 {
    let bench = Bench::open(kind).await;
    let before = reached::redis_memory().await;
    let now = bench.now().await;
    let run = |n: usize| -> RunWrite {
        let due_at = now.plus(Duration::from_secs(86_400 + u64::try_from(n).expect("a number")));
        let wanted = Wanted {
            trigger: Trigger::Schedule,
            due_at,
            not_before: due_at,
            occurrence: Some(due_at),
            ..Wanted::now(tenure::model::RunId::generate(), now)
        };
        rules::enqueue(&bench.task, wanted, bench.moment(now))
    };
    for first in (0..count).step_by(BATCH) {
        bench.commit((first..count.min(first + BATCH)).map(|n| run(n).into()).collect()).await;
    }
    let bytes = (reached::redis_memory().await - before) / number(count);
    bench.end().await;
    bytes
}
