//! A program and everything that it starts, as a group that is ended as one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use command_fds::{CommandFdExt, FdMapping};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use rustix::process::Signal;
#[cfg(target_os = "linux")]
use tokio::io::{Interest, unix::AsyncFd};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::environment::{Given, kept_back};
use super::janitor::{Janitor, Listed};
#[cfg(target_os = "linux")]
use super::{mark::Mark, orphans};
use crate::agent::AgentError;
use crate::agents::definition::CommandAgent;

/// Where a program writes its progress.
const NOTES: i32 = 3;

/// The host's ends of a program's pipes.
pub(super) struct Pipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    pub(super) notes: Option<Receiver>,
}

/// A program and what it started. Dropping it kills what is left.
pub(super) struct Group {
    child: Box<dyn ChildWrapper>,
    #[cfg(target_os = "linux")]
    ends: Option<AsyncFd<OwnedFd>>,
    /// Until what bears it was killed.
    #[cfg(target_os = "linux")]
    mark: Option<Mark>,
    /// Until somebody was told how it ended.
    #[cfg(target_os = "linux")]
    known: orphans::Known,
    /// Until it was killed; see the invariants of the janitor.
    listed: Option<Listed>,
    /// Nothing of it is left, and its number may be another's.
    ended: Option<ExitStatus>,
}

/// Starts the program of an agent.
pub(super) fn spawn(
    agent: &CommandAgent,
    given: &Given,
    folder: Option<&Path>,
    janitor: Option<Arc<Janitor>>,
) -> Result<(Group, Pipes), AgentError> {
    let working_directory = agent.working_directory.as_deref().or(folder);
    let failed = |error: io::Error| not_started(agent, working_directory, &error);
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut command = Command::new(agent.command.first().map_or("", String::as_str));
    command.args(agent.command.iter().skip(1));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in kept_back() {
        command.env_remove(name);
    }
    command.envs(&agent.env);
    command.envs(given.variables.iter().map(|(name, value)| (*name, value)));
    if let Some(folder) = working_directory {
        command.current_dir(folder);
    }
    let mapping = FdMapping { parent_fd: OwnedFd::from(writer), child_fd: NOTES };
    command.fd_mappings(vec![mapping]).map_err(|error| failed(io::Error::other(error)))?;
    let mut command = CommandWrap::from(command);
    let command_of_group = command.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    #[cfg(target_os = "linux")]
    let (mut child, known) =
        orphans::start_program(|| command_of_group.spawn(), |child| child.id()).map_err(failed)?;
    #[cfg(not(target_os = "linux"))]
    let mut child = command_of_group.spawn().map_err(failed)?;
    // Before anything else: a host that is killed before this is told leaves it to be found by its environment.
    let listed = janitor.and_then(|janitor| Some(janitor.list(child.id()?)));
    // The host's copy of the other end of the pipe goes with it.
    drop(command);
    let pipes = Pipes {
        stdin: child.stdin().take(),
        stdout: child.stdout().take(),
        stderr: child.stderr().take(),
        notes: None,
    };
    let group = Group {
        #[cfg(target_os = "linux")]
        ends: child.id().and_then(end_of),
        #[cfg(target_os = "linux")]
        mark: Some(Mark { variable: given.mark.clone(), number: known.number() }),
        #[cfg(target_os = "linux")]
        known,
        child,
        listed,
        ended: None,
    };
    let notes = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
    Ok((group, Pipes { notes: Some(notes), ..pipes }))
}

fn not_started(agent: &CommandAgent, folder: Option<&Path>, error: &io::Error) -> AgentError {
    let program: String = agent.command.first().map_or("", String::as_str).chars().take(200).collect();
    let no_folder = folder.filter(|folder| !folder.is_dir());
    if let Some(folder) = no_folder {
        let folder = folder.display();
        let message = format!("the working directory \"{folder}\" of {program:?} is not there: {error}");
        return AgentError::new("configuration", message);
    }
    match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!(
                "the program {program:?} was not found: expected a path, or a name that is in one of the \
                 folders of PATH"
            );
            AgentError::new("not_found", message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!("the program {program:?} may not be run by this user: {error}");
            AgentError::new("permission", message)
        }
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            AgentError::new("configuration", format!("the program {program:?} cannot be started: {error}"))
        }
        io::ErrorKind::ExecutableFileBusy | io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            AgentError::new("temporary", format!("the program {program:?} was not started: {error}"))
                .within("exception")
        }
        _ => AgentError::new("exception", format!("the program {program:?} was not started: {error}")),
    }
}

impl Group {
    /// Completes when the program itself has ended.
    ///
    /// Where the system tells of it without giving its number to others, it is not asked how it ended yet: so the
    /// group can still be named safely.
    pub(super) async fn exited(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(ends) = &self.ends
            && ends.readable().await.is_ok()
        {
            return;
        }
        if self.ended.is_none() {
            // An error means that there is nothing to wait for.
            self.ended = self.child.wait().await.ok();
        }
    }

    /// Tells everything in the group to stop.
    pub(super) fn terminate(&self) {
        if self.ended.is_none()
            && let Err(error) = self.child.signal(Signal::TERM.as_raw())
        {
            tracing::debug!(%error, "a program could not be told to stop");
        }
    }

    /// Kills what is left, and answers how the program ended.
    pub(super) async fn end(&mut self) -> Result<ExitStatus, AgentError> {
        self.kill_group();
        #[cfg(target_os = "linux")]
        if let Some(mark) = self.mark.take() {
            // Only when the runtime ends is there nobody who could look; the group is dead all the same.
            let _ = crate::tasks::blocking(move || super::strays::kill(&mark)).await;
        }
        // Killed, and its number still its own.
        self.listed = None;
        let status = match self.ended {
            Some(status) => status,
            None => self.child.wait().await.map_err(|error| {
                AgentError::new("exception", format!("how the program ended was not told: {error}"))
            })?,
        };
        self.ended = Some(status);
        #[cfg(target_os = "linux")]
        self.known.over();
        Ok(status)
    }

    fn kill_group(&mut self) {
        // ESRCH: nothing is left.
        if let Err(error) = self.child.start_kill() {
            tracing::debug!(%error, "nothing of a program was left to be killed");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill_group();
        }
        // Here and now: whoever drops it may rely on the tree being dead.
        #[cfg(target_os = "linux")]
        if let Some(mark) = self.mark.take() {
            super::strays::kill(&mark);
        }
        // Before the program itself is dropped, which gives its number free.
        self.listed = None;
        // Who is told how it ended is of no interest any more.
        #[cfg(target_os = "linux")]
        self.known.over();
    }
}

/// What becomes readable when a process ends.
#[cfg(target_os = "linux")]
#[allow(deprecated, reason = "what it is told of owns its descriptor, which is all that is asked for")]
fn end_of(pid: u32) -> Option<AsyncFd<OwnedFd>> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::NONBLOCK).ok()?;
    AsyncFd::with_interest(process, Interest::READABLE).ok()
}

/// The name of a signal.
pub(super) fn name_of(signal: i32) -> String {
    let named = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    format!("{named} (signal {signal})")
}
