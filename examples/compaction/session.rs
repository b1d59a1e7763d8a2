//! A session as the host keeps it: its messages, and a revision that every change raises.

use std::fmt;

use parking_lot::Mutex;
use tenure::actors::{InvalidId, SessionId};

/// What a session holds at one revision.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) revision: u64,
    pub(crate) messages: Vec<String>,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    history: Mutex<History>,
}

/// A summary took the place of the messages it summarises.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reconciled {
    pub(crate) revision: u64,
    /// Messages that came meanwhile and stand behind the summary.
    pub(crate) kept: usize,
}

/// The session no longer begins with what was summarised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conflict {
    pub(crate) summarised: u64,
    pub(crate) found: u64,
}

impl Session {
    pub(crate) fn new(id: &str, messages: &[&str]) -> Result<Self, InvalidId> {
        let messages = messages.iter().copied().map(str::to_owned).collect();
        Ok(Self { id: SessionId::new(id)?, history: Mutex::new(History { revision: 1, messages }) })
    }

    pub(crate) fn read(&self) -> History {
        self.history.lock().clone()
    }

    pub(crate) fn append(&self, message: &str) {
        let mut history = self.history.lock();
        history.messages.push(message.to_owned());
        history.revision += 1;
    }

    /// Rewrites the first message.
    pub(crate) fn rewrite(&self, message: &str) {
        let mut history = self.history.lock();
        history.messages.splice(..1, [message.to_owned()]);
        history.revision += 1;
    }

    /// Optimistic reconciliation: the summary replaces what was summarised, if the session still holds that.
    /// At the same revision it does. At a later one, messages that were only added are kept behind the
    /// summary, and anything else is a conflict that changes nothing.
    pub(crate) fn reconcile(&self, summarised: &History, summary: &str) -> Result<Reconciled, Conflict> {
        let mut history = self.history.lock();
        let kept = if history.revision == summarised.revision {
            Vec::new()
        } else if let Some(added) = history.messages.strip_prefix(summarised.messages.as_slice()) {
            added.to_vec()
        } else {
            return Err(Conflict { summarised: summarised.revision, found: history.revision });
        };
        let reconciled = Reconciled { revision: history.revision + 1, kept: kept.len() };
        history.messages = [vec![summary.to_owned()], kept].concat();
        history.revision = reconciled.revision;
        Ok(reconciled)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let History { revision, messages } = self.read();
        write!(f, "\"{}\" at revision {revision}: {}", self.id, messages.join(" | "))
    }
}

impl fmt::Display for Reconciled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept {
            0 => write!(f, "done at revision {}", self.revision),
            kept => {
                write!(f, "done at revision {}, merged with {kept} message added meanwhile", self.revision)
            }
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { summarised, found } = self;
        write!(f, "given up: revision {summarised} was summarised, revision {found} rewrote it")
    }
}
