//! Ends the programs of a host that is itself killed without a word: a shell beside it that reads from a pipe whose
//! other end only the host holds, and kills what is still listed when the pipe ends.
//!
//! # Invariants
//!
//! 1. What is listed is a group whose leader this process has not counted as ended yet: until then the system gives
//!    its number to nobody else. So it is listed when it was started, and struck off after it was killed and before
//!    its leader is asked how it ended; a host that dies in between leaves a group that has its SIGKILL already.
//! 2. While anything is listed, the pipe is closed by nobody but the end of the host. A janitor that is replaced is
//!    dead before its pipe is closed.
//! 3. Nothing waits for a janitor. A line is shorter than what a pipe takes as a whole; one that does not fit means
//!    that nobody reads, and who does not read is replaced by one who is told everything again.
//!
//! The host's end is closed on `exec`, so no program has it. A program that is begun while the host dies holds it until
//! its own `exec`: when the pipe has ended, whatever was begun can be found by its mark. On Linux so is what left its
//! group; and, where the host marks by number, what cleared its environment as well.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, PipeWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::environment::kept_back;
#[cfg(target_os = "linux")]
use super::orphans::number_of_host;

const SHELL: &str = "/bin/sh";
/// Reads `+GROUP`, `-GROUP`, `=SOCKET` and `@NUMBER`, a line each; its arguments are listed from the beginning.
const SCRIPT: &str = include_str!("janitor.sh");
/// One that ends sooner than this is not replaced at once, nor is tried more often to start one.
const PAUSE: Duration = Duration::from_secs(1);

/// The janitor of one host. It ends when this is dropped, which is when nothing is listed any more.
pub(in crate::agents) struct Janitor {
    shared: Arc<Shared>,
    /// Owns the task that replaces one that died, which ends with it.
    watching: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when the janitor does not read.
    stuck: Notify,
}

struct State {
    groups: BTreeSet<u32>,
    /// Where the programs of this host tell their progress, if they can.
    socket: Option<PathBuf>,
    pipe: Option<PipeWriter>,
}

/// A group that is killed if the host dies. Drop it after the group was killed, before its leader is counted as ended.
pub(super) struct Listed {
    janitor: Arc<Janitor>,
    group: u32,
}

impl Janitor {
    /// Starts one, for programs that tell their progress at this socket.
    pub(in crate::agents) fn start(socket: Option<PathBuf>) -> io::Result<Self> {
        let state = State { groups: BTreeSet::new(), socket, pipe: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), stuck: Notify::new() });
        let child = shared.start()?;
        let mut watching = JoinSet::new();
        watching.spawn(watch(Arc::clone(&shared), child));
        Ok(Self { shared, watching })
    }

    /// Lists the group of a program that was just started.
    pub(super) fn list(self: Arc<Self>, group: u32) -> Listed {
        let mut state = self.shared.state.lock();
        state.groups.insert(group);
        self.shared.tell(&state, '+', group);
        drop(state);
        Listed { janitor: self, group }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        // First, so that one that ends now is not replaced.
        self.watching.abort_all();
        self.shared.state.lock().pipe = None;
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let shared = &self.janitor.shared;
        let mut state = shared.state.lock();
        state.groups.remove(&self.group);
        shared.tell(&state, '-', self.group);
    }
}

impl Shared {
    fn tell(&self, state: &State, what: char, group: u32) {
        let Some(mut pipe) = state.pipe.as_ref() else { return };
        match pipe.write_all(format!("{what}{group}\n").as_bytes()) {
            // Dead: whoever watches notices it as well, and the next one is told.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => self.stuck.notify_one(),
            Ok(()) => {}
        }
    }

    /// Starts a janitor that knows what is listed, in place of one that is dead.
    fn start(&self) -> io::Result<Child> {
        let mut state = self.state.lock();
        let (reader, mut pipe) = io::pipe()?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        if let Some(line) = state.socket.as_deref().and_then(socket_line) {
            pipe.write_all(&line)?;
        }
        if let Some(number) = number_of_host() {
            writeln!(pipe, "@{number}")?;
        }
        let mut command = Command::new(SHELL);
        command.args(["-c", SCRIPT, "janitor"]).args(state.groups.iter().map(u32::to_string));
        // What is sent to the host's group, as by Ctrl-C, is not for it.
        command.process_group(0).stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        for name in kept_back() {
            command.env_remove(name);
        }
        let child = spawn(command)?;
        state.pipe = Some(pipe);
        // It was said of the one before.
        let _ = self.stuck.notified().now_or_never();
        Ok(child)
    }
}

