//! How a child's end is counted in the close report.

/// What was seen of a child's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndKind {
    /// It returned, stopped or closed in order.
    Completed,
    /// It was removed from the registry, its work done.
    Removed,
    /// It ended with an error: its own, or one that its close raised.
    Failed,
    /// It, or its close, panicked.
    Panicked,
    /// It was killed, and is gone.
    Killed,
    /// It did not go away, not even after the kill.
    Remains,
}

/// Whether the close had reached a child when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToldToStop {
    /// It ended before anybody told it to.
    No,
    /// It was told. A child that is killed without a word, because its patience is
    /// [`Kill`](super::Patience::Kill), was told by the kill.
    Yes,
}

/// The three kinds of managed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessKind {
    /// An actor of a plugin.
    Actor,
    /// An object with `start`, `close` and methods of its own.
    Object,
    /// An async function.
    Function,
}

/// Where a started child is counted in the close report; `started` is the sum of all five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// It ended by itself, however, before it was told to stop.
    Ended,
    /// It was told to stop and ended in order.
    Closed,
    /// It was told to stop, and its close raised an error or panicked (R23).
    Failed,
    /// It was killed at its patience or at the close deadline, and is gone.
    Killed,
    /// Something of it may still be there (R24); it has no authority any more.
    Abandoned,
}

/// Counts a child's end.
///
/// | | not told | told |
/// |---|---|---|
/// | completed, removed | ended | closed |
/// | failed, panicked | ended | failed |
/// | killed | ended | killed; an object: abandoned |
/// | remains | abandoned | abandoned |
///
/// The kind decides one cell: a kill drops all that an actor or a function is, but of an object only the
/// wrapper that was running its close. The object, and whatever it set going, is still there.
#[must_use]
pub const fn bucket(end: EndKind, told: ToldToStop, kind: ProcessKind) -> Bucket {
    match (end, told) {
        (EndKind::Remains, ToldToStop::No | ToldToStop::Yes) => Bucket::Abandoned,
        (
            EndKind::Completed | EndKind::Removed | EndKind::Failed | EndKind::Panicked | EndKind::Killed,
            ToldToStop::No,
        ) => Bucket::Ended,
        (EndKind::Completed | EndKind::Removed, ToldToStop::Yes) => Bucket::Closed,
        (EndKind::Failed | EndKind::Panicked, ToldToStop::Yes) => Bucket::Failed,
        (EndKind::Killed, ToldToStop::Yes) => match kind {
            ProcessKind::Object => Bucket::Abandoned,
            ProcessKind::Actor | ProcessKind::Function => Bucket::Killed,
        },
    }
}
