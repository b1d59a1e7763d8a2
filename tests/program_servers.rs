//! Two hosts on one store in a server: the real binary, each host an OS process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::collections::BTreeSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "program/kit.rs"]
mod kit;
#[path = "program/owned.rs"]
mod owned;
#[path = "support/servers.rs"]
mod servers;
#[path = "support/until.rs"]
mod until;

use kit::{Place, Server, until};
use servers::redis as redis_server;

/// Each host executes one run at once, so that two that run are one of each.
const CONFIG: &str = r#"
[agents.held]
kind = "command"
stop_grace_seconds = 0.1
command = ["sleep", "600"]
[agents.quick]
kind = "command"
command = ["echo", "done"]
[tasks.held]
query = "q"
agent_id = "held"
overlap_policy = "allow_parallel"
[tasks.tick]
query = "q"
agent_id = "quick"
enabled = false
schedule = { type = "interval", seconds = 1 }
[worker]
concurrency = 1
[workspace]
shared = true
"#;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let stores = [
        ("postgres", postgres as Url),
        ("redis", redis as Url),
        #[cfg(feature = "mongodb")]
        ("mongodb", mongodb as Url),
    ];
    for (server, url) in stores {
        trials.push(trial(server, "two_hosts_of_one_store_share_the_work", url, share, &arguments));
        let name = "own_s1_2_two_hosts_of_one_store_keep_who_owns_what_for_any_language";
        trials.push(trial(server, name, url, own, &arguments));
        let name = "task_t45_what_a_killed_host_of_one_store_held_is_done_by_the_other";
        trials.push(trial(server, name, url, take_over, &arguments));
    }
    let name = "a_run_that_is_watched_outlives_an_outage_of_its_store";
    trials.push(trial("redis", name, redis, outlive, &arguments));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A store in the server of this process; of its own for each test.
type Url = fn(test: u8) -> Result<String, String>;

fn postgres(test: u8) -> Result<String, String> {
    let url = servers::postgres().clone()?;
    let joined = if url.contains('?') { '&' } else { '?' };
    Ok(format!("{url}{joined}schema=program_{}_{test}", std::process::id()))
}

fn redis(test: u8) -> Result<String, String> {
    let url = redis_server::redis().clone()?;
    let (address, _) = url.rsplit_once('/').ok_or_else(|| format!("no database in {url:?}"))?;
    Ok(format!("{address}/{test}"))
}

#[cfg(feature = "mongodb")]
fn mongodb(test: u8) -> Result<String, String> {
    let url = servers::mongodb::mongodb().clone()?;
    Ok(format!("{}/program_{}_{test}", url.trim_end_matches('/'), std::process::id()))
}

fn trial(
    server: &'static str,
    test: &str,
    url: Url,
    play: fn(url: Url) -> Result<(), String>,
    arguments: &Arguments,
) -> Trial {
    let missing = !arguments.list && url(0).is_err();
    Trial::test(format!("{server}::{test}"), move || play(url).map_err(Failed::from))
        .with_ignored_flag(missing && !servers::is_required(server))
}

fn own(url: Url) -> Result<(), String> {
    let place = Place::with(owned::CONFIG);
    let url = url(1)?;
    let store = ["--store", &url];
    let (one, other) = (place.serve(&store), place.serve(&store));
    owned::play(&one, &other, "chat-7");
    Ok(())
}

/// Goes on until its folder holds a file `go`.
const WAITS: &str = r#"
[agents.waits]
kind = "command"
working_directory = "."
command = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; echo went on"]
[tasks.waits]
query = "q"
"#;

/// One host is killed while it executes a run. The other finds it once lease and grace are over.
fn take_over(url: Url) -> Result<(), String> {
    let place = Place::with(&format!("{WAITS}[worker]\nlease = 4\n[workspace]\nshared = true\n"));
    let url = url(2)?;
    let store = ["--store", &url];
    let one = place.serve(&store);
    let run_id = one.run("waits");
    one.until(&run_id, "running");
    let other = place.serve(&store);
    one.started.kill();
    until("it is executed by the other host", || {
        let run = other.run_of(&run_id);
        run["status"] == "running" && run["attempt"] == 2
    });
    place.write("go", "");
    let run = other.until(&run_id, "completed");
    assert_eq!((&run["failures"], &run["interruptions"]), (&0.into(), &1.into()), "{run}");
    let events = other.get(&format!("/background/runs/{run_id}/events")).body;
    let names: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    let count = |name: &str| names.iter().filter(|told| **told == format!("background_run_{name}")).count();
    assert_eq!((count("lost"), count("completed")), (1, 1), "{names:?}");
    Ok(())
}

/// With a server of its own, which is killed and comes back.
fn outlive(_: Url) -> Result<(), String> {
    let mut server = redis_server::Server::start(&["--appendonly", "yes", "--appendfsync", "always"])?;
    let place = Place::with(WAITS);
    let mut run = place.start(&["run", "tenure.toml", "--store", &server.url()]);
    run.line("started");
    server.kill();
    run.error("the run goes on meanwhile");
    server.begin()?;
    place.write("go", "");
    let done = run.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("|  went on") && done.out.contains("completed"), "{done:?}");
    Ok(())
}

fn share(url: Url) -> Result<(), String> {
    let place = Place::with(CONFIG);
    let url = &*url(0)?;
    let store = ["--store", url];
    let (one, other) = (place.serve(&store), place.serve(&store));
    one_run_each_and_a_cancel_reaches_both(&one, &other);
    every_occurrence_has_one_run(&one, &other);
    for args in [["store", "check"], ["store", "migrate"], ["store", "prune"]] {
        let done = place.tenure(&[&args[..], &store[..]].concat());
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
    }
    let doctor = place.tenure(&["doctor", "--store", url]);
    assert!(doctor.out.contains("answers"), "{doctor:?}");
    assert!(doctor.out.contains("counters, lanes and places are as the runs say"), "{doctor:?}");
    Ok(())
}

/// All are asked of one host, and cancelled through it.
fn one_run_each_and_a_cancel_reaches_both(one: &Server, other: &Server) {
    let runs = [one.run("held"), one.run("held")];
    for run_id in &runs {
        other.until(run_id, "running");
    }
    for run_id in &runs {
        let answer = one.post(&format!("/background/runs/{run_id}/cancel"), "{}");
        assert!(answer.status < 300, "{answer:?}");
    }
    for run_id in &runs {
        assert_eq!(other.until(run_id, "cancelled")["attempt"], 1);
    }
}

fn every_occurrence_has_one_run(one: &Server, other: &Server) {
    let resumed = other.post("/background/tasks/tick/resume", "{}");
    assert!(resumed.status < 300, "{resumed:?}");
    let completed = |server: &Server| {
        let found = server.get("/background/runs?task_id=tick&status=completed").body;
        found["runs"].as_array().unwrap().clone()
    };
    until("three have run", || completed(one).len() >= 3);
    let paused = one.post("/background/tasks/tick/pause", "{}");
    assert!(paused.status < 300, "{paused:?}");
    let runs = one.get("/background/runs?task_id=tick").body["runs"].as_array().unwrap().clone();
    let occurrences: BTreeSet<&str> = runs.iter().map(|run| run["occurrence_id"].as_str().unwrap()).collect();
    assert_eq!(occurrences.len(), runs.len(), "{runs:?}");
    assert!(completed(other).iter().all(|run| run["attempt"] == 1));
}
