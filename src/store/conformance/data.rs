//! What is stored comes back as it was, to the last bit.

use std::sync::Arc;
use std::time::Duration;

use super::support::{A, claim_request, draw, failed, run_id, task_id, token};
use super::{Fixture, list};
use crate::model::{
    ApprovalAnswer, Metadata, Payload, Run, RunError, RunResult, RunStatus, Seconds, Subject, Timestamp,
};
use crate::rules::{self, Outcome};
use crate::store::RunFilter;
use serde_json::value::RawValue;
use serde_json::{Value, json};

list! {
    result_bytes_come_back_as_they_were,
    field_result_of_five_mebibytes_comes_back,
    a_result_in_a_file_comes_back,
    a_cancelled_run_keeps_what_it_had,
    metadata_is_kept_digit_for_digit,
    a_query_is_kept_byte_for_byte,
    names_with_odd_characters_are_told_apart,
    lanes_with_odd_names_are_told_apart,
    instants_are_exact_to_the_millisecond,
    numbers_are_exact_to_the_last_bit,
    deep_json_comes_back,
    errors_come_back_as_they_were,
    every_field_of_a_run_comes_back,
}

async fn ends_with(f: &Fixture, task: &crate::model::Task, name: &str, result: RunResult) -> Run {
    f.queue(task, name).await;
    let running = f.begin(A).await;
    f.finish(&running, Outcome::Completed(result)).await
}

fn bytes(media_type: &str, bytes: &[u8]) -> RunResult {
    RunResult::Inline(Payload { media_type: media_type.into(), bytes: bytes.into() })
}

async fn result_bytes_come_back_as_they_were(f: Fixture) {
    let task = f.task(json!({})).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let odd: [&[u8]; 6] = [b"", b"\0", b"a\0b", &[0xFF, 0xFE, 0x80], &every_byte, "\u{1F600}\r\n".as_bytes()];
    for (n, odd) in odd.iter().enumerate() {
        let result = bytes("application/octet-stream; x=\"\u{e9}\"", odd);
        let ended = ends_with(&f, &task, &format!("r{n}"), result.clone()).await;
        assert_eq!(ended.result, Some(result));
    }
}

async fn field_result_of_five_mebibytes_comes_back(f: Fixture) {
    let task = f.task(json!({})).await;
    let large: Vec<u8> =
        (0..5 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let result = bytes("application/octet-stream", &large);
    let ended = ends_with(&f, &task, "r", result.clone()).await;
    assert!(ended.result == Some(result), "{} bytes went in", large.len());
}

async fn a_result_in_a_file_comes_back(f: Fixture) {
    let task = f.task(json!({})).await;
    let result = RunResult::File {
        media_type: "text/plain".into(),
        size: u64::MAX >> 1,
        path: "artifacts/a b'\"%.md".into(),
        preview: "begins \0 like this".into(),
    };
    assert_eq!(ends_with(&f, &task, "r", result.clone()).await.result, Some(result));
}

async fn a_cancelled_run_keeps_what_it_had(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let partial = bytes("text/plain", b"half");
    let ended = f.finish(&running, Outcome::Cancelled(Some(partial.clone()))).await;
    assert_eq!((ended.status, ended.result), (RunStatus::Cancelled, Some(partial)));
}

async fn metadata_is_kept_digit_for_digit(f: Fixture) {
    let written = r#"{ "big":9007199254740993, "huge":123456789012345678901234567890,"f":1.10, "e":1E+2,
        "same":1,"same":2, "u":"\u00e9\u0000", "deep":[[[[{}]]]] }"#;
    let metadata = Metadata::new(RawValue::from_string(written.to_owned()).unwrap());
    let task = f.task(json!({})).await;
    let task = f.change(&task, |spec| spec.metadata = metadata).await;
    let queued = f.queue(&task, "r").await;
    assert_eq!(queued.spec.metadata.as_json(), written);
    let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(stored.spec.metadata.as_json(), written);
}

async fn a_query_is_kept_byte_for_byte(f: Fixture) {
    let odd = "  \u{feff}line\r\nline\u{2028}\0'\"\\%_`$1 \u{1F468}\u{200d}\u{1F469} e\u{301}\t ";
    let task = f.task(json!({ "query": odd })).await;
    let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(&*stored.spec.query, odd);
    assert_eq!(&*f.queue(&task, "r").await.spec.query, odd);
    assert_eq!(&*f.claim_one(A).await.spec.query, odd);
}

async fn names_with_odd_characters_are_told_apart(f: Fixture) {
    let long = "x".repeat(255);
    let longer = format!("{}y", "x".repeat(254));
    let names = ["a", "A", "...", "-", "--", "_", ".a", "a.", "0", "00", "-1", "null", &long, &longer];
    for name in names {
        let task = f.task(json!({ "task_id": name })).await;
        f.queue(&task, name).await;
    }
    assert_eq!(f.claim(A, 100).await.len(), names.len());
    for name in names {
        let run = f.read(&run_id(name)).await;
        assert_eq!((run.run_id.as_str(), run.spec.task_id.as_str()), (name, name));
        let filter = RunFilter { task_id: Some(task_id(name)), ..RunFilter::default() };
        assert_eq!(f.list(filter).await, std::slice::from_ref(&run));
        assert_eq!(f.events(Subject::Run(run.run_id.clone())).await.len(), 2);
        let running = f.start(&run).await;
        let attempt = &f.attempts(&running).await[0];
        assert_eq!(attempt.attempt_id.as_str(), format!("{name}.1"), "longer than a name by its number");
    }
}

