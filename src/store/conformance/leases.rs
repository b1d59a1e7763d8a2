//! Leases: granted to one, kept by renewal, judged by the store's clock.

use std::time::Duration;

use super::support::{A, B, GRACE, LEASE, ask, claim_request, done, draw, run_id, token};
use super::{Fixture, list};
use crate::model::{CancelMode, InstanceId, Run, RunStatus, Token};
use crate::rules::{self, Moment, Verdict, Wanted};
use crate::store::{ClaimRequest, Refusal, RenewRequest, Renewal};
use futures_util::future::join_all;
use serde_json::json;

list! {
    own_l01_one_of_two_racers_is_granted,
    own_l01_of_many_racers_one_is_granted,
    own_l02_a_second_grant_has_a_higher_fence_and_another_nonce,
    own_l03_a_renewal_with_a_superseded_token_is_fenced_and_moves_nothing,
    own_l04_an_expired_lease_that_nobody_took_is_renewed,
    own_l05_the_expiry_never_moves_back,
    own_l05_a_write_under_the_token_does_not_move_the_expiry_back,
    own_l16_a_repeated_renewal_is_harmless,
    own_l17_a_repeated_claim_answers_the_same_grant,
    own_l17_a_repeated_claim_does_not_answer_what_has_begun,
    own_l17_a_claim_that_waits_beside_its_repetition_is_granted_once,
    own_l17_a_repeated_claim_answers_all_that_was_granted,
    own_l17_another_request_of_the_same_instance_gets_nothing,
    own_l20_two_who_declare_a_run_lost_make_one_transition,
    own_l21_a_sweep_that_was_decided_before_a_renewal_is_not_made_after_it,
    own_l22_a_sweep_that_was_decided_before_the_outcome_is_stale,
    own_s2_3_a_lost_run_is_given_back_to_its_proven_owner,
    own_s2_4_a_lost_run_that_somebody_else_was_granted_is_not_given_back,
    own_x9_a_cancelled_run_of_a_dead_owner_is_cancelled_not_lost,
    own_p5_no_observer_sees_a_run_without_a_lease_and_an_outcome,
    a_renewal_tells_of_a_cancel,
    a_renewal_of_a_run_that_has_ended_is_fenced,
    a_run_that_ended_with_its_lease_is_not_renewed,
    own_i2_a_write_lowers_no_fence,
    a_renewal_of_a_run_that_does_not_exist_says_so,
    renewals_of_one_call_are_answered_in_order,
    a_renewal_raises_no_version_and_tells_nothing,
    field_g16_expiry_is_judged_by_the_clock_of_the_store,
    field_l30_a_run_that_is_due_late_is_granted_once,
}

async fn own_l01_one_of_two_racers_is_granted(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let requests = [claim_request(A, 1), claim_request(B, 1)];
    let answers = join_all(requests.map(|request| f.store.claim(request))).await;
    let granted: Vec<usize> = answers.into_iter().map(|answer| answer.unwrap().len()).collect();
    assert_eq!(granted.iter().sum::<usize>(), 1, "{granted:?}");
}

async fn own_l01_of_many_racers_one_is_granted(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..50 {
        f.queue(&task, &format!("r{n}")).await;
    }
    let requests = (0..100_u128).map(|n| f.store.claim(claim_request(n, 3)));
    let answers = join_all(requests).await;
    let mut granted: Vec<String> =
        answers.into_iter().flat_map(|answer| answer.unwrap()).map(|run| run.run_id.to_string()).collect();
    assert_eq!(granted.len(), 50);
    granted.sort();
    granted.dedup();
    assert_eq!(granted.len(), 50, "no run is granted twice");
    f.sound().await;
}

async fn a_run_that_ended_with_its_lease_is_not_renewed(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let mut write = f.end_of(&running, done("x")).await;
    // No rule leaves a run like this; the store does not rely on that.
    write.run.lease = running.lease;
    f.commit(write).await.unwrap();
    let renewal = f.renew(&running, LEASE * 2).await;
    assert!(matches!(renewal, Renewal::Fenced { status: RunStatus::Completed, .. }), "{renewal:?}");
}

async fn own_i2_a_write_lowers_no_fence(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let mut write = f.end_of(&running, done("x")).await;
    write.run.fence = 0;
    f.commit(write).await.unwrap();
    assert_eq!(f.read(&running.run_id).await.fence, running.fence);
}

