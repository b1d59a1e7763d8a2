//! What a story is told on.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::application::Application;
use crate::error::CloseError;
use crate::event::CloseReason;
use crate::generation::{CloseOrder, CloseReport, Generation};
use crate::operations::Operations;
use crate::registry::Registry;
use crate::testkit::Guards;
use crate::testkit::idle::Idle;
use crate::tree::Tree;

/// The application of one run, and its clock.
#[derive(Debug)]
pub struct Stage {
    application: Application,
    began: Instant,
    idle: Idle,
    guards: Guards,
    seed: u64,
    tree_at_open: Mutex<Option<Tree>>,
}

impl Stage {
    pub(super) fn new(application: Application, idle: Idle, seed: u64) -> Self {
        let began = Instant::now() - Duration::from_millis(application.journal().now_ms());
        Self { application, began, idle, guards: Guards::default(), seed, tree_at_open: Mutex::default() }
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// Its current generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.application.current()
    }

    /// The registry of its current generation.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.generation().registry()
    }

    /// The operations of its current generation.
    #[must_use]
    pub fn operations(&self) -> Operations {
        self.generation().operations()
    }

    /// Guards that have to be dropped by the end of the story.
    #[must_use]
    pub fn guards(&self) -> &Guards {
        &self.guards
    }

    /// The seed of this run; 0 is not shuffled. For what a story wants shuffled besides.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Milliseconds since the story began, on its own clock.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Goes on to this instant, in milliseconds since the story began. The first call that lets time pass
    /// also marks the tree at open, unless [`Stage::opened`] did.
    ///
    /// What else happens at this instant may happen before or after: [`Stage::settle`] waits for all of it.
    ///
    /// Cancel safety: the time that has passed has passed; nothing else is lost when the future is dropped.
    ///
    /// # Panics
    /// When the instant has passed: a story is told forwards.
    #[allow(clippy::panic, reason = "failing the test is what it is for")]
    pub async fn at(&self, ms: u64) {
        let now = self.now_ms();
        assert!(ms >= now, "the story is at {now} ms and cannot go back to {ms} ms");
        if ms > now {
            self.opened().await;
        }
        tokio::time::sleep_until(self.began + Duration::from_millis(ms)).await;
        self.application.shared().chaos.pause().await;
    }

    /// Waits until nothing is left to do at this instant: every task waits for time, for a message, or for
    /// the story. No time passes. Work on other threads and real I/O are not seen.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn settle(&self) {
        self.idle.reached().await;
    }

    /// Marks the tree at open, once everything has settled. Only the first call counts; a story that marks
    /// none and lets no time pass is shown the tree at its end.
    ///
    /// Cancel safety: a future that is dropped marks nothing.
    pub async fn opened(&self) {
        if self.tree_at_open.lock().is_none() {
            self.settle().await;
            self.mark_open();
        }
    }

    pub(super) fn mark_open(&self) {
        self.tree_at_open.lock().get_or_insert_with(|| self.application.tree());
    }

    pub(super) fn tree_at_open(&self) -> Tree {
        self.tree_at_open.lock().clone().unwrap_or_default()
    }

    /// Begins to close the current generation for this reason and does not wait. Its authority ends in this
    /// call. No successor is opened, whatever the reason says.
    pub fn begin_close(&self, reason: CloseReason) {
        self.generation().core().begin_close(CloseOrder { reason, cause: None });
    }

    /// Closes the current generation for this reason, without a successor.
    ///
    /// # Errors
    /// [`CloseError`], if the close cannot be waited for.
    ///
    /// Cancel safety: the close goes on when the future is dropped.
    pub async fn close_as(&self, reason: CloseReason) -> Result<std::sync::Arc<CloseReport>, CloseError> {
        let generation = self.generation();
        self.begin_close(reason);
        generation.closed().await
    }
}
