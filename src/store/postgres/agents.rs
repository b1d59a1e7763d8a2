//! What is said of agents: kept as it is.

use std::sync::Arc;

use super::conn::{Conn, with};
use super::fault::Step;
use super::row::{get, text};
use super::tx::Tx;
use crate::model::AgentId;

impl Tx<'_> {
    pub(super) async fn put_agent(&mut self, agent_id: &AgentId, definition: Option<&str>) -> Step<()> {
        let name = agent_id.to_string();
        match definition {
            Some(definition) => self.ask(PUT, with![name, definition.as_bytes().to_vec()]).await?,
            None => self.ask("DELETE FROM agents WHERE agent_id = $1", with![name]).await?,
        };
        self.hint.agents = true;
        Ok(())
    }
}

const PUT: &str = "INSERT INTO agents (agent_id, definition) VALUES ($1, $2)
    ON CONFLICT (agent_id) DO UPDATE SET definition = excluded.definition";

/// What is said of agents, by name. One that cannot be read is left out.
pub(super) async fn all(conn: &Conn) -> Step<Vec<(AgentId, Arc<str>)>> {
    let rows = conn.ask("SELECT agent_id, definition FROM agents ORDER BY agent_id", Vec::new()).await?;
    let mut found = Vec::new();
    for row in &rows {
        match (AgentId::new(get::<&str>(row, 0)?), text(get(row, 1)?)) {
            (Ok(agent_id), Ok(definition)) => found.push((agent_id, definition.into())),
            _ => tracing::error!("what is said of an agent cannot be read"),
        }
    }
    Ok(found)
}