async fn own_l02_a_second_grant_has_a_higher_fence_and_another_nonce(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.claim_one(A).await;
    f.apply(rules::release(&first, token(&first), "busy", Duration::ZERO, f.moment().await).unwrap()).await;
    let second = f.claim_one(A).await;
    assert!(second.fence > first.fence);
    assert_ne!(token(&second).nonce, token(&first).nonce);
    assert!(matches!(f.renew(&first, LEASE).await, Renewal::Fenced { .. }), "its earlier self is dead");
}

async fn own_l03_a_renewal_with_a_superseded_token_is_fenced_and_moves_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.later(LEASE + GRACE);
    f.sweep(&first).await.unwrap();
    let second = f.begin(B).await;
    let fenced = Renewal::Fenced { fence: second.fence, status: RunStatus::Running };
    assert_eq!(f.renew(&first, 10 * LEASE).await, fenced);
    let nonce = Token { nonce: token(&second).nonce + 1, ..token(&second) };
    let fence = Token { fence: token(&second).fence + 1, ..token(&second) };
    for other in [nonce, fence] {
        assert_eq!(f.renew_as(&second.run_id, other, 10 * LEASE).await, fenced, "equality is on both");
    }
    assert_eq!(f.read(&second.run_id).await, second);
}

async fn own_l04_an_expired_lease_that_nobody_took_is_renewed(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(LEASE + GRACE / 2);
    assert_eq!(f.sweep(&running).await, None, "within the grace nobody ends it");
    let expires_at = f.now().await.plus(LEASE);
    assert_eq!(f.renew(&running, LEASE).await, Renewal::Renewed { expires_at, cancel: None });
    assert_eq!(f.finish(&running, done("x")).await.status, RunStatus::Completed);
}

async fn own_l05_the_expiry_never_moves_back(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    let expires_at = claimed.lease.unwrap().expires_at;
    for shorter in [LEASE / 2, Duration::ZERO, LEASE] {
        assert_eq!(f.renew(&claimed, shorter).await, Renewal::Renewed { expires_at, cancel: None });
        assert_eq!(f.read(&claimed.run_id).await.lease.unwrap().expires_at, expires_at);
    }
    f.later(Duration::from_secs(1));
    assert_eq!(f.renew(&claimed, LEASE).await, {
        Renewal::Renewed { expires_at: expires_at.plus(Duration::from_secs(1)), cancel: None }
    });
    assert_eq!(f.read(&claimed.run_id).await.lease.unwrap().heartbeat_at, f.now().await);
}

async fn own_l05_a_write_under_the_token_does_not_move_the_expiry_back(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    // Decided on the run as it was before the renewal, which raises no version.
    let start = rules::start(&claimed, token(&claimed), f.moment().await).unwrap();
    f.later(Duration::from_secs(10));
    let Renewal::Renewed { expires_at, .. } = f.renew(&claimed, LEASE).await else {
        panic!("the lease stands")
    };
    let lease = f.apply(start).await.lease.unwrap();
    assert_eq!((lease.expires_at, lease.heartbeat_at), (expires_at, f.now().await));
    f.sound().await;
}

async fn own_l16_a_repeated_renewal_is_harmless(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let first = f.renew(&running, 2 * LEASE).await;
    let after_first = f.read(&running.run_id).await;
    assert_eq!(f.renew(&running, 2 * LEASE).await, first);
    assert_eq!(f.read(&running.run_id).await, after_first);
}

async fn own_l17_a_repeated_claim_answers_the_same_grant(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for name in ["one", "two"] {
        f.queue(&task, name).await;
    }
    let mut request = claim_request(A, 2);
    let first = f.store.claim(request.clone()).await.unwrap();
    assert_eq!(first.len(), 2);
    request.repeat = true;
    let mut again = f.store.claim(request).await.unwrap();
    again.sort_by_key(|run| first.iter().position(|granted| granted.run_id == run.run_id));
    assert_eq!(again, first, "the same tokens, and not held by itself");
    f.sound().await;
}

async fn own_l17_a_repeated_claim_does_not_answer_what_has_begun(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let mut request = claim_request(A, 1);
    let claimed = f.store.claim(request.clone()).await.unwrap();
    f.start(&claimed[0]).await;
    request.repeat = true;
    assert_eq!(f.store.claim(request).await.unwrap(), []);
}

