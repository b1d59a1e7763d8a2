//! A server that loses its last writes: it is stopped, and started again on an older copy of its data.

use std::sync::Arc;
use std::time::Duration;

use tenure::model::{AgentId, InstanceId, RunId, RunStatus, TaskId, TaskSpec};
use tenure::store::{ClaimRequest, Store};
use tenure::{Duty, RunRequest, Settings, Tenure};

use crate::ground::{Ground, Kept, Manner};
use crate::servers::own::Own;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{Order, Point, Setup, Told, What, Window};

const TASKS: &[&str] = &[
    r#"{"task_id":"task","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":5,"initial_delay_seconds":0.05,"max_interruptions":100,
        "retry_on":["refused"]}}"#,
    r#"{"task_id":"nobodys","agent_id":"nobody","query":"plain","overlap_policy":"allow_parallel"}"#,
];

/// A run of each kind, as they stand when the copy is made.
struct Before {
    /// Is executed.
    held: RunId,
    /// Waits, and will have begun when the last writes are lost.
    begun: RunId,
    /// Waits, and will have been completed.
    done: RunId,
    /// Waits, and will have been cancelled.
    cancelled: RunId,
}

pub(crate) async fn own_l19_a_server_that_lost_its_last_writes_gives_nobody_authority_back(ground: Ground) {
    let mut server = Own::start(ground.server.expect("a server's name")).expect("a server");
    let mut stage = Stage::on(ground.in_server(server.url()), TASKS).await;
    let setup = Setup {
        lease_ms: 6_000,
        heartbeat_ms: 300,
        grace_ms: 4_000,
        patience_ms: ground.pace(3_000, 10_000),
        ..stage.setup.clone()
    };
    let one = stage.worker(&Setup { windows: vec![Window::Claim], ..setup.clone() }).await;
    let held = stage.wanted(one, "task", Some("hold")).await;
    stage.effect(&held, What::Hold).await;
    claims_nothing(&mut stage, one).await;
    let before = Before {
        held,
        begun: stage.wanted(one, "task", Some("deaf")).await,
        done: stage.wanted(one, "task", None).await,
        cancelled: stage.wanted(one, "nobodys", None).await,
    };
    restart(&mut stage, &mut server, Own::keep_copy, &[one]).await;

    // What is lost later: two grants, an end, a cancel, a request.
    stage.policy(|_, _| Word::Go);
    stage.release(|_, _| true);
    let first = stage.effect(&before.begun, What::Hold).await;
    stage.run_until(&before.done, "it is completed", |run| run.status == RunStatus::Completed).await;
    cancel(&mut stage, one, &before.cancelled).await;
    let asked = stage.want(one, "task", None, Some("a key"));
    let forgotten = stage.answers(&[asked]).await.remove(0).0;
    stage.run_until(&forgotten, "it is completed", |run| run.status == RunStatus::Completed).await;
    claims_nothing(&mut stage, one).await;
    restart(&mut stage, &mut server, Own::set_back, &[one]).await;
    assert!(stage.store.run(&forgotten).await.expect("an answer").is_none(), "what was lost is lost");
    assert_eq!(stage.run(&before.done).await.status, RunStatus::Queued);
    assert_eq!(stage.run(&before.cancelled).await.status, RunStatus::Queued);

    // The other is granted under the same fence what the first one still executes. Of the two the sink takes the one
    // that came first; the other one fails, and is tried again under a higher fence.
    let other = stage.worker(&setup).await;
    let second = stage.effect_after(&before.begun, What::Hold, first.effect.fence).await;
    assert!(second.taken && second.effect.fence > first.effect.fence, "{second:?}");
    stage.sink.let_go(&before.begun, first.effect.fence);
    let late = stage.effect(&before.begun, What::End).await;
    assert!(!late.taken && late.effect.nonce == first.effect.nonce, "a late write was taken: {late:?}");
    stage.sink.let_go(&before.begun, second.effect.fence);
    // Who was granted what is there still goes on under that.
    stage.sink.let_go(&before.held, 1);
    let again = stage.want(other, "task", None, Some("a key"));
    let again = stage.answers(&[again]).await.remove(0).0;
    assert_ne!(again, forgotten, "the key is free again");
    cancel(&mut stage, other, &before.cancelled).await;
    stage.policy(|_, _| Word::Go);
    stage.release(|_, _| true);
    stage.until_all_ended().await;
    for worker in [one, other] {
        stage.shut_down(worker).await;
    }
    let run = stage.run(&before.held).await;
    assert_eq!((run.status, run.attempt, run.fence), (RunStatus::Completed, 1, 1), "nothing disturbed it");
    let log = stage.sink.log();
    let twin = log.iter().find(|had| {
        had.effect.run_id == before.begun
            && had.effect.fence == first.effect.fence
            && had.effect.nonce != first.effect.nonce
    });
    let twin = twin.expect("a second grant under the fence of the one that was lost");
    assert!(!twin.taken, "two grants of one fence were taken: {twin:?}");
    let Before { held, begun, done, cancelled } = before;
    stage.judge(&[held, begun, done, cancelled, again]).await;
}

