//! Tasks, their schedules and their occurrences.

use serde_json::Value;

use super::list::{Column, painted, table};
use super::record::Record;
use super::runs::{metadata, run_line};
use super::times::{length, seconds};
use super::{Look, at, entries, text};

/// Tasks, a line each.
pub(crate) fn tasks_table(look: &Look, tasks: &[Value]) -> String {
    let columns = [
        Column::Name("TASK"),
        Column::Name("AGENT"),
        Column::Status("STATE"),
        Column::Short("SCHEDULE"),
        Column::Short("NEXT"),
        Column::Text("QUERY"),
    ];
    let row = |task: &Value| {
        [
            text(task, "task_id"),
            text(task, "agent_id"),
            state(task).to_owned(),
            schedule(look, at(task, "schedule"), false),
            look.when(task, due(task)),
            text(task, "query"),
        ]
    };
    table(look, columns, tasks.iter().map(row).collect(), "no tasks")
}

fn state(task: &Value) -> &'static str {
    if at(task, "enabled") == &Value::Bool(false) {
        "paused"
    } else if at(task, "schedule_state.place.state") == "failing" {
        "failing"
    } else {
        "enabled"
    }
}

/// Where a task in a list says when it is due next; a paused one is not.
fn due(task: &Value) -> &'static str {
    if at(task, "enabled") == &Value::Bool(false) { "" } else { "schedule_state.place.due_at" }
}

/// `every 5m`, `cron 0 9 * * * (Europe/Berlin)`, `once 2026-11-30 09:00 Europe/Paris (in 3h)`, `manual`.
fn schedule(look: &Look, schedule: &Value, from_now: bool) -> String {
    let zone = text(schedule, "timezone");
    let zone = if zone.is_empty() || zone == "UTC" { zone } else { format!(" ({zone})") };
    match at(schedule, "type").as_str().unwrap_or("manual") {
        "interval" => format!("every {}", seconds(at(schedule, "seconds"))),
        "cron" => format!("cron {}{}", text(schedule, "expression"), zone.trim_start_matches("UTC")),
        "once" => {
            let told = format!("once {}", look.minute(schedule, "run_at", &text(schedule, "timezone")));
            if from_now && !look.utc { format!("{told} ({})", look.when(schedule, "run_at")) } else { told }
        }
        other => other.to_owned(),
    }
}

/// A task in full, and how it does; `status` is the answer of `/tasks/{id}/status`.
pub(crate) fn task_record(look: &Look, task: &Value, status: &Value) -> String {
    let latest = at(status, "latest_run");
    let latest = if latest.is_null() { String::new() } else { run_line(look, latest) };
    let with_state = serde_json::json!({
        "enabled": at(task, "enabled"), "schedule_state": at(status, "schedule_state"),
    });
    Record::default()
        .line("task", text(task, "task_id"))
        .line("agent", text(task, "agent_id"))
        .line("state", painted(look, state(&with_state)))
        .line("schedule", schedule(look, at(task, "schedule"), true))
        .line("next", next(look, status))
        .line("last", look.when_exactly(status, "schedule_state.last_due"))
        .line("runs", counts(at(status, "status_counts")))
        .line("latest", latest)
        .line("timeout", or_none(seconds(at(task, "timeout_seconds"))))
        .line("deadline", or_none(seconds(at(task, "deadline_seconds"))))
        .line("retries", retries(at(task, "retry_policy")))
        .line("overlap", text(task, "overlap_policy"))
        .line("session", session(at(task, "session_policy")))
        .line("priority", Some(text(task, "priority")).filter(|p| p != "0").unwrap_or_default())
        .line("concurrency", concurrency(task))
        .line("workspace", text(task, "workspace_policy.namespace_template"))
        .line("metadata", metadata(task))
        .line("created", look.when_exactly(task, "created_at"))
        .line("changed", look.when_exactly(task, "updated_at"))
        .line("revision", text(task, "revision"))
        .below("query", &text(task, "query"))
        .text()
}

