//! What agents ask and what people answer has limits, whatever the agent is.

use serde_json::{Value, json};
use tenure::model::{Approval, ApprovalAnswer, RunResult, RunStatus};
use tenure::{AgentResult, Answer, Error, RunContext};

use crate::endpoint::{Endpoint, json_reply, reply};
use crate::stage::{Stage, bash, error, text};

const MOST_QUESTION: usize = Approval::MOST_QUESTION_BYTES;
const MOST_DATA: usize = Approval::MOST_DATA_BYTES;

fn asks(question: usize, data: Value) -> AgentResult {
    Ok(Answer::AwaitingApproval { question: "x".repeat(question).into(), data })
}

/// A text that is this long as JSON.
fn as_json(length: usize) -> Value {
    json!("x".repeat(length - 2))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_past_its_limits_fails_whoever_asks() {
    let stage = Stage::open().await;
    let asked = |question: usize, data: Value| {
        let tenure = stage.tenure.clone();
        tenure.unregister_agent(&crate::stage::name("agent"));
        let agent = move |_: RunContext| {
            let answer = asks(question, data.clone());
            async move { answer }
        };
        tenure.register_agent("agent", agent).unwrap();
        stage.run(json!({}))
    };
    assert_eq!(asked(MOST_QUESTION, as_json(MOST_DATA)).await.status, RunStatus::AwaitingApproval);
    for (question, data) in
        [(MOST_QUESTION + 1, Value::Null), (1, as_json(MOST_DATA + 1)), (30 << 20, Value::Null)]
    {
        let run = asked(question, data).await;
        assert_eq!((run.status, &*error(&run).class), (RunStatus::Failed, "output_too_large"));
        assert_eq!(run.approval, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_asks_too_much_or_nothing_that_can_be_read_fails() {
    let long = "x".repeat(MOST_QUESTION + 1);
    let endless = "x".repeat(100_000);
    let cases = [
        (json!({ "question": long }).to_string(), "output_too_large", "the question has 4097 bytes"),
        (json!({ "question": endless }).to_string(), "invalid_response", "awaiting_approval"),
        ("{}".to_owned(), "invalid_response", "question"),
        ("{\"question\": \"go on?\"".to_owned(), "invalid_response", "EOF"),
    ];
    for (asked, class, words) in cases {
        let mut definition = bash("printf '{\"awaiting_approval\": %s}\n' \"$(cat)\" >&3; echo done");
        if words == "EOF" {
            definition = bash("printf '{\"awaiting_approval\": %s' \"$(cat)\" >&3; echo done");
        }
        let stage = Stage::with(definition).await;
        let run = stage.run(json!({ "query": asked })).await;
        assert_eq!((run.status, &*error(&run).class), (RunStatus::Failed, class), "{words}");
        assert!(error(&run).message.contains(words), "{}", error(&run).message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_as_long_as_a_program_can_be_given_and_no_longer() {
    let script = "if [ -n \"$TENURE_APPROVAL\" ]; then printf %s \"${#TENURE_APPROVAL}\"; \
                  else echo '{\"awaiting_approval\": {\"question\": \"go on?\"}}' >&3; fi";
    let stage = Stage::bash(script).await;
    let run = stage.run(json!({})).await;
    let answer = |length: usize| ApprovalAnswer { approved: true, answer: as_json(length) };
    let refused = stage.tenure.resume_run(&run.run_id, answer(MOST_DATA + 1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(_)) && refused.to_string().contains("65536"), "{refused}");
    stage.tenure.resume_run(&run.run_id, answer(MOST_DATA)).await.unwrap();
    let run = stage.settled(&run).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    let given = json!(answer(MOST_DATA)).to_string().len();
    assert_eq!(text(&run), given.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_asks_too_much_or_nothing_that_can_be_read_fails() {
    let cases = [
        (json!({ "question": "x", "data": as_json(MOST_DATA + 1) }), "output_too_large", "the data"),
        (json!({ "question": "x".repeat(MOST_QUESTION + 1) }), "output_too_large", "the question"),
        (json!({}), "invalid_response", "question"),
        (json!(true), "invalid_response", "awaiting_approval"),
    ];
    for (asked, class, words) in cases {
        let endpoint = Endpoint::new(vec![json_reply(&json!({ "awaiting_approval": asked }))]).await;
        let stage = Stage::with(json!({ "kind": "http", "url": endpoint.url })).await;
        let run = stage.run(json!({})).await;
        assert_eq!((run.status, &*error(&run).class), (RunStatus::Failed, class), "{words}");
        assert!(error(&run).message.contains(words), "{}", error(&run).message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_of_a_receiver_lies_in_the_workspace_with_its_type() {
    let long = "0123456789".repeat(20_000);
    let endpoint = Endpoint::new(vec![reply(200, &[("content-type", "text/csv")], long.clone())]).await;
    let stage = Stage::with(json!({ "kind": "http", "url": endpoint.url })).await;
    let run = stage.run(json!({})).await;
    let Some(RunResult::File { media_type, size: 200_000, .. }) = &run.result else {
        panic!("{:?} {:?}", run.result, run.error);
    };
    assert_eq!(&**media_type, "text/csv");
    assert_eq!(stage.file(&run, "output.md"), long.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_streamed_is_not_read_without_end() {
    let whole = json!({ "choices": [{ "message": { "content": "x".repeat(5 << 20) } }] });
    let endpoint = Endpoint::new(vec![json_reply(&whole)]).await;
    let stage = Stage::with(json!({ "kind": "chat", "base_url": endpoint.url, "model": "m" })).await;
    let run = stage.run(json!({})).await;
    assert_eq!((run.status, &*error(&run).class), (RunStatus::Failed, "output_too_large"));
}
