//! Several live workers on one file.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tenure::model::{EventKind, OccurrenceOutcome, RunStatus, TaskId};
use tenure::store::{PageRequest, RunFilter};

use crate::ground::Ground;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{Point, Setup, What, Window};

const PARALLEL: &str = r#"{"task_id":"task","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
    "retry_policy":{"max_interruptions":100}}"#;

/// Leases so long that nobody is taken over from on a busy machine.
fn long(stage: &Stage) -> Setup {
    Setup { lease_ms: 30_000, heartbeat_ms: 10_000, grace_ms: 20_000, ..stage.setup.clone() }
}

pub(crate) async fn field_k11_four_os_processes_start_a_thousand_runs_a_thousand_times(ground: Ground) {
    let all = ground.amount(1_000, 100);
    let mut stage = Stage::set(ground, &[PARALLEL]).await;
    let setup = long(&stage);
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(stage.worker(&setup).await);
    }
    // Each holds as many as it can before any goes on: none of them is too late to have its share.
    let full = workers.len() * setup.concurrency;
    let held: Vec<u64> = (0..full).map(|n| stage.want(workers[n % 4], "task", Some("hold"), None)).collect();
    stage.answers(&held).await;
    while stage.sink.log().iter().filter(|had| had.effect.what == What::Hold).count() < full {
        stage.next("every worker holds as much as it can").await;
    }
    let rest: Vec<u64> = (full..all).map(|n| stage.want(workers[n % 4], "task", None, None)).collect();
    stage.answers(&rest).await;
    for had in stage.sink.log() {
        stage.sink.let_go(&had.effect.run_id, had.effect.fence);
    }
    stage.until_all_ended().await;
    for worker in workers {
        assert_eq!(stage.shut_down(worker).await, 0, "nothing was in progress");
    }
    let events = stage.all_events().await;
    let starts = events.iter().filter(|event| event.event == EventKind::Started);
    let started: HashSet<_> = starts.clone().filter_map(|event| event.run_id.clone()).collect();
    assert_eq!((starts.clone().count(), started.len()), (all, all));
    let mut shares: BTreeMap<_, usize> = BTreeMap::new();
    for start in starts {
        *shares.entry(start.instance).or_default() += 1;
    }
    assert_eq!(shares.len(), 4, "{shares:?}");
    assert!(shares.values().all(|share| *share >= setup.concurrency), "{shares:?}");
    let accepted: Vec<_> = started.into_iter().collect();
    stage.judge(&accepted).await;
}

pub(crate) async fn field_s06_two_schedulers_fire_each_occurrence_once(ground: Ground) {
    let rounds = ground.amount(20, 8);
    let task = r#"{"task_id":"tick","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "schedule":{"type":"interval","seconds":0.1,"misfire_policy":"queue_all"}}"#;
    let mut stage = Stage::set(ground, &[task]).await;
    let setup = Setup { windows: vec![Window::Fire], ..long(&stage) };
    let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
    let refused = fire_together(&mut stage, rounds).await;
    for worker in workers {
        stage.shut_down(worker).await;
    }
    assert!(refused >= rounds, "of each round one scheduler was refused, of {rounds} {refused} were");
    let task_id = TaskId::new("tick").expect("an id");
    let occurrences = stage.store.occurrences(&task_id, PageRequest { limit: 1000, cursor: None }).await;
    let occurrences = occurrences.expect("occurrences").items;
    let due: HashSet<_> = occurrences.iter().map(|occurrence| occurrence.due_at).collect();
    assert_eq!(due.len(), occurrences.len(), "each occurrence has one record");
    let ran = occurrences.iter().filter_map(|occurrence| match &occurrence.outcome {
        OccurrenceOutcome::Ran { run_id } => Some(run_id.clone()),
        _ => None,
    });
    let ran: HashSet<_> = ran.collect();
    let runs = stage.runs(RunFilter::default()).await;
    assert_eq!(runs.len(), ran.len(), "each run has an occurrence of its own");
    assert!(runs.iter().all(|run| ran.contains(&run.run_id)));
    let wanted: HashSet<_> = runs.iter().map(|run| run.spec.occurrence).collect();
    assert_eq!(wanted.len(), runs.len(), "no occurrence has two runs");
    assert!(occurrences.len() as u64 >= rounds, "{} occurrences", occurrences.len());
}

fn both_are_held(stage: &Stage) -> bool {
    stage.held_in(Window::Fire).into_iter().collect::<HashSet<usize>>().len() == 2
}

