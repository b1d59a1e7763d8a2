//! The program in a folder of its own, as a child that is waited for.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::until::{MOST, until};

/// A folder with a configuration.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    /// A folder with this as its `tenure.toml`.
    pub(crate) fn with(config: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        place.write("tenure.toml", config);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The same, for a file that may be read meanwhile: that has all of the old text or all of the new one.
    pub(crate) fn replace(&self, name: &str, text: impl AsRef<[u8]>) {
        let beside = format!("{name}.new");
        self.write(&beside, text);
        std::fs::rename(self.path(&beside), self.path(name)).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_tenure")), args)
    }

    /// The same, of a copy of the program.
    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["TENURE", "OMNICORE", "RUST_LOG"].iter().any(|ours| name.starts_with(ours)) {
                command.env_remove(name);
            }
        }
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn tenure(&self, args: &[&str]) -> Done {
        done(self.command(args).output().unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Started {
        Started::new(self.command(args))
    }

    pub(crate) fn start_with(&self, command: Command) -> Started {
        Started::new(command)
    }

    /// Starts a server on a free port, and waits until it says that it is ready.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut started = self.start(&all);
        let line = started.line("listening on http://");
        let address = line.trim_start_matches("listening on http://").to_owned();
        Server { started, address }
    }
}

fn done(output: std::process::Output) -> Done {
    Done {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that runs. Killed with this value.
pub(crate) struct Started {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    out: String,
    err: String,
}

impl Started {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let errors = lines_of(child.stderr.take().unwrap());
        Self { child, lines, errors, out: String::new(), err: String::new() }
    }

    /// Waits for a line of standard output with this in it.
    pub(crate) fn line(&mut self, with: &str) -> String {
        find(&self.lines, &mut self.out, with).unwrap_or_else(|| {
            self.err.extend(self.errors.try_iter().map(|line| line + "\n"));
            panic!("no line with {with:?}:\n{}\n{}", self.out, self.err)
        })
    }

    /// Waits for a line of standard error with this in it.
    pub(crate) fn error(&mut self, with: &str) -> String {
        find(&self.errors, &mut self.err, with)
            .unwrap_or_else(|| panic!("no error with {with:?}:\n{}\n{}", self.err, self.out))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn done(mut self) -> Done {
        let status = self.child.wait().unwrap();
        let rest = |lines: &Receiver<String>, seen: &mut String| {
            while let Ok(line) = lines.recv_timeout(MOST) {
                writeln!(seen, "{line}").unwrap();
            }
        };
        rest(&self.lines, &mut self.out);
        rest(&self.errors, &mut self.err);
        Done { code: status.code(), out: std::mem::take(&mut self.out), err: std::mem::take(&mut self.err) }
    }

    /// Ends it as the end of the machine would, and waits for that.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

fn find(lines: &Receiver<String>, seen: &mut String, with: &str) -> Option<String> {
    let until = Instant::now() + MOST;
    loop {
        let line = lines.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        writeln!(seen, "{line}").unwrap();
        if line.contains(with) {
            return Some(line);
        }
    }
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) started: Started,
    pub(crate) address: String,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, Some(body)).unwrap()
    }

    /// Wants a run of a task, and answers its name.
    pub(crate) fn run(&self, task: &str) -> String {
        let answer = self.post(&format!("/background/tasks/{task}/run"), "{}");
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body["run_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn run_of(&self, run_id: &str) -> Value {
        self.get(&format!("/background/runs/{run_id}")).body
    }

    /// Looks at a run until it stands so.
    pub(crate) fn until(&self, run_id: &str, status: &str) -> Value {
        let mut run = Value::Null;
        until(&format!("{run_id} is {status}"), || {
            run = self.run_of(run_id);
            run["status"] == status
        });
        run
    }

    /// One request, on a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> std::io::Result<Answer> {
        ask(&self.address, method, path, body)
    }
}

/// One request, on a connection of its own.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: Option<&str>) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(MOST))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(body) = body {
        write!(request, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()).unwrap();
    }
    request.push_str("\r\n");
    request.push_str(body.unwrap_or_default());
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| std::io::Error::other("half an answer"))
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        unchunked(body)?
    } else {
        body.to_owned()
    };
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(&body).ok()? };
    Some(Answer { status, body })
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}

/// Whether a process is gone, or has ended and only waits to be counted.
pub(crate) fn is_gone(id: &str) -> bool {
    match std::fs::read_to_string(Path::new("/proc").join(id.trim()).join("stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// The text without what differs from run to run: ids, times, lengths, sizes.
pub(crate) fn redacted(text: &str, place: &Place) -> String {
    let text = text.replace(&*place.folder.path().to_string_lossy(), "[folder]");
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        shown.push_str(&redacted_line(line));
    }
    shown
}

fn redacted_line(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let core = word.trim_end_matches('\n');
        let end = &word[core.len()..];
        let parts: Vec<String> = core.split('/').map(redacted_word).collect();
        words.push(parts.join("/") + end);
    }
    words.join(" ")
}

fn redacted_word(word: &str) -> String {
    let bare = word.trim_matches(|c| "\",:;.".contains(c));
    let hex = bare.len() == 32 && bare.chars().all(|c| c.is_ascii_hexdigit());
    let uuid = bare.len() == 36 && bare.matches('-').count() == 4;
    let seconds = bare
        .strip_suffix('s')
        .is_some_and(|number| number.contains('.') && number.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let instant = bare.len() == 24 && bare.ends_with('Z') && bare.contains('T');
    let with = match () {
        () if hex || uuid => "[id]",
        () if seconds => "[s]",
        () if instant => "[instant]",
        () => return word.to_owned(),
    };
    word.replace(bare, with)
}
