//! Group P: outcomes, their delivery, and how long they are kept.

use std::sync::Arc;

use futures_util::future::join_all;

use super::*;
use crate::error::Error;
use crate::model::Payload;
use crate::ownership::{Acknowledgement, Declared, End, Forgotten, Release, Retention};
use crate::store::conformance::list;
use crate::store::{PageRequest, RunFilter};

list! {
    own_p1_a_second_outcome_overwrites_nothing,
    own_p5_a_task_that_is_published_is_never_in_between,
    own_p6_a_large_outcome_is_refused_by_its_limit,
    own_p7_a_cancelled_task_keeps_what_it_had,
    own_p8_an_acknowledged_outcome_expires,
    own_p9_an_outcome_that_nobody_acknowledged_is_counted,
    own_p9_what_was_lost_just_now_is_not_given_up_for_having_run_long,
    own_p10_what_has_expired_says_so,
    own_p11_a_forgotten_task_is_gone_for_everybody,
    own_p12_who_continues_and_who_removes_never_share,
    own_p13_sessions_leave_nothing_behind,
    own_p15_another_namespace_does_not_exist,
    own_x3_a_completion_after_a_cancel_request_says_so,
}

async fn own_p1_a_second_outcome_overwrites_nothing(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    // And P4: the answer was lost.
    assert_eq!(o.publish(&held, "found").await, Published::AlreadyCommitted);
    let other = o.publish(&held, "something else").await;
    assert!(
        matches!(&other, Published::AlreadyTerminal { outcome } if text(outcome) == "found"),
        "{other:?}"
    );
    let failed = o.own.publish(&held, Outcome::failed("exception", "it broke")).await.unwrap();
    assert!(matches!(failed, Published::AlreadyTerminal { .. }));
    assert_eq!(text(&o.finished(1).await), "found");
    let two = o.start(A, 2).await;
    let broke = Outcome::failed("exception", "it broke").with_snapshot(Payload::text("where it was"));
    assert_eq!(o.own.publish(&two, broke.clone()).await.unwrap(), Published::Committed);
    assert_eq!(o.own.publish(&two, broke).await.unwrap(), Published::AlreadyCommitted);
    assert_eq!(o.finished(2).await.snapshot, Some(Payload::text("where it was")));
}

async fn own_p5_a_task_that_is_published_is_never_in_between(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() * 2);
    let looks = join_all((0..20).map(|_| o.peer.inspect(&held.key)));
    let (published, seen) = tokio::join!(o.publish(&held, "found"), looks);
    assert_eq!(published, Published::Committed);
    for inspection in seen {
        let inspection = inspection.unwrap();
        assert!(matches!(word(&inspection.state), "suspect" | "completed"), "{inspection:?}");
    }
}

async fn own_p6_a_large_outcome_is_refused_by_its_limit(f: Fixture) {
    let o = Own::with(f, OwnershipSettings { outcome_limit: 10, ..OwnershipSettings::default() });
    let held = o.start(A, 1).await;
    assert_eq!(o.publish(&held, "more than ten").await, Published::TooLarge { limit: 10 });
    assert_eq!(word(&o.state(1).await), "running", "its owner says what becomes of it");
    assert_eq!(o.publish(&held, "just ten c").await, Published::Committed);
}

async fn own_p7_a_cancelled_task_keeps_what_it_had(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    let partial = Outcome { end: End::Cancelled, ..Outcome::completed("half of it") };
    assert_eq!(o.own.publish(&held, partial).await.unwrap(), Published::Committed);
    let finished = o.finished(1).await;
    assert_eq!((finished.status, text(&finished).as_str()), (RunStatus::Cancelled, "half of it"));
}

pub(super) const KEPT: Retention = Retention {
    acknowledged: Seconds::new(60),
    unacknowledged: Seconds::new(3600),
    sessions: Seconds::new(86_400),
    batch: 100,
};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

