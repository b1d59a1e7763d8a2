//! Group X: cancelling.

use super::*;
use crate::model::Token;
use crate::ownership::{Release, Released, WithParent};
use crate::store::conformance::list;

list! {
    own_x1_a_cancel_is_visible_at_once_and_meets_no_sibling,
    own_x2_a_cancel_and_a_completion_leave_one_end,
    own_x4_a_forced_cancel_refuses_the_late_outcome_and_keeps_it,
    own_i10_late_outcomes_of_fences_that_nobody_granted_fill_no_store,
    own_x5_what_has_ended_is_not_cancelled,
    own_x7_the_first_reason_is_kept,
    own_x8_a_cancel_of_one_run_does_not_meet_the_next,
    own_x9_a_dead_owners_task_is_cancelled_not_lost,
    own_x11_what_a_cancelled_task_started_goes_by_its_policy,
    own_x11_a_child_that_begins_while_its_parent_is_cancelled_is_met,
    own_i11_a_cancel_meets_only_what_was_there,
    own_i4_a_terminal_run_never_changes,
    own_i9_after_a_release_nothing_of_before_becomes_authoritative,
    own_i9_what_is_lost_is_not_given_back_after_a_release_that_cancels_nothing,
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

async fn own_i10_late_outcomes_of_fences_that_nobody_granted_fill_no_store(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let forged = |fence| Held { token: Token { fence, ..held.token }, ..held.clone() };
    // Those that alternate are told no more often than those that differ.
    for fence in (2..40).flat_map(|fence| [fence, fence + 1]) {
        assert!(matches!(o.publish(&forged(fence), "mine").await, Published::Fenced { .. }));
    }
    assert_eq!(o.refused().await.len(), 16);
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
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

impl Own {
    async fn child(&self, task: u64, parent: u64, with_parent: WithParent) -> Held {
        let ask = Acquire { parent: Some(parent), with_parent, ..self.ask(A, key(task)) };
        granted(self.acquire(&ask).await)
    }
}

/// Whether somebody wants it stopped, or how it ended.
fn asked(state: &TaskState) -> &'static str {
    match state {
        TaskState::Running { cancel: Some(_), .. } => "asked",
        state => word(state),
    }
}

async fn own_x11_what_a_cancelled_task_started_goes_by_its_policy(f: Fixture) {
    let o = Own::on(f);
    for (mode, ends) in [
        (CancelMode::Cooperative, ["asked", "asked", "asked", "running", "asked", "running"]),
        (CancelMode::Force, ["cancelled", "cancelled", "asked", "running", "cancelled", "running"]),
    ] {
        let first = if mode == CancelMode::Force { 10 } else { 1 };
        let parent = o.start(A, first).await;
        o.child(first + 1, first, WithParent::Cancel).await;
        o.child(first + 2, first, WithParent::Request).await;
        o.child(first + 3, first, WithParent::Abandon).await;
        // And what a child has started, by the policy of that.
        o.child(first + 4, first + 1, WithParent::Cancel).await;
        o.start(A, first + 5).await;
        let answer = o.cancel(CancelScope::Task(parent.key.clone()), mode).await;
        assert_eq!(answer, CancelAnswer::Requested { runs: 4 });
        let mut seen = Vec::new();
        for task in first..first + 6 {
            seen.push(asked(&o.state(task).await));
        }
        assert_eq!(seen, ends, "{mode:?}");
    }
    // A child begins under a run that runs: neither under none, nor under one that is to stop.
    for parent in [1, 99] {
        let late = Acquire { parent: Some(parent), ..o.ask(A, key(40)) };
        let answer = o.acquire(&late).await;
        assert!(matches!(&answer, Acquired::Conflict { actual } if actual.key == key(parent)), "{answer:?}");
    }
}

async fn own_x11_a_child_that_begins_while_its_parent_is_cancelled_is_met(f: Fixture) {
    let o = Own::on(f);
    for task in 1..=10 {
        let (parent, child) = (2 * task, 2 * task + 1);
        o.start(A, parent).await;
        let begins = Acquire { parent: Some(parent), ..o.ask(A, key(child)) };
        let scope = CancelScope::Task(key(parent));
        let (begun, _) = tokio::join!(o.peer.acquire(&begins), o.cancel(scope, CancelMode::Cooperative));
        match begun.unwrap() {
            Acquired::Acquired(_) => assert_eq!(asked(&o.state(child).await), "asked"),
            Acquired::Conflict { actual } => assert_eq!(actual.key, key(parent)),
            other => panic!("{other:?}"),
        }
    }
}

async fn own_i4_a_terminal_run_never_changes(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.publish(&held, "found").await;
    let run_id = key(1).run_id(1).unwrap();
    let before = o.f.read(&run_id).await;
    o.publish(&held, "something else").await;
    o.own.publish(&held, Outcome::failed("exception", "it broke")).await.unwrap();
    assert!(matches!(o.renew(&held).await, Renewed::Fenced { .. }));
    assert!(matches!(o.reinstate(&held).await, Regranted::Fenced { .. }));
    assert!(matches!(o.own.hand_over(&held, owner(B), TTL).await.unwrap(), Regranted::Fenced { .. }));
    o.f.later(TTL.duration() + GRACE);
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    for scope in [CancelScope::Task(key(1)), CancelScope::Session(session("s"))] {
        o.cancel(scope, CancelMode::Force).await;
    }
    granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    let wait = Seconds::default();
    o.own.release_session(&session("s"), Release::Cancel { wait }).await.unwrap();
    assert_eq!(o.f.read(&run_id).await, before);
}

async fn own_i9_after_a_release_nothing_of_before_becomes_authoritative(f: Fixture) {
    let o = Own::on(f);
    let s = session("s");
    let (held, lost) = (o.start(A, 1).await, o.start(A, 2).await);
    o.lose(&lost).await;
    o.renew(&held).await;
    let given_out = o.own.next_task_id(&s).await.unwrap();
    let seen = Some(o.own.revision(&s).await.unwrap());
    let wait = Seconds::default();
    o.own.release_session(&s, Release::Cancel { wait }).await.unwrap();
    assert!(matches!(o.renew(&held).await, Renewed::Fenced { .. }));
    assert!(matches!(o.reinstate(&lost).await, Regranted::Fenced { .. }));
    assert!(matches!(o.own.hand_over(&held, owner(B), TTL).await.unwrap(), Regranted::Fenced { .. }));
    let starts = [
        o.ask(A, key(given_out)),
        Acquire { revision: seen, ..o.ask(A, key(9)) },
        Acquire { revision: seen, expect: Expected::TerminalRun(1), ..o.ask(A, key(1)) },
    ];
    for start in starts {
        let answer = o.acquire(&start).await;
        assert!(matches!(answer, Acquired::SessionReleased { .. }), "{answer:?}");
    }
    let now = o.own.inspect_session(&s).await.unwrap();
    assert!(now.tasks.iter().all(|task| !task.state.is_live()), "{now:?}");
}

async fn own_i9_what_is_lost_is_not_given_back_after_a_release_that_cancels_nothing(f: Fixture) {
    let o = Own::on(f);
    let lost = o.start(A, 1).await;
    o.lose(&lost).await;
    let released = o.own.release_session(&session("s"), Release::Refuse).await.unwrap();
    assert!(matches!(released, Released::Released { still_running: 0, .. }), "{released:?}");
    let answer = o.reinstate(&lost).await;
    assert!(matches!(answer, Regranted::Fenced { .. }), "it would run in a session that is over: {answer:?}");
    assert_eq!(word(&o.state(1).await), "cancelled");
}
