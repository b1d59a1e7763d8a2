//! A server that is a test's own: it is stopped, killed, paused and set back, and started again on the same port.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{installed_postgres, other_user, programs};

/// What differs from server to server, one entry each.
struct Kind {
    name: &'static str,
    /// Its programs: the first makes its data, if that takes one; the last is the server. None if it is found in
    /// another way.
    programs: &'static [&'static str],
    make: &'static [&'static str],
    serve: &'static [&'static str],
    url: &'static str,
    /// What it says when it serves.
    ready: &'static str,
    /// Whether it refuses to run for root.
    not_as_root: bool,
    /// Tells it how to be, each time it begins to serve.
    told: fn(&str) -> Result<(), String>,
    /// The signal after which it ends without putting anything in order, as when its machine fails.
    ends_by: &'static str,
}

/// Each keeps what it has answered when its program is killed. The disk is not what is tested.
const KINDS: &[Kind] = &[
    Kind {
        name: "postgres",
        programs: &["initdb", "postgres"],
        make: &[
            "-D",
            "DATA",
            "-U",
            "tenure",
            "--auth=trust",
            "--no-sync",
            "--no-instructions",
            "-E",
            "UTF8",
            "--locale=C",
        ],
        serve: &[
            "-D",
            "DATA",
            "-p",
            "PORT",
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=100",
            "-c",
            "lc_messages=C",
            "-c",
            "autovacuum=off",
        ],
        url: "postgres://tenure@127.0.0.1:PORT/postgres",
        ready: "ready to accept connections",
        not_as_root: true,
        told: |_| Ok(()),
        ends_by: "QUIT",
    },
    Kind {
        name: "redis",
        programs: &["redis-server"],
        make: &[],
        serve: &[
            "--port",
            "PORT",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            "DATA",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ],
        url: "redis://127.0.0.1:PORT/0",
        ready: "ready to accept connections",
        not_as_root: false,
        told: |_| Ok(()),
        ends_by: "KILL",
    },
    #[cfg(feature = "mongodb")]
    Kind {
        name: "mongodb",
        programs: &[],
        make: &[],
        // It keeps its journal in memory for a while unless it is told otherwise, also when a write asks for it.
        serve: &["--port", "PORT", "--storage-path", "DATA", "--sync-on-commit"],
        url: "mongodb://127.0.0.1:PORT/",
        ready: "listening",
        not_as_root: false,
        told: super::mongodb::end_transactions_soon,
        ends_by: "KILL",
    },
];

/// Starts the server, says who it is, and waits for the pipe to close. Then it ends the server, also one that is
/// paused; and removes its folder unless it is told to keep it.
const LIFE: &str = r#"
folder=$1; by=$2; shift 2
trap : INT TERM HUP
die=; if setpriv --pdeathsig KILL true 2>/dev/null; then die='setpriv --pdeathsig KILL'; fi
$die "$@" </dev/null 2>&1 &
server=$!
echo "server $server"
exec >/dev/null 2>&1
read -r word
kill -CONT $server $(cat /proc/$server/task/$server/children)
kill -$by $server; wait $server
[ "$word" = keep ] || rm -rf "$folder"
"#;

/// Whether one of this kind can be started here.
pub(crate) fn is_there(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name && kind.words().is_some())
}

impl Kind {
    /// The words of the command that makes its data, and of the one that is the server.
    fn words(&self) -> Option<[Vec<PathBuf>; 2]> {
        let (Some(first), Some(last)) = (self.programs.first(), self.programs.last()) else {
            return Some([Vec::new(), super::mongodb::program()?]);
        };
        let more = if self.name == "postgres" { installed_postgres() } else { Vec::new() };
        let bin = programs(self.programs, &more)?;
        Some([first, last].map(|name| vec![bin.join(name)]))
    }
}

/// The server. It ends with this value, or with this OS process.
pub(crate) struct Own {
    kind: &'static Kind,
    program: Vec<PathBuf>,
    port: u16,
    folder: tempfile::TempDir,
    life: Option<Life>,
}

struct Life {
    shell: Child,
    pipe: ChildStdin,
    server: Pid,
}

