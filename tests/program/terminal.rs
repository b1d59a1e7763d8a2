//! `tenure run` where somebody watches: on a terminal that `script` makes.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::*;
use crate::outside;
use crate::run::shell;

/// Tells progress, waits until that is stored and has been seen, and answers.
const REPORT: &str = "echo '40 half way' >&3
    until grep -q progress events.jsonl 2>/dev/null; do sleep 0.02; done
    until [ -e ../../../../../../seen ]; do sleep 0.02; done; cat; echo";

fn has_terminal() -> bool {
    outside::has("script", "nothing is run on a terminal")
}

/// The program on a terminal of its own. Ended with this value.
struct Terminal {
    child: Child,
    drawn: Receiver<Vec<u8>>,
    all: Vec<u8>,
}

/// The program on a terminal, with these variables.
fn on_a_terminal(place: &Place, args: &str, variables: &[(&str, &str)]) -> Terminal {
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
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (tell, drawn) = channel();
    std::thread::spawn(move || {
        let mut piece = vec![0; 4096];
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            if tell.send(piece[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    Terminal { child, drawn, all: Vec::new() }
}

impl Terminal {
    fn types(&mut self, keys: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(keys).unwrap();
    }

    /// Reads on while this holds of what was drawn.
    fn read_while(&mut self, goes_on: impl Fn(&str) -> bool) -> Result<(), RecvTimeoutError> {
        let until = Instant::now() + MOST;
        while goes_on(&String::from_utf8_lossy(&self.all)) {
            let left = until.saturating_duration_since(Instant::now());
            self.all.extend(self.drawn.recv_timeout(left)?);
        }
        Ok(())
    }

    /// Waits until this is drawn.
    fn shows(&mut self, text: &str) {
        let shown = self.read_while(|all| !all.contains(text));
        shown.unwrap_or_else(|why| panic!("no {text:?}, {why}: {:?}", String::from_utf8_lossy(&self.all)));
    }

    /// All that was drawn, and how it ended.
    fn done(mut self) -> (String, Option<i32>) {
        let ended = self.read_while(|_| true);
        let all = String::from_utf8_lossy(&self.all).into_owned();
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected), "it does not end: {all:?}");
        (all, self.child.wait().unwrap().code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // What runs on the terminal is told so too, and ends what it started.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.read_while(|_| true);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        let mut terminal = on_a_terminal(&place, args, variables);
        terminal.shows(" 40% running  half way  ");
        place.write("seen", "");
        let (all, code) = terminal.done();
        assert_eq!(code, Some(0), "{all}");
        for part in [CLEARS, "\u{2501}", "the query", "completed", "events.jsonl"] {
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
    place.write("seen", "");
    let mut command = place.command(&["run", "tenure.toml"]);
    let output = command.env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "1").output().unwrap();
    let all = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(all.contains("  40%  half way") && !all.contains(['\u{1b}', '\r', '\u{2501}']), "{all:?}");
    if has_terminal() {
        // Also where only one of both is watched.
        let (all, code) = on_a_terminal(&place, "run tenure.toml 2>errors", &[]).done();
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
    let place = shell("cd ../../../../../..; sleep 300 & echo $$ $! > pids.new; mv pids.new pids; wait", "");
    let mut terminal = on_a_terminal(&place, "run tenure.toml", &[]);
    until("the program runs", || place.path("pids").exists());
    terminal.types(b"\x03");
    let (all, code) = terminal.done();
    assert_eq!(code, Some(6), "{all}");
    assert!(all.contains("asked to stop: Ctrl-C") && all.contains("cancelled"), "{all:?}");
    assert!(!all.contains("^C"), "what is typed breaks no line: {all:?}");
    let pids = std::fs::read_to_string(place.path("pids")).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert!(pids.len() == 2 && is_gone(pids[0]), "the program outlived its run");
    // It is killed with its shell, and nobody waits for it.
    until("what the program started is gone too", || is_gone(pids[1]));
}
