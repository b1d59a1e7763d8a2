//! An OpenAI-compatible endpoint that streams, stalls, refuses and dies.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::model::{CancelMode, EventKind, RunResult, RunStatus};
use tokio::net::TcpListener;

use crate::endpoint::{Endpoint, Live, Reply, delta, finish, json_reply, reply, stream_reply, until};
use crate::stage::{Stage, error, retries, text};

/// A variable that is set wherever the tests of a package run, with a value found nowhere else.
const VARIABLE: &str = "CARGO_MANIFEST_DIR";

fn chat(endpoint: &Endpoint) -> Value {
    json!({ "kind": "chat", "base_url": format!("{}/v1/", endpoint.url), "model": "small" })
}

async fn asking(replies: Vec<Reply>) -> (Stage, Endpoint) {
    let endpoint = Endpoint::new(replies).await;
    (Stage::with(chat(&endpoint)).await, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_streamed_is_the_result() {
    let parts = [delta("Hel"), delta("lo, "), ": keep alive\n\n".to_owned(), delta("wörld"), finish("stop")];
    let (stage, endpoint) = asking(vec![stream_reply(&parts)]).await;
    let mut definition = chat(&endpoint);
    definition["system_instruction"] = json!("be brief");
    definition["api_key_env"] = json!(VARIABLE);
    stage.agent(definition);
    let run = stage.run(json!({ "query": "greet" })).await;
    assert_eq!((run.status, text(&run).as_str()), (RunStatus::Completed, "Hello, wörld"));
    assert_eq!(stage.file(&run, "output.md"), "Hello, wörld".as_bytes());
    let asked = endpoint.asked().await;
    assert_eq!(asked.path, "/v1/chat/completions");
    let key = std::env::var(VARIABLE).unwrap();
    assert_eq!(asked.headers["authorization"], format!("Bearer {key}"));
    let messages =
        json!([{ "role": "system", "content": "be brief" }, { "role": "user", "content": "greet" }]);
    assert_eq!(asked.body, json!({ "model": "small", "stream": true, "messages": messages }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_read_while_it_comes() {
    let (mut live, live_reply) = Live::new();
    let (stage, _endpoint) = asking(vec![live_reply]).await;
    let run = stage.start(json!({})).await;
    live.say(delta("one "));
    let read = || std::fs::read_to_string(stage.path(&run, "output.md")).unwrap_or_default();
    until(|| read() == "one ").await;
    live.say(delta("two"));
    until(|| read() == "one two").await;
    live.say(finish("length"));
    assert_eq!(text(&stage.settled(&run).await), "one two");
    let note = "the model ended its answer early: \"length\"\n";
    assert_eq!(stage.file(&run, "logs/attempt-1.log"), note.as_bytes());
    live.hung_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_streamed_is_taken_as_well() {
    let said = json!({ "role": "assistant", "content": "all" });
    let whole = json!({ "choices": [{ "message": said, "finish_reason": "stop" }] });
    let said = json!([{ "type": "text", "text": "in " }, { "type": "text", "text": "parts" }]);
    let parts = json!({ "choices": [{ "message": { "content": said } }] });
    let (stage, _endpoint) = asking(vec![json_reply(&whole), json_reply(&parts)]).await;
    assert_eq!(text(&stage.run(json!({})).await), "all");
    assert_eq!(text(&stage.run(json!({})).await), "in parts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_lies_in_the_workspace() {
    let part = "0123456789".repeat(1000);
    let events: Vec<String> = (0..20).map(|_| delta(&part)).chain([finish("stop")]).collect();
    let (stage, _endpoint) = asking(vec![stream_reply(&events)]).await;
    let run = stage.run(json!({})).await;
    assert!(matches!(&run.result, Some(RunResult::File { size: 200_000, .. })), "{:?}", run.result);
    assert_eq!(stage.file(&run, "output.md"), part.repeat(20).as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_are_classes_and_only_what_may_pass_is_tried_again() {
    let cases = [
        (400, "invalid_request", 1),
        (401, "authentication", 1),
        (403, "authentication", 1),
        (404, "not_found", 1),
        (408, "timeout", 2),
        (422, "invalid_request", 1),
        (429, "rate_limited", 2),
        (500, "server_error", 2),
        (503, "server_error", 2),
        (504, "timeout", 2),
    ];
    for (status, class, attempts) in cases {
        let said = json!({ "error": { "message": "because\nof this", "type": "x" } }).to_string();
        let (stage, endpoint) = asking(vec![reply(status, &[], said)]).await;
        let run = stage.run(json!({ "retry_policy": retries(1) })).await;
        assert_eq!((run.status, run.attempt), (RunStatus::Failed, attempts), "{status}");
        assert_eq!(&*error(&run).class, class, "{status}");
        let message = &error(&run).message;
        assert!(message.contains(&status.to_string()) && message.ends_with(": because of this"), "{message}");
        assert_eq!(endpoint.unseen().await, attempts as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_says_when_it_is_tried_again() {
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(100);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&later).unwrap();
    for (header, least, most) in [("100", 100, 100), (date.as_str(), 90, 100), ("99999999", 86_400, 86_400)] {
        let (stage, _endpoint) = asking(vec![reply(429, &[("retry-after", header)], "slow down")]).await;
        let run = stage.start(json!({ "retry_policy": retries(1) })).await;
        stage.event(&run, EventKind::Retrying).await;
        let run = stage.tenure.run(&run.run_id).await.unwrap();
        let asked = error(&run).retry_after.unwrap().duration();
        let range = Duration::from_secs(least)..=Duration::from_secs(most);
        assert!(range.contains(&asked), "{header}: {asked:?}");
        let now = tenure::clock::Clock::now(&tenure::clock::SystemClock);
        assert!(run.due_at.since(now) > Duration::from_secs(80), "it waits that long");
    }
    for header in ["-1", "soon", "0"] {
        let (stage, _endpoint) = asking(vec![reply(429, &[("retry-after", header)], "")]).await;
        let run = stage.run(json!({ "retry_policy": retries(1) })).await;
        assert_eq!(run.attempt, 2, "{header} is no delay");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_a_lost_connection_and_is_tried_again() {
    let (live, live_reply) = Live::new();
    let (stage, _endpoint) = asking(vec![live_reply, stream_reply(&[delta("whole"), finish("stop")])]).await;
    let run = stage.start(json!({ "retry_policy": retries(1) })).await;
    live.say(delta("hal"));
    until(|| stage.path(&run, "output.md").exists()).await;
    live.die();
    let run = stage.settled(&run).await;
    assert_eq!((run.attempt, text(&run).as_str()), (2, "whole"), "nothing of the first attempt is left");
    let attempts = stage.tenure.attempts(&run.run_id).await.unwrap();
    let first = attempts[0].error.as_ref().unwrap();
    assert_eq!((&*first.class, first.within.as_deref()), ("connection", Some("exception")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_without_saying_so_is_no_answer() {
    let (stage, _endpoint) = asking(vec![stream_reply(&[delta("hal")])]).await;
    let run = stage.run(json!({})).await;
    assert_eq!(&*error(&run).class, "connection");
    assert_eq!(stage.file(&run, "output.md"), b"hal", "what came can be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_no_answer() {
    let endless = format!("data: {}", "x".repeat(3_000_000));
    let refusing = format!("data: {}\n\n", json!({ "error": { "message": "overloaded" } }));
    let cases = [
        (stream_reply(&[endless]), "invalid_response", "has no end"),
        (stream_reply(&["data: {nonsense\n\n".to_owned()]), "invalid_response", "no answer"),
        (stream_reply(&[delta("a"), refusing]), "server_error", "overloaded"),
        (json_reply(&json!({ "choices": [] })), "invalid_response", "no choice"),
        (json_reply(&json!([1])), "invalid_response", "no answer"),
    ];
    for (answer, class, words) in cases {
        let (stage, _endpoint) = asking(vec![answer]).await;
        let run = stage.run(json!({})).await;
        assert_eq!(&*error(&run).class, class, "{words}");
        assert!(error(&run).message.contains(words), "{}", error(&run).message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_hangs_up() {
    let (mut live, live_reply) = Live::new();
    let (stage, _endpoint) = asking(vec![live_reply]).await;
    let run = stage.start(json!({})).await;
    live.say(delta("so far"));
    until(|| stage.path(&run, "output.md").exists()).await;
    stage.cancel(&run, CancelMode::Cooperative).await;
    live.hung_up().await;
    assert_eq!(stage.settled(&run).await.status, RunStatus::Cancelled);
    assert_eq!(stage.file(&run, "output.md"), b"so far");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_stalls_is_given_up_at_the_timeout() {
    let (mut live, live_reply) = Live::new();
    let (stage, _endpoint) = asking(vec![live_reply]).await;
    let run = stage.start(json!({ "timeout_seconds": 0.3 })).await;
    live.hung_up().await;
    assert_eq!(stage.settled(&run).await.status, RunStatus::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_is_a_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    drop(listener);
    let stage = Stage::with(json!({ "kind": "chat", "base_url": url, "model": "m" })).await;
    let run = stage.run(json!({ "retry_policy": retries(1) })).await;
    assert_eq!((run.attempt, &*error(&run).class), (2, "connection"));
    assert!(!error(&run).message.contains("secret-path"), "{}", error(&run).message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_in_no_error_though_the_endpoint_repeats_it() {
    let repeat: Reply = Box::new(|headers| {
        let sent = headers["authorization"].to_str().unwrap().to_owned();
        axum::http::Response::builder().status(401).body(format!("{sent} is wrong").into()).unwrap()
    });
    let (stage, endpoint) = asking(vec![repeat]).await;
    let mut definition = chat(&endpoint);
    definition["api_key_env"] = json!(VARIABLE);
    stage.agent(definition);
    let run = stage.run(json!({})).await;
    assert_eq!(&*error(&run).class, "authentication");
    assert!(error(&run).message.ends_with(": Bearer *** is wrong"), "{}", error(&run).message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_there_is_named_and_nothing_is_asked() {
    let (stage, endpoint) = asking(vec![reply(200, &[], "")]).await;
    let mut definition = chat(&endpoint);
    definition["api_key_env"] = json!("NO_SUCH_KEY_ANYWHERE");
    stage.agent(definition);
    let run = stage.run(json!({ "retry_policy": retries(3) })).await;
    assert_eq!((run.attempt, &*error(&run).class), (1, "configuration"));
    assert!(error(&run).message.contains("\"NO_SUCH_KEY_ANYWHERE\""), "{}", error(&run).message);
    assert_eq!(endpoint.unseen().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let other = Endpoint::new(vec![reply(200, &[], "")]).await;
    let to = format!("{}/v1/chat/completions?key=hush", other.url);
    let (stage, endpoint) = asking(vec![reply(307, &[("location", &to)], "")]).await;
    let mut definition = chat(&endpoint);
    definition["api_key_env"] = json!(VARIABLE);
    stage.agent(definition);
    let run = stage.run(json!({})).await;
    assert_eq!(&*error(&run).class, "invalid_request");
    let message = &error(&run).message;
    assert!(
        message.contains(&format!("a redirect to \"{}\"", other.url)) && !message.contains("hush"),
        "{message}"
    );
    assert_eq!(other.unseen().await, 0);
}
