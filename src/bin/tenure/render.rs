//! How answers look to people: tables, records and lines of text. Pure; nothing here prints.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

mod events;
mod host;
mod list;
mod record;
mod runs;
mod tasks;
#[cfg(test)]
mod tests;
mod times;

pub(crate) use events::{event_line, event_line_of_run};
pub(crate) use host::{agent_record, agents_table, status_record, tree_text};
pub(crate) use runs::{attempts_table, files_table, run_line, run_record, runs_table};
pub(crate) use tasks::{occurrences_table, task_record, tasks_table};

/// How things look: when and where they are looked at.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// What time it is.
    pub(crate) now: Timestamp,
    /// The zone in which times are told.
    pub(crate) zone: TimeZone,
    /// Whether times are told as instants in UTC, and not from now.
    pub(crate) utc: bool,
    /// Whether the store itself is asked, and no host.
    pub(crate) straight: bool,
    /// How many columns there are; none for as many as it takes.
    pub(crate) width: Option<u16>,
    /// Whether there are colours.
    pub(crate) colours: bool,
}

/// The value at a path of names; null where there is none.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}

/// Text at a path; empty where there is none. Numbers and flags are told as JSON tells them.
fn text(value: &Value, path: &str) -> String {
    match at(value, path) {
        Value::Null => String::new(),
        Value::String(text) => crate::output::plain(text).into_owned(),
        other => crate::output::plain(&other.to_string()).into_owned(),
    }
}

/// A state at a path, as people write it.
fn state(value: &Value, path: &str) -> String {
    text(value, path).replace('_', " ")
}

/// The entries at a path; none where there is no list.
fn entries<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Text on one line, no longer than so many characters.
fn one_line(text: &str, most: usize) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() > most {
        words = words.chars().take(most.saturating_sub(1)).collect();
        words.push('…');
    }
    words
}
