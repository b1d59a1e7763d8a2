//! A server that is away for a while, under hosts that go on.

use std::time::Duration;

use tenure::model::{EventKind, RunId};

use crate::ground::Ground;
use crate::servers::own::Own;
use crate::stage::{Heard, Stage};
use crate::wire::{Setup, Told, What};

const TASK: &str =
    r#"{"task_id":"task","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel"}"#;

/// How many runs each host executes at once, and how many more wait.
const ROOM: usize = 2;
const WAITING: usize = 20;
/// Claims go on so soon after the server is back (G9); and what a busy machine may add.
const BACK_WITHIN: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(5);

/// How the server is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Ended,
    Hanging,
}

/// How long it is away: for as long as leases are relied on, in the long form.
fn away_for() -> Duration {
    Duration::from_secs(if crate::soak::is_full() { 10 } else { 3 })
}

pub(crate) async fn field_g09_runs_outlast_a_server_that_ends_and_comes_back(ground: Ground) {
    outlast(ground, Away::Ended).await;
}

pub(crate) async fn field_g09_runs_outlast_a_server_that_hangs_and_goes_on(ground: Ground) {
    outlast(ground, Away::Hanging).await;
}

async fn outlast(ground: Ground, how: Away) {
    let mut server = Own::start(ground.server.expect("a server's name")).expect("a server");
    let mut stage = Stage::on(ground.in_server(server.url()), &[TASK]).await;
    stage.allow(away_for() + Duration::from_secs(ground.pace(60, 180)));
    let setup = Setup {
        lease_ms: 30_000,
        heartbeat_ms: 500,
        grace_ms: 20_000,
        concurrency: ROOM,
        patience_ms: ground.pace(1_000, 5_000),
        ..stage.setup.clone()
    };
    let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
    let mut executing = Vec::new();
    for n in 0..ROOM * 2 {
        // One of them does not ask the store before it ends: what it comes to waits.
        let query = if n == 0 { "deaf" } else { "hold" };
        executing.push(stage.wanted(workers[n % 2], "task", Some(query)).await);
    }
    for run_id in &executing {
        stage.effect(run_id, What::Hold).await;
    }
    let asked: Vec<u64> = (0..WAITING).map(|n| stage.want(workers[n % 2], "task", None, None)).collect();
    let waiting: Vec<RunId> = stage.answers(&asked).await.into_iter().map(|(run_id, _)| run_id).collect();

    match how {
        Away::Ended => server.kill(),
        Away::Hanging => server.pause(),
    }
    let back_at = Stage::now().plus(away_for());
    well(&mut stage, workers, false).await;
    refused(&mut stage, workers[0]).await;
    stage.sink.let_go(&executing[0], 1);
    assert!(stage.effect(&executing[0], What::End).await.taken, "who executes goes on");
    while stage.probe(workers[0]).await.1 + stage.probe(workers[1]).await.1 == 0 {}
    stage.until_past(back_at).await;
    for worker in workers {
        assert!(stage.probe(worker).await.0.is_some(), "its store is away, and it says so");
    }
    match how {
        Away::Ended => server.begin().expect("the server again"),
        Away::Hanging => server.wake(),
    }
    let back = Stage::now();
    well(&mut stage, workers, true).await;
    let again = stage.want(workers[1], "task", None, Some("late"));
    let late = stage.answers(&[again]).await.remove(0).0;
    for run_id in &executing[1..] {
        stage.sink.let_go(run_id, 1);
    }
    stage.until_all_ended().await;
    for worker in workers {
        assert_eq!(stage.shut_down(worker).await, 0, "nothing was interrupted");
    }
    let all = [executing, waiting, vec![late]].concat();
    once_each(&stage, &all).await;
    let claims = stage.all_events().await.into_iter().filter(|event| event.event == EventKind::Claimed);
    let first = claims.map(|event| event.timestamp).find(|at| *at >= back).expect("a claim after that");
    let after = first.since(back);
    assert!(after <= BACK_WITHIN + SLACK, "the first claim was {after:?} after the server was back");
}

/// Asks each worker how it is until it says that its store answers, or does not.
async fn well(stage: &mut Stage, workers: [usize; 2], is: bool) {
    for worker in workers {
        while stage.probe(worker).await.0.is_none() != is {}
    }
}

/// What is wanted meanwhile is refused in so many words, and not taken and forgotten.
async fn refused(stage: &mut Stage, worker: usize) {
    let asked = stage.want(worker, "task", None, Some("late"));
    let answer = stage.until("a request is answered", |_, heard| match heard {
        Heard::Told(_, Told::Answered { id, answer }) if *id == asked => Some(answer.clone()),
        _ => None,
    });
    let error = answer.await.expect_err("there is nobody to store it");
    assert!(!error.is_empty());
}

/// An outage that is shorter than leases disturbs nothing (L20): each has one attempt, and one end in the world.
async fn once_each(stage: &Stage, all: &[RunId]) {
    stage.judge(all).await;
    let log = stage.sink.log();
    for run_id in all {
        let run = stage.run(run_id).await;
        assert_eq!((run.attempt, run.interruptions, run.failures), (1, 0, 0), "run {run_id}");
        let ends = log.iter().filter(|had| had.effect.run_id == *run_id && had.effect.what == What::End);
        assert_eq!(ends.map(|had| had.taken).collect::<Vec<_>>(), [true], "run {run_id}");
    }
}
