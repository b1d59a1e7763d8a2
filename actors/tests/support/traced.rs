//! Listening to `tracing` in one test while others run beside it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// Makes `subscriber` the one of this thread.
///
/// While there is a single dispatcher, tracing asks whichever thread meets a callsite first whether anybody
/// is interested, and keeps the answer for all threads. Two that stay keep it asking for everybody.
pub(crate) fn listen(subscriber: impl tracing::Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static KEPT: OnceLock<[Dispatch; 2]> = OnceLock::new();
    KEPT.get_or_init(|| [(); 2].map(|()| Dispatch::new(tracing_subscriber::registry())));
    tracing::subscriber::set_default(subscriber)
}

/// What a subscriber writes, line by line.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// All of it so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("what is logged is text")
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
