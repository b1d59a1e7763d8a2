//! Writes of runs: made once, on what they were decided on, under the token they show.

use super::support::{A, B, ask, done, failed, is_fenced, run_id, task_id, token, under};
use super::{Fixture, list};
use crate::model::{AttemptStatus, CancelMode, EventKind, Place, RunStatus, Token};
use crate::rules;
use crate::store::{Decision, Expect, Refusal};
use serde_json::json;

list! {
    a_run_goes_from_queued_to_completed,
    a_write_at_another_version_is_stale_and_tells_the_version,
    own_i3_a_write_with_another_nonce_is_fenced,
    own_i3_a_write_with_an_older_fence_is_fenced,
    own_s4_5_a_late_outcome_of_a_superseded_attempt_changes_nothing,
    field_l16_the_result_of_the_newer_attempt_stays,
    own_p1_a_second_outcome_does_not_overwrite_the_first,
    own_p4_the_same_outcome_twice_is_once,
    the_same_enqueue_twice_is_once,
    a_decision_of_which_only_a_part_was_made_is_not_taken_for_made,
    a_stale_write_with_the_stamp_of_the_last_one_is_refused,
    a_run_is_made_once,
    one_decision_makes_a_run_once,
    a_write_of_a_run_that_does_not_exist_is_refused,
    task_t02_a_terminal_run_never_changes,
    own_x5_a_cancel_of_a_finished_run_changes_nothing,
    own_x4_a_forced_cancel_fences_the_late_outcome,
    own_x2_a_cancel_that_was_decided_before_the_outcome_is_stale,
    own_x6_a_cancelled_run_is_never_claimed,
    own_x3_a_completion_after_a_cancel_request_is_accepted,
    a_decision_is_applied_as_a_whole_or_not_at_all,
    decisions_of_one_call_are_each_for_themselves_and_in_order,
    task_t03_attempts_are_recorded_in_order_with_their_ends,
    field_l11_a_failing_run_is_tried_as_often_as_it_may,
}

async fn a_run_goes_from_queued_to_completed(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.queue(&task, "r").await;
    assert_eq!((queued.status, queued.version, queued.place), (RunStatus::Queued, 1, Place::Ready));
    let claimed = f.claim_one(A).await;
    assert_eq!(f.read(&claimed.run_id).await, claimed, "what a claim answers is what is stored");
    assert_eq!((claimed.status, claimed.fence, &claimed.place), (RunStatus::Claimed, 1, &Place::Nowhere));
    let running = f.start(&claimed).await;
    let ended = f.finish(&running, done("fine")).await;
    assert_eq!((ended.status, ended.lease, ended.fence), (RunStatus::Completed, None, 1));
    assert_eq!(ended.version, 4, "each write raises the version");
    use EventKind::{Claimed, Completed, Queued, Started};
    assert_eq!(f.told(&ended).await, [Queued, Claimed, Started, Completed]);
    f.sound().await;
}

async fn a_write_at_another_version_is_stale_and_tells_the_version(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    for wrong in [running.version - 1, running.version + 1, 0, u64::MAX >> 1] {
        let mut write = f.end_of(&running, done("x")).await;
        write.expect = Expect::At { version: wrong, token: running.token(), unrenewed: None };
        let Refusal::StaleRun { version, status, .. } = f.refuses(write).await else {
            panic!("a version that does not stand is stale")
        };
        assert_eq!((version, status), (running.version, RunStatus::Running));
    }
}

async fn own_i3_a_write_with_another_nonce_is_fenced(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let other = Token { nonce: token(&running).nonce + 1, ..token(&running) };
    let refusal = f.refuses(under(f.end_of(&running, done("x")).await, other)).await;
    assert!(is_fenced(&refusal), "{refusal}");
}

async fn own_i3_a_write_with_an_older_fence_is_fenced(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let older = Token { fence: token(&running).fence - 1, ..token(&running) };
    let refusal = f.refuses(under(f.end_of(&running, done("x")).await, older)).await;
    assert!(is_fenced(&refusal), "{refusal}");
}

