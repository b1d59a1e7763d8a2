//! A run that is posted to a URL.

use serde_json::{Value, json};
use tenure::model::{ApprovalAnswer, RunStatus};

use crate::endpoint::{Endpoint, Reply, json_reply, reply};
use crate::stage::{Stage, bytes, error, retries, text};

async fn posting(replies: Vec<Reply>) -> (Stage, Endpoint) {
    let endpoint = Endpoint::new(replies).await;
    let url = format!("{}/hook?a=b", endpoint.url);
    let headers = json!({ "X-Key": "CARGO_MANIFEST_DIR" });
    (Stage::with(json!({ "kind": "http", "url": url, "headers_env": headers })).await, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_posted_with_what_lets_a_receiver_do_it_once() {
    let (stage, endpoint) =
        posting(vec![reply(503, &[], ""), json_reply(&json!({ "output": "done" }))]).await;
    let run = stage.run(json!({ "query": "do it", "retry_policy": retries(1), "timeout_seconds": 50 })).await;
    assert_eq!((run.status, text(&run).as_str()), (RunStatus::Completed, "done"));
    for attempt in 1..=2 {
        let mut asked = endpoint.asked().await;
        let headers = &asked.headers;
        assert_eq!(asked.path, "/hook");
        assert_eq!(headers["idempotency-key"], format!("{}:{attempt}", run.run_id));
        assert_eq!(headers["x-key"], std::env::var("CARGO_MANIFEST_DIR").unwrap());
        assert_eq!(headers["tenure-fence"], asked.body["fence"].to_string());
        assert!(asked.body["fence"].as_u64().unwrap() >= attempt);
        let fields = asked.body.as_object_mut().unwrap();
        assert!(fields.remove("deadline").is_some_and(|at| at.is_string()));
        fields.remove("fence");
        let expected = json!({
            "run_id": run.run_id, "task_id": "t", "agent_id": "agent", "attempt": attempt,
            "session_id": "background:agent:t", "query": "do it", "trigger_type": "manual",
            "metadata": { "n": 1.1 },
        });
        assert_eq!(asked.body, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_is_the_result() {
    let cases = [
        (json_reply(&json!({ "output": "text" })), "text/plain; charset=utf-8", "text"),
        (json_reply(&json!({ "output": { "n": 1 } })), "application/json", "{\"n\":1}"),
        (json_reply(&json!({ "other": 1 })), "application/json; charset=utf-8", "{\"other\":1}"),
        (json_reply(&json!([1, 2])), "application/json; charset=utf-8", "[1,2]"),
        (reply(200, &[("content-type", "text/csv")], "a,b"), "text/csv", "a,b"),
        (reply(200, &[], "\u{1}"), "application/octet-stream", "\u{1}"),
        (reply(202, &[("content-type", "text/plain")], "taken"), "text/plain", "taken"),
        (reply(204, &[], ""), "text/plain; charset=utf-8", ""),
    ];
    for (answer, media_type, result) in cases {
        let (stage, _endpoint) = posting(vec![answer]).await;
        let run = stage.run(json!({})).await;
        assert_eq!(run.status, RunStatus::Completed, "{result}: {:?}", run.error);
        assert_eq!(bytes(&run), (media_type.to_owned(), result.as_bytes().to_vec()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_result_fails() {
    let cases = [
        (reply(200, &[("content-type", "application/json")], "{"), "invalid_response", "no JSON"),
        (reply(200, &[], "x".repeat(2000)), "output_too_large", "more than 1000 bytes"),
        (reply(500, &[], "broken"), "server_error", "broken"),
        (reply(302, &[("location", "/elsewhere")], ""), "invalid_request", "the same host"),
    ];
    for (answer, class, words) in cases {
        let (stage, endpoint) = posting(vec![answer]).await;
        let small = Stage::open_with(|settings| settings.result_limit = 1000).await;
        small.agent(json!({ "kind": "http", "url": endpoint.url }));
        let run = small.run(json!({})).await;
        assert_eq!(&*error(&run).class, class, "{words}");
        assert!(error(&run).message.contains(words), "{}", error(&run).message);
        drop(stage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_may_ask_a_person() {
    let asks = json!({ "awaiting_approval": { "question": "pay?", "data": [1] } });
    let (stage, endpoint) = posting(vec![json_reply(&asks), json_reply(&json!({ "output": "paid" }))]).await;
    let run = stage.run(json!({})).await;
    assert_eq!(run.status, RunStatus::AwaitingApproval);
    assert_eq!(endpoint.asked().await.body.get("approval"), None::<&Value>);
    let answer = ApprovalAnswer { approved: false, answer: json!("no") };
    stage.tenure.resume_run(&run.run_id, answer).await.unwrap();
    assert_eq!(text(&stage.settled(&run).await), "paid");
    let told = endpoint.asked().await.body;
    assert_eq!(told["approval"], json!({ "approved": false, "answer": "no" }));
}
