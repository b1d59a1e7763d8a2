//! What a definition must be besides well-formed: every field that makes no sense is named.

use std::path::Path;

use reqwest::Url;
use reqwest::header::HeaderName;

use super::definition::{AgentDefinition, ChatAgent, CommandAgent, HttpAgent};
use crate::model::{Invalid, Problem};

/// The most of anything that is listed, and the longest text of one entry.
const MOST_ENTRIES: usize = 1000;
const MOST_BYTES: usize = 100_000;

/// The variables of a host begin with these. They hold its secrets, and are kept from agents.
pub(super) const HOST_PREFIXES: [&str; 2] = ["TENURE_", "OMNICOREAGENT_BACKGROUND_"];

/// Headers that say what the body is, or belong to the connection.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "tenure-fence",
    "transfer-encoding",
    "upgrade",
];

impl AgentDefinition {
    /// Checks what reading it does not.
    ///
    /// # Errors
    /// [`Invalid`] with every field that makes no sense.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut problems = Problems::default();
        match self {
            Self::Command(agent) => problems.command(agent),
            Self::Chat(agent) => problems.chat(agent),
            Self::Http(agent) => problems.http(agent),
        }
        if problems.0.is_empty() { Ok(()) } else { Err(Invalid { problems: problems.0 }) }
    }
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, expected: impl Into<String>) {
        self.0.push(Problem { field: field.into(), expected: expected.into() });
    }

    fn command(&mut self, agent: &CommandAgent) {
        if agent.command.first().is_none_or(|program| program.trim().is_empty()) {
            self.add("command", "a program and its arguments, such as [\"df\", \"-h\"], found no program");
        }
        if agent.command.len() > MOST_ENTRIES {
            self.add("command", format!("at most {MOST_ENTRIES} arguments, found {}", agent.command.len()));
        }
        for (n, argument) in agent.command.iter().enumerate() {
            self.text(&format!("command[{n}]"), argument);
        }
        if agent.env.len() > MOST_ENTRIES {
            self.add("env", format!("at most {MOST_ENTRIES} variables, found {}", agent.env.len()));
        }
        for (name, value) in &agent.env {
            let field = format!("env.{}", shown(name));
            if let Some(expected) = not_a_variable(name) {
                self.add(&field, expected);
            }
            self.text(&field, value);
        }
        if let Some(folder) = &agent.working_directory {
            self.folder(folder);
        }
    }

    fn chat(&mut self, agent: &ChatAgent) {
        if let Some(url) = self.url("base_url", &agent.base_url)
            && url.query().is_some()
        {
            self.add("base_url", "a URL without a query: \"/chat/completions\" is put after it");
        }
        if agent.model.trim().is_empty() || agent.model.len() > 255 {
            self.add("model", "the name of a model, of 1 to 255 bytes");
        }
        if let Some(name) = &agent.api_key_env {
            self.secret("api_key_env", name);
        }
        if let Some(instruction) = &agent.system_instruction {
            self.text("system_instruction", instruction);
        }
    }

    fn http(&mut self, agent: &HttpAgent) {
        self.url("url", &agent.url);
        if agent.headers_env.len() > MOST_ENTRIES {
            self.add("headers_env", format!("at most {MOST_ENTRIES}, found {}", agent.headers_env.len()));
        }
        for (header, name) in &agent.headers_env {
            let field = format!("headers_env.{}", shown(header));
            match HeaderName::from_bytes(header.as_bytes()) {
                Err(_) => self.add(&field, "the name of a header, such as \"authorization\""),
                Ok(header) if OWN_HEADERS.contains(&header.as_str()) => {
                    self.add(&field, "a header that tenure does not set itself");
                }
                Ok(_) => {}
            }
            self.secret(&field, name);
        }
    }

    fn text(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "a text without NUL");
        }
        if text.len() > MOST_BYTES {
            self.add(field, format!("at most {MOST_BYTES} bytes, found {}", text.len()));
        }
    }

    fn folder(&mut self, folder: &Path) {
        let bytes = folder.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.contains(&0) || bytes.len() > 4096 {
            self.add("working_directory", "a path of 1 to 4,096 bytes without NUL");
        }
    }

    /// The name of a variable that holds a secret, and not the secret.
    fn secret(&mut self, field: &str, name: &str) {
        if let Some(expected) = not_a_variable(name) {
            self.add(field, format!("{expected}; the secret itself is never written here"));
        }
    }

    fn url(&mut self, field: &str, text: &str) -> Option<Url> {
        // What is found may hold a secret: it is not repeated.
        let expected = "a URL such as \"https://api.example.com/v1\"";
        let Ok(url) = Url::parse(text) else {
            self.add(field, expected);
            return None;
        };
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            self.add(field, format!("{expected}, of \"http\" or \"https\" with a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            self.add(field, "a URL without a user or a password; name a variable that holds the secret");
        }
        if url.fragment().is_some() {
            self.add(field, "a URL without a fragment");
        }
        Some(url)
    }
}

/// What was expected of the name of a variable, if it is none.
fn not_a_variable(name: &str) -> Option<&'static str> {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let others = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !first || !others || name.len() > 255 {
        return Some("the name of a variable: letters, digits and \"_\", at most 255, no digit first");
    }
    let own = HOST_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    own.then_some("the name of a variable that is not the host's own (\"TENURE_...\")")
}

fn shown(name: &str) -> String {
    name.chars().take(40).collect()
}
