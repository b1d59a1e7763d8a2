//! `tenure doctor`: looks for what is wrong with the set-up, and says what to do about it.

use serde::Serialize;

use super::common::{Common, token, url};
use crate::args::Global;
use crate::config::{Config, Loaded};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, plain};

mod agentless;
mod agents;
mod disk;
mod environment;
mod server;
mod store;
mod worker;

/// Look for what is wrong with the set-up
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tenure doctor\n  tenure doctor --config tenure.toml --url http://127.0.0.1:8000\n\n\
    It exits with 0 when nothing failed; warnings are no failures."
)]
pub(crate) struct Doctor {
    #[command(flatten)]
    common: Common,
}

/// How something was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Warn,
    Fail,
}

/// What was looked at, and how it was found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    state: State,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    pub(super) fn new(check: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), hint: None }
    }

    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Ok, message)
    }

    pub(super) fn warn(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Warn, message)
    }

    pub(super) fn fail(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Fail, message)
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A failure of something else, as a finding.
    pub(super) fn failed(check: &'static str, failure: Failure) -> Self {
        Self { hint: failure.hint, ..Self::fail(check, failure.message) }
    }
}

/// Warns of variables that look like settings and are none.
pub(crate) fn warn_of_variables(output: Output) {
    for finding in environment::look() {
        output.note(format_args!("warning: {}", plain(&finding.message)));
        finding.hint.iter().for_each(|hint| output.hint(hint));
    }
}

pub(super) async fn execute(asked: Doctor, global: &Global, output: Output) -> Result<Exit, Failure> {
    let found = look(global, &asked.common).await;
    let failed = found.iter().any(|finding| finding.state == State::Fail);
    if asked.common.json() {
        let json = serde_json::to_string(&found).unwrap_or_default();
        output.line(format_args!("{{\"ok\":{},\"findings\":{json}}}", !failed))?;
    } else {
        found.iter().try_for_each(|finding| output.line(told(output, finding)))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn told(output: Output, finding: &Finding) -> String {
    let (word, style) = match finding.state {
        State::Ok => ("ok  ", Style::Green),
        State::Warn => ("warn", Style::Yellow),
        State::Fail => ("fail", Style::Red),
    };
    let mut line =
        format!("{}  {:10}  {}", output.paint(style, word), finding.check, plain(&finding.message));
    if let Some(hint) = &finding.hint {
        line.push_str(&format!("\n{:18}{} {}", "", output.paint(Style::Cyan, "hint:"), plain(hint)));
    }
    line
}

async fn look(global: &Global, common: &Common) -> Vec<Finding> {
    let mut found = Vec::new();
    let loaded = match Loaded::load(global) {
        Ok(loaded) => {
            let from = loaded.file.as_ref().map(|file| format!("read from \"{}\"", file.display()));
            found.push(Finding::ok("settings", from.unwrap_or_else(|| "no file; the defaults".to_owned())));
            Some(loaded)
        }
        Err(failure) => {
            found.push(Finding::failed("settings", failure));
            None
        }
    };
    found.extend(environment::look());
    if let Some(loaded) = &loaded {
        worker::look(&loaded.config, &mut found);
        store::look(loaded, &mut found).await;
        disk::look(&loaded.config, &mut found);
        agents::look(&loaded.agents, &mut found);
    }
    let address = loaded.as_ref().map(|loaded| own_address(&loaded.config));
    server::look(url(global, common), address, token(), &mut found).await;
    found
}

/// Where a server with these settings would be asked.
fn own_address(config: &Config) -> String {
    format!("http://{}", config.server.listen)
}