/// What was started is known as no orphan, as long as this OS process lives: a janitor may outlast all who look at it.
#[cfg(target_os = "linux")]
fn spawn(mut command: Command) -> io::Result<Child> {
    let (child, _known) = super::orphans::start_helper(|| command.spawn(), Child::id)?;
    Ok(child)
}

#[cfg(not(target_os = "linux"))]
fn spawn(mut command: Command) -> io::Result<Child> {
    command.spawn()
}

#[cfg(not(target_os = "linux"))]
const fn number_of_host() -> Option<u64> {
    None
}

/// None for a path that is no line.
fn socket_line(socket: &Path) -> Option<Vec<u8>> {
    let path = OsStr::as_bytes(socket.as_os_str());
    (!path.contains(&b'\n')).then(|| [b"=", path, b"\n"].concat())
}

/// Replaces a janitor that is dead, or does not read.
async fn watch(shared: Arc<Shared>, mut child: Child) {
    loop {
        let began = Instant::now();
        let ended = loop {
            tokio::select! {
                ended = child.wait() => break ended,
                () = shared.stuck.notified() => {
                    tracing::warn!("the janitor of this host's programs does not read, and is replaced");
                    if let Err(error) = child.start_kill() {
                        tracing::debug!(%error, "a janitor that does not read is gone already");
                    }
                }
            }
        };
        let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        tracing::warn!(ended, "the janitor of this host's programs is gone: another one takes over");
        if began.elapsed() < PAUSE {
            sleep(PAUSE).await;
        }
        child = loop {
            match shared.start() {
                Ok(child) => break child,
                Err(error) => {
                    tracing::warn!(%error, "programs are not ended if this host is killed: no janitor was started");
                    sleep(PAUSE).await;
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// No system has so many processes.
    const NOBODY: u32 = 999_999_999;

    fn program() -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").process_group(0).kill_on_drop(true).spawn().unwrap()
    }

    /// Waits until it is killed.
    async fn killed(mut program: Child) {
        let ended = tokio::time::timeout(Duration::from_secs(60), program.wait()).await;
        assert_eq!(ended.expect("it is killed").unwrap().signal(), Some(9));
    }

    #[tokio::test]
    async fn what_is_listed_is_killed_when_the_pipe_ends_and_what_was_struck_off_is_not() {
        let janitor = Arc::new(Janitor::start(None).unwrap());
        let (mut spared, listed) = (program(), [program(), program()]);
        let list = |program: &Child| Arc::clone(&janitor).list(program.id().unwrap());
        let (first, struck, last) = (list(&listed[0]), list(&spared), list(&listed[1]));
        drop(struck);
        janitor.shared.state.lock().pipe = None;
        for program in listed {
            killed(program).await;
        }
        assert!(spared.try_wait().unwrap().is_none());
        drop((first, last));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_janitor_that_does_not_read_is_replaced_and_nobody_waits_for_it() {
        let state = State { groups: BTreeSet::new(), socket: None, pipe: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), stuck: Notify::new() });
        let child = shared.start().unwrap();
        let stopped = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        let mut watching = JoinSet::new();
        watching.spawn(watch(Arc::clone(&shared), child));
        let janitor = Arc::new(Janitor { shared, watching });
        let program = program();
        let listed = Arc::clone(&janitor).list(program.id().unwrap());
        let fits = || janitor.shared.state.lock().pipe.as_ref().unwrap().write_all(b"-999999999\n").is_ok();
        kill_process(stopped, Signal::STOP).unwrap();
        while fits() {}
        drop(Arc::clone(&janitor).list(NOBODY));
        // The pipe of the next one takes lines again.
        while !fits() {
            tokio::task::yield_now().await;
        }
        janitor.shared.state.lock().pipe = None;
        killed(program).await;
        drop(listed);
    }
}
