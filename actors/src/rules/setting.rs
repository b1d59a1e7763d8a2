//! The one error of the rules: a setting that cannot be meant.

use thiserror::Error;

/// A setting outside its range, refused before anything is started with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid setting \"{field}\": {problem}")]
pub struct InvalidSetting {
    /// The setting's name, as it is written in the settings.
    pub field: &'static str,
    /// What was expected and what was found.
    pub problem: String,
}

impl InvalidSetting {
    pub(super) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}
