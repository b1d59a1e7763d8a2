//! Commands that act, straight on the store and by a server.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::program::{Place, masked};

/// An agent that answers with its query, one that fails, one that never ends.
pub(crate) const CONFIG: &str = r#"
[agents.echo]
kind = "command"
command = ["cat"]

[agents.broken]
kind = "command"
command = ["sh", "-c", "exit 3"]

[agents.stuck]
kind = "command"
command = ["sh", "-c", "cat >/dev/null; exec sleep 600"]
"#;

#[test]
fn a_task_lives_its_life_on_the_store_alone() {
    let place = Place::with(CONFIG);
    insta::assert_snapshot!(place.told_all(&[
        "tasks add report --agent echo --query 'All is well.' --cron '0 2 * * *' --retries 3 --utc",
        "tasks add report --agent echo --query again",
        "tasks list --utc",
        "tasks edit report --backoff exponential --no-timeout --misfire skip_missed --utc",
        "tasks edit report --every 90m --utc",
        "tasks edit report",
        "tasks pause report",
        "tasks run report",
        "tasks run report --override-pause",
        "runs list --utc",
        "tasks resume report",
        "tasks run report",
        "tasks show reprt",
        "tasks delete report",
        "tasks list",
        "runs list --status cancelled --utc",
    ]));
}

