//! The one place that spawns tasks which are no actors.

use std::future::Future;

/// Runs `future` beside the caller. It is never awaited: it reports by itself, and holds no authority.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    // Without a runtime there is nobody left to report to; this happens when values are dropped late.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(future));
    }
}
