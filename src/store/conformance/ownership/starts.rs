//! Group U: starting once. And what a start is refused for.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::outcomes::{HOUR, KEPT};
use super::*;
use crate::error::Error;
use crate::model::{RunSpec, TaskId, TaskSpec, Token};
use crate::ownership::{Declared, IdempotencyKey, Registered};
use crate::rules::{self, Grant};
use crate::store::conformance::list;
use crate::store::{Decision, RefusedKind, RunFilter, StoreError, TaskChange, TaskWrite};

list! {
    own_u1_one_key_on_two_replicas_makes_one_run,
    own_u1_a_call_that_is_repeated_late_is_told_the_run_that_runs_now,
    own_u2_the_same_key_with_another_input_is_a_conflict,
    own_u3_a_hundred_starts_have_a_hundred_ids,
    own_u4_two_replicas_never_give_out_the_same_id,
    own_u5_the_store_lists_what_a_host_forgot,
    own_u6_a_lost_task_is_superseded_once,
    own_s6_7_a_start_that_saw_an_earlier_session_is_refused,
    own_f2_a_session_that_cannot_be_read_is_an_error,
    own_f2_a_task_that_cannot_be_read_is_named_and_the_others_are_shown,
    own_v5_what_a_newer_version_wrote_is_kept,
    own_v5_a_state_that_is_not_known_here_is_shown_as_such_and_not_lost,
    own_v9_a_replica_that_was_told_otherwise_hears_of_it,
    what_is_shown_may_be_any_number,
    what_cannot_be_taken_is_named,
}

fn keyed(digest: u64) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key: "turn-1/call-1".into(), digest })
}

async fn own_u1_one_key_on_two_replicas_makes_one_run(f: Fixture) {
    let o = Own::on(f);
    let requests =
        [(A, 1), (B, 2)].map(|(who, task)| Acquire { idempotency: keyed(1), ..o.ask(who, key(task)) });
    let answers = tokio::join!(o.own.acquire(&requests[0]), o.peer.acquire(&requests[1]));
    let answers = [answers.0.unwrap(), answers.1.unwrap()];
    let won: Vec<&Held> = answers
        .iter()
        .filter_map(|answer| match answer {
            Acquired::Acquired(held) => Some(held),
            _ => None,
        })
        .collect();
    let [won] = won[..] else { panic!("{answers:?}") };
    let handle = |answer: &&Acquired| matches!(answer, Acquired::Held { key, .. } if *key == won.key);
    assert_eq!(answers.iter().filter(handle).count(), 1, "{answers:?}");
    assert_eq!(o.f.list(RunFilter::default()).await.len(), 1);
}

async fn own_u1_a_call_that_is_repeated_late_is_told_the_run_that_runs_now(f: Fixture) {
    let o = Own::on(f);
    let call = Acquire { idempotency: keyed(1), ..o.ask(A, key(1)) };
    let first = granted(o.acquire(&call).await);
    o.publish(&first, "found").await;
    o.own.ack(&key(1), 1, "chat").await.unwrap();
    let again = Acquire { request_id: "again".into(), ..call };
    let seen = |answer| match answer {
        Acquired::Conflict { actual } => actual,
        other => panic!("{other:?}"),
    };
    assert!(seen(o.acquire(&again).await).acknowledged, "its conversation has had it");
    granted(o.again(B, 1, Expected::TerminalRun(1)).await);
    let actual = seen(o.acquire(&again).await);
    assert_eq!((actual.run, word(&actual.state)), (2, "running"));
}

async fn own_u2_the_same_key_with_another_input_is_a_conflict(f: Fixture) {
    let o = Own::on(f);
    granted(o.acquire(&Acquire { idempotency: keyed(1), ..o.ask(A, key(1)) }).await);
    let answer = o.acquire(&Acquire { idempotency: keyed(2), ..o.ask(B, key(2)) }).await;
    assert_eq!(answer, Acquired::IdempotencyConflict { key: key(1) });
    // In another session the key is another.
    let other = session("other").task(1);
    granted(o.acquire(&Acquire { idempotency: keyed(2), ..o.ask(A, other) }).await);
}

