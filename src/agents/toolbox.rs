//! What the agents of one host share. Each thing is made when it is needed first.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Client;
use reqwest::redirect::Policy;

use super::command::Janitor;
use super::progress::{Server, Ticket};
use crate::agent::AgentError;
use crate::instance::RunContext;

const CONNECT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Toolbox {
    progress: Mutex<Progress>,
    janitor: Mutex<Option<Arc<Janitor>>>,
    client: OnceLock<Result<Client, Arc<str>>>,
}

/// Where programs tell their progress.
#[derive(Default)]
enum Progress {
    #[default]
    NotYet,
    At(Arc<Server>),
    NoMore,
}

impl Toolbox {
    /// What lets a program tell its progress. Without it the program runs all the same.
    pub(super) async fn ticket(&self, context: &RunContext) -> Option<Ticket> {
        match self.server().await {
            Ok(server) => server.map(|server| server.ticket(context)),
            Err(error) => {
                tracing::warn!(%error, "programs cannot tell their progress by \"tenure progress\"");
                None
            }
        }
    }

    async fn server(&self) -> io::Result<Option<Arc<Server>>> {
        let known = match &*self.progress.lock() {
            Progress::NotYet => None,
            Progress::At(server) => Some(Some(Arc::clone(server))),
            Progress::NoMore => Some(None),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(Server::open().await?);
        let mut progress = self.progress.lock();
        // Another may have made one meanwhile: then this one is not needed.
        Ok(match &*progress {
            Progress::NotYet => {
                *progress = Progress::At(Arc::clone(&made));
                Some(made)
            }
            Progress::At(server) => Some(Arc::clone(server)),
            Progress::NoMore => None,
        })
    }

    /// What ends the programs of this host if it is killed. Without it they run all the same.
    pub(super) fn janitor(&self) -> Option<Arc<Janitor>> {
        let mut janitor = self.janitor.lock();
        if janitor.is_none() {
            let socket = match &*self.progress.lock() {
                Progress::At(server) => Some(server.socket()),
                Progress::NotYet | Progress::NoMore => None,
            };
            let started = Janitor::start(socket).inspect_err(|error| {
                tracing::warn!(%error, "programs are not ended if this host is killed: no janitor was started");
            });
            *janitor = started.ok().map(Arc::new);
        }
        janitor.clone()
    }

    /// Takes no more progress, and removes the socket. The janitor ends with the last program.
    pub(super) fn close(&self) {
        *self.progress.lock() = Progress::NoMore;
        *self.janitor.lock() = None;
    }

    /// What talks to endpoints. It follows no redirect: a key would go to whom it was not meant for.
    pub(super) fn client(&self) -> Result<&Client, AgentError> {
        let client = self.client.get_or_init(|| make_client().map_err(|error| error.to_string().into()));
        client.as_ref().map_err(|error| AgentError::new("configuration", Arc::clone(error)))
    }
}

fn make_client() -> reqwest::Result<Client> {
    // Another part of the program may have chosen one before: that is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent = concat!("tenure/", env!("CARGO_PKG_VERSION"));
    Client::builder().user_agent(agent).redirect(Policy::none()).connect_timeout(CONNECT).build()
}
