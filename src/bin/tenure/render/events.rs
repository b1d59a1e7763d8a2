//! Events, a line each, so that they can be followed.

use serde_json::Value;

use super::list::painted;
use super::times::length;
use super::{Look, at, one_line, text};

/// `2026-11-29 22:01:03.120    #4  completed  nightly-report 0190…  …`: what has one length comes first.
pub(crate) fn event_line(look: &Look, event: &Value) -> String {
    let (task_id, run_id) = (text(event, "task_id"), text(event, "run_id"));
    line_of(look, event, format!("{task_id} {run_id}").trim_end())
}

/// The same where it is known which run it is of.
pub(crate) fn event_line_of_run(look: &Look, event: &Value) -> String {
    line_of(look, event, "")
}

fn line_of(look: &Look, event: &Value, whose: &str) -> String {
    let name = text(event, "event");
    let name = name.trim_start_matches("background_");
    let (_, what) = name.split_once('_').unwrap_or(("", name));
    let what = what.replace('_', " ");
    let room = " ".repeat(WIDTH.saturating_sub(what.chars().count()));
    let number = format!("#{}", text(event, "sequence"));
    let mut line = format!("{}  {number:>5}  {}{room}", look.clock(event, "timestamp"), painted(look, &what));
    if !whose.is_empty() {
        line.push_str(&format!("  {whose}"));
    }
    let attempt = text(event, "attempt");
    if !matches!(attempt.as_str(), "" | "0") {
        line.push_str(&format!("  attempt {attempt}"));
    }
    let data = at(event, "data");
    let particular = in_words(&what, data).unwrap_or_else(|| particular(data));
    if !particular.is_empty() {
        line.push_str(&format!("  {particular}"));
    }
    line.truncate(line.trim_end().len());
    line
}

/// As wide as the longest name of an event.
const WIDTH: usize = 17;

/// What is particular, in words; none where there are none for it.
fn in_words(what: &str, data: &Value) -> Option<String> {
    let told = |name: &str| one_line(&text(data, name), 200);
    let error = || {
        let (class, message) = (told("error.class"), told("error.message"));
        if class.is_empty() { message } else { format!("{class}: {message}") }
    };
    let words = match what {
        "retrying" => {
            let delay = at(data, "delay_ms").as_i64()?;
            format!("{}; again in {}", error(), length(delay))
        }
        "failed" | "timeout" => error(),
        "interrupted" | "lost" | "recovered" | "cancelled" | "cancel requested" => told("reason"),
        "skipped" => format!(
            "run {} of the task is active",
            at(data, "blocked_by").as_str().map(|_| told("blocked_by"))?
        ),
        "awaiting approval" => told("question"),
        "progress" => {
            let percent = told("percent");
            let percent = if percent.is_empty() { percent } else { format!("{percent}% ") };
            format!("{percent}{}", told("message")).trim_end().to_owned()
        }
        _ => return None,
    };
    Some(words).filter(|words| !words.is_empty())
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
