//! Tasks over HTTP.

use reqwest::Method;
use serde_json::json;
use tenure::http::HttpOptions;

use crate::support::Served;

const TASKS: &str = "/background/tasks";

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_made_shown_changed_paused_and_deleted() {
    let served = Served::new().await;
    let task = json!({
        "task_id": "t", "agent_id": "echo", "query": "q", "overlap_policy": "queue_next",
        "schedule": { "type": "interval", "seconds": 3600 }, "session_policy": "run",
        "concurrency_key": "k", "concurrency_limit": 2, "metadata": { "a": 1 },
    });
    let made = served.post(TASKS, task.clone()).await;
    let made = made.expect(201).clone();
    served.post(TASKS, task).await.problem(409, "exists");
    assert_eq!(served.get("/background/tasks/t").await.expect(200), &made);
    let changed = served.send(Method::PATCH, "/background/tasks/t", json!({ "priority": 7 })).await;
    let changed = changed.expect(200);
    assert_eq!((&changed["priority"], &changed["revision"]), (&json!(7), &json!(2)));
    assert_eq!(changed["schedule"], made["schedule"]);
    let wrong =
        served.send(Method::PATCH, "/background/tasks/t", json!({ "priorty": 7, "task_id": "u" })).await;
    wrong.invalid(&["priorty"]);
    served.send(Method::PATCH, "/background/tasks/t", json!({ "task_id": "u" })).await.invalid(&["task_id"]);
    let paused = served.call(Method::POST, "/background/tasks/t/pause").await;
    assert_eq!(paused.expect(200), &json!({ "status": "paused", "task_id": "t" }));
    assert_eq!(served.get("/background/tasks/t").await.expect(200)["enabled"], false);
    served.post("/background/tasks/t/run", json!({})).await.problem(409, "paused");
    let run = served.post("/background/tasks/t/run", json!({ "override_pause": true, "wait": true })).await;
    assert_eq!(run.expect(200)["status"], "completed");
    let resumed = served.post("/background/tasks/t/resume", json!({})).await;
    assert_eq!(resumed.expect(200)["status"], "resumed");
    served.post("/background/tasks/t/pause", json!({ "now": true })).await.invalid(&["now"]);
    let deleted = served.call(Method::DELETE, "/background/tasks/t").await;
    assert_eq!(deleted.expect(200), &json!({ "status": "deleted", "task_id": "t" }));
    served.get("/background/tasks/t").await.problem(404, "not_found");
    assert_eq!(served.get("/background/runs?task_id=t").await.expect(200)["total"], 1, "its runs stay");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_names_no_agent_gets_the_only_one_or_the_default() {
    let served = Served::new().await;
    let task = |id: &str| json!({ "task_id": id, "query": "q" });
    served.post(TASKS, task("a")).await.invalid(&["agent_id"]);
    let default_agent = Some("held".to_owned().try_into().unwrap());
    served.api.reload(HttpOptions { default_agent, ..HttpOptions::default() });
    assert_eq!(served.post(TASKS, task("b")).await.expect(201)["agent_id"], "held");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t05_a_task_of_an_agent_that_is_not_here_is_stored_and_warned_of() {
    let served = Served::new().await;
    let made = served.post(TASKS, json!({ "task_id": "t", "agent_id": "elsewhere", "query": "q" })).await;
    let warning = |agent: &str| {
        let message = format!("this host does not have agent \"{agent}\": its runs wait for one that has");
        json!([{ "field": "agent_id", "message": message }])
    };
    assert_eq!(made.expect(201)["warnings"], warning("elsewhere"));
    let shown = served.get("/background/tasks/t").await;
    assert!(shown.expect(200).get("warnings").is_none(), "a record is a record: {}", shown.text);
    let run = served.post("/background/tasks/t/run", json!({})).await;
    assert_eq!(
        run.expect(202)["waiting"]["reason"],
        json!({ "reason": "no_agent", "agent_id": "elsewhere" })
    );
    let change =
        |agent: &'static str| served.send(Method::PATCH, "/background/tasks/t", json!({ "agent_id": agent }));
    assert!(change("echo").await.expect(200).get("warnings").is_none());
    assert_eq!(change("nobody").await.expect(200)["warnings"], warning("nobody"));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_page_by_page() {
    let served = Served::new().await;
    for n in 0..5 {
        served.task("echo", json!({ "task_id": format!("t{n}") })).await;
    }
    let first = served.get("/background/tasks?limit=2").await;
    let first = first.expect(200);
    assert_eq!(first["total"], 5);
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = served.get(&format!("/background/tasks?limit=2{cursor}")).await;
        let page = page.expect(200);
        names.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["task_id"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_d4_what_comes_next_is_told_in_the_zone_of_the_schedule() {
    let served = Served::new().await;
    for (task, zone, next) in [
        ("utc", "UTC", ["09:00:00.000Z 09:00:00+00:00[UTC]"; 2]),
        // The clocks go forward in the night between the two.
        (
            "paris",
            "Europe/Paris",
            ["08:00:00.000Z 09:00:00+01:00[Europe/Paris]", "07:00:00.000Z 09:00:00+02:00[Europe/Paris]"],
        ),
    ] {
        let schedule = json!({ "type": "cron", "expression": "0 9 * * *", "timezone": zone,
            "start_at": "2027-03-27T00:00:00Z", "end_at": "2027-03-29T00:00:00Z" });
        served.task("echo", json!({ "task_id": task, "schedule": schedule })).await;
        let told = served.get(&format!("/background/tasks/{task}/occurrences")).await;
        let of = |day: u8, both: &str| {
            let (utc, local) = both.split_once(' ').unwrap();
            json!({ "due_at": format!("2027-03-{day}T{utc}"), "due_at_local": format!("2027-03-{day}T{local}") })
        };
        assert_eq!(told.expect(200)["next"], json!([of(27, next[0]), of(28, next[1])]));
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_occurrences_of_a_task_are_told_past_and_next() {
    let served = Served::new().await;
    let schedule = json!({ "type": "cron", "expression": "0 9 * * *", "end_at": "2999-01-04T00:00:00Z",
                           "start_at": "2999-01-01T00:00:00Z" });
    served.task("echo", json!({ "task_id": "daily", "schedule": schedule })).await;
    let told = served.get("/background/tasks/daily/occurrences").await;
    let next = json!([
        { "due_at": "2999-01-01T09:00:00.000Z", "due_at_local": "2999-01-01T09:00:00+00:00[UTC]" },
        { "due_at": "2999-01-02T09:00:00.000Z", "due_at_local": "2999-01-02T09:00:00+00:00[UTC]" },
        { "due_at": "2999-01-03T09:00:00.000Z", "due_at_local": "2999-01-03T09:00:00+00:00[UTC]" },
    ]);
    assert_eq!((&told.expect(200)["next"], &told.json["past"]), (&next, &json!([])));
    let told = served.get("/background/tasks/daily/occurrences?next=1").await;
    assert_eq!(told.expect(200)["next"].as_array().unwrap().len(), 1);
    served.get("/background/tasks/daily/occurrences?next=1001").await.invalid(&["next"]);

    // What was due while nobody looked is recorded when it is fired.
    let schedule = json!({ "type": "once", "run_at": "2020-01-01T00:00:00Z" });
    served.task("echo", json!({ "task_id": "once", "schedule": schedule })).await;
    served.happened(tenure::model::Subject::All, tenure::model::EventKind::Completed).await;
    let told = served.get("/background/tasks/once/occurrences").await;
    let past = told.expect(200)["past"].as_array().unwrap();
    assert_eq!(past.len(), 1, "{past:?}");
    assert_eq!(
        (&past[0]["outcome"], &past[0]["due_at"]),
        (&json!("ran"), &json!("2020-01-01T00:00:00.000Z"))
    );
    assert_eq!(told.json["next"], json!([]));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_change_one_task_at_once_and_none_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(tenure::clock::SystemClock);
    let options = tenure::store::SqliteOptions::new(folder.path().join("t.db"), clock);
    let store = std::sync::Arc::new(tenure::store::SqliteStore::open(options).unwrap());
    let served = Served::on(store, HttpOptions::default()).await;
    served.task("echo", json!({})).await;
    let changes = (1..=50).map(|priority| {
        let change = json!({ "priority": priority });
        served.send(Method::PATCH, "/background/tasks/echo", change)
    });
    for changed in futures_util::future::join_all(changes).await {
        changed.expect(200);
    }
    assert_eq!(served.get("/background/tasks/echo").await.expect(200)["revision"], 51, "each was made");
    served.end().await;
}
