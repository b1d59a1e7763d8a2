//! The flow of the documentation that clients were written by: its paths, its fields, unchanged.

use std::path::Path;

use serde_json::json;

use crate::outside;
use crate::pattern::is_like;
use crate::support::Served;

#[tokio::test(flavor = "multi_thread")]
async fn the_flow_of_the_documentation_works_as_it_is_written() {
    let served = Served::new().await;
    for other in ["fail", "held", "ask"] {
        served.tenure.unregister_agent(&other.to_owned().try_into().unwrap());
    }
    let created = served
        .post(
            "/background/tasks",
            json!({
                "task_id": "health_report",
                "query": "Check system health and write the report.",
                "schedule": { "type": "manual" },
                "timeout_seconds": 60,
            }),
        )
        .await;
    let task = created.expect(201);
    assert_eq!(created.header("location"), "/background/tasks/health_report");
    assert_eq!(task["agent_id"], "echo", "the only agent there is");
    assert_eq!(task["timeout_seconds"], 60);
    let run = served.post("/background/tasks/health_report/run", json!({ "wait": true })).await;
    let run = run.expect(200).clone();
    assert_eq!(run["status"], "completed");
    assert_eq!(run["result_preview"], "Check system health and write the report.");
    let run_id = run["run_id"].as_str().unwrap();

    let status = served.get("/background/status").await;
    let status = status.expect(200);
    assert_eq!((&status["running"], &status["initialized"]), (&json!(true), &json!(true)));
    assert_eq!((&status["agents"], &status["tasks"], &status["runs"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(status["status_counts"]["completed"], 1);
    assert_eq!(status["active_runs"], 0);
    assert_eq!(status["lease_seconds"], 30);
    let status = served.get("/background/tasks/health_report/status").await;
    let status = status.expect(200);
    assert_eq!(status["task_id"], "health_report");
    assert_eq!(status["latest_run"]["run_id"], run_id);
    assert_eq!((&status["runs"], &status["active_runs"]), (&json!(1), &json!(0)));
    assert_eq!(status["schedule"]["type"], "manual");
    assert_eq!(status["schedule_state"]["place"]["state"], "idle");
    assert_eq!(served.get(&format!("/background/runs/{run_id}")).await.expect(200)["status"], "completed");
    let events = served.get(&format!("/background/runs/{run_id}/events")).await;
    let events = events.expect(200);
    assert_eq!(events["run_id"], run_id);
    assert_eq!(events["count"], events["events"].as_array().unwrap().len());
    let names: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    let expected = [
        "background_run_queued",
        "background_run_claimed",
        "background_run_started",
        "background_run_completed",
    ];
    assert_eq!(names, expected);
    let workspace = served.get(&format!("/background/runs/{run_id}/workspace")).await;
    let workspace = workspace.expect(200);
    assert_eq!(workspace["workspace_path"], format!("background/echo/health_report/{run_id}"));
    let paths: Vec<&str> =
        workspace["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["artifacts", "events.jsonl", "logs", "output.md", "run.json"]);
    served.end().await;
}

/// The script of the page about ownership, as it is printed but for the address: what it says below each request is
/// what is answered.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_of_ownership_works_as_it_is_printed() {
    if !outside::has("curl", "the script of the page is not run") {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/OWNERSHIP.md");
    let page = std::fs::read_to_string(page).unwrap();
    let script = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let expected: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("# {")).collect();
    assert!(expected.len() > 10, "{expected:?}");
    let served = Served::new().await;
    let script = script.replace("http://127.0.0.1:8000", &served.url(""));
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &script]).current_dir(served.folder.path());
    shell.env("no_proxy", "*").kill_on_drop(true);
    let output = shell.output().await.expect("bash");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(answers.len(), expected.len(), "{told}");
    for (answer, expected) in answers.iter().zip(&expected) {
        assert!(is_like(answer, &format!("{{{expected}")), "{answer}\nis not like\n{{{expected}");
    }
    served.end().await;
}
