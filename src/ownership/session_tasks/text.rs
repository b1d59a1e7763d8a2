//! How tasks read, for models and people.

use std::fmt::{self, Write as _};

use super::{Continued, StartedTask, Waited};
use crate::error::Error;
use crate::model::{InstanceId, RunStatus};
use crate::ownership::{CancelAnswer, Finished, Forgotten, Inspection, SessionInspection, TaskState};
use crate::store::StoreError;

/// How many characters of a name are shown in a line.
const MOST_SHOWN: usize = 200;

/// The block before a turn.
pub(super) fn block(all: &SessionInspection, here: InstanceId) -> String {
    if all.tasks.is_empty() {
        return "No background tasks.".to_owned();
    }
    let mut text = String::from("Background tasks:");
    for task in &all.tasks {
        // Writing to a string does not fail.
        let _ = write!(text, "\n- {}", line(task, here));
    }
    text
}

pub(super) fn no_block(error: &StoreError) -> String {
    format!("Background tasks: status unknown, the store is unavailable ({error}). They may be running.")
}

/// One line: `Task 1 [running on another instance] researcher: the sources`.
fn line(task: &Inspection, here: InstanceId) -> String {
    let mut text = format!("Task {} [{}]", task.key.task, status(&task.state, here));
    if let Some(agent) = &task.agent {
        let _ = write!(text, " {}", one_line(agent));
    }
    if let Some(description) = task.description.as_ref().filter(|description| !description.is_empty()) {
        let _ = write!(text, ": {}", one_line(description));
    }
    text
}

/// A name within a line: one that has lines of its own would pass for other tasks.
fn one_line(name: &str) -> String {
    let mut shown: String =
        name.chars().take(MOST_SHOWN).map(|c| if is_break(c) { ' ' } else { c }).collect();
    if name.chars().nth(MOST_SHOWN).is_some() {
        shown.push_str(" ...");
    }
    shown
}

fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn status(state: &TaskState, here: InstanceId) -> String {
    match state {
        TaskState::Running { owner, cancel, .. } => {
            let place = if *owner == here { "" } else { " on another instance" };
            let stops = if cancel.is_some() { ", asked to stop" } else { "" };
            format!("running{place}{stops}")
        }
        TaskState::Suspect { .. } => "running, its owner is not responding".to_owned(),
        TaskState::Terminal(finished) if finished.recovered => format!("{}, recovered", finished.status),
        TaskState::Lost { superseded_by: Some(by), .. } => format!("lost, superseded by task {by}"),
        state => state.as_str().to_owned(),
    }
}

/// A task with what it came to.
pub(super) fn task(task: &Inspection, here: InstanceId) -> String {
    let number = task.key.task;
    match &task.state {
        TaskState::Terminal(finished) => {
            let mut text = line(task, here);
            if let Some(result) = &finished.result {
                let _ = write!(text, "\n{}", String::from_utf8_lossy(&result.bytes));
            }
            if let Some(blob) = &finished.blob {
                let _ =
                    write!(text, "\n{} ... ({} bytes, kept at {})", blob.preview, blob.size, blob.location);
            }
            if let Some(error) = &finished.error {
                let again = match &**finished {
                    Finished { snapshot: Some(_), .. } => " It may be continued from where it was.",
                    finished if finished.is_retryable() => " It may be started again.",
                    _ => "",
                };
                let _ = write!(text, "\n{}: {}.{again}", error.class, error.message);
            }
            text
        }
        TaskState::Lost { superseded_by: None, .. } => {
            format!("Task {number} is lost: the instance that ran it is gone. It may be started again.")
        }
        TaskState::Expired => format!("Task {number} has expired: its outcome is no longer kept."),
        TaskState::Unknown => format!("There is no task {number}."),
        TaskState::Unreadable { why } => format!("The record of task {number} cannot be read: {why}."),
        _ => format!("{}.", line(task, here)),
    }
}

pub(super) fn cleared(task: u64, forgotten: &Forgotten) -> String {
    match forgotten {
        Forgotten::Forgotten => format!("Task {task} was cleared."),
        Forgotten::StillRunning { .. } => format!("Task {task} is still running; cancel it first."),
        Forgotten::HeldUp { .. } => {
            format!("Task {task} was not cleared: what is kept of tasks that were has to be removed first.")
        }
        Forgotten::NotFound => format!("There is no task {task}."),
    }
}