/// Who asks again may do so before the first request was looked at: both wait for the same answer of the store.
async fn own_l17_a_claim_that_waits_beside_its_repetition_is_granted_once(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue_many(&task, "r", 9).await;
    let now = f.now().await;
    let beside = (0..500).map(|n| {
        let moment = Moment { now, stamp: draw() };
        rules::enqueue(&task, Wanted::now(run_id(&format!("s{n}")), now), moment).into()
    });
    let first = claim_request(A, 3);
    let again = ClaimRequest { repeat: true, ..first.clone() };
    let (queued, first, second, third) = tokio::join!(
        f.store.commit(beside.collect()),
        f.store.claim(first),
        f.store.claim(again.clone()),
        f.store.claim(again),
    );
    assert!(queued.unwrap().iter().all(Result::is_ok));
    let sorted = |runs: Vec<Run>| {
        let mut names: Vec<String> = runs.into_iter().map(|run| run.run_id.to_string()).collect();
        names.sort_unstable();
        names
    };
    let granted = sorted(first.unwrap());
    assert_eq!(granted.len(), 3);
    assert_eq!((sorted(second.unwrap()), sorted(third.unwrap())), (granted.clone(), granted));
    assert_eq!(f.counts(None).await.get(&RunStatus::Claimed), Some(&3), "nobody was granted more");
    f.sound().await;
}

async fn own_l17_a_repeated_claim_answers_all_that_was_granted(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    f.queue_many(&task, "r", 5).await;
    let first = claim_request(A, 3);
    assert_eq!(f.store.claim(first.clone()).await.unwrap().len(), 3);
    // There is less room meanwhile: what was granted is granted.
    let again = ClaimRequest { repeat: true, limit: 2, ..first };
    assert_eq!(f.store.claim(again).await.unwrap().len(), 3);
}

async fn own_l17_another_request_of_the_same_instance_gets_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let mut request = claim_request(A, 1);
    f.store.claim(request.clone()).await.unwrap();
    request.repeat = true;
    let (mine, nonce) = (request.instance, request.nonce);
    request.nonce = draw();
    assert_eq!(f.store.claim(request.clone()).await.unwrap(), [], "another nonce is another request");
    request.nonce = nonce;
    request.instance = InstanceId::from_bits(B);
    assert_ne!(request.instance, mine);
    assert_eq!(f.store.claim(request).await.unwrap(), [], "so is the same nonce of another instance");
}

async fn own_l20_two_who_declare_a_run_lost_make_one_transition(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(LEASE + GRACE);
    let mut writes = Vec::new();
    for _ in 0..2 {
        writes.push(rules::sweep(&running, GRACE, f.moment().await).unwrap());
    }
    let second = writes.pop().unwrap();
    let after = f.apply(writes.pop().unwrap()).await;
    assert!(matches!(f.refuses(second).await, Refusal::StaleRun { .. }));
    assert_eq!((after.status, after.lost_token), (RunStatus::Queued, running.token()));
}

async fn own_l21_a_sweep_that_was_decided_before_a_renewal_is_not_made_after_it(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(LEASE + GRACE);
    let sweep = rules::sweep(&running, GRACE, f.moment().await).unwrap();
    assert!(matches!(f.renew(&running, LEASE).await, Renewal::Renewed { .. }));
    let refusal = f.refuses(sweep).await;
    assert!(matches!(refusal, Refusal::StaleRun { status: RunStatus::Running, .. }), "{refusal}");
    assert_eq!(f.finish(&running, done("x")).await.status, RunStatus::Completed);
}

async fn own_l22_a_sweep_that_was_decided_before_the_outcome_is_stale(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(LEASE + GRACE);
    let sweep = rules::sweep(&running, GRACE, f.moment().await).unwrap();
    f.finish(&running, done("x")).await;
    let refusal = f.refuses(sweep).await;
    assert!(matches!(refusal, Refusal::StaleRun { status: RunStatus::Completed, .. }), "{refusal}");
}

async fn own_s2_3_a_lost_run_is_given_back_to_its_proven_owner(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.later(LEASE + GRACE);
    let lost = f.sweep(&first).await.unwrap();
    let owner = InstanceId::from_bits(A);
    let back = rules::reinstate(&lost, token(&first), owner, draw(), LEASE, f.moment().await).unwrap();
    let back = f.apply(back).await;
    assert_eq!((back.status, back.attempt), (RunStatus::Running, first.attempt), "the same attempt goes on");
    assert!(back.fence > first.fence);
    assert_eq!(f.claim(B, 1).await, [], "it no longer waits");
    assert_eq!(f.finish(&back, done("x")).await.status, RunStatus::Completed);
    f.sound().await;
}

async fn own_s2_4_a_lost_run_that_somebody_else_was_granted_is_not_given_back(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.later(LEASE + GRACE);
    let lost = f.sweep(&first).await.unwrap();
    let owner = InstanceId::from_bits(A);
    let back = rules::reinstate(&lost, token(&first), owner, draw(), LEASE, f.moment().await).unwrap();
    let second = f.claim_one(B).await;
    assert_eq!(second.lost_token, None);
    let refusal = f.refuses(back).await;
    assert!(matches!(refusal, Refusal::StaleRun { status: RunStatus::Claimed, .. }), "{refusal}");
}

