//! What the host tells of its own work, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

use crate::config::{Loaded, LogFormat, Source};
use crate::exit::Failure;
use crate::output::Output;

/// Who reads what is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reader {
    /// Who operates a host: they get what the settings say.
    Operator,
    /// Who runs a task by hand: they get warnings, and more if they ask for it themselves, unless it is to be quiet.
    Person { quiet: bool },
}

/// What a level may be.
pub(crate) const EXPECTED: &str = "\"error\", \"warn\", \"info\", \"debug\", \"trace\" or \"off\", \
                                   or directives such as \"info,tenure=debug\"";

/// Whether this says what is told. A word alone that is no level would be taken for the name of a part of the
/// program, and everything else would be silent.
pub(crate) fn is_known(directives: &str) -> bool {
    let says_how_much = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    let is_read = !directives.trim().is_empty() && EnvFilter::try_new(directives).is_ok();
    is_read && (directives.contains('[') || directives.split(',').all(says_how_much))
}

/// Begins to log.
pub(crate) fn start(loaded: &Loaded, reader: Reader, output: Output) -> Result<(), Failure> {
    let (name, directives) = directives(loaded, reader);
    let filter = EnvFilter::try_new(without_actors(&directives))
        .map_err(|_| Failure::usage(format!("{name}: expected {EXPECTED}, found {directives:?}")))?;
    let format = loaded.config.log.format;
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output.errors_have_colours() && format == LogFormat::Text);
    let started = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // An error says that logging was started before.
    drop(started);
    Ok(())
}

/// Each line that an actor logs would begin with the actor's number, which is of use to who debugs them alone.
fn without_actors(directives: &str) -> String {
    let usual = directives.parse().is_ok_and(|level: LevelFilter| level == LevelFilter::INFO);
    if usual { format!("{directives},ractor=warn") } else { directives.to_owned() }
}

/// What is told, and who says so.
fn directives(loaded: &Loaded, reader: Reader) -> (String, String) {
    let level = &loaded.config.log.level;
    let variable = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let (name, directives) = match (loaded.source("log.level"), variable, reader) {
        (source @ Source::Flag(_), _, _) => (source.to_string(), level.clone()),
        (_, Some(directives), _) => ("RUST_LOG".to_owned(), directives),
        (source @ Source::Environment(_), None, _) => (source.to_string(), level.clone()),
        (_, None, Reader::Operator) => ("log.level".to_owned(), level.clone()),
        (_, None, Reader::Person { .. }) => ("log.level".to_owned(), "warn".to_owned()),
    };
    let says_less = ["warn", "error", "off"].contains(&directives.as_str());
    match reader {
        Reader::Person { quiet: true } if !says_less => (name, "warn".to_owned()),
        _ => (name, directives),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_have_no_number_in_lines_unless_somebody_asks() {
        assert_eq!(without_actors("info"), "info,ractor=warn");
        assert_eq!(without_actors("debug"), "debug");
        assert_eq!(without_actors("info,tenure=debug"), "info,tenure=debug");
    }

    #[test]
    fn levels_and_directives_are_known_and_lone_words_are_not() {
        for known in ["info", "OFF", "warn,tenure=debug", "tenure=trace", "tenure[run{id=3}]=debug,info"] {
            assert!(is_known(known), "{known}");
        }
        for unknown in ["", " ", "noise", "info,noise", "tenure=loud", "informative"] {
            assert!(!is_known(unknown), "{unknown}");
        }
    }
}
