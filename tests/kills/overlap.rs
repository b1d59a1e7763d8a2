//! Overlap policies, with triggers that two OS processes decide about at the same time.

use std::collections::HashSet;

use tenure::model::{Event, EventKind, OccurrenceOutcome, RunId, RunStatus, TaskId, Trigger};
use tenure::store::{PageRequest, RunFilter};

use crate::ground::Ground;
use crate::sharing::fire_together;
use crate::stage::{Stage, Word};
use crate::wire::{Point, Setup, What, Window};

/// How often two triggers meet.
fn rounds(ground: Ground) -> u64 {
    ground.amount(20, 8)
}

/// Two workers, and a task with this policy whose runs wait to be let go.
async fn set(ground: Ground, policy: &str, more: &str, windows: Vec<Window>) -> (Stage, [usize; 2]) {
    let task = format!(
        r#"{{"task_id":"task","agent_id":"agent","query":"hold","overlap_policy":"{policy}",
        "retry_policy":{{"max_interruptions":100}}{more}}}"#
    );
    let mut stage = Stage::set(ground, &[&task]).await;
    // Nobody is taken over from, however busy the machine is.
    let setup =
        Setup { lease_ms: 30_000, heartbeat_ms: 10_000, grace_ms: 20_000, windows, ..stage.setup.clone() };
    let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
    (stage, workers)
}

/// Has both workers decide about a run before the decision of either reaches the store. In the order in which
/// the store took them.
async fn together(stage: &mut Stage, workers: [usize; 2]) -> Vec<(RunId, RunStatus)> {
    stage.policy(|_, at| if at.point == Point::Before { Word::Hold } else { Word::Go });
    let asked = workers.map(|worker| stage.want(worker, "task", None, None));
    while stage.held_in(Window::Enqueue).len() < 2 {
        stage.next("both have decided").await;
    }
    stage.policy(|_, _| Word::Go);
    stage.release(|_, _| true);
    let mut answers = stage.answers(&asked).await;
    let first = stage.events(&answers[0].0).await[0].cursor;
    if first > stage.events(&answers[1].0).await[0].cursor {
        answers.reverse();
    }
    answers
}

/// How many runs executed at once at most.
fn most_at_once(events: &[Event]) -> usize {
    let (mut executing, mut most) = (HashSet::new(), 0);
    for event in events {
        let Some(run_id) = &event.run_id else { continue };
        match event.status {
            Some(RunStatus::Running) => drop(executing.insert(run_id)),
            _ => drop(executing.remove(run_id)),
        }
        most = most.max(executing.len());
    }
    most
}

async fn let_go(stage: &mut Stage, run_id: &RunId) {
    let held = stage.effect(run_id, What::Hold).await;
    stage.sink.let_go(run_id, held.effect.fence);
}

async fn finish(mut stage: Stage, workers: [usize; 2], accepted: &[RunId]) -> Vec<Event> {
    stage.until_all_ended().await;
    for worker in workers {
        stage.shut_down(worker).await;
    }
    stage.judge(accepted).await;
    stage.all_events().await
}

pub(crate) async fn task_t20_of_simultaneous_triggers_one_runs_and_one_is_skipped(ground: Ground) {
    let (mut stage, workers) = set(ground, "skip_if_running", "", vec![Window::Enqueue]).await;
    let mut all = Vec::new();
    for _ in 0..rounds(ground) {
        let [(ran, queued), (skipped, status)] =
            <[_; 2]>::try_from(together(&mut stage, workers).await).expect("two");
        assert_eq!((queued, status), (RunStatus::Queued, RunStatus::Skipped));
        assert_eq!(stage.run(&skipped).await.blocked_by.as_ref(), Some(&ran));
        let_go(&mut stage, &ran).await;
        stage.run_until(&ran, "it is done", |run| run.status == RunStatus::Completed).await;
        all.extend([ran, skipped]);
    }
    assert_eq!(most_at_once(&finish(stage, workers, &all).await), 1);
}

