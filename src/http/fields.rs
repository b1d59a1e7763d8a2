//! The fields of a body, read one by one: whatever cannot be taken is told at once, and what is not known is refused
//! by its name.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::body::Given;
use super::problem::Problem;
use crate::model::{self, Invalid, Reading, read};

/// The fields that were not read yet.
pub(super) struct Fields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<model::Problem>,
}

impl Fields {
    pub(super) fn of(given: &Given) -> Result<Self, Problem> {
        Ok(Self { left: given.read()?, known: Vec::new(), problems: Vec::new() })
    }

    /// A field that may be left out, or be null.
    pub(super) fn may<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        self.known.push(name);
        let value = self.left.remove(name).filter(|value| !value.is_null())?;
        if let Ok(read) = T::deserialize(&value) {
            return Some(read);
        }
        // Read again for all that is wrong with it.
        let Reading { problems, .. } = read::<T>(&value.to_string(), "");
        self.problems.extend(problems.into_iter().map(|problem| {
            let field = match problem.field.as_str() {
                "" => name.to_owned(),
                field if field.starts_with('[') => format!("{name}{field}"),
                field => format!("{name}.{field}"),
            };
            model::Problem { field, ..problem }
        }));
        None
    }

    /// A field that has to be there.
    pub(super) fn need<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        let problems = self.problems.len();
        let read = self.may(name);
        if read.is_none() && self.problems.len() == problems {
            self.refuse(name, "a value, found nothing");
        }
        read
    }

    /// What was made of fields; what is wrong with them is told with the rest.
    pub(super) fn take<T>(&mut self, made: Result<T, Invalid>) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(invalid) => {
                self.problems.extend(invalid.problems);
                None
            }
        }
    }

    pub(super) fn refuse(&mut self, field: impl Into<String>, expected: impl Into<String>) {
        self.problems.push(model::Problem { field: field.into(), expected: expected.into() });
    }

    /// What was read, if all was well.
    pub(super) fn done<T>(mut self, read: Option<T>) -> Result<T, Problem> {
        let expected = format!("one of {}", self.known.join(", "));
        for (name, _) in std::mem::take(&mut self.left) {
            self.refuse(name.chars().take(80).collect::<String>(), expected.clone());
        }
        match read {
            Some(read) if self.problems.is_empty() => Ok(read),
            _ if self.problems.is_empty() => Err(Problem::field("body", "every field that is needed")),
            _ => Err(Problem::invalid(self.problems)),
        }
    }
}
