//! The history of a task as text: the same for the same seed.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::seen::{Seen, SeenRun, event_name, outcome, word};
use crate::model::{Attempt, Event, Occurrence, OccurrenceOutcome, SkipReason, Timestamp};

pub(super) fn of(seen: &Seen) -> String {
    let mut text = format!("task \"{}\", from {}\n", seen.task_id, seen.start);
    // Writing to a string does not fail.
    let _written = write_all(seen, &mut text);
    with_short_names(seen, &text)
}

fn write_all(seen: &Seen, text: &mut String) -> std::fmt::Result {
    for event in &seen.events {
        writeln!(text, "  {}", line_of(seen, event))?;
    }
    if !seen.occurrences.is_empty() {
        text.push_str("occurrences\n");
    }
    for occurrence in &seen.occurrences {
        writeln!(text, "  {}", occurrence_line(seen, occurrence))?;
    }
    for run in &seen.runs {
        write_run(seen, run, text)?;
    }
    Ok(())
}

fn write_run(seen: &Seen, seen_run: &SeenRun, text: &mut String) -> std::fmt::Result {
    let run = &seen_run.run;
    write!(text, "{} {}", run.run_id, run.status)?;
    if let Some(result) = &run.result {
        write!(text, ": {:?}", result.preview())?;
    }
    if let Some(error) = &run.error {
        write!(text, ", {}: {:?}", error.class, error.message)?;
    }
    text.push('\n');
    for event in &seen_run.events {
        writeln!(text, "  {}", line_of(seen, event))?;
    }
    for attempt in &seen_run.attempts {
        writeln!(text, "  {}", attempt_line(seen, attempt))?;
    }
    Ok(())
}

fn line_of(seen: &Seen, event: &Event) -> String {
    let mut line = format!("{} {} {}", event.sequence, since(seen, event.timestamp), event_name(event));
    if !event.data.is_null() {
        // Writing to a string does not fail.
        let _written = write!(line, " {}", event.data);
    }
    line
}

fn occurrence_line(seen: &Seen, occurrence: &Occurrence) -> String {
    let because = match &occurrence.outcome {
        OccurrenceOutcome::Ran { run_id } => format!(" {run_id}"),
        OccurrenceOutcome::Coalesced { into } => format!(" into {into}"),
        OccurrenceOutcome::Skipped { reason: SkipReason::Overlap { blocked_by } } => format!(" {blocked_by}"),
        OccurrenceOutcome::Skipped { .. } => String::new(),
    };
    let late = if occurrence.late_by_ms == 0 {
        String::new()
    } else {
        format!(", late by {} ms", occurrence.late_by_ms)
    };
    let many = if occurrence.count == 1 { String::new() } else { format!(", {} in all", occurrence.count) };
    format!("{} {}{because}{late}{many}", since(seen, occurrence.due_at), outcome(&occurrence.outcome))
}

fn attempt_line(seen: &Seen, attempt: &Attempt) -> String {
    let end = attempt.finished_at.map_or_else(|| "now".to_owned(), |at| since(seen, at));
    format!(
        "attempt {} {} on {}, fence {}, {} to {end}",
        attempt.number,
        word(&attempt.status),
        attempt.instance,
        attempt.fence,
        since(seen, attempt.started_at),
    )
}

/// How long after the start of the test: `+1d 02:03:04.005`.
fn since(seen: &Seen, at: Timestamp) -> String {
    if at < seen.start {
        return at.to_string();
    }
    let ms = at.since(seen.start).as_millis();
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!("+{days}d {:02}:{:02}:{seconds:02}.{ms:03}", minutes / 60, minutes % 60)
}

/// Ids are drawn: runs and hosts are called by their number instead.
fn with_short_names(seen: &Seen, text: &str) -> String {
    let runs = (1..).zip(&seen.runs).map(|(n, run)| (run.run.run_id.to_string(), format!("run#{n}")));
    let hosts = (1..).zip(&seen.instances).map(|(n, id)| (id.to_string(), format!("host#{n}")));
    let names: HashMap<String, String> = runs.chain(hosts).collect();
    let mut named = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let id = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        named.push_str(names.get(id).map_or(id, String::as_str));
        named.push_str(&piece[id.len()..]);
    }
    named
}
