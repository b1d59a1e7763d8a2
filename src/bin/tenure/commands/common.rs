//! What the commands share: who is asked, and how the answer is shown.

use std::sync::Arc;

use jiff::Zoned;
use jiff::tz::TimeZone;
use serde_json::Value;
use tenure::model::{AgentId, Invalid, RunId, RunStatus, TaskId};
use tenure::store::Store;

use crate::args::Global;
use crate::client::{Answer, Client};
use crate::exit::Failure;
use crate::output::Output;
use crate::render::Look;
use crate::when::{self, Toward};

use super::here;

/// Who is asked, and how the answer is shown.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Who is asked, and how the answer is shown")]
pub(crate) struct Common {
    /// The server to ask; without one the store itself is asked. Its token is taken from TENURE_TOKEN
    #[arg(long, value_name = "URL", env = "TENURE_URL", hide_env_values = true)]
    url: Option<String>,
    /// Print the answer as JSON, as it came
    #[arg(long)]
    json: bool,
    /// Print names alone, one a line (of events those of their runs, each once; of a host that of its instance)
    #[arg(long, short = 'q', conflicts_with = "json")]
    quiet: bool,
    /// Tell times as instants in UTC, and not from now
    #[arg(long)]
    utc: bool,
}

/// Whether a command may make the store it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// There must be one: it only looks, or acts on what is there.
    Existing,
    /// It may be the first to use it.
    Any,
}

/// What a command works with.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) look: Look,
    pub(super) output: Output,
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// Now, in the zone of this machine.
    pub(super) now: Zoned,
    store: Option<Arc<dyn Store>>,
}

impl Session {
    /// Opens what is asked: the server, or the store.
    pub(super) async fn open(
        global: &Global,
        common: &Common,
        output: Output,
        need: Need,
    ) -> Result<Self, Failure> {
        let (client, store) = match url(global, common) {
            Some(url) => (Client::server(url, token())?, None),
            None => {
                let (client, store) = here::open(global, need).await?;
                (client, Some(store))
            }
        };
        let now = Zoned::now();
        let look = Look { straight: store.is_some(), ..look(common, output, &now) };
        Ok(Self { client, look, output, json: common.json, quiet: common.quiet, now, store })
    }

    /// Lets go of the store, so that everything is written where it belongs.
    pub(super) async fn close(self) {
        if let Some(store) = self.store {
            // What was answered is kept either way.
            drop(store.close().await);
        }
    }

    /// Shows an answer: as it came, by its name, or for a person.
    pub(super) fn show(
        &self,
        answer: &Answer,
        name: &str,
        person: impl FnOnce(&Look, &Value) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return self.output.line(answer.body.trim_end());
        }
        let value = answer.value()?;
        if self.quiet {
            return self.output.line(value.get(name).and_then(Value::as_str).unwrap_or_default());
        }
        self.output.line(person(&self.look, &value))
    }

    /// Something that is likely to be wrong: told to everybody, scripts too.
    pub(super) fn warn(&self, text: impl std::fmt::Display) {
        self.output.note(format_args!("warning: {text}"));
    }

    /// A line about what is done, for a person who watches.
    pub(super) fn tell(&self, text: impl std::fmt::Display) {
        if !self.json && !self.quiet {
            self.output.note(text);
        }
    }

    /// An instant that a flag says.
    pub(super) fn instant(
        &self,
        flag: &str,
        text: Option<&String>,
        toward: Toward,
    ) -> Result<Option<String>, Failure> {
        let read =
            |text: &String| when::instant(text, &self.now, toward).map(|instant| format!("{instant:.3}"));
        text.map(read).transpose().map_err(|error| Failure::usage(format!("{flag}: {error}")))
    }
}

/// The server that is asked. A store that is named on the command line wins over one in the environment.
pub(super) fn url<'a>(global: &Global, common: &'a Common) -> Option<&'a str> {
    let url = common.url.as_deref().filter(|url| !url.is_empty());
    url.filter(|_| global.flags.get("store").is_none())
}

pub(super) fn token() -> Option<String> {
    std::env::var("TENURE_TOKEN").ok().filter(|token| !token.is_empty())
}

pub(super) fn look(common: &Common, output: Output, now: &Zoned) -> Look {
    Look {
        now: now.timestamp(),
        zone: if common.utc { TimeZone::UTC } else { now.time_zone().clone() },
        utc: common.utc,
        straight: false,
        // The width of what is not a terminal is nobody's business.
        width: output.is_terminal.then(|| comfy_table::Table::new().width()).flatten(),
        colours: output.has_colours(),
    }
}

impl Common {
    /// What has no name cannot be shown by it.
    pub(super) fn without_names(&self, what: &str) -> Result<(), Failure> {
        if self.quiet {
            return Err(Failure::usage(format!("--quiet: {what} has no name to print"))
                .hint("leave it out, or ask for --json"));
        }
        Ok(())
    }

    /// Whether the answer is for a script.
    pub(super) const fn json(&self) -> bool {
        self.json
    }
}

fn expected(invalid: Invalid) -> String {
    invalid.problems.into_iter().map(|problem| format!("expected {}", problem.expected)).collect()
}

pub(super) fn task_id(text: &str) -> Result<TaskId, String> {
    TaskId::new(text).map_err(expected)
}

pub(super) fn run_id(text: &str) -> Result<RunId, String> {
    RunId::new(text).map_err(expected)
}

pub(super) fn agent_id(text: &str) -> Result<AgentId, String> {
    AgentId::new(text).map_err(expected)
}

/// The words for a status.
pub(super) fn statuses() -> clap::builder::PossibleValuesParser {
    RunStatus::ALL.map(RunStatus::as_str).into()
}
