//! Group L: leases, clocks, split brain. And the rules of losing.

use futures_util::future::join_all;

use super::*;
use crate::model::Payload;
use crate::rules::{self, Moment};
use crate::store::RunFilter;
use crate::store::conformance::list;

list! {
    own_l1_of_two_who_start_one_task_one_owns_it,
    own_l2_who_owns_again_has_another_token,
    own_l3_a_superseded_token_renews_nothing,
    own_l4_an_expired_lease_is_renewed,
    own_l5_an_expiry_never_moves_back,
    own_l7_a_clock_that_steps_by_a_day_and_back_changes_no_verdict,
    own_l8_a_clock_that_jumps_loses_nobody_who_lives,
    own_l9_who_was_paused_too_long_is_fenced,
    own_l10_who_was_paused_unseen_goes_on,
    own_l11_who_was_paused_before_publishing_publishes,
    own_l16_renewing_twice_is_harmless,
    own_l17_a_repeated_request_is_answered_the_same_grant,
    own_l17_a_request_that_is_repeated_after_its_run_ended_begins_no_other,
    own_l19_a_task_that_begins_anew_has_a_token_of_its_own,
    own_l20_two_who_declare_a_task_lost_see_the_same,
    own_l21_a_verdict_and_a_renewal_never_both_hold,
    own_l22_a_verdict_never_follows_an_outcome,
    own_l23_after_an_outage_owners_renew_within_the_grace,
    own_l24_a_task_that_is_handed_over_is_the_others_at_once,
    own_v8_a_housekeeper_that_boots_waits_for_lease_and_grace,
    own_i6_a_verdict_holds_only_for_the_grant_that_was_seen,
    own_i3_no_superseded_token_succeeds_at_anything,
    own_i5_whoever_looks_sees_a_lease_or_an_end,
    own_i7_clocks_say_how_soon_and_never_whether,
    own_v2_a_task_that_left_where_it_was_is_taken_on_at_once,
}

async fn own_l1_of_two_who_start_one_task_one_owns_it(f: Fixture) {
    let o = Own::on(f);
    let requests = [o.ask(A, key(1)), o.ask(B, key(1))];
    let answers = tokio::join!(o.own.acquire(&requests[0]), o.peer.acquire(&requests[1]));
    let answers = [answers.0.unwrap(), answers.1.unwrap()];
    let won = answers.iter().filter(|answer| matches!(answer, Acquired::Acquired(_))).count();
    let held = answers.iter().filter(|answer| matches!(answer, Acquired::Held { run: 1, .. })).count();
    assert_eq!((won, held), (1, 1), "{answers:?}");
}

async fn own_l2_who_owns_again_has_another_token(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.lose(&first).await;
    let second = granted(o.again(A, 1, Expected::LostRun(1)).await);
    assert!(second.token.fence > first.token.fence && second.token.nonce != first.token.nonce);
    assert_eq!(second.run, 2);
    assert!(matches!(o.renew(&first).await, Renewed::Fenced { .. }), "an earlier self is recognised");
    assert!(matches!(o.reinstate(&first).await, Regranted::Fenced { .. }));
    assert!(matches!(o.publish(&first, "late").await, Published::Fenced { .. }));
    assert_eq!(o.publish(&second, "found").await, Published::Committed);
}

async fn own_l3_a_superseded_token_renews_nothing(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.lose(&first).await;
    let second = granted(o.again(B, 1, Expected::LostRun(1)).await);
    let before = o.f.read(&second.key.run_id(2).unwrap()).await;
    assert!(matches!(o.renew(&first).await, Renewed::Fenced { .. }));
    // Not even under the other's number.
    let forged = Held { run: 2, ..first };
    assert!(matches!(o.renew(&forged).await, Renewed::Fenced { .. }));
    assert_eq!(o.f.read(&before.run_id).await, before);
}

async fn own_l4_an_expired_lease_is_renewed(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() + SECOND);
    assert_eq!(word(&o.state(1).await), "suspect");
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { ttl_left, .. } if ttl_left == TTL));
    assert_eq!(word(&o.state(1).await), "running");
}

