//! The agents of a host, as far as it has them in its code.

use serde::Serialize;

use crate::agents::AgentDefinition;
use crate::error::Error;
use crate::model::AgentId;
use crate::tenure::Tenure;

/// The agents of one host.
pub struct Directory {
    tenure: Tenure,
}

/// An agent as it is shown.
#[derive(Debug, Clone, Serialize)]
pub struct AgentView {
    /// Its name.
    pub agent_id: AgentId,
    /// Its kind.
    pub kind: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

impl Directory {
    /// The directory of a host.
    #[must_use]
    pub fn new(tenure: Tenure) -> Self {
        Self { tenure }
    }

    pub(super) fn list(&self) -> Vec<AgentView> {
        self.tenure.agents().iter().map(|agent_id| view(agent_id.clone())).collect()
    }

    pub(super) fn get(&self, agent_id: &AgentId) -> Option<AgentView> {
        self.tenure.agents().contains(agent_id).then(|| view(agent_id.clone()))
    }

    #[allow(clippy::unused_async, reason = "it is stored")]
    pub(super) async fn create(&self, agent_id: AgentId, _: AgentDefinition) -> Result<AgentView, Error> {
        Err(Error::Exists { kind: "agent", id: agent_id.to_string() })
    }

    #[allow(clippy::unused_async, reason = "it is stored")]
    pub(super) async fn remove(&self, agent_id: &AgentId) -> Result<(), Error> {
        Err(Error::NotFound { kind: "agent", id: agent_id.to_string() })
    }
}

fn view(agent_id: AgentId) -> AgentView {
    AgentView { agent_id, kind: "function", source: "host" }
}
