//! Runs a program for each attempt, and ends it with its whole tree.
//!
//! # Invariants
//!
//! 1. When the attempt is over, however it is over, no process of its group is left, and on Linux none that bears the
//!    attempt's [`mark`] either: what leaves the group is found by it. What has got rid of both is found where the host
//!    adopts [`Orphans`], if not at once.
//! 2. Nothing that the program does or leaves undone holds the attempt for longer than its limits: it may read
//!    nothing, close its pipes, leave them to children, write without end.
//! 3. Its output is in the workspace as it came, byte for byte; memory holds the beginning of it at most.
//!
//! A host that is itself killed without a word leaves that to its [`Janitor`], a process of its own.

mod environment;
mod group;
mod janitor;
mod log;
#[cfg(target_os = "linux")]
mod mark;
#[cfg(target_os = "linux")]
mod orphans;
#[cfg(target_os = "linux")]
mod strays;

use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use self::environment::Given;
use self::group::{Group, Pipes};
pub(super) use self::janitor::Janitor;
use self::log::Log;
#[cfg(target_os = "linux")]
pub use self::orphans::Orphans;
use super::definition::CommandAgent;
use super::output::Output;
use super::progress::{Line, LineReader};
use super::toolbox::Toolbox;
use crate::agent::{Agent, AgentError, AgentResult, Answer};
use crate::instance::RunContext;
use crate::model::Seconds;

/// How much is read from a pipe at once.
const CHUNK: usize = 64 * 1024;
/// How long what the program left running may go on to write, once it has ended by itself.
const LINGER: Duration = Duration::from_millis(500);
/// How long what is still in the pipes is waited for once everything is dead.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a program may go on after SIGTERM unless its definition says so.
const GRACE: Duration = Duration::from_secs(5);
/// The number with which programs say that trying again later may help (`EX_TEMPFAIL`).
const TEMPORARY: i32 = 75;

pub(super) struct CommandRunner {
    agent: CommandAgent,
    tools: Arc<Toolbox>,
}

/// How a program ended.
enum Ending {
    /// By itself.
    Exited(ExitStatus),
    /// Because the attempt was to stop.
    Stopped,
}

impl CommandRunner {
    pub(super) fn new(agent: CommandAgent, tools: Arc<Toolbox>) -> Self {
        Self { agent, tools }
    }

    async fn attempt(&self, context: &RunContext) -> AgentResult {
        let mut output = Output::open(context).await?;
        let ticket = self.tools.ticket(context).await;
        let workspace = output.workspace().cloned();
        let folder = workspace.as_ref().map(|workspace| workspace.folder());
        let given = Given::of(context, folder.as_deref(), ticket.as_ref());
        let janitor = self.tools.janitor();
        let (mut group, pipes) = group::spawn(&self.agent, &given, folder.as_deref(), janitor)?;
        let mut log = Log::new(workspace, context.attempt());
        let mut notes = Notes { context, reader: LineReader::default(), asked: None };
        let io = pump(pipes, context.query(), &mut output, &mut log, &mut notes);
        let ending = supervise(&mut group, pin!(io), context, self.grace()).await;
        drop(ticket);
        log.finish().await;
        let status = match ending {
            Ok(Ending::Exited(status)) => status,
            Ok(Ending::Stopped) => {
                let stopped = AgentError::new("cancelled", "the program was told to stop");
                return Err(output.fail(stopped));
            }
            Err(error) => return Err(output.fail(error)),
        };
        match (failure(status, &log), notes.asked()) {
            (Some(error), _) | (None, Some(Err(error))) => Err(output.fail(error)),
            (None, Some(Ok((question, data)))) => {
                Ok(Answer::AwaitingApproval { question: question.into(), data })
            }
            (None, None) => Ok(output.finish()),
        }
    }

    fn grace(&self) -> Duration {
        self.agent.stop_grace_seconds.map_or(GRACE, Seconds::duration)
    }
}

impl Agent for CommandRunner {
    /// Dropping it kills the whole tree before it returns.
    async fn run(self: Arc<Self>, context: RunContext) -> AgentResult {
        self.attempt(&context).await
    }
}

/// Sees a program to its end, with its whole tree. An error of `io` ends it at once.
async fn supervise(
    group: &mut Group,
    mut io: Pin<&mut impl Future<Output = Result<(), AgentError>>>,
    context: &RunContext,
    grace: Duration,
) -> Result<Ending, AgentError> {
    let mut drained = false;
    let stopped = loop {
        tokio::select! {
            biased;
            () = group.exited() => break false,
            ended = io.as_mut(), if !drained => {
                drained = true;
                if let Err(error) = ended {
                    group.end().await?;
                    return Err(error);
                }
            }
            () = context.cancelled() => break true,
        }
    };
    if stopped {
        group.terminate();
        let ends = async {
            tokio::select! {
                biased;
                () = group.exited() => {}
                () = until_error(io.as_mut(), &mut drained) => {}
            }
        };
        if timeout(grace, ends).await.is_err() {
            tracing::info!(run = %context.run_id(), ?grace, "a program did not end when it was told to");
        }
    } else if !drained && let Ok(ended) = timeout(LINGER, io.as_mut()).await {
        drained = true;
        ended?;
    }
    let status = group.end().await?;
    if !drained {
        match timeout(DRAIN, io).await {
            Ok(ended) if !stopped => ended?,
            Ok(_) => {}
            Err(_) => tracing::warn!(run = %context.run_id(), "a program's output is held open by others"),
        }
    }
    Ok(if stopped { Ending::Stopped } else { Ending::Exited(status) })
}

