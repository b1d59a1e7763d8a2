//! A `chat` agent of the configuration, against an endpoint on loopback that streams, stalls, refuses and dies.

use rustix::process::Signal;
use serde_json::Value;

use crate::endpoint::{Endpoint, Live, Reply, delta, finish, reply, stream_reply};
use crate::kit::*;
use crate::remote::{Silent, attempts_of, between};

/// A host whose task asks this endpoint.
fn asks(url: &str, task: &str) -> Place {
    Place::with(&format!(
        "[agents.writer]\nkind = \"chat\"\nbase_url = \"{url}/v1\"\nmodel = \"small\"\n\
         system_instruction = \"be brief\"\n[tasks.t]\nquery = \"greet\"\n{task}\n"
    ))
}

/// One more attempt, at once.
const AGAIN: &str = "retry_policy = { max_retries = 1, initial_delay_seconds = 0 }";

fn whole() -> Reply {
    stream_reply(&[delta("all of it"), finish("stop")])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_seen_and_kept_while_it_comes() {
    let (live, reply) = Live::new();
    let endpoint = Endpoint::new(vec![reply]).await;
    let place = asks(&endpoint.url, "");
    let mut run = place.start(&["run", "tenure.toml"]);
    let id = run.line("run ").rsplit(' ').next().unwrap().to_owned();
    let asked = endpoint.asked().await;
    assert_eq!((asked.path.as_str(), &asked.body["stream"]), ("/v1/chat/completions", &true.into()));
    assert_eq!(asked.body["messages"][1]["content"], "greet");
    let kept = || {
        let folder = place.path(".tenure/workspace/background/writer/t").join(&id);
        std::fs::read_to_string(folder.join("output.md")).unwrap_or_default()
    };
    live.say(delta("one\ntw"));
    run.line("|  one");
    assert_eq!(kept(), "one\ntw", "before there is more");
    live.say(delta("o\nthree"));
    run.line("|  two");
    assert_eq!(kept(), "one\ntwo\nthree");
    live.say(finish("stop"));
    let done = run.done();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.contains("|  three"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_stalls_is_hung_up_on_at_the_timeout_of_each_attempt() {
    let (mut live, reply) = Live::new();
    let endpoint = Endpoint::new(vec![reply, whole()]).await;
    let place = asks(&endpoint.url, &format!("timeout_seconds = 2\n{AGAIN}"));
    let server = place.serve(&[]);
    // Said before there is a time that may be over.
    live.say(delta("half"));
    let id = server.run("t");
    live.hung_up().await;
    let run = server.until(&id, "completed");
    assert_eq!((&run["attempt"], &run["result_preview"]), (&2.into(), &"all of it".into()), "{run}");
    let pair = |status: &str, class: &str| (status.to_owned(), class.to_owned());
    assert_eq!(attempts_of(&server, &id), [pair("timeout", "timeout"), pair("completed", "none")]);
}

#[test]
fn an_endpoint_that_never_answers_is_hung_up_on_at_the_timeout_and_the_run_says_so() {
    let endpoint = Silent::new();
    let place = asks(&endpoint.url, "timeout_seconds = 2");
    let run = place.start(&["run", "tenure.toml", "--json"]);
    endpoint.asked().hung_up();
    let done = run.done();
    assert_eq!(done.code, Some(5), "{done:?}");
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(
        (&document["run"]["status"], &document["run"]["error"]["class"]),
        (&"timeout".into(), &"timeout".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_is_waited_for_as_long_as_the_endpoint_asks() {
    let slow_down = reply(429, &[("retry-after", "1")], r#"{"error": {"message": "slow down"}}"#);
    let endpoint = Endpoint::new(vec![slow_down, whole()]).await;
    let place = asks(&endpoint.url, AGAIN);
    let done = place.tenure(&["run", "tenure.toml", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(
        (&document["run"]["attempt"], &document["run"]["result"]["text"]),
        (&2.into(), &"all of it".into())
    );
    let error = &document["attempts"][0]["error"];
    assert_eq!(
        (&error["class"], &error["retry_after_seconds"]),
        (&"rate_limited".into(), &1.into()),
        "{error}"
    );
    assert!(error["message"].as_str().unwrap().ends_with(": slow down"), "{error}");
    let waited = between(&document["events"], "retrying", "started");
    assert!(waited >= 1000, "{waited} ms, though the policy says none and the endpoint a second");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_dies_in_the_middle_is_told_and_asked_again_as_the_policy_says() {
    for (task, status, ended) in [
        (AGAIN, "completed", vec![("failed", "connection"), ("completed", "none")]),
        (
            "retry_policy = { max_retries = 1, initial_delay_seconds = 0, retry_on = [\"timeout\"] }",
            "failed",
            vec![("failed", "connection")],
        ),
    ] {
        let (live, reply) = Live::new();
        let endpoint = Endpoint::new(vec![reply, whole()]).await;
        let place = asks(&endpoint.url, task);
        let server = place.serve(&[]);
        let id = server.run("t");
        let kept = || {
            let folder = place.path(".tenure/workspace/background/writer/t").join(&id);
            std::fs::read_to_string(folder.join("output.md")).unwrap_or_default()
        };
        live.say(delta("half"));
        until("what came is kept", || kept() == "half");
        live.die();
        let run = server.until(&id, status);
        let attempts = attempts_of(&server, &id);
        let attempts: Vec<_> =
            attempts.iter().map(|(status, class)| (status.as_str(), class.as_str())).collect();
        assert_eq!(attempts, ended, "{run}");
        assert_eq!(kept(), if status == "completed" { "all of it" } else { "half" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn to_cancel_hangs_up_whoever_asks_for_it() {
    // Over HTTP, in the middle of an answer.
    let (mut live, reply) = Live::new();
    let endpoint = Endpoint::new(vec![reply]).await;
    let place = asks(&endpoint.url, "");
    let server = place.serve(&[]);
    let id = server.run("t");
    endpoint.asked().await;
    live.say(delta("half"));
    let answer = server.post(&format!("/background/runs/{id}/cancel"), r#"{"reason": "enough"}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    live.hung_up().await;
    let run = server.until(&id, "cancelled");
    assert_eq!(run["cancel_reason"], "enough");
    // By Ctrl-C, before there is any.
    let silent = Silent::new();
    let place = asks(&silent.url, "");
    let run = place.start(&["run", "tenure.toml"]);
    let call = silent.asked();
    run.signal(Signal::INT);
    call.hung_up();
    let done = run.done();
    assert_eq!(done.code, Some(6), "{done:?}");
}