async fn own_s4_5_a_late_outcome_of_a_superseded_attempt_changes_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    let late = f.end_of(&first, done("late")).await;
    f.later(super::support::LEASE + super::support::GRACE);
    assert_eq!(f.sweep(&first).await.expect("its lease lapsed").status, RunStatus::Queued);
    assert!(is_fenced(&f.refuses(late.clone()).await), "nobody holds it: still fenced");
    let second = f.begin(B).await;
    assert!(second.fence > first.fence, "fences rise");
    assert!(is_fenced(&f.refuses(late).await));
    assert_eq!(f.finish(&second, done("second")).await.status, RunStatus::Completed);
}

async fn field_l16_the_result_of_the_newer_attempt_stays(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.later(super::support::LEASE + super::support::GRACE);
    f.sweep(&first).await;
    let second = f.begin(B).await;
    let ended = f.finish(&second, done("b")).await;
    let late = f.end_of(&first, done("a")).await;
    assert!(is_fenced(&f.refuses(late).await));
    assert_eq!(f.read(&ended.run_id).await.result, ended.result);
}

async fn own_p1_a_second_outcome_does_not_overwrite_the_first(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let second = f.end_of(&running, failed()).await;
    f.finish(&running, done("first")).await;
    assert!(is_fenced(&f.refuses(second).await), "its grant ended with the run");
}

async fn own_p4_the_same_outcome_twice_is_once(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let write = f.end_of(&running, done("x")).await;
    let ended = f.apply(write.clone()).await;
    let told = f.told(&ended).await;
    f.later(std::time::Duration::from_secs(3600));
    assert_eq!(f.apply(write).await, ended, "it answers as if it were made now");
    assert_eq!(f.told(&ended).await, told, "and tells nothing");
    assert_eq!(f.attempts(&ended).await.len(), 1);
    f.sound().await;
}

async fn the_same_enqueue_twice_is_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let write = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    let queued = f.apply(write.clone()).await;
    assert_eq!(f.apply(write).await, queued);
    assert_eq!(f.told(&queued).await, [EventKind::Queued]);
    assert_eq!(f.counts(None).await, [(RunStatus::Queued, 1)].into());
    assert_eq!(f.claim(A, 10).await.len(), 1);
    f.sound().await;
}

async fn a_decision_of_which_only_a_part_was_made_is_not_taken_for_made(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let made = rules::enqueue(&task, f.wanted("made").await, f.moment().await);
    let new = rules::enqueue(&task, f.wanted("new").await, f.moment().await);
    f.apply(made.clone()).await;
    for runs in [vec![made.clone(), new.clone()], vec![new.clone(), made]] {
        let refusal = f.commit(Decision { runs, ..Decision::default() }).await.unwrap_err();
        assert!(matches!(refusal, Refusal::StaleRun { .. }), "{refusal}");
        assert_eq!(f.store.run(&run_id("new")).await.unwrap(), None, "nothing of it was made");
    }
    f.sound().await;
}

async fn a_stale_write_with_the_stamp_of_the_last_one_is_refused(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.queue(&task, "r").await;
    let mut write = f.cancel_write(&queued, CancelMode::Cooperative).await;
    // What it would make is not what the run is: it was not made before, whatever number was drawn for it.
    write.run.stamp = queued.stamp;
    write.run.version += 1;
    write.expect = Expect::At { version: queued.version + 1, token: None, unrenewed: None };
    let refusal = f.refuses(write).await;
    assert!(matches!(refusal, Refusal::StaleRun { version: 1, .. }), "{refusal}");
}

async fn a_run_is_made_once(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let again = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    let refusal = f.refuses(again).await;
    assert!(matches!(refusal, Refusal::StaleRun { version: 1, .. }), "{refusal}");
}

