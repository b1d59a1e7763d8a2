//! Runs that an earlier start left behind: they are active, and nobody executes them.

use tenure::Tenure;
use tenure::model::{OverlapPolicy, Run, RunStatus, TaskId, TaskSpec, Timestamp};
use tenure::store::{PageRequest, RunFilter, Store};

use crate::exit::Failure;

/// The most that are looked at.
const PAGE: usize = 500;

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// This run stands in the way: it is brought to its end.
    First(Run),
    /// This run is what is wanted.
    Continue(Run),
    /// There is none: a run is asked for.
    Ask,
}

/// Those of a task, in the order in which they can be executed.
pub(super) async fn behind(
    tenure: &Tenure,
    store: &dyn Store,
    task_id: &TaskId,
) -> Result<Vec<Run>, Failure> {
    let active = RunStatus::ALL.into_iter().filter(|status| status.is_active());
    let filter =
        RunFilter { task_id: Some(task_id.clone()), statuses: active.collect(), ..RunFilter::default() };
    let page = tenure.runs(filter, PageRequest { limit: PAGE, cursor: None }).await?;
    let now = store.now().await?;
    let mut left: Vec<Run> = page.items.into_iter().filter(|run| is_left(run, now)).collect();
    left.sort_by_key(|run| (!run.status.takes_room(), run.due_at, run.spec.queued_at));
    Ok(left)
}

/// Whether nobody executes an active run: the lease of who did has ended.
pub(super) fn is_left(run: &Run, now: Timestamp) -> bool {
    run.status.is_active() && run.lease.is_none_or(|lease| lease.expires_at <= now)
}

/// Decides by what is wanted and what was left. A run that asks the same is what is wanted, and so is one that a
/// person has answered, where no other query is given. Of the others those come first that would have it skipped
/// or queued behind them.
pub(super) fn next(mut left: Vec<Run>, task: &TaskSpec, query: Option<&str>) -> Next {
    let wanted = query.unwrap_or(&task.query);
    let is_answered = |run: &Run| run.approval.as_ref().is_some_and(|approval| approval.answer.is_some());
    let is_wanted = |run: &Run| *run.spec.query == *wanted || (query.is_none() && is_answered(run));
    let place = left.iter().position(is_wanted);
    let in_the_way = match task.overlap_policy {
        OverlapPolicy::AllowParallel => false,
        // What is asked for replaces them.
        OverlapPolicy::CancelPrevious => place.is_some(),
        OverlapPolicy::SkipIfRunning | OverlapPolicy::QueueNext => !left.is_empty(),
    };
    match place {
        Some(place) if place == 0 || !in_the_way => Next::Continue(left.swap_remove(place)),
        _ if in_the_way => Next::First(left.swap_remove(0)),
        _ => Next::Ask,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure::model::{RunId, Task};
    use tenure::rules::{Moment, Wanted, enqueue};

    use super::*;

    fn task(policy: &str) -> TaskSpec {
        let task = json!({ "task_id": "t", "agent_id": "a", "query": "usual", "overlap_policy": policy });
        TaskSpec::parse(&task.to_string()).unwrap()
    }

    fn run(query: &str) -> Run {
        let now = Timestamp::default();
        let spec = task("skip_if_running");
        let task = Task { spec, created_at: now, updated_at: now, revision: 1, last_event: 0 };
        let wanted = Wanted { query: Some(query.into()), ..Wanted::now(RunId::generate(), now) };
        enqueue(&task, wanted, Moment { now, stamp: 0 }).run
    }

    #[test]
    fn what_was_left_is_continued_or_finished_first_and_no_query_is_dropped() {
        let (usual, other) = (run("usual"), run("other"));
        let decide = |policy: &str, left: &[&Run], query: Option<&str>| {
            next(left.iter().map(|run| (*run).clone()).collect(), &task(policy), query)
        };
        for policy in ["skip_if_running", "queue_next", "cancel_previous", "allow_parallel"] {
            assert_eq!(decide(policy, &[], None), Next::Ask);
            assert_eq!(decide(policy, &[&usual], None), Next::Continue(usual.clone()));
            assert_eq!(decide(policy, &[&other], Some("other")), Next::Continue(other.clone()));
        }
        for policy in ["skip_if_running", "queue_next"] {
            assert_eq!(decide(policy, &[&usual], Some("mine")), Next::First(usual.clone()));
            assert_eq!(decide(policy, &[&other, &usual], None), Next::First(other.clone()));
        }
        for policy in ["cancel_previous", "allow_parallel"] {
            assert_eq!(decide(policy, &[&usual], Some("mine")), Next::Ask);
        }
        assert_eq!(decide("allow_parallel", &[&other, &usual], None), Next::Continue(usual.clone()));
        assert_eq!(decide("cancel_previous", &[&other, &usual], None), Next::First(other.clone()));
    }
}
