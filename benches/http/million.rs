//! A store with very many runs that have ended, of many tasks, agents and sessions; a few of them are rare, and the
//! oldest.

use std::time::Duration;

use tenure::model::{RunId, RunStatus, Task, Timestamp, Trigger};
use tenure::rules::{self, Wanted};
use tenure::store::RunWrite;

use crate::stores::{Bench, task};

pub(crate) const TASKS: usize = 100;
const AGENTS: usize = 10;
/// Of a task that differs from all others.
const RARE: usize = 5;
const BATCH: usize = 1_000;

/// Instants between which there are runs.
pub(crate) struct Span {
    /// Before it is a hundredth of them.
    pub(crate) early: Timestamp,
    /// After it is a hundredth of them.
    pub(crate) late: Timestamp,
}

/// Stores so many runs, one a millisecond until now.
pub(crate) async fn seed(bench: &Bench, count: usize) -> Span {
    let began = bench.now().await.minus(Duration::from_millis(u64::try_from(count).expect("a count")));
    let at = |n: usize| began.plus(Duration::from_millis(u64::try_from(n).expect("a number")));
    let rare = other(bench, "rare", "rare", "there is a needle in it").await;
    let mut tasks = Vec::new();
    for n in 0..TASKS {
        let (id, agent) = (format!("t-{n}"), format!("agent-{}", n % AGENTS));
        tasks.push(other(bench, &id, &agent, "look whether all is well").await);
    }
    let write = |n: usize| {
        let task = if n < RARE { &rare } else { &tasks[n % TASKS] };
        ended(bench, task, n / TASKS, at(n))
    };
    for first in (0..count).step_by(BATCH) {
        let last = count.min(first + BATCH);
        bench.commit((first..last).map(|n| write(n).into()).collect()).await;
    }
    Span { early: at(count / 100), late: at(count - count / 100) }
}

async fn other(bench: &Bench, task_id: &str, agent_id: &str, query: &str) -> Task {
    let spec = format!(
        r#"{{"task_id":"{task_id}","agent_id":"{agent_id}","query":"{query}","overlap_policy":"allow_parallel",
            "session_policy":{{"type":"fixed","session_id":"session-{task_id}"}}}}"#
    );
    let task = task(&spec, bench.now().await);
    bench.put_task(&task).await;
    task
}

/// A run as it is stored when it has ended: the `n`th of its task.
fn ended(bench: &Bench, task: &Task, n: usize, at: Timestamp) -> RunWrite {
    let trigger = if n % 10 == 1 { Trigger::Schedule } else { Trigger::Manual };
    let wanted = Wanted { trigger, ..Wanted::now(RunId::generate(), at) };
    let mut write = rules::enqueue(task, wanted, bench.moment(at));
    write.run.status = if n % 100 == 3 { RunStatus::Failed } else { RunStatus::Completed };
    write.run.finished_at = Some(at);
    write
}
