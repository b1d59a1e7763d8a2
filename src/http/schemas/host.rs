//! Agents and the host, as they are described.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// What executes queries. Secrets are names of variables of the environment; other values are shown masked.
#[derive(ToSchema)]
pub(in crate::http) struct Agent {
    agent_id: String,
    /// `command`, `chat`, `http`, or `function`.
    kind: String,
    /// `file`, `stored` (made by a request), or `host` (in its code).
    source: String,
    #[schema(required = false, nullable = false)]
    command: Option<Vec<String>>,
    #[schema(required = false, nullable = false)]
    env: Option<BTreeMap<String, String>>,
    #[schema(required = false, nullable = false)]
    working_directory: Option<String>,
    #[schema(required = false, nullable = false)]
    stop_grace_seconds: Option<f64>,
    #[schema(required = false, nullable = false)]
    base_url: Option<String>,
    #[schema(required = false, nullable = false)]
    model: Option<String>,
    #[schema(required = false, nullable = false)]
    api_key_env: Option<String>,
    #[schema(required = false, nullable = false)]
    system_instruction: Option<String>,
    #[schema(required = false, nullable = false)]
    url: Option<String>,
    #[schema(required = false, nullable = false)]
    headers_env: Option<BTreeMap<String, String>>,
}

/// An agent as it is made.
#[derive(ToSchema)]
pub(in crate::http) struct NewAgent {
    agent_id: String,
    /// `chat` or `http`.
    kind: String,
    /// Of chat: what comes before `/chat/completions`.
    #[schema(required = false, nullable = false)]
    base_url: Option<String>,
    /// Of chat.
    #[schema(required = false, nullable = false)]
    model: Option<String>,
    /// Of chat: the variable that holds the key.
    #[schema(required = false)]
    api_key_env: Option<String>,
    /// Of chat.
    #[schema(required = false)]
    system_instruction: Option<String>,
    /// Of http.
    #[schema(required = false, nullable = false)]
    url: Option<String>,
    /// Of http: headers, each with the variable that holds its value.
    #[schema(required = false, nullable = false)]
    headers_env: Option<BTreeMap<String, String>>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Agents {
    agents: Vec<Agent>,
    total: u64,
}

/// What was done to an agent.
#[derive(ToSchema)]
pub(in crate::http) struct AgentDone {
    /// `deleted`.
    status: String,
    agent_id: String,
}

/// How a host is.
#[derive(ToSchema)]
pub(in crate::http) struct Manager {
    /// Whether it starts new attempts.
    running: bool,
    initialized: bool,
    /// This start of the host.
    worker_id: String,
    lease_seconds: f64,
    agents: u64,
    tasks: u64,
    runs: u64,
    active_runs: u64,
    /// Every status with its count.
    status_counts: BTreeMap<String, u64>,
    health: Health,
    version: String,
}

#[derive(ToSchema)]
pub(in crate::http) struct Health {
    store: StoreHealth,
    /// Whether it starts nothing new.
    draining: bool,
    /// Attempts that execute here.
    executing: u64,
    /// Outcomes that wait for the store.
    unstored: u64,
}

#[derive(ToSchema)]
pub(in crate::http) struct StoreHealth {
    /// `answering` or `failing`.
    state: String,
    #[schema(required = false, nullable = false)]
    for_ms: Option<u64>,
    #[schema(required = false, nullable = false)]
    error: Option<String>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Alive {
    /// `ok`.
    status: String,
}

#[derive(ToSchema)]
pub(in crate::http) struct Ready {
    ready: bool,
    /// `answering` or `failing`.
    store: String,
    /// Whether it starts nothing new.
    draining: bool,
}

/// The live supervision tree.
#[derive(ToSchema)]
pub(in crate::http) struct Tree {
    generations: Vec<Generation>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Generation {
    epoch: u64,
    /// It still has its authority.
    open: bool,
    registry: bool,
    operations: bool,
    active_operations: u64,
    /// Its services and processes in start order.
    children: Vec<Child>,
}

#[derive(ToSchema)]
pub(in crate::http) struct Child {
    name: Value,
    /// Its id, if it is a process.
    #[schema(required = true)]
    process: Option<String>,
    /// It is found under its id.
    bound: bool,
    patience: Value,
}

/// Any JSON.
#[derive(ToSchema)]
pub(in crate::http) struct Anything(Value);
