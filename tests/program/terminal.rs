//! `tenure run` where somebody watches: on a terminal that `script` makes.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use crate::kit::*;
use crate::outside;
use crate::run::shell;

/// Tells progress, waits until that is stored, and answers.
const REPORT: &str = "echo '40 half way' >&3
    until grep -q progress events.jsonl 2>/dev/null; do sleep 0.02; done; sleep 0.2; cat; echo";

fn has_terminal() -> bool {
    outside::has("script", "nothing is run on a terminal")
}

/// The program on a terminal of its own, with these variables. What is written to its input is typed.
fn on_a_terminal(place: &Place, args: &str, variables: &[(&str, &str)]) -> Child {
    let ours = place.command(&[]);
    let line = format!("exec '{}' {args}", env!("CARGO_BIN_EXE_tenure"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
    for (name, _) in ours.get_envs() {
        command.env_remove(name);
    }
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color").envs(variables.iter().copied()).current_dir(place.path("."));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// All that was drawn, and how it ended.
fn drawn(mut child: Child) -> (String, Option<i32>) {
    let mut all = String::new();
    child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    (all, child.wait().unwrap().code())
}

const CLEARS: &str = "\u{1b}[2K";
/// What begins every colour and weight.
const STYLES: [&str; 3] = ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[3"];

#[test]
fn who_watches_sees_a_line_with_a_bar_that_is_gone_at_the_end_in_colours_unless_asked_for_none() {
    if !has_terminal() {
        return;
    }
    for (variables, args, coloured) in [
        (&[][..], "run tenure.toml", true),
        (&[("NO_COLOR", "1")], "run tenure.toml", false),
        (&[], "run tenure.toml --color never", false),
        (&[("NO_COLOR", "")], "run tenure.toml", true),
    ] {
        let place = shell(REPORT, "");
        let (all, code) = drawn(on_a_terminal(&place, args, variables));
        assert_eq!(code, Some(0), "{all}");
        for part in [CLEARS, "\u{2501}", " 40% running  half way  ", "the query", "completed", "events.jsonl"]
        {
            assert!(all.contains(part), "{args}, {variables:?}: no {part:?} in {all:?}");
        }
        let is_coloured = STYLES.iter().any(|style| all.contains(style));
        assert_eq!(is_coloured, coloured, "{args}, {variables:?}: {all:?}");
        let (_, behind) = all.rsplit_once(CLEARS).unwrap();
        assert!(!behind.contains('\u{2501}') && behind.contains("files in "), "the line is gone: {behind:?}");
    }
}

#[test]
fn who_does_not_watch_sees_no_line_and_no_colours() {
    let place = shell(REPORT, "");
    let mut command = place.command(&["run", "tenure.toml"]);
    let output = command.env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "1").output().unwrap();
    let all = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(all.contains("  40%  half way") && !all.contains(['\u{1b}', '\r', '\u{2501}']), "{all:?}");
    if has_terminal() {
        // Also where only one of both is watched.
        let (all, code) = drawn(on_a_terminal(&place, "run tenure.toml 2>errors", &[]));
        assert_eq!(code, Some(0), "{all}");
        assert!(!all.contains(CLEARS) && !all.contains('\u{2501}'), "{all:?}");
        assert_eq!(std::fs::read_to_string(place.path("errors")).unwrap(), "");
    }
}

#[test]
fn who_types_ctrl_c_is_told_that_it_was_heard_and_the_programs_end() {
    if !has_terminal() {
        return;
    }
    let place = shell(
        "echo $$ > ../../../../../../pid.new; mv ../../../../../../pid.new ../../../../../../pid; sleep 300 & wait",
        "",
    );
    let mut child = on_a_terminal(&place, "run tenure.toml", &[]);
    until("the program runs", || place.path("pid").exists());
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let (all, code) = drawn(child);
    assert_eq!(code, Some(6), "{all}");
    assert!(all.contains("asked to stop: Ctrl-C") && all.contains("cancelled"), "{all:?}");
    assert!(!all.contains("^C"), "what is typed breaks no line: {all:?}");
    assert!(is_gone(&std::fs::read_to_string(place.path("pid")).unwrap()), "the program outlived its run");
}
