//! An `http` agent of the configuration, against an endpoint on loopback that refuses, stalls and never answers.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Live, json_reply, reply};
use crate::kit::*;
use crate::remote::{Silent, attempts_of, between};

/// A host whose task is posted to this endpoint.
fn posts(url: &str, task: &str) -> Place {
    Place::with(&format!(
        "[agents.hook]\nkind = \"http\"\nurl = \"{url}/hook\"\n[tasks.t]\nquery = \"do it\"\n{task}\n"
    ))
}

const AGAIN: &str = "retry_policy = { max_retries = 1, initial_delay_seconds = 0 }";

#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_for_a_while_is_asked_again_after_that_while() {
    for (status, class) in [(503, "server_error"), (429, "rate_limited")] {
        let refuses = reply(status, &[("retry-after", "1")], "not now");
        let endpoint = Endpoint::new(vec![refuses, json_reply(&json!({ "output": "done" }))]).await;
        let place = posts(&endpoint.url, AGAIN);
        let done = place.tenure(&["run", "tenure.toml", "--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let document: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(document["run"]["result"]["text"], "done");
        assert_eq!(document["attempts"][0]["error"]["class"], class);
        let waited = between(&document["events"], "retrying", "started");
        assert!(waited >= 1000, "{status}: {waited} ms");
        let keys: Vec<String> = [endpoint.asked().await, endpoint.asked().await]
            .iter()
            .map(|asked| asked.headers["idempotency-key"].to_str().unwrap().to_owned())
            .collect();
        let id = document["run"]["run_id"].as_str().unwrap();
        assert_eq!(keys, [format!("{id}:1"), format!("{id}:2")]);
    }
}

#[test]
fn who_never_answers_is_hung_up_on_at_the_timeout_of_each_attempt() {
    let endpoint = Silent::new();
    let place = posts(&endpoint.url, &format!("timeout_seconds = 2\n{AGAIN}"));
    let server = place.serve(&[]);
    let id = server.run("t");
    endpoint.asked().hung_up();
    endpoint.asked().hung_up();
    server.until(&id, "timeout");
    let ended = ("timeout".to_owned(), "timeout".to_owned());
    assert_eq!(attempts_of(&server, &id), [ended.clone(), ended]);
}

#[tokio::test(flavor = "multi_thread")]
async fn to_cancel_hangs_up_before_an_answer_and_in_the_middle_of_one() {
    let silent = Silent::new();
    let place = posts(&silent.url, "");
    let server = place.serve(&[]);
    let id = server.run("t");
    let call = silent.asked();
    assert_eq!(server.post(&format!("/background/runs/{id}/cancel"), "{}").status, 200);
    call.hung_up();
    server.until(&id, "cancelled");

    let (mut live, reply) = Live::new();
    let endpoint = Endpoint::new(vec![reply]).await;
    let place = posts(&endpoint.url, "");
    let run = place.start(&["run", "tenure.toml"]);
    endpoint.asked().await;
    live.say("half an answer".to_owned());
    run.signal(Signal::INT);
    live.hung_up().await;
    let done = run.done();
    assert_eq!(done.code, Some(6), "{done:?}");
}
