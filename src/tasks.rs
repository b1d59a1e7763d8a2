//! The one place that hands blocking work to threads made for it: files have no asynchronous form.

use std::io;

/// Runs `work` on a thread that may block, and answers what it answered.
///
/// The thread belongs to no actor and holds no authority: it does one bounded piece of work, and what it writes
/// for an attempt passes that attempt's authority when it is written, not when it was asked for.
///
/// # Errors
/// When the runtime shuts down before the work began, or the work panicked.
///
/// Cancel safety: dropping the future does not stop work that has begun.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|ended| io::Error::other(ended.to_string()))
}
