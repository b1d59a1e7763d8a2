//! One connection to the server, made again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::RedisOptions;
use super::fault::{Fault, Step};
use super::scripts::{READ, TIDY, WRITE};

/// A connection that was idle for as long is asked whether it still stands before a write goes over it: so that a
/// server that was restarted meanwhile leaves nothing unknown.
const IDLE: Duration = Duration::from_secs(1);

/// What every connection of a store has in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: RedisOptions,
    pub(super) client: Client,
    /// The key in front of all others; its braces keep them on one node of a cluster.
    pub(super) prefix: String,
    /// What the server calls the scripts, which is a digest of their text.
    pub(super) write: String,
    pub(super) tidy: String,
    pub(super) read: String,
}

impl Shared {
    /// A call of a script that writes.
    pub(super) fn write(&self, operation: &str) -> Cmd {
        self.write_in(Cmd::new(), operation)
    }

    /// The same in a command that has room for what follows.
    pub(super) fn write_in(&self, cmd: Cmd, operation: &str) -> Cmd {
        self.call(cmd, "EVALSHA", &self.write, operation)
    }

    /// A call of the script that tidies up.
    pub(super) fn tidy(&self, operation: &str) -> Cmd {
        self.call(Cmd::new(), "EVALSHA", &self.tidy, operation)
    }

    /// A call of a script that reads.
    pub(super) fn read(&self, operation: &str) -> Cmd {
        self.call(Cmd::new(), "EVALSHA_RO", &self.read, operation)
    }

    fn call(&self, mut cmd: Cmd, command: &str, script: &str, operation: &str) -> Cmd {
        cmd.arg(command).arg(script).arg(1).arg(&self.prefix).arg(operation);
        match &self.options.clock {
            Some(clock) => cmd.arg(clock.now().ms()),
            None => cmd.arg(""),
        };
        cmd
    }
}

/// Connects, waiting no longer than the options say.
pub(super) async fn connect(client: &Client, options: &RedisOptions) -> Step<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout));
    let connected = client.get_multiplexed_async_connection_with_config(&config).await;
    connected.map_err(|error| Fault::of(&error, false))
}

/// Gives the scripts to the server; answers what it calls them.
pub(super) async fn load(conn: &mut MultiplexedConnection) -> Step<(String, String, String)> {
    let mut pipe = redis::pipe();
    for script in [WRITE, TIDY, READ] {
        pipe.cmd("SCRIPT").arg("LOAD").arg(script);
    }
    pipe.query_async(conn).await.map_err(|error| Fault::of(&error, false))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    conn: Option<Standing>,
    /// How many were made.
    made: u64,
    used: Instant,
}

/// A connection that stands, as far as is known.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    conn: MultiplexedConnection,
    number: u64,
    /// When something that was sent over it is lost: what was sent behind that is not waited for any longer, since
    /// it would be answered after it.
    given_up: CancellationToken,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, conn: None, made: 0, used: Instant::now() }
    }

    /// Sends everything at once; an answer for each, in order.
    pub(super) async fn send(&mut self, calls: &Pipeline) -> Step<Vec<Step<Value>>> {
        let standing = self.standing().await?;
        let answers = standing.clone().exchange(calls).await;
        self.was_used(&standing, &answers);
        answers
    }

    /// The connection, if it stands or can be made.
    pub(super) async fn standing(&mut self) -> Step<Standing> {
        if let Some(mut standing) = self.conn.clone() {
            let idle = self.used.elapsed() >= IDLE;
            if !idle || redis::cmd("PING").exec_async(&mut standing.conn).await.is_ok() {
                return Ok(standing);
            }
            self.conn = None;
        }
        let mut conn = connect(&self.shared.client, &self.shared.options).await?;
        load(&mut conn).await?;
        self.made += 1;
        let given_up = CancellationToken::new();
        Ok(self.conn.insert(Standing { conn, number: self.made, given_up }).clone())
    }

    /// The connection over which something is under way, unless it is lost.
    pub(super) fn in_use(&self) -> Option<Standing> {
        self.conn.clone()
    }

    /// What was sent over a connection was answered, or it is lost: then the next one that is made is another.
    pub(super) fn was_used(&mut self, over: &Standing, answers: &Step<Vec<Step<Value>>>) {
        self.used = Instant::now();
        let is_lost = |answer: &Step<Value>| matches!(answer, Err(Fault::Lost(_)));
        let lost = answers.as_ref().map_or(true, |answers| answers.iter().any(is_lost));
        if lost {
            over.given_up.cancel();
        }
        // Another one may stand since.
        if lost && self.conn.as_ref().is_some_and(|standing| standing.number == over.number) {
            self.conn = None;
        }
    }
}

impl Standing {
    /// Sends everything at once; an answer for each, in order. What is sent first is done first.
    pub(super) async fn exchange(self, calls: &Pipeline) -> Step<Vec<Step<Value>>> {
        let given_up = self.given_up.clone();
        tokio::select! {
            biased;
            answers = self.send(calls) => answers,
            () = given_up.cancelled() => Err(Fault::Lost("what was sent before it was not answered".to_owned())),
        }
    }

    async fn send(mut self, calls: &Pipeline) -> Step<Vec<Step<Value>>> {
        let mut answers = self.query(calls).await?;
        let mut unknown: Vec<usize> = (0..answers.len()).filter(|n| names_no_script(&answers[*n])).collect();
        if unknown.is_empty() {
            return Ok(answers.into_iter().map(of).collect());
        }
        // Who waited for replicas did so for less than is written now.
        unknown.extend(calls.cmd_iter().position(waits_for_replicas));
        let second = self.again(calls, &unknown).await;
        let mut answers: Vec<Step<Value>> = answers.drain(..).map(of).collect();
        match second {
            Ok(second) => unknown.into_iter().zip(second).for_each(|(n, answer)| answers[n] = of(answer)),
            // What was known by its name has its answer.
            Err(fault) => unknown.into_iter().for_each(|n| answers[n] = Err(fault.clone())),
        }
        Ok(answers)
    }

    async fn query(&mut self, calls: &Pipeline) -> Step<Vec<RedisResult<Value>>> {
        calls.query_async(&mut self.conn).await.map_err(|error| Fault::of(&error, true))
    }

    /// A server that has forgotten the scripts has done nothing with what named them: it is given them, and asked
    /// again.
    async fn again(&mut self, calls: &Pipeline, which: &[usize]) -> Step<Vec<RedisResult<Value>>> {
        load(&mut self.conn).await?;
        let mut again = redis::pipe();
        again.ignore_errors();
        for (_, call) in calls.cmd_iter().enumerate().filter(|(n, _)| which.contains(n)) {
            again.add_command(call.clone());
        }
        self.query(&again).await
    }
}

fn of(answer: RedisResult<Value>) -> Step<Value> {
    answer.map_err(|error| Fault::of(&error, true))
}

/// Of a batch this is the last call.
fn waits_for_replicas(call: &Cmd) -> bool {
    matches!(call.args_iter().next(), Some(Arg::Simple(b"WAIT")))
}

fn names_no_script(answer: &RedisResult<Value>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}
