//! A private Redis server: one for a test process, on the loopback, in a temporary folder.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use super::{Found, programs, skipped};

/// That of `TENURE_TEST_REDIS`, or one of this process.
pub(crate) fn redis() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    static SERVER: OnceLock<Server> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var("TENURE_TEST_REDIS") {
        Ok(url) => Ok(url),
        Err(_) => match Server::start(&[]) {
            Ok(server) => Ok(SERVER.get_or_init(|| server).url()),
            Err(why) => {
                skipped("redis", &why);
                Err(why)
            }
        },
    })
}

/// Starts the server in its folder, then waits for the pipe to close. Removes the folder unless it is told to keep it.
const LIFE: &str = r#"
program=$1; port=$2; shift 2
trap : INT TERM HUP
die=; if setpriv --pdeathsig KILL true 2>/dev/null; then die='setpriv --pdeathsig KILL'; fi
$die "$program" --port "$port" --bind 127.0.0.1 --save '' --dir . "$@" </dev/null &
server=$!
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
}

impl Server {
    /// Starts one with more settings.
    pub(crate) fn start(more: &[&str]) -> Result<Self, String> {
        let mut why = String::new();
        // A free port may be taken by somebody else before the server has it.
        for _ in 0..3 {
            let folder = tempfile::Builder::new().prefix("tenure-redis-").tempdir();
            let folder = folder.map_err(|error| error.to_string())?;
            let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            let port = socket.map_err(|error| error.to_string())?.port();
            let more = more.iter().map(|word| (*word).to_owned()).collect();
            let mut server = Self { port, folder, life: None, more };
            match server.begin() {
                Ok(()) => return Ok(server),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Starts it again, on the same port and with the same data.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        let program = programs(&["redis-server"], &[])
            .map(|folder| folder.join("redis-server"))
            .ok_or("no program redis-server; install a Redis server, or name one in TENURE_TEST_REDIS")?;
        let mut command = Command::new("sh");
        command.args(["-c", LIFE, "life"]).arg(program).arg(self.port.to_string()).args(&self.more);
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
            line.contains("Ready to accept connections")
        });
        if !ready {
            return Err(format!("the server ended: {last}"));
        }
        // What it says later is read by nobody, but read.
        std::thread::spawn(move || lines.for_each(drop));
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

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
