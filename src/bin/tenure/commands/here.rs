//! The store itself, asked through the same router that a server has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure::Tenure;
use tenure::agents::Directory;
use tenure::http::{Api, HttpOptions};
use tenure::model::AgentId;
use tenure::store::Store;

use super::common::Need;
use crate::args::Global;
use crate::client::Client;
use crate::config::{Config, Loaded, StoreUrl};
use crate::exit::{Exit, Failure};
use crate::stores;

/// How long an answer may take: nobody else waits for it.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// A client of the store that the settings name: its facade looks and writes, and runs nothing.
pub(super) async fn open(global: &Global, need: Need) -> Result<(Client, Arc<dyn Store>), Failure> {
    let loaded = Loaded::load(global)?;
    let store = store(&loaded.config, need).await?;
    let tenure = Tenure::attach(Arc::clone(&store), loaded.config.settings()).await?;
    let variables = loaded.config.server.agent_env.clone();
    let directory = Directory::open_with(tenure.clone(), variables).await?;
    directory.set_file(loaded.agents)?;
    let api = Api::new(tenure, directory, options(&loaded.config)?);
    Ok((Client::here(api.router()), store))
}

/// What is allowed is what a server would allow; who may read the store needs no token.
fn options(config: &Config) -> Result<HttpOptions, Failure> {
    let server = &config.server;
    let default_agent = server.default_agent.as_deref().map(AgentId::new).transpose();
    Ok(HttpOptions {
        token: None,
        default_agent: default_agent.map_err(tenure::Error::from)?,
        allow_agents: server.allow_agents,
        max_body_bytes: server.max_body_bytes,
        max_page: server.max_page,
        request_timeout: PATIENCE,
        ..HttpOptions::default()
    })
}

/// The store that the settings name. One that is not there is made only by who may make it.
pub(super) async fn store(config: &Config, need: Need) -> Result<Arc<dyn Store>, Failure> {
    match &config.store.url {
        StoreUrl::Memory => Err(Failure::usage("a store in memory is known to its own server alone")
            .hint("ask that server with --url, or name a store that is kept: --store sqlite:PATH")),
        StoreUrl::Sqlite(path) if need == Need::Existing && !path.exists() => Err(missing(path)),
        _ => stores::open(config).await,
    }
}

pub(super) fn missing(path: &Path) -> Failure {
    Failure::new(Exit::Unavailable, format!("there is no store at \"{}\" yet", path.display())).hint(
        "`tenure serve` and `tenure run FILE` make one; \
         name another with --store sqlite:PATH, or ask a server with --url",
    )
}
