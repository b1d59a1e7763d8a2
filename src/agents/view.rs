//! How an agent is shown: its definition with nothing in it that is secret.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::definition::AgentDefinition;
use crate::model::AgentId;

/// What stands for the value of a variable.
const MASK: &str = "***";

/// An agent as it is shown. The values of a command's variables are masked; other secrets are only ever named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// The agent.
    pub agent_id: AgentId,
    /// `command`, `chat`, `http`; or `function`, for one that the host has in its code.
    pub kind: String,
    /// Where it comes from.
    pub source: AgentSource,
    /// The keys of its kind.
    #[serde(flatten)]
    pub definition: Map<String, Value>,
}

/// Where an agent comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentSource {
    /// The file of the host.
    File,
    /// The store: it was made over HTTP.
    Stored,
    /// The code of the host.
    Host,
}

impl AgentView {
    pub(super) fn new(agent_id: AgentId, source: AgentSource, definition: &AgentDefinition) -> Self {
        let fields = match serde_json::to_value(definition) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let shown = fields.into_iter().filter(|(key, _)| key != "kind");
        let kind = definition.kind().to_owned();
        let shown = shown.map(|(key, value)| {
            let value = masked(&key, value);
            (key, value)
        });
        Self { agent_id, kind, source, definition: shown.collect() }
    }

    pub(super) fn host(agent_id: AgentId) -> Self {
        Self { agent_id, kind: "function".to_owned(), source: AgentSource::Host, definition: Map::new() }
    }
}

fn masked(key: &str, value: Value) -> Value {
    match value {
        Value::Object(fields) if key == "env" => {
            fields.into_iter().map(|(name, _)| (name, Value::from(MASK))).collect()
        }
        value => value,
    }
}
