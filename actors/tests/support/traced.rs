//! Listening to `tracing` in one test while others run beside it.

use std::sync::OnceLock;

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// Makes `subscriber` the one of this thread.
///
/// While there is a single dispatcher, tracing asks whichever thread meets a callsite first whether anybody
/// is interested, and keeps the answer for all threads. Two that stay keep it asking for everybody.
pub(crate) fn listen(subscriber: impl tracing::Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static KEPT: OnceLock<[Dispatch; 2]> = OnceLock::new();
    KEPT.get_or_init(|| [(); 2].map(|()| Dispatch::new(tracing_subscriber::registry())));
    tracing::subscriber::set_default(subscriber)
}
