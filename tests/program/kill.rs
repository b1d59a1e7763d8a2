//! kill -9 of a server while it executes.

use std::collections::BTreeSet;

use crate::kit::*;

const RUNS: usize = 200;
/// So many of them are held when the host is killed, whatever the others do.
const HELD: usize = 4;

/// A run begins when the file is there that its query names. Leases are short, so that those of the killed host are
/// taken over soon, and long enough for a host on a busy machine to keep them.
const CONFIG: &str = r#"
[agents.sh]
kind = "command"
command = ["sh", "-c", "gate=$(cat); until [ -e ../../../../../../$gate ]; do sleep 0.02; done; sleep 0.05; echo done"]
[tasks.t]
query = "go"
overlap_policy = "allow_parallel"
[tasks.held]
query = "held"
overlap_policy = "allow_parallel"
[worker]
concurrency = 8
lease = 4
[log]
level = "error"
"#;

#[test]
fn task_t45_a_server_is_killed_during_200_runs_and_every_accepted_run_ends_once() {
    let place = Place::with(CONFIG);
    let server = place.serve(&[]);
    let held: Vec<String> = (0..HELD).map(|_| server.run("held")).collect();
    for id in &held {
        server.until(id, "running");
    }
    let others = (HELD..RUNS).map(|_| server.run("t"));
    let accepted: BTreeSet<String> = held.iter().cloned().chain(others).collect();
    assert_eq!(accepted.len(), RUNS);
    place.write("go", "");
    let counts = |server: &Server| server.get("/background/status").body["status_counts"].clone();
    until("some have ended, and most have not", || counts(&server)["completed"].as_u64() >= Some(10));
    let before = counts(&server);
    server.started.kill();
    assert!(before["completed"].as_u64() < Some(RUNS as u64), "killed too late: {before}");

    place.write("held", "");
    let again = place.serve(&[]);
    for run in &accepted {
        let answer = again.get(&format!("/background/runs/{run}?wait=true&timeout_seconds=50"));
        assert_eq!(answer.body["status"], "completed", "{answer:?}");
    }
    let found = again.get(&format!("/background/runs?limit={RUNS}")).body;
    let runs = found["runs"].as_array().unwrap();
    let ids: BTreeSet<String> = runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, accepted, "none is lost, none was made up");
    for id in &accepted {
        let events = again.get(&format!("/background/runs/{id}/events")).body;
        let names: Vec<&str> = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        let ends = names.iter().filter(|name| **name == "background_run_completed").count();
        assert_eq!(ends, 1, "{id}: {names:?}");
        assert!(!held.contains(id) || names.contains(&"background_run_lost"), "{id}: {names:?}");
    }
}