async fn own_u3_a_hundred_starts_have_a_hundred_ids(f: Fixture) {
    let o = Own::on(f);
    let s = session("s");
    let start = |n: u128| {
        let (o, s) = (&o, &s);
        async move {
            let own = if n.is_multiple_of(2) { &o.own } else { &o.peer };
            let task = own.next_task_id(s).await.unwrap();
            granted(own.acquire(&o.ask(n, s.task(task))).await.unwrap())
        }
    };
    let held = join_all((1..=100).map(start)).await;
    let ids: BTreeSet<u64> = held.iter().map(|held| held.key.task).collect();
    assert_eq!(ids.len(), 100, "of an answer that was lost a number may be left over");
    assert_eq!(o.own.inspect_session(&s).await.unwrap().tasks.len(), 100);
}

async fn own_u4_two_replicas_never_give_out_the_same_id(f: Fixture) {
    let o = Own::on(f);
    let s = session("s");
    let ids =
        join_all((0..20).map(|n| if n % 2 == 0 { o.own.next_task_id(&s) } else { o.peer.next_task_id(&s) }));
    let ids: BTreeSet<u64> = ids.await.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 20, "of an answer that was lost a number may be left over");
    let last = ids.last().copied().unwrap();
    // What was given out and has not begun is neither lost nor expired.
    assert_eq!(word(&o.state(7).await), "unknown");
    o.start(A, 7).await;
    o.start(A, last + 20).await;
    assert!(o.own.next_task_id(&s).await.unwrap() > last + 20, "a number that a host chose is not given out");
    o.start(A, last + 10).await;
}

async fn own_u5_the_store_lists_what_a_host_forgot(f: Fixture) {
    let o = Own::on(f);
    let ask = Acquire {
        agent: Some("researcher".into()),
        description: Some("the sources".into()),
        ..o.ask(A, key(1))
    };
    granted(o.acquire(&ask).await);
    let [task] = &o.peer.inspect_session(&session("s")).await.unwrap().tasks[..] else { panic!("one task") };
    assert_eq!(
        (task.agent.as_deref(), task.description.as_deref()),
        (Some("researcher"), Some("the sources"))
    );
}

async fn own_u6_a_lost_task_is_superseded_once(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let early = o.acquire(&Acquire { supersedes: Some(1), ..o.ask(B, key(2)) }).await;
    assert!(matches!(&early, Acquired::Conflict { actual } if actual.key == key(1)), "it runs: {early:?}");
    assert_eq!(word(&o.state(2).await), "unknown", "nothing was begun");
    o.lose(&held).await;
    let requests = [2, 3].map(|task| Acquire { supersedes: Some(1), ..o.ask(B, key(task)) });
    let answers = tokio::join!(o.own.acquire(&requests[0]), o.peer.acquire(&requests[1]));
    let answers = [answers.0.unwrap(), answers.1.unwrap()];
    let won = answers.iter().filter(|answer| matches!(answer, Acquired::Acquired(_))).count();
    assert_eq!(won, 1, "{answers:?}");
    assert!(matches!(o.reinstate(&held).await, Regranted::Fenced { .. }), "its owner was fenced first");
    let none = o.acquire(&Acquire { supersedes: Some(9), ..o.ask(B, key(10)) }).await;
    assert!(matches!(&none, Acquired::Conflict { actual } if actual.state == TaskState::Unknown), "{none:?}");
}

