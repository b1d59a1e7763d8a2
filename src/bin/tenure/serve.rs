//! `tenure serve`: schedules, workers and HTTP, until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tenure::agents::Directory;
use tenure::http::{Api, HttpOptions, OwnershipOptions, Token};
use tenure::model::AgentId;
use tenure::store::Store;
use tenure::{Shutdown, Tenure};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::args::Global;
use crate::config::{Config, HostFlags, Loaded};
use crate::exit::{Exit, Failure, reason};
use crate::logging::{self, Reader};
use crate::output::Output;
use crate::signals::{Signals, Told};
use crate::{declare, stores};

mod notify;
mod reload;

use notify::Stage;

/// Serve: schedules, workers and HTTP, until it is told to stop
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIGTERM lets attempts end and stops; a second one forces. SIGHUP reads the file again.\n\n\
                        Example:\n  tenure serve --config tenure.toml --listen 127.0.0.1:8000"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    flags: HostFlags,
}

/// A host that serves: its parts, each a cheap clone.
#[derive(Clone)]
struct Host {
    store: Arc<dyn Store>,
    tenure: Tenure,
    directory: Arc<Directory>,
    api: Api,
    global: Global,
}

/// `tenure serve`.
pub(crate) async fn serve(
    args: ServeArgs,
    global: &Global,
    output: Output,
    mut signals: Signals,
) -> Result<Exit, Failure> {
    let global = &global.and(&args.flags);
    let loaded = Loaded::load(global)?;
    logging::start(&loaded, Reader::Operator, output)?;
    let listener = listen(&loaded.config).await?;
    let address = listener.local_addr().map_err(|error| no_address(&loaded.config, &error))?;
    let store = tokio::select! {
        store = stores::open(&loaded.config) => store?,
        // Nothing has begun. A store that cannot be reached is not waited for.
        () = signals.end() => return Ok(Exit::Ok),
    };
    // From here on something may execute: who is told to stop meanwhile drains first. So signals wait until this
    // returns, which it does: each of its calls ends with the store's own patience, answered or not.
    let host = Host::open(store, &loaded, global).await?;
    tracing::info!(
        instance = %host.tenure.instance_id(),
        store = %loaded.config.store.url,
        agents = loaded.agents.len(),
        tasks = loaded.tasks.len(),
        "serving"
    );
    output.line(format_args!("listening on http://{address}"))?;
    notify::tell(Stage::Ready);
    host.live(listener, loaded, &mut signals).await
}

async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    check_token(config)?;
    bind(config.server.listen.0).map_err(|error| no_address(config, &error))
}

/// How many connections may wait to be accepted, as far as the system allows it: clients of a host begin at once when
/// it is back. What is usual is a hundred, and what is more finds no answer for a second.
const BACKLOG: u32 = 4096;

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A host that starts anew takes the address of the one before, whose connections may still be dying.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whom the network reaches, it must not reach without a token.
fn check_token(config: &Config) -> Result<(), Failure> {
    let listen = config.server.listen;
    if listen.is_local() || config.server.token.is_some() {
        return Ok(());
    }
    Err(Failure::usage(format!("\"{listen}\" is reached from other machines, and there is no token"))
        .hint("set TENURE_TOKEN to a secret, or listen on 127.0.0.1"))
}

fn no_address(config: &Config, error: &io::Error) -> Failure {
    let message = format!("\"{}\" cannot be listened on: {}", config.server.listen, reason(error));
    Failure::new(Exit::Unavailable, message)
        .hint("another program may use the port: name another with --listen, or port 0 for a free one")
}