pub(crate) async fn task_t21_of_simultaneous_triggers_each_runs_after_the_other(ground: Ground) {
    let (mut stage, workers) = set(ground, "queue_next", "", vec![Window::Enqueue]).await;
    let mut all = Vec::new();
    for _ in 0..rounds(ground) {
        let answers = together(&mut stage, workers).await;
        for (run_id, status) in answers {
            assert_eq!(status, RunStatus::Queued);
            // In the order in which they were queued: the later one waits for this one.
            let_go(&mut stage, &run_id).await;
            all.push(run_id);
        }
    }
    let events = finish(stage, workers, &all).await;
    assert_eq!(most_at_once(&events), 1);
    let starts = events.iter().filter(|event| event.event == EventKind::Started);
    let started: Vec<RunId> = starts.filter_map(|event| event.run_id.clone()).collect();
    assert_eq!(started, all, "they ran in the order in which they were queued");
}

pub(crate) async fn task_t21_of_simultaneous_occurrences_at_most_one_waits(ground: Ground) {
    let schedule = r#","schedule":{"type":"interval","seconds":0.1}"#;
    let (mut stage, _workers) = set(ground, "queue_next", schedule, vec![Window::Fire]).await;
    let rounds = rounds(ground);
    let refused = fire_together(&mut stage, rounds).await;
    assert!(refused >= rounds, "of each round one scheduler was refused, of {rounds} {refused} were");
    let waiting = RunFilter { statuses: vec![RunStatus::Queued], ..RunFilter::default() };
    let waiting = stage.runs(waiting).await;
    assert!(waiting.len() == 1 && waiting[0].spec.trigger == Trigger::Schedule, "{waiting:?}");
    let events = stage.all_events().await;
    let (mut waits, mut most) = (HashSet::new(), 0);
    for event in &events {
        let Some(run_id) = &event.run_id else { continue };
        match event.status {
            Some(RunStatus::Queued) => drop(waits.insert(run_id)),
            _ => drop(waits.remove(run_id)),
        }
        most = most.max(waits.len());
    }
    assert_eq!((most, most_at_once(&events)), (1, 1));
    let task_id = TaskId::new("task").expect("an id");
    let page = PageRequest { limit: 1000, cursor: None };
    let occurrences = stage.store.occurrences(&task_id, page).await.expect("occurrences").items;
    let mut ran = HashSet::new();
    for occurrence in occurrences.iter().rev() {
        match &occurrence.outcome {
            OccurrenceOutcome::Ran { run_id } => drop(ran.insert(run_id.clone())),
            // Into the one that waits, or into the first one while it did.
            OccurrenceOutcome::Coalesced { into } => assert!(ran.contains(into), "{occurrence:?}"),
            OccurrenceOutcome::Skipped { .. } => panic!("none is skipped: {occurrence:?}"),
        }
    }
    assert_eq!(ran.len(), 2, "one executes and one waits");
    assert!(occurrences.len() as u64 >= rounds, "{} occurrences", occurrences.len());
}

pub(crate) async fn task_t22_of_simultaneous_triggers_the_last_one_runs_to_its_end(ground: Ground) {
    let (mut stage, workers) = set(ground, "cancel_previous", "", vec![Window::Enqueue]).await;
    let mut all = Vec::new();
    for _ in 0..rounds(ground) {
        let answers = together(&mut stage, workers).await;
        let last = answers.last().expect("two").0.clone();
        all.extend(answers.into_iter().map(|(run_id, _)| run_id));
        // It has begun, so that every older one has ended or has no authority any more.
        stage.effect(&last, What::Hold).await;
    }
    let last = all.last().expect("many").clone();
    let_go(&mut stage, &last).await;
    stage.until_all_ended().await;
    for run_id in &all {
        let expected = if *run_id == last { RunStatus::Completed } else { RunStatus::Cancelled };
        assert_eq!(stage.run(run_id).await.status, expected);
    }
    assert_eq!(most_at_once(&finish(stage, workers, &all).await), 1);
}

pub(crate) async fn task_t23_simultaneous_triggers_run_side_by_side(ground: Ground) {
    let (mut stage, workers) = set(ground, "allow_parallel", "", vec![Window::Enqueue]).await;
    let mut all = Vec::new();
    for _ in 0..rounds(ground) {
        let answers = together(&mut stage, workers).await;
        for (run_id, status) in &answers {
            assert_eq!(*status, RunStatus::Queued);
            stage.effect(run_id, What::Hold).await;
        }
        for (run_id, _) in answers {
            let_go(&mut stage, &run_id).await;
            all.push(run_id);
        }
    }
    assert!(most_at_once(&finish(stage, workers, &all).await) >= 2);
}
