//! Where scripted attempts wait until a test lets them through.

use std::sync::Arc;

use tokio::sync::watch;

/// Holds attempts that come to it until the test opens it. A cheap clone.
///
/// ```
/// # use tenure::testkit::{Gate, Script, TestHost};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let host = TestHost::open("2026-01-01T00:00:00Z").await;
/// let gate = Gate::new();
/// host.agent("writer", Script::new().waits_at(&gate).answers("done"));
/// host.task(r#"{ "task_id": "t", "agent_id": "writer", "query": "write" }"#).await;
/// host.run("t").await;
/// gate.arrived(1).await; // the attempt executes, and waits
/// gate.open();
/// host.drain().await;
/// host.see("t").await.assert_statuses("completed");
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: watch::Sender<bool>,
    arrivals: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, until it is closed again.
    pub fn open(&self) {
        self.inner.open.send_replace(true);
    }

    /// Holds who comes from now on.
    pub fn close(&self) {
        self.inner.open.send_replace(false);
    }

    /// Completes once that many have come to it in all.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn arrived(&self, many: usize) {
        // The sender lives as long as the gate: there is no other end of this wait.
        drop(self.inner.arrivals.subscribe().wait_for(|arrivals| *arrivals >= many).await);
    }

    /// How many have come to it.
    #[must_use]
    pub fn arrivals(&self) -> usize {
        *self.inner.arrivals.borrow()
    }

    pub(super) async fn pass(&self) {
        self.inner.arrivals.send_modify(|arrivals| *arrivals += 1);
        drop(self.inner.open.subscribe().wait_for(|open| *open).await);
    }
}
