//! Group S: the seven scenarios of a host with several replicas.

use futures_util::future::join_all;

use super::*;
use crate::model::Payload;
use crate::ownership::{IdempotencyKey, Inspection, Release, Released};
use crate::store::conformance::list;

list! {
    own_s1_1_a_task_that_runs_elsewhere_is_running,
    own_s1_2_the_same_work_is_not_started_twice,
    own_s1_3_looking_writes_nothing,
    own_s2_1_an_outcome_is_everybodys_without_a_turn,
    own_s2_3_a_lost_task_that_finishes_is_recovered,
    own_s2_4_a_superseded_outcome_is_kept_as_history_only,
    own_s4_1_another_replica_continues_from_the_snapshot,
    own_s4_3_of_two_who_continue_one_does,
    own_s4_4_what_runs_is_not_continued,
    own_s4_5_a_delayed_outcome_of_an_earlier_run_touches_nothing,
    own_s4_6_a_task_that_is_continued_is_never_lost,
    own_s5_1_an_owner_is_suspect_before_it_is_lost,
    own_s5_2_a_restarted_owner_is_another,
    own_s6_1_a_released_session_stops_all_it_runs,
    own_s6_2_an_owner_hears_of_a_release_by_renewing,
    own_s6_3_a_release_cancels_what_a_dead_owner_left,
    own_s6_4_a_new_session_of_the_same_name_is_another,
    own_s6_4_a_release_that_waits_spares_what_began_after_it,
    own_s6_5_every_task_hears_of_a_cancelled_session,
    own_s6_6_releasing_again_changes_nothing,
    own_s6_7_a_start_and_a_release_that_meet_leave_nothing_behind,
    own_s6_9_work_that_ignores_a_release_loses_its_authority,
    own_s6_10_a_release_that_must_not_cancel_is_refused,
    own_s7_5_a_session_is_listed_as_it_is,
    own_s7_5_a_listing_holds_so_many_bytes_of_outcomes,
}

async fn own_s1_1_a_task_that_runs_elsewhere_is_running(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(20 * SECOND);
    let inspection = o.own.inspect(&key(1)).await.unwrap();
    assert_eq!((inspection.run, word(&inspection.state)), (1, "running"));
    let TaskState::Running { owner: who, fence, ttl_left, cancel: None } = inspection.state else {
        panic!("running, and nobody wants it cancelled");
    };
    assert_eq!((who, fence, ttl_left), (owner(A), held.token.fence, Seconds::new(10)));
}

async fn own_s1_2_the_same_work_is_not_started_twice(f: Fixture) {
    let o = Own::on(f);
    let idempotency = Some(IdempotencyKey { key: "turn-3/call-1".into(), digest: 5 });
    let first = Acquire { idempotency: idempotency.clone(), ..o.ask(A, key(1)) };
    granted(o.acquire(&first).await);
    let second = Acquire { idempotency, ..o.ask(B, key(2)) };
    let answer = o.acquire(&second).await;
    assert!(
        matches!(&answer, Acquired::Held { key: held, owner: who, run: 1, .. }
        if *held == key(1) && *who == owner(A)),
        "{answer:?}"
    );
    assert_eq!(word(&o.state(2).await), "unknown", "one child run exists");
}

async fn own_s1_3_looking_writes_nothing(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let run = o.f.read(&key(1).run_id(1).unwrap()).await;
    let told = o.f.events(Subject::All).await.len();
    for _ in 0..100 {
        o.own.inspect_session(&session("s")).await.unwrap();
        o.own.inspect(&key(1)).await.unwrap();
    }
    assert_eq!(o.f.read(&run.run_id).await, run);
    assert_eq!(o.f.events(Subject::All).await.len(), told);
}

async fn own_s2_1_an_outcome_is_everybodys_without_a_turn(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    // And S2.2: whoever looks, and however often, sees the same.
    for _ in 0..2 {
        let finished = o.finished(1).await;
        assert_eq!((text(&finished).as_str(), finished.recovered), ("found", false));
    }
}

