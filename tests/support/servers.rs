//! Private servers: one of each kind for a test process, on the loopback, in a temporary folder.
//!
//! A small shell waits beside the server for the end of a pipe that only this process holds. However this process
//! ends, killed or not, the shell then stops the server and removes the folder.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::num::NonZero;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;

#[path = "servers/mongodb.rs"]
pub(crate) mod mongodb;
#[path = "servers/own.rs"]
pub(crate) mod own;
#[path = "servers/redis.rs"]
pub(crate) mod redis;
#[path = "servers/skew.rs"]
pub(crate) mod skew;

/// Where a server can be reached; or why there is none.
pub(crate) type Found = Result<String, String>;

/// A PostgreSQL server: that of `TENURE_TEST_POSTGRES`, or one of this process.
pub(crate) fn postgres() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var("TENURE_TEST_POSTGRES") {
        Ok(url) => Ok(url),
        Err(_) => start_postgres(&FORGETFUL).inspect_err(|why| skipped("postgres", why)),
    })
}

/// What tests need not wait for: nothing of theirs has to survive the machine.
const FORGETFUL: [&str; 4] =
    ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off"];

/// How many tests keep this machine busy: as much as half of the time a test waits for its server.
pub(crate) fn enough_tests_at_once() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get) * 2
}

/// Whether tests without this server, or this program, have to fail instead of being left out.
pub(crate) fn is_required(server: &str) -> bool {
    std::env::var("TENURE_TEST_REQUIRE").is_ok_and(|all| all.split(',').any(|one| one.trim() == server))
}

/// To the handle: what a test prints is swallowed when it passes.
pub(crate) fn skipped(server: &str, why: &str) {
    let line = format!("SKIPPED {server}: {why}\n");
    // Where nobody reads it, it is still counted as ignored.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Initialises and starts, then waits for the pipe to close.
const LIFE: &str = r#"
folder=$1; port=$2; bin=$3; shift 3
trap : INT TERM HUP
"$bin/initdb" -D "$folder/data" -U tenure --auth=trust --no-sync --no-instructions -E UTF8 --locale=C >&2 || exit 1
die=; if setpriv --pdeathsig KILL true 2>/dev/null; then die='setpriv --pdeathsig KILL'; fi
$die "$bin/postgres" -D "$folder/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
    -c max_connections=200 -c lc_messages=C "$@" </dev/null &
server=$!
exec 2>/dev/null
cat >/dev/null
kill -QUIT $server; wait $server
rm -rf "$folder"
"#;

/// A server of its own, with these settings.
pub(crate) fn start_postgres(settings: &[&str]) -> Found {
    let bin = programs(&["initdb", "postgres"], &installed_postgres()).ok_or(
        "no programs initdb and postgres; install a PostgreSQL server, or name one in TENURE_TEST_POSTGRES",
    )?;
    let mut why = String::new();
    // A free port may be taken by somebody else before the server has it.
    for _ in 0..3 {
        match try_postgres(&bin, settings) {
            Ok(url) => return Ok(url),
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn try_postgres(bin: &Path, settings: &[&str]) -> Found {
    let text = |error: std::io::Error| error.to_string();
    let folder = tempfile::Builder::new().prefix("tenure-postgres-").tempdir().map_err(text)?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(text)?.port();
    let mut command = Command::new("sh");
    command.args(["-c", LIFE, "life"]).arg(folder.path()).arg(port.to_string()).arg(bin);
    command.args(settings.iter().flat_map(|setting| ["-c", *setting]));
    command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some((user, group)) = other_user() {
        std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).map_err(text)?;
        command.uid(user).gid(group);
    }
    let child = command.spawn().map_err(text)?;
    ready(child, "ready to accept connections")?;
    // From here on the shell removes it.
    let _ = folder.keep();
    Ok(format!("postgres://tenure@127.0.0.1:{port}/postgres"))
}

/// Waits until the server says that it is ready. What it says later is read by nobody, but read.
fn ready(mut child: Child, word: &'static str) -> Result<(), String> {
    let said = child.stderr.take().ok_or("a server without a voice")?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut last = String::new();
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if line.contains(word) {
                // Nobody waits any more: fine.
                let _ = tell.send(Ok(()));
            }
            last = line;
        }
        let _ = tell.send(Err(last));
        // The pipe of the shell is held as long as this process lives.
        drop(child);
    });
    told.recv().map_err(|_| "the server ended".to_owned())?
}

/// A server refuses to run for root: the user it is installed with, or nobody.
pub(crate) fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let find = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let user = fields.find(|fields| fields.first() == Some(&name) && fields.len() > 3)?;
        Some((user[2].parse().ok()?, user[3].parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody"))
}

fn installed_postgres() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

/// The first folder that has all of these programs.
pub(crate) fn programs(names: &[&str], more: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = more.iter().cloned().chain(std::env::split_paths(&path));
    let has_all = |folder: &PathBuf| names.iter().all(|name| folder.join(name).is_file());
    let mut folders = folders;
    folders.find(has_all)
}
