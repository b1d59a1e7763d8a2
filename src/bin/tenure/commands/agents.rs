//! `tenure agents …`.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde_json::{Value, json};
use tenure::model::AgentId;

use super::common::{Common, Need, Session, agent_id};
use super::near;
use super::pages::{HowMany, list};
use crate::args::Global;
use crate::client::Ask;
use crate::exit::{Exit, Failure};
use crate::given;
use crate::output::Output;
use crate::render::{agent_record, agents_table};

/// The agents that execute tasks
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  tenure agents\n  tenure agents show reporter"
)]
pub(crate) struct Agents {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: ListAgents,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Every agent; the same as `tenure agents`
    #[command(visible_alias = "ls", after_help = "Example:\n  tenure agents list --json")]
    List(ListAgents),
    /// An agent; values of its environment are masked
    #[command(after_help = "Example:\n  tenure agents show reporter")]
    Show(OneAgent),
    /// Make an agent that asks an endpoint; agents that run programs come from the server's file alone
    #[command(after_help = "Examples:\n  \
        tenure agents add writer --kind chat --endpoint http://127.0.0.1:11434/v1 --model small \\\n      \
            --key-env MODEL_KEY --system 'Be brief.'\n  \
        tenure agents add hook --kind http --endpoint https://example.org/hook \\\n      \
            --header Authorization=HOOK_TOKEN")]
    Add(AddAgent),
    /// Remove an agent that was made so
    #[command(visible_alias = "rm", after_help = "Example:\n  tenure agents delete writer")]
    Delete(OneAgent),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListAgents {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneAgent {
    /// The agent
    #[arg(value_name = "AGENT", value_parser = agent_id)]
    agent_id: AgentId,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddAgent {
    /// Its name
    #[arg(value_name = "AGENT", value_parser = agent_id)]
    agent_id: AgentId,
    /// What it is
    #[arg(long, value_name = "KIND", value_parser = ["chat", "http"], required_unless_present = "file")]
    kind: Option<String>,
    /// Where it asks or posts to
    #[arg(long, value_name = "URL", required_unless_present = "file")]
    endpoint: Option<String>,
    /// The model that is asked
    #[arg(long, value_name = "MODEL", required_if_eq("kind", "chat"))]
    model: Option<String>,
    /// The variable of the server's environment that holds the key
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// What the model is told before the query
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A header, with the variable of the server's environment that holds its value
    #[arg(long, value_name = "HEADER=NAME", value_parser = header)]
    header: Vec<(String, String)>,
    /// Read the definition from a file in JSON
    #[arg(long, short = 'f', value_name = "FILE",
        conflicts_with_all = ["kind", "endpoint", "model", "key_env", "system", "header"])]
    file: Option<String>,
    #[command(flatten)]
    common: Common,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, variable)) if !name.is_empty() && !variable.is_empty() => {
            Ok((name.to_owned(), variable.to_owned()))
        }
        _ => Err("expected a header and a variable of the environment, such as `Authorization=HOOK_TOKEN`"
            .to_owned()),
    }
}

pub(super) async fn execute(asked: Agents, global: &Global, output: Output) -> Result<Exit, Failure> {
    let action = asked.action.unwrap_or(Action::List(asked.list));
    let (common, name) = match &action {
        Action::List(asked) => (&asked.common, None),
        Action::Show(asked) | Action::Delete(asked) => (&asked.common, Some(&asked.agent_id)),
        Action::Add(asked) => (&asked.common, None),
    };
    let need = if matches!(action, Action::Add(_)) { Need::Any } else { Need::Existing };
    let session = Session::open(global, common, output, need).await?;
    let done = match (act(&session, &action).await, name) {
        (Err(failure), Some(name)) if failure.exit == Exit::NotFound => {
            Err(near::agent(&session, failure, name.as_str()).await)
        }
        (done, _) => done,
    };
    session.close().await;
    done.map(|()| Exit::Ok)
}

async fn act(session: &Session, action: &Action) -> Result<(), Failure> {
    match action {
        Action::List(_) => {
            let listed = list(session, Ask::get(["agents"]), "agents", &HowMany::ALL).await?;
            listed.show(session, "agent_id", agents_table)?;
            if listed.is_empty()
                && !list(session, Ask::get(["tasks"]), "tasks", &HowMany::ONE).await?.is_empty()
            {
                session
                    .tell("there are tasks: give their agents in the file of settings, as `[agents.NAME]`");
            }
            Ok(())
        }
        Action::Show(asked) => {
            let answer = session.client.ask(Ask::get(["agents", asked.agent_id.as_str()])).await?;
            session.show(&answer, "agent_id", agent_record)
        }
        Action::Add(asked) => {
            let answer = session.client.ask(Ask::post(["agents"]).json(asked.body()?)).await?;
            session.show(&answer, "agent_id", |look, agent| {
                format!("agent made\n\n{}", agent_record(look, agent))
            })
        }
        Action::Delete(asked) => {
            let agent_id = asked.agent_id.as_str();
            let answer = session.client.ask(Ask::delete(["agents", agent_id])).await?;
            if session.json {
                return session.output.line(answer.body.trim_end());
            }
            if session.quiet {
                session.output.line(agent_id)
            } else {
                session.output.line(format_args!("agent {agent_id}: deleted"))
            }
        }
    }
}

impl AddAgent {
    fn body(&self) -> Result<String, Failure> {
        let mut body = match &self.file {
            Some(file) => serde_json::from_str::<serde_json::Map<String, Value>>(&given::file(file)?)
                .map_err(|error| Failure::usage(format!("\"{file}\": expected a JSON object: {error}")))?,
            None => self.definition(),
        };
        body.insert("agent_id".to_owned(), self.agent_id.as_str().into());
        Ok(Value::Object(body).to_string())
    }

    fn definition(&self) -> serde_json::Map<String, Value> {
        let mut body = serde_json::Map::new();
        let mut give = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        let is_chat = self.kind.as_deref() == Some("chat");
        let headers: BTreeMap<&str, &str> =
            self.header.iter().map(|(name, variable)| (name.as_str(), variable.as_str())).collect();
        give("kind", self.kind.as_deref().map(Value::from));
        give(if is_chat { "base_url" } else { "url" }, self.endpoint.as_deref().map(Value::from));
        give("model", self.model.as_deref().map(Value::from));
        give("api_key_env", self.key_env.as_deref().map(Value::from));
        give("system_instruction", self.system.as_deref().map(Value::from));
        give("headers_env", (!headers.is_empty()).then(|| json!(headers)));
        body
    }
}
