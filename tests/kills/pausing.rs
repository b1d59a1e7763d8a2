//! Workers that are paused in the middle of an attempt, and wake when the world has moved on.

use tenure::model::{EventKind, RunId, RunStatus};

use crate::ground::Ground;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{Point, Setup, Told, What, Window};

const TASK: &str =
    r#"{"task_id":"task","agent_id":"agent","query":"deaf","overlap_policy":"allow_parallel"}"#;

/// A worker in the middle of an attempt, paused. It renews and claims nothing before the stage says so, so that
/// it is not paused in a transaction, and does not find out by a heartbeat what it is to find out by itself.
struct Paused {
    stage: Stage,
    worker: usize,
    run_id: RunId,
    fence: u64,
}

impl Paused {
    async fn set(ground: Ground, change: impl FnOnce(&mut Setup)) -> Self {
        let mut stage = Stage::set(ground, &[TASK]).await;
        change(&mut stage.setup);
        let setup =
            Setup { windows: vec![Window::Renew, Window::Claim, Window::Outcome], ..stage.setup.clone() };
        let worker = stage.worker(&setup).await;
        let run_id = stage.wanted(worker, "task", None).await;
        let fence = stage.effect(&run_id, What::Hold).await.effect.fence;
        let keeps = |window| matches!(window, Window::Renew | Window::Claim);
        stage.policy(move |n, at| {
            if n == worker && keeps(at.window) && at.point == Point::Before { Word::Hold } else { Word::Go }
        });
        while stage.held_in(Window::Claim).is_empty() || stage.held_in(Window::Renew).is_empty() {
            stage.next("it is about to claim and to renew").await;
        }
        stage.pause(worker);
        Self { stage, worker, run_id, fence }
    }

    /// It wakes, and its agent goes on.
    fn wake(&mut self) {
        self.stage.wake(self.worker);
        self.stage.sink.let_go(&self.run_id, self.fence);
    }

    /// It is not kept from anything any more.
    fn free(&mut self) {
        self.stage.policy(|_, _| Word::Go);
        self.stage.release(|_, _| true);
    }

    /// What the store answers to its outcome.
    async fn outcome(&mut self) -> Vec<String> {
        let worker = self.worker;
        self.stage
            .until("its outcome has reached the store", |_, heard| match heard {
                Heard::Told(n, Told::At { at, .. })
                    if *n == worker && at.window == Window::Outcome && at.point == Point::After =>
                {
                    Some(at.refused.clone())
                }
                _ => None,
            })
            .await
    }

    async fn ended(&mut self) {
        self.stage.run_until(&self.run_id, "it is done", |run| run.status == RunStatus::Completed).await;
    }
}

pub(crate) async fn own_l09_a_worker_paused_past_its_lease_writes_nothing_when_it_wakes(ground: Ground) {
    let mut paused = Paused::set(ground, |_| {}).await;
    let setup = paused.stage.setup.clone();
    let other = paused.stage.worker(&setup).await;
    let (run_id, fence) = (paused.run_id.clone(), paused.fence);
    let successor = paused.stage.effect_after(&run_id, What::Hold, fence).await;
    paused.wake();
    assert!(!paused.stage.effect(&run_id, What::End).await.taken, "the sink refuses the late write");
    let refused = paused.outcome().await;
    assert!(refused.len() == 1 && refused[0].starts_with("Fenced"), "{refused:?}");
    paused.free();
    assert_eq!(
        paused.stage.run(&run_id).await.status,
        RunStatus::Running,
        "the late outcome has changed nothing"
    );
    paused.stage.sink.let_go(&run_id, successor.effect.fence);
    paused.ended().await;
    let events = paused.stage.events(&run_id).await;
    let completed = events.last().map(|event| (event.event, event.fence, event.instance));
    let owner = paused.stage.instance(other);
    assert_eq!(completed, Some((EventKind::Completed, successor.effect.fence, owner)));
    assert!(events.iter().any(|event| event.event == EventKind::Lost));
    for worker in [paused.worker, other] {
        paused.stage.shut_down(worker).await;
    }
    paused.stage.judge(&[run_id]).await;
    let late = paused.stage.sink.log().into_iter().filter(|had| !had.taken).count();
    assert!(late > 0, "no late write was refused");
}

pub(crate) async fn own_l10_a_worker_paused_while_nobody_looked_goes_on(ground: Ground) {
    let mut paused = Paused::set(ground, |setup| setup.grace_ms = 60_000).await;
    let run_id = paused.run_id.clone();
    let expires_at = paused.stage.run(&run_id).await.lease.expect("a lease").expires_at;
    paused.stage.until_past(expires_at).await;
    paused.stage.wake(paused.worker);
    paused.free();
    let renewed = |run: &tenure::model::Run| run.lease.is_some_and(|lease| lease.expires_at > expires_at);
    // Renewals make no event, and no hint: the end of this wait is the renewal that was let through.
    let worker = paused.worker;
    let answer = paused.stage.until("it has renewed its lease", |_, heard| match heard {
        Heard::Told(n, Told::At { at, .. })
            if *n == worker && at.window == Window::Renew && at.point == Point::After =>
        {
            Some((at.many, at.refused.clone()))
        }
        _ => None,
    });
    assert_eq!(answer.await, (1, Vec::new()), "an expired lease that nobody took is renewed");
    assert!(renewed(&paused.stage.run(&run_id).await), "it expires later now");
    paused.stage.sink.let_go(&run_id, paused.fence);
    paused.ended().await;
    let story = paused.stage.story(&run_id).await;
    use EventKind::{Claimed, Completed, Queued, Started};
    assert_eq!(story, [Queued, Claimed, Started, Completed]);
    paused.stage.shut_down(worker).await;
    paused.stage.judge(&[run_id]).await;
}

pub(crate) async fn own_s2_3_a_result_of_a_lost_run_that_nobody_took_is_reinstated(ground: Ground) {
    let mut paused = Paused::set(ground, |_| {}).await;
    let setup = Setup { agents: vec!["another".to_owned()], ..paused.stage.setup.clone() };
    let other = paused.stage.worker(&setup).await;
    let run_id = paused.run_id.clone();
    paused
        .stage
        .run_until(&run_id, "it is lost and queued again", |run| run.status == RunStatus::Queued)
        .await;
    paused.wake();
    let refused = paused.outcome().await;
    assert!(refused.len() == 1 && refused[0].starts_with("Fenced"), "{refused:?}");
    paused.ended().await;
    paused.free();
    let story = paused.stage.story(&run_id).await;
    use EventKind::{Claimed, Completed, Lost, Queued, Recovered, Reinstated, Started};
    assert_eq!(story, [Queued, Claimed, Started, Lost, Recovered, Reinstated, Completed]);
    let run = paused.stage.run(&run_id).await;
    assert_eq!((run.attempt, run.failures, run.interruptions), (1, 0, 1), "the same attempt went on");
    assert!(run.fence > paused.fence, "under a new fence");
    for worker in [paused.worker, other] {
        paused.stage.shut_down(worker).await;
    }
    paused.stage.judge(&[run_id]).await;
}