/// What the HTTP interface is told.
fn options(config: &Config) -> Result<HttpOptions, Failure> {
    let server = &config.server;
    let default_agent = server.default_agent.as_deref().map(AgentId::new).transpose();
    Ok(HttpOptions {
        token: server.token.as_ref().map(|token| Token::new(token.reveal())),
        allowed_hosts: server.allowed_hosts.iter().map(|name| name.as_str().into()).collect(),
        default_agent: default_agent.map_err(tenure::Error::from)?,
        allow_agents: server.allow_agents,
        ownership: config.ownership.serve.then(|| OwnershipOptions {
            namespace: config.ownership.namespace.as_deref().map(Into::into),
            lease: config.ownership.lease.map(|lease| lease.0),
            max_outcome_bytes: config.ownership.max_outcome_bytes,
        }),
        max_body_bytes: server.max_body_bytes,
        max_page: server.max_page,
        max_waits: server.max_waits,
        max_streams: server.max_streams,
        max_connections: server.max_connections,
        max_wait: server.max_wait.0,
        ..HttpOptions::default()
    })
}

impl Host {
    async fn open(store: Arc<dyn Store>, loaded: &Loaded, global: &Global) -> Result<Self, Failure> {
        let tenure = Tenure::open(Arc::clone(&store), loaded.config.settings()).await;
        let tenure = tenure.map_err(|error| stores::no_workspace(loaded, error))?;
        let variables = loaded.config.server.agent_env.clone();
        let directory = Directory::open_with(tenure.clone(), variables).await?;
        directory.set_file(loaded.agents.clone())?;
        for task in &loaded.tasks {
            declare::task(&tenure, task).await?;
        }
        reload::tell_missing_agents(loaded, &directory);
        let api = Api::new(tenure.clone(), Arc::clone(&directory), options(&loaded.config)?);
        Ok(Self { store, tenure, directory, api, global: global.clone() })
    }

    /// Serves until it is told to stop, and then ends in order.
    async fn live(
        self,
        listener: TcpListener,
        loaded: Loaded,
        signals: &mut Signals,
    ) -> Result<Exit, Failure> {
        let closing = CancellationToken::new();
        let mut http = pin!(self.api.serve(listener, closing.clone().cancelled_owned()));
        let mut reloads = reload::Reloads::new(self.clone(), loaded);
        loop {
            tokio::select! {
                served = &mut http => return Err(stopped_serving(served)),
                () = reloads.progress() => {}
                told = signals.next() => match told {
                    Told::HangUp => reloads.ask(),
                    Told::Interrupt | Told::Terminate => break,
                },
            }
        }
        tracing::info!("told to stop: attempts may end, and nothing new begins");
        notify::tell(Stage::Stopping);
        let end = async {
            let ended = self.tenure.shutdown().await;
            closing.cancel();
            ended
        };
        let ended = tokio::select! {
            (ended, _served) = async { tokio::join!(end, http) } => ended?,
            () = signals.stop() => {
                tracing::warn!("told to stop again: what still executes is cut off");
                return Ok(Exit::Forced);
            }
        };
        self.store.close().await?;
        Ok(told_by(&ended))
    }
}

fn stopped_serving(served: io::Result<()>) -> Failure {
    let why =
        served.err().map_or_else(|| "for no reason that is known".to_owned(), |error| error.to_string());
    Failure::new(Exit::Unavailable, format!("the HTTP interface has ended: {why}"))
}

/// The exit code says how the host ended (T44).
fn told_by(ended: &Shutdown) -> Exit {
    tracing::info!(interrupted = ended.interrupted, unstored = ended.unstored, "stopped");
    match ended {
        Shutdown { unstored: 1.., .. } => Exit::Unavailable,
        Shutdown { interrupted: 1.., .. } => Exit::Interrupted,
        Shutdown { .. } => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than wait where nothing is said, fewer than the limit of open files.
    const CALLERS: usize = 400;

    #[tokio::test]
    async fn many_may_call_before_one_is_accepted() {
        let most =
            std::fs::read_to_string("/proc/sys/net/core/somaxconn").map(|most| most.trim().parse::<usize>());
        assert!(!matches!(most, Ok(Ok(most)) if most <= CALLERS), "this system lets few wait: {most:?}");
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for _ in 0..CALLERS {
            let calling = tokio::net::TcpStream::connect(address);
            // A call that finds no room is repeated by the system after a second.
            let called = tokio::time::timeout(std::time::Duration::from_millis(900), calling).await;
            waiting.push(called.expect("there was room").unwrap());
        }
        assert_eq!(waiting.len(), CALLERS);
    }
}