async fn own_s2_3_a_lost_task_that_finishes_is_recovered(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.lose(&held).await;
    let fenced = o.publish(&held, "found").await;
    assert!(matches!(&fenced, Published::Fenced { state } if word(&state.state) == "lost"), "{fenced:?}");
    let Regranted::Acquired(again) = o.reinstate(&held).await else { panic!("nobody succeeded it") };
    assert_eq!(again.run, held.run);
    assert!(again.token.fence > held.token.fence && again.token.nonce != held.token.nonce);
    assert_eq!(o.publish(&again, "found").await, Published::Committed);
    let finished = o.finished(1).await;
    assert_eq!((text(&finished).as_str(), finished.recovered), ("found", true));
    let told = o.f.events(Subject::Run(key(1).run_id(1).unwrap())).await;
    let told: Vec<EventKind> = told.iter().map(|event| event.event).collect();
    let expected = [EventKind::Started, EventKind::Lost, EventKind::Reinstated, EventKind::Completed];
    assert_eq!(told, expected);
}

async fn own_s2_4_a_superseded_outcome_is_kept_as_history_only(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.lose(&held).await;
    let successor = granted(o.acquire(&Acquire { supersedes: Some(1), ..o.ask(B, key(2)) }).await);
    for _ in 0..2 {
        assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
        assert!(matches!(o.reinstate(&held).await, Regranted::Fenced { .. }));
    }
    let TaskState::Lost { last_owner, superseded_by, .. } = o.state(1).await else { panic!("still lost") };
    assert_eq!((last_owner, superseded_by), (Some(owner(A)), Some(2)));
    let [refused] = &o.refused().await[..] else { panic!("told once") };
    assert_eq!(refused.data["outcome"]["result_preview"], "late");
    assert_eq!(o.publish(&successor, "found").await, Published::Committed);
    assert_eq!(text(&o.finished(2).await), "found");
}

async fn own_s4_1_another_replica_continues_from_the_snapshot(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let outcome = Outcome::completed("found").with_snapshot(Payload::text("{\"turns\":1}"));
    assert_eq!(o.own.publish(&held, outcome).await.unwrap(), Published::Committed);
    let finished = o.finished(1).await;
    assert_eq!(text(&finished), "found");
    assert_eq!(finished.snapshot, Some(Payload::text("{\"turns\":1}")));
    let next = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    assert_eq!(next.run, 2);
    assert!(next.token.fence > held.token.fence);
    assert!(matches!(o.state(1).await, TaskState::Running { owner: who, .. } if who == owner(B)));
}

async fn own_s4_3_of_two_who_continue_one_does(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.publish(&held, "found").await;
    let requests = [A, B].map(|who| Acquire { expect: Expected::TerminalRun(1), ..o.ask(who, key(1)) });
    let answers = tokio::join!(o.own.acquire(&requests[0]), o.peer.acquire(&requests[1]));
    let answers = [answers.0.unwrap(), answers.1.unwrap()];
    let won = answers.iter().filter(|answer| matches!(answer, Acquired::Acquired(held) if held.run == 2));
    let lost = answers.iter().filter(|answer| {
        matches!(answer, Acquired::Conflict { actual } if actual.run == 2 && word(&actual.state) == "running")
    });
    assert_eq!((won.count(), lost.count()), (1, 1), "{answers:?}");
}

async fn own_s4_4_what_runs_is_not_continued(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let before = o.own.inspect(&key(1)).await.unwrap();
    let answer = o.again(B, 1, Expected::TerminalRun(1)).await;
    assert!(matches!(&answer, Acquired::Conflict { actual } if *actual == before), "{answer:?}");
    assert_eq!(o.own.inspect(&key(1)).await.unwrap(), before);
}

