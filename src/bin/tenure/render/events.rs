//! Events, a line each, so that they can be followed.

use serde_json::Value;

use super::list::painted;
use super::{Look, at, one_line, text};

/// `2026-11-29 22:01:03.120  run 0190…  #4  completed  …`.
pub(crate) fn event_line(look: &Look, event: &Value) -> String {
    let name = text(event, "event");
    let name = name.trim_start_matches("background_");
    let (kind, what) = name.split_once('_').unwrap_or(("", name));
    let whose = match kind {
        "run" => format!("{} {}", text(event, "task_id"), text(event, "run_id")),
        _ => text(event, "task_id"),
    };
    let mut line = format!(
        "{}  {whose}  #{}  {}",
        look.clock(event, "timestamp"),
        text(event, "sequence"),
        painted(look, what)
    );
    let attempt = text(event, "attempt");
    if !matches!(attempt.as_str(), "" | "0") {
        line.push_str(&format!("  attempt {attempt}"));
    }
    let particular = particular(at(event, "data"));
    if !particular.is_empty() {
        line.push_str(&format!("  {particular}"));
    }
    line
}

/// What is particular, `name=value` each.
fn particular(data: &Value) -> String {
    let Some(fields) = data.as_object() else {
        return if data.is_null() { String::new() } else { one_line(&text(data, ""), 200) };
    };
    let filled = fields.iter().filter(|(_, value)| !value.is_null());
    let shown = filled.map(|(name, value)| {
        let value = match value {
            Value::String(text) => format!("{:?}", one_line(&crate::output::plain(text), 120)),
            other => one_line(&other.to_string(), 200),
        };
        format!("{name}={value}")
    });
    shown.collect::<Vec<_>>().join(" ")
}
