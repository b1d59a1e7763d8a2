//! What the program is told by signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// The signals that are listened to, from when this was made.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// SIGINT: a person at a terminal wants an end.
    Interrupt,
    /// SIGTERM: another program does.
    Terminate,
    /// SIGHUP: read the configuration again; who has none to read again ends, as their terminal was closed.
    HangUp,
}

impl Told {
    /// What it is called where it is recorded.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
        }
    }
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failed, format!("signals cannot be listened to: {error}"))
            })
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next signal.
    ///
    /// Cancel safety: no signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            Some(()) = self.terminate.recv() => Told::Terminate,
            Some(()) = self.interrupt.recv() => Told::Interrupt,
            Some(()) = self.hangup.recv() => Told::HangUp,
            else => std::future::pending().await,
        }
    }

    /// The next signal that says to stop; others wait.
    pub(crate) async fn end(&mut self) {
        tokio::select! {
            Some(()) = self.terminate.recv() => {}
            Some(()) = self.interrupt.recv() => {}
            else => std::future::pending().await,
        }
    }

    /// The next signal that says to stop; others are passed over.
    pub(crate) async fn stop(&mut self) {
        while self.next().await == Told::HangUp {}
    }
}
