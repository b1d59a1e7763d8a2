//! What the agents of one host share. Each thing is made when it is needed first.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

use super::progress::{Server, Ticket};
use crate::agent::AgentError;
use crate::instance::RunContext;
use crate::settings::Settings;

const CONNECT: Duration = Duration::from_secs(10);

pub(super) struct Toolbox {
    /// Results of up to this many bytes are kept with their run.
    pub(super) inline: usize,
    /// Results have at most this many.
    pub(super) most: usize,
    /// Whether runs have a workspace here.
    pub(super) keeps_files: bool,
    progress: OnceCell<Server>,
    client: OnceLock<Result<Client, Arc<str>>>,
}

impl Toolbox {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            inline: settings.result_inline,
            most: settings.result_limit,
            keeps_files: settings.workspace.is_some(),
            progress: OnceCell::new(),
            client: OnceLock::new(),
        }
    }

    /// What lets a program tell its progress. Without it the program runs all the same.
    pub(super) async fn ticket(&self, context: &RunContext) -> Option<Ticket> {
        match self.progress.get_or_try_init(Server::open).await {
            Ok(server) => Some(server.ticket(context)),
            Err(error) => {
                tracing::warn!(%error, "programs cannot tell their progress by \"tenure progress\"");
                None
            }
        }
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