async fn own_x9_a_cancelled_run_of_a_dead_owner_is_cancelled_not_lost(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.cancel(&running, CancelMode::Cooperative).await;
    f.later(LEASE + GRACE);
    assert_eq!(f.sweep(&running).await.unwrap().status, RunStatus::Cancelled);
}

async fn own_p5_no_observer_sees_a_run_without_a_lease_and_an_outcome(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let id = running.run_id.clone();
    let end = vec![f.end_of(&running, done("x")).await.into()];
    let observe = || async {
        let run = f.store.run(&id).await.unwrap().unwrap();
        assert!(run.lease.is_some() != run.status.is_terminal(), "{} with lease {:?}", run.status, run.lease);
    };
    futures_util::join!(
        observe(),
        observe(),
        async { assert!(f.store.commit(end).await.unwrap()[0].is_ok()) },
        observe()
    );
    observe().await;
}

async fn a_renewal_tells_of_a_cancel(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let asked = f.cancel(&running, CancelMode::Cooperative).await;
    let Renewal::Renewed { cancel, .. } = f.renew(&running, LEASE).await else {
        panic!("a cooperative cancel leaves the lease")
    };
    assert_eq!(cancel, asked.cancel);
    assert_eq!(cancel.unwrap().reason, ask(CancelMode::Cooperative).reason);
}

async fn a_renewal_of_a_run_that_has_ended_is_fenced(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let ended = f.finish(&running, done("x")).await;
    let fenced = Renewal::Fenced { fence: ended.fence, status: RunStatus::Completed };
    assert_eq!(f.renew(&running, LEASE).await, fenced);
    assert_eq!(f.read(&ended.run_id).await, ended);
}

async fn a_renewal_of_a_run_that_does_not_exist_says_so(f: Fixture) {
    let any = Token { fence: 1, nonce: 1 };
    assert_eq!(f.renew_as(&run_id("none"), any, LEASE).await, Renewal::Gone);
}

async fn renewals_of_one_call_are_answered_in_order(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for name in ["one", "two"] {
        f.queue(&task, name).await;
    }
    let held = f.claim(A, 2).await;
    let wrong = Token { fence: 9, nonce: 9 };
    let leases = vec![
        (held[1].run_id.clone(), token(&held[1])),
        (run_id("none"), wrong),
        (held[0].run_id.clone(), wrong),
        (held[0].run_id.clone(), token(&held[0])),
    ];
    let request = RenewRequest { instance: InstanceId::from_bits(A), leases, lease: LEASE };
    let answers = f.store.renew(request).await.unwrap();
    let expires_at = f.now().await.plus(LEASE);
    let renewed = Renewal::Renewed { expires_at, cancel: None };
    let fenced = Renewal::Fenced { fence: 1, status: RunStatus::Claimed };
    assert_eq!(answers, [renewed.clone(), Renewal::Gone, fenced, renewed]);
}

async fn a_renewal_raises_no_version_and_tells_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    let told = f.told(&claimed).await;
    f.later(Duration::from_secs(1));
    f.renew(&claimed, LEASE).await;
    assert_eq!(f.read(&claimed.run_id).await.version, claimed.version);
    assert_eq!(f.told(&claimed).await, told);
    // What was decided before the renewal still holds.
    f.start(&claimed).await;
}

async fn field_g16_expiry_is_judged_by_the_clock_of_the_store(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    let lease = claimed.lease.unwrap();
    assert_eq!(claimed.claimed_at, Some(f.now().await), "stamped by the store");
    assert_eq!(lease.expires_at, f.now().await.plus(LEASE), "counted from the store's clock");
    f.later(LEASE - Duration::from_millis(1));
    assert_eq!(rules::verdict(&lease, f.now().await, GRACE), Verdict::Held(Duration::from_millis(1)));
    assert_eq!(f.store.due_runs(None, 10).await.unwrap(), []);
    f.later(Duration::from_millis(1));
    assert_eq!(f.store.due_runs(None, 10).await.unwrap().len(), 1);
}

async fn field_l30_a_run_that_is_due_late_is_granted_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let six_hours = Duration::from_secs(6 * 3600);
    f.queue_later(&task, "r", six_hours).await;
    let mut granted = 0;
    for _ in 0..=6 * 60 {
        let claimed = f.claim(A, 10).await;
        granted += claimed.len();
        for run in claimed {
            let running = f.start(&run).await;
            f.finish(&running, done("x")).await;
        }
        f.later(Duration::from_secs(60));
    }
    assert_eq!(granted, 1);
}
