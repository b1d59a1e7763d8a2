//! Threads that read, each with a connection of its own.
//!
//! They are OS threads: reading blocks, for longer than a runtime's worker may.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Step;

/// A look at a snapshot.
pub(super) type Look = Box<dyn FnOnce(&Connection) + Send>;

/// Hands looks to whichever thread is free.
#[derive(Debug)]
pub(super) struct Readers {
    sender: Mutex<Option<mpsc::Sender<Look>>>,
    ended: Mutex<Vec<oneshot::Receiver<()>>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (sender, looks) = mpsc::channel::<Look>();
        let looks = Arc::new(Mutex::new(looks));
        let (mut threads, mut ended) = (Vec::new(), Vec::new());
        for conn in connections {
            let looks = Arc::clone(&looks);
            let (end, waits) = oneshot::channel();
            let thread = Builder::new().name("tenure-sqlite-reader".to_owned()).spawn(move || {
                while let Some(look) = next(&looks) {
                    look(&conn);
                }
                drop(conn);
                // Nobody waits when the store was dropped.
                let _ = end.send(());
            })?;
            threads.push(thread);
            ended.push(waits);
        }
        Ok((Self { sender: Mutex::new(Some(sender)), ended: Mutex::new(ended) }, threads))
    }

    /// Answers whether anybody is there to look.
    pub(super) fn give(&self, look: Look) -> bool {
        self.sender.lock().as_ref().is_some_and(|sender| sender.send(look).is_ok())
    }

    pub(super) fn are_closed(&self) -> bool {
        self.sender.lock().is_none()
    }

    /// Answers what waits, and ends.
    pub(super) async fn close(&self) {
        self.sender.lock().take();
        let ended = std::mem::take(&mut *self.ended.lock());
        for end in ended {
            // A thread that is gone has ended as well.
            let _ = end.await;
        }
    }
}

/// The lock is held while waiting: the others have nothing better to do than to wait for it.
fn next(looks: &Mutex<mpsc::Receiver<Look>>) -> Option<Look> {
    looks.lock().recv().ok()
}

/// Looks at one snapshot, however many statements that takes.
pub(super) fn snapshot<T>(conn: &Connection, look: impl FnOnce(&Connection) -> Step<T>) -> Step<T> {
    conn.prepare_cached("BEGIN")?.execute([])?;
    let found = look(conn);
    super::tx::roll_back(conn);
    found
}