async fn own_l5_an_expiry_never_moves_back(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let short = o.own.renew(owner(A), &[held], Seconds::new(1)).await.unwrap().remove(0);
    assert!(matches!(short, Renewed::Renewed { ttl_left, .. } if ttl_left == TTL), "{short:?}");
}

async fn own_l7_a_clock_that_steps_by_a_day_and_back_changes_no_verdict(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let (start, day) = (o.f.now().await, Duration::from_secs(86_400));
    o.f.clock.set(start.minus(day));
    assert_eq!(word(&o.state(1).await), "running");
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { .. }));
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    o.f.clock.set(start.plus(day));
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { .. }), "who renews within the grace is alive");
    o.f.clock.set(start);
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    assert!(!o.finished(1).await.recovered);
}

async fn own_l8_a_clock_that_jumps_loses_nobody_who_lives(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(600 * SECOND);
    assert_eq!(word(&o.state(1).await), "suspect", "nobody looked before the owner renewed");
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { .. }));
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    assert_eq!(word(&o.state(1).await), "running");
}

async fn own_l9_who_was_paused_too_long_is_fenced(f: Fixture) {
    let o = Own::on(f);
    let (one, two) = (o.start(A, 1).await, o.start(A, 2).await);
    o.lose(&one).await;
    assert!(matches!(o.declare(&two).await, DeclaredLost::Lost { .. }));
    granted(o.again(B, 2, Expected::LostRun(1)).await);
    for held in [&one, &two] {
        let renewed = o.renew(held).await;
        assert!(matches!(renewed, Renewed::Fenced { status: RunStatus::Lost, .. }), "{renewed:?}");
    }
    assert!(matches!(o.reinstate(&one).await, Regranted::Acquired(_)), "nobody succeeded it");
    assert!(matches!(o.reinstate(&two).await, Regranted::Fenced { .. }), "somebody did");
}

async fn own_l10_who_was_paused_unseen_goes_on(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() + 10 * GRACE);
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { .. }));
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    let finished = o.finished(1).await;
    assert!(!finished.recovered && is_completed(&finished));
}

async fn own_l11_who_was_paused_before_publishing_publishes(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() + 10 * GRACE);
    assert_eq!(o.publish(&held, "found").await, Published::Committed, "nobody declared it lost");
    assert_eq!(word(&o.state(1).await), "completed");
}

async fn own_l16_renewing_twice_is_harmless(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let run_id = key(1).run_id(1).unwrap();
    o.renew(&held).await;
    let before = o.f.read(&run_id).await;
    o.renew(&held).await;
    assert_eq!(o.f.read(&run_id).await, before);
}

async fn own_l17_a_repeated_request_is_answered_the_same_grant(f: Fixture) {
    let o = Own::on(f);
    let request = o.ask(A, key(1));
    let held = granted(o.acquire(&request).await);
    o.f.later(SECOND);
    assert_eq!(granted(o.acquire(&request).await), held, "not held by itself");
    let other = Acquire { request_id: "another".into(), ..request.clone() };
    assert!(matches!(o.acquire(&other).await, Acquired::Held { .. }));
    // Giving back is repeated in the same way.
    o.lose(&held).await;
    let Regranted::Acquired(again) = o.reinstate(&held).await else { panic!("nobody succeeded it") };
    assert_eq!(o.reinstate(&held).await, Regranted::Acquired(again));
    o.publish(&held, "late").await;
    assert!(matches!(o.acquire(&request).await, Acquired::Acquired(now) if now.token != held.token));
}

