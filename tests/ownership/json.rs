//! What is asked and answered, as JSON: what the HTTP interface sends.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure::model::{CancelMode, InstanceId, Payload, RunStatus, Seconds, Timestamp, Token};
use tenure::ownership::{
    Acquire, Acquired, Cancel, CancelAnswer, CancelScope, Declared, DeclaredLost, Expected, Finished,
    Forgotten, Held, IdempotencyKey, Inspection, Outcome, Published, Registered, Regranted, Release,
    Released, Renewed, Retention, SessionInspection, SessionKey, TaskState, WithParent,
};

#[track_caller]
fn reads_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Value {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    serde_json::to_value(value).unwrap()
}

fn session() -> SessionKey {
    SessionKey::new("production", "assistant", "chat 7").unwrap()
}

fn owner() -> InstanceId {
    InstanceId::from_bits(0xA)
}

fn held() -> Held {
    Held { key: session().task(3), run: 2, token: Token { fence: 7, nonce: u64::MAX } }
}

fn seen(state: TaskState) -> Inspection {
    Inspection {
        key: session().task(3),
        run: 2,
        agent: Some("researcher".into()),
        description: None,
        acknowledged: true,
        state,
    }
}

fn finished() -> Finished {
    Finished {
        status: RunStatus::Completed,
        result: Some(Payload::text("found")),
        snapshot: Some(Payload { media_type: "x/y".into(), bytes: [0xFF, 0][..].into() }),
        blob: None,
        error: None,
        finished_at: Timestamp::from_ms(1_769_850_000_123),
        recovered: true,
        cancel_requested: false,
    }
}

#[test]
fn a_grant_shows_its_token_as_text() {
    let expected = json!({
        "namespace": "production", "source": "assistant", "session": "chat 7", "task": 3, "run": 2,
        "token": "7.ffffffffffffffff",
    });
    assert_eq!(reads_back(&held()), expected);
    for token in ["7", "7.", ".ff", "x.ff", "7.gg", "7.ff.ff"] {
        let mut grant = expected.clone();
        grant["token"] = token.into();
        assert!(serde_json::from_value::<Held>(grant).is_err(), "{token}");
    }
}

#[test]
fn a_request_needs_little() {
    let json = json!({
        "namespace": "n", "source": "s", "session": "c", "task": 1, "owner": owner(), "request_id": "r", "ttl": 30,
    });
    let request: Acquire = serde_json::from_value(json.clone()).unwrap();
    let key = SessionKey::new("n", "s", "c").unwrap().task(1);
    assert_eq!(request, Acquire::new(key, owner(), "r", Seconds::new(30)));
    let mut nameless = json;
    nameless["session"] = "".into();
    assert!(serde_json::from_value::<Acquire>(nameless).is_err(), "a key is checked where it is read");
    for expect in [Expected::NotExists, Expected::TerminalRun(1), Expected::LostRun(2)] {
        let idempotency = Some(IdempotencyKey { key: "k".into(), digest: 5 });
        reads_back(&Acquire {
            expect,
            idempotency,
            supersedes: Some(9),
            parent: Some(4),
            with_parent: WithParent::Abandon,
            revision: Some(0),
            ..request.clone()
        });
    }
}

#[test]
fn what_is_expected_is_a_word_or_names_a_run() {
    assert_eq!(reads_back(&Expected::NotExists), json!("not_exists"));
    assert_eq!(reads_back(&Expected::TerminalRun(3)), json!({ "terminal_run": 3 }));
    assert_eq!(reads_back(&Expected::LostRun(3)), json!({ "lost_run": 3 }));
}

#[test]
fn how_a_task_stands_is_read_back() {
    let expected = json!({
        "namespace": "production", "source": "assistant", "session": "chat 7", "task": 3, "run": 2,
        "agent": "researcher", "acknowledged": true, "state": "terminal", "status": "completed",
        "result": { "media_type": "text/plain; charset=utf-8", "text": "found" },
        "snapshot": { "media_type": "x/y", "hex": "ff00" },
        "finished_at": "2026-01-31T09:00:00.123Z", "recovered": true, "cancel_requested": false,
    });
    assert_eq!(reads_back(&seen(TaskState::Terminal(Box::new(finished())))), expected);
    let (owner, seconds) = (owner(), Seconds::new(5));
    for state in [
        TaskState::Running { owner, fence: 1, ttl_left: seconds, cancel: None },
        TaskState::Suspect { owner, fence: 1, expired_for: seconds, cancel: None },
        TaskState::Lost {
            last_owner: Some(owner),
            since: Some(Timestamp::from_ms(0)),
            superseded_by: Some(4),
        },
        TaskState::Lost { last_owner: None, since: None, superseded_by: None },
        TaskState::Expired,
        TaskState::Unknown,
        TaskState::Unreadable { why: "odd".into() },
    ] {
        reads_back(&seen(state));
    }
    let tasks = vec![seen(TaskState::Expired)];
    reads_back(&SessionInspection { key: session(), revision: 9, tasks, left_out: vec![3] });
}

#[test]
fn every_answer_is_read_back() {
    let state = || seen(TaskState::Unknown);
    reads_back(&Acquired::Acquired(held()));
    reads_back(&Acquired::Held { key: session().task(1), owner: owner(), run: 1, ttl_left: Seconds::new(3) });
    reads_back(&Acquired::Conflict { actual: state() });
    reads_back(&Acquired::SessionReleased { revision: 3 });
    reads_back(&Acquired::IdempotencyConflict { key: session().task(1) });
    reads_back(&Renewed::Renewed { ttl_left: Seconds::new(3), cancel: None });
    reads_back(&Renewed::Fenced { fence: 3, status: RunStatus::Lost });
    reads_back(&Renewed::Gone);
    reads_back(&Renewed::Unreadable { why: "it cannot be read".into() });
    reads_back(&Published::Committed);
    reads_back(&Published::AlreadyTerminal { outcome: Box::new(finished()) });
    reads_back(&Published::Fenced { state: state() });
    reads_back(&Published::TooLarge { limit: 3 });
    reads_back(&DeclaredLost::Lost { state: state() });
    reads_back(&Regranted::Acquired(held()));
    reads_back(&Regranted::Fenced { state: state() });
    reads_back(&CancelScope::Run { key: session().task(1), run: 2 });
    reads_back(&CancelScope::Task(session().task(1)));
    reads_back(&CancelScope::Session(session()));
    let reason = "enough".into();
    let requested_by = "a person".into();
    reads_back(&Cancel { mode: CancelMode::Force, reason, requested_by, force_after: Some(Seconds::new(1)) });
    reads_back(&CancelAnswer::Requested { runs: 2 });
    reads_back(&CancelAnswer::AlreadyTerminal { outcome: Box::new(finished()) });
    reads_back(&Release::Cancel { wait: Seconds::new(5) });
    reads_back(&Release::Refuse);
    reads_back(&Released::Released { revision: 1, still_running: 0 });
    assert_eq!(
        reads_back(&Forgotten::HeldUp { waiting: 1000 }),
        json!({ "answer": "held_up", "waiting": 1000 })
    );
    reads_back(&Retention::default());
    let declared = Declared {
        namespace: "production".into(),
        source: "assistant".into(),
        lease: Seconds::new(30),
        grace: Seconds::new(20),
    };
    reads_back(&Registered::First);
    reads_back(&Registered::Mismatch { before: declared.clone(), fields: vec!["lease".into()] });
    reads_back(&declared);
    reads_back(&Outcome::failed("exception", "it broke").with_snapshot(Payload::text("{}")));
}