async fn one_decision_makes_a_run_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(rules::enqueue(&task, f.wanted("r").await, f.moment().await));
    }
    let refusal = f.commit(Decision { runs, ..Decision::default() }).await.unwrap_err();
    // For the second write it stands as the first would have left it.
    assert!(matches!(refusal, Refusal::StaleRun { version: 1, .. }), "{refusal}");
    assert_eq!(f.store.run(&run_id("r")).await.unwrap(), None);
}

async fn a_write_of_a_run_that_does_not_exist_is_refused(f: Fixture) {
    let task = f.task(json!({})).await;
    let mut write = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    write.expect = Expect::At { version: 0, token: None, unrenewed: None };
    assert_eq!(f.refuses(write).await, Refusal::NoRun { run_id: run_id("r") });
}

async fn task_t02_a_terminal_run_never_changes(f: Fixture) {
    let task =
        f.task(json!({ "retry_policy": { "max_retries": 0 }, "overlap_policy": "allow_parallel" })).await;
    let outcomes = [
        (done("x"), RunStatus::Completed),
        (failed(), RunStatus::Failed),
        (rules::Outcome::TimedOut(crate::model::RunError::new("timeout", "late")), RunStatus::Timeout),
        (rules::Outcome::Cancelled(None), RunStatus::Cancelled),
    ];
    for (n, (outcome, expected)) in outcomes.into_iter().enumerate() {
        f.queue(&task, &format!("r{n}")).await;
        let running = f.begin(A).await;
        let ended = f.finish(&running, outcome).await;
        assert_eq!(ended.status, expected);
        // What rules never make: a write that names the version as it stands.
        let mut write = f.end_of(&running, done("overwritten")).await;
        write.expect = Expect::At { version: ended.version, token: None, unrenewed: None };
        write.run.version = ended.version + 1;
        let refusal = f.refuses(write).await;
        assert!(matches!(refusal, Refusal::StaleRun { .. }), "{refusal}");
    }
    f.sound().await;
}

async fn own_x5_a_cancel_of_a_finished_run_changes_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let before = f.cancel_write(&running, CancelMode::Force).await;
    let ended = f.finish(&running, done("x")).await;
    let refusal = f.refuses(before).await;
    assert!(matches!(refusal, Refusal::StaleRun { status: RunStatus::Completed, .. }), "{refusal}");
    assert_eq!(f.read(&ended.run_id).await, ended);
}

async fn own_x4_a_forced_cancel_fences_the_late_outcome(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let late = f.end_of(&running, done("late")).await;
    let cancelled = f.cancel(&running, CancelMode::Force).await;
    assert_eq!((cancelled.status, cancelled.lease), (RunStatus::Cancelled, None));
    assert!(cancelled.fence > running.fence, "a revocation raises the fence");
    assert!(is_fenced(&f.refuses(late).await));
    assert_eq!(f.attempts(&running).await[0].status, AttemptStatus::Cancelled);
}

async fn own_x2_a_cancel_that_was_decided_before_the_outcome_is_stale(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let outcome = f.end_of(&running, done("x")).await;
    let asked = f.cancel(&running, CancelMode::Cooperative).await;
    assert_eq!((asked.status, asked.token()), (RunStatus::Running, running.token()));
    let refusal = f.refuses(outcome).await;
    assert!(matches!(refusal, Refusal::StaleRun { .. }), "the token stands, the version does not: {refusal}");
}

async fn own_x6_a_cancelled_run_is_never_claimed(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let queued = f.queue(&task, "ready").await;
    let later = f.queue_later(&task, "later", std::time::Duration::from_secs(5)).await;
    for run in [&queued, &later] {
        assert_eq!(f.cancel(run, CancelMode::Cooperative).await.status, RunStatus::Cancelled);
    }
    f.later(std::time::Duration::from_secs(10));
    assert_eq!(f.claim(A, 10).await, []);
    f.sound().await;
}

async fn own_x3_a_completion_after_a_cancel_request_is_accepted(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let asked = f.cancel(&running, CancelMode::Cooperative).await;
    let ended = f.finish(&asked, done("x")).await;
    assert_eq!(ended.status, RunStatus::Completed);
    assert_eq!(ended.cancel, asked.cancel, "that it was asked for stays");
}

