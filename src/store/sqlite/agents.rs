//! What is said of agents: kept as it is.

use std::sync::Arc;

use rusqlite::Connection;

use super::fault::Step;
use super::tx::Tx;
use crate::model::AgentId;

impl Tx<'_, '_> {
    pub(super) fn put_agent(&mut self, agent_id: &AgentId, definition: Option<&str>) -> Step<()> {
        match definition {
            Some(definition) => {
                let mut put = self.conn.prepare_cached(
                    "INSERT INTO agents (agent_id, definition) VALUES (?1, ?2)
                     ON CONFLICT (agent_id) DO UPDATE SET definition = excluded.definition",
                )?;
                put.execute([agent_id.as_str(), definition])?;
            }
            None => {
                let mut delete = self.conn.prepare_cached("DELETE FROM agents WHERE agent_id = ?1")?;
                delete.execute([agent_id.as_str()])?;
            }
        }
        self.hint.agents = true;
        Ok(())
    }
}

/// What is said of agents, by name. One whose name cannot be read is left out.
pub(super) fn all(conn: &Connection) -> Step<Vec<(AgentId, Arc<str>)>> {
    let mut select = conn.prepare_cached("SELECT agent_id, definition FROM agents ORDER BY agent_id")?;
    let mut rows = select.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match AgentId::new(row.get::<_, String>(0)?) {
            Ok(agent_id) => found.push((agent_id, row.get::<_, String>(1)?.into())),
            Err(error) => tracing::error!(%error, "the name of an agent cannot be read"),
        }
    }
    Ok(found)
}
