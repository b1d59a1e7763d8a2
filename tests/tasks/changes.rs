//! Tasks that several hosts change at once.

use serde_json::json;
use tenure::model::{TaskPatch, TaskSpec};
use tenure::{Settings, Tenure};
use tokio::task::yield_now;

use crate::kit::*;

/// More changes than a decision is made again.
const BURST: u32 = 400;
const ROUNDS: u64 = 6;

#[tokio::test(start_paused = true)]
async fn who_changes_a_task_is_heard_though_a_host_nearer_to_the_store_changes_it_as_well() {
    let far = host().await;
    let id = far.task(task(json!({}))).await.spec.task_id;
    // Straight at the store: each of its calls is answered at once.
    let near = Tenure::attach(far.store(), Settings::default()).await.unwrap();
    let patch = |priority: u32| TaskPatch::parse(&json!({ "priority": priority }).to_string()).unwrap();
    for round in 0..ROUNDS {
        let burst = async {
            for n in 0..BURST {
                near.patch_task(&id, patch(n)).await.unwrap();
                yield_now().await;
            }
        };
        let timeout = TaskPatch::parse(&json!({ "timeout_seconds": round + 1 }).to_string()).unwrap();
        let (changed, ()) = tokio::join!(far.patch_task(&id, timeout), burst);
        changed.unwrap();
    }
    let (stored, _) = near.task(&id).await.unwrap();
    assert_eq!(stored.spec.priority, i32::try_from(BURST).unwrap() - 1);
    let timeout = stored.spec.timeout.map(|timeout| timeout.duration().as_secs());
    assert_eq!(timeout, Some(ROUNDS), "neither undid what the other had changed");
    near.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_not_undone_by_who_declares_the_task_at_the_same_moment() {
    let far = host().await;
    let spec = far.task(task(json!({}))).await.spec;
    let near = Tenure::attach(far.store(), Settings::default()).await.unwrap();
    for priority in 1..50 {
        let declared = |stored: Option<&TaskSpec>| TaskSpec {
            priority,
            enabled: stored.is_none_or(|stored| stored.enabled),
            ..spec.clone()
        };
        let (declared, paused) = tokio::join!(far.put_task_with(&spec.task_id, declared), async {
            yield_now().await;
            near.pause_task(&spec.task_id).await
        });
        declared.unwrap();
        paused.unwrap();
        let (stored, _) = near.task(&spec.task_id).await.unwrap();
        assert_eq!((stored.spec.priority, stored.spec.enabled), (priority, false));
        near.resume_task(&spec.task_id).await.unwrap();
    }
    near.shutdown().await.unwrap();
}