async fn own_s4_5_a_delayed_outcome_of_an_earlier_run_touches_nothing(f: Fixture) {
    let o = Own::on(f);
    let first = o.start(A, 1).await;
    o.publish(&first, "found").await;
    let second = granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    o.cancel(CancelScope::Task(key(1)), CancelMode::Cooperative).await;
    let before = o.f.read(&key(1).run_id(2).unwrap()).await;
    assert!(matches!(o.publish(&first, "found").await, Published::Fenced { .. }));
    assert_eq!(o.f.read(&before.run_id).await, before, "lease, intent and outcome of the second run");
    assert_eq!(o.publish(&second, "more").await, Published::Committed);
}

async fn own_s4_6_a_task_that_is_continued_is_never_lost(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.publish(&held, "found").await;
    let continues = o.again(A, 1, Expected::TerminalRun(1));
    let looks = join_all((0..20).map(|_| o.own.inspect(&held.key)));
    let (continued, seen) = tokio::join!(continues, looks);
    granted(continued);
    for inspection in seen {
        let inspection = inspection.unwrap();
        let seen = (inspection.run, word(&inspection.state));
        assert!(matches!(seen, (1, "completed") | (2, "running")), "{seen:?}");
    }
}

async fn own_s5_1_an_owner_is_suspect_before_it_is_lost(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.f.later(TTL.duration() - SECOND);
    assert_eq!(word(&o.state(1).await), "running");
    o.f.later(SECOND);
    assert_eq!(word(&o.state(1).await), "suspect");
    assert_eq!(o.state(1).await.as_str(), "running", "shown as running");
    o.f.later(GRACE - SECOND);
    let changed = o.declare(&held).await;
    assert!(
        matches!(&changed, DeclaredLost::Changed { state } if word(&state.state) == "suspect"),
        "{changed:?}"
    );
    o.f.later(SECOND);
    assert!(matches!(o.declare(&held).await, DeclaredLost::Lost { .. }));
    let now = o.f.now().await;
    let TaskState::Lost { last_owner, since, superseded_by: None } = o.state(1).await else { panic!("lost") };
    assert_eq!((last_owner, since), (Some(owner(A)), Some(now)));
}

async fn own_s5_2_a_restarted_owner_is_another(f: Fixture) {
    let o = Own::on(f);
    let request = o.ask(A, key(1));
    granted(o.acquire(&request).await);
    // The same program on the same machine, started again.
    let again = Acquire { owner: owner(0xA1), ..request };
    let answer = o.acquire(&again).await;
    assert!(matches!(&answer, Acquired::Held { owner: who, .. } if *who == owner(A)), "{answer:?}");
}

async fn own_s6_1_a_released_session_stops_all_it_runs(f: Fixture) {
    let o = Own::on(f);
    let mut all = Vec::new();
    for task in 1..=3 {
        all.push(o.start(A, task).await);
    }
    let answer = o.cancel(CancelScope::Session(session("s")), CancelMode::Cooperative).await;
    assert_eq!(answer, CancelAnswer::Requested { runs: 3 });
    for held in &all {
        assert!(matches!(o.state(held.key.task).await, TaskState::Running { cancel: Some(_), .. }));
        assert_eq!(o.own.publish(held, Outcome::cancelled()).await.unwrap(), Published::Committed);
    }
    let wait = Seconds::default();
    let released = o.own.release_session(&session("s"), Release::Cancel { wait }).await.unwrap();
    assert!(matches!(released, Released::Released { still_running: 0, .. }), "{released:?}");
    for task in 1..=3 {
        assert_eq!(word(&o.state(task).await), "cancelled");
    }
}

async fn own_s6_2_an_owner_hears_of_a_release_by_renewing(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    o.cancel(CancelScope::Session(session("s")), CancelMode::Cooperative).await;
    let renewed = o.renew(&held).await;
    assert!(matches!(&renewed, Renewed::Renewed { cancel: Some(intent), .. } if &*intent.reason == "enough"));
}

async fn own_s6_3_a_release_cancels_what_a_dead_owner_left(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let lost = o.start(A, 2).await;
    o.lose(&lost).await;
    o.cancel(CancelScope::Session(session("s")), CancelMode::Cooperative).await;
    assert_eq!(word(&o.state(2).await), "cancelled", "nobody holds it");
    let declared = o.declare(&held).await;
    assert!(matches!(&declared, DeclaredLost::Changed { state } if word(&state.state) == "cancelled"));
    assert_eq!(word(&o.state(1).await), "cancelled", "and not lost");
}