/// Holds each scheduler before it fires until both are there, so many times; answers how often one of them was
/// refused.
pub(crate) async fn fire_together(stage: &mut Stage, rounds: u64) -> u64 {
    stage.policy(|_, at| if at.point == Point::Before { Word::Hold } else { Word::Go });
    let (mut refused, mut round) = (0, 0);
    while round < rounds {
        let heard = stage.next("both schedulers are about to fire").await;
        if let Heard::Told(_, crate::wire::Told::At { at, .. }) = &heard {
            refused += at.refused.len() as u64;
        }
        if both_are_held(stage) {
            round += 1;
            stage.release(|_, at| at.window == Window::Fire);
        }
    }
    // The answers of the last round: whoever comes back has had theirs.
    while !both_are_held(stage) {
        if let Heard::Told(_, crate::wire::Told::At { at, .. }) = stage.next("the last round is over").await {
            refused += at.refused.len() as u64;
        }
    }
    stage.policy(|_, _| Word::Go);
    stage.release(|_, _| true);
    refused
}

pub(crate) async fn field_k09_a_hundred_requests_with_ten_keys_from_two_os_processes_make_ten_runs(
    ground: Ground,
) {
    let mut stage = Stage::set(ground, &[PARALLEL]).await;
    let setup = long(&stage);
    let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
    let asked: Vec<u64> = (0..100)
        .map(|n| stage.want(workers[n % 2], "task", None, Some(&format!("key-{}", n / 2 % 10))))
        .collect();
    let answers = stage.answers(&asked).await;
    let mut by_key: BTreeMap<usize, HashSet<_>> = BTreeMap::new();
    for (n, (run_id, _)) in answers.into_iter().enumerate() {
        by_key.entry(n / 2 % 10).or_default().insert(run_id);
    }
    assert!(by_key.values().all(|runs| runs.len() == 1), "{by_key:?}");
    stage.until_all_ended().await;
    for worker in workers {
        stage.shut_down(worker).await;
    }
    let runs: Vec<_> = by_key.into_values().flatten().collect();
    assert_eq!(stage.runs(RunFilter::default()).await.len(), 10);
    stage.judge(&runs).await;
}

pub(crate) async fn field_c02_a_cancel_crosses_os_processes_within_the_poll_bound(ground: Ground) {
    let mut stage = Stage::set(ground, &[PARALLEL]).await;
    // No heartbeat comes to help within the time of this test.
    let owner = stage.worker(&long(&stage)).await;
    let run_id = stage.wanted(owner, "task", Some("hold")).await;
    stage.effect(&run_id, What::Hold).await;
    let other = stage.worker(&Setup { agents: Vec::new(), ..long(&stage) }).await;
    let id = 1_000_000;
    stage.say(other, &crate::wire::Order::Cancel { id, run_id: run_id.clone() });
    let (_, status) = stage.answers(&[id]).await.remove(0);
    assert_eq!(status, RunStatus::Running, "its owner ends it");
    stage.effect(&run_id, What::Stopped).await;
    stage.run_until(&run_id, "it is cancelled", |run| run.status == RunStatus::Cancelled).await;
    let events = stage.events(&run_id).await;
    let at = |kind| events.iter().find(|event| event.event == kind).expect("an event").timestamp;
    let took = at(EventKind::Cancelled).since(at(EventKind::CancelRequested));
    // The bound is 50 ms; the rest is for a busy machine, and far below a heartbeat.
    assert!(took < Duration::from_millis(50 + 4_000), "it took {took:?}");
    stage.judge(&[run_id]).await;
}

pub(crate) async fn field_c09_a_quick_restart_after_a_kill_keeps_to_the_limit_of_a_key(ground: Ground) {
    let task = |id: &str| {
        format!(
            r#"{{"task_id":"{id}","agent_id":"agent","query":"hold","overlap_policy":"allow_parallel",
            "concurrency_key":"key","concurrency_limit":1}}"#
        )
    };
    let mut stage = Stage::set(ground, &[&task("one"), &task("two")]).await;
    let setup = stage.setup.clone();
    let first = stage.worker(&setup).await;
    let one = stage.wanted(first, "one", None).await;
    stage.effect(&one, What::Hold).await;
    let two = stage.wanted(first, "two", None).await;
    stage.kill(first);
    let second = stage.worker(&setup).await;
    // Whichever comes first after the lease of the dead one: it goes on, then the other.
    let mut done = HashSet::new();
    while done.len() < 2 {
        if let Heard::Sink(had) = stage.next("both runs were done").await {
            stage.sink.let_go(&had.effect.run_id, had.effect.fence);
            if had.effect.what == What::End {
                done.insert(had.effect.run_id);
            }
        }
    }
    stage.until_all_ended().await;
    stage.shut_down(second).await;
    let mut executing = HashSet::new();
    for event in stage.all_events().await {
        match (event.event, event.run_id) {
            (EventKind::Claimed, Some(run_id)) => {
                executing.insert(run_id);
                assert_eq!(executing.len(), 1, "at {}", event.timestamp);
            }
            (EventKind::Completed | EventKind::Recovered, Some(run_id)) => drop(executing.remove(&run_id)),
            _ => {}
        }
    }
    stage.judge(&[one, two]).await;
}
