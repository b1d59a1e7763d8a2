//! SIGHUP again and again while clients want runs, then kill -9.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::kit::*;

const CLIENTS: usize = 4;
/// Of each client.
const RUNS: usize = 60;
/// Of all clients: four at once execute until their gate is open, and the others wait for them.
const HELD: usize = 40;

/// A replacement interrupts what executes, however often: no run may fail of that.
const CONFIG: &str = r#"
[agents.sh]
kind = "command"
command = ["sh", "-c", "gate=$(cat); until [ -e ../../../../../../$gate ]; do sleep 0.05; done; echo done"]
[tasks.t]
query = "tenure.toml"
overlap_policy = "allow_parallel"
retry_policy = { max_interruptions = 1000 }
[tasks.held]
query = "held"
overlap_policy = "allow_parallel"
retry_policy = { max_interruptions = 1000 }
concurrency_key = "held"
concurrency_limit = 4
[worker]
concurrency = 12
lease = 4
"#;

/// Wants runs, each of which is accepted, whatever happens to the host.
fn client(address: &str, wanted: &AtomicUsize) -> Vec<String> {
    let want = |n: usize| {
        let task = if n.is_multiple_of(RUNS * CLIENTS / HELD) { "held" } else { "t" };
        let answer = ask(address, "POST", &format!("/background/tasks/{task}/run"), Some("{}"));
        let answer = answer.unwrap_or_else(|error| panic!("request {n}: {error}"));
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body["run_id"].as_str().unwrap().to_owned()
    };
    (0..RUNS).map(|_| want(wanted.fetch_add(1, Ordering::Relaxed))).collect()
}

/// Reads the configuration again in every way, until the clients have what they want. Answers how often it held.
fn disturb(place: &Place, started: &mut Started, is_over: &AtomicBool) -> usize {
    let mut reloaded = 0;
    while !is_over.load(Ordering::Relaxed) || reloaded < 4 {
        started.signal(Signal::HUP);
        started.error("reloaded tenure.toml");
        // Two in a row.
        started.signal(Signal::HUP);
        started.signal(Signal::HUP);
        started.error("reloaded tenure.toml");
        // The second of the two may read the file only now.
        place.replace("tenure.toml", format!("{CONFIG}concurency = 3\n"));
        started.signal(Signal::HUP);
        started.error("the configuration stays as it was");
        place.replace("tenure.toml", format!("{CONFIG}# {reloaded}\n"));
        reloaded += 2;
    }
    reloaded
}

/// How often each run was told to have ended, and how.
fn ends(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = server.get(&format!("/background/events?after={after}&limit=1000")).body;
        let events = page["events"].as_array().unwrap();
        let Some(last) = events.last() else { return ends };
        after = last["cursor"].as_u64().unwrap();
        for event in events {
            let name = event["event"].as_str().unwrap();
            let ended = ["completed", "failed", "timeout", "cancelled", "skipped"];
            if let Some(word) = name.strip_prefix("background_run_").filter(|word| ended.contains(word)) {
                ends.entry(event["run_id"].as_str().unwrap().to_owned()).or_default().push(word.to_owned());
            }
        }
    }
}

#[test]
fn task_t45_what_is_accepted_while_the_host_is_replaced_again_and_again_ends_once_though_it_is_killed() {
    let place = Place::with(CONFIG);
    let Server { mut started, address } = place.serve(&[]);
    let (wanted, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let accepted: BTreeSet<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client(&address, &wanted))).collect();
        let disturbing = scope.spawn(|| disturb(&place, &mut started, &is_over));
        let accepted: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        // Also where a client failed: the scope waits for who disturbs.
        is_over.store(true, Ordering::Relaxed);
        assert!(disturbing.join().unwrap() >= 4);
        accepted.into_iter().flat_map(Result::unwrap).collect()
    });
    assert_eq!(accepted.len(), CLIENTS * RUNS);
    let server = Server { started, address };
    let counts = |server: &Server| server.get("/background/status").body["status_counts"].clone();
    until("those that are held execute, and others have ended", || {
        let counts = counts(&server);
        counts["running"].as_u64() >= Some(4) && counts["completed"].as_u64() >= Some(100)
    });
    server.started.kill();

    place.write("held", "");
    let again = place.serve(&[]);
    for run in &accepted {
        let answer = again.get(&format!("/background/runs/{run}?wait=true&timeout_seconds=50"));
        assert_eq!(answer.body["status"], "completed", "{answer:?}");
    }
    assert_eq!(counts(&again)["completed"].as_u64(), Some(accepted.len() as u64));
    let ends = ends(&again);
    assert_eq!(ends.keys().cloned().collect::<BTreeSet<_>>(), accepted, "none is lost, none was made up");
    for (run, ends) in &ends {
        assert_eq!(*ends, ["completed"], "{run}");
    }
}