async fn own_s6_4_a_new_session_of_the_same_name_is_another(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let wait = Seconds::default();
    o.own.release_session(&session("s"), Release::Cancel { wait }).await.unwrap();
    assert_eq!(word(&o.state(1).await), "cancelled");
    assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    let held = o.start(A, 2).await;
    o.f.later(20 * SECOND);
    assert!(matches!(o.renew(&held).await, Renewed::Renewed { cancel: None, .. }));
    o.f.later(20 * SECOND);
    assert_eq!(word(&o.state(2).await), "running", "the release was of what was before");
}

async fn own_s6_4_a_release_that_waits_spares_what_began_after_it(f: Fixture) {
    let o = Own::on(f);
    let (held, s) = (o.start(A, 1).await, session("s"));
    let before = o.own.revision(&s).await.unwrap();
    let wait = Seconds::new(5);
    let meanwhile = async {
        let mut watch = o.peer.watch();
        while !matches!(o.renew(&held).await, Renewed::Renewed { cancel: Some(_), .. }) {
            watch.changed().await;
        }
        // The release waits for the first task.
        let next = granted(o.peer.acquire(&o.ask(B, key(2))).await.unwrap());
        assert_eq!(o.peer.publish(&held, Outcome::cancelled()).await.unwrap(), Published::Committed);
        next
    };
    let (released, next) = tokio::join!(o.own.release_session(&s, Release::Cancel { wait }), meanwhile);
    assert_eq!(released.unwrap(), Released::Released { revision: before + 1, still_running: 0 });
    assert!(matches!(o.renew(&next).await, Renewed::Renewed { cancel: None, .. }));
    assert_eq!(word(&o.state(2).await), "running", "it began in the session that came after");
    let again = o.own.release_session(&s, Release::Cancel { wait: Seconds::default() }).await.unwrap();
    assert_eq!(again, Released::Released { revision: before + 2, still_running: 1 });
}

async fn own_s6_5_every_task_hears_of_a_cancelled_session(f: Fixture) {
    let o = Own::on(f);
    let mut all = Vec::new();
    for task in 1..=3 {
        all.push(o.start(A, task).await);
    }
    o.cancel(CancelScope::Session(session("s")), CancelMode::Cooperative).await;
    for _ in 0..2 {
        for renewed in o.own.renew(owner(A), &all, TTL).await.unwrap() {
            assert!(matches!(renewed, Renewed::Renewed { cancel: Some(_), .. }), "{renewed:?}");
        }
    }
}

async fn own_s6_6_releasing_again_changes_nothing(f: Fixture) {
    let o = Own::on(f);
    let release = Release::Cancel { wait: Seconds::default() };
    let unknown = o.own.release_session(&session("s"), release).await.unwrap();
    assert_eq!(unknown, Released::Released { revision: 0, still_running: 0 });
    o.start(A, 1).await;
    let first = o.own.release_session(&session("s"), release).await.unwrap();
    let Released::Released { revision, still_running: 1 } = first else { panic!("{first:?}") };
    let again = o.own.release_session(&session("s"), release).await.unwrap();
    assert_eq!(again, Released::Released { revision, still_running: 0 });
}

