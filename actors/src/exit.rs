//! How children end. Exits are data, not errors.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Any error of user code, kept as it came.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What a process body, a start or a close answers.
pub type ProcessResult = Result<(), BoxError>;

/// How a managed process or a service ended.
#[derive(Debug, Clone)]
pub enum ExitReason {
    /// Its body returned, or its actor stopped, without having been told to.
    Completed,
    /// It removed itself from the registry and nothing of it runs on.
    Removed,
    /// It ended in order after it had been told to stop.
    Stopped,
    /// Its body answered an error, or its actor failed.
    Failed(Arc<dyn Error + Send + Sync>),
    /// User code panicked; the first line of what it said.
    Panicked(Arc<str>),
    /// It was cut off at its next await.
    Killed(KillReason),
    /// Its start did not succeed: it never ran.
    NeverStarted,
    /// Told to stop, killed, and still not gone when the close had to answer. What is left of it cannot
    /// commit.
    Abandoned,
}

/// Who had a child killed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub enum KillReason {
    /// It did not end within its patience.
    PatienceSpent,
    /// The close deadline was reached first.
    DeadlineReached,
    /// Something outside the kernel ended its actor: the runtime shut down, or a stranger killed it.
    Stranger,
}

impl ExitReason {
    /// The class that restart rules look at.
    #[must_use]
    pub fn is_abnormal(&self) -> bool {
        match self {
            Self::Completed | Self::Removed | Self::Stopped => false,
            Self::Failed(_) | Self::Panicked(_) | Self::Killed(_) | Self::NeverStarted | Self::Abandoned => {
                true
            }
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Removed => f.write_str("removed"),
            Self::Stopped => f.write_str("stopped (graceful)"),
            Self::Failed(error) => write!(f, "failed: {}", first_line(&error.to_string())),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Killed(KillReason::Stranger) => f.write_str("killed from outside"),
            Self::Killed(_) => f.write_str("killed"),
            Self::NeverStarted => f.write_str("never started"),
            Self::Abandoned => f.write_str("abandoned"),
        }
    }
}

impl fmt::Display for KillReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PatienceSpent => "patience spent",
            Self::DeadlineReached => "close deadline reached",
            Self::Stranger => "from outside",
        })
    }
}

/// A panic of user code, as an error: the first line of its text.
#[derive(Debug, Clone, thiserror::Error)]
#[error("panicked: {0}")]
pub struct PanicText(pub Arc<str>);

impl PanicText {
    pub(crate) fn of(payload: &(dyn Any + Send)) -> Self {
        let text = match payload.downcast_ref::<&str>() {
            Some(text) => text,
            None => payload.downcast_ref::<String>().map_or("a panic without text", String::as_str),
        };
        Self(first_line(text).into())
    }
}

/// The first line of a text, cut to 200 characters: what fits in a log line and a transcript.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(200) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}
