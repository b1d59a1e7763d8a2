//! Runs, their attempts and their files.

use std::collections::BTreeSet;

use serde_json::Value;

use super::list::{Column, painted, table};
use super::record::Record;
use super::{Look, at, entries, one_line, state, text};

/// Runs, a line each.
pub(crate) fn runs_table(look: &Look, runs: &[Value]) -> String {
    let columns = [
        Column::Name("RUN"),
        Column::Name("TASK"),
        Column::Status("STATUS"),
        Column::Number("ATTEMPT"),
        Column::Short("BY"),
        Column::Short("QUEUED"),
        Column::Short("TOOK"),
        Column::Text("NOTE"),
    ];
    let most = length_of_names(look, runs);
    let row = |run: &Value| {
        [
            text(run, "run_id").chars().take(most).collect(),
            text(run, "task_id"),
            state(run, "status"),
            text(run, "attempt"),
            text(run, "trigger_type"),
            look.when(run, "queued_at"),
            took(look, run),
            note(look, run),
        ]
    };
    table(look, columns, runs.iter().map(row).collect(), "no runs")
}

/// Below this width the names of runs take the room of what became of them.
const NARROW: u16 = 110;
/// How much of the name of a run is shown at least.
const SHORT_NAME: usize = 12;

/// How much of the names of runs is shown: on a narrow terminal what tells these runs from each other, which is what
/// commands take as well.
fn length_of_names(look: &Look, runs: &[Value]) -> usize {
    let names: Vec<&str> = runs.iter().filter_map(|run| at(run, "run_id").as_str()).collect();
    let whole = names.iter().map(|name| name.len()).max().unwrap_or(0);
    if look.width.is_none_or(|width| width >= NARROW) {
        return whole;
    }
    let differ = |most: &usize| {
        let beginnings: BTreeSet<&str> = names.iter().map(|name| name.get(..*most).unwrap_or(name)).collect();
        beginnings.len() == names.len()
    };
    (SHORT_NAME..whole).find(differ).unwrap_or(whole)
}

/// How long it took; nothing while it waits for its turn.
fn took(look: &Look, run: &Value) -> String {
    let waits = matches!(at(run, "status").as_str(), Some("queued" | "retrying" | "awaiting_approval"));
    if waits { String::new() } else { look.took(run, "started_at", "finished_at") }
}

/// `2, 1 of 3 retries spent, 1 interrupted`: attempts that no failure made are no retries.
fn attempts(run: &Value) -> String {
    let number = |path| at(run, path).as_u64().unwrap_or(0);
    let (failures, interruptions) = (number("failures"), number("interruptions"));
    let retries = number("max_attempts").saturating_sub(1).saturating_sub(interruptions);
    let mut told = vec![match text(run, "attempt") {
        none if none == "0" => return "none yet".to_owned(),
        attempt => attempt,
    }];
    if retries > 0 {
        told.push(format!("{} of {retries} retries spent", failures.min(retries)));
    }
    if interruptions > 0 {
        told.push(format!("{interruptions} interrupted"));
    }
    told.join(", ")
}

/// What is worth saying of a run in a few words.
fn note(look: &Look, run: &Value) -> String {
    let waits = waiting(look, run);
    match at(run, "status").as_str().unwrap_or_default() {
        "completed" => one_line(&text(run, "result_preview"), 200),
        "skipped" => told("blocked by ", text(run, "blocked_by")),
        "cancelled" => text(run, "cancel_reason"),
        "running" | "claimed" if !at(run, "cancel_requested_at").is_null() => "asked to stop".to_owned(),
        "running" | "claimed" => progress(run),
        "awaiting_approval" => text(run, "approval.question"),
        "queued" | "retrying" if !waits.is_empty() => waits,
        "retrying" => format!("{}, again {}", error(run), look.when(run, "due_at")),
        _ => error(run),
    }
}

fn told(before: &str, what: String) -> String {
    if what.is_empty() { what } else { format!("{before}{what}") }
}

fn error(run: &Value) -> String {
    let (class, message) = (text(run, "error.class"), text(run, "error.message"));
    if message.is_empty() { class } else { format!("{class}: {}", one_line(&message, 200)) }
}

fn progress(run: &Value) -> String {
    let (percent, message) = (text(run, "progress.percent"), text(run, "progress.message"));
    if percent.is_empty() { message } else { format!("{percent}% {message}").trim_end().to_owned() }
}

