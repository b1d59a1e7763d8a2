//! Threads that read, each with a connection of its own.
//!
//! They are OS threads: reading blocks, for longer than a runtime's worker may.
//!
//! Looks at single records come before pages, and one thread is kept free of pages where there is more than one:
//! what hosts need to go on waits behind no listing, however many ask for listings and however slowly they read.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Step;

/// The most pages that wait; who asks for more is refused.
pub(super) const MOST_PAGES: usize = 1024;

/// A look at a snapshot.
pub(super) type Look = Box<dyn FnOnce(&Connection) + Send>;

/// What a look is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Few records, found at once.
    Records,
    /// A listing.
    Page,
}

/// What became of a look that was given to the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Waits,
    TooMany,
    Closed,
}

/// Hands looks to whichever thread is free.
pub(super) struct Readers {
    queue: Arc<Queue>,
    ended: Mutex<Vec<oneshot::Receiver<()>>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("closed", &self.are_closed()).finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let most_paging = connections.len().saturating_sub(1).max(1);
        let queue = Arc::new(Queue { waiting: Mutex::default(), more: Condvar::new(), most_paging });
        let readers = Self { queue: Arc::clone(&queue), ended: Mutex::default() };
        let mut threads = Vec::new();
        for conn in connections {
            let queue = Arc::clone(&queue);
            let (end, waits) = oneshot::channel();
            let thread = Builder::new().name("tenure-sqlite-reader".to_owned()).spawn(move || {
                queue.serve(&conn);
                drop(conn);
                // Nobody waits when the store was dropped.
                let _ = end.send(());
            })?;
            threads.push(thread);
            readers.ended.lock().push(waits);
        }
        Ok((readers, threads))
    }

    pub(super) fn give(&self, extent: Extent, look: Look) -> Given {
        self.queue.give(extent, look)
    }

    pub(super) fn are_closed(&self) -> bool {
        self.queue.waiting.lock().closed
    }

    /// Answers what waits, and ends.
    pub(super) async fn close(&self) {
        self.queue.close();
        let ended = std::mem::take(&mut *self.ended.lock());
        for end in ended {
            // A thread that is gone has ended as well.
            let _ = end.await;
        }
    }
}

/// Without it nobody gives anything any more.
impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// How many threads may be at pages at once.
    most_paging: usize,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Look>,
    pages: VecDeque<Look>,
    paging: usize,
    closed: bool,
}

impl Queue {
    fn give(&self, extent: Extent, look: Look) -> Given {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Given::Closed;
        }
        match extent {
            Extent::Records => waiting.records.push_back(look),
            Extent::Page if waiting.pages.len() >= MOST_PAGES => return Given::TooMany,
            Extent::Page => waiting.pages.push_back(look),
        }
        drop(waiting);
        self.more.notify_one();
        Given::Waits
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.more.notify_all();
    }

    /// Until it is closed and nothing waits.
    fn serve(&self, conn: &Connection) {
        while let Some((extent, look)) = self.next() {
            look(conn);
            if extent == Extent::Page {
                self.waiting.lock().paging -= 1;
                // Another may take the next page now; all are asked, since one that may not would keep the word.
                self.more.notify_all();
            }
        }
    }

    fn next(&self) -> Option<(Extent, Look)> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(look) = waiting.records.pop_front() {
                return Some((Extent::Records, look));
            }
            if waiting.paging < self.most_paging
                && let Some(look) = waiting.pages.pop_front()
            {
                waiting.paging += 1;
                return Some((Extent::Page, look));
            }
            if waiting.closed && waiting.pages.is_empty() {
                return None;
            }
            self.more.wait(&mut waiting);
        }
    }
}

/// Looks at one snapshot, however many statements that takes.
pub(super) fn snapshot<T>(conn: &Connection, look: impl FnOnce(&Connection) -> Step<T>) -> Step<T> {
    conn.prepare_cached("BEGIN")?.execute([])?;
    let found = look(conn);
    super::tx::roll_back(conn);
    found
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn connections(count: usize) -> Vec<Connection> {
        (0..count).map(|_| Connection::open_in_memory().unwrap()).collect()
    }

    #[test]
    fn a_look_at_records_waits_behind_no_page() {
        let (readers, threads) = Readers::start(connections(2)).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        readers.give(
            Extent::Page,
            Box::new(move |_| {
                begin.send(()).unwrap();
                // Ends when the other side has gone.
                let _ = held.recv();
            }),
        );
        begun.recv().unwrap();
        for _ in 0..10 {
            assert_eq!(readers.give(Extent::Page, Box::new(|_| ())), Given::Waits);
        }
        let (done, looked) = mpsc::channel();
        readers.give(Extent::Records, Box::new(move |_| done.send(()).unwrap()));
        looked.recv().unwrap();
        drop(hold);
        drop(readers);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn pages_beyond_the_most_are_refused_and_those_that_wait_are_served_by_one_thread_too() {
        let (readers, threads) = Readers::start(connections(1)).unwrap();
        let (hold, held) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        readers.give(
            Extent::Page,
            Box::new(move |_| {
                begin.send(()).unwrap();
                let _ = held.recv();
            }),
        );
        begun.recv().unwrap();
        let (count, counted) = mpsc::channel();
        for _ in 0..MOST_PAGES {
            let count = count.clone();
            assert_eq!(readers.give(Extent::Page, Box::new(move |_| count.send(()).unwrap())), Given::Waits);
        }
        assert_eq!(readers.give(Extent::Page, Box::new(|_| ())), Given::TooMany);
        assert_eq!(readers.give(Extent::Records, Box::new(|_| ())), Given::Waits);
        drop((hold, count, readers));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counted.iter().count(), MOST_PAGES);
    }
}