async fn own_s6_7_a_start_that_saw_an_earlier_session_is_refused(f: Fixture) {
    use crate::ownership::Release;

    let o = Own::on(f);
    let s = session("s");
    let held = o.start(A, 1).await;
    let seen = Some(o.own.revision(&s).await.unwrap());
    let given_out = o.own.next_task_id(&s).await.unwrap();
    o.publish(&held, "found").await;
    o.own.release_session(&s, Release::Refuse).await.unwrap();
    let now = o.own.revision(&s).await.unwrap();
    let refused = o.acquire(&Acquire { revision: seen, ..o.ask(B, key(5)) }).await;
    assert_eq!(refused, Acquired::SessionReleased { revision: now });
    let late = o.acquire(&o.ask(B, key(given_out))).await;
    assert_eq!(late, Acquired::SessionReleased { revision: now }, "its number was given out before");
    assert_eq!(word(&o.state(given_out).await), "unknown");
    granted(o.acquire(&Acquire { revision: Some(now), ..o.ask(B, key(5)) }).await);
    // And who saw no session finds one.
    let none = o.acquire(&Acquire { revision: Some(0), ..o.ask(B, key(6)) }).await;
    assert_eq!(none, Acquired::SessionReleased { revision: now });
}

async fn own_f2_a_session_that_cannot_be_read_is_an_error(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let id: TaskId = session("s").id().unwrap();
    let (task, _) = o.f.store.task(&id).await.unwrap().expect("a session");
    let mut broken = task.clone();
    broken.revision += 1;
    let metadata = TaskSpec::parse(r#"{ "task_id": "t", "agent_id": "a", "query": "q" }"#).unwrap().metadata;
    broken.spec.metadata = metadata;
    let change = TaskChange::Put(Box::new(broken));
    let write = TaskWrite { task_id: id, expect: Some(task.revision), change, events: Vec::new() };
    o.f.commit(Decision { task: Some(write), ..Decision::default() }).await.unwrap();
    let error =
        o.own.inspect(&key(1)).await.expect_err("nothing is known of it, least of all that it is lost");
    assert!(matches!(error, Error::Store(_)), "{error}");
    granted(o.acquire(&o.ask(A, session("another").task(1))).await);
    o.own.reap(Default::default()).await.expect("others are looked after");
}

/// Writes more into the record of the session.
async fn add(o: &Own, more: serde_json::Value) {
    let id: TaskId = session("s").id().unwrap();
    let (task, _) = o.f.store.task(&id).await.unwrap().expect("a session");
    let mut next = task.clone();
    let mut record: serde_json::Value = serde_json::from_str(task.spec.metadata.as_json()).unwrap();
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    next.spec.metadata = crate::model::Metadata::new(serde_json::value::to_raw_value(&record).unwrap());
    next.revision += 1;
    let change = TaskChange::Put(Box::new(next));
    let write = TaskWrite { task_id: id, expect: Some(task.revision), change, events: Vec::new() };
    o.f.commit(Decision { task: Some(write), ..Decision::default() }).await.unwrap();
}

async fn own_v5_what_a_newer_version_wrote_is_kept(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    add(&o, serde_json::json!({ "colour": { "of": ["the", 7.5] } })).await;
    o.start(A, 2).await;
    let (task, _) = o.f.store.task(&session("s").id().unwrap()).await.unwrap().expect("a session");
    let record: serde_json::Value = serde_json::from_str(task.spec.metadata.as_json()).unwrap();
    assert_eq!(record["colour"], serde_json::json!({ "of": ["the", 7.5] }));
    // What needs a newer version to be written is still read, and its owners still say what becomes of it.
    add(&o, serde_json::json!({ "format": 1000 })).await;
    let newer = |error: Error| {
        let kind = RefusedKind::NewerSchema;
        assert!(matches!(error, Error::Store(StoreError::Refused { kind: of, .. }) if of == kind));
    };
    newer(o.own.acquire(&o.ask(B, key(3))).await.expect_err("a newer session"));
    newer(o.own.next_task_id(&session("s")).await.expect_err("a newer session"));
    assert_eq!(word(&o.state(2).await), "running");
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    assert_eq!(text(&o.finished(1).await), "found");
    // Nor does it keep what others own.
    let other = granted(o.acquire(&o.ask(A, session("t").task(1))).await);
    o.publish(&other, "found").await;
    o.f.later(1000 * HOUR);
    assert_eq!(o.own.reap(KEPT).await.unwrap().tasks, 1, "another session is looked after");
    assert_eq!(text(&o.finished(1).await), "found", "and this one left as it is");
}

async fn own_f2_a_task_that_cannot_be_read_is_named_and_the_others_are_shown(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let held = o.start(A, 2).await;
    // A run of the session whose record says nothing of what it is.
    let sound = o.f.read(&held.key.run_id(1).unwrap()).await;
    let spec = RunSpec { metadata: Default::default(), ..RunSpec::clone(&sound.spec) };
    let (run_id, token) = (key(3).run_id(1).unwrap(), Token { fence: 1, nonce: draw() });
    let grant = Grant { run_id, spec, owner: owner(A), token, lease: TTL.duration() };
    o.f.apply(rules::grant(grant, o.f.moment().await)).await;
    add(&o, serde_json::json!({ "next_task": 4, "tasks": { "1": 1, "2": 1, "3": 1 } })).await;
    assert_eq!(o.publish(&held, "found").await, Published::Committed);
    for later in [Duration::ZERO, TTL.duration() + GRACE] {
        o.f.later(later);
        let state = o.state(3).await;
        let TaskState::Unreadable { why } = &state else { panic!("{state:?}") };
        assert!(why.contains("owned.test.researcher.s.3.1"), "{why}");
        let seen = o.own.inspect_session(&session("s")).await.unwrap().tasks;
        let words: Vec<_> = seen.iter().map(|task| (task.key.task, word(&task.state))).collect();
        let first = if later.is_zero() { "running" } else { "suspect" };
        assert_eq!(
            words,
            [(1, first), (2, "completed"), (3, "unreadable")],
            "and nobody says that it is lost"
        );
    }
}

async fn own_v5_a_state_that_is_not_known_here_is_shown_as_such_and_not_lost(f: Fixture) {
    let o = Own::on(f);
    let held = o.start(A, 1).await;
    let run_id = held.key.run_id(1).unwrap();
    // What nobody who owns a run does in this version: it waits, and nobody holds it.
    let run = o.f.read(&run_id).await;
    let waits = rules::Outcome::AwaitingApproval { question: "go on?".into(), data: serde_json::json!({}) };
    let waits = o.f.finish(&run, waits).await;
    assert_eq!((waits.status, waits.lease), (RunStatus::AwaitingApproval, None));
    o.f.later(1000 * HOUR);
    let state = o.state(1).await;
    let TaskState::Unreadable { why } = &state else { panic!("{state:?}") };
    assert!(why.contains("awaiting_approval"), "{why}");
    assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
    assert!(matches!(o.publish(&held, "late").await, Published::Fenced { .. }));
    assert_eq!(o.f.read(&run_id).await, waits, "and it is left as it is");
}

async fn what_cannot_be_taken_is_named(f: Fixture) {
    let o = Own::on(f);
    let ask = o.ask(A, key(1));
    let long: std::sync::Arc<str> = "x".repeat(2000).into();
    for (field, request) in [
        ("task", Acquire { key: key(0), ..ask.clone() }),
        ("task", Acquire { key: key(u64::MAX), ..ask.clone() }),
        ("ttl", Acquire { ttl: Seconds::default(), ..ask.clone() }),
        ("ttl", Acquire { ttl: Seconds::MAX, ..ask.clone() }),
        ("request_id", Acquire { request_id: "".into(), ..ask.clone() }),
        ("request_id", Acquire { request_id: long.clone(), ..ask.clone() }),
        ("description", Acquire { description: Some(long.clone()), ..ask.clone() }),
        (
            "idempotency.key",
            Acquire { idempotency: Some(IdempotencyKey { key: long, digest: 0 }), ..ask.clone() },
        ),
        ("supersedes", Acquire { supersedes: Some(1), ..ask.clone() }),
    ] {
        match o.own.acquire(&request).await {
            Err(Error::Invalid(invalid)) => assert_eq!(invalid.problems[0].field, field, "{invalid}"),
            other => panic!("{field}: {other:?}"),
        }
    }
    let held = o.start(A, 1).await;
    let nameless = Outcome { error: None, ..Outcome::failed("exception", "x") };
    assert!(matches!(o.own.publish(&held, nameless).await, Err(Error::Invalid(_))));
    assert!(matches!(o.own.ack(&key(1), 1, "a b").await, Err(Error::Invalid(_))));
}

async fn own_v9_a_replica_that_was_told_otherwise_hears_of_it(f: Fixture) {
    let o = Own::on(f);
    let told = Declared { namespace: "test".into(), source: "assistant".into(), lease: TTL, grace: TTL };
    let first = tokio::join!(o.own.register("web", &told, false), o.peer.register("web", &told, false));
    let answers = [first.0.unwrap(), first.1.unwrap()];
    let both = answers.contains(&Registered::First) && answers.contains(&Registered::Same);
    assert!(both, "one says what it is: {answers:?}");
    for (field, other) in [
        ("namespace", Declared { namespace: "staging".into(), ..told.clone() }),
        ("source", Declared { source: "other".into(), ..told.clone() }),
        ("lease", Declared { lease: Seconds::new(1), ..told.clone() }),
        ("grace", Declared { grace: Seconds::new(1), ..told.clone() }),
    ] {
        let answer = o.peer.register("web", &other, false).await.unwrap();
        assert_eq!(answer, Registered::Mismatch { before: told.clone(), fields: vec![field.into()] });
    }
    let longer = Declared { lease: Seconds::new(60), ..told.clone() };
    // Another host on the same store is none of its replicas.
    assert_eq!(o.own.register("worker", &longer, false).await.unwrap(), Registered::First);
    assert_eq!(o.own.register("web", &longer, true).await.unwrap(), Registered::Replaced);
    assert_eq!(o.peer.register("web", &longer, false).await.unwrap(), Registered::Same);
    let late = o.peer.register("web", &told, false).await.unwrap();
    assert!(matches!(late, Registered::Mismatch { .. }), "{late:?}");
    // It is no session, and nobody takes it for one.
    o.own.reap(Default::default()).await.unwrap();
    assert_eq!(o.own.register("web", &longer, false).await.unwrap(), Registered::Same);
    assert!(matches!(o.own.register("", &told, false).await, Err(Error::Invalid(_))));
}

async fn what_is_shown_may_be_any_number(f: Fixture) {
    let o = Own::on(f);
    o.start(A, 1).await;
    let most = Token { fence: u64::MAX, nonce: u64::MAX };
    for (task, run) in [(1, 1), (1, u32::MAX), (u64::MAX, 1), (0, 0)] {
        let held = Held { key: key(task), run, token: most };
        assert!(!matches!(o.renew(&held).await, Renewed::Renewed { .. }));
        assert!(matches!(o.publish(&held, "x").await, Published::Fenced { .. }));
        assert!(matches!(o.reinstate(&held).await, Regranted::Fenced { .. }));
        let handed = o.own.hand_over(&held, owner(B), TTL).await.unwrap();
        assert!(matches!(handed, Regranted::Fenced { .. }));
        assert!(matches!(o.declare(&held).await, DeclaredLost::Changed { .. }));
        o.own.ack(&held.key, run, "chat").await.unwrap();
    }
    let odd = Acquire { revision: Some(u64::MAX), idempotency: keyed(u64::MAX), ..o.ask(A, key(2)) };
    assert!(matches!(o.acquire(&odd).await, Acquired::SessionReleased { .. }));
    let keyed = Acquire { idempotency: keyed(u64::MAX), ..o.ask(A, key(2)) };
    let held = granted(o.acquire(&keyed).await);
    assert_eq!(granted(o.acquire(&keyed).await), held, "a digest is kept bit for bit");
    for supersedes in [u64::MAX, 0] {
        let answer = o.acquire(&Acquire { supersedes: Some(supersedes), ..o.ask(A, key(3)) }).await;
        assert!(matches!(answer, Acquired::Conflict { .. }), "{answer:?}");
    }
    assert_eq!(word(&o.state(1).await), "running");
    o.f.sound().await;
}
