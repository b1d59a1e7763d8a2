//! Workers that end in order.

use tenure::model::{AttemptStatus, EventKind, RunStatus};

use crate::ground::Ground;
use crate::stage::Stage;
use crate::wire::{Order, Setup, What};

pub(crate) async fn task_t44_a_drain_interrupts_and_queues_again_and_spends_no_retry(ground: Ground) {
    let task = r#"{"task_id":"task","agent_id":"agent","query":"hold","overlap_policy":"allow_parallel"}"#;
    let mut stage = Stage::set(ground, &[task]).await;
    let setup = Setup {
        lease_ms: 30_000,
        heartbeat_ms: 10_000,
        grace_ms: 20_000,
        drain_ms: 1_500,
        ..stage.setup.clone()
    };
    let first = stage.worker(&setup).await;
    let (long, short) = (stage.wanted(first, "task", None).await, stage.wanted(first, "task", None).await);
    let fence = stage.effect(&long, What::Hold).await.effect.fence;
    let held = stage.effect(&short, What::Hold).await;
    stage.say(first, &Order::Shutdown);
    // It is draining: what ends by itself in that time ends as always.
    stage.sink.let_go(&short, held.effect.fence);
    assert_eq!(stage.shut_down(first).await, 1, "one attempt did not end within the drain");
    assert_eq!(stage.run(&short).await.status, RunStatus::Completed);
    let run = stage.run(&long).await;
    assert_eq!((run.status, run.failures, run.interruptions), (RunStatus::Queued, 0, 1));
    assert!(run.lease.is_none(), "nobody has to wait for the end of a lease");
    let attempts = stage.store.attempts(&long).await.expect("attempts");
    assert_eq!(
        attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(),
        [AttemptStatus::Interrupted]
    );

    let second = stage.worker(&setup).await;
    let held = stage.effect_after(&long, What::Hold, fence).await;
    stage.sink.let_go(&long, held.effect.fence);
    stage.until_all_ended().await;
    stage.shut_down(second).await;
    let story = stage.story(&long).await;
    use EventKind::{Claimed, Completed, Interrupted, Progress, Queued, Started};
    let told: Vec<_> = story.into_iter().filter(|kind| *kind != Progress).collect();
    assert_eq!(told, [Queued, Claimed, Started, Interrupted, Claimed, Started, Completed]);
    stage.judge(&[long, short]).await;
}
