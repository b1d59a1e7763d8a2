//! What leaves the group of its program and clears its environment ends with its attempt all the same, and with its
//! host if that is killed.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::kit::*;

/// The program starts a process that left its group and cleared its environment, and ends when its folder holds `go`.
/// The process tells its number, and that of a child of its own.
const CONFIG: &str = r#"
[agents.sh]
kind = "command"
stop_grace_seconds = 0.1
command = ["bash", "-c", '''
env -i setsid sh -c 'sleep 1000 & echo $! $$ >pids; wait' >/dev/null 2>&1 </dev/null 3>&- &
until [ -s pids ]; do sleep 0.02; done
touch began
until [ -e go ]; do sleep 0.02; done
echo done''']
[tasks.t]
query = "q"
overlap_policy = "allow_parallel"
"#;

/// Here it sets the limit as well that all of an attempt are marked with: nothing leads back to it.
fn unmarked() -> String {
    CONFIG.replace("env -i setsid", "ulimit -R unlimited\nenv -i setsid")
}

/// Wants a run, and waits until its program has left something behind; answers its folder and the numbers.
fn begun(place: &Place, server: &Server) -> (String, PathBuf, Vec<String>) {
    let id = server.run("t");
    let run = server.until(&id, "running");
    let folder = place.path(".tenure/workspace").join(run["workspace_path"].as_str().unwrap());
    until("the program runs", || folder.join("began").exists());
    let pids = std::fs::read_to_string(folder.join("pids")).unwrap();
    let pids: Vec<String> = pids.split_whitespace().map(str::to_owned).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| !is_gone(pid)), "{pids:?}");
    (id, folder, pids)
}

fn are_gone(pids: &[String]) {
    until("what was left behind is gone", || pids.iter().all(|pid| is_gone(pid)));
}

/// The children of a process that have ended and were not counted.
fn zombies(of: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let begins = format!(" Z {of} ");
    stats.filter(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(&begins))).count()
}

#[test]
fn what_cleared_its_environment_ends_with_its_own_attempt() {
    let place = Place::with(CONFIG);
    let server = place.serve(&[]);
    let (first, folder_of_first, left_by_first) = begun(&place, &server);
    let (second, folder_of_second, left_by_second) = begun(&place, &server);
    std::fs::write(folder_of_second.join("go"), "").unwrap();
    server.until(&second, "completed");
    are_gone(&left_by_second);
    assert!(left_by_first.iter().all(|pid| !is_gone(pid)), "another attempt is not disturbed");
    std::fs::write(folder_of_first.join("go"), "").unwrap();
    server.until(&first, "completed");
    are_gone(&left_by_first);
}

#[test]
fn task_t45_what_cleared_its_environment_ends_with_a_killed_host() {
    let place = Place::with(CONFIG);
    let server = place.serve(&[]);
    let (_, _, left) = begun(&place, &server);
    server.started.kill();
    are_gone(&left);
}

#[test]
fn what_nothing_leads_back_to_ends_with_its_attempt() {
    let place = Place::with(&unmarked());
    let server = place.serve(&[]);
    let (done, folder, left) = begun(&place, &server);
    std::fs::write(folder.join("go"), "").unwrap();
    server.until(&done, "completed");
    are_gone(&left);
    let (cancelled, _, left) = begun(&place, &server);
    server.post(&format!("/background/runs/{cancelled}/cancel"), "{}");
    server.until(&cancelled, "cancelled");
    are_gone(&left);
    until("who has ended is counted", || zombies(server.started.id()) == 0);
    server.started.signal(Signal::TERM);
    assert_eq!(server.started.done().code, Some(0));
}

#[test]
fn what_may_be_of_another_attempt_lives_until_that_is_over_too() {
    let place = Place::with(&unmarked());
    let server = place.serve(&[]);
    let (first, folder_of_first, left_by_first) = begun(&place, &server);
    let (second, folder_of_second, left_by_second) = begun(&place, &server);
    std::fs::write(folder_of_second.join("go"), "").unwrap();
    server.until(&second, "completed");
    // The first had begun before either was started: nobody can tell whose they are. A third is over meanwhile.
    let (third, folder_of_third, _) = begun(&place, &server);
    std::fs::write(folder_of_third.join("go"), "").unwrap();
    server.until(&third, "completed");
    assert!(left_by_first.iter().chain(&left_by_second).all(|pid| !is_gone(pid)), "none is ended too early");
    std::fs::write(folder_of_first.join("go"), "").unwrap();
    server.until(&first, "completed");
    are_gone(&left_by_first);
    are_gone(&left_by_second);
}

#[test]
fn a_task_that_is_run_by_hand_leaves_nothing_either() {
    let place = Place::with(&unmarked());
    let mut started = place.start(&["run", "tenure.toml", "--json"]);
    let runs = place.path(".tenure/workspace/background/sh/t");
    let found = || Some(std::fs::read_dir(&runs).ok()?.next()?.ok()?.path());
    until("the program runs", || found().is_some_and(|folder| folder.join("began").exists()));
    let folder = found().unwrap();
    let left = std::fs::read_to_string(folder.join("pids")).unwrap();
    std::fs::write(folder.join("go"), "").unwrap();
    started.line("completed");
    assert_eq!(started.done().code, Some(0));
    assert!(left.split_whitespace().all(is_gone), "gone before the program has ended: {left}");
}