async fn lanes_with_odd_names_are_told_apart(f: Fixture) {
    let keys =
        ["k", "K", "k%", "k_", "k'", "k\"", "k:1", "k\\", "\u{e9}", "e\u{301}", " k", &"k".repeat(255)];
    for (n, key) in keys.iter().enumerate() {
        let name = format!("t{n}");
        let task = f.task(json!({ "task_id": name, "concurrency_key": key })).await;
        f.queue(&task, &name).await;
    }
    assert_eq!(f.claim(A, 100).await.len(), keys.len(), "none is in the way of another");
    for (n, key) in keys.iter().enumerate() {
        let lane = f.lane(&format!("key:{key}")).await;
        let active: Vec<&str> = lane.active.iter().map(|run| run.run_id.as_str()).collect();
        assert_eq!(active, [format!("t{n}")], "{key:?}");
    }
    f.sound().await;
}

async fn instants_are_exact_to_the_millisecond(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    // Around 1970, and near both ends of what the calendar knows.
    for (n, ms) in [-1, 0, 1, 999, -62_135_596_799_999, 253_402_207_200_998].into_iter().enumerate() {
        let at = Timestamp::from_ms(ms);
        let mut wanted = f.wanted(&format!("r{n}")).await;
        wanted.due_at = at;
        wanted.not_before = at;
        wanted.occurrence = Some(at);
        let queued = f.queue_as(&task, wanted).await;
        assert_eq!((queued.spec.first_due_at, queued.spec.occurrence), (at, Some(at)));
        assert_eq!(queued.due_at, at.max(f.now().await));
    }
    for step in [1, 997, 86_400_001] {
        f.later(Duration::from_millis(step));
        let run = f.claim_one(A).await;
        assert_eq!(run.claimed_at, Some(f.now().await));
    }
}

async fn numbers_are_exact_to_the_last_bit(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for (n, number) in [u64::MAX, 1 << 63, (1 << 53) + 1, 0].into_iter().enumerate() {
        let mut write = rules::enqueue(&task, f.wanted(&format!("r{n}")).await, f.moment().await);
        write.run.stamp = number;
        assert_eq!(f.apply(write.clone()).await.stamp, number);
        assert_eq!(f.commit(write).await, Ok(()), "recognised by its stamp");
        let request = crate::store::ClaimRequest { nonce: number, ..claim_request(u128::MAX - n as u128, 1) };
        let claimed = f.store.claim(request).await.unwrap().remove(0);
        assert_eq!(token(&claimed).nonce, number);
        assert_eq!(claimed.lease.unwrap().owner.bits(), u128::MAX - n as u128);
        let running = f.start(&claimed).await;
        f.finish(&running, super::support::done("x")).await;
    }
}

async fn deep_json_comes_back(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let deep = (0..100).fold(json!("\u{0}bottom"), |inner, n| {
        if n % 2 == 0 { json!([inner]) } else { json!({ "k\"": inner }) }
    });
    let data = json!({ "deep": deep, "max": u64::MAX, "min": i64::MIN, "half": 0.5, "none": null, "": [] });
    let question: Arc<str> = "go\0 on?".into();
    let asks = Outcome::AwaitingApproval { question: Arc::clone(&question), data: data.clone() };
    let asked = f.finish(&running, asks).await;
    let approval = asked.approval.clone().unwrap();
    assert_eq!((&approval.question, &approval.data), (&question, &data));
    let events = f.events(Subject::Run(run_id("r"))).await;
    assert_eq!(events[3].data["data"], data);
    let answer = ApprovalAnswer { approved: false, answer: data };
    let resumed = f.apply(rules::resume(&asked, answer.clone(), f.moment().await).unwrap()).await;
    assert_eq!(resumed.approval.unwrap().answer, Some(answer));
    assert_eq!(events[0].data, Value::Null);
}

async fn errors_come_back_as_they_were(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let errors = [
        RunError::new("exception", ""),
        RunError::new("rate limit'\0", "10 kB: ".to_owned() + &"\u{e9}".repeat(5000)),
        RunError { retry_after: Some(Seconds::from_ms(1)), ..RunError::new("x", "y") },
    ];
    for (n, error) in errors.into_iter().enumerate() {
        f.queue(&task, &format!("r{n}")).await;
        let running = f.begin(A).await;
        let ended = f.finish(&running, Outcome::Failed(error.clone())).await;
        assert_eq!(ended.error, Some(error.clone()));
        assert_eq!(f.attempts(&ended).await[0].error, Some(error));
    }
}

async fn every_field_of_a_run_comes_back(f: Fixture) {
    let fields = json!({
        "timeout_seconds": 0.001, "deadline_seconds": 3600, "priority": -7, "concurrency_key": "k",
        "concurrency_limit": 2, "overlap_policy": "queue_next",
        "session_policy": { "type": "fixed", "session_id": "s\u{e9}" },
        "workspace_policy": { "namespace_template": "x/{run_id}" },
        "retry_policy": { "max_retries": 9, "jitter": 0.125, "backoff": "exponential" },
    });
    let task = f.task(fields).await;
    let mut wanted = f.wanted("r").await;
    wanted.query = Some("another".into());
    wanted.retry_of = Some(run_id("earlier"));
    wanted.override_pause = true;
    wanted.idempotency = Some(crate::model::Idempotency { key: "key".into(), digest: draw() });
    let mut write = rules::enqueue(&task, wanted, f.moment().await);
    // Whatever a write says of the place, the store knows better.
    write.run.place = crate::model::Place::Paused;
    let queued = f.apply(write.clone()).await;
    write.run.place = crate::model::Place::Ready;
    assert_eq!(queued, write.run);
    let running = f.begin(A).await;
    let end = f.end_of(&running, failed()).await;
    let mut expected = end.run.clone();
    expected.place = crate::model::Place::Future;
    assert_eq!(f.apply(end).await, expected);
}