async fn own_p8_an_acknowledged_outcome_expires(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    assert_eq!(o.own.ack(&key(1), 1, "chat").await.unwrap(), Acknowledgement::NotTerminal);
    o.publish(&held, "found").await;
    for _ in 0..2 {
        assert_eq!(o.own.ack(&key(1), 1, "chat").await.unwrap(), Acknowledgement::Acknowledged);
    }
    o.f.later(59 * SECOND);
    assert_eq!(o.own.reap(KEPT).await.unwrap().tasks, 0);
    o.f.later(SECOND);
    let reaped = o.own.reap(KEPT).await.unwrap();
    assert_eq!((reaped.tasks, reaped.undelivered, reaped.sessions), (1, 0, 0));
    assert_eq!(word(&o.state(1).await), "expired");
    assert_eq!(o.f.list(RunFilter::default()).await, []);
    o.f.later(24 * HOUR);
    assert_eq!(o.own.reap(KEPT).await.unwrap().sessions, 1);
    assert_eq!(word(&o.state(1).await), "unknown", "later even that is not known any more");
}

async fn own_p9_an_outcome_that_nobody_acknowledged_is_counted(f: Fixture) {
    let o = Own::on(f);
    let (held, lost) = (o.start(A, 1).await, o.start(A, 2).await);
    o.publish(&held, "found").await;
    o.lose(&lost).await;
    o.f.later(HOUR);
    let reaped = o.own.reap(KEPT).await.unwrap();
    assert_eq!((reaped.tasks, reaped.undelivered, reaped.given_up), (1, 1, 1));
    assert_eq!((word(&o.state(1).await), word(&o.state(2).await)), ("expired", "failed"));
    assert!(matches!(o.reinstate(&lost).await, Regranted::Fenced { .. }), "given up for good");
    o.f.later(HOUR);
    assert_eq!(o.own.reap(KEPT).await.unwrap().undelivered, 1);
    assert_eq!(o.f.list(RunFilter::default()).await, []);
}

async fn own_p9_what_was_lost_just_now_is_not_given_up_for_having_run_long(f: Fixture) {
    let o = Own::on(f);
    let long = o.start(A, 1).await;
    for _ in 0..5 {
        o.f.later(HOUR);
        assert!(matches!(o.renew(&long).await, Renewed::Renewed { .. }));
    }
    o.lose(&long).await;
    assert_eq!(o.own.reap(KEPT).await.unwrap().given_up, 0);
    let again = match o.reinstate(&long).await {
        Regranted::Acquired(held) => held,
        other => panic!("its owner is back: {other:?}"),
    };
    assert_eq!(o.publish(&again, "found").await, Published::Committed);
}

async fn own_p10_what_has_expired_says_so(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.publish(&held, "found").await;
    o.f.later(HOUR);
    o.own.reap(KEPT).await.unwrap();
    for expect in [Expected::NotExists, Expected::TerminalRun(1), Expected::LostRun(1)] {
        let answer = o.again(B, 1, expect).await;
        assert!(
            matches!(&answer, Acquired::Conflict { actual } if actual.state == TaskState::Expired),
            "{answer:?}"
        );
    }
    let cancelled = o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    assert_eq!(cancelled, CancelAnswer::Expired);
    assert_eq!(o.own.ack(&key(1), 1, "chat").await.unwrap(), Acknowledgement::Expired);
    assert!(matches!(o.publish(&held, "found").await, Published::Fenced { .. }));
    assert_eq!(word(&o.state(2).await), "unknown", "never begun is another thing");
}

async fn own_p11_a_forgotten_task_is_gone_for_everybody(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    assert!(matches!(o.own.forget(&key(1)).await.unwrap(), Forgotten::StillRunning { .. }));
    let outcome = Outcome::completed("found").with_snapshot(Payload::text("{}"));
    o.own.publish(&held, outcome).await.unwrap();
    let second = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    o.publish(&second, "more").await;
    let lost = o.start(A, 2).await;
    o.lose(&lost).await;
    for task in [1, 2] {
        for _ in 0..2 {
            assert_eq!(o.peer.forget(&key(task)).await.unwrap(), Forgotten::Forgotten);
        }
        assert_eq!(word(&o.state(task).await), "expired");
    }
    assert_eq!(o.f.list(RunFilter::default()).await, [], "both runs, with all they had");
    assert_eq!(o.own.forget(&key(9)).await.unwrap(), Forgotten::NotFound);
}

