//! What a file or a request says of an agent. Secrets are named, never held: a definition may be stored and
//! shown as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An agent as it is configured. Its `kind` says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AgentDefinition {
    /// Runs a program. From a file alone: never made or changed over HTTP.
    Command(CommandAgent),
    /// Asks an OpenAI-compatible endpoint.
    Chat(ChatAgent),
    /// Posts to a URL.
    Http(HttpAgent),
}

/// Runs a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandAgent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment, besides those it inherits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it runs; the folder of its run if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
}

/// Asks an OpenAI-compatible endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatAgent {
    /// Where the endpoint is, up to what comes before `/chat/completions`.
    pub base_url: String,
    /// The model it is asked for.
    pub model: String,
    /// The variable of the environment that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// What the model is told before the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_instruction: Option<Arc<str>>,
}

/// Posts to a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpAgent {
    /// Where it posts to.
    pub url: String,
    /// Headers, each with the variable of the environment that holds its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_env: BTreeMap<String, String>,
}
