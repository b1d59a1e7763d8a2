//! When an attempt is over, nothing of its program's tree is left.

use std::time::Duration;

use serde_json::json;
use tenure::model::{CancelMode, RunStatus};

use crate::stage::{Canary, Stage, error, text};

/// Ignores SIGTERM, and so do its children; all of them hold the canary.
const DEAF: &str = "trap '' TERM; env -i sleep 1000 & (sleep 1000 & sleep 1000) & \
                    echo begun; echo ready >&9; sleep 1000; sleep 1000";

async fn deaf(change: impl FnOnce(&mut tenure::Settings)) -> (Stage, Canary) {
    let (stage, canary) = (Stage::open_with(change).await, Canary::new().await);
    let mut definition = canary.bash(DEAF);
    definition["stop_grace_seconds"] = json!(0.05);
    stage.agent(definition);
    (stage, canary)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_leaves_running_ends_with_it() {
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash("sleep 1000 & env -i sleep 1000 & (trap '' TERM HUP; sleep 1000) & echo done"));
    let run = stage.start(json!({})).await;
    let held = canary.held().await;
    let run = stage.settled(&run).await;
    assert_eq!(text(&run), "done\n", "though its children hold the pipe open");
    held.gone().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_group_ends_as_well() {
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash(
        "setsid bash -c 'echo away >&9; kill -USR1 $PPID; sleep 1000' & trap 'echo done; exit' USR1; wait",
    ));
    let run = stage.start(json!({})).await;
    let mut held = canary.held().await;
    assert_eq!(held.line().await, "away");
    let run = stage.settled(&run).await;
    assert_eq!(text(&run), "done\n");
    held.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_writes_on_after_its_parent_ended_is_heard_for_a_moment() {
    // As of `program > >(tee log)`: the parent does not wait for what passes its output on.
    let stage = Stage::bash("exec > >(sed 's/^/> /'); echo one; echo two").await;
    assert_eq!(text(&stage.run(json!({})).await), "> one\n> two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t40_a_cancelled_program_may_end_in_its_own_way() {
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash("trap 'echo saved; exit 0' TERM; echo begun; echo ready >&9; sleep 1000 & wait"));
    let run = stage.start(json!({})).await;
    let mut held = canary.held().await;
    assert_eq!(held.line().await, "ready");
    stage.cancel(&run, CancelMode::Cooperative).await;
    let run = stage.settled(&run).await;
    assert_eq!(run.status, RunStatus::Cancelled, "though it ended with 0");
    assert_eq!(text(&run), "begun\nsaved\n", "what it had done is kept");
    held.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t40_a_cancelled_tree_that_ignores_the_signal_is_killed() {
    let (stage, canary) = deaf(|_| {}).await;
    let run = stage.start(json!({})).await;
    let mut held = canary.held().await;
    assert_eq!(held.line().await, "ready");
    stage.cancel(&run, CancelMode::Cooperative).await;
    assert_eq!(stage.settled(&run).await.status, RunStatus::Cancelled);
    held.gone().await;
    assert_eq!(stage.file(&run, "output.md"), b"begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t41_a_tree_that_is_cancelled_by_force_is_killed_at_once() {
    let (stage, canary) = deaf(|settings| settings.heartbeat = Some(Duration::from_millis(50))).await;
    let run = stage.start(json!({})).await;
    let mut held = canary.held().await;
    assert_eq!(held.line().await, "ready");
    assert_eq!(stage.cancel(&run, CancelMode::Force).await.status, RunStatus::Cancelled);
    held.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t11_a_tree_that_takes_too_long_is_killed() {
    let (stage, canary) = deaf(|_| {}).await;
    let run = stage.start(json!({ "timeout_seconds": 0.5 })).await;
    let held = canary.held().await;
    let run = stage.settled(&run).await;
    assert_eq!((run.status, &*error(&run).class), (RunStatus::Timeout, "timeout"));
    held.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_outlasts_the_patience_of_its_host_is_killed() {
    let (stage, canary) = (
        Stage::open_with(|settings| settings.patience = Duration::from_millis(100)).await,
        Canary::new().await,
    );
    let mut definition = canary.bash(DEAF);
    definition["stop_grace_seconds"] = json!(1000);
    stage.agent(definition);
    let run = stage.start(json!({ "timeout_seconds": 0.5 })).await;
    let held = canary.held().await;
    assert_eq!(stage.settled(&run).await.status, RunStatus::Timeout);
    held.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t44_the_end_of_the_host_is_the_end_of_the_tree() {
    let (stage, canary) = deaf(|settings| settings.drain = Duration::from_millis(50)).await;
    let run = stage.start(json!({})).await;
    let mut held = canary.held().await;
    assert_eq!(held.line().await, "ready");
    let ended = stage.tenure.shutdown().await.unwrap();
    assert_eq!(ended.interrupted, 1);
    held.gone().await;
    assert_eq!(stage.tenure.run(&run.run_id).await.unwrap().status, RunStatus::Queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_writes_too_much_is_killed() {
    let stage = Stage::open_with(|settings| settings.result_limit = 100_000).await;
    let canary = Canary::new().await;
    stage.agent(canary.bash("trap '' TERM PIPE; sleep 1000 & yes; sleep 1000"));
    let run = stage.start(json!({})).await;
    let held = canary.held().await;
    assert_eq!(&*error(&stage.settled(&run).await).class, "output_too_large");
    held.gone().await;
}
