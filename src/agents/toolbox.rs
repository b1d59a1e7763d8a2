//! What the agents of one host share. Each thing is made when it is needed first.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

use super::progress::{Server, Ticket};
use crate::agent::AgentError;
use crate::instance::RunContext;

const CONNECT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Toolbox {
    progress: OnceCell<Server>,
    client: OnceLock<Result<Client, Arc<str>>>,
}

impl Toolbox {
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
