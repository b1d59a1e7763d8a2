//! A secret that an endpoint repeats is kept nowhere: not in an error, not in a result, not in a file.

use axum::http::Response;
use serde_json::{Value, json};
use tenure::model::{Run, RunStatus};

use crate::endpoint::{Endpoint, Reply, delta, finish};
use crate::stage::{Stage, bytes, error, text};

/// A variable that is set wherever the tests of a package run, with a value found nowhere else.
const VARIABLE: &str = "CARGO_MANIFEST_PATH";

fn secret() -> String {
    std::env::var(VARIABLE).unwrap()
}

/// An answer made of the secret.
fn repeats(status: u16, media_type: &str, body: impl Fn(&str) -> String) -> Reply {
    let (media_type, body) = (media_type.to_owned(), body(&secret()));
    let answer = move |_: &_| {
        let response = Response::builder().status(status).header("content-type", &media_type);
        response.body(body.clone().into()).unwrap()
    };
    Box::new(answer)
}

async fn told(kind: &str, answer: Reply) -> (Stage, Run) {
    let endpoint = Endpoint::new(vec![answer]).await;
    let definition = match kind {
        "chat" => {
            json!({ "kind": "chat", "base_url": endpoint.url, "model": "m", "api_key_env": VARIABLE })
        }
        _ => json!({ "kind": "http", "url": endpoint.url, "headers_env": { "x-key": VARIABLE } }),
    };
    let stage = Stage::with(definition).await;
    let run = stage.run(json!({})).await;
    (stage, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p14_a_secret_at_the_edge_of_what_is_shown_of_an_error_is_not_cut_into_sight() {
    let whole = |secret: &str| format!("{}{secret} is wrong", "x".repeat(495));
    let escaped = |secret: &str| {
        let text = json!({ "error": { "message": whole(secret) } }).to_string();
        text.replace('/', "\\/")
    };
    let cut = |secret: &str| format!("{}{secret}", " ".repeat(16 * 1024 - secret.len() + 1));
    let part: String = secret().chars().take(4).collect();
    for kind in ["chat", "http"] {
        for answer in [
            repeats(401, "text/plain", whole),
            repeats(401, "application/json", escaped),
            repeats(401, "text/plain", cut),
        ] {
            let (_stage, run) = told(kind, answer).await;
            let message = &error(&run).message;
            assert!(message.contains("***") && !message.contains(&part), "{kind}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p14_a_secret_in_an_error_of_a_stream_is_masked_before_it_is_cut() {
    let refusing = |secret: &str| {
        let message = format!("{}{secret}", "x".repeat(495));
        format!("data: {}\n\n", json!({ "error": { "message": message } }))
    };
    let (_stage, run) = told("chat", repeats(200, "text/event-stream", refusing)).await;
    let message = &error(&run).message;
    assert!(message.ends_with("x***"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p14_a_secret_in_an_answer_that_is_streamed_is_masked_across_its_parts() {
    let answer = |secret: &str| {
        let parts: Vec<String> = secret.chars().map(|part| delta(&part.to_string())).collect();
        [delta("your key "), parts.concat(), delta(", yes"), finish(secret)].concat()
    };
    let (stage, run) = told("chat", repeats(200, "text/event-stream", answer)).await;
    assert_eq!(text(&run), "your key ***, yes");
    assert_eq!(stage.file(&run, "output.md"), b"your key ***, yes");
    let log = stage.file(&run, "logs/attempt-1.log");
    assert_eq!(String::from_utf8(log).unwrap(), "the model ended its answer early: \"***\"\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p14_a_secret_in_an_answer_of_a_receiver_is_masked_in_every_form() {
    type Case = (&'static str, fn(&str) -> String, &'static str);
    let cases: [Case; 4] = [
        ("text/plain", |secret| format!("<{secret}>"), "<***>"),
        ("application/json", |secret| json!({ "output": secret }).to_string(), "***"),
        (
            "application/json",
            |secret| format!("[{}]", json!(secret).to_string().replace('/', "\\/")),
            "[\"***\"]",
        ),
        (
            "application/json",
            |secret| {
                let units: Vec<String> = secret.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
                format!("{{\"output\": \"{}\"}}", units.concat())
            },
            "***",
        ),
    ];
    for (media_type, answer, expected) in cases {
        let (stage, run) = told("http", repeats(200, media_type, answer)).await;
        assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
        assert_eq!(String::from_utf8(bytes(&run).1).unwrap(), expected, "{media_type}");
        assert_eq!(stage.file(&run, "output.md"), expected.as_bytes());
    }
    let (_stage, run) = told("http", repeats(200, &format!("text/{}", secret()), |_| "x".to_owned())).await;
    assert_eq!(bytes(&run).0, "application/octet-stream", "nor in the type");
    let asks =
        |secret: &str| json!({ "awaiting_approval": { "question": secret, "data": [secret] } }).to_string();
    let (_stage, run) = told("http", repeats(200, "application/json", asks)).await;
    let approval = run.approval.unwrap();
    assert_eq!((&*approval.question, approval.data), ("***", Value::from(vec!["***"])));
}
