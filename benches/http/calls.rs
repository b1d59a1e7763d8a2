//! Runs that are wanted over HTTP, beside the same calls of the facade.

use std::time::{Duration, Instant};

use tenure::model::{RunStatus, TaskId};
use tenure::{RunRequest, Tenure};
use tokio::task::JoinSet;

use crate::caller::{Caller, post};
use crate::delays::percentile;
use crate::measure::{Samples, interleave, interleave_numbers, per_second};
use crate::options::Plan;
use crate::served::{Agent, Served, callers, runtime};
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit};

pub(crate) const RUN: &str = "/background/tasks/t/run";
pub(crate) const WAITING: &str = r#"{"wait":true}"#;

/// Callers at once.
const CALLERS: usize = 64;

fn task_id() -> TaskId {
    TaskId::new("t").expect("a name")
}

// --- one caller ---------------------------------------------------------------------------------------------

pub(crate) fn measure_one(plan: &Plan, table: &Table) {
    let over_http = || with_host(Agent::Noop, |served, host| one_over_http(served, host, plan.one));
    let facade = || with_host(Agent::Noop, |served, host| one_of_facade(served, host, plan.one));
    let [ours, facade] = interleave(plan.rounds, [&over_http as &dyn Fn() -> Vec<Duration>, &facade]);
    for (percent, goal) in [(50, Some(5.0)), (99, None)] {
        let of = |rounds: &[Vec<Duration>]| {
            Samples(rounds.iter().map(|delays| percentile(&mut delays.clone(), percent)).collect())
        };
        let (ours, facade) = (of(&ours), of(&facade));
        let figure = format!("POST run with wait of a no-op, one caller: p{percent}");
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds)
            .beside("run_now and wait of the facade", &facade, Unit::Milliseconds)
            .compared(&ours.over(&facade), Unit::Times);
        table.print(match goal {
            Some(goal) => row.goal(Goal::AtMost(goal), &ours, Unit::Milliseconds),
            None => row,
        });
    }
}

/// A host on a fresh store, gone afterwards.
fn with_host<T>(agent: Agent, measure: impl FnOnce(&Served, &tokio::runtime::Runtime) -> T) -> T {
    let host = runtime();
    let served = host.block_on(async { Served::open(Bench::open(Kind::Full).await, agent).await });
    let measured = measure(&served, &host);
    host.block_on(served.end());
    measured
}

fn one_over_http(served: &Served, _host: &tokio::runtime::Runtime, count: usize) -> Vec<Duration> {
    callers().block_on(async {
        let mut caller = Caller::connect(served.address).await;
        delays(&mut caller, count).await
    })
}

/// How long each of so many runs took, one after the other.
pub(crate) async fn delays(caller: &mut Caller, count: usize) -> Vec<Duration> {
    let request = post(RUN, WAITING);
    let mut delays = Vec::with_capacity(count);
    for _ in 0..count {
        let asked = Instant::now();
        caller.ask(&request, 200).await;
        delays.push(asked.elapsed());
    }
    delays
}

fn one_of_facade(served: &Served, host: &tokio::runtime::Runtime, count: usize) -> Vec<Duration> {
    let tenure = served.tenure.clone();
    let caller = host.spawn(async move {
        let mut delays = Vec::with_capacity(count);
        for _ in 0..count {
            let asked = Instant::now();
            run(&tenure).await;
            delays.push(asked.elapsed());
        }
        delays
    });
    host.block_on(caller).expect("delays")
}

async fn run(tenure: &Tenure) {
    let run = tenure.run_now(&task_id(), RunRequest::default()).await.expect("queued");
    let state = tenure.wait(&run.run_id, None).await.expect("settled");
    assert_eq!(state.run.status, RunStatus::Completed);
}

// --- many callers -------------------------------------------------------------------------------------------

pub(crate) fn measure_many(plan: &Plan, table: &Table) {
    let waited = (Agent::Noop, plan.waited, WAITING, 200);
    let enqueued = (Agent::None, plan.enqueued, "{}", 202);
    for ((agent, count, body, status), what, goal) in [
        (waited, "finished runs, each waited for", 5_000.0),
        (enqueued, "enqueues, nothing executes", 20_000.0),
    ] {
        let over_http = || with_host(agent, |served, _| rate_over_http(served, count, body, status));
        let facade = || with_host(agent, |served, host| rate_of_facade(served, host, count, agent));
        let [ours, facade] = interleave_numbers(plan.rounds, [&over_http as &dyn Fn() -> f64, &facade]);
        let figure = format!("{CALLERS} callers over HTTP: {what}");
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::PerSecond)
            .beside("64 callers of the facade", &facade, Unit::PerSecond)
            .compared(&ours.over(&facade), Unit::Times);
        table.print(row.goal(Goal::AtLeast(goal), &ours, Unit::PerSecond));
    }
}

fn rate_over_http(served: &Served, count: usize, body: &str, status: u16) -> f64 {
    let request = post(RUN, body);
    callers().block_on(async {
        let mut open = Vec::new();
        for _ in 0..CALLERS {
            open.push(Caller::connect(served.address).await);
        }
        let clock = Instant::now();
        let mut calling = JoinSet::new();
        for mut caller in open {
            let request = request.clone();
            calling.spawn(async move {
                for _ in 0..count / CALLERS {
                    caller.ask(&request, status).await;
                }
            });
        }
        calling.join_all().await;
        per_second(count, clock.elapsed())
    })
}

fn rate_of_facade(served: &Served, host: &tokio::runtime::Runtime, count: usize, agent: Agent) -> f64 {
    let tenure = served.tenure.clone();
    let all = host.spawn(async move {
        let clock = Instant::now();
        let mut calling = JoinSet::new();
        for _ in 0..CALLERS {
            let tenure = tenure.clone();
            calling.spawn(async move {
                for _ in 0..count / CALLERS {
                    match agent {
                        Agent::Noop => run(&tenure).await,
                        Agent::None => {
                            tenure
                                .run_now(&task_id(), RunRequest::default())
                                .await
                                .map(drop)
                                .expect("queued");
                        }
                    }
                }
            });
        }
        calling.join_all().await;
        per_second(count, clock.elapsed())
    });
    host.block_on(all).expect("a rate")
}
