//! How the host is.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use tenure::clock::SystemClock;
use tenure::http::HttpOptions;
use tenure::store::faulty::{self, Fault, Faulty};
use tenure::store::{MemoryStore, Store};

use crate::schema;
use crate::support::Served;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_ready_while_its_store_answers_and_it_is_not_shut_down() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(faulty.clone(), HttpOptions::default()).await;
    served.task("echo", json!({})).await;
    assert_eq!(served.get("/readyz").await.expect(200)["ready"], true);
    faulty.close().await.unwrap();
    let told = served.get("/readyz").await;
    let told = told.expect(503);
    assert_eq!(told, &json!({ "ready": false, "store": "failing", "draining": false }));
    served.get("/healthz").await.expect(200);
    for (path, method) in [
        ("/background/status", Method::GET),
        ("/background/tasks/echo", Method::GET),
        ("/background/runs", Method::GET),
        ("/background/tasks/echo/run", Method::POST),
        ("/background/tasks/echo/pause", Method::POST),
    ] {
        let told = served.call(method, path).await;
        told.problem(503, "store_unavailable");
        assert_eq!(told.header("retry-after"), "1", "{path}");
    }
    let metrics = served.get("/metrics").await;
    metrics.expect(200);
    assert!(metrics.text.contains("tenure_store_up 0\n"), "{}", metrics.text);
    assert!(!metrics.text.contains("tenure_runs{"), "{}", metrics.text);
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_shut_down_says_so_and_wants_nothing_new() {
    let served = Served::new().await;
    served.task("echo", json!({})).await;
    served.tenure.shutdown().await.unwrap();
    let told = served.get("/readyz").await;
    assert_eq!((&told.expect(503)["ready"], &told.json["draining"]), (&json!(false), &json!(true)));
    let refused = served.call(Method::POST, "/background/tasks/echo/run").await;
    refused.problem(503, "draining");
    assert_eq!(refused.header("retry-after"), "5");
    assert_eq!(served.get("/background/status").await.expect(200)["running"], false);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_told_to_prometheus() {
    let served = Served::new().await;
    served.task("echo", json!({})).await;
    served.task("fail", json!({})).await;
    served.post("/background/tasks/echo/run", json!({ "wait": true })).await.expect(200);
    served.post("/background/tasks/fail/run", json!({ "wait": true })).await.expect(200);
    served.get("/background/tasks/nobody").await.expect(404);
    served.get("/nothing").await.expect(404);
    let told = served.get("/metrics").await;
    told.expect(200);
    assert_eq!(told.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "tenure_runs{status=\"completed\"} 1",
        "tenure_runs{status=\"failed\"} 1",
        "tenure_runs{status=\"queued\"} 0",
        "tenure_store_up 1",
        "tenure_draining 0",
        "tenure_executing_attempts 0",
        "tenure_agents 4",
        "tenure_http_requests_total{route=\"/background/tasks/{task_id}\",method=\"GET\",status=\"404\"} 1",
        "tenure_http_requests_total{route=\"none\",method=\"GET\",status=\"404\"} 1",
        "tenure_http_request_seconds_count{route=\"/background/tasks/{task_id}/run\",method=\"POST\"} 2",
        "# TYPE tenure_http_request_seconds histogram",
    ] {
        assert!(told.text.lines().any(|found| found == line), "{line}:\n{}", told.text);
    }
    // What hosts count is of the whole OS process, and other tests run in it.
    for start in [
        "tenure_claims_total ",
        "tenure_attempts_total{outcome=\"completed\"} ",
        "tenure_attempt_seconds_count ",
    ] {
        assert!(told.text.lines().any(|found| found.starts_with(start)), "{start}:\n{}", told.text);
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_shows_what_lives() {
    let served = Served::new().await;
    let tree = served.get("/background/tree").await;
    let generations = tree.expect(200)["generations"].as_array().unwrap();
    assert_eq!((generations.len(), &generations[0]["open"]), (1, &json!(true)));
    let roles: Vec<String> = generations[0]["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| child["name"].to_string())
        .collect();
    for service in ["claimer", "scheduler", "heartbeat", "recorder"] {
        assert!(roles.iter().any(|role| role.contains(service)), "{service}: {roles:?}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_described_is_served_and_what_is_served_is_described() {
    let served = Served::new().await;
    let told = served.get("/openapi.json").await;
    assert_eq!(told.expect(200), schema::document());
    assert_eq!(schema::document()["openapi"], "3.1.0");
    for (path, method, _) in schema::operations() {
        // A name that is none: found is the route, and nothing more.
        let asked = path.replace(['{', '}'], "x");
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        let told = served.call(method.clone(), &asked).await;
        assert!(!told.text.contains("nothing is served at"), "{method} {path}: {}", told.text);
        assert_ne!(told.status, 405, "{method} {path}");
    }
    let described = |path: &str| {
        let operations = schema::operations().into_iter().filter(|(of, ..)| *of == path);
        let mut methods: Vec<String> = operations.map(|(_, method, _)| method.to_ascii_uppercase()).collect();
        if methods.contains(&"GET".to_owned()) {
            methods.push("HEAD".to_owned());
        }
        methods.sort();
        methods
    };
    for path in schema::document()["paths"].as_object().unwrap().keys() {
        let asked = path.replace(['{', '}'], "x");
        let told = served.call(Method::TRACE, &asked).await;
        told.problem(405, "method_not_allowed");
        let mut allowed: Vec<&str> = told.header("allow").split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed, described(path), "{path}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_answered_in_time_though_the_store_hangs() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let request_timeout = std::time::Duration::from_millis(100);
    let options = HttpOptions { request_timeout, ..HttpOptions::default() };
    let served = Served::on(faulty.clone(), options).await;
    served.task("echo", json!({})).await;
    let hangs = || (0..3).map(|_| Some(Fault::Hang));
    faulty.script(faulty::Method::Task, hangs());
    faulty.script(faulty::Method::Run, hangs());
    for (path, method) in [
        ("/background/tasks/echo", Method::GET),
        ("/background/tasks/echo/run", Method::POST),
        ("/background/runs/r", Method::GET),
        ("/background/runs/r?wait=true", Method::GET),
        ("/background/runs/r/events", Method::GET),
        ("/background/tasks/echo/status", Method::GET),
    ] {
        let told = served.call(method, path).await;
        told.problem(503, "timeout");
        assert_eq!(told.header("retry-after"), "1", "{path}");
    }
    served.get("/background/tasks/echo").await.expect(200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_run_is_not_told_that_there_is_none_when_the_store_fails_meanwhile() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(faulty.clone(), HttpOptions::default()).await;
    served.task("elsewhere", json!({ "overlap_policy": "allow_parallel" })).await;
    let path = "/background/tasks/elsewhere/run";
    let many = || (0..3).map(|_| Some(Fault::Refuse));
    faulty.script(faulty::Method::Run, [Some(Fault::Refuse)]);
    let told = served.post(path, json!({ "wait": true, "timeout_seconds": 0.2 })).await;
    let run = told.expect(202)["run_id"].as_str().unwrap();
    assert_eq!(told.header("location"), format!("/background/runs/{run}"));
    faulty.script(faulty::Method::Run, many());
    let waits = json!({ "wait": true, "timeout_seconds": 20 });
    let told = tokio::join!(served.post(path, waits), async {
        // Each of these is looked for by who waits, who looks again.
        while faulty.calls(faulty::Method::Run) < 5 {
            tokio::task::yield_now().await;
        }
        served
            .tenure
            .register_agent("elsewhere", |_: tenure::RunContext| async { Ok("done".into()) })
            .unwrap();
    });
    assert_eq!(told.0.expect(200)["status"], "completed");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_run_is_answered_when_the_time_is_up_though_the_store_hangs() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(faulty.clone(), HttpOptions::default()).await;
    served.task("elsewhere", json!({})).await;
    // The look of who waits, and the look for why it waits.
    faulty.script(faulty::Method::Run, [Some(Fault::Hang), Some(Fault::Hang)]);
    let wanted = json!({ "wait": true, "timeout_seconds": 0.1 });
    let told = served.post("/background/tasks/elsewhere/run", wanted).await;
    assert_eq!(told.expect(202)["status"], "queued");
    assert!(faulty.calls(faulty::Method::Run) >= 2, "both were tried");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_answer_a_caller_is_told_that_it_may_have_been_done() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(faulty.clone(), HttpOptions::default()).await;
    served.tenure.unregister_agent(&"echo".to_owned().try_into().unwrap());
    served.task("echo", json!({})).await;
    let path = "/background/tasks/echo/run";
    let ask = async || {
        let request = served.request(Method::POST, path).header("idempotency-key", "once").json(&json!({}));
        served.ask(path, request).await
    };
    faulty.script(faulty::Method::Commit, [Some(Fault::LoseAnswer)]);
    let told = ask().await;
    assert!(told.problem(503, "store_unknown")["hint"].as_str().unwrap().contains("Idempotency-Key"));
    ask().await.expect(202);
    assert_eq!(served.get("/background/runs").await.expect(200)["total"], 1, "asked twice, made once");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_store_takes_nothing_is_not_ready_though_it_answers() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(faulty.clone(), HttpOptions::default()).await;
    // Nobody executes it, so that nothing is written but what is asked for here.
    served.tenure.unregister_agent(&"echo".to_owned().try_into().unwrap());
    served.task("echo", json!({})).await;
    served.get("/readyz").await.expect(200);
    faulty.script(faulty::Method::Commit, [Some(Fault::Refuse)]);
    served.call(Method::POST, "/background/tasks/echo/pause").await.problem(503, "store_unavailable");
    // Looks are answered all the while.
    served.get("/background/tasks/echo").await.expect(200);
    let told = served.get("/readyz").await;
    assert_eq!(told.expect(503), &json!({ "ready": false, "store": "failing", "draining": false }));
    served.call(Method::POST, "/background/tasks/echo/pause").await.expect(200);
    served.get("/readyz").await.expect(200);
    served.end().await;
}
