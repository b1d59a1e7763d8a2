//! A change of some fields of a task.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::fields::{NAMES, TaskFields};
use super::read::WHOLE;
use super::{TaskSpec, check};
use crate::model::{Invalid, Problem, read};

/// Some fields of a task, each with what replaces it as a whole. `null` puts back the default.
#[derive(Debug, Clone)]
pub struct TaskPatch(BTreeMap<String, Box<RawValue>>);

impl TaskPatch {
    /// Reads a change that a user wrote in JSON.
    ///
    /// # Errors
    /// [`Invalid`] naming every field that a task does not have; then also those of a wrong type.
    pub fn parse(json: &str) -> Result<Self, Invalid> {
        let fields: BTreeMap<String, Box<RawValue>> = read(json, WHOLE).done()?;
        let known = |name: &String| NAMES.contains(&name.as_str());
        let expected = || format!("one of {}", NAMES.join(", "));
        let unknown = fields.keys().filter(|name| !known(name));
        let mut problems: Vec<Problem> = unknown
            .map(|name| Problem { field: name.chars().take(80).collect(), expected: expected() })
            .collect();
        if problems.is_empty() {
            return Ok(Self(fields));
        }
        let others: BTreeMap<&String, &RawValue> =
            fields.iter().filter(|(name, _)| known(name)).map(|(name, value)| (name, &**value)).collect();
        let others =
            serde_json::to_string(&others).map_err(|error| Invalid::one(WHOLE, error.to_string()))?;
        problems.extend(read::<TaskFields>(&others, WHOLE).problems);
        Err(Invalid { problems })
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The task as it is after the change, checked like a new one.
    ///
    /// # Errors
    /// [`Invalid`] naming every field that makes no sense, or the task's id if it would change.
    pub fn apply(&self, spec: &TaskSpec) -> Result<TaskSpec, Invalid> {
        let unreadable = |error: serde_json::Error| Invalid::one("task", error.to_string());
        let stored = serde_json::to_string(spec).map_err(unreadable)?;
        let mut fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(&stored).map_err(unreadable)?;
        for (name, value) in &self.0 {
            if value.get() == "null" {
                fields.remove(name);
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
        // A limit means nothing without its key.
        if !fields.contains_key("concurrency_key") && !self.0.contains_key("concurrency_limit") {
            fields.remove("concurrency_limit");
        }
        let changed: TaskSpec = TaskSpec::parse(&serde_json::to_string(&fields).map_err(unreadable)?)?;
        let mut problems = check::Problems::default();
        let same = changed.task_id == spec.task_id;
        problems.expect(same, "task_id", format!("{:?}, which cannot change", spec.task_id.as_str()));
        problems.done(Some(changed))
    }
}
