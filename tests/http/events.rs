//! Events as lists and streams.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};
use tenure::clock::SystemClock;
use tenure::http::HttpOptions;
use tenure::store::MemoryStore;
use tenure::store::faulty::{Faulty, Method};

use crate::support::{LIMIT, Served};

const STREAM: &str = "text/event-stream";

/// A stream as a reader has it.
pub(crate) struct Reader {
    response: Response,
    read: String,
}

/// What a stream told.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Reader {
    /// What comes next; comments are passed over. None at the end.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        loop {
            while let Some(end) = self.read.find("\n\n") {
                let block: String = self.read.drain(..end + 2).collect();
                if let Some(said) = said(&block) {
                    return Some(said);
                }
            }
            let chunk =
                tokio::time::timeout(LIMIT, self.response.chunk()).await.expect("the stream is silent");
            self.read.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }

    /// What comes next, as it was sent.
    async fn block(&mut self) -> String {
        loop {
            if let Some(end) = self.read.find("\n\n") {
                return self.read.drain(..end + 2).collect();
            }
            let chunk =
                tokio::time::timeout(LIMIT, self.response.chunk()).await.expect("the stream is silent");
            self.read.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
        }
    }

    /// A sign of life.
    async fn comment(&mut self) -> String {
        while !self.read.starts_with(':') {
            let chunk =
                tokio::time::timeout(LIMIT, self.response.chunk()).await.expect("the stream is silent");
            self.read.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
        }
        self.read.lines().next().unwrap().to_owned()
    }

    /// All that comes.
    async fn rest(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        while let Some(said) = self.next().await {
            all.push(said);
        }
        all
    }
}

fn said(block: &str) -> Option<Said> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    let data = serde_json::from_str(field("data: ")?).unwrap();
    let id = field("id: ").map(|id| id.parse().unwrap());
    Some(Said { id, event: field("event: ").unwrap().to_owned(), data })
}

impl Served {
    pub(crate) async fn stream(&self, path: &str, last: Option<u64>) -> Reader {
        let request = self.client.get(self.url(path)).header("accept", STREAM);
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], STREAM);
        Reader { response, read: String::new() }
    }

    async fn run(&self, task: &str, body: Value) -> String {
        let run = self.post(&format!("/background/tasks/{task}/run"), body).await;
        assert!(run.status.is_success(), "{}", run.text);
        run.json["run_id"].as_str().unwrap().to_owned()
    }
}