#[test]
fn a_task_is_made_of_all_its_flags() {
    let place = Place::with(CONFIG);
    let line = "tasks add t --agent echo --query - --at '2030-01-02 03:04' --timezone Europe/Berlin --jitter 5s \
        --timeout 1h30m --deadline 2d --retries 2 --retry-delay 10 --retry-max-delay 1m --backoff exponential \
        --retry-on timeout,exit_3 --overlap queue_next --session desk --priority -5 --concurrency-key disk \
        --concurrency-limit 2 --workspace-template files/{run_id} --misfire run_once --paused --json \
        --metadata '{\"big\":12345678901234567890.10,\"b\":1}'";
    let words = crate::program::words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = place.run_with(&words, "What of\nthe disk?\n").well();
    assert!(said.out.contains(r#""metadata":{"big":12345678901234567890.10,"b":1}"#), "{}", said.out);
    insta::assert_snapshot!(masked(&serde_json::to_string_pretty(&said.json()).unwrap()));
    let shown = place.run(&["tasks", "show", "t", "--json"]).well();
    assert_eq!(shown.out, said.out);
    assert_eq!(place.run(&["tasks", "show", "t", "-q"]).well().out, "t\n");
    let told = place.run(&["tasks", "show", "t"]).well().out;
    assert!(told.contains(r#"metadata     {"big":12345678901234567890.10,"b":1}"#), "{told}");
}

#[test]
fn a_task_is_read_from_a_file_and_flags_win_over_it() {
    let place = Place::with(CONFIG);
    place.write(
        "task.toml",
        "task_id = \"a\"\nagent_id = \"echo\"\nquery = \"from the file\"\n\
         schedule = { type = \"interval\", seconds = 60 }\n\
         retry_policy = { max_retries = 2, backoff = \"exponential\" }\n",
    );
    place.write("task.json", r#"{"agent_id": "echo", "query": "from the file", "metadata": {"n": 1.00}}"#);
    place.write(
        "tasks.toml",
        "[tasks.c]\nagent_id = \"echo\"\nquery = \"one of some\"\n[tasks.d]\nquery = \"q\"\n",
    );
    let made = |words: &[&str]| place.run(words).well().json();
    let a = made(&["tasks", "add", "-f", "task.toml", "--retries", "5", "--json"]);
    assert_eq!((&a["task_id"], &a["schedule"]["seconds"]), (&"a".into(), &60.into()));
    assert_eq!(
        (&a["retry_policy"]["max_retries"], &a["retry_policy"]["backoff"]),
        (&5.into(), &"exponential".into())
    );
    let b = place.run(&["tasks", "add", "b", "-f", "task.json", "--query", "from the flag", "--json"]).well();
    assert_eq!(b.json()["query"], "from the flag");
    assert!(
        b.out.contains(r#""metadata":{"n": 1.00}"#) || b.out.contains(r#""metadata":{"n":1.00}"#),
        "{}",
        b.out
    );
    assert_eq!(made(&["tasks", "add", "c", "-f", "tasks.toml", "--json"])["query"], "one of some");
    let edited = made(&["tasks", "edit", "b", "-f", "task.json", "--every", "5m", "--json"]);
    assert_eq!((&edited["query"], &edited["schedule"]["seconds"]), (&"from the file".into(), &300.into()));
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "\u{1b}[2Jq"]).well();
    let coloured = |words: &[&str]| place.run(words).well().out.contains("\u{1b}[");
    assert!(!coloured(&["tasks", "list"]));
    assert!(!coloured(&["tasks", "show", "t"]));
    assert!(coloured(&["tasks", "list", "--color", "always"]));
    assert!(coloured(&["tasks", "show", "t", "--color", "always"]));
    assert!(!coloured(&["tasks", "list", "--color", "always", "--json"]));
}

#[test]
fn a_changed_policy_keeps_what_is_not_changed() {
    let place = Place::with(CONFIG);
    let json = |line: &str| place.run(&crate::program::words(line)).well().json();
    json(
        "tasks add t --agent echo --query q --cron '0 2 * * *' --timezone Asia/Tokyo --misfire queue_all \
         --retries 2 --retry-delay 7 --json",
    );
    let same = json("tasks edit t --cron '0 3 * * *' --timezone Asia/Tokyo --retries 9 --json");
    assert_eq!(same["schedule"]["misfire_policy"], "queue_all");
    assert_eq!(same["retry_policy"]["initial_delay_seconds"], 7);
    assert_eq!(same["retry_policy"]["max_retries"], 9);
    let zone = json("tasks edit t --timezone America/Santiago --json");
    assert_eq!(
        (&zone["schedule"]["expression"], &zone["schedule"]["timezone"]),
        (&"0 3 * * *".into(), &"America/Santiago".into())
    );
    let other = json("tasks edit t --every 5m --json");
    assert_eq!(other["schedule"]["misfire_policy"], "run_once", "another type begins anew");
    let manual = json("tasks edit t --manual --json");
    assert_eq!(manual["schedule"]["type"], "manual");
}

#[test]
fn exit_codes_say_how_a_run_ended() {
    let place = Place::with(CONFIG);
    for agent in ["echo", "broken", "stuck"] {
        place.run(&["tasks", "add", agent, "--agent", agent, "--query", "hello"]).well();
    }
    place.run(&["tasks", "add", "late", "--agent", "stuck", "--query", "hello", "--timeout", "200ms"]).well();
    let server = place.serve();
    let run = |task: &str, more: &[&str]| {
        let words = [&["tasks", "run", task, "--wait", "--json", "--url", &server.url], more].concat();
        place.run(&words)
    };
    let done = run("echo", &[]);
    assert_eq!((done.code(), &done.json()["result_preview"]), (0, &Value::from("hello")));
    assert_eq!(run("broken", &[]).code(), 1);
    assert_eq!(run("late", &[]).code(), 5);
    let waited = run("stuck", &["--timeout", "0.3"]);
    assert_eq!(waited.code(), 5, "{}", waited.err);
    assert!(waited.err.contains("it goes on; wait again with `tenure runs wait "), "{}", waited.err);
    assert_eq!(run("stuck", &[]).code(), 4, "one is running: another is skipped");
    assert_eq!(run("nothing", &[]).code(), 3);
    let live = "queued,claimed,running";
    let stuck = place.run(&["runs", "list", "--task", "stuck", "--status", live, "-q"]).well().out;
    let mut waiting = place.command(&["runs", "wait", stuck.trim(), "--url", &server.url]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.run(&["runs", "cancel", stuck.trim(), "--force", "--reason", "enough"]).well();
    let ended = waiting.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(String::from_utf8(ended.stdout).unwrap().contains("cancelled, enough"));
}

#[test]
fn a_run_that_is_queued_on_the_store_is_executed_by_a_server_and_waited_for_there() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "first"]).well();
    let _server = place.serve();
    let done = place.run(&["tasks", "run", "t", "--query", "second\nline", "--wait", "--key", "k"]).well();
    assert!(done.out.ends_with("\n\nsecond\nline\n"), "{}", done.out);
    let again =
        place.run(&["tasks", "run", "t", "--query", "second\nline", "--key", "k", "--json"]).well().json();
    assert_eq!(again["status"], "completed", "the same key gives the same run");
    assert_eq!(place.run(&["tasks", "run", "t", "--key", "k"]).code(), 4, "another query does not");
    let run_id = again["run_id"].as_str().unwrap();
    let retried = place.run(&["runs", "retry", run_id, "--wait", "--json"]).well().json();
    assert_eq!((&retried["retry_of"], &retried["result_preview"]), (&run_id.into(), &"second\nline".into()));
    assert_eq!(
        place.run(&["runs", "resume", run_id, "--approve"]).code(),
        4,
        "it does not wait for a person"
    );
}

#[test]
fn a_run_that_asks_a_person_is_answered_and_goes_on() {
    let place = Place::with(
        r#"
[agents.asking]
kind = "command"
command = ["sh", "-c", """cat >/dev/null
if [ -n "$TENURE_APPROVAL" ]; then printf %s "$TENURE_APPROVAL"
else echo '{"awaiting_approval": {"question": "Send it?"}}' >&3; fi"""]
"#,
    );
    place.run(&["tasks", "add", "t", "--agent", "asking", "--query", "q"]).well();
    let server = place.serve();
    let asked = place.run(&["tasks", "run", "t", "--wait", "--url", &server.url]);
    assert_eq!(asked.code(), 10, "{}", asked.err);
    assert!(asked.out.contains("awaiting approval, Send it?"), "{}", asked.out);
    let run_id = place.run(&["runs", "list", "-q"]).well().out.trim().to_owned();
    let shown = place.run(&["runs", "show", &run_id]).well().out;
    assert!(shown.contains("asked      Send it?"), "{shown}");
    place.run(&["runs", "resume", &run_id, "--reject", "--answer", r#"{"why": "no", "n": 1.50}"#]).well();
    let done = place.run(&["runs", "wait", &run_id, "--json", "--url", &server.url]).well().json();
    let told: Value = serde_json::from_str(done["result_preview"].as_str().unwrap()).unwrap();
    assert_eq!((&told["approved"], &told["answer"]["why"]), (&false.into(), &"no".into()));
    place.run(&["runs", "show", &run_id, "--events"]).well();
}

#[test]
fn field_d4_a_schedule_shows_what_became_of_its_occurrences_and_which_come_next() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "stuck", "--query", "q", "--every", "1s"]).well();
    let _server = place.serve();
    // The first occurrence runs and does not end, so that the second is skipped.
    let mut following = place.command(&["events", "--follow", "--task", "t", "--after", "0"]);
    let mut following = following.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("  skipped")), "the stream ended");
    following.kill().unwrap();
    following.wait().unwrap();
    let answer = place.run(&["tasks", "occurrences", "t", "--json"]).well().json();
    let past = answer["past"].as_array().unwrap();
    assert_eq!(past.last().unwrap()["outcome"], "ran");
    assert!(past.iter().any(|past| past["reason"]["overlap"]["blocked_by"].is_string()), "{answer}");
    assert!(answer["next"].as_array().unwrap().len() >= 5, "{answer}");
    let table = place.run(&["tasks", "occurrences", "t", "--utc"]).well().out;
    let local = answer["next"][0]["due_at_local"].as_str().unwrap();
    assert!(local.ends_with("+00:00[UTC]"), "{local}");
    for told in ["to come", "+00:00 UTC", "ran", "skipped", "overlap with "] {
        assert!(table.contains(told), "{told} is not in\n{table}");
    }
}

