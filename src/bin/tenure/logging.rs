//! What the host tells of its own work, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{Loaded, LogFormat, Source};
use crate::exit::Failure;
use crate::output::Output;

/// Begins to log. `usual` is the level where nothing was said.
pub(crate) fn start(loaded: &Loaded, usual: &str, output: Output) -> Result<(), Failure> {
    let log = &loaded.config.log;
    let source = loaded.source("log.level");
    let variable = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let (name, directives) = match (source, variable) {
        (source @ Source::Flag(_), _) => (source.to_string(), log.level.clone()),
        (_, Some(directives)) => ("RUST_LOG".to_owned(), directives),
        (Source::Default, None) => ("log.level".to_owned(), usual.to_owned()),
        (source, None) => (source.to_string(), log.level.clone()),
    };
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        Failure::usage(format!(
            "{name}: expected a level such as \"info\" or directives such as \"info,tenure=debug\", found \
             {directives:?}: {error}"
        ))
    })?;
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output.errors_have_colours() && log.format == LogFormat::Text);
    let started = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // An error says that logging was started before.
    drop(started);
    Ok(())
}