impl Own {
    /// Starts one of this kind.
    pub(crate) fn start(name: &str) -> Result<Self, String> {
        let kind = KINDS.iter().find(|kind| kind.name == name).ok_or("no such kind of server")?;
        let missing = || format!("no programs for {name}; install it");
        let [makes, program] = kind.words().ok_or_else(missing)?;
        let mut why = String::new();
        // A free port may be taken by somebody else before the server has it.
        for _ in 0..3 {
            let mut own = Self::made(kind, &makes, program.clone()).map_err(|error| error.to_string())?;
            match own.begin() {
                Ok(()) => return Ok(own),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn made(kind: &'static Kind, makes: &[PathBuf], program: Vec<PathBuf>) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("tenure-{}-", kind.name)).tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr())?.port();
        let own = Self { kind, program, port, folder, life: None };
        if let Some((user, group)) = own.user() {
            std::os::unix::fs::chown(own.folder.path(), Some(user), Some(group))?;
        }
        if let (false, Some(makes)) = (kind.make.is_empty(), makes.first()) {
            let made = own.command(makes).args(own.words(kind.make)).output()?;
            if !made.status.success() {
                return Err(std::io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
            }
        } else {
            std::fs::create_dir(own.data())?;
        }
        Ok(own)
    }

    /// Starts it, on the same port and with the data that is there.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        let mut command = self.command(Path::new("sh"));
        command.args(["-c", LIFE, "life"]).arg(self.folder.path()).arg(self.kind.ends_by);
        command.args(&self.program).args(self.words(self.kind.serve));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(|error| error.to_string())?;
        let (Some(pipe), Some(said)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err("a server without a voice".to_owned());
        };
        let (mut last, mut server) = (String::new(), None);
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        let ready = lines.by_ref().any(|line| {
            let id = line.strip_prefix("server ").and_then(|id| Pid::from_raw(id.parse().ok()?));
            server = server.or(id);
            last.clone_from(&line);
            line.to_lowercase().contains(self.kind.ready)
        });
        let Some(server) = server.filter(|_| ready) else { return Err(format!("the server ended: {last}")) };
        // What it says later is read by nobody, but read.
        std::thread::spawn(move || lines.for_each(drop));
        self.life = Some(Life { shell, pipe, server });
        (self.kind.told)(&self.url())
    }

    /// Ends it at once, as when its machine fails. Its data stays.
    pub(crate) fn kill(&mut self) {
        if let Some(Life { mut shell, mut pipe, .. }) = self.life.take() {
            // It has ended either way.
            let _ = pipe.write_all(b"keep\n");
            drop(pipe);
            let _ = shell.wait();
        }
    }

    /// It does nothing any more, until it is woken.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    /// To the server and to its own children, each of which serves a connection.
    fn signal(&self, signal: Signal) {
        let Some(Life { server, .. }) = &self.life else { return };
        kill_process(*server, signal).expect("a signal");
        let id = server.as_raw_nonzero();
        // First the server itself, so that there are no more of them afterwards.
        let children =
            std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("its children");
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            // It may have ended meanwhile.
            let _ = kill_process(child, signal);
        }
    }

    /// Keeps a copy of its data as it is; it may not run.
    pub(crate) fn keep_copy(&self) {
        self.copy(&self.data(), &self.folder.path().join("copy"));
    }

    /// Sets its data back to the copy; it may not run.
    pub(crate) fn set_back(&self) {
        self.copy(&self.folder.path().join("copy"), &self.data());
    }

    fn copy(&self, from: &Path, to: &Path) {
        assert!(self.life.is_none(), "what is copied while it is written is no copy");
        if to.exists() {
            std::fs::remove_dir_all(to).expect("the folder is removed");
        }
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp");
        assert!(copied.success(), "a copy of the data");
    }

    /// Its number, while it runs.
    pub(crate) fn id(&self) -> Option<i32> {
        self.life.as_ref().map(|life| life.server.as_raw_nonzero().get())
    }

    pub(crate) fn url(&self) -> String {
        self.kind.url.replace("PORT", &self.port.to_string())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn user(&self) -> Option<(u32, u32)> {
        if self.kind.not_as_root { other_user() } else { None }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        if let Some((user, group)) = self.user() {
            command.uid(user).gid(group);
        }
        command
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        let (port, data) = (self.port.to_string(), self.data().to_string_lossy().into_owned());
        let word = |word: &&str| match *word {
            "PORT" => port.clone(),
            "DATA" => data.clone(),
            other => other.to_owned(),
        };
        words.iter().map(word).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
    }
}