/// A host has written of a task; that is lost, and another host makes two tasks, the first of which is given the number
/// that the lost one had.
pub(crate) async fn own_l19_what_was_lost_is_not_mixed_up_with_what_came_in_its_place(ground: Ground) {
    let mut server = Own::start(ground.server.expect("a server's name")).expect("a server");
    let kept = ground.in_server(server.url());
    open(&kept).await.close().await.expect("a close");
    server.kill();
    server.keep_copy();
    server.begin().expect("the server again");
    let (one, task_id) = (open(&kept).await, TaskId::new("one").expect("an id"));
    let host = looking(&one).await;
    host.put_task(task("one")).await.expect("a task");
    let lost = host.run_now(&task_id, RunRequest::default()).await.expect("a run");

    server.kill();
    server.set_back();
    server.begin().expect("the server again");
    let other = open(&kept).await;
    for name in ["another", "one"] {
        looking(&other).await.put_task(task(name)).await.expect("a task");
    }
    let run = loop {
        match host.run_now(&task_id, RunRequest::default()).await {
            Ok(run) => break run,
            // The connection was lost with the server.
            Err(tenure::Error::Store(error)) if error.is_transient() => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_ne!(run.run_id, lost.run_id);
    let stored = other.run(&run.run_id).await.expect("an answer").expect("a run");
    assert_eq!((&stored.spec.task_id, &*stored.spec.agent_id.to_string()), (&task_id, "agent-of-one"));
    assert_eq!(other.check(false).await.expect("a check"), Vec::<String>::new());
    let claim = |agent: &str| ClaimRequest {
        instance: InstanceId::generate(),
        nonce: 1,
        agents: [AgentId::new(agent).expect("an id")].into(),
        limit: 10,
        lease: Duration::from_secs(30),
        repeat: false,
    };
    for (agent, runs) in [("agent-of-another", &[][..]), ("agent-of-one", &[run.run_id][..])] {
        let granted = other.claim(claim(agent)).await.expect("an answer");
        let granted: Vec<RunId> = granted.into_iter().map(|run| run.run_id).collect();
        assert_eq!(granted, runs, "what {agent} is granted");
    }
}

fn task(name: &str) -> TaskSpec {
    let task = format!(
        r#"{{"task_id":"{name}","agent_id":"agent-of-{name}","query":"plain","overlap_policy":"allow_parallel"}}"#
    );
    TaskSpec::parse(&task).expect("a task")
}

async fn open(kept: &Kept) -> Arc<dyn Store> {
    let manner = Manner { poll: Duration::from_millis(50), patience: Duration::from_secs(10), look: None };
    kept.open(manner).await.expect("a store")
}

/// A host that does nothing by itself.
async fn looking(store: &Arc<dyn Store>) -> Tenure {
    let settings = Settings { duty: Duty::Nothing, ..Settings::default() };
    Tenure::open(Arc::clone(store), settings).await.expect("a host")
}

/// The worker is kept from claiming: what is wanted from now on waits.
async fn claims_nothing(stage: &mut Stage, worker: usize) {
    stage.policy(move |n, at| {
        if n == worker && at.window == Window::Claim && at.point == Point::Before {
            Word::Hold
        } else {
            Word::Go
        }
    });
    while stage.held_in(Window::Claim).is_empty() {
        stage.next("it is about to claim").await;
    }
}

/// Ends the server, does something to its data, and starts it again. Goes on when the workers have found it.
async fn restart(stage: &mut Stage, server: &mut Own, to_its_data: fn(&Own), workers: &[usize]) {
    server.kill();
    to_its_data(server);
    server.begin().expect("the server again");
    for worker in workers {
        while stage.probe(*worker).await.0.is_some() {}
    }
}

async fn cancel(stage: &mut Stage, worker: usize, run_id: &RunId) {
    let id = 1_000_000 + worker as u64;
    stage.say(worker, &Order::Cancel { id, run_id: run_id.clone() });
    let answer = stage.until("it is cancelled", |_, heard| match heard {
        Heard::Told(_, Told::Answered { id: of, answer }) if *of == id => Some(answer.clone()),
        _ => None,
    });
    assert_eq!(answer.await.expect("a good answer").1, RunStatus::Cancelled);
}
