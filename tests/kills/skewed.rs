//! Workers whose clocks are an hour ahead and an hour behind that of their server: nobody goes by them.

use std::collections::HashSet;
use std::time::Duration;

use tenure::model::{EventKind, RunId, TaskId, Timestamp};
use tenure::store::{PageRequest, RunFilter};

use crate::ground::Ground;
use crate::stage::Stage;
use crate::wire::{Setup, What};

const HOUR: Duration = Duration::from_secs(3600);
/// How much longer than they have to wait others may take over, on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

const TASKS: &[&str] = &[
    r#"{"task_id":"task","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":2,"initial_delay_seconds":0.2,"jitter":0}}"#,
    r#"{"task_id":"tick","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "schedule":{"type":"interval","seconds":0.2}}"#,
];

/// Two workers, the one with a clock ahead, the other with one behind.
async fn apart(stage: &mut Stage, setup: &Setup) -> [usize; 2] {
    let workers = [stage.worker(setup).await, stage.worker(setup).await];
    let [ahead, behind] = workers.map(|worker| stage.clock(worker).expect("its clock"));
    let minute = Duration::from_secs(60);
    assert!(ahead.since(Stage::now()) > HOUR - minute, "the clock that was to be ahead shows {ahead}");
    assert!(Stage::now().since(behind) > HOUR - minute, "the clock that was to be behind shows {behind}");
    workers
}

pub(crate) async fn own_l06_instances_whose_clocks_are_two_hours_apart_share_the_work_as_others_do(
    ground: Ground,
) {
    let began = Stage::now().minus(Duration::from_secs(1));
    let mut stage = Stage::set(ground, TASKS).await;
    let setup = Setup { lease_ms: 30_000, heartbeat_ms: 10_000, grace_ms: 20_000, ..stage.setup.clone() };
    let workers = apart(&mut stage, &setup).await;
    let query = |n: usize| if n.is_multiple_of(4) { "fail once" } else { "plain" };
    let asked: Vec<u64> = (0..60).map(|n| stage.want(workers[n % 2], "task", Some(query(n)), None)).collect();
    let mut runs: Vec<RunId> = stage.answers(&asked).await.into_iter().map(|(run_id, _)| run_id).collect();
    let ticks = RunFilter { task_id: Some(TaskId::new("tick").expect("an id")), ..RunFilter::default() };
    while stage.runs(ticks.clone()).await.len() < 5 {
        stage.next("the schedule has fired five times").await;
    }
    stage.delete("tick").await;
    stage.until_all_ended().await;
    for worker in workers {
        stage.shut_down(worker).await;
    }
    let ended = Stage::now().plus(Duration::from_secs(1));
    let within = |at: Timestamp| began <= at && at <= ended;
    let ticked = stage.runs(ticks).await;
    assert!(ticked.iter().all(|run| run.spec.occurrence.is_some_and(within)), "{ticked:?}");
    runs.extend(ticked.into_iter().map(|run| run.run_id));
    let page = PageRequest { limit: 1000, cursor: None };
    let occurrences = stage.store.occurrences(&TaskId::new("tick").expect("an id"), page).await;
    let occurrences = occurrences.expect("occurrences").items;
    let skipped = occurrences.iter().filter(|occurrence| !within(occurrence.due_at)).count();
    assert_eq!(skipped, 0, "nobody thinks that hours were missed: {occurrences:?}");
    let (mut owners, mut failed) = (HashSet::new(), 0);
    for event in stage.all_events().await {
        assert!(within(event.timestamp), "an event by the clock of a worker: {event:?}");
        owners.extend(event.instance.filter(|_| event.event == EventKind::Completed));
        failed += usize::from(event.event == EventKind::Retrying);
    }
    assert_eq!((owners.len(), failed), (2, 15), "both have their share, each failure was tried again");
    for run_id in &runs {
        let events = stage.events(run_id).await;
        let retry = events.iter().position(|event| event.event == EventKind::Retrying);
        if let Some(retry) = retry {
            let waited = events[retry + 1].timestamp.since(events[retry].timestamp);
            assert!(waited >= Duration::from_millis(200), "run {run_id} was tried again after {waited:?}");
        }
    }
    stage.judge(&runs).await;
}

pub(crate) async fn own_l06_a_killed_instance_is_taken_over_when_its_lease_is_over_by_nobodys_clock(
    ground: Ground,
) {
    let task = r#"{"task_id":"task","agent_id":"agent","query":"hold","overlap_policy":"allow_parallel"}"#;
    let mut stage = Stage::set(ground, &[task]).await;
    let setup =
        Setup { lease_ms: 1_500, heartbeat_ms: 300, grace_ms: 1_000, concurrency: 2, ..stage.setup.clone() };
    let [ahead, behind] = apart(&mut stage, &setup).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(stage.wanted(ahead, "task", None).await);
    }
    for run_id in &runs {
        stage.effect(run_id, What::Hold).await;
    }
    let lasts = Duration::from_millis(setup.lease_ms + setup.grace_ms);
    let now = Stage::now();
    stage.until_past(now.plus(lasts * 2)).await;
    let (mut of_ahead, owner) = (Vec::new(), stage.instance(ahead));
    for run_id in &runs {
        let run = stage.run(run_id).await;
        let lease = run.lease.expect("it is held");
        assert_eq!((run.attempt, run.fence), (1, 1), "nobody takes what is renewed, whatever clocks say");
        if Some(lease.owner) == owner {
            of_ahead.push((run_id.clone(), lease.expires_at));
        }
    }
    assert_eq!(of_ahead.len(), 2, "each holds as many as it can");
    stage.kill(ahead);
    let died = Stage::now();
    // Who is left has to have room.
    for run_id in runs.iter().filter(|run_id| of_ahead.iter().all(|(of_ahead, _)| of_ahead != *run_id)) {
        stage.sink.let_go(run_id, 1);
    }
    for (run_id, _) in &of_ahead {
        let held = stage.effect_after(run_id, What::Hold, 1).await;
        stage.sink.let_go(run_id, held.effect.fence);
    }
    stage.until_all_ended().await;
    for (run_id, expired_at) in &of_ahead {
        let events = stage.events(run_id).await;
        let recovered = events.iter().find(|event| event.event == EventKind::Recovered).expect("a takeover");
        let grace = Duration::from_millis(setup.grace_ms);
        assert!(recovered.timestamp >= expired_at.plus(grace), "taken over before its lease was over");
        let after = recovered.timestamp.since(died);
        assert!(
            after <= lasts + Duration::from_millis(setup.heartbeat_ms) + SLACK,
            "taken over after {after:?}"
        );
    }
    stage.shut_down(behind).await;
    stage.judge(&runs).await;
}