pub(super) fn cancelled(task: u64, answer: &CancelAnswer) -> String {
    match answer {
        CancelAnswer::Requested { runs: 0 | 1 } => format!("Task {task} was asked to stop."),
        CancelAnswer::Requested { runs } => {
            format!("Task {task} was asked to stop, and {} that it started.", runs - 1)
        }
        CancelAnswer::AlreadyTerminal { outcome } => format!("Task {task} had {} before.", ended(outcome)),
        CancelAnswer::Expired => format!("Task {task} has expired: its outcome is no longer kept."),
        CancelAnswer::NotFound => format!("There is no task {task}."),
    }
}

fn ended(outcome: &Finished) -> &'static str {
    match outcome.status {
        RunStatus::Completed => "completed",
        RunStatus::Cancelled => "been cancelled",
        _ => "failed",
    }
}

pub(super) fn error(error: &Error) -> String {
    match error {
        Error::Store(StoreError::Unknown { .. }) => {
            format!(
                "Error: the store did not answer, and it may have been done: {error}. Look before you try again."
            )
        }
        Error::Store(error) => {
            format!("Error: the store is unavailable, and nothing was done: {error}. Tasks may be running.")
        }
        Error::Draining => "Error: this instance is shutting down and starts nothing; try again.".to_owned(),
        error => format!("Error: {error}."),
    }
}

pub(super) fn waited(waited: &Waited, here: InstanceId) -> String {
    let mut lines: Vec<String> = waited.over.iter().map(|over| task(over, here)).collect();
    if waited.over.is_empty() && !waited.running.is_empty() {
        lines.push("None has ended yet; call again to go on waiting.".to_owned());
    }
    lines.extend(waited.running.iter().map(|running| line(running, here)));
    lines.extend(waited.unknown.iter().map(|number| format!("There is no task {number}.")));
    if let Some(why) = &waited.unavailable {
        lines.push(format!("Status unknown, the store is unavailable: {why}. The tasks may be running."));
    }
    lines.join("\n")
}

impl fmt::Display for StartedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { task } => write!(f, "Task {task} was started."),
            Self::Already(task) => {
                write!(
                    f,
                    "Task {} was started by the same call; it is {}.",
                    task.key.task,
                    task.state.as_str()
                )
            }
            Self::InputConflict { task } => {
                write!(f, "The same call has started task {task} with another input; nothing was started.")
            }
            Self::NotSuperseded(task) => {
                let (number, state) = (task.key.task, task.state.as_str());
                write!(f, "Task {number} is {state} and cannot be done again; nothing was started.")
            }
            Self::UnknownAgent { agent, known } => {
                write!(f, "There is no agent \"{agent}\", expected one of: {}.", known.join(", "))
            }
            Self::SessionReleased => f.write_str("The conversation was deleted; nothing was started."),
        }
    }
}

impl fmt::Display for Continued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { task, run } => write!(f, "Task {task} goes on, run {run}."),
            Self::StillRunning(task) => {
                write!(f, "Task {} is still running; continue it when it has ended.", task.key.task)
            }
            Self::Conflict(task) => {
                let (number, run, state) = (task.key.task, task.run, task.state.as_str());
                write!(f, "Task {number} was continued elsewhere; run {run} is {state}.")
            }
            Self::NotContinuable(task) => {
                write!(f, "Task {} is {} and cannot be continued.", task.key.task, task.state.as_str())
            }
            Self::Unavailable { task, instance, alive } => {
                write!(f, "Task {task} can only be continued on the instance that ran it")?;
                if let Some(instance) = instance {
                    let alive = if *alive { ", which is alive" } else { "" };
                    write!(f, " ({instance}{alive})")?;
                }
                f.write_str(".")
            }
            Self::AgentUnavailable { agent } => {
                write!(f, "The agent \"{agent}\" is not available here; its results can still be read.")
            }
            Self::SessionReleased => f.write_str("The conversation was deleted; nothing was continued."),
        }
    }
}
