//! Private servers that speak MongoDB's protocol: a few for a test process, on the loopback, in temporary folders.
//! They are SecantusDB, on the storage engine of MongoDB; a MongoDB server is named in `TENURE_TEST_MONGODB`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{Found, programs, skipped};

/// That of `TENURE_TEST_MONGODB`, without a database, or the first of this process.
pub(crate) fn mongodb() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var("TENURE_TEST_MONGODB") {
        Ok(url) => Ok(url),
        Err(_) => {
            let found = Shared::start(&mut SHARED.lock());
            found.inspect_err(|why| skipped("mongodb", why))
        }
    })
}

/// The same, or those of this process that wait no longer for whoever fell silent in a transaction than leases last in
/// tests that kill hosts. One serves with one core at most, so there are as many as cores, which are taken in turn.
#[cfg(feature = "mongodb")]
pub(crate) fn impatient() -> Found {
    static FOUND: OnceLock<Result<Vec<String>, String>> = OnceLock::new();
    static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());
    static TURN: Mutex<usize> = Mutex::new(0);
    let found = FOUND.get_or_init(|| match std::env::var("TENURE_TEST_MONGODB") {
        Ok(url) => Ok(vec![url]),
        Err(_) => {
            let many = std::thread::available_parallelism().map_or(1, usize::from);
            let start = |_| {
                let server = Server::start(&[])?;
                end_transactions_soon(&server.url())?;
                Ok(server)
            };
            let servers: Result<Vec<Server>, String> = (0..many).map(start).collect();
            let servers = servers.inspect_err(|why| skipped("mongodb", why))?;
            let urls = servers.iter().map(Server::url).collect();
            SERVERS.lock().extend(servers);
            Ok(urls)
        }
    });
    let urls = found.clone()?;
    let mut turn = TURN.lock();
    *turn = (*turn + 1) % urls.len();
    Ok(urls[*turn].clone())
}

/// The servers of this process.
static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// One that tests share, and how many of them use it.
struct Shared {
    server: Server,
    users: usize,
}

impl Shared {
    fn start(shared: &mut Vec<Self>) -> Found {
        let server = Server::start(&[])?;
        let url = server.url();
        shared.push(Self { server, users: 0 });
        Ok(url)
    }
}

/// A server while a test uses it.
pub(crate) struct Lease(String);

impl Lease {
    /// The server that has the least to do. One serves with one core at most, so there are as many as tests at once.
    pub(crate) fn take() -> Result<Self, String> {
        let first = mongodb().clone()?;
        let mut shared = SHARED.lock();
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        if !shared.is_empty() && shared.len() < most && shared.iter().all(|one| one.users > 0) {
            Shared::start(&mut shared)?;
        }
        let Some(least) = shared.iter_mut().min_by_key(|one| one.users) else { return Ok(Self(first)) };
        least.users += 1;
        Ok(Self(least.server.url()))
    }

    /// Its address, without a database.
    pub(crate) fn url(&self) -> &str {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(shared) = SHARED.lock().iter_mut().find(|one| one.server.url() == self.0) {
            shared.users -= 1;
        }
    }
}

/// Starts the server in its folder, then waits for the pipe to close. Removes the folder unless it is told to keep it.
const LIFE: &str = r#"
trap : INT TERM HUP
die=; if setpriv --pdeathsig KILL true 2>/dev/null; then die='setpriv --pdeathsig KILL'; fi
$die "$@" </dev/null 2>&1 &
server=$!
exec >/dev/null
read -r word
kill -KILL $server; wait $server
[ "$word" = keep ] || rm -rf "$PWD"
"#;

/// A server that ends when this is dropped, or this process ends.
pub(crate) struct Server {
    port: u16,
    folder: tempfile::TempDir,
    life: Option<(Child, ChildStdin)>,
    more: Vec<String>,
    /// It fails each second commit.
    is_odd: bool,
}

impl Server {
    /// Starts one with more settings.
    pub(crate) fn start(more: &[&str]) -> Result<Self, String> {
        Self::start_as(more, false)
    }

    /// Starts one that fails each second commit and says that it was an error of its own, which only the slower one
    /// can.
    pub(crate) fn start_odd() -> Result<Self, String> {
        Self::start_as(&[], true)
    }

