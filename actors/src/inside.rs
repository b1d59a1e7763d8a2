//! Knows whether code runs inside a process or service of a generation, so that none waits for its own end.

use std::future::Future;
use std::sync::Arc;

use crate::generation::core::Core;

tokio::task_local! {
    static INSIDE: usize;
}

/// Marks `future` as running inside `core`.
pub(crate) fn scope<F: Future>(core: &Arc<Core>, future: F) -> impl Future<Output = F::Output> {
    INSIDE.scope(Arc::as_ptr(core).addr(), future)
}

/// Whether the caller runs inside a child of `core`.
pub(crate) fn is_inside(core: &Arc<Core>) -> bool {
    INSIDE.try_with(|inside| *inside == Arc::as_ptr(core).addr()).unwrap_or(false)
}
