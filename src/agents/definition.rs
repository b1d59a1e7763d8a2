//! What a file or a request says of an agent. Secrets are named, never held: a definition may be stored and
//! shown as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::model::{Invalid, Seconds, read};

/// What is no field of an agent is a mistake of it as a whole.
const WHOLE: &str = "agent";

/// The kinds there are, as they are written.
pub const KINDS: [&str; 3] = ["command", "chat", "http"];

/// An agent as it is configured. Its `kind` says which.
///
/// ```
/// use tenure::agents::AgentDefinition;
///
/// let report = r#"{ "kind": "command", "command": ["df", "-h"] }"#;
/// assert_eq!(AgentDefinition::parse(report)?.kind(), "command");
///
/// let refused = AgentDefinition::parse(r#"{ "kind": "comand" }"#).unwrap_err();
/// assert!(refused.to_string().contains("\"command\", \"chat\" or \"http\""));
/// # Ok::<(), tenure::model::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AgentDefinition {
    /// Runs a program. From a file alone: never made or changed over HTTP.
    Command(CommandAgent),
    /// Asks an OpenAI-compatible endpoint.
    Chat(ChatAgent),
    /// Posts to a URL.
    Http(HttpAgent),
}

/// Runs a program for each attempt.
///
/// | the program | the attempt |
/// |---|---|
/// | ends with 0 | completes; its standard output is the result |
/// | ends with 0 after it wrote `{"awaiting_approval": {"question": "..."}}` to descriptor 3 | asks a person |
/// | ends with 75 | fails, class `temporary` within `exception` |
/// | ends with another number | fails, class `exit_code` within `exception` |
/// | is ended by a signal | fails, class `signal` within `exception` |
/// | ends with 0 after it wrote an `awaiting_approval` that cannot be read | fails, class `invalid_response` |
/// | writes more than the workspace takes | is ended, class `output_too_large` |
/// | asks with more than 4 KiB, or data of more than 64 KiB | fails, class `output_too_large` |
/// | is not there; may not be run | fails, class `not_found`; `permission` |
///
/// A retry policy that says nothing else tries again what is within `exception`, and nothing of the others.
///
/// It is given the query on standard input, the environment of the host without what begins with `TENURE_`, and
/// these: `TENURE_RUN_ID`, `TENURE_TASK_ID`, `TENURE_AGENT_ID`, `TENURE_ATTEMPT`, `TENURE_FENCE`,
/// `TENURE_SESSION_ID`; `TENURE_WORKSPACE`, where the files of the run are; `TENURE_QUERY` if the query is short
/// and holds no NUL; `TENURE_DEADLINE`, when the attempt has to have ended, if it has to; `TENURE_PROGRESS` and
/// `TENURE_PROGRESS_TOKEN` for `tenure progress`; `TENURE_APPROVAL`, what a person answered, as JSON. Progress may
/// also be written as lines to file descriptor 3: `40 indexed 400 files`.
///
/// When its attempt is over everything that it started is killed, but for a process that left its group and cleared
/// its environment as well (on other systems than Linux: that left its group). What must not survive at all belongs
/// into a container, or under a service manager that kills by group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandAgent {
    /// The program and its arguments. A program with a slash is looked for from the working directory. They are shown
    /// as they are wherever agents are listed, and by the system to who may look at its processes: a secret belongs
    /// into a variable.
    pub command: Vec<String>,
    /// Variables of its environment, besides those it inherits. Their values are masked where agents are listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it runs, from where the host does; the folder of its run if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    /// How long it may go on after it was told to stop, by SIGTERM, until it is killed. Default 5 s; the patience of
    /// the host cuts it short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_seconds: Option<Seconds>,
}

