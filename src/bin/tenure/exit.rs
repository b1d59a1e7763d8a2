//! How the program ends: its exit codes, and what it says when it cannot do what was asked.

use std::fmt;
use std::process::ExitCode;

use tenure::Error;
use tenure::model::RunStatus;
use tenure::store::{RefusedKind, StoreError};

/// What an exit code means. Scripts rely on the numbers: none of them changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; of a run: completed.
    Ok = 0,
    /// The run failed, or something went wrong that has no number of its own.
    Failed = 1,
    /// What was given cannot be taken: a flag, a file, a field.
    Usage = 2,
    /// There is no such task, run, agent or file.
    NotFound = 3,
    /// It exists already, is paused or in the wrong state; of a run: skipped.
    Conflict = 4,
    /// The time was up.
    Timeout = 5,
    /// The run was cancelled.
    Cancelled = 6,
    /// The store or the server could not be used.
    Unavailable = 7,
    /// The token is missing, wrong or not enough.
    NotAllowed = 8,
    /// Interrupted or lost: the run goes on elsewhere, or later.
    Interrupted = 9,
    /// The run waits for a person.
    AwaitingApproval = 10,
    /// A second signal forced the end.
    Forced = 130,
}

impl Exit {
    /// Every code, in order.
    pub(crate) const ALL: [Self; 12] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Timeout,
        Self::Cancelled,
        Self::Unavailable,
        Self::NotAllowed,
        Self::Interrupted,
        Self::AwaitingApproval,
        Self::Forced,
    ];

    /// The number.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// What it means, for the documentation.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "done; the run completed",
            Self::Failed => "the run failed, or something else went wrong",
            Self::Usage => "a flag, a file or a field cannot be taken as it is",
            Self::NotFound => "there is no such task, run, agent or file",
            Self::Conflict => "it exists already, is paused or in the wrong state; the run was skipped",
            Self::Timeout => "the time was up",
            Self::Cancelled => "the run was cancelled",
            Self::Unavailable => "the store or the server could not be used",
            Self::NotAllowed => "the token is missing, wrong or not enough",
            Self::Interrupted => "interrupted or lost: the run goes on later or elsewhere",
            Self::AwaitingApproval => "the run waits for a person",
            Self::Forced => "a second signal forced the end",
        }
    }

    /// What a run that stands here means for who waited for it.
    pub(crate) const fn of_run(status: RunStatus) -> Self {
        match status {
            RunStatus::Completed => Self::Ok,
            RunStatus::Failed => Self::Failed,
            RunStatus::Timeout => Self::Timeout,
            RunStatus::Cancelled => Self::Cancelled,
            RunStatus::Skipped => Self::Conflict,
            RunStatus::AwaitingApproval => Self::AwaitingApproval,
            RunStatus::Lost
            | RunStatus::Queued
            | RunStatus::Claimed
            | RunStatus::Running
            | RunStatus::Retrying => Self::Interrupted,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

/// Why a command did not do what was asked, as it is printed: `error: …`, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Nobody reads the output any more: there is nobody to tell.
    pub(crate) quiet: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, quiet: false }
    }

    /// What cannot be taken as it was given.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The same, with what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Output that could not be written. A closed pipe is no fault: its reader has seen enough.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        let exit = if quiet { Exit::Ok } else { Exit::Failed };
        Self { quiet, ..Self::new(exit, format!("the output could not be written: {}", reason(error))) }
    }
}

/// What the system said, without its number: the words say it.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Invalid(_) => Exit::Usage,
            Error::NotFound { .. } | Error::Elsewhere { .. } => Exit::NotFound,
            Error::Exists { .. }
            | Error::KeyConflict { .. }
            | Error::Paused { .. }
            | Error::WrongState { .. }
            | Error::Contended { .. } => Exit::Conflict,
            Error::Draining | Error::Store(_) => Exit::Unavailable,
            Error::Workspace(_) | Error::Supervision(_) => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::Refused { kind: RefusedKind::Invalid | RefusedKind::NotSupported, .. } => Exit::Usage,
            StoreError::Refused { .. } | StoreError::Unknown { .. } => Exit::Unavailable,
        };
        Self::new(exit, error.to_string())
    }
}
