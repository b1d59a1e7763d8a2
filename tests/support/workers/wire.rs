//! What the stage and its workers say to each other, a line of JSON each.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tenure::model::{InstanceId, RunId, RunStatus, Timestamp};
use tenure::ownership::{Expected, SessionKey};

use crate::ground::Kept;

/// The session of what is owned.
pub(crate) fn owned_session() -> SessionKey {
    SessionKey::new("test", "workers", "all").expect("a session")
}

/// The variable that makes this binary a worker, and says how.
pub(crate) const WORKER: &str = "TENURE_KILLS_WORKER";

/// How a worker is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) store: Kept,
    pub(crate) sink: SocketAddr,
    pub(crate) agents: Vec<String>,
    pub(crate) lease_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) grace_ms: u64,
    pub(crate) poll_ms: u64,
    pub(crate) drain_ms: u64,
    pub(crate) concurrency: usize,
    /// How long it waits for a server.
    pub(crate) patience_ms: u64,
    /// The windows in which it waits for a word.
    pub(crate) windows: Vec<Window>,
    /// Whether it waits there only where it was told to, once, and tells what the store refuses.
    pub(crate) waits_when_told: bool,
}

/// A call of the store, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Window {
    Enqueue,
    Claim,
    Start,
    Progress,
    Renew,
    Outcome,
    Recover,
    Fire,
    /// Whatever it is: committed, and not answered before it is on the disk.
    Disk,
}

/// Where in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Point {
    /// The store was not asked yet.
    Before,
    /// In the transaction, before the row of the attempt.
    BeforeAttempt,
    /// In the transaction, after the row of the attempt and before the event; of a renewal, before the commit.
    BeforeEvent,
    /// In the conversation with a server: something was sent, and its answer has not come.
    Within,
    /// Applied, and not processed yet.
    After,
}

/// A place at which a worker waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) window: Window,
    pub(crate) point: Point,
    /// How many records the store has granted, renewed or written, as far as that is known.
    pub(crate) many: usize,
    /// What the store refused, in its words.
    pub(crate) refused: Vec<String>,
}

/// From the stage to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Go on from where you wait.
    Go { id: u64 },
    /// Want a run.
    Want { id: u64, task: String, query: Option<String>, key: Option<String> },
    /// Own a task of the session that all share, and do it.
    Own { id: u64, task: u64, expect: Expected, query: String },
    /// Cancel a run, cooperatively.
    Cancel { id: u64, run_id: RunId },
    /// Wait for a word the next time you are there with something to lose; nowhere, if no place is named.
    Wait { at: Option<(Window, Point)> },
    /// Say how you are.
    Probe { id: u64 },
    /// End yourself in order.
    Shutdown,
}

/// From a worker to the stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It is a host now.
    Ready {
        instance: InstanceId,
        /// What the clock of its machine shows.
        clock: Timestamp,
    },
    /// It waits for a word.
    At { id: u64, at: At },
    /// What it was asked is done.
    Answered { id: u64, answer: Result<(RunId, RunStatus), String> },
    /// The store refused something, in its words.
    Refused { window: Window, refused: Vec<String> },
    /// How it is: what it says of its store, if it is not well; how many outcomes wait for that; and what the clock of
    /// its machine shows.
    Probed { id: u64, failing: Option<String>, unstored: usize, clock: Timestamp },
    /// It has ended itself in order.
    Closed { interrupted: usize, unstored: usize },
}

/// From an agent to the sink.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) run_id: RunId,
    pub(crate) fence: u64,
    /// Drawn for the grant: a store that lost its last writes may give a fence out again, but no nonce.
    pub(crate) nonce: u64,
    pub(crate) attempt: u32,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) what: What,
}

/// What an agent does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// It begins.
    Begin,
    /// It asks to be held until the stage lets it go. No effect.
    Hold,
    /// It was told to stop.
    Stopped,
    /// It is done.
    End,
}

/// From the sink to an agent.
pub(crate) const TAKEN: &str = "taken";
pub(crate) const REFUSED: &str = "refused";

/// A message as it is sent.
pub(crate) fn line<T: Serialize>(message: &T) -> String {
    let mut line = serde_json::to_string(message).expect("plain data");
    line.push('\n');
    line
}