    fn start_as(more: &[&str], is_odd: bool) -> Result<Self, String> {
        let mut why = String::new();
        // A free port may be taken by somebody else before the server has it.
        for _ in 0..3 {
            let folder = tempfile::Builder::new().prefix("tenure-mongodb-").tempdir();
            let folder = folder.map_err(|error| error.to_string())?;
            let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            let port = socket.map_err(|error| error.to_string())?.port();
            let more = more.iter().map(|word| (*word).to_owned()).collect();
            let mut server = Self { port, folder, life: None, more, is_odd };
            match server.begin() {
                Ok(()) => return Ok(server),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Starts it again, on the same port and with the same data.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        let found = if self.is_odd { slower() } else { program() };
        let program = found.ok_or(
            "no program secantusd-rs or secantusd-py; `python3 -m venv .venv-mongo && .venv-mongo/bin/pip install \
             secantusdb==0.7.0b3` makes one, TENURE_TEST_SECANTUSD names one, and TENURE_TEST_MONGODB a server",
        )?;
        let mut command = Command::new("sh");
        command.args(["-c", LIFE, "life"]).args(program);
        if self.is_odd {
            command.env("TENURE_TEST_COMMITS_FAIL", "yes");
        }
        command.args(["--port", &self.port.to_string(), "--storage-path", "data"]).args(&self.more);
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(pipe), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a server without a voice".to_owned());
        };
        let mut last = String::new();
        let mut lines = BufReader::new(said).lines().map_while(Result::ok);
        let ready = lines.by_ref().any(|line| {
            last.clone_from(&line);
            line.to_ascii_lowercase().contains("listening")
        });
        if !ready {
            return Err(format!("the server ended: {last}"));
        }
        // Of one that is odd, errors are what is wanted.
        let tell = if self.is_odd { Box::new(drop) } else { tell_of_errors() };
        std::thread::spawn(move || lines.for_each(tell));
        self.life = Some((child, pipe));
        Ok(())
    }

    /// Ends it at once, as when its machine fails.
    pub(crate) fn kill(&mut self) {
        if let Some((mut child, mut pipe)) = self.life.take() {
            // It has ended either way.
            let _ = pipe.write_all(b"keep\n");
            drop(pipe);
            let _ = child.wait();
        }
    }

    /// Its address, without a database.
    pub(crate) fn url(&self) -> String {
        format!("mongodb://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Of what it says later: its errors, with where they happened, which the line after begins anew.
fn tell_of_errors() -> Box<dyn FnMut(String) + Send> {
    let mut telling = false;
    Box::new(move |line| {
        let begins = line.starts_with(|first: char| first.is_ascii_digit());
        telling = if begins { line.contains(" ERROR ") } else { telling };
        if telling {
            // To the handle: what a test prints is swallowed when it passes.
            let _ = writeln!(std::io::stderr(), "a server of MongoDB's protocol: {line}");
        }
    })
}

/// Has a server end a transaction of which nothing was heard for a second, instead of a minute: who was killed in one
/// has written nothing by the time that its lease has ended.
#[cfg(feature = "mongodb")]
pub(crate) fn end_transactions_soon(url: &str) -> Result<(), String> {
    use ::mongodb::{Client, bson::doc};
    let told = async {
        let admin = Client::with_uri_str(url).await?.database("admin");
        admin.run_command(doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 1 }).await
    };
    // On a thread of its own: who wants a server may be within a runtime.
    std::thread::scope(|scope| {
        let tells = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(told).map(drop).map_err(|error| error.to_string())
        });
        tells.join().unwrap_or_else(|_| Err("who told it panicked".to_owned()))
    })
}

/// The words of the command that is the server: the faster one first, and the slower one made faster.
pub(crate) fn program() -> Option<Vec<PathBuf>> {
    if let Some(named) = std::env::var_os("TENURE_TEST_SECANTUSD") {
        return Some(vec![named.into()]);
    }
    made("secantusd-rs").map(|rust| vec![rust]).or_else(slower)
}

/// Whether it is the slower one that tests are given.
pub(crate) fn is_slow() -> bool {
    let is_named = std::env::var_os("TENURE_TEST_MONGODB").is_some();
    !is_named && program().is_some_and(|program| slower() == Some(program))
}

/// That of the slower one, which can be odd.
fn slower() -> Option<Vec<PathBuf>> {
    let python = made("secantusd-py")?.with_file_name("python3");
    Some(vec![python, Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/servers/secantusd.py")])
}

/// A program of this name, of the environment that the check makes or of the path.
fn made(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-mongo/bin");
    programs(&[name], &[folder]).map(|folder| folder.join(name))
}