/// Goes on with the pipes of a program that is to stop; completes when that fails.
async fn until_error(io: Pin<&mut impl Future<Output = Result<(), AgentError>>>, drained: &mut bool) {
    if !*drained {
        let ended = io.await;
        *drained = true;
        if ended.is_err() {
            return;
        }
    }
    std::future::pending().await
}

/// Moves everything through the pipes until what can be read has ended, or the output is refused.
async fn pump(
    pipes: Pipes,
    query: &str,
    output: &mut Output,
    log: &mut Log,
    notes: &mut Notes<'_>,
) -> Result<(), AgentError> {
    let Pipes { stdin, stdout, stderr, notes: told } = pipes;
    let read = async { tokio::try_join!(read(stdout, output), read(stderr, log), read(told, notes)) };
    let feed = async {
        feed(stdin, query).await;
        // Whether it reads its query is the program's affair.
        std::future::pending().await
    };
    tokio::select! {
        ended = read => ended.map(drop),
        () = feed => Ok(()),
    }
}

async fn feed(stdin: Option<ChildStdin>, query: &str) {
    let Some(mut stdin) = stdin else { return };
    if let Err(error) = stdin.write_all(query.as_bytes()).await {
        tracing::debug!(%error, "a program did not read all of its query");
    }
}

/// Reads to the end. A pipe that fails has ended.
async fn read(pipe: Option<impl AsyncRead + Unpin>, sink: &mut impl Sink) -> Result<(), AgentError> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut chunk = vec![0; CHUNK];
    loop {
        match pipe.read(&mut chunk).await {
            Ok(0) => return Ok(()),
            Ok(n) => sink.take(&chunk[..n]).await?,
            Err(error) => {
                tracing::debug!(%error, "a pipe of a program failed");
                return Ok(());
            }
        }
    }
}

/// Where what comes through a pipe goes.
trait Sink: Send {
    fn take(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), AgentError>> + Send;
}

impl Sink for Output {
    async fn take(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.write(bytes).await
    }
}

impl Sink for Log {
    async fn take(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.write(bytes).await;
        Ok(())
    }
}

/// What a program tells on file descriptor 3.
struct Notes<'a> {
    context: &'a RunContext,
    reader: LineReader,
    asked: Option<Asked>,
}

/// A question, or why one could not be read.
type Asked = Result<(String, Value), AgentError>;

impl Sink for Notes<'_> {
    async fn take(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.reader.feed(bytes).iter().for_each(|line| self.hear(line));
        Ok(())
    }
}

impl Notes<'_> {
    /// What was asked, once nothing more comes: the last line may have no end.
    fn asked(mut self) -> Option<Asked> {
        if let Some(line) = self.reader.end() {
            self.hear(&line);
        }
        self.asked
    }

    fn hear(&mut self, line: &str) {
        match Line::parse(line) {
            Some(Line::Progress { percent, message }) => self.context.progress(percent, message),
            Some(Line::Asks { question, data }) => {
                // After one that could not be read nobody knows what was meant.
                if !matches!(self.asked, Some(Err(_))) {
                    self.asked = Some(Ok((question, data)));
                }
            }
            Some(Line::Unreadable(why)) => {
                let message = format!(
                    "a line on descriptor 3 with \"awaiting_approval\" cannot be read: {why}; \
                     expected {{\"awaiting_approval\": {{\"question\": \"...\"}}}} in one line of at most 64 KiB"
                );
                self.asked = Some(Err(AgentError::new("invalid_response", message)));
            }
            None => tracing::debug!(run = %self.context.run_id(), "a line on descriptor 3 says nothing"),
        }
    }
}

/// What the end of a program means, if it is a failure.
fn failure(status: ExitStatus, log: &Log) -> Option<AgentError> {
    let told = log.last_line().map_or_else(String::new, |line| format!(": {line}"));
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let message = format!("the program was ended by {}{told}", group::name_of(signal));
        return Some(AgentError::new("signal", message).within("exception"));
    }
    match status.code() {
        Some(0) => None,
        code => {
            let code = code.unwrap_or(-1);
            let class = if code == TEMPORARY { "temporary" } else { "exit_code" };
            let message = format!("the program ended with {code}, expected 0{told}");
            Some(AgentError::new(class, message).within("exception"))
        }
    }
}
