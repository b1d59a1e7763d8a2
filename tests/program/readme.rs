//! The commands of the README about a server, as they are printed: what it says below each is what comes of it.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::curl;
use crate::kit::*;
use crate::pattern::is_like;

/// A command with what is printed below it.
struct Printed {
    command: String,
    answer: String,
}

/// The first block of this language after a heading.
fn block(heading: &str, language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let behind = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let begins = behind.split_once(&format!("\n```{language}\n")).unwrap().1;
    begins.split_once("\n```").unwrap().0.to_owned()
}

fn printed(block: &str) -> Vec<Printed> {
    let mut all: Vec<Printed> = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Printed { command: command.to_owned(), answer: String::new() });
            continue;
        }
        let last = all.last_mut().unwrap();
        let of = if last.command.ends_with('\\') { &mut last.command } else { &mut last.answer };
        of.push('\n');
        of.push_str(line);
    }
    all
}

#[test]
fn the_commands_about_a_server_work_as_they_are_printed() {
    if !curl::is_there() {
        return;
    }
    let all = printed(&block("Start a server", "console"));
    let [serve, ask, file, stream, list] = &all[..] else { panic!("five commands") };
    let place = Place::with("");
    std::fs::create_dir(place.path("examples")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/health-report.toml");
    std::fs::copy(example, place.path("examples/health-report.toml")).unwrap();

    let ours = |printed: &Printed| {
        let words = printed.command.strip_prefix("cargo run -- ").unwrap();
        words.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let words = ours(serve);
    assert_eq!(words[0], "serve");
    let server = place.serve(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
    let address = serve.answer.trim().strip_prefix("listening on http://").unwrap();

    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &command.replace(address, &server.address)]).env("no_proxy", "*");
        shell
    };
    let told = |command: &str| {
        let output = shell(command).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let answer = told(&ask.command);
    assert!(is_like(&answer, ask.answer.trim()), "{answer}\nis not like\n{}", ask.answer);
    let run: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let run_id = run["run_id"].as_str().unwrap();
    assert!(file.command.contains("/runs/RUN/"), "{}", file.command);
    let report = told(&file.command.replace("/RUN/", &format!("/{run_id}/")));
    assert!(report.contains("Warnings above 50%."), "{report}");
    assert_eq!(run["result_preview"], report);

    // It tells what comes from now on: there have to be runs until it is heard.
    let mut stream = shell(&format!("exec {}", stream.command));
    stream.stdin(std::process::Stdio::null());
    stream.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let stream = place.start_with(stream);
    let is_heard = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            stream.line("event: background_run_completed");
            is_heard.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        until("the stream tells of a run", || {
            let answer = server.post("/background/tasks/health-report/run", r#"{"wait": true}"#);
            assert_eq!(answer.body["status"], "completed", "{answer:?}");
            is_heard.load(std::sync::atomic::Ordering::Relaxed)
        });
    });

    let words = ours(list);
    let tasks = place.tenure(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(tasks.code, Some(0), "{tasks:?}");
    assert!(tasks.out.contains("health-report"), "{tasks:?}");
    server.started.signal(Signal::TERM);
    assert_eq!(server.started.done().code, Some(0));
}
