//! What people are told: of what is to come, of what waits, of what they have mistaken.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::acting::CONFIG;
use crate::program::{Place, words};

impl Place {
    fn line(&self, line: &str) -> crate::program::Said {
        self.run(&words(line))
    }
}

#[test]
fn a_run_that_no_host_executes_says_so_while_it_is_waited_for() {
    let place = Place::with(CONFIG);
    place.line("tasks add t --agent echo --query q --overlap allow_parallel").well();
    let mut waiting = place.command(&["tasks", "run", "t", "--wait", "-q"]);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(waiting.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(told, "hint: no host executes it: start `tenure serve`, or `tenure run FILE TASK`");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let over = place.line("tasks run t --wait --timeout 0");
    assert_eq!(over.code(), 5);
    assert!(over.err.contains("is queued after 0"), "{}", over.err);
    assert!(over.err.contains("no host executes it"), "{}", over.err);
    let shown = place.line("runs list").well().out;
    assert!(shown.contains("queued"), "{shown}");
    let doctor = place.line("doctor").out;
    assert!(doctor.contains("runs        as many as 2 wait, and none executes"), "{doctor}");
}

#[test]
fn an_agent_that_nobody_has_is_warned_of() {
    let place = Place::with(CONFIG);
    place.write("nothing.toml", "");
    let added = place.line("tasks add hello --agent greter --query q --json").well();
    assert_eq!(added.json()["warnings"][0]["field"], "agent_id", "{}", added.out);
    assert!(added.err.contains("warning: this host does not have agent \"greter\""), "{}", added.err);
    let edited = place.line("tasks edit hello --agent echo").well();
    assert!(!edited.err.contains("warning"), "{}", edited.err);
    place.line("tasks edit hello --agent greter").well();
    let none = place.line("agents --config nothing.toml").well();
    assert!(none.err.contains("there are tasks"), "{}", none.err);
    let run = place.line("tasks run hello -q").well().out;
    let over = place.line(&format!("runs wait {} --timeout 0", run.trim()));
    let waits = "this host does not have agent \"greter\": the run waits for one that has";
    assert!(over.err.contains(waits), "{}", over.err);
    let shown = place.line(&format!("runs show {}", run.trim())).well().out;
    assert!(shown.contains("this host does not have agent \"greter\""), "{shown}");
    let doctor = place.line("doctor").out;
    assert!(
        doctor.contains("hello: a host with these settings does not have its agent \"greter\""),
        "{doctor}"
    );
}

#[test]
fn what_comes_next_is_told_where_tasks_are() {
    let place = Place::with(CONFIG);
    let added = place.line("tasks add t --agent echo --query q --every 1h").well().out;
    assert!(added.lines().any(|line| line.starts_with("next  ") && line.contains("(in ")), "{added}");
    let listed = place.line("tasks list").well().out;
    assert!(listed.lines().next().unwrap().contains("NEXT"), "{listed}");
    assert!(listed.contains("in 59m") || listed.contains("in 1h"), "{listed}");
    place.line("tasks pause t").well();
    let paused = place.line("tasks show t").well().out;
    assert!(paused.contains("none while it is paused"), "{paused}");
    let once = place
        .line("tasks add o --agent echo --query q --at '2090-01-02 09:00' --timezone Europe/Paris")
        .well()
        .out;
    assert!(once.contains("once 2090-01-02 09:00 Europe/Paris (in "), "{once}");
    let next = place.line("tasks occurrences t --next 3 --json").well().json();
    assert_eq!(next["next"].as_array().unwrap().len(), 3, "{next}");
    let five = place.line("tasks occurrences t --json").well().json();
    assert_eq!(five["next"].as_array().unwrap().len(), 5, "{five}");
}

#[test]
fn a_time_that_is_past_has_to_be_meant() {
    let place = Place::with(CONFIG);
    let past = place.line("tasks add t --agent echo --query q --at '2020-01-02 09:00'");
    assert_eq!(past.code(), 2);
    assert!(past.err.contains("which is past") && past.err.contains("--at now"), "{}", past.err);
    place.line("tasks add t --agent echo --query q --at now").well();
}

#[test]
fn a_run_is_named_by_how_its_name_begins() {
    let place = Place::with(CONFIG);
    place.line("tasks add t --agent echo --query q --overlap allow_parallel").well();
    let run = |_| place.line("tasks run t -q").well().out.trim().to_owned();
    let ids: Vec<String> = (0..2).map(run).collect();
    let same = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    let shown = place.line(&format!("runs show -q {}", &ids[0][..=same])).well().out;
    assert_eq!(shown.trim(), ids[0]);
    let several = place.line(&format!("runs cancel {}", &ids[0][..same]));
    assert_eq!(several.code(), 2, "{}", several.err);
    assert!(several.err.contains("2 runs begin with") && several.err.contains(&ids[1]), "{}", several.err);
    let events = place.line(&format!("events --run {} --json", &ids[1][..=same])).well().json();
    assert_eq!(events["run_id"], ids[1].as_str());
    place.line(&format!("runs cancel {}", &ids[1][..=same])).well();
    let left = place.line("runs cancel --task t").well();
    assert!(left.err.contains("1 run was cancelled"), "{}", left.err);
    let again = place.line("runs cancel --status cancelled").well();
    assert!(again.err.contains("nothing was cancelled: no run matches that has not ended"), "{}", again.err);
    let ended = place.line(&format!("runs cancel {}", ids[0])).well();
    assert!(ended.out.contains("cancelled"), "{}", ended.out);
    let resumed = place.line(&format!("runs resume {} --approve", ids[0]));
    assert!(resumed.code() == 4 && resumed.err.contains("--status awaiting_approval"), "{}", resumed.err);
}

#[test]
fn the_newest_events_are_told_when_nothing_is_said() {
    let place = Place::with(CONFIG);
    place.line("tasks add t --agent echo --query q").well();
    for _ in 0..30 {
        place.line("tasks pause t").well();
        place.line("tasks resume t").well();
    }
    let all = place.line("events --after 0 --json").well().json();
    let all = all["events"].as_array().unwrap().clone();
    assert!(all.len() > 60, "{}", all.len());
    let newest = place.line("events --limit 7 --json").well().json();
    assert_eq!(newest["events"].as_array().unwrap()[..], all[all.len() - 7..]);
    let told = place.line("events").well();
    assert_eq!(told.out.lines().count(), 50);
    assert!(told.err.contains("the newest 50 events"), "{}", told.err);
    let of_task = place.line("events --task t --limit 3 --json").well().out;
    let of_task: Vec<serde_json::Value> =
        of_task.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of_task[..], all[all.len() - 3..]);
}