async fn own_p12_who_continues_and_who_removes_never_share(f: Fixture) {
    let o = Own::on(f);
    for task in 1..=5 {
        let held = o.start(A, task).await;
        o.publish(&held, "found").await;
        o.f.later(HOUR);
        let continues = Acquire { expect: Expected::TerminalRun(1), ..o.ask(B, key(task)) };
        let (continued, reaped) = tokio::join!(o.peer.acquire(&continues), o.own.reap(KEPT));
        reaped.unwrap();
        match continued.unwrap() {
            Acquired::Acquired(next) => {
                assert_eq!(word(&o.state(task).await), "running");
                o.publish(&next, "more").await;
            }
            Acquired::Conflict { actual } => assert_eq!(actual.state, TaskState::Expired),
            other => panic!("{other:?}"),
        }
    }
}

async fn own_p13_sessions_leave_nothing_behind(f: Fixture) {
    let o = Own::on(f);
    for n in 0..50 {
        let s = session(&format!("chat-{n}"));
        let held = granted(o.acquire(&o.ask(A, s.task(1))).await);
        o.publish(&held, "found").await;
        o.own.release_session(&s, Release::Refuse).await.unwrap();
    }
    o.f.later(HOUR);
    let small = Retention { batch: 7, ..KEPT };
    let mut tasks = 0;
    loop {
        let reaped = o.own.reap(small).await.unwrap();
        tasks += reaped.tasks;
        if !reaped.more {
            break;
        }
    }
    assert_eq!(tasks, 50);
    o.f.later(24 * HOUR);
    while o.own.reap(small).await.unwrap().more {}
    let left = o.f.store.tasks(PageRequest { limit: 100, cursor: None }).await.unwrap();
    assert!(left.items.is_empty(), "{} sessions are left", left.items.len());
    assert!(o.f.counts(None).await.is_empty());
    o.f.sound().await;
}

async fn own_p15_another_namespace_does_not_exist(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let settings = OwnershipSettings { namespace: Some("tenant-x".into()), ..OwnershipSettings::default() };
    let x = Ownership::new(Arc::clone(&o.f.store), settings);
    let cancel =
        Cancel { mode: CancelMode::Force, reason: "r".into(), requested_by: "x".into(), force_after: None };
    let not_found =
        |error: Option<Error>| assert!(matches!(error, Some(Error::NotFound { .. })), "{error:?}");
    let s = session("s");
    not_found(x.acquire(&o.ask(B, key(2))).await.err());
    not_found(x.renew(owner(A), std::slice::from_ref(&held), TTL).await.err());
    let own = SessionKey::new("tenant-x", "researcher", "s").unwrap().task(1);
    let mine = granted(x.acquire(&o.ask(A, own)).await.unwrap());
    let both = x.renew(owner(A), &[held.clone(), mine], TTL).await.unwrap();
    assert!(
        matches!(&both[..], [Renewed::Gone, Renewed::Renewed { .. }]),
        "one takes nothing from others: {both:?}"
    );
    not_found(x.inspect(&key(1)).await.err());
    not_found(x.inspect_session(&s).await.err());
    not_found(x.publish(&held, Outcome::completed("x")).await.err());
    not_found(x.declare_lost(&key(1), 1, 1, None).await.err());
    not_found(x.reinstate(&held, owner(B), TTL).await.err());
    not_found(x.hand_over(&held, owner(B), TTL).await.err());
    not_found(x.request_cancel(&CancelScope::Task(key(1)), &cancel).await.err());
    not_found(x.request_cancel(&CancelScope::Session(s.clone()), &cancel).await.err());
    not_found(x.release_session(&s, Release::Refuse).await.err());
    not_found(x.next_task_id(&s).await.err());
    not_found(x.forget(&key(1)).await.err());
    not_found(x.ack(&key(1), 1, "x").await.err());
    let told = Declared { namespace: "test".into(), source: "researcher".into(), lease: TTL, grace: TTL };
    not_found(x.register("web", &told, true).await.err());
    o.f.later(1000 * HOUR);
    assert_eq!(x.reap(KEPT).await.unwrap().tasks, 0);
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
}

async fn own_x3_a_completion_after_a_cancel_request_says_so(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    let finished = o.finished(1).await;
    assert!(is_completed(&finished) && finished.cancel_requested);
}