/// Asks an OpenAI-compatible endpoint: `POST {base_url}/chat/completions`, streamed.
///
/// | the endpoint | the attempt |
/// |---|---|
/// | answers | completes; the text is the result, and is in `output.md` as it comes |
/// | ends early (`length`, `content_filter` ...) | completes; `logs/attempt-N.log` says so |
/// | 401, 403 | fails, class `authentication` |
/// | 404 | fails, class `not_found` |
/// | 408, 504 | fails, class `timeout` |
/// | 429 | fails, class `rate_limited` within `exception`; tried again not before `Retry-After` |
/// | 5xx | fails, class `server_error` within `exception`; tried again not before `Retry-After` |
/// | another status | fails, class `invalid_request` |
/// | cannot be reached, breaks off | fails, class `connection` within `exception` |
/// | answers what is no answer | fails, class `invalid_response` within `exception` |
/// | tells nothing of its answer for 5 minutes, whatever else it sends | fails, class `timeout` |
/// | answers more than a result may have; more than 4 MiB that are not streamed | fails, class `output_too_large` |
/// | the key is not in the environment | fails, class `configuration` |
///
/// A retry policy that says nothing else tries again `timeout` and what is within `exception`. `Retry-After` counts up
/// to 86,400 s, whatever it says, and wins over the policy's `max_delay_seconds`; the deadline of the run wins over
/// both.
///
/// A key that the endpoint repeats is kept nowhere: `***` stands for it in errors and, if it has at least 8 bytes, in
/// results.
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

/// Posts the run to a URL as JSON. Failures have the classes of [`ChatAgent`].
///
/// The body: `run_id, task_id, agent_id, attempt, fence, session_id, query, trigger_type, metadata` and, if there is
/// one, `deadline`. The headers `Idempotency-Key` (the run and its attempt) and `Tenure-Fence` let a receiver do a
/// thing once, and refuse what comes late. An answer in JSON with an `output` that is text has that as its result; any
/// other answer is the result as it is. 204 completes with nothing. 202 completes as well: the receiver has taken it
/// over, and the run does not wait for it. An answer in JSON with `awaiting_approval` asks a person; one that cannot be
/// read fails, class `invalid_response`.
///
/// JSON has at most 16 MiB; other answers go to `output.md` as they come, up to the limit of a result. A body that
/// stops coming for 5 minutes fails, class `timeout`. Values of headers that are repeated are masked like the key of a
/// chat agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpAgent {
    /// Where it posts to.
    pub url: String,
    /// Headers, each with the variable of the environment that holds its value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_env: BTreeMap<String, String>,
}

impl AgentDefinition {
    /// Reads a definition that a user wrote in JSON, and checks all of it.
    ///
    /// # Errors
    /// [`Invalid`]: every field of a wrong type or an unknown name, and every one that makes no sense.
    pub fn parse(json: &str) -> Result<Self, Invalid> {
        let value: Value = serde_json::from_str(json)
            .map_err(|error| Invalid::one("agent", format!("a JSON object: {error}")))?;
        Self::from_value(value)
    }

    /// As [`parse`](Self::parse), for JSON that has been read.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn from_value(mut value: Value) -> Result<Self, Invalid> {
        let Some(fields) = value.as_object_mut() else {
            return Err(Invalid::one("agent", format!("an object with a \"kind\", found {}", what(&value))));
        };
        let known = "\"command\", \"chat\" or \"http\"";
        let definition = match fields.remove("kind") {
            Some(Value::String(kind)) => match kind.as_str() {
                "command" => read(&value.to_string(), WHOLE).map(Self::Command),
                "chat" => read(&value.to_string(), WHOLE).map(Self::Chat),
                "http" => read(&value.to_string(), WHOLE).map(Self::Http),
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(Invalid::one("kind", format!("{known}, found {other:?}")));
                }
            },
            Some(other) => return Err(Invalid::one("kind", format!("{known}, found {}", what(&other)))),
            None => return Err(Invalid::one("kind", format!("{known}, found nothing"))),
        };
        definition.and_then(|definition| definition.check().map(|()| definition))
    }

    /// Its kind, as it is written.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Chat(_) => "chat",
            Self::Http(_) => "http",
        }
    }

    /// The variables of the host whose values it sends away, each with its field.
    pub(super) fn variables(&self) -> Vec<(String, &str)> {
        match self {
            Self::Command(_) => Vec::new(),
            Self::Chat(agent) => {
                let key = agent.api_key_env.iter();
                key.map(|name| ("api_key_env".to_owned(), name.as_str())).collect()
            }
            Self::Http(agent) => {
                let headers = agent.headers_env.iter();
                headers.map(|(header, name)| (format!("headers_env.{header}"), name.as_str())).collect()
            }
        }
    }

    /// As text, for who keeps it.
    pub(super) fn to_json(&self) -> String {
        // It consists of texts and numbers: there is nothing that could not be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for AgentDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