#[test]
fn hints_have_the_names_that_were_given() {
    let place = Place::with(CONFIG);
    place.line("tasks add ping --agent echo --query q --paused").well();
    let refused = place.line("tasks run ping");
    assert!(refused.err.contains("`tenure tasks resume ping`"), "{}", refused.err);
    assert!(!refused.err.contains("override_pause"), "{}", refused.err);
    let near = place.line("runs list --task pong").well();
    assert!(near.err.contains("warning: ") && near.err.contains("did you mean \"ping\"?"), "{}", near.err);
    let variable = crate::program::said(place.command(&["config"]).env("TENURE_LISTN", "x")).well();
    assert!(variable.err.contains("did you mean TENURE_LISTEN?"), "{}", variable.err);
    assert_eq!(place.line("tree -q").code(), 2, "a tree has no name");
    let long = place.line("status --url http://127.0.0.1:1/background");
    assert!(long.code() == 2 && long.err.contains("without \"/background\""), "{}", long.err);
}

#[test]
fn a_file_of_a_run_is_printed_as_it_is() {
    let place = Place::with(CONFIG);
    place.line("tasks add t --agent echo --query 'All is well.'").well();
    let server = place.serve();
    let run = place.line(&format!("tasks run t --wait -q --url {}", server.url)).well().out;
    let run = run.trim();
    for way in [String::new(), format!("--url {}", server.url)] {
        assert_eq!(place.line(&format!("runs cat {run} output.md {way}")).well().out, "All is well.");
        assert_eq!(place.line(&format!("runs cat {run} nothing {way}")).code(), 3);
        assert_ne!(place.line(&format!("runs cat {run} ../output.md {way}")).code(), 0);
    }
}