async fn own_s6_7_a_start_and_a_release_that_meet_leave_nothing_behind(f: Fixture) {
    let o = Own::on(f);
    let release = Release::Cancel { wait: Seconds::default() };
    for round in 1..=10 {
        let revision = match o.own.revision(&session("s")).await.unwrap() {
            0 => None,
            revision => Some(revision),
        };
        let start = Acquire { revision, ..o.ask(A, key(round)) };
        let s = session("s");
        // A first start makes the session: a release that comes before it finds none.
        let (started, released) = if revision.is_none() {
            let started = o.acquire(&start).await;
            (started, o.own.release_session(&s, release).await)
        } else {
            let (started, released) =
                tokio::join!(o.peer.acquire(&start), o.own.release_session(&s, release));
            (started.unwrap(), released)
        };
        assert!(matches!(released.unwrap(), Released::Released { .. }));
        match started {
            Acquired::SessionReleased { .. } => assert!(!o.state(round).await.is_live()),
            Acquired::Acquired(_) if round == 1 => assert_eq!(word(&o.state(round).await), "cancelled"),
            // It began before the release and was cancelled by it, or saw the session that the release left.
            Acquired::Acquired(held) => {
                let now = o.own.revision(&s).await.unwrap();
                let live = o.state(round).await.is_live();
                assert!(!live || revision == Some(now), "{held:?}: of an older revision, and it runs");
            }
            // It began, the answer to that was lost, and by the time it was asked for again the release had met it.
            Acquired::Conflict { actual } => {
                assert_eq!((&actual.key, actual.run, word(&actual.state)), (&key(round), 1, "cancelled"));
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn own_s6_9_work_that_ignores_a_release_loses_its_authority(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let wait = Seconds::default();
    let released = o.own.release_session(&session("s"), Release::Cancel { wait }).await.unwrap();
    assert!(matches!(released, Released::Released { still_running: 1, .. }), "{released:?}");
    assert!(matches!(o.renew(&held).await, Renewed::Fenced { status: RunStatus::Cancelled, .. }));
    assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    assert_eq!(word(&o.state(1).await), "cancelled");
}

async fn own_s6_10_a_release_that_must_not_cancel_is_refused(f: Fixture) {
    let o = Own::on(f);
    let (mine, other) = (o.start(A, 1).await, o.start(B, 2).await);
    let refused = o.own.release_session(&session("s"), Release::Refuse).await.unwrap();
    assert_eq!(refused, Released::Refused { running: 2 });
    let third = o.start(A, 3).await;
    for held in [mine, other, third] {
        o.publish(&held, "found").await;
    }
    let released = o.own.release_session(&session("s"), Release::Refuse).await.unwrap();
    assert!(matches!(released, Released::Released { still_running: 0, .. }), "{released:?}");
    assert!(is_completed(&o.finished(3).await));
}

async fn own_s7_5_a_session_is_listed_as_it_is(f: Fixture) {
    let o = Own::on(f);
    let (first, second) = (o.start(A, 1).await, o.start(B, 2).await);
    o.start(0xC, 3).await;
    granted(o.acquire(&o.ask(A, session("another").task(1))).await);
    o.publish(&first, "found").await;
    o.f.later(TTL.duration() + GRACE);
    o.declare(&second).await;
    let listed = o.own.inspect_session(&session("s")).await.unwrap();
    let words: Vec<_> =
        listed.tasks.iter().map(|task| (task.key.task, task.run, word(&task.state))).collect();
    assert_eq!(words, [(1, 1, "completed"), (2, 1, "lost"), (3, 1, "suspect")]);
    assert_eq!(o.own.inspect_session(&session("none")).await.unwrap().tasks, []);
}

async fn own_s7_5_a_listing_holds_so_many_bytes_of_outcomes(f: Fixture) {
    let o = Own::on(f);
    let large = "x".repeat(1 << 20);
    for task in 1..=10 {
        let held = o.start(A, task).await;
        assert_eq!(o.publish(&held, &large).await, Published::Committed);
    }
    let listed = o.own.inspect_session(&session("s")).await.unwrap();
    assert!(listed.tasks.iter().all(|task| word(&task.state) == "completed"), "all are listed");
    assert_eq!((listed.tasks.len(), listed.left_out), (10, vec![1, 2]), "those of the latest are shown");
    let shown = |task: &Inspection| task.state.finished().is_some_and(|finished| finished.result.is_some());
    assert!(listed.tasks.iter().all(|task| shown(task) == (task.key.task > 2)));
    let whole = o.finished(1).await.result.unwrap();
    assert_eq!(whole.bytes.len(), large.len(), "each can be asked for by itself");
}
