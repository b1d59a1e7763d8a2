//! What a user gave us that we cannot take: every field that is wrong, and what it should have been.

use std::fmt;

use serde::Serialize;

/// One field that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, as a path: `schedule.expression`.
    pub field: String,
    /// What was expected there, with what was found.
    pub expected: String,
}

/// Input that was refused as a whole; nothing of it was stored. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Invalid {
    /// Every problem that was found, in the order of the fields.
    pub problems: Vec<Problem>,
}

impl Invalid {
    /// Input with one problem. A message that begins with "expected" does not say it twice.
    #[must_use]
    pub fn one(field: impl Into<String>, expected: impl Into<String>) -> Self {
        let mut expected: String = expected.into();
        if let Some(rest) = expected.strip_prefix("expected ") {
            expected = rest.to_owned();
        }
        Self { problems: vec![Problem { field: field.into(), expected }] }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            let comma = if n == 0 { "" } else { "; " };
            write!(f, "{comma}\"{}\": {}", problem.field, problem.expected)?;
        }
        Ok(())
    }
}
