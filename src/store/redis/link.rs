//! One connection to the server, made again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value,
};
use tokio::time::Instant;

use super::RedisOptions;
use super::fault::{Fault, Step};
use super::scripts::{READ, WRITE};

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
    pub(super) read: String,
}

impl Shared {
    /// A call of a script that writes.
    pub(super) fn write(&self, operation: &str) -> Cmd {
        self.call("EVALSHA", &self.write, operation)
    }

    /// A call of a script that reads.
    pub(super) fn read(&self, operation: &str) -> Cmd {
        self.call("EVALSHA_RO", &self.read, operation)
    }

    fn call(&self, command: &str, script: &str, operation: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(1).arg(&self.prefix).arg(operation);
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
pub(super) async fn load(conn: &mut MultiplexedConnection) -> Step<(String, String)> {
    let mut pipe = redis::pipe();
    pipe.cmd("SCRIPT").arg("LOAD").arg(WRITE).cmd("SCRIPT").arg("LOAD").arg(READ);
    pipe.query_async(conn).await.map_err(|error| Fault::of(&error, false))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    conn: Option<MultiplexedConnection>,
    used: Instant,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, conn: None, used: Instant::now() }
    }

    /// Sends everything at once; an answer for each, in order.
    pub(super) async fn send(&mut self, calls: &Pipeline) -> Step<Vec<Step<Value>>> {
        let mut conn = self.standing().await?;
        let answers = calls.query_async::<Vec<RedisResult<Value>>>(&mut conn).await;
        self.used = Instant::now();
        match answers {
            Ok(answers) => Ok(self.answered(conn, calls, answers).await),
            Err(error) => {
                self.conn = None;
                Err(Fault::of(&error, true))
            }
        }
    }

    /// The connection, if it stands or can be made.
    async fn standing(&mut self) -> Step<MultiplexedConnection> {
        if let Some(mut conn) = self.conn.clone() {
            let idle = self.used.elapsed() >= IDLE;
            if !idle || redis::cmd("PING").exec_async(&mut conn).await.is_ok() {
                return Ok(conn);
            }
            self.conn = None;
        }
        let mut conn = connect(&self.shared.client, &self.shared.options).await?;
        load(&mut conn).await?;
        self.conn = Some(conn.clone());
        Ok(conn)
    }

    /// A server that has forgotten the scripts has done nothing with what named them: it is given them, and asked
    /// again.
    async fn answered(
        &mut self,
        mut conn: MultiplexedConnection,
        calls: &Pipeline,
        answers: Vec<RedisResult<Value>>,
    ) -> Vec<Step<Value>> {
        let mut unknown: Vec<usize> = (0..answers.len()).filter(|n| names_no_script(&answers[*n])).collect();
        let of = |answer: RedisResult<Value>| answer.map_err(|error| Fault::of(&error, true));
        let mut answers: Vec<Step<Value>> = answers.into_iter().map(of).collect();
        if unknown.is_empty() {
            return answers;
        }
        // Who waited for replicas did so for less than is written now.
        unknown.extend(calls.cmd_iter().position(waits_for_replicas));
        let again = async {
            load(&mut conn).await?;
            let mut again = redis::pipe();
            again.ignore_errors();
            for (_, call) in calls.cmd_iter().enumerate().filter(|(n, _)| unknown.contains(n)) {
                again.add_command(call.clone());
            }
            let second = again.query_async::<Vec<RedisResult<Value>>>(&mut conn).await;
            second.map_err(|error| Fault::of(&error, true))
        };
        match again.await {
            Ok(second) => {
                for (n, answer) in unknown.into_iter().zip(second) {
                    answers[n] = of(answer);
                }
            }
            Err(fault) => {
                self.conn = None;
                unknown.into_iter().for_each(|n| answers[n] = Err(fault.clone()));
            }
        }
        answers
    }
}

/// Of a batch this is the last call.
fn waits_for_replicas(call: &Cmd) -> bool {
    matches!(call.args_iter().next(), Some(Arg::Simple(b"WAIT")))
}

fn names_no_script(answer: &RedisResult<Value>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}
