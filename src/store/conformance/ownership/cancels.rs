//! Group X: cancelling.

use super::*;
use crate::store::conformance::list;

list! {
    own_x1_a_cancel_is_visible_at_once_and_meets_no_sibling,
    own_x2_a_cancel_and_a_completion_leave_one_end,
    own_x4_a_forced_cancel_refuses_the_late_outcome_and_keeps_it,
    own_x5_what_has_ended_is_not_cancelled,
    own_x7_the_first_reason_is_kept,
    own_x8_a_cancel_of_one_run_does_not_meet_the_next,
    own_x9_a_dead_owners_task_is_cancelled_not_lost,
    own_i11_a_cancel_meets_only_what_was_there,
}

async fn own_x1_a_cancel_is_visible_at_once_and_meets_no_sibling(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.start(A, 2).await;
    let answer = o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    assert_eq!(answer, CancelAnswer::Requested { runs: 1 });
    assert!(matches!(o.state(1).await, TaskState::Running { cancel: Some(_), .. }));
    assert!(matches!(o.state(2).await, TaskState::Running { cancel: None, .. }));
    o.own.publish(&held, Outcome::cancelled()).await.unwrap();
    assert_eq!((word(&o.state(1).await), word(&o.state(2).await)), ("cancelled", "running"));
    assert_eq!(o.cancel(CancelScope::Task(key(9)), CancelMode::Force).await, CancelAnswer::NotFound);
}

async fn own_x2_a_cancel_and_a_completion_leave_one_end(f: Fixture) {
    let o = Own::on(f);
    for task in 1..=10 {
        let held = o.start(A, task).await;
        let scope = CancelScope::Task(key(task));
        let (published, cancelled) =
            tokio::join!(o.publish(&held, "found"), o.cancel(scope, CancelMode::Force));
        match (published, cancelled) {
            (Published::Committed, CancelAnswer::AlreadyTerminal { outcome }) => {
                assert!(is_completed(&outcome))
            }
            (Published::Fenced { .. }, CancelAnswer::Requested { runs: 1 }) => {
                assert_eq!(word(&o.state(task).await), "cancelled");
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn own_x4_a_forced_cancel_refuses_the_late_outcome_and_keeps_it(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.cancel(CancelScope::Task(key(1)), CancelMode::Force).await;
    assert_eq!(word(&o.state(1).await), "cancelled", "at once");
    let run = o.f.read(&key(1).run_id(1).unwrap()).await;
    assert!(run.fence > held.token.fence);
    for _ in 0..2 {
        assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    }
    assert_eq!(o.f.read(&run.run_id).await, run, "a terminal run never changes");
    let [refused] = &o.refused().await[..] else { panic!("told once") };
    assert_eq!(refused.data["outcome"]["result_preview"], "late");
}

async fn own_x5_what_has_ended_is_not_cancelled(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.publish(&held, "found").await;
    let before = o.finished(1).await;
    for mode in [CancelMode::Cooperative, CancelMode::Force] {
        let answer = o.cancel(CancelScope::Task(key(1)), mode).await;
        assert_eq!(answer, CancelAnswer::AlreadyTerminal { outcome: Box::new(before.clone()) });
    }
    assert_eq!(o.finished(1).await, before);
}

async fn own_x7_the_first_reason_is_kept(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    let again = Cancel {
        mode: CancelMode::Cooperative,
        reason: "another".into(),
        requested_by: "b".into(),
        force_after: None,
    };
    let answer = o.peer.request_cancel(&CancelScope::Task(key(1)), &again).await.unwrap();
    assert_eq!(answer, CancelAnswer::Requested { runs: 1 });
    let TaskState::Running { cancel: Some(intent), .. } = o.state(1).await else { panic!("it runs") };
    assert_eq!((&*intent.reason, &*intent.requested_by), ("enough", "a person"));
}

async fn own_x8_a_cancel_of_one_run_does_not_meet_the_next(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.cancel(CancelScope::Run { key: key(1), run: 1 }, CancelMode::Cooperative).await;
    o.publish(&first, "found").await;
    let second = granted(o.again(A, 1, Expected::TerminalRun(1)).await);
    assert!(matches!(o.renew(&second).await, Renewed::Renewed { cancel: None, .. }));
    let answer = o.cancel(CancelScope::Run { key: key(1), run: 1 }, CancelMode::Force).await;
    assert!(matches!(answer, CancelAnswer::AlreadyTerminal { .. }), "{answer:?}");
    assert_eq!(word(&o.state(1).await), "running");
}

async fn own_x9_a_dead_owners_task_is_cancelled_not_lost(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    o.f.later(TTL.duration() + GRACE);
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    assert_eq!(word(&o.state(1).await), "cancelled");
    assert!(matches!(o.reinstate(&held).await, Regranted::Fenced { .. }));
}

async fn own_i11_a_cancel_meets_only_what_was_there(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let other = granted(o.acquire(&o.ask(A, session("other").task(1))).await);
    o.cancel(CancelScope::Session(session("s")), CancelMode::Cooperative).await;
    let later = o.start(A, 2).await;
    for held in [&other, &later] {
        assert!(matches!(o.renew(held).await, Renewed::Renewed { cancel: None, .. }));
    }
}