/// Why it waits.
fn waiting(look: &Look, run: &Value) -> String {
    let reason = at(run, "waiting.reason");
    // The kind of reason is flattened into the reason, or it is the reason.
    let kind = reason.as_str().or_else(|| at(reason, "reason").as_str()).unwrap_or_default();
    let detail = if reason.is_object() { reason } else { at(run, "waiting") };
    match kind {
        "" => String::new(),
        "not_due" => format!("due {}", look.when(detail, "until")),
        "lane_full" => {
            let holders: Vec<&str> = entries(detail, "holders").iter().filter_map(Value::as_str).collect();
            format!("waits for {}", holders.join(", "))
        }
        "busy" => text(detail, "because"),
        "paused" => "its task is paused".to_owned(),
        "no_agent" => format!("this host does not have agent \"{}\"", text(detail, "agent_id")),
        "worker" if look.straight => "no host has taken it yet".to_owned(),
        "worker" => "every worker is busy".to_owned(),
        "approval" => "a person has to answer".to_owned(),
        other => other.replace('_', " "),
    }
}

/// A run in full.
pub(crate) fn run_record(look: &Look, run: &Value) -> String {
    Record::default()
        .line("run", text(run, "run_id"))
        .line("task", text(run, "task_id"))
        .line("agent", text(run, "agent_id"))
        .line("status", painted(look, &state(run, "status")))
        .line("waiting", waiting_since(look, run))
        .line("attempt", attempts(run))
        .line("progress", progress(run))
        .line("error", error(run))
        .line("cancelled", cancelled(look, run))
        .line("asked", text(run, "approval.question"))
        .line("by", text(run, "trigger_type"))
        .line("retry of", text(run, "retry_of"))
        .line("blocked by", text(run, "blocked_by"))
        .line("queued", look.when_exactly(run, "queued_at"))
        .line("due", look.when_exactly(run, "due_at"))
        .line("started", look.when_exactly(run, "started_at"))
        .line("finished", look.when_exactly(run, "finished_at"))
        .line("took", took(look, run))
        .line("deadline", look.when_exactly(run, "deadline_at"))
        .line("held by", text(run, "lease_owner"))
        .line("fence", text(run, "fence"))
        .line("session", text(run, "session_id"))
        .line("workspace", text(run, "workspace_path"))
        .line("key", text(run, "idempotency_key"))
        .line("metadata", metadata(run))
        .below("query", &text(run, "query_snapshot"))
        .below("result", &text(run, "result_preview"))
        .text()
}

fn waiting_since(look: &Look, run: &Value) -> String {
    let why = waiting(look, run);
    let since = look.when(run, "waiting.since");
    if why.is_empty() || since.is_empty() { why } else { format!("{why} (since {since})") }
}

fn cancelled(look: &Look, run: &Value) -> String {
    let asked = look.when_exactly(run, "cancel_requested_at");
    if asked.is_empty() {
        return asked;
    }
    let by = match text(run, "cancelled_by") {
        by if by == "http" => "a request".to_owned(),
        by => by,
    };
    format!("asked for {asked} by {by}: {}", text(run, "cancel_reason"))
}

/// Metadata, as it was written; nothing for an empty object.
pub(super) fn metadata(of: &Value) -> String {
    let text = text(of, "metadata");
    if text == "{}" { String::new() } else { text }
}

/// A run in a sentence: what became of what was asked for.
pub(crate) fn run_line(look: &Look, run: &Value) -> String {
    let status = painted(look, &state(run, "status"));
    let line = format!("run {} of task {}: {status}", text(run, "run_id"), text(run, "task_id"));
    let note = note(look, run);
    if note.is_empty() { line } else { format!("{line}, {note}") }
}

/// The attempts of a run.
pub(crate) fn attempts_table(look: &Look, attempts: &[Value]) -> String {
    let columns = [
        Column::Number("ATTEMPT"),
        Column::Status("STATUS"),
        Column::Short("STARTED"),
        Column::Short("TOOK"),
        Column::Short("INSTANCE"),
        Column::Text("ERROR"),
    ];
    let row = |attempt: &Value| {
        [
            text(attempt, "attempt"),
            state(attempt, "status"),
            look.when(attempt, "started_at"),
            look.took(attempt, "started_at", "finished_at"),
            text(attempt, "instance").chars().take(8).collect(),
            error(attempt),
        ]
    };
    table(look, columns, attempts.iter().map(row).collect(), "no attempts")
}

/// The files of a run.
pub(crate) fn files_table(look: &Look, files: &Value) -> String {
    let columns = [Column::Name("FILE"), Column::Number("BYTES"), Column::Short("MODIFIED")];
    let files = entries(files, "files").iter().filter(|file| at(file, "is_dir") != &Value::Bool(true));
    let row = |file: &Value| [text(file, "path"), text(file, "size"), look.when(file, "modified_at")];
    table(look, columns, files.map(row).collect(), "no files")
}
