//! What the HTTP interface may be told. Every limit has a default.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::model::AgentId;

/// The options of the HTTP interface. [`Api::reload`](super::Api::reload) replaces them while it serves.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// What a caller has to show. Without it only this machine is served, and pages of other sites are refused.
    pub token: Option<Token>,
    /// Names of this host, besides those of this machine, that a caller without a token may use: of a proxy
    /// before it.
    pub allowed_hosts: Vec<Arc<str>>,
    /// The agent of tasks that name none. Without it the only agent there is.
    pub default_agent: Option<AgentId>,
    /// Whether agents may be made, changed and removed by requests. Never such that run programs. Default no.
    pub allow_agents: bool,
    /// How ownership is served to hosts in other languages; none: it is not. Default: as
    /// [`OwnershipOptions::default`] says.
    pub ownership: Option<OwnershipOptions>,
    /// The largest body. Default 4 MiB.
    pub max_body_bytes: usize,
    /// The most entries of a page. Default 1,000.
    pub max_page: usize,
    /// The most requests that wait for a run at the same time. Default 1,024.
    pub max_waits: usize,
    /// The most open event streams. Default 2,048.
    pub max_streams: usize,
    /// The most open connections. Default 4,096.
    pub max_connections: usize,
    /// The longest that a request waits for a run. Default 1 hour.
    pub max_wait: Duration,
    /// The longest that a request takes which does not wait for a run, from when its body has arrived. Default 30 s.
    pub request_timeout: Duration,
    /// The longest that the head of a request may take, and an unused connection stay open. Default 30 s.
    pub header_timeout: Duration,
    /// The longest that the body of a request may take. Default 30 s.
    pub body_timeout: Duration,
    /// The longest that a caller may take nothing of what it is sent. Default 60 s.
    pub write_timeout: Duration,
    /// How often a silent event stream says that it is open. Default 15 s.
    pub keep_alive: Duration,
    /// How long answers in progress may take when the interface is shut down. Default 5 s.
    pub close_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            token: None,
            allowed_hosts: Vec::new(),
            default_agent: None,
            allow_agents: false,
            ownership: Some(OwnershipOptions::default()),
            max_body_bytes: 4 << 20,
            max_page: 1_000,
            max_waits: 1_024,
            max_streams: 2_048,
            max_connections: 4_096,
            max_wait: Duration::from_secs(3_600),
            request_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// How ownership is served, below `/ownership`. Its grace is that of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipOptions {
    /// The only namespace that is served: keys of others do not exist here. Left out, all are.
    pub namespace: Option<Arc<str>>,
    /// How long a lease is that says nothing. Default: that of the host.
    pub lease: Option<Duration>,
    /// Outcomes of more bytes are refused. Default 1 MiB.
    pub max_outcome_bytes: usize,
}

impl Default for OwnershipOptions {
    fn default() -> Self {
        Self { namespace: None, lease: None, max_outcome_bytes: 1 << 20 }
    }
}

/// What a caller has to show. It is never printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// The token with this text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Whether this is it. Takes the same time wherever the first difference is.
    #[must_use]
    pub fn matches(&self, shown: &[u8]) -> bool {
        bool::from(self.0.as_bytes().ct_eq(shown))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}