#[test]
fn field_d9_every_run_that_has_not_ended_can_be_repaired_and_that_is_told() {
    let place = Place::with(CONFIG);
    for task in ["stuck", "waiting"] {
        let overlap = ["--overlap", "queue_next"];
        let words = [&["tasks", "add", task, "--agent", "stuck", "--query", "q"], &overlap[..]].concat();
        place.run(&words).well();
    }
    let server = place.serve();
    for (task, force) in [("stuck", true), ("waiting", false)] {
        let run = place.run(&["tasks", "run", task, "-q"]).well().out.trim().to_owned();
        let cancel: &[&str] = if force { &["--force"] } else { &[] };
        place.run(&[&["runs", "cancel", &run, "--reason", "it hangs"], cancel].concat()).well();
        assert_eq!(place.run(&["runs", "wait", &run, "--url", &server.url]).code(), 6);
        let events = place.run(&["events", "--run", &run]).well().out;
        assert!(events.contains("cancelled") && events.contains("it hangs"), "{events}");
        let again = place.run(&["runs", "retry", &run, "--json"]).well().json();
        assert_eq!(again["retry_of"], run.as_str());
        place.run(&["runs", "cancel", again["run_id"].as_str().unwrap(), "--force"]).well();
    }
}

#[test]
fn runs_are_cancelled_by_what_they_have_in_common() {
    let place = Place::with(CONFIG);
    for task in ["a", "b"] {
        place
            .run(&["tasks", "add", task, "--agent", "echo", "--query", "q", "--overlap", "allow_parallel"])
            .well();
        for _ in 0..3 {
            place.run(&["tasks", "run", task]).well();
        }
    }
    let told = place.run(&["runs", "cancel", "--task", "a", "--reason", "no more"]).well();
    assert!(told.err.contains("3 runs were cancelled"), "{}", told.err);
    let left = place.run(&["runs", "list", "--json", "--status", "queued"]).well().json();
    assert_eq!(left["total"], 3);
    let quiet = place.run(&["runs", "cancel", "--status", "queued,running", "--agent", "echo", "-q"]).well();
    assert_eq!(quiet.out, "");
    let again = place.run(&["runs", "cancel", "--agent", "echo", "--json"]).well().json();
    assert_eq!(again, serde_json::json!({ "ended": 0, "requested": 0 }));
    let of_one = place.run(&["events", "--task", "b", "--limit", "2", "--json"]).well().out;
    let of_one: Vec<Value> = of_one.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of_one.len(), 2);
    assert!(of_one.iter().all(|event| event["task_id"] == "b"), "{of_one:?}");
    let all = place.run(&["runs", "list", "--json", "--status", "cancelled"]).well().json();
    assert_eq!(all["total"], 6);
}

