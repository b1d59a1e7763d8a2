//! What programs leave behind is this OS process's to end: it starts none but those of its agents.

/// Does this work, and cares meanwhile for what programs leave behind. Where the system knows no such thing, or does
/// not allow it, they are found by their groups and their environments alone.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn with<T>(work: impl Future<Output = T>) -> T {
    work.await
}

#[cfg(target_os = "linux")]
pub(crate) use linux::with;

#[cfg(target_os = "linux")]
mod linux {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::time::Duration;

    use tenure::agents::Orphans;
    use tokio::signal::unix::{SignalKind, signal};

    /// How long after a look there is none: many may end at once, and each look goes through all processes.
    const BETWEEN: Duration = Duration::from_millis(100);

    /// Does this work, and cares meanwhile for what programs leave behind.
    pub(crate) async fn with<T>(work: impl Future<Output = T>) -> T {
        let orphans = match Orphans::adopt() {
            Ok(orphans) => orphans,
            Err(error) => {
                tracing::debug!(%error, "what programs leave behind is not adopted");
                return work.await;
            }
        };
        let mut work = pin!(work);
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            never = care(&orphans) => match never {},
        };
        // Whatever was left is of no attempt any more.
        drop(orphans.settle().await);
        done
    }

    async fn care(orphans: &Orphans) -> Infallible {
        let Ok(mut ended) = signal(SignalKind::child()) else { return std::future::pending().await };
        loop {
            // An orphan comes when its parent ends, and that is told either way.
            tokio::select! {
                _ = ended.recv() => {}
                () = orphans.over() => {}
            }
            if orphans.settle().await.is_err() {
                // The runtime ends, and with it all that is cared for.
                return std::future::pending().await;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }
}
