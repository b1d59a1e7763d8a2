//! Runs over HTTP.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tenure::http::HttpOptions;
use tenure::model::{EventKind, Subject};

use crate::support::{LIMIT, Served};

fn id(run: &Value) -> &str {
    run["run_id"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_wanted_and_found_at_its_location() {
    let served = Served::new().await;
    served.task("echo", json!({})).await;
    let wanted = served.call(Method::POST, "/background/tasks/echo/run").await;
    let run = wanted.expect(202);
    assert_eq!(wanted.header("location"), format!("/background/runs/{}", id(run)));
    let settled = served.get(&format!("{}?wait=true", wanted.header("location"))).await;
    assert_eq!(settled.expect(200)["status"], "completed");
    let other = served.post("/background/tasks/echo/run", json!({ "query": "another", "wait": true })).await;
    assert_eq!(other.expect(200)["result"]["text"], "another");
    served.post("/background/tasks/echo/run", json!({ "query": " " })).await.invalid(&["query"]);
    served.post("/background/tasks/echo/run", json!({ "waits": true })).await.invalid(&["waits"]);
    served.post("/background/tasks/echo/run", json!({ "wait": "yes" })).await.invalid(&["wait"]);
    let attempts = served.get(&format!("/background/runs/{}/attempts", id(&other.json))).await;
    assert_eq!(attempts.expect(200).as_array().unwrap().len(), 1);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_its_time_and_the_run_goes_on() {
    let served = Served::new().await;
    served.task("held", json!({ "overlap_policy": "queue_next" })).await;
    let wanted =
        served.post("/background/tasks/held/run", json!({ "wait": true, "timeout_seconds": 0.05 })).await;
    let run = wanted.expect(202).clone();
    let later =
        served.post("/background/tasks/held/run", json!({ "wait": true, "timeout_seconds": 0 })).await;
    served.happened(Subject::All, EventKind::Started).await;
    let waiting = served.get(&format!("/background/runs/{}", id(later.expect(202)))).await;
    assert_eq!(waiting.expect(200)["waiting"]["reason"]["holders"], json!([id(&run)]), "{}", waiting.text);
    served.gate.add_permits(2);
    for run in [&run, &later.json] {
        let settled = served.get(&format!("/background/runs/{}?wait=true&timeout_seconds=15", id(run))).await;
        assert_eq!(settled.expect(200)["status"], "completed");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_repeated_request_the_same_run() {
    let served = Served::new().await;
    served.task("echo", json!({ "overlap_policy": "allow_parallel" })).await;
    let ask = async |key: &str, body: Value| {
        let path = "/background/tasks/echo/run";
        served.ask(path, served.request(Method::POST, path).header("idempotency-key", key).json(&body)).await
    };
    let first = ask("a", json!({ "wait": true })).await;
    let first = first.expect(200);
    assert_eq!(first["idempotency_key"], "a");
    let again = ask("a", json!({ "wait": true })).await;
    assert_eq!(again.expect(200), first);
    assert_eq!(
        ask("a", json!({})).await.expect(202)["run_id"],
        first["run_id"],
        "how it is waited for is no other"
    );
    let other = ask("a", json!({ "query": "other" })).await;
    assert_eq!(other.problem(409, "key_conflict")["run_id"], first["run_id"]);
    assert_ne!(ask("b", json!({})).await.expect(202)["run_id"], first["run_id"]);
    ask("", json!({})).await.invalid(&["Idempotency-Key"]);
    ask(&"k".repeat(256), json!({})).await.invalid(&["Idempotency-Key"]);
    let path = "/background/tasks/echo/run";
    let twice =
        served.request(Method::POST, path).header("idempotency-key", "c").header("idempotency-key", "d");
    served.ask(path, twice).await.invalid(&["Idempotency-Key"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p15_runs_are_cancelled_answered_and_done_again() {
    let served = Served::new().await;
    served.task("held", json!({})).await;
    served.task("ask", json!({})).await;
    served.task("fail", json!({})).await;
    let run = served.post("/background/tasks/held/run", json!({})).await;
    let run = run.expect(202);
    served.happened(Subject::All, EventKind::Started).await;
    let cancel = format!("/background/runs/{}/cancel", id(run));
    let nobody = json!({ "reason": "x".repeat(5_000), "by": " " });
    served.post(&cancel, nobody).await.invalid(&["reason", "by"]);
    let cancelled = served.post(&cancel, json!({ "reason": "enough", "by": "alice" })).await;
    let cancelled = cancelled.expect(200);
    assert_eq!(
        (&cancelled["cancel_reason"], &cancelled["cancelled_by"]),
        (&json!("enough"), &json!("alice"))
    );
    let ended = served.get(&format!("/background/runs/{}?wait=true", id(run))).await;
    let ended = ended.expect(200);
    let again =
        served.post(&format!("/background/runs/{}/cancel", id(run)), json!({ "mode": "force" })).await;
    assert_eq!(again.expect(200)["version"], ended["version"], "one that has ended is answered as it is");
    served
        .post(&format!("/background/runs/{}/cancel", id(run)), json!({ "mode": "gently" }))
        .await
        .invalid(&["mode"]);

    let asked = served.post("/background/tasks/ask/run", json!({ "wait": true })).await;
    let asked = asked.expect(200);
    assert_eq!(
        (&asked["status"], &asked["approval"]["question"]),
        (&json!("awaiting_approval"), &json!("may I?"))
    );
    let resume = format!("/background/runs/{}/resume", id(asked));
    served.post(&resume, json!({ "answer": 1 })).await.invalid(&["approved"]);
    served.post(&resume, json!({ "approved": "yes", "anser": 1 })).await.invalid(&["anser", "approved"]);
    let digits = r#"{"approved": true, "answer": {"cost": 123456789012345678901234567890}}"#;
    let lost = served.request(Method::POST, &resume).header("content-type", "application/json").body(digits);
    let lost = served.ask(&resume, lost).await;
    lost.invalid(&["answer"]);
    assert!(lost.text.contains("123456789012345678901234567890"), "by name: {}", lost.text);
    served.call(Method::POST, &resume).await.problem(400, "unparsable");
    let answer = json!({ "by": "a person", "cost": 9_007_199_254_740_993_u64 });
    let resumed = served.post(&resume, json!({ "approved": true, "answer": answer })).await;
    assert_eq!(resumed.expect(200)["approval"]["answer"]["answer"]["cost"], 9_007_199_254_740_993_u64);
    let answered = served.get(&format!("/background/runs/{}?wait=true", id(asked))).await;
    assert_eq!(answered.expect(200)["result"]["text"], "approved: true");
    let late = served.post(&resume, json!({ "approved": true })).await;
    assert_eq!(late.problem(409, "wrong_state")["run_id"], asked["run_id"]);

    let failed = served.post("/background/tasks/fail/run", json!({ "wait": true })).await;
    let failed = failed.expect(200);
    assert_eq!(failed["error"]["class"], "exception");
    let retry = format!("/background/runs/{}/retry", id(failed));
    let done = served.post(&retry, json!({ "wait": true, "query": "anew" })).await;
    let done = done.expect(200);
    assert_eq!((&done["retry_of"], &done["query_snapshot"]), (&failed["run_id"], &json!("anew")));
    served.post(&retry, json!({ "override_pause": true })).await.invalid(&["override_pause"]);
    let held = served.post("/background/tasks/held/run", json!({})).await;
    let running = format!("/background/runs/{}/retry", id(held.expect(202)));
    served.call(Method::POST, &running).await.problem(409, "wrong_state");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t40_runs_are_cancelled_by_what_they_have_in_common() {
    let served = Served::new().await;
    let parallel = json!({ "overlap_policy": "allow_parallel" });
    served.task("held", parallel.clone()).await;
    served.task("nobody", parallel).await;
    let running = served.post("/background/tasks/held/run", json!({})).await;
    served.happened(Subject::All, EventKind::Started).await;
    for n in 0..3 {
        let query = format!("Number {n}");
        served.post("/background/tasks/nobody/run", json!({ "query": query })).await.expect(202);
    }
    let path = "/background/runs/cancel";
    served.post(path, json!({})).await.invalid(&["body"]);
    served.post(path, json!({ "status": [], "mode": "force" })).await.invalid(&["body"]);
    served.post(path, json!({ "status": ["gone"] })).await.invalid(&["status[0]"]);
    served.post(path, json!({ "task_id": "nobody", "text": "" })).await.invalid(&["text"]);
    served.post(path, json!({ "tasks": "nobody" })).await.invalid(&["tasks"]);
    let all = served.get("/background/runs?status=queued").await;
    assert_eq!(all.expect(200)["total"], 3, "what was refused cancelled nothing");

    let met = async |filter: Value| served.post(path, filter).await.expect(200).clone();
    let one = json!({ "text": "number 1", "task_id": "nobody", "reason": "not that" });
    assert_eq!(met(one).await, json!({ "ended": 1, "requested": 0 }));
    let cancelled = served.get("/background/runs?status=cancelled").await;
    let cancelled = cancelled.expect(200)["runs"][0].clone();
    assert_eq!(
        (&cancelled["query_snapshot"], &cancelled["cancel_reason"]),
        (&json!("Number 1"), &json!("not that"))
    );
    for filter in [json!({ "status": ["completed"] }), json!({ "task_id": "unknown" })] {
        assert_eq!(met(filter.clone()).await, json!({ "ended": 0, "requested": 0 }), "{filter}");
    }
    let early = json!({ "created_before": "2020-01-01T00:00:00Z", "trigger_type": "manual" });
    assert_eq!(met(early).await, json!({ "ended": 0, "requested": 0 }));
    let live = json!({ "status": ["queued", "running"], "created_after": "2020-01-01T00:00:00Z" });
    assert_eq!(met(live).await, json!({ "ended": 2, "requested": 1 }));
    let ended = served.get(&format!("/background/runs/{}?wait=true", id(running.expect(202)))).await;
    assert!(ended.expect(200)["cancel_requested_at"].is_string(), "its agent was told, and let go");
    assert_eq!(met(json!({ "agent_id": "nobody" })).await, json!({ "ended": 0, "requested": 0 }), "again");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_by_filter_and_page() {
    let served = Served::new().await;
    served.task("echo", json!({ "session_policy": { "type": "fixed", "session_id": "s 1" } })).await;
    served.task("fail", json!({})).await;
    for n in 0..5 {
        served
            .post("/background/tasks/echo/run", json!({ "wait": true, "query": format!("Number {n}") }))
            .await
            .expect(200);
    }
    let failed = served.post("/background/tasks/fail/run", json!({ "wait": true })).await;
    let (count, all) = (
        async |filter: &str| {
            let told = served.get(&format!("/background/runs?{filter}")).await;
            assert_eq!(told.expect(200)["total"], told.json["runs"].as_array().unwrap().len(), "{filter}");
            told.json["total"].as_u64().unwrap()
        },
        6,
    );
    assert_eq!(count("").await, all);
    for (filter, found) in [
        ("task_id=echo", 5),
        ("task_id=nobody", 0),
        ("agent_id=fail", 1),
        ("session_id=s+1", 5),
        ("status=completed", 5),
        ("status=completed&status=failed", 6),
        ("status=queued", 0),
        ("trigger_type=manual", 6),
        ("trigger_type=schedule", 0),
        ("created_after=2020-01-01T00:00:00Z", 6),
        ("created_before=2020-01-01T00:00:00Z", 0),
        ("text=NUMBER", 5),
        ("text=number%203&status=completed&task_id=echo", 1),
    ] {
        assert_eq!(count(filter).await, found, "{filter}");
    }
    let queued_at = failed.json["queued_at"].as_str().unwrap();
    assert_eq!(count(&format!("created_after={queued_at}&task_id=fail")).await, 1, "at is after");
    assert_eq!(count(&format!("created_before={queued_at}&task_id=fail")).await, 0);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/background/runs?limit=2&task_id=echo{cursor}")).await;
        let page = page.expect(200);
        assert_eq!(page["total"].as_u64().unwrap(), 5 + u64::try_from(seen.len() / 2).unwrap());
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["query_snapshot"].clone()));
        // What is added meanwhile is on no later page.
        served.post("/background/tasks/echo/run", json!({ "wait": true })).await.expect(200);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["Number 4", "Number 3", "Number 2", "Number 1", "Number 0"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_wait_than_there_is_room_for_and_nothing_is_wanted_by_one_that_cannot() {
    let served = Served::with(HttpOptions { max_waits: 1, ..HttpOptions::default() }).await;
    served.task("held", json!({ "overlap_policy": "allow_parallel" })).await;
    let path = "/background/tasks/held/run";
    let body = json!({ "wait": true });
    let waits = served.send(Method::POST, path, body.clone());
    let other = async {
        served.happened(Subject::All, EventKind::Started).await;
        let refused = served.post(path, body.clone()).await;
        refused.problem(503, "busy");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(served.get("/background/runs").await.expect(200)["total"], 1);
        served.post(path, json!({})).await.expect(202);
        served.gate.add_permits(2);
    };
    let (waited, ()) = tokio::join!(waits, other);
    assert_eq!(waited.expect(200)["status"], "completed");
    assert_eq!(
        served.post(path, json!({ "wait": true, "timeout_seconds": 0 })).await.expect(202)["status"],
        "queued"
    );
    served.gate.add_permits(1);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_its_caller_gave_up_leaves_its_place() {
    let served = Served::with(HttpOptions { max_waits: 1, ..HttpOptions::default() }).await;
    served.task("held", json!({ "overlap_policy": "allow_parallel" })).await;
    let path = "/background/tasks/held/run";
    let given_up = served.request(Method::POST, path).json(&json!({ "wait": true }));
    let given_up = given_up.timeout(Duration::from_millis(300)).send().await;
    assert!(given_up.is_err_and(|error| error.is_timeout()));
    served.gate.add_permits(2);
    // The place is free when the connection is seen to be closed.
    let free = async { while served.post(path, json!({ "wait": true })).await.status != 200 {} };
    tokio::time::timeout(LIMIT, free).await.expect("the place was not left");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_runs_ends_at_its_bytes_and_goes_on_where_it_ended() {
    let served = Served::new().await;
    // Each takes half a megabyte in a list: far more than fit on one page.
    let query = "q".repeat(500_000);
    served.task("held", json!({ "query": query, "overlap_policy": "queue_next" })).await;
    let task_id = "held".to_owned().try_into().unwrap();
    for _ in 0..40 {
        served.tenure.run_now(&task_id, tenure::RunRequest::default()).await.unwrap();
    }
    let (mut names, mut path) = (std::collections::BTreeSet::new(), "/background/runs?limit=1000".to_owned());
    let mut pages = 0;
    loop {
        let page = served.get(&path).await;
        let runs = page.expect(200)["runs"].as_array().unwrap();
        assert!(page.text.len() < (9 << 20), "a page of {} bytes", page.text.len());
        assert!(!runs.is_empty() && runs.iter().all(|run| names.insert(id(run).to_owned())), "each once");
        pages += 1;
        match page.json["next_cursor"].as_str() {
            Some(next) => path = format!("/background/runs?limit=1000&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((names.len(), pages), (40, 3), "8 MiB hold 17 of them");
    served
        .tenure
        .cancel_runs(
            tenure::store::RunFilter { task_id: Some(task_id), ..Default::default() },
            &tenure::rules::CancelRequest {
                mode: tenure::model::CancelMode::Cooperative,
                reason: "over".into(),
                requested_by: "the test".into(),
                force_after: None,
            },
        )
        .await
        .unwrap();
    served.end().await;
}