#[test]
fn pages_are_followed_as_far_as_is_asked_for() {
    let place = Place::with(CONFIG);
    place
        .run(&[
            "tasks",
            "add",
            "t",
            "--agent",
            "echo",
            "--query",
            "q",
            "--overlap",
            "allow_parallel",
            "--metadata",
            r#"{"n":1.00}"#,
        ])
        .well();
    let server = place.serve_without_agents();
    let queue = |_| place.run(&["tasks", "run", "t", "-q", "--url", &server.url]).well().out;
    let ids: Vec<String> = (0..7).map(queue).collect();
    let short = place.run(&["runs", "list", "--limit", "5"]).well();
    assert_eq!(short.out.lines().count(), 6);
    assert!(short.err.contains("5 of 7 runs; more with --limit N or --all"), "{}", short.err);
    let all = place.run(&["runs", "list", "--all", "-q"]).well().out;
    let newest_first: String = ids.iter().rev().map(String::as_str).collect();
    assert_eq!(all, newest_first);
    let small = Place::with(&format!("{CONFIG}\n[server]\nmax_page = 3\n"));
    let store = format!("sqlite:{}", place.path().join(".tenure/tenure.db").display());
    let paged = small.run(&["runs", "list", "--all", "--json", "--store", &store]).well();
    assert_eq!(paged.json()["runs"].as_array().unwrap().len(), 7);
    assert_eq!(paged.json()["next_cursor"], Value::Null);
    let five = small.run(&["runs", "list", "--limit", "5", "-q", "--store", &store]).well();
    assert_eq!(five.out.lines().count(), 5, "small pages are followed too");
    assert_eq!(paged.out.matches(r#""metadata":{"n":1.00}"#).count(), 7, "digits are kept over pages");
}

#[test]
fn events_are_followed_while_they_happen() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "q"]).well();
    place.run(&["tasks", "add", "other", "--agent", "echo", "--query", "q"]).well();
    let server = place.serve();
    for way in [vec!["--url", server.url.as_str()], vec![]] {
        // From the first event on, so that nothing depends on who is first.
        let words =
            [&["events", "--follow", "--task", "t", "--json", "--after", "0"], way.as_slice()].concat();
        let mut following = place.command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let run = place.run(&["tasks", "run", "t", "--wait", "-q"]).well().out;
        let lines = BufReader::new(following.stdout.take().unwrap()).lines();
        let mut seen = Vec::new();
        for line in lines {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(event["task_id"], "t");
            if event["run_id"] == run.trim() {
                seen.push(event["event"].as_str().unwrap().to_owned());
            }
            if seen.last().is_some_and(|event| event == "background_run_completed") {
                break;
            }
        }
        assert_eq!(seen.first().unwrap(), "background_run_queued", "{seen:?}");
        following.kill().unwrap();
        following.wait().unwrap();
        let of_run = place.run(&["events", "--follow", "--run", run.trim()]).well();
        assert!(of_run.out.contains("completed"), "a run that has ended has an end: {}", of_run.out);
    }
}

