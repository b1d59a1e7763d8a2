//! The host's end: a socket in a private folder, made when the first program is started.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{Answered, SCHEME, Told, cut, read_line, write_line};
use crate::instance::RunContext;
use crate::tasks;

/// The name of the socket in its folder.
const SOCKET: &str = "progress";
/// How many are listened to at once, and how long each may take to say its line and to hear the answer.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause when no connection can be taken, because too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket of a host. It is gone when this is dropped.
pub(in crate::agents) struct Server {
    runs: Arc<Runs>,
    address: String,
    /// Owns the task that listens, which ends with it.
    _listening: JoinSet<()>,
    folder: Folder,
}

type Runs = Mutex<HashMap<String, RunContext>>;

/// What lets one attempt tell its progress; dropping it forgets the token.
pub(in crate::agents) struct Ticket {
    runs: Arc<Runs>,
    pub(in crate::agents) address: String,
    pub(in crate::agents) token: String,
}

impl Server {
    pub(in crate::agents) async fn open() -> io::Result<Self> {
        let folder = Folder::make().await?;
        let socket = folder.0.join(SOCKET);
        let listener = UnixListener::bind(&socket)?;
        let Some(path) = socket.to_str() else {
            return Err(io::Error::other("the temporary folder has a name that is no text"));
        };
        let address = format!("{SCHEME}{path}");
        let runs = Arc::<Runs>::default();
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, Arc::clone(&runs)));
        Ok(Self { runs, address, _listening: listening, folder })
    }

    /// Where it listens; nothing else is in that folder.
    pub(in crate::agents) fn socket(&self) -> PathBuf {
        self.folder.0.join(SOCKET)
    }

    /// A ticket for an attempt.
    pub(in crate::agents) fn ticket(&self, context: &RunContext) -> Ticket {
        let token = Uuid::new_v4().simple().to_string();
        self.runs.lock().insert(token.clone(), context.clone());
        Ticket { runs: Arc::clone(&self.runs), address: self.address.clone(), token }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.token);
    }
}

/// A folder that nobody else can look into.
struct Folder(PathBuf);

impl Folder {
    async fn make() -> io::Result<Self> {
        // Short: the path of a socket may have about a hundred bytes.
        let name: String = Uuid::new_v4().simple().to_string().chars().take(16).collect();
        let path = std::env::temp_dir().join(format!("tenure-{name}"));
        let made = path.clone();
        tasks::blocking(move || make_private(&made)).await??;
        Ok(Self(path))
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "the folder of the progress socket stays behind");
        }
    }
}

/// Who says nothing, or says it slowly, takes one place for a while and holds up nobody for longer.
async fn listen(listener: UnixListener, runs: Arc<Runs>) {
    let mut talks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if talks.len() < AT_ONCE => match accepted {
                Ok((stream, _)) => {
                    talks.spawn(timeout(PATIENCE, talk(stream, Arc::clone(&runs))));
                }
                Err(error) => {
                    tracing::warn!(%error, "progress cannot be taken");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = talks.join_next() => {}
        }
    }
}

async fn talk(mut stream: UnixStream, runs: Arc<Runs>) {
    let answer = match read_line::<Told>(&mut stream).await {
        Ok(told) => hear(&runs, told).await,
        Err(error) => Answered::Refused(format!("expected one line of JSON with a token: {error}")),
    };
    if let Err(error) = write_line(&mut stream, &answer).await {
        tracing::debug!(%error, "who told its progress did not wait for the answer");
    }
}

/// What is told passes the authority of the attempt: the store is asked whether the run is still its own.
async fn hear(runs: &Runs, told: Told) -> Answered {
    let found = runs.lock().get(&told.token).cloned();
    let Some(context) = found else {
        return Answered::Refused("the attempt with this token is over, or never was".to_owned());
    };
    if told.percent.is_some_and(|percent| percent > 100) {
        return Answered::Refused("expected a percentage from 0 to 100".to_owned());
    }
    let tell = || context.progress(told.percent, cut(&told.message));
    match context.commit(tell).await {
        Ok(()) => Answered::Ok,
        Err(lost) => Answered::Refused(lost.to_string()),
    }
}
