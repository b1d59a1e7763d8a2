//! kill -9 of a server while it executes.

use std::collections::BTreeSet;

use crate::kit::*;

const RUNS: usize = 200;

/// Leases are short, so that those of the killed host are taken over soon.
const CONFIG: &str = "[agents.sh]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo done\"]\n\
    [tasks.t]\nquery = \"q\"\noverlap_policy = \"allow_parallel\"\n\
    [worker]\nconcurrency = 8\nlease = 1\n[log]\nlevel = \"error\"\n";

#[test]
fn task_t45_a_server_is_killed_during_200_runs_and_every_accepted_run_ends_once() {
    let place = Place::with(CONFIG);
    let server = place.serve(&[]);
    let accepted: BTreeSet<String> = (0..RUNS).map(|_| server.run("t")).collect();
    assert_eq!(accepted.len(), RUNS);
    let counts = |server: &Server| server.get("/background/status").body["status_counts"].clone();
    until("some have ended, and most have not", || counts(&server)["completed"].as_u64() >= Some(10));
    let before = counts(&server);
    server.started.kill();
    assert!(before["completed"].as_u64() < Some(RUNS as u64), "killed too late: {before}");

    let again = place.serve(&[]);
    until("all have ended", || counts(&again)["completed"].as_u64() == Some(RUNS as u64));
    let found = again.get(&format!("/background/runs?limit={RUNS}")).body;
    let runs = found["runs"].as_array().unwrap();
    let ids: BTreeSet<String> = runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, accepted, "none is lost, none was made up");
    let mut interrupted = 0;
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
        interrupted += usize::from(names.contains(&"background_run_lost"));
    }
    assert!(interrupted > 0, "the kill hit no run that was held");
}
