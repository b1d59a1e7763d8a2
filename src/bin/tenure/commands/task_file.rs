//! A task in a file: JSON, or TOML as files of settings have it.

use std::path::Path;

use serde_json::Value;
use tenure::model::TaskId;

use super::form::{Fields, put};
use crate::exit::Failure;
use crate::given;

/// The fields of a task in a file: JSON, or TOML if its name says so.
pub(super) fn read(path: &str, task_id: Option<&TaskId>) -> Result<Fields, Failure> {
    let unfit = |why: String| Failure::usage(format!("\"{path}\": {why}"));
    let is_toml = Path::new(path).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"));
    let text = if path == "-" { given::stdin()? } else { given::file(path)? };
    if !is_toml {
        return serde_json::from_str(&text)
            .map_err(|error| unfit(format!("expected a JSON object: {error}")));
    }
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| unfit(error.to_string().trim_end().to_owned()))?;
    let fields = task_of(table, task_id)
        .map_err(|why| unfit(why).hint("name the task: `tenure tasks add TASK --file …`"))?;
    let mut found = Fields::new();
    for (name, value) in fields {
        put(&mut found, &name, json_of(value))?;
    }
    Ok(found)
}

/// The task of a TOML file: its fields at the top, or one of its `[tasks.NAME]`.
fn task_of(mut table: toml::Table, task_id: Option<&TaskId>) -> Result<toml::Table, String> {
    let Some(tasks) = table.remove("tasks") else { return Ok(table) };
    let toml::Value::Table(mut tasks) = tasks else {
        return Err("expected \"tasks\" to be a table of tasks".to_owned());
    };
    let names: Vec<String> = tasks.keys().cloned().collect();
    let name = match (task_id, names.as_slice()) {
        (Some(task_id), _) => task_id.to_string(),
        (None, [only]) => only.clone(),
        (None, _) => return Err(format!("it has several tasks: {}", names.join(", "))),
    };
    let Some(toml::Value::Table(mut task)) = tasks.remove(&name) else {
        return Err(format!("it has no task \"{name}\", but {}", names.join(", ")));
    };
    task.entry("task_id").or_insert(toml::Value::String(name));
    Ok(task)
}

/// The same in JSON; times are told as text.
fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json_of).collect(),
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(name, value)| (name, json_of(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}