async fn own_l17_a_request_that_is_repeated_after_its_run_ended_begins_no_other(f: Fixture) {
    let o = Own::on(f);
    let (first, second) = (o.ask(A, key(1)), o.ask(A, key(1)));
    let second = Acquire { expect: Expected::TerminalRun(1), ..second };
    let told = async |request: &Acquire, run, expected| {
        // On another replica as well: what was granted is not remembered by who granted it.
        for own in [&o.own, &o.peer] {
            match own.acquire(request).await.unwrap() {
                Acquired::Conflict { actual } => {
                    assert_eq!((actual.run, word(&actual.state)), (run, expected), "{actual:?}");
                }
                other => panic!("{request:?}: {other:?}"),
            }
        }
        let runs = o.f.list(RunFilter { owned: Some(true), ..RunFilter::default() }).await;
        let latest = runs.iter().filter(|run| run.run_id.as_str().starts_with("owned.test.researcher.s.1."));
        assert_eq!(latest.count(), run as usize, "no run was begun by that");
    };
    let held = granted(o.acquire(&first).await);
    o.publish(&held, "found").await;
    told(&first, 1, "completed").await;
    let next = granted(o.acquire(&second).await);
    // The first request is not the second's, and not held by itself.
    assert!(matches!(o.acquire(&first).await, Acquired::Held { run: 2, .. }));
    o.own.publish(&next, Outcome::failed("exception", "it broke")).await.unwrap();
    told(&second, 2, "failed").await;
    told(&first, 2, "failed").await;
    let third = Acquire { expect: Expected::TerminalRun(2), ..o.ask(A, key(1)) };
    let lost = granted(o.acquire(&third).await);
    o.lose(&lost).await;
    told(&third, 3, "lost").await;
    let fourth = Acquire { expect: Expected::LostRun(3), ..o.ask(A, key(1)) };
    granted(o.acquire(&fourth).await);
    o.cancel(CancelScope::Task(key(1)), CancelMode::Force).await;
    for request in [&fourth, &third, &second, &first] {
        told(request, 4, "cancelled").await;
    }
    o.own.forget(&key(1)).await.unwrap();
    for request in [&fourth, &first] {
        let answer = o.acquire(request).await;
        assert!(
            matches!(&answer, Acquired::Conflict { actual } if actual.state == TaskState::Expired),
            "{answer:?}"
        );
    }
    assert_eq!(o.f.list(RunFilter { owned: Some(true), ..RunFilter::default() }).await, []);
}

async fn own_l19_a_task_that_begins_anew_has_a_token_of_its_own(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.publish(&first, "found").await;
    // All that is known of it is lost.
    o.own.forget(&key(1)).await.unwrap();
    let id = session("s").id().unwrap();
    let (task, _) = o.f.store.task(&id).await.unwrap().expect("a session");
    o.f.delete(&task).await;
    let second = o.start(A, 1).await;
    assert_ne!(second.token, first.token);
    let late = o.publish(&first, "late").await;
    assert!(matches!(late, Published::Fenced { .. }), "{late:?}");
    assert_eq!(word(&o.state(1).await), "running");
}

async fn own_l20_two_who_declare_a_task_lost_see_the_same(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() + GRACE);
    let fence = held.token.fence;
    let (key, one) = (key(1), key(1));
    let both =
        tokio::join!(o.own.declare_lost(&key, 1, fence, None), o.peer.declare_lost(&one, 1, fence, None));
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(matches!(first, DeclaredLost::Lost { .. }));
    assert_eq!(first, second);
    assert_eq!(
        o.f.told(&o.f.read(&key.run_id(1).unwrap()).await).await,
        [EventKind::Started, EventKind::Lost]
    );
}

async fn own_l21_a_verdict_and_a_renewal_never_both_hold(f: Fixture) {
    let o = Own::on(f);
    for task in 1..=10 {
        let held = o.start(A, task).await;
        o.f.later(TTL.duration() + GRACE);
        let held = std::slice::from_ref(&held);
        let fence = held[0].token.fence;
        let (renewed, declared) =
            tokio::join!(o.own.renew(owner(A), held, TTL), o.peer.declare_lost(&held[0].key, 1, fence, None));
        let renewed = matches!(renewed.unwrap()[0], Renewed::Renewed { .. });
        let lost = matches!(declared.unwrap(), DeclaredLost::Lost { .. });
        assert_ne!(renewed, lost);
        assert_eq!(word(&o.state(task).await), if lost { "lost" } else { "running" });
    }
}

