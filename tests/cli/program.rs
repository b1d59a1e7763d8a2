//! The program in a folder of its own, and what it said.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// What the program said, and how it ended.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    status: ExitStatus,
}

impl Said {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().expect("the program ends by itself")
    }

    /// The same, if all went well.
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code(), 0, "{}\n{}", self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

/// A folder in which the program is used.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// With a file of settings.
    pub(crate) fn with(config: &str) -> Self {
        let place = Self::new();
        place.write("tenure.toml", config);
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(args).current_dir(self.path()).env_clear().env("TZ", "UTC").stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Said {
        said(&mut self.command(args))
    }

    /// The same with this on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> Said {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        of(output)
    }

    /// A line as it is typed, with what the program said: without what differs from time to time.
    pub(crate) fn told(&self, line: &str) -> String {
        let said = self.run(&words(line));
        let mut told = format!("$ tenure {line}\n");
        for (mark, text) in [("", &said.out), ("! ", &said.err)] {
            for line in masked(text).lines() {
                writeln!(told, "{}", format!("{mark}{line}").trim_end()).unwrap();
            }
        }
        if said.code() != 0 {
            writeln!(told, "exit code {}", said.code()).unwrap();
        }
        told
    }

    /// Lines one after the other.
    pub(crate) fn told_all(&self, lines: &[&str]) -> String {
        lines.iter().map(|line| self.told(line)).collect::<Vec<_>>().join("\n")
    }

    /// A server on the store of this folder.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[], "")
    }

    /// One that wants to be shown a token.
    pub(crate) fn serve_with_token(&self, token: &str) -> Server {
        self.serve_with(&[], token)
    }

    /// One that has no agents, so that what is queued stays so.
    pub(crate) fn serve_without_agents(&self) -> Server {
        self.write("empty.toml", "");
        self.serve_with(&["--config", "empty.toml"], "")
    }

    fn serve_with(&self, more: &[&str], token: &str) -> Server {
        let words = [&["serve", "--listen", "127.0.0.1:0", "--log", "error"], more].concat();
        let mut command = self.command(&words);
        let mut child = command.env("TENURE_TOKEN", token).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it says where it listens").unwrap();
        let url = line.strip_prefix("listening on ").expect("it says where it listens").to_owned();
        Server { child, url }
    }
}

/// A server; it is killed with the value.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn said(command: &mut Command) -> Said {
    of(command.output().unwrap())
}

fn of(output: std::process::Output) -> Said {
    Said {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        status: output.status,
    }
}

/// The words of a line, with what stands in single quotes as one.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The text with ids and instants put aside; what stands under each other still does.
pub(crate) fn masked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = String::new();
    let mut at = 0;
    while at < chars.len() {
        let id = run_of(&chars[at..], |c| c.is_ascii_hexdigit() || c == '-');
        let instant = run_of(&chars[at..], |c| c.is_ascii_digit() || "-:.TZ".contains(c));
        let begins = at == 0 || !chars[at - 1].is_ascii_alphanumeric();
        if begins && instant == "0000-00-00T00:00:00.000Z".len() && chars[at + 10] == 'T' {
            masked.push_str("0000-00-00T00:00:00.000Z");
            at += instant;
        } else if begins && (id == 32 || id == 36) && chars[at..at + id].iter().any(|c| c.is_ascii_digit()) {
            masked.push_str(&"#".repeat(id));
            at += id;
        } else {
            masked.push(chars[at]);
            at += 1;
        }
    }
    masked
}

fn run_of(chars: &[char], is: impl Fn(char) -> bool) -> usize {
    chars.iter().take_while(|c| is(**c)).count()
}

#[test]
fn what_differs_from_time_to_time_is_put_aside() {
    assert_eq!(
        masked("run 019c2f6e8d5a7c31a0b4019c2f6e8d5a at 2026-11-29T22:00:00.000Z, b0de"),
        format!("run {} at 0000-00-00T00:00:00.000Z, b0de", "#".repeat(32))
    );
    assert_eq!(words("tasks add x --query 'a b'"), ["tasks", "add", "x", "--query", "a b"]);
}
