//! `tenure run`: what it shows, and how it ends.

use std::io::Read;

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::*;

/// A task whose agent is this shell script.
pub(crate) fn shell(script: &str, task: &str) -> Place {
    let script = serde_json::to_string(script).unwrap();
    Place::with(&format!(
        "[agents.sh]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", {script}]\nstop_grace_seconds = 1\n\
         [tasks.t]\nquery = \"the query\"\n{task}\n"
    ))
}

/// Tells progress, waits until that is stored, and answers two lines.
const REPORT: &str = "echo '40 half way' >&3
    until grep -q progress events.jsonl 2>/dev/null; do sleep 0.02; done
    mkdir -p artifacts; echo data > artifacts/data.txt
    cat; echo; echo done";

#[test]
fn a_run_is_told_in_plain_lines_where_nobody_watches() {
    let place = shell(REPORT, "");
    let done = place.tenure(&["run", "tenure.toml"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    insta::assert_snapshot!("run_plain", sizes_gone(&redacted(&done.out, &place)));
}

/// Sizes of files that hold times and ids differ.
fn sizes_gone(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" kB  ").or_else(|| line.split_once(" B  ")) {
        Some((_, name)) if name.ends_with("json") || name.ends_with("jsonl") => format!("  [size]  {name}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_run_is_one_json_document_for_machines() {
    let place = shell(REPORT, "metadata = { large = 12345678901234567 }");
    let done = place.tenure(&["run", "tenure.toml", "--json"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert!(done.out.contains("12345678901234567"), "metadata keeps its digits");
    let names: Vec<&str> = document["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap().trim_start_matches("background_run_"))
        .collect();
    assert_eq!(names, ["queued", "claimed", "started", "progress", "completed"]);
    let files: Vec<&str> = document["workspace"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["artifacts", "artifacts/data.txt", "events.jsonl", "logs", "output.md", "run.json"]);
    assert_eq!(document["exit_code"], 0);
    assert_eq!(document["run"]["result"]["text"], "the query\ndone\n");
    assert_eq!(document["attempts"][0]["status"], "completed");
}

#[test]
fn a_quiet_run_prints_its_result_and_nothing_else() {
    let place = shell("printf 'just this\\377'", "");
    let output = place.command(&["run", "tenure.toml", "--quiet"]).output().unwrap();
    assert_eq!(output.stdout, b"just this\xff", "byte for byte");
    assert!(output.stderr.is_empty());
    let asked = shell("cat", "").tenure(&["run", "tenure.toml", "--quiet", "--query", "something else"]);
    assert_eq!(asked.out, "something else");
}

#[test]
fn the_exit_code_says_what_became_of_the_run() {
    let question = r#"echo '{"awaiting_approval": {"question": "sure?"}}' >&3"#;
    for (what, script, task, code, word) in [
        ("completed", "true", "", 0, "completed"),
        ("failed", "echo broken >&2; exit 3", "", 1, "failed: exit_code"),
        ("timeout", "sleep 60", "timeout_seconds = 0.2", 5, "timed out"),
        ("question", question, "", 10, "waits for a person: sure?"),
        ("paused by the file", "true", "enabled = false", 0, "completed"),
    ] {
        let place = shell(script, task);
        let done = place.tenure(&["run", "tenure.toml"]);
        assert_eq!(done.code, Some(code), "{what}: {done:?}");
        assert!(done.out.contains(word), "{what}: {done:?}");
    }
}

#[test]
fn retries_are_told_with_their_delays() {
    let place = shell(
        "[ \"$TENURE_ATTEMPT\" -gt 1 ] && echo better",
        "retry_policy = { max_retries = 1, initial_delay_seconds = 0.2, jitter = 0 }",
    );
    let done = place.tenure(&["run", "tenure.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for line in ["started, attempt 1 of 2", "again in 0.2s", "started, attempt 2 of 2", "|  better"] {
        assert!(done.out.contains(line), "{line}: {}", done.out);
    }
}

#[test]
fn what_an_agent_writes_does_not_steer_the_terminal() {
    let place = shell("printf '\\033]0;title\\007\\033[2Jgone\\n'", "");
    let done = place.tenure(&["run", "tenure.toml"]);
    assert!(!done.out.contains('\x1b') && !done.out.contains('\x07'), "{:?}", done.out);
    assert!(done.out.contains("gone"));
}

#[test]
fn a_run_goes_on_though_nobody_reads_along() {
    let place = shell("until [ -e go ]; do sleep 0.02; done; echo a; echo b; echo done > ended", "");
    place.write(
        "tenure.toml",
        std::fs::read_to_string(place.path("tenure.toml")).unwrap() + "[workspace]\nroot=\"w\"\n",
    );
    let mut child = place.command(&["run", "tenure.toml"]).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let mut folder = std::path::PathBuf::new();
    until("the run has a folder", || {
        let found = place.path("w/background/sh/t").read_dir().ok().and_then(|mut all| all.next());
        found.and_then(Result::ok).is_some_and(|entry| {
            folder = entry.path();
            true
        })
    });
    std::fs::write(folder.join("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(folder.join("ended")).unwrap(), "done\n");
}

/// Writes its process id, and ends only when it is told to.
const WAITS: &str = "echo $$ > pid.new; mv pid.new ../../../../../../pid; sleep 300 & wait";
/// The same, and does not listen.
const DEAF: &str = "trap '' TERM INT; echo $$ > pid.new; mv pid.new ../../../../../../pid
    while :; do sleep 300; done";

#[test]
fn one_signal_cancels_the_run_and_its_programs_end() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = shell(WAITS, "");
        let mut run = place.start(&["run", "tenure.toml"]);
        run.line("started");
        until("the program runs", || place.path("pid").exists());
        run.signal(signal);
        let done = run.done();
        assert_eq!(done.code, Some(6), "{done:?}");
        assert!(done.out.contains("cancelled"), "{done:?}");
        let name = if signal == Signal::INT { "Ctrl-C" } else { "SIGTERM" };
        assert!(done.out.contains(&format!("asked to stop: {name}")), "{done:?}");
        assert_eq!(done.err.matches("asked to stop").count(), 0, "it is said once: {done:?}");
        let id = std::fs::read_to_string(place.path("pid")).unwrap();
        assert!(is_gone(&id), "the program outlived its run");
    }
}

#[test]
fn a_second_signal_cuts_it_off() {
    let place = shell(DEAF, "");
    place.write(
        "tenure.toml",
        std::fs::read_to_string(place.path("tenure.toml")).unwrap().replace("= 1\n", "= 60\n"),
    );
    let mut run = place.start(&["run", "tenure.toml"]);
    run.line("started");
    until("the program runs", || place.path("pid").exists());
    run.signal(Signal::INT);
    run.error("once more cuts it off");
    run.signal(Signal::INT);
    let done = run.done();
    assert_eq!(done.code, Some(130), "{done:?}");
    let id = std::fs::read_to_string(place.path("pid")).unwrap();
    until("the program is gone", || is_gone(&id));
}

#[test]
fn a_run_that_is_skipped_says_because_of_which_and_what_to_do() {
    let place = shell(WAITS, "");
    let mut first = place.start(&["run", "tenure.toml"]);
    let line = first.line("run ");
    let id = line.rsplit(' ').next().unwrap().to_owned();
    until("the program runs", || place.path("pid").exists());
    let second = place.tenure(&["run", "tenure.toml"]);
    assert_eq!(second.code, Some(4), "{second:?}");
    assert!(second.out.contains(&format!("skipped: run {id} of the task is active")), "{second:?}");
    assert!(second.err.contains(&format!("tenure runs cancel {id} --force")), "{second:?}");
    first.signal(Signal::INT);
    assert_eq!(first.done().code, Some(6));
}

#[test]
fn a_file_with_several_tasks_is_asked_for_one() {
    let place = shell("cat", "[tasks.u]\nquery = \"another\"");
    let neither = place.tenure(&["run", "tenure.toml"]);
    assert_eq!(neither.code, Some(2));
    insta::assert_snapshot!("run_which_task", neither.err);
    let named = place.tenure(&["run", "tenure.toml", "u", "--quiet"]);
    assert_eq!((named.code, named.out.as_str()), (Some(0), "another"));
    let unknown = place.tenure(&["run", "tenure.toml", "v"]);
    assert_eq!(unknown.code, Some(3));
    insta::assert_snapshot!("run_unknown_task", unknown.err);
}

#[test]
fn the_first_example_of_the_readme_reports_on_this_machine() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/health-report.toml");
    let place = Place::with("");
    let done = place.tenure(&["run", example.to_str().unwrap()]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    for part in ["# Health of this machine", "## Disks", "## Memory", "## Load", "artifacts/report.md"] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
}

#[test]
fn the_first_task_of_the_guide_says_what_the_guide_says() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/GUIDE.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let block = |language: &str| {
        let begins = guide.split_once(&format!("```{language}\n")).unwrap().1;
        begins.split_once("```").unwrap().0.to_owned()
    };
    let place = Place::with("");
    place.write("hello.toml", block("toml"));
    let done = place.tenure(&["run", "hello.toml"]);
    let shown = block("console").replace("$ tenure run hello.toml\n", "");
    let told = done.out.split("\n\n").next().unwrap().to_owned() + "\n";
    assert_eq!(redacted(&told, &place), redacted(&shown, &place), "{done:?}");
}

#[test]
fn a_program_tells_its_progress_with_a_command() {
    let place = shell(
        "\"$PROGRAM\" progress 40 half way; until grep -q progress events.jsonl; do sleep 0.02; done",
        "",
    );
    let mut config = std::fs::read_to_string(place.path("tenure.toml")).unwrap();
    config.push_str(&format!("[agents.sh.env]\nPROGRAM = {:?}\n", env!("CARGO_BIN_EXE_tenure")));
    place.write("tenure.toml", config);
    let done = place.tenure(&["run", "tenure.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains(" 40%  half way"), "{done:?}");
    let outside = place.tenure(&["progress", "40"]);
    assert_eq!(outside.code, Some(2), "{outside:?}");
    assert!(outside.err.contains("TENURE_PROGRESS is not set"), "{outside:?}");
    assert_eq!(place.tenure(&["progress", "101"]).code, Some(2));
}

#[test]
fn a_run_stores_no_schedule_and_leaves_one_that_is_stored() {
    let place = shell("true", "schedule = { type = \"interval\", seconds = 1 }");
    assert_eq!(place.tenure(&["run", "tenure.toml"]).code, Some(0));
    let schedule = |server: &Server| server.get("/background/tasks/t").body["schedule"]["type"].clone();
    place.write("empty.toml", "");
    let server = place.serve(&["--config", "empty.toml"]);
    assert_eq!(schedule(&server), "manual");
    server.started.kill();
    let server = place.serve(&[]);
    assert_eq!(schedule(&server), "interval");
    server.started.kill();
    assert_eq!(place.tenure(&["run", "tenure.toml"]).code, Some(0));
    let server = place.serve(&["--config", "empty.toml"]);
    assert_eq!(schedule(&server), "interval");
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let place = shell("true", "");
    let coloured = |args: &[&str]| place.tenure(args).out.contains('\x1b');
    assert!(!coloured(&["config"]));
    assert!(coloured(&["config", "--color", "always"]));
    assert!(!coloured(&["config", "--color", "never"]));
}

#[test]
fn a_run_that_a_killed_program_left_behind_is_taken_over() {
    let place = shell(
        "touch began; [ \"$TENURE_ATTEMPT\" -gt 1 ] || until [ -e ../../../../../../go ]; do sleep 0.02; done
         echo \"attempt $TENURE_ATTEMPT\"",
        "[worker]\nlease = 1",
    );
    let mut first = place.start(&["run", "tenure.toml"]);
    let line = first.line("run ");
    let id = line.rsplit(' ').next().unwrap().to_owned();
    let began = place.path(".tenure/workspace/background/sh/t").join(&id).join("began");
    until("the program runs", || began.exists());
    first.kill();
    let mut last = place.tenure(&["run", "tenure.toml"]);
    until("the lease has ended", || {
        let skipped = last.code == Some(4);
        if skipped {
            last = place.tenure(&["run", "tenure.toml"]);
        }
        !skipped
    });
    place.write("go", "");
    assert_eq!(last.code, Some(0), "{last:?}");
    assert!(last.err.contains(&format!("run {id} of an earlier start is continued")), "{last:?}");
    assert!(last.out.contains("|  attempt 2") && last.out.contains("lost"), "{last:?}");
}