async fn own_l22_a_verdict_never_follows_an_outcome(f: Fixture) {
    let o = Own::on(f);
    for task in 1..=10 {
        let held = o.start(A, task).await;
        o.f.later(TTL.duration() + GRACE);
        let fence = held.token.fence;
        let (published, declared) = tokio::join!(
            o.own.publish(&held, Outcome::completed("found")),
            o.peer.declare_lost(&held.key, 1, fence, None)
        );
        match (published.unwrap(), declared.unwrap()) {
            (Published::Committed, DeclaredLost::Changed { .. }) => {
                assert_eq!(word(&o.state(task).await), "completed");
            }
            (Published::Fenced { .. }, DeclaredLost::Lost { .. }) => {
                let Regranted::Acquired(again) = o.reinstate(&held).await else { panic!("its own") };
                assert_eq!(o.publish(&again, "found").await, Published::Committed);
                assert_eq!(word(&o.state(task).await), "recovered");
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn own_l23_after_an_outage_owners_renew_within_the_grace(f: Fixture) {
    let o = Own::on(f);
    let mut all = Vec::new();
    for task in 1..=5 {
        all.push(o.start(A, task).await);
    }
    // Nobody reached the store for longer than the leases, and within the grace.
    o.f.later(TTL.duration() + GRACE / 2);
    for held in &all {
        assert_eq!(word(&o.state(held.key.task).await), "suspect");
        assert!(matches!(o.declare(held).await, DeclaredLost::Changed { .. }));
    }
    o.own.renew(owner(A), &all, TTL).await.unwrap();
    o.f.later(GRACE);
    for held in &all {
        assert_eq!(word(&o.state(held.key.task).await), "running");
    }
}

async fn own_l24_a_task_that_is_handed_over_is_the_others_at_once(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let Regranted::Acquired(given) = o.own.hand_over(&held, owner(B), TTL).await.unwrap() else {
        panic!("it was held");
    };
    assert_eq!(o.own.hand_over(&held, owner(B), TTL).await.unwrap(), Regranted::Acquired(given.clone()));
    assert!(given.token.fence > held.token.fence);
    assert!(matches!(o.state(1).await, TaskState::Running { owner: who, .. } if who == owner(B)));
    assert!(matches!(o.renew(&held).await, Renewed::Fenced { .. }));
    assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    assert_eq!(o.publish(&given, "found").await, Published::Committed);
}

async fn own_v8_a_housekeeper_that_boots_waits_for_lease_and_grace(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let run_id = held.key.run_id(1).unwrap();
    for (later, status) in [
        (TTL.duration(), RunStatus::Running),
        (GRACE - SECOND, RunStatus::Running),
        (SECOND, RunStatus::Lost),
    ] {
        o.f.later(later);
        let run = o.f.read(&run_id).await;
        o.f.sweep(&run).await;
        assert_eq!(o.f.read(&run_id).await.status, status);
    }
}

async fn own_i6_a_verdict_holds_only_for_the_grant_that_was_seen(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.lose(&held).await;
    let Regranted::Acquired(again) = o.reinstate(&held).await else { panic!("nobody succeeded it") };
    o.f.later(TTL.duration() + GRACE);
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }), "of another grant");
    assert!(matches!(o.declare(&again).await, DeclaredLost::Lost { .. }));
    // A grace below that of the settings counts as that.
    let third = o.start(A, 2).await;
    o.f.later(TTL.duration() + SECOND);
    let hasty = o.own.declare_lost(&third.key, 1, third.token.fence, Some(Duration::ZERO)).await.unwrap();
    assert!(matches!(hasty, DeclaredLost::Changed { .. }), "{hasty:?}");
}

async fn own_i3_no_superseded_token_succeeds_at_anything(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.lose(&first).await;
    let Regranted::Acquired(second) = o.reinstate(&first).await else { panic!("nobody succeeded it") };
    o.lose(&second).await;
    let third = granted(o.again(A, 1, Expected::LostRun(1)).await);
    let publishes = join_all([&first, &second].map(|held| o.publish(held, "late"))).await;
    assert!(publishes.iter().all(|published| matches!(published, Published::Fenced { .. })), "{publishes:?}");
    for held in [&first, &second] {
        assert!(matches!(o.renew(held).await, Renewed::Fenced { .. }));
        assert!(matches!(o.reinstate(held).await, Regranted::Fenced { .. }));
        let handed = o.own.hand_over(held, owner(B), TTL).await.unwrap();
        assert!(matches!(handed, Regranted::Fenced { .. }), "{handed:?}");
    }
    let run = o.f.read(&third.key.run_id(2).unwrap()).await;
    let moment = Moment { now: o.f.now().await, stamp: draw() };
    assert!(rules::supersede(&run, &run.run_id, moment).is_err(), "what runs is not superseded");
    assert_eq!(o.publish(&third, "found").await, Published::Committed);
}

async fn own_i5_whoever_looks_sees_a_lease_or_an_end(f: Fixture) {
    let o = Own::on(f);
    let sees = async |task: u64, expected: &str| {
        let run = o.f.list(RunFilter { owned: Some(true), ..RunFilter::default() }).await;
        for run in run.iter().filter(|run| run.status != RunStatus::Lost) {
            assert_ne!(run.lease.is_some(), run.status.is_terminal(), "{run:?}");
        }
        for own in [&o.own, &o.peer] {
            assert_eq!(word(&own.inspect(&key(task)).await.unwrap().state), expected);
        }
    };
    let held = o.start(A, 1).await;
    sees(1, "running").await;
    o.f.later(TTL.duration());
    sees(1, "suspect").await;
    o.renew(&held).await;
    sees(1, "running").await;
    o.publish(&held, "found").await;
    sees(1, "completed").await;
    let next = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    sees(1, "running").await;
    o.lose(&next).await;
    sees(1, "lost").await;
    let Regranted::Acquired(back) = o.reinstate(&next).await else { panic!("nobody succeeded it") };
    sees(1, "running").await;
    o.publish(&back, "more").await;
    sees(1, "recovered").await;
}

async fn own_i7_clocks_say_how_soon_and_never_whether(f: Fixture) {
    let o = Own::on(f);
    let start = o.f.now().await;
    let hour = Duration::from_secs(3600);
    // The same steps on clocks that stand, run ahead and run behind: each task comes to the same end.
    for (round, clock) in [start, start.plus(hour), start.minus(hour)].into_iter().enumerate() {
        o.f.clock.set(clock);
        let first = 3 * round as u64;
        let all = [o.start(A, first + 1).await, o.start(A, first + 2).await, o.start(A, first + 3).await];
        o.f.later(TTL.duration() + GRACE);
        o.renew(&all[0]).await;
        for held in &all {
            o.declare(held).await;
        }
        o.publish(&all[0], "found").await;
        o.reinstate(&all[1]).await;
        let ends = [o.state(first + 1).await, o.state(first + 2).await, o.state(first + 3).await];
        assert_eq!(ends.each_ref().map(word), ["completed", "running", "lost"], "round {round}");
    }
}

async fn own_v2_a_task_that_left_where_it_was_is_taken_on_at_once(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    // Its host has no more time: it says where the work is, and lets go of its lease.
    let interrupted = Outcome::failed("interrupted", "shut down").with_snapshot(Payload::text("page 7"));
    assert_eq!(o.own.publish(&held, interrupted).await.unwrap(), Published::Committed);
    let left = o.finished(1).await;
    assert!(left.is_retryable());
    let next = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    assert_eq!((next.run, left.snapshot), (2, Some(Payload::text("page 7"))), "no lease was waited for");
    assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    assert_eq!(o.publish(&next, "found").await, Published::Committed);
}
