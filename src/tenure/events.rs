//! Events: a snapshot, what came after a number, and what comes.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Tenure;
use crate::error::Error;
use crate::instance::Instance;
use crate::model::{Event, Subject};
use crate::store::Hint;

/// The most events that are read at once.
const PAGE: usize = 500;

impl Tenure {
    /// Events of a run or task after a sequence number, or of all after a cursor, in order.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn events(&self, subject: Subject, after: u64, limit: usize) -> Result<Vec<Event>, Error> {
        Ok(self.instance.store.events(subject, after, limit).await?)
    }

    /// The cursor of the newest event of all; 0 if there is none. Found by halving: cursors only rise.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn newest_cursor(&self) -> Result<u64, Error> {
        let (mut low, mut step) = (0, 1_u64);
        // Rises in ever longer steps to a cursor after which there is nothing, then halves what is between.
        let mut high = loop {
            let probe = low + step;
            match self.events(Subject::All, probe, 1).await?.pop() {
                Some(event) => low = event.cursor,
                None => break probe,
            }
            step = step.saturating_mul(4);
        };
        if let Some(first) = self.events(Subject::All, low, 1).await?.pop() {
            low = first.cursor;
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match self.events(Subject::All, middle, 1).await?.pop() {
                Some(event) => low = event.cursor,
                None => high = middle,
            }
        }
        Ok(low)
    }

    /// The same, and then what comes, for as long as it is asked. A slow reader reads later from the store,
    /// and slows nobody.
    #[must_use]
    pub fn follow(&self, subject: Subject, after: u64) -> EventStream {
        // Hints are heard from before the first read on, so that nothing falls between.
        let hints = self.instance.store.watch();
        EventStream { instance: Arc::clone(&self.instance), subject, after, read: VecDeque::new(), hints }
    }
}

/// Events as they come.
pub struct EventStream {
    instance: Arc<Instance>,
    subject: Subject,
    after: u64,
    read: VecDeque<Event>,
    hints: broadcast::Receiver<Hint>,
}

impl EventStream {
    /// The next event; waits until there is one.
    ///
    /// # Errors
    /// [`Error::Store`]; the next call goes on where this one failed.
    ///
    /// Cancel safety: no event is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = self.place(&event);
                return Ok(event);
            }
            let page = self.instance.store.events(self.subject.clone(), self.after, PAGE).await?;
            if page.is_empty() {
                self.something_new().await;
            }
            self.read = page.into();
        }
    }

    /// The next events, a page at most; waits until there is one.
    ///
    /// # Errors
    /// [`Error::Store`]; the next call goes on where this one failed.
    ///
    /// Cancel safety: no event is lost when the future is dropped.
    pub async fn next_page(&mut self) -> Result<Vec<Event>, Error> {
        let first = self.next().await?;
        let mut page = vec![first];
        page.extend(self.read.drain(..));
        self.after = page.last().map_or(self.after, |event| self.place(event));
        Ok(page)
    }

    fn place(&self, event: &Event) -> u64 {
        if self.subject == Subject::All { event.cursor } else { event.sequence }
    }

    async fn something_new(&mut self) {
        let poll = self.instance.settings().poll;
        let closed = async {
            if let Err(RecvError::Closed) = self.hints.recv().await {
                std::future::pending::<()>().await;
            }
        };
        drop(tokio::time::timeout(poll, closed).await);
    }
}
