//! What is said of a run: its events, lengths of time, sizes, each in few words.

use std::time::Duration;

use serde_json::Value;
use tenure::model::{Event, EventKind, RunStatus, WaitReason, Waiting};

use crate::output::{Style, plain};

/// An event as it is told while it happens; none for what is no news to a person.
pub(super) fn event(event: &Event, most_attempts: u32) -> Option<String> {
    let data = &event.data;
    let text = |name: &str| data[name].as_str().map(plain).unwrap_or_default();
    Some(match event.event {
        EventKind::Started if most_attempts > 1 => {
            format!("started, attempt {} of {most_attempts}", event.attempt)
        }
        EventKind::Progress => progress(&data["percent"], &text("message")),
        EventKind::Retrying => {
            let delay = Duration::from_millis(data["delay_ms"].as_u64().unwrap_or_default());
            format!("failed: {}; again in {}", error(&data["error"]), length(delay))
        }
        EventKind::Failed => format!("failed: {}", error(&data["error"])),
        EventKind::Timeout => format!("timed out: {}", error(&data["error"])),
        EventKind::Interrupted | EventKind::Lost | EventKind::Recovered => {
            format!("{}: {}", name(event.event), text("reason"))
        }
        EventKind::CancelRequested => format!("asked to stop: {}", text("reason")),
        EventKind::Skipped => format!("was skipped: run {} of the task is active", text("blocked_by")),
        EventKind::AwaitingApproval => format!("waits for a person: {}", text("question")),
        EventKind::Claimed | EventKind::TaskScheduled | EventKind::Heartbeat => return None,
        other => name(other),
    })
}

/// How far it is: `40%  indexed 400 files`.
fn progress(percent: &Value, message: &str) -> String {
    let percent = percent.as_u64().map(|percent| format!("{percent:>3}%")).unwrap_or_default();
    format!("{percent}  {message}").trim_end().to_owned()
}

/// `exit_code: the program ended with 1`.
pub(super) fn error(error: &Value) -> String {
    let text = |name: &str| error[name].as_str().map(plain).unwrap_or_default();
    format!("{}: {}", text("class"), text("message"))
}

/// The name of an event without what all of them begin with.
pub(super) fn name(kind: EventKind) -> String {
    let name = serde_json::to_value(kind).ok();
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let short = name.strip_prefix("background_run_").or_else(|| name.strip_prefix("background_"));
    short.unwrap_or(name).replace('_', " ")
}

/// Why a run waits.
pub(super) fn waiting(waiting: &Waiting) -> String {
    match &waiting.reason {
        WaitReason::NotDue { until } => format!("not due before {until}"),
        WaitReason::LaneFull { holders, .. } => match holders.first() {
            Some(holder) => format!("waits for run {holder}"),
            None => "waits for its turn".to_owned(),
        },
        WaitReason::Busy { because } => plain(because).into_owned(),
        WaitReason::Paused => "its task is paused".to_owned(),
        WaitReason::NoAgent { agent_id } => format!("waits for a host with the agent {agent_id}"),
        WaitReason::Worker => "waits for a worker".to_owned(),
        WaitReason::Approval => "waits for a person".to_owned(),
    }
}

/// The colour of a state.
pub(super) const fn style(status: RunStatus) -> Style {
    match status {
        RunStatus::Completed => Style::Green,
        RunStatus::Failed | RunStatus::Timeout | RunStatus::Lost => Style::Red,
        RunStatus::Cancelled | RunStatus::Skipped | RunStatus::Retrying | RunStatus::AwaitingApproval => {
            Style::Yellow
        }
        RunStatus::Queued | RunStatus::Claimed | RunStatus::Running => Style::Cyan,
    }
}

/// A length of time as it is read at a glance: `0.4s`, `12.0s`, `3m 05s`, `2h 10m`.
pub(super) fn length(length: Duration) -> String {
    let secs = length.as_secs();
    match secs {
        0..60 => format!("{}.{}s", secs, length.subsec_millis() / 100),
        60..3600 => format!("{}m {:02}s", secs / 60, secs % 60),
        _ => format!("{}h {:02}m", secs / 3600, secs % 3600 / 60),
    }
}

/// A number of bytes: `512 B`, `1.2 kB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    #[allow(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
    let mut size = bytes as f64 / 1000.0;
    let mut unit = 0;
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_are_read_at_a_glance() {
        let shown = |ms: u64| length(Duration::from_millis(ms));
        assert_eq!([shown(0), shown(449), shown(59_990)], ["0.0s", "0.4s", "59.9s"]);
        assert_eq!([shown(60_000), shown(185_000), shown(7_800_000)], ["1m 00s", "3m 05s", "2h 10m"]);
        assert_eq!([size(0), size(999), size(1000), size(1_249)], ["0 B", "999 B", "1.0 kB", "1.2 kB"]);
        assert_eq!([size(999_960), size(u64::MAX)], ["1.0 MB", "18446.7 PB"]);
    }

    #[test]
    fn events_are_named_in_a_word() {
        assert_eq!(name(EventKind::AwaitingApproval), "awaiting approval");
        assert_eq!(name(EventKind::TaskPaused), "task paused");
    }
}