/// When it is due next, or why it is not.
fn next(look: &Look, status: &Value) -> String {
    let state = at(status, "schedule_state.place");
    if at(state, "state") == "failing" {
        let error = text(state, "error");
        return format!("failing since {}: {error}", look.when(state, "since"));
    }
    let due = look.when_exactly(state, "due_at");
    if !due.is_empty() && at(status, "enabled") == &Value::Bool(false) {
        return "none while it is paused".to_owned();
    }
    due
}

fn or_none(length: String) -> String {
    if length.is_empty() { "none".to_owned() } else { length }
}

/// Numbers by status, those that are not 0.
pub(super) fn counts(counts: &Value) -> String {
    let Some(counts) = counts.as_object() else { return String::new() };
    let some = counts.iter().filter(|(_, n)| n.as_u64().is_some_and(|n| n > 0));
    some.map(|(status, n)| format!("{n} {}", status.replace('_', " "))).collect::<Vec<_>>().join(", ")
}

fn retries(policy: &Value) -> String {
    let most = text(policy, "max_retries");
    if most.is_empty() || most == "0" {
        return "none".to_owned();
    }
    let (first, last) =
        (seconds(at(policy, "initial_delay_seconds")), seconds(at(policy, "max_delay_seconds")));
    let classes: Vec<&str> = entries(policy, "retry_on").iter().filter_map(Value::as_str).collect();
    let on = if classes.is_empty() { String::new() } else { format!("; on {}", classes.join(", ")) };
    let on = crate::output::plain(&on);
    match at(policy, "backoff").as_str() {
        Some("exponential") => {
            format!("up to {most}, after {first}, then twice as long each, at most {last}{on}")
        }
        _ => format!("up to {most}, each after {first}{on}"),
    }
}

fn session(policy: &Value) -> String {
    match at(policy, "type").as_str() {
        Some("fixed") => text(policy, "session_id"),
        Some("run") => "one for each run".to_owned(),
        _ => "one for the task".to_owned(),
    }
}

fn concurrency(task: &Value) -> String {
    let key = text(task, "concurrency_key");
    if key.is_empty() { key } else { format!("{} at once with key {key}", text(task, "concurrency_limit")) }
}

/// Occurrences, the newest first; what comes next stands above them, the next one last.
pub(crate) fn occurrences_table(look: &Look, past: &[Value], next: &Value) -> String {
    let columns = [
        Column::Short("DUE"),
        Column::Status("OUTCOME"),
        Column::Short("LATE BY"),
        Column::Name("RUN"),
        Column::Text("WHY"),
    ];
    let to_come = next.as_array().map_or(&[][..], Vec::as_slice).iter().rev();
    let to_come = to_come.map(|next| {
        let nothing = String::new;
        [look.when_exactly(next, "due_at"), "to come".to_owned(), nothing(), nothing(), by_its_zone(next)]
    });
    let past = past.iter().map(|occurrence| {
        let late = at(occurrence, "late_by_ms").as_i64().filter(|late| *late >= 1000);
        [
            look.when_exactly(occurrence, "due_at"),
            text(occurrence, "outcome"),
            late.map(length).unwrap_or_default(),
            ["run_id", "into"].map(|name| text(occurrence, name)).concat(),
            why(occurrence),
        ]
    });
    table(look, columns, to_come.chain(past).collect(), "no occurrences")
}

/// `2026-07-01 09:00:00+02:00 Europe/Berlin`
fn by_its_zone(next: &Value) -> String {
    text(next, "due_at_local").replacen('T', " ", 1).replacen('[', " ", 1).replace(']', "")
}

fn why(occurrence: &Value) -> String {
    let reason = at(occurrence, "reason");
    let blocked = text(reason, "overlap.blocked_by");
    if !blocked.is_empty() {
        return format!("overlap with {blocked}");
    }
    text(occurrence, "reason").replace('_', " ")
}
