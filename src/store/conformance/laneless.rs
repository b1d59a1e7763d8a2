//! Runs that are in no lane: most there are, and a store may have a quicker way for them. What it holds to is the same.

use std::time::Duration;

use serde_json::json;

use super::support::{A, LEASE, done, token};
use super::{Fixture, list};
use crate::model::{EventKind, Progress, Run, RunStatus};
use crate::rules;
use crate::store::{Refusal, Renewal, RunWrite};

list! {
    own_l05_a_write_of_a_run_without_lanes_does_not_move_the_expiry_back,
    own_i3_of_two_starts_on_one_version_in_one_call_one_is_made,
    own_i3_of_two_writes_on_one_version_the_second_is_stale,
    a_start_of_a_run_without_lanes_that_is_repeated_is_made_once,
}

async fn claimed(f: &Fixture) -> Run {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "r").await;
    f.claim_one(A).await
}

async fn start_of(f: &Fixture, claimed: &Run) -> RunWrite {
    rules::start(claimed, token(claimed), f.moment().await).unwrap()
}

async fn own_l05_a_write_of_a_run_without_lanes_does_not_move_the_expiry_back(f: Fixture) {
    let claimed = claimed(&f).await;
    // Decided on the run as it was before the renewal, which raises no version.
    let start = start_of(&f, &claimed).await;
    f.later(Duration::from_secs(10));
    let Renewal::Renewed { expires_at, .. } = f.renew(&claimed, LEASE).await else {
        panic!("the lease stands")
    };
    f.apply(start).await;
    let lease = f.read(&claimed.run_id).await.lease.unwrap();
    assert_eq!((lease.expires_at, lease.heartbeat_at), (expires_at, f.now().await));
    f.sound().await;
}

async fn own_i3_of_two_starts_on_one_version_in_one_call_one_is_made(f: Fixture) {
    let claimed = claimed(&f).await;
    let starts = vec![start_of(&f, &claimed).await.into(), start_of(&f, &claimed).await.into()];
    let answers = f.store.commit(starts).await.unwrap();
    assert!(matches!(answers[..], [Ok(()), Err(Refusal::StaleRun { .. })]), "{answers:?}");
    assert_eq!(f.told(&claimed).await, [EventKind::Queued, EventKind::Claimed, EventKind::Started]);
    f.sound().await;
}

async fn own_i3_of_two_writes_on_one_version_the_second_is_stale(f: Fixture) {
    let claimed = claimed(&f).await;
    let running = f.start(&claimed).await;
    let mut writes = Vec::new();
    for percent in [10, 20] {
        let moment = f.moment().await;
        let progress = Progress { percent: Some(percent), message: "on the way".into(), at: moment.now };
        writes.push(rules::progress(&running, token(&running), progress, 0, moment).unwrap());
    }
    let end = f.end_of(&running, done("x")).await;
    f.apply(writes.remove(0)).await;
    for late in [writes.remove(0), end] {
        let refused = f.refuses(late).await;
        assert!(matches!(refused, Refusal::StaleRun { status: RunStatus::Running, .. }), "{refused:?}");
    }
    let run = f.read(&running.run_id).await;
    assert_eq!(run.progress.and_then(|progress| progress.percent), Some(10));
    f.sound().await;
}

async fn a_start_of_a_run_without_lanes_that_is_repeated_is_made_once(f: Fixture) {
    let claimed = claimed(&f).await;
    let start = start_of(&f, &claimed).await;
    let twice = vec![start.clone().into(), start.clone().into()];
    assert_eq!(f.store.commit(twice).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(f.commit(start).await, Ok(()));
    assert_eq!(f.told(&claimed).await, [EventKind::Queued, EventKind::Claimed, EventKind::Started]);
    assert_eq!(f.attempts(&claimed).await.len(), 1);
    f.sound().await;
}
