//! Whatever is wrong with a request is told, with the right status, and nothing is stored.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{LIMIT, Served, Told};
use tenure::http::HttpOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TASKS: &str = "/background/tasks";

impl Served {
    /// Sends a body as it is.
    async fn raw(&self, path: &str, media_type: &str, body: impl Into<reqwest::Body>) -> Told {
        let request = self.request(Method::POST, path).header("content-type", media_type).body(body.into());
        self.ask(path, request).await
    }

    /// Sends bytes, and answers what came until the connection was closed.
    pub(crate) async fn bytes(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(LIMIT, read).await.expect("the connection was not closed").unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p15_what_is_wrong_with_a_task_is_named_field_by_field_and_nothing_is_stored() {
    let served = Served::new().await;
    let good = json!({ "task_id": "t", "agent_id": "echo", "query": "q" });
    let with = |field: &str, value: Value| {
        let mut task = good.clone();
        task[field] = value;
        task
    };
    let cases: [(Value, &[&str]); 16] = [
        (with("colour", json!(1)), &["colour"]),
        (with("task_id", json!("../x")), &["task_id"]),
        (with("task_id", json!("..")), &["task_id"]),
        (with("query", json!("  ")), &["query"]),
        (with("query", json!(7)), &["query"]),
        (with("timeout_seconds", json!(0)), &["timeout_seconds"]),
        (with("timeout_seconds", json!("60")), &["timeout_seconds"]),
        (with("schedule", json!({ "type": "cron", "expression": "61 * * * *" })), &["schedule.expression"]),
        (
            with("schedule", json!({ "type": "cron", "expression": "@daily", "timezone": "Mars/Olympus" })),
            &["schedule.timezone"],
        ),
        (with("schedule", json!({ "type": "manual", "every": 5 })), &["schedule.every"]),
        (
            with("workspace_policy", json!({ "namespace_template": "../{run_id}" })),
            &["workspace_policy.namespace_template"],
        ),
        (with("retry_policy", json!([3])), &["retry_policy"]),
        (with("workspace_policy", json!(["{run_id}"])), &["workspace_policy"]),
        (json!(["t", "echo", "q"]), &["body"]),
        (
            json!({ "task_id": 7, "agent_id": "echo", "qery": "q", "priority": "high", "timeout_seconds": 0,
                    "schedule": { "type": "interval", "secs": 5 }, "retry_policy": { "max_retries": -1 } }),
            // What cannot be read first, and then what makes no sense.
            &[
                "priority",
                "qery",
                "retry_policy.max_retries",
                "schedule.secs",
                "task_id",
                "query",
                "schedule.seconds",
                "timeout_seconds",
            ],
        ),
        (json!({}), &["task_id", "agent_id", "query"]),
    ];
    for (task, fields) in cases {
        served.post(TASKS, task).await.invalid(fields);
    }
    assert_eq!(served.get(TASKS).await.expect(200)["total"], 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_one_json_object_in_which_each_field_is_given_once() {
    let served = Served::with(HttpOptions { max_body_bytes: 1000, ..HttpOptions::default() }).await;
    let send = |body: &'static str| served.raw(TASKS, "application/json", body);
    for body in ["{", "nonsense", "{}{}", "{\"task_id\": }", "\u{1}"] {
        send(body).await.problem(400, "unparsable");
    }
    send("").await.problem(400, "unparsable");
    served.raw(TASKS, "application/json", vec![b'"', 0xff, b'"']).await.problem(400, "unparsable");
    let twice = r#"{"task_id":"a","agent_id":"echo","query":"q","task_id":"b"}"#;
    send(twice).await.invalid(&["task_id"]);
    let twice = r#"{"task_id":"a","agent_id":"echo","query":"q","metadata":{"x":1,"\u0078":2}}"#;
    send(twice).await.invalid(&["x"]);
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    served.raw(TASKS, "application/json", deep).await.invalid(&["body"]);
    for media_type in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "json"]
    {
        served.raw(TASKS, media_type, "{}").await.problem(415, "media_type");
    }
    served.raw(TASKS, "application/json", "x".repeat(1001)).await.problem(413, "too_large");
    let chunks = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>("x".repeat(100))));
    let told = served.raw(TASKS, "application/json", reqwest::Body::wrap_stream(chunks)).await;
    told.problem(413, "too_large");
    assert_eq!(served.get(TASKS).await.expect(200)["total"], 0);
    let task = r#"{"task_id":"a","agent_id":"echo","query":"q","metadata":{"x":1.10,"y":1e999}}"#;
    // No reader of ours keeps these digits: the text is looked at.
    let media_type = "Application/JSON; Charset=UTF-8";
    let request = served.request(Method::POST, TASKS).header("content-type", media_type).body(task);
    let told = Told::of(request.send().await.unwrap()).await;
    assert_eq!(told.status, 201, "{}", told.text);
    assert!(told.text.contains(r#""metadata":{"x":1.10,"y":1e999}"#), "digit for digit: {}", told.text);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_a_surrogate_pair_is_refused_by_name_and_nothing_is_stored() {
    let served = Served::new().await;
    let send = async |path: &str, body: &str| served.raw(path, "application/json", body.to_owned()).await;
    let task = |query: &str, metadata: &str| {
        format!(r#"{{"task_id":"t","agent_id":"ask","query":"{query}","metadata":{metadata}}}"#)
    };
    send(TASKS, &task(r"\ud800", "{}")).await.invalid(&["query"]);
    send(TASKS, &task("q", r#"{"a":"\udfff"}"#)).await.invalid(&["metadata"]);
    send(TASKS, &task("q", r#"{"\ud800":1,"\udc00":2}"#)).await.invalid(&[r"\ud800"]);
    assert_eq!(served.get(TASKS).await.expect(200)["total"], 0);
    send(TASKS, &task(r"\ud83d\ude00", "{}")).await.expect(201);
    let run = format!("{TASKS}/t/run");
    send(&run, r#"{"query":"\ud800"}"#).await.invalid(&["query"]);
    assert_eq!(served.get("/background/runs").await.expect(200)["total"], 0);
    let asked = send(&run, r#"{"wait":true}"#).await;
    let asked = asked.expect(200);
    assert_eq!(
        (&asked["status"], &asked["query_snapshot"]),
        (&json!("awaiting_approval"), &json!("\u{1f600}"))
    );
    let run = format!("/background/runs/{}", asked["run_id"].as_str().unwrap());
    send(&format!("{run}/resume"), r#"{"approved":true,"answer":["\ud800"]}"#).await.invalid(&["answer"]);
    assert_eq!(served.get(&run).await.expect(200)["status"], "awaiting_approval");
    send(&format!("{run}/cancel"), r#"{"reason":"\ud800"}"#).await.invalid(&["reason"]);
    let answered = send(&format!("{run}/resume"), r#"{"approved":true,"answer":"\ud83d\ude00"}"#).await;
    answered.expect(200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_not_taken_for_the_fields_in_their_order_and_null_is_no_body() {
    let served = Served::new().await;
    served.post(TASKS, json!({ "task_id": "t", "agent_id": "echo", "query": "q" })).await.expect(201);
    for path in ["run", "pause", "resume"].map(|verb| format!("{TASKS}/t/{verb}")) {
        for body in [json!([]), json!(["q"]), json!("q"), json!(5), json!(true)] {
            served.post(&path, body).await.invalid(&["body"]);
        }
    }
    assert_eq!(served.get("/background/runs").await.expect(200)["total"], 0);
    served.post(&format!("{TASKS}/t/run"), Value::Null).await.expect(202);
    served.post(TASKS, Value::Null).await.problem(400, "unparsable");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_a_query_that_are_not_known_are_refused_by_name() {
    let served = Served::new().await;
    served
        .get("/background/runs?colour=red&limit=0&status=done")
        .await
        .invalid(&["status", "limit", "colour"]);
    served.get("/background/runs?limit=5&limit=6").await.invalid(&["limit"]);
    served.get("/background/runs?limit=1001").await.invalid(&["limit"]);
    served
        .get("/background/runs?task_id=a%2fb&created_after=yesterday")
        .await
        .invalid(&["task_id", "created_after"]);
    served.get("/background/runs?cursor=nonsense").await.invalid(&["cursor"]);
    served.get("/background/tasks?cursor=nonsense").await.invalid(&["cursor"]);
    served.get("/background/runs?text=").await.invalid(&["text"]);
    served.get("/background/status?verbose=1").await.invalid(&["verbose"]);
    served.get("/background/events?after=-1").await.invalid(&["after"]);
    served.call(Method::DELETE, "/background/tasks/t?running=perhaps").await.invalid(&["running"]);
    served.get("/background/tasks/a%2f..").await.invalid(&["task_id"]);
    served.get("/background/runs/%00").await.invalid(&["run_id"]);
    served.get("/background/runs/%ff").await.problem(400, "unparsable");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p15_what_does_not_exist_and_what_cannot_be_done_is_told() {
    let served = Served::new().await;
    for path in ["/", "/background", "/background/", "/background/nothing", "/background/tasks/", "/nothing"]
    {
        served.get(path).await.problem(404, "not_found");
    }
    for path in [
        "/background/tasks/t",
        "/background/tasks/t/status",
        "/background/tasks/t/occurrences",
        "/background/runs/r",
        "/background/runs/r/attempts",
        "/background/runs/r/events",
        "/background/runs/r/workspace",
        "/background/runs/r/workspace/output.md",
        "/background/agents/nobody",
    ] {
        served.get(path).await.problem(404, "not_found");
    }
    for path in ["/background/tasks/t/run", "/background/tasks/t/pause", "/background/tasks/t/resume"] {
        served.call(Method::POST, path).await.problem(404, "not_found");
    }
    for path in ["/background/runs/r/cancel", "/background/runs/r/retry"] {
        served.call(Method::POST, path).await.problem(404, "not_found");
    }
    served.post("/background/runs/r/resume", json!({ "approved": true })).await.problem(404, "not_found");
    served.send(Method::PATCH, "/background/tasks/t", json!({})).await.problem(404, "not_found");
    served.call(Method::DELETE, "/background/tasks/t").await.problem(404, "not_found");
    let told = served.call(Method::PUT, "/background/tasks").await;
    told.problem(405, "method_not_allowed");
    let mut allowed: Vec<&str> = told.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    let refused = served.request(Method::GET, TASKS).header("accept", "text/html");
    served.ask(TASKS, refused).await.problem(406, "not_acceptable");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_say_which_host_it_is_for_is_refused() {
    let served = Served::new().await;
    let ask = async |line: &str, host: &str| {
        let head = format!("{line}\r\n{host}connection: close\r\n\r\n");
        served.bytes(head.as_bytes()).await
    };
    let line = "GET /background/tasks HTTP/1.1";
    for host in ["", "host: a b\r\n", "host: localhost\r\nhost: localhost\r\n"] {
        let answer = ask(line, host).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host:?}: {answer}");
        assert!(answer.contains("urn:tenure:problem:unparsable"), "{host:?}: {answer}");
        assert!(answer.contains("expected one header \\\"Host\\\""), "{host:?}: {answer}");
    }
    assert!(ask("GET /healthz HTTP/1.1", "").await.starts_with("HTTP/1.1 400 "));
    assert!(ask(line, "host: localhost\r\n").await.starts_with("HTTP/1.1 200 "));
    // Of whom speaks HTTP/1.0 it is not asked.
    assert!(ask("GET /background/tasks HTTP/1.0", "").await.starts_with("HTTP/1.0 200 "));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_requests_and_slow_callers_are_let_go() {
    let short = std::time::Duration::from_millis(300);
    // No less for the work than for the body, and no more.
    let options = HttpOptions {
        header_timeout: short,
        body_timeout: short,
        request_timeout: short,
        ..HttpOptions::default()
    };
    let served = Served::with(options).await;
    for idle in ["", "\r\n"] {
        assert_eq!(served.bytes(idle.as_bytes()).await, "", "nothing was asked for");
    }
    let whole = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answer = served.bytes(whole.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "it was kept open, and unused: {answer}");
    for begun in ["GET /background/tasks HTT", "GET /background/tasks HTTP/1.1\r\nhost: localhost\r\nx: "] {
        slow_head(&served.bytes(begun.as_bytes()).await);
        let after_another = served.bytes(format!("{whole}{begun}").as_bytes()).await;
        assert!(after_another.starts_with("HTTP/1.1 200 "), "{after_another}");
        let (_, second) = after_another.split_at(after_another.rfind("HTTP/1.1 ").unwrap());
        slow_head(second);
    }
    let head = "POST /background/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let answer = served.bytes(format!("{head}content-length: 100\r\n\r\n{{").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("urn:tenure:problem:request_timeout"), "{answer}");
    let answer = served.bytes(format!("{head}transfer-encoding: chunked\r\n\r\n1\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "it is not the work that took long: {answer}");
    for nonsense in ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let answer = served.bytes(nonsense.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    // It may be closed before all of it was sent.
    drop(stream.write_all(long.as_bytes()).await);
    let mut answer = Vec::new();
    drop(tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("it was not closed"));
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(served.get(TASKS).await.expect(200)["total"], 0);
    served.end().await;
}

/// That this answers a head of which a part has come.
#[track_caller]
fn slow_head(answer: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    assert!(head.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(head.contains("connection: close"), "{answer}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    let document: Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["type"], "urn:tenure:problem:request_timeout", "{answer}");
    assert_eq!(document["detail"], "the head did not arrive within 300ms", "{answer}");
    assert_eq!(document["instance"], "/background/tasks", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_too_much_is_heard_out_for_a_while_and_then_told() {
    let served = Served::with(HttpOptions { max_body_bytes: 1000, ..HttpOptions::default() }).await;
    let head = "POST /background/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                connection: close\r\n";
    // More than what lies between the two holds: a caller that was cut off would see that, and no answer.
    let body = "x".repeat(12 << 20);
    let announced = format!("{head}content-length: {}\r\n\r\n", body.len());
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    for (head, end) in [(announced, ""), (chunked, "\r\n0\r\n\r\n")] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        for part in [head.as_str(), &body, end] {
            let sent = tokio::time::timeout(LIMIT, stream.write_all(part.as_bytes())).await;
            sent.expect("it is taken").expect("nobody is cut off while it sends");
        }
        let mut answer = Vec::new();
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("urn:tenure:problem:too_large"), "{answer}");
    }
    served.end().await;
}
