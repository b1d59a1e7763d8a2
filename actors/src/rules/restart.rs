//! Whether a child that ended comes back.

use serde::{Deserialize, Serialize};

/// When a child is started again after its end; written `permanent`, `transient` or `temporary`.
///
/// [`after_exit`] is its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Always: it is there as long as its supervisor is.
    #[default]
    Permanent,
    /// Only after an abnormal end: it has work to finish.
    Transient,
    /// Never: it had one life.
    Temporary,
}

/// How a child's end looks to its supervisor.
///
/// Ends that the supervisor itself brought about (a close, a restart of the group, a stop on purpose) are
/// no question of restarting and never come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitClass {
    /// It ended by itself, its work done.
    Normal,
    /// It was told to stop, or ended with the reason *shutdown*.
    Shutdown,
    /// An error, a panic, a kill by a stranger, or a start that failed.
    Abnormal,
}

/// What becomes of a child, and of its spec, after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is started again.
    Restart,
    /// Its spec stays, without a process; it can be started again by hand.
    Keep,
    /// Its spec is gone, its id free.
    Forget,
}

/// What becomes of a child of this restart type after an end of this class.
///
/// | | normal | shutdown | abnormal |
/// |---|---|---|---|
/// | permanent | restart | restart | restart |
/// | transient | keep | keep | restart |
/// | temporary | forget | forget | forget |
///
/// Sources: OS-30, OS-31, OS-34, OS-37, OS-38, ED-19, ED-21. A dynamic supervisor, which has no list of
/// specs to keep, forgets where this says *keep* (ED-20).
#[must_use]
pub const fn after_exit(restart: Restart, class: ExitClass) -> Verdict {
    match (restart, class) {
        (Restart::Permanent, ExitClass::Normal | ExitClass::Shutdown | ExitClass::Abnormal) => {
            Verdict::Restart
        }
        (Restart::Transient, ExitClass::Abnormal) => Verdict::Restart,
        (Restart::Transient, ExitClass::Normal | ExitClass::Shutdown) => Verdict::Keep,
        (Restart::Temporary, ExitClass::Normal | ExitClass::Shutdown | ExitClass::Abnormal) => {
            Verdict::Forget
        }
    }
}