#[test]
fn a_stream_that_breaks_says_where_to_go_on() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "q"]).well();
    let server = place.serve();
    let words = ["events", "--follow", "--after", "0", "--url", &server.url];
    let mut following = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(following.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("created"), "{first}");
    drop(server);
    let ended = following.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(7));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.contains("hint: "), "{told}");
    let all = place.run(&["events", "--after", "0", "--json"]).well().json();
    let after = format!("go on with `--after {}`", all["events"][0]["cursor"]);
    assert!(told.contains(&after), "{after} is not in {told}");
}

#[test]
fn agents_are_made_only_where_that_is_allowed() {
    let place = Place::with(CONFIG);
    let line = "agents add writer --kind chat --endpoint http://127.0.0.1:1/v1 --model m --key-env KEY \
        --system 'Be brief.'";
    let refused = place.run(&crate::program::words(line));
    assert_eq!(refused.code(), 8, "{}", refused.err);
    place.write("tenure.toml", &format!("{CONFIG}\n[server]\nallow_agents = true\nagent_env = [\"KEY\"]\n"));
    place.run(&["store", "migrate"]).well();
    insta::assert_snapshot!(place.told_all(&[
        line,
        "agents",
        "agents show writer",
        "agents show echo",
        "agents show ehco",
        "agents delete writer",
        "agents delete writer",
        "agents list -q",
    ]));
}

#[test]
fn what_is_interrupted_leaves_nothing_half_said() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "q"]).well();
    // Who reads the output goes away after the first line: that is no fault.
    let mut command = place.command(&["reference"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(first, "# The command line\n");
    assert!(output.stderr.is_empty(), "{}", masked(&String::from_utf8(output.stderr).unwrap()));
}

#[test]
fn who_cancels_is_kept_and_told() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "q", "--overlap", "queue_next"]).well();
    let cancelled_by = |more: &[&str]| {
        let run = place.run(&["tasks", "run", "t", "-q"]).well().out.trim().to_owned();
        let words = [&["runs", "cancel", &run], more].concat();
        let output = place.command(&words).env("USER", "alice").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let shown = place.run(&["runs", "show", &run, "--json"]).well().json();
        let by = shown["cancelled_by"].as_str().unwrap().to_owned();
        let told = place.run(&["runs", "show", &run]).well().out;
        assert!(told.contains(&format!(" by {by}: ")), "{told}");
        by
    };
    assert!(cancelled_by(&[]).starts_with("alice"), "{}", cancelled_by(&[]));
    assert_eq!(cancelled_by(&["--by", "the night shift"]), "the night shift");
    let refused = place.run(&["runs", "cancel", "--task", "t", "--by", " "]);
    assert_eq!(refused.code(), 2);
    assert!(refused.err.contains("by: expected who cancels"), "{}", refused.err);
}

