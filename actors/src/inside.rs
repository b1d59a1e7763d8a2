//! Knows whether code runs inside a process or service of a generation, so that none waits for its own end.

use std::sync::Arc;

use crate::generation::core::Core;

/// The generation that code runs inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inside(usize);

tokio::task_local! {
    static INSIDE: Inside;
}

impl Inside {
    /// Inside this generation. It is compared while the generation is alive, so its address tells it.
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        Self(Arc::as_ptr(core).addr())
    }
}

/// Runs `code`, one poll of a future, as being inside.
pub(crate) fn enter<R>(inside: Option<Inside>, code: impl FnOnce() -> R) -> R {
    match inside {
        Some(inside) => INSIDE.sync_scope(inside, code),
        None => code(),
    }
}

/// Whether the caller runs inside a child of `core`.
pub(crate) fn is_inside(core: &Arc<Core>) -> bool {
    INSIDE.try_with(|inside| *inside == Inside::of(core)).unwrap_or(false)
}
