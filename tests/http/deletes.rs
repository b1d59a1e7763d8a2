//! Tasks that are deleted while runs of them wait and execute, and counts of more runs than are counted.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tenure::clock::SystemClock;
use tenure::http::HttpOptions;
use tenure::model::{EventKind, Subject};
use tenure::store::MemoryStore;
use tenure::{RunRequest, Settings};

use crate::support::Served;

/// A run that stands so: as it is, or, with `?wait=true`, as it has ended.
async fn told(served: &Served, run: &str, when: &str, status: &str) -> Value {
    let told = served.get(&format!("/background/runs/{run}{when}")).await;
    assert_eq!(told.expect(200)["status"], status, "{}", told.text);
    told.json
}

/// An agent that waits, and stops when it is told to.
fn register(served: &Served) {
    let gate = Arc::clone(&served.gate);
    let waits = move |context: tenure::RunContext| {
        let gate = Arc::clone(&gate);
        async move {
            tokio::select! {
                permit = gate.acquire() => permit.into_iter().for_each(tokio::sync::SemaphorePermit::forget),
                () = context.cancelled() => return Err(tenure::AgentError::new("cancelled", "told to stop")),
            }
            Ok("let go".into())
        }
    };
    served.tenure.register_agent("waits", waits).unwrap();
}

async fn wanted(served: &Served) -> String {
    let run = served.post("/background/tasks/waits/run", json!({})).await;
    run.expect(202)["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn to_delete_a_task_cancels_what_waits_and_cancels_or_keeps_what_executes() {
    let served = Served::new().await;
    register(&served);
    for (query, ends) in [("", "cancelled"), ("?running=cancel", "cancelled"), ("?running=keep", "completed")]
    {
        served.task("waits", json!({ "overlap_policy": "queue_next" })).await;
        let (first, second) = (wanted(&served).await, wanted(&served).await);
        served.happened(Subject::Run(first.clone().try_into().unwrap()), EventKind::Started).await;
        for wrong in ["?running=maybe", "?running=keep&running=cancel"] {
            let path = format!("/background/tasks/waits{wrong}");
            served.call(Method::DELETE, &path).await.invalid(&["running"]);
        }
        served.call(Method::DELETE, "/background/tasks/waits?runing=keep").await.invalid(&["runing"]);
        let waiting = told(&served, &second, "", "queued").await["waiting"].to_string();
        assert!(waiting.contains(&first), "{waiting}");

        let deleted = served.call(Method::DELETE, &format!("/background/tasks/waits{query}")).await;
        assert_eq!(deleted.expect(200), &json!({ "status": "deleted", "task_id": "waits" }));
        assert_eq!(told(&served, &second, "?wait=true", "cancelled").await["attempt"], 0, "it never began");
        if ends == "completed" {
            assert_eq!(told(&served, &first, "", "running").await["cancel_requested_at"], Value::Null);
            served.gate.add_permits(1);
        }
        told(&served, &first, "?wait=true", ends).await;
        served.call(Method::DELETE, "/background/tasks/waits").await.problem(404, "not_found");
        served.post("/background/tasks/waits/run", json!({})).await.problem(404, "not_found");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_counted_exactly_up_to_ten_thousand_and_where_no_count_is_kept_more_are_said_to_be_more() {
    // Without files: so many folders are not what is looked at.
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let without_files = |settings| Settings { workspace: None, ..settings };
    let served = Served::on_with(store, HttpOptions::default(), without_files).await;
    served.task("elsewhere", json!({ "overlap_policy": "allow_parallel" })).await;
    let name: tenure::model::TaskId = "elsewhere".to_owned().try_into().unwrap();
    let want = |many: usize| {
        let runs = (0..many).map(|_| served.tenure.run_now(&name, RunRequest::default()));
        futures_util::future::join_all(runs)
    };
    for run in want(10_000).await {
        run.unwrap();
    }
    let counted = async |query: &str| {
        let page = served.get(&format!("/background/runs?limit=1{query}")).await;
        let page = page.expect(200);
        assert!(page["next_cursor"].is_string(), "{page}");
        (page["total"].clone(), page["total_estimated"].clone())
    };
    assert_eq!(counted("").await, (json!(10_000), Value::Null));
    want(1).await.pop().unwrap().unwrap();
    // Of these a count is kept.
    for query in ["", "&task_id=elsewhere", "&status=queued"] {
        assert_eq!(counted(query).await, (json!(10_001), Value::Null), "{query}");
    }
    for query in ["&agent_id=elsewhere", "&trigger_type=manual&task_id=elsewhere", "&text=q"] {
        assert_eq!(counted(query).await, (json!(10_000), json!(true)), "{query}");
    }
    let session = "&session_id=background:elsewhere:elsewhere&created_before=2020-01-01T00:00:00Z";
    let none = served.get(&format!("/background/runs?{session}")).await;
    assert_eq!(none.expect(200)["runs"], json!([]));
    served.end().await;
}
