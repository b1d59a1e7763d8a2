//! Reads a configuration file. Whatever is wrong with it is said with its place: the file, the line, the column.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::{Map, Number, Value};
use tenure::agents::AgentDefinition;
use tenure::model::{AgentId, Invalid, TaskSpec};
use toml::de::{DeTable, DeValue, Deserializer};

use super::missing::near_files;
use super::sections::Config;
use super::wrong::Wrong;
use crate::exit::{Exit, Failure, reason};

/// The text of a file, and where in it things are.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    text: String,
}

/// What to do where there is no such file, and none like it.
const NO_FILE: &str =
    "name a file that is there with --config; \"tenure.toml\" in the current folder needs no name";
/// What to do with what is no such file.
const ANOTHER_FILE: &str = "name a file of settings, agents and tasks";
/// What to do where this user may not read it.
const NOT_ALLOWED: &str = "make it readable for this user, or name another file";

/// A task of a file.
#[derive(Debug, Clone)]
pub(crate) struct FileTask {
    pub(crate) spec: TaskSpec,
    /// Whether the file says if it is paused. If it does not, a task that was paused stays so.
    pub(crate) says_enabled: bool,
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = beginning(path).map_err(|error| {
            let message = format!("the file \"{}\" cannot be read: {}", path.display(), reason(&error));
            match error.kind() {
                ErrorKind::NotFound => {
                    let near = near_files(path).map(|near| format!("did you mean {near}?"));
                    Failure::new(Exit::NotFound, message).hint(near.unwrap_or_else(|| NO_FILE.to_owned()))
                }
                ErrorKind::PermissionDenied => Failure::usage(message).hint(NOT_ALLOWED),
                _ => Failure::usage(message).hint(ANOTHER_FILE),
            }
        })?;
        if text.len() > MOST_BYTES {
            let (path, most) = (path.display(), MOST_BYTES >> 20);
            return Err(
                Failure::usage(format!("the file \"{path}\" has more than {most} MiB")).hint(ANOTHER_FILE)
            );
        }
        let text = String::from_utf8(text).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            Failure::usage(format!("{}:{line}: expected UTF-8, found other bytes", path.display()))
        })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// The settings, with agents and tasks as they are written. What cannot be taken is told, and left out.
    ///
    /// # Errors
    /// When it is no TOML: whatever else is wrong with it cannot be known.
    pub(crate) fn config(&self, wrong: &mut Wrong) -> Result<Config, Failure> {
        let (mut table, mut errors) = DeTable::parse_recoverable(&self.text);
        if !errors.is_empty() {
            errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
            errors.iter().for_each(|error| wrong.tell(self.at(error.span(), error.message())));
            return Err(wrong.failure());
        }
        loop {
            let error = match Config::deserialize(Deserializer::from(table.clone())) {
                Ok(config) => return Ok(config),
                Err(error) => error,
            };
            wrong.tell(self.at(error.span(), error.message()));
            if !error.span().is_some_and(|span| take_out(table.get_mut(), &span)) {
                return Err(wrong.failure());
            }
        }
    }

    /// Whether the file says something at this path.
    pub(crate) fn says(&self, path: &str) -> bool {
        DeTable::parse(&self.text).is_ok_and(|table| find(table.get_ref(), path, true).1)
    }

    /// Its agents; what is wrong with others is told.
    pub(crate) fn agents(
        &self,
        table: &toml::Table,
        wrong: &mut Wrong,
    ) -> BTreeMap<AgentId, AgentDefinition> {
        let mut agents = BTreeMap::new();
        for (name, value) in table {
            match agent(name, value) {
                Ok((id, definition)) => drop(agents.insert(id, definition)),
                Err(invalid) => self.tell(&format!("agents.{name}"), &invalid, wrong),
            }
        }
        agents
    }

    /// Its tasks; what is wrong with others is told.
    pub(crate) fn tasks(
        &self,
        table: &toml::Table,
        default_agent: Option<&AgentId>,
        wrong: &mut Wrong,
    ) -> Vec<FileTask> {
        let mut tasks = Vec::new();
        for (name, value) in table {
            match task(name, value, default_agent) {
                Ok(task) => tasks.push(task),
                Err(invalid) => self.tell(&format!("tasks.{name}"), &invalid, wrong),
            }
        }
        tasks
    }

    fn tell(&self, under: &str, invalid: &Invalid, wrong: &mut Wrong) {
        for problem in &invalid.problems {
            wrong.tell(self.wrong_at(&format!("{under}.{}", problem.field), &problem.expected));
        }
    }

    /// What was expected at a place of the file.
    pub(crate) fn wrong_at(&self, path: &str, expected: &str) -> String {
        let span = DeTable::parse(&self.text)
            .ok()
            .and_then(|table| find(table.get_ref(), path, !expected.starts_with("unknown")).0);
        let says_so = ["expected", "unknown", "invalid", "missing", "duplicate", "one of"];
        let word = if says_so.iter().any(|word| expected.starts_with(word)) { "" } else { "expected " };
        self.at(span, &format!("\"{path}\": {word}{expected}"))
    }

    /// The message at its place, with the line it is about.
    fn at(&self, span: Option<Range<usize>>, message: &str) -> String {
        let path = self.path.display();
        let message = in_plain_words(message.trim_end());
        let Some(span) = span.filter(|span| self.text.is_char_boundary(span.start)) else {
            return format!("{path}: {message}");
        };
        let before = &self.text[..span.start];
        let number = before.matches('\n').count() + 1;
        let begins = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[begins..].lines().next().unwrap_or_default();
        let column = before[begins..].chars().count() + 1;
        let length = self.text.get(span.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
        let marks = "^".repeat(length.chars().count().max(1));
        let margin = " ".repeat(number.to_string().len());
        let mut said = format!("{path}:{number}:{column}: {message}");
        if line.chars().count() <= LONGEST_LINE && !may_hold_a_secret(line) {
            let indent: String =
                before[begins..].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            // A string takes whatever is written to it.
            let _ = write!(said, "\n{margin} |\n{number} | {line}\n{margin} | {indent}{marks}");
        }
        said
    }
}