#[test]
fn a_task_is_edited_as_text_and_what_is_wrong_with_it_is_kept() {
    let place = Place::with(CONFIG);
    let metadata = ["--metadata", r#"{"n": 1.00, "m": 123456789012345678901234567890}"#];
    place.run(&[&["tasks", "add", "t", "--agent", "echo", "--query", "q"], &metadata[..]].concat()).well();
    let edit = |editor: &str| {
        let mut command = place.command(&["tasks", "edit", "t", "--editor"]);
        crate::program::said(command.env("EDITOR", editor).env("TMPDIR", place.path()))
    };
    let revision = || place.run(&["tasks", "show", "t", "--json"]).well().json()["revision"].clone();
    let left = || {
        let entries = std::fs::read_dir(place.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("tenure-t-")).collect::<Vec<_>>()
    };
    let said = edit("true").well();
    assert!(said.err.contains("nothing was changed"), "{}", said.err);
    let said = edit("sed -i 's/\"query\": \"q\"/\"query\": \"another\"/'").well();
    assert!(said.out.contains("task changed") && said.out.contains("another"), "{}", said.out);
    let shown = place.run(&["tasks", "show", "t", "--json"]).well();
    assert!(shown.out.contains(r#""n":1.00"#) || shown.out.contains(r#""n": 1.00"#), "{}", shown.out);
    assert!(shown.out.contains("123456789012345678901234567890"), "digit for digit: {}", shown.out);
    assert_eq!((revision(), left().len()), (2.into(), 0));
    let said = edit("false");
    assert_eq!(said.code(), 1);
    assert!(said.err.contains("nothing was changed"), "{}", said.err);
    let said = edit("sed -i -e 's/\"priority\": 0/\"priority\": \"high\"/' -e 's/\"enabled\"/\"enbled\"/'");
    assert_eq!(said.code(), 2, "{}", said.err);
    assert!(said.err.contains("priority: expected") && said.err.contains("enbled: expected"), "{}", said.err);
    let kept = left();
    assert_eq!(kept.len(), 1, "what was written is kept");
    assert!(said.err.contains(&format!("--file {}", place.path().join(&kept[0]).display())), "{}", said.err);
    assert_eq!(revision(), 2);
    let text = std::fs::read_to_string(place.path().join(&kept[0])).unwrap();
    place.write(&kept[0], &text.replace("\"high\"", "7").replace("enbled", "enabled"));
    let file = place.path().join(&kept[0]);
    let mended = place.run(&["tasks", "edit", "t", "--file", file.to_str().unwrap(), "--json"]).well();
    assert_eq!(mended.json()["priority"], 7);
    let none = crate::program::said(place.command(&["tasks", "edit", "t", "--editor"]).env("EDITOR", " "));
    assert_eq!(none.code(), 2);
    assert!(none.err.contains("hint: name one in the environment variable EDITOR"), "{}", none.err);
    let both = place.run(&["tasks", "edit", "t", "--editor", "--priority", "3"]);
    assert_eq!(both.code(), 2, "{}", both.err);
}

#[test]
fn names_alone_are_printed_once_each() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "q", "--overlap", "queue_next"]).well();
    let runs: Vec<String> = (0..3).map(|_| place.run(&["tasks", "run", "t", "-q"]).well().out).collect();
    place.run(&["runs", "cancel", "--task", "t"]).well();
    let names = place.run(&["events", "-q", "--after", "0"]).well().out;
    assert_eq!(names, format!("t\n{}", runs.concat()), "each once, though it has several events");
    let straight = place.run(&["status", "-q"]);
    assert_eq!(straight.code(), 2, "who looks at a store is no host");
    assert!(straight.err.contains("a store has no name to print"), "{}", straight.err);
    let server = place.serve();
    let name = place.run(&["status", "-q", "--url", &server.url]).well().out;
    let told = place.run(&["status", "--json", "--url", &server.url]).well().json();
    assert_eq!(name.trim(), told["worker_id"]);
}
