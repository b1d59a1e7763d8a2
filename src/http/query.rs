//! The query of a request, read strictly: what is not known is refused by its name, and every problem is told.

use axum::extract::Query;
use axum::http::request::Parts;

use super::problem::{Kind, Problem};
use crate::model::{self, Invalid, Timestamp};
use crate::store::PageRequest;

/// How many entries a page has when nothing is said.
const PAGE: usize = 100;

/// The words of a query that were not taken yet.
pub(super) struct Words {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
    problems: Vec<model::Problem>,
}

impl Words {
    pub(super) fn of(parts: &Parts) -> Result<Self, Problem> {
        let unreadable = |error: axum::extract::rejection::QueryRejection| {
            Problem::new(Kind::Unparsable, error.body_text())
        };
        let Query(left) = Query::try_from_uri(&parts.uri).map_err(unreadable)?;
        Ok(Self { left, known: Vec::new(), problems: Vec::new() })
    }

    /// Every value of a word.
    pub(super) fn all<T>(&mut self, name: &'static str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        self.known.push(name);
        let (found, left) = std::mem::take(&mut self.left).into_iter().partition(|(word, _)| word == name);
        self.left = left;
        let found: Vec<(String, String)> = found;
        found.iter().filter_map(|(_, value)| self.read(name, value, &read)).collect()
    }

    /// The value of a word that may be given once.
    pub(super) fn one<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let mut values = self.all(name, read);
        if values.len() > 1 {
            self.refuse(name, format!("one value, found {}", values.len()));
        }
        values.pop()
    }

    /// The value of a word that is read as a name.
    pub(super) fn name<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(String) -> Result<T, Invalid>,
    ) -> Option<T> {
        let expected = |invalid: Invalid| match invalid.problems.into_iter().next() {
            Some(problem) => problem.expected,
            None => "a name".to_owned(),
        };
        self.one(name, |text| read(text.to_owned()).map_err(expected))
    }

    /// Which page; no larger than `most`.
    pub(super) fn page(&mut self, most: usize) -> PageRequest {
        let limit = self.limit(most).unwrap_or(PAGE.min(most));
        PageRequest { limit, cursor: self.one("cursor", text) }
    }

    /// How many entries.
    pub(super) fn limit(&mut self, most: usize) -> Option<usize> {
        self.one("limit", |text| match text.parse() {
            Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(format!("a number from 1 to {most}, found {}", shown(text))),
        })
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        value: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match read(value) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.refuse(name, expected);
                None
            }
        }
    }

    fn refuse(&mut self, field: impl Into<String>, expected: String) {
        self.problems.push(model::Problem { field: field.into(), expected });
    }

    /// Whether all was well.
    pub(super) fn done(mut self) -> Result<(), Problem> {
        let known = self.known.join(", ");
        for (word, _) in std::mem::take(&mut self.left) {
            let expected = if known.is_empty() { "nothing".to_owned() } else { format!("one of {known}") };
            self.refuse(word.chars().take(80).collect::<String>(), expected);
        }
        if self.problems.is_empty() { Ok(()) } else { Err(Problem::invalid(self.problems)) }
    }
}

/// Nothing is asked of what has no query.
pub(super) fn nothing(parts: &Parts) -> Result<(), Problem> {
    Words::of(parts)?.done()
}

/// Text as it is.
pub(super) fn text(value: &str) -> Result<String, String> {
    Ok(value.to_owned())
}

pub(super) fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("a whole number, found {}", shown(value)))
}

pub(super) fn flag(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("true or false, found {}", shown(value)))
}

pub(super) fn instant(value: &str) -> Result<Timestamp, String> {
    value.parse().map(Timestamp::from_jiff).map_err(|_: jiff::Error| {
        format!("an instant such as \"2026-01-31T09:00:00Z\", found {}", shown(value))
    })
}

/// A value that is one of a few words, as records spell them.
pub(super) fn word<T: serde::de::DeserializeOwned>(value: &str) -> Result<T, String> {
    let reader = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(value);
    T::deserialize(reader).map_err(|error| error.to_string())
}

/// The beginning of a value, for people.
pub(super) fn shown(value: &str) -> String {
    format!("{:?}", value.chars().take(40).collect::<String>())
}