/// No file of settings is larger; what has no end, as a device, is not read to its end.
const MOST_BYTES: usize = 16 << 20;

/// A little more than may be taken.
fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes what begins there out of a table, or of one below it; false if there is nothing.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let holds = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let place = value.span();
        if let DeValue::Table(below) = value.get_mut()
            && take_out(below, span)
        {
            return true;
        }
        if holds(key.span()) || holds(place) {
            found = Some(key.get_ref().to_string());
        }
    }
    found.is_some_and(|name| table.remove(name.as_str()).is_some())
}

/// Whether a line is not shown, as it may be read by others than the file: a token, a password in a URL.
fn may_hold_a_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.contains('@') || ["token", "password", "secret", "key"].iter().any(|word| line.contains(word))
}

/// Types are called what they are called in files.
fn in_plain_words(message: &str) -> String {
    let types = [
        ("expected usize", "expected a whole number"),
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected i32", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a string", "expected a text in quotes"),
        ("expected a boolean", "expected true or false"),
    ];
    types.iter().fold(message.to_owned(), |message, (rust, plain)| message.replace(rust, plain))
}

/// Longer lines are not shown.
const LONGEST_LINE: usize = 160;

/// The place of what lies deepest on this path, of its value or else of its name; and whether that is the end of
/// the path.
fn find(table: &DeTable<'_>, path: &str, of_value: bool) -> (Option<Range<usize>>, bool) {
    let mut span = None;
    let mut here = Some(table);
    let mut parts = path.split('.').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let name = part.split('[').next().unwrap_or(part);
        let Some((key, value)) = here.and_then(|table| table.get_key_value(name)) else {
            return (span, false);
        };
        span = Some(key.span());
        here = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                span = Some(if of_value { value.span() } else { key.span() });
                None
            }
        };
        if parts.peek().is_none() {
            return (span, true);
        }
    }
    (span, false)
}

fn agent(name: &str, value: &toml::Value) -> Result<(AgentId, AgentDefinition), Invalid> {
    Ok((AgentId::new(name)?, AgentDefinition::from_value(json(value)?)?))
}

fn task(name: &str, value: &toml::Value, default_agent: Option<&AgentId>) -> Result<FileTask, Invalid> {
    let mut json = json(value)?;
    let Some(fields) = json.as_object_mut() else {
        return Err(Invalid::one("", "a table with the fields of a task"));
    };
    let mut wrong = Vec::new();
    let named = fields.insert("task_id".to_owned(), Value::from(name));
    if named.is_some_and(|named| named != name) {
        wrong = Invalid::one("task_id", format!("{name:?}, the name of the table; leave it out")).problems;
    }
    let says_enabled = fields.contains_key("enabled");
    let names_none = !fields.contains_key("agent_id");
    let spec = match default_agent {
        Some(agent) => TaskSpec::parse_for(&json.to_string(), agent),
        None => TaskSpec::from_value(&json),
    };
    match spec {
        Ok(spec) if wrong.is_empty() => return Ok(FileTask { spec, says_enabled }),
        Ok(_) => {}
        Err(invalid) => wrong.extend(invalid.problems),
    }
    for problem in wrong.iter_mut().filter(|problem| names_none && problem.field == "agent_id") {
        problem.expected = "the agent that executes the task, as there is not exactly one".to_owned();
    }
    Err(Invalid { problems: wrong })
}

/// The same as JSON, in which tasks come over HTTP: one set of rules for both.
fn json(value: &toml::Value) -> Result<Value, Invalid> {
    Ok(match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => {
            let number = Number::from_f64(*number);
            number.map(Value::from).ok_or_else(|| Invalid::one("", "numbers that are finite"))?
        }
        toml::Value::Boolean(flag) => Value::from(*flag),
        // Without quotes or with them, an instant is the same text.
        toml::Value::Datetime(instant) => Value::from(instant.to_string()),
        toml::Value::Array(values) => Value::Array(values.iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => {
            let fields = table.iter().map(|(name, value)| Ok((name.clone(), json(value)?)));
            Value::Object(fields.collect::<Result<Map<_, _>, Invalid>>()?)
        }
    })
}