fn names(all: &[Said]) -> Vec<&str> {
    all.iter().map(|said| said.event.trim_start_matches("background_")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_the_past_of_a_run_then_what_comes_and_ends_with_it() {
    let served = Served::new().await;
    served.task("held", json!({})).await;
    let run_id = served.run("held", json!({})).await;
    let path = format!("/background/runs/{run_id}/events");
    let mut stream = served.stream(&path, None).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(stream.next().await.unwrap());
    }
    served.gate.add_permits(1);
    seen.extend(stream.rest().await);
    assert_eq!(names(&seen), ["run_queued", "run_claimed", "run_started", "run_completed", "end"]);
    let ids: Vec<Option<u64>> = seen.iter().map(|said| said.id).collect();
    assert_eq!(ids, [Some(1), Some(2), Some(3), Some(4), None]);
    assert_eq!(seen.last().unwrap().data, json!({ "reason": "settled", "status": "completed" }));
    assert_eq!(seen[3].data["run_id"], run_id);

    // The same from anywhere in between; and nothing more where all was seen.
    let listed = served.get(&path).await;
    let listed = listed.expect(200)["events"].clone();
    assert_eq!(
        seen[..4].iter().map(|said| said.data.clone()).collect::<Vec<_>>(),
        *listed.as_array().unwrap()
    );
    let rest = served.stream(&path, Some(2)).await.rest().await;
    assert_eq!(names(&rest), ["run_started", "run_completed", "end"]);
    let rest = served.stream(&format!("{path}?after=3"), None).await.rest().await;
    assert_eq!(names(&rest), ["run_completed", "end"]);
    let rest = served.stream(&format!("{path}?after=1"), Some(3)).await.rest().await;
    assert_eq!(names(&rest), ["run_completed", "end"], "where a reader left off counts");
    let over =
        served.request(reqwest::Method::GET, &path).header("accept", STREAM).header("last-event-id", 4);
    assert_eq!(served.ask(&path, over).await.status, 204, "a browser that asks again is told to stop");
    let wrong =
        served.request(reqwest::Method::GET, &path).header("accept", STREAM).header("last-event-id", "four");
    served.ask(&path, wrong).await.invalid(&["Last-Event-ID"]);
    let neither = served.request(reqwest::Method::GET, &path).header("accept", "text/html");
    served.ask(&path, neither).await.problem(406, "not_acceptable");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_events_are_read_page_by_page() {
    let served = Served::new().await;
    served.task("echo", json!({})).await;
    let run_id = served.run("echo", json!({ "wait": true })).await;
    let page = served.get(&format!("/background/runs/{run_id}/events?after=1&limit=2")).await;
    let page = page.expect(200);
    assert_eq!((&page["count"], &page["more"]), (&json!(2), &json!(true)));
    assert_eq!(page["events"][0]["sequence"], 2);
    let (mut cursor, mut all) = (0, 0);
    loop {
        let page = served.get(&format!("/background/events?after={cursor}&limit=2")).await;
        let page = page.expect(200);
        all += page["count"].as_u64().unwrap();
        cursor = page["cursor"].as_u64().unwrap();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(all, 5, "the task was made, the run queued, claimed, started and completed");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_all_events_begins_now_or_where_a_reader_left_off() {
    let served = Served::new().await;
    served.task("echo", json!({})).await;
    served.run("echo", json!({ "wait": true })).await;
    let mut now = served.stream("/background/events", None).await;
    let mut all = served.stream("/background/events", Some(0)).await;
    let second = served.run("echo", json!({ "wait": true })).await;
    let mut live = Vec::new();
    while live.len() < 4 {
        live.push(now.next().await.unwrap());
    }
    assert_eq!(names(&live), ["run_queued", "run_claimed", "run_started", "run_completed"]);
    assert!(
        live.iter().all(|said| said.data["run_id"] == *second && said.id == said.data["cursor"].as_u64())
    );
    let mut told = Vec::new();
    while told.len() < 9 {
        told.push(all.next().await.unwrap());
    }
    assert_eq!(told[5..], live);
    let again = served.stream("/background/events", told[3].id).await.next().await.unwrap();
    assert_eq!(again, told[4]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_says_that_it_is_open() {
    let keep_alive = Duration::from_millis(50);
    let served = Served::with(HttpOptions { keep_alive, ..HttpOptions::default() }).await;
    let mut stream = served.stream("/background/events", None).await;
    assert_eq!(stream.comment().await, ": keep-alive");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_task_and_its_runs_are_told_alone() {
    let options = HttpOptions { keep_alive: Duration::from_millis(20), ..HttpOptions::default() };
    let served = Served::with(options).await;
    served.task("echo", json!({})).await;
    served.task("fail", json!({})).await;
    let path = "/background/events?task_id=fail";
    let mut past = served.stream(path, Some(0)).await;
    let mut coming = served.stream(path, None).await;
    assert_eq!(past.next().await.unwrap().event, "background_task_created");
    for task in ["echo", "fail", "echo"] {
        served.run(task, json!({ "wait": true })).await;
    }
    for stream in [&mut past, &mut coming] {
        let mut names = Vec::new();
        for _ in 0..4 {
            let said = stream.next().await.unwrap();
            assert_eq!(said.data["task_id"], "fail");
            assert_eq!(said.id, said.data["cursor"].as_u64());
            names.push(said.event.trim_start_matches("background_").to_owned());
        }
        assert_eq!(names, ["run_queued", "run_claimed", "run_started", "run_failed"]);
    }
    // What is passed over counts: who comes back does not begin with it again.
    let all = served.get("/background/events").await;
    let newest = all.expect(200)["cursor"].as_u64().unwrap();
    let alive = |block: &str| block.contains(&format!("\nid: {newest}\n"));
    while !alive(&past.block().await) {}

    let list = served.get("/background/events?task_id=fail&limit=2").await;
    let list = list.expect(200).clone();
    assert_eq!((&list["count"], &list["more"]), (&json!(2), &json!(true)));
    let rest = served.get(&format!("{path}&after={}", list["cursor"])).await;
    let rest = rest.expect(200);
    assert_eq!((&rest["count"], &rest["more"], &rest["cursor"]), (&json!(3), &json!(false), &json!(newest)));
    let none = served.get("/background/events?task_id=unknown").await;
    assert_eq!((&none.expect(200)["count"], &none.json["cursor"]), (&json!(0), &json!(newest)));
    served.get("/background/events?task_id=a%20b").await.invalid(&["task_id"]);
    let run = list["events"][1]["run_id"].as_str().unwrap();
    served.get(&format!("/background/runs/{run}/events?task_id=fail")).await.invalid(&["task_id"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_streams_are_open_than_there_is_room_for() {
    let served = Served::with(HttpOptions { max_streams: 1, ..HttpOptions::default() }).await;
    served.task("echo", json!({})).await;
    let mut first = served.stream("/background/events", None).await;
    let request = served.request(reqwest::Method::GET, "/background/events").header("accept", STREAM);
    let refused = served.ask("/background/events", request).await;
    refused.problem(503, "busy");
    assert_eq!(refused.header("retry-after"), "1");
    served.get("/background/events").await.expect(200);
    served.run("echo", json!({})).await;
    assert_eq!(first.next().await.unwrap().event, "background_run_queued");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_are_all_told_by_one_reader_of_the_store() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(store.clone(), HttpOptions::default()).await;
    served.task("held", json!({})).await;
    let run_id = served.run("held", json!({})).await;
    let of_run = format!("/background/runs/{run_id}/events");
    let mut streams = Vec::new();
    for n in 0..1_000 {
        let (path, last) = if n % 2 == 0 { (&of_run[..], None) } else { ("/background/events", Some(0)) };
        let mut stream = served.stream(path, last).await;
        while stream.next().await.unwrap().event != "background_run_started" {}
        streams.push(stream);
    }
    let reads = store.calls(Method::Events);
    served.gate.add_permits(1);
    for stream in &mut streams {
        while stream.next().await.unwrap().event != "background_run_completed" {}
    }
    let reads = store.calls(Method::Events) - reads;
    assert!(reads < 20, "{reads} reads of the store for 1,000 streams");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_misses_nothing_and_slows_nobody() {
    let served = Served::new().await;
    served.task("echo", json!({ "overlap_policy": "allow_parallel" })).await;
    let mut slow = served.stream("/background/events", Some(0)).await;
    // It is not read meanwhile.
    const RUNS: usize = 500;
    let query = "x".repeat(1_000);
    for _ in 0..RUNS {
        served.run("echo", json!({ "query": query })).await;
    }
    let (mut completed, mut last, mut count) = (0, 0, 0);
    while completed < RUNS {
        let said = slow.next().await.unwrap();
        if let Some(id) = said.id {
            assert!(id > last, "in order, each once");
            (last, count) = (id, count + 1);
        }
        completed += usize::from(said.event == "background_run_completed");
    }
    assert_eq!(count, 4 * RUNS + 1, "of every run that it was queued, claimed, started and completed");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_waits_are_told_when_the_interface_is_shut_down() {
    let mut served = Served::new().await;
    served.task("held", json!({})).await;
    let mut stream = served.stream("/background/events", None).await;
    let wait =
        served.request(reqwest::Method::POST, "/background/tasks/held/run").json(&json!({ "wait": true }));
    let wait = tokio::spawn(wait.send());
    while stream.next().await.unwrap().event != "background_run_started" {}
    served.shut_down();
    let last = stream.rest().await.pop().unwrap();
    assert_eq!((&last.event[..], &last.data), ("end", &json!({ "reason": "closing" })));
    let told = wait.await.unwrap().unwrap();
    assert_eq!(told.status(), 202);
    assert_eq!(told.json::<Value>().await.unwrap()["status"], "running");
    let refused = tokio::net::TcpStream::connect(served.address).await;
    assert!(refused.is_err(), "nothing is accepted any more");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_large_events_ends_at_its_bytes_and_goes_on_where_it_ended() {
    let served = Served::new().await;
    let asks = |_: tenure::RunContext| async {
        let data = Value::from("x".repeat(60_000));
        Ok(tenure::Answer::AwaitingApproval { question: "may I?".into(), data })
    };
    served.tenure.register_agent("verbose", asks).unwrap();
    served.task("verbose", json!({ "overlap_policy": "allow_parallel" })).await;
    let task_id = "verbose".to_owned().try_into().unwrap();
    for _ in 0..200 {
        let run = served.tenure.run_now(&task_id, tenure::RunRequest::default()).await.unwrap();
        served.tenure.wait(&run.run_id, None).await.unwrap();
    }
    let (mut cursors, mut pages, mut after) = (std::collections::BTreeSet::new(), 0, 0);
    loop {
        let page = served.get(&format!("/background/events?limit=1000&after={after}")).await;
        let events = page.expect(200)["events"].as_array().unwrap();
        assert!(page.text.len() < (13 << 20), "a page of {} bytes", page.text.len());
        assert!(events.iter().all(|event| cursors.insert(event["cursor"].as_u64().unwrap())), "each once");
        pages += 1;
        after = page.json["cursor"].as_u64().unwrap();
        if page.json["more"] == false {
            break;
        }
    }
    // The task was made; each run was queued, claimed and started, and asked.
    assert_eq!(cursors.len(), 1 + 200 * 4);
    assert!(pages > 1, "all of it is more than fits");
    served.end().await;
}