async fn a_decision_is_applied_as_a_whole_or_not_at_all(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue(&task, "held").await;
    let held = f.begin(A).await;
    let stale = f.end_of(&held, done("x")).await;
    f.cancel(&held, CancelMode::Cooperative).await;
    let new = rules::enqueue(&task, f.wanted("new").await, f.moment().await);
    for runs in [vec![new.clone(), stale.clone()], vec![stale, new]] {
        let told = f.events(crate::model::Subject::All).await;
        let decision = Decision { runs, ..Decision::default() };
        f.commit(decision).await.expect_err("one of its writes is stale");
        assert_eq!(f.store.run(&run_id("new")).await.unwrap(), None);
        assert_eq!(f.status(&held).await, RunStatus::Running);
        assert_eq!(f.events(crate::model::Subject::All).await, told);
    }
    assert_eq!(f.counts(Some(&task_id("t"))).await, [(RunStatus::Running, 1)].into());
    f.sound().await;
}

async fn decisions_of_one_call_are_each_for_themselves_and_in_order(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let queued = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    let moment = f.moment().await;
    let rules::Cancel::Write(cancelled) = rules::cancel(&queued.run, &ask(CancelMode::Cooperative), moment)
    else {
        panic!("a queued run can be cancelled")
    };
    let again = rules::enqueue(&task, f.wanted("r").await, f.moment().await);
    let other = rules::enqueue(&task, f.wanted("other").await, f.moment().await);
    let decisions = [queued, again, cancelled, other].map(Decision::from);
    let answers = f.store.commit(decisions.into()).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, true]);
    assert_eq!(f.read(&run_id("r")).await.status, RunStatus::Cancelled);
    assert_eq!(f.store.commit(Vec::new()).await.unwrap(), Vec::new(), "nothing to do is done");
    f.sound().await;
}

async fn task_t03_attempts_are_recorded_in_order_with_their_ends(f: Fixture) {
    let policy = json!({ "max_retries": 1, "initial_delay_seconds": 1, "jitter": 0.0 });
    let task = f.task(json!({ "retry_policy": policy })).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    let waits = f.finish(&first, failed()).await;
    assert_eq!((waits.status, waits.place.clone()), (RunStatus::Retrying, Place::Future));
    f.later(std::time::Duration::from_secs(1));
    let second = f.begin(B).await;
    f.finish(&second, done("x")).await;
    let attempts = f.attempts(&second).await;
    let ends: Vec<_> =
        attempts.iter().map(|attempt| (attempt.number, attempt.status, attempt.fence)).collect();
    assert_eq!(ends, [(1, AttemptStatus::Failed, 1), (2, AttemptStatus::Completed, 2)]);
    assert_eq!(attempts[0].error, waits.error);
    assert_eq!(attempts[1].instance.bits(), B);
    assert!(attempts.iter().all(|attempt| attempt.finished_at.is_some()));
    assert_eq!(f.store.attempts(&run_id("none")).await.unwrap(), []);
}

async fn field_l11_a_failing_run_is_tried_as_often_as_it_may(f: Fixture) {
    let policy = json!({ "max_retries": 2, "initial_delay_seconds": 1, "jitter": 0.0 });
    let task = f.task(json!({ "retry_policy": policy })).await;
    f.queue(&task, "r").await;
    for expected in [RunStatus::Retrying, RunStatus::Retrying, RunStatus::Failed] {
        let running = f.begin(A).await;
        assert_eq!(f.finish(&running, failed()).await.status, expected);
        assert_eq!(f.claim(A, 1).await, [], "not before it is due");
        f.later(std::time::Duration::from_secs(1));
    }
    assert_eq!(f.claim(A, 1).await, []);
    assert_eq!(f.attempts(&f.read(&run_id("r")).await).await.len(), 3);
}
