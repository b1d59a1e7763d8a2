//! What is asked of ownership, and what it answers (contract ownership.md, section 0).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::key::{SessionKey, TaskKey};
use super::outcome::Finished;
use super::token_text;
use crate::model::{CancelIntent, CancelMode, InstanceId, Seconds, Timestamp, Token};

/// A grant: what its owner shows whenever it says something of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// The number of the run, from 1; each continuation is the next one.
    pub run: u32,
    /// The token.
    #[serde(with = "token_text")]
    pub token: Token,
}

/// A request to own a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// The task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Who asks: one start of a host program.
    pub owner: InstanceId,
    /// Drawn by who asks, for this request: asked again with it, the answer is the same grant (L17).
    pub request_id: Arc<str>,
    /// The revision of the session that was seen; 0 if there was none. Left out, it is as it stands.
    #[serde(default)]
    pub revision: Option<u64>,
    /// How long the lease is.
    pub ttl: Seconds,
    /// What must stand.
    #[serde(default)]
    pub expect: Expected,
    /// A lost task of the session whose place this one takes.
    #[serde(default)]
    pub supersedes: Option<u64>,
    /// The task of the session that starts this one: it has to run, and nobody may want it cancelled.
    #[serde(default)]
    pub parent: Option<u64>,
    /// What becomes of this one when its parent is cancelled.
    #[serde(default)]
    pub with_parent: WithParent,
    /// What makes a repeated start the same task, within the session.
    #[serde(default)]
    pub idempotency: Option<IdempotencyKey>,
    /// What is to be done.
    #[serde(default)]
    pub input: Arc<str>,
    /// Who does it, for people.
    #[serde(default)]
    pub agent: Option<Arc<str>>,
    /// What it is called, for people.
    #[serde(default)]
    pub description: Option<Arc<str>>,
}

impl Acquire {
    /// A request to begin a task.
    #[must_use]
    pub fn new(key: TaskKey, owner: InstanceId, request_id: impl Into<Arc<str>>, ttl: Seconds) -> Self {
        Self {
            key,
            owner,
            request_id: request_id.into(),
            revision: None,
            ttl,
            expect: Expected::NotExists,
            supersedes: None,
            parent: None,
            with_parent: WithParent::default(),
            idempotency: None,
            input: "".into(),
            agent: None,
            description: None,
        }
    }
}

/// What makes a repeated start the same task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdempotencyKey {
    /// The caller's key: of the turn and the tool call.
    pub key: Arc<str>,
    /// A digest of the input: the same key with another is a conflict (U2).
    pub digest: u64,
}

/// What must stand for a task to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// It has never begun.
    #[default]
    NotExists,
    /// This is its latest run, and has ended: it is continued.
    TerminalRun(u32),
    /// This is its latest run, and is lost: it is taken over.
    LostRun(u32),
}

/// What becomes of a task when the task that started it is cancelled (X11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithParent {
    /// It is cancelled in the same way.
    #[default]
    Cancel,
    /// Its owner is asked to stop, also when the parent is cancelled by force.
    Request,
    /// It goes on.
    Abandon,
}

/// What became of a request to own a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Acquired {
    /// It is owned. Work must not begin before this answer (I8).
    Acquired(Held),
    /// It is owned by another, or by an earlier request.
    Held {
        /// The task: another than was asked for when the idempotency key belongs to that.
        #[serde(flatten)]
        key: TaskKey,
        /// Who owns it.
        owner: InstanceId,
        /// Its run.
        run: u32,
        /// How long its lease still is; nothing when it has expired.
        ttl_left: Seconds,
    },
    /// Something else stands than was expected.
    Conflict {
        /// What.
        actual: Inspection,
    },
    /// The session was released.
    SessionReleased {
        /// Its revision; 0 if there is no such session.
        revision: u64,
    },
    /// The idempotency key was used for another input.
    IdempotencyConflict {
        /// The task it belongs to.
        #[serde(flatten)]
        key: TaskKey,
    },
}

/// How a task stands, read in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// Its latest run; 0 if there is none.
    pub run: u32,
    /// Who does it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// What it is called, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
    /// Whether somebody said that they have had its outcome.
    #[serde(default)]
    pub acknowledged: bool,
    /// How it stands.
    #[serde(flatten)]
    pub state: TaskState,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TaskState {
    /// Its owner holds it.
    Running {
        /// Who.
        owner: InstanceId,
        /// Under which fence.
        fence: u64,
        /// How long its lease still is.
        ttl_left: Seconds,
        /// That somebody wants it cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cancel: Option<CancelIntent>,
    },
    /// Its lease has expired and nobody has declared it lost: its owner may still renew it (L4).
    Suspect {
        /// Who owns it.
        owner: InstanceId,
        /// Under which fence.
        fence: u64,
        /// For how long the lease has expired.
        expired_for: Seconds,
        /// That somebody wants it cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cancel: Option<CancelIntent>,
    },
    /// It has ended.
    Terminal(Box<Finished>),
    /// Its owner is gone; declared so in the store.
    Lost {
        /// Who owned it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_owner: Option<InstanceId>,
        /// Since when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// The task that took its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        superseded_by: Option<u64>,
    },
    /// It was, and is no longer kept (P10).
    Expired,
    /// It never was, or has not begun.
    Unknown,
    /// Its record cannot be read; the others are served (F2).
    Unreadable {
        /// Why.
        why: String,
    },
}

impl TaskState {
    /// Whether somebody may be executing it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Suspect { .. })
    }

    /// What it came to, if it has ended.
    #[must_use]
    pub fn finished(&self) -> Option<&Finished> {
        match self {
            Self::Terminal(finished) => Some(finished),
            _ => None,
        }
    }

    /// Its word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Running { .. } | Self::Suspect { .. } => "running",
            Self::Terminal(finished) => finished.status.as_str(),
            Self::Lost { .. } => "lost",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

/// A session with its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionInspection {
    /// The session.
    #[serde(flatten)]
    pub key: SessionKey,
    /// Its revision; 0 if there is no such session.
    pub revision: u64,
    /// Its tasks that are kept, by number.
    pub tasks: Vec<Inspection>,
    /// Those whose result and snapshot have no room in this answer: each can be inspected by itself.
    #[serde(default)]
    pub left_out: Vec<u64>,
}

impl SessionInspection {
    /// A session of which nothing is kept.
    pub(super) fn of(key: SessionKey) -> Self {
        Self { key, revision: 0, tasks: Vec::new(), left_out: Vec::new() }
    }
}

/// What the owner of a task has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Renewed {
    /// Go on.
    Renewed {
        /// How long the lease is now.
        ttl_left: Seconds,
        /// That somebody wants it cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cancel: Option<CancelIntent>,
    },
    /// Stop: the token is not the current one, or the run has ended.
    Fenced {
        /// The fence of the run.
        fence: u64,
        /// Where it stands.
        status: crate::model::RunStatus,
    },
    /// Stop: there is no such run.
    Gone,
    /// Nothing is known of it, and it was not renewed: its record cannot be read. The others of the call were (F2).
    Unreadable {
        /// Why.
        why: String,
    },
}

/// What became of an outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Published {
    /// It is the outcome of the run, for everybody.
    Committed,
    /// The same was published before.
    AlreadyCommitted,
    /// Another was published under the same token; nothing was overwritten.
    AlreadyTerminal {
        /// That one.
        outcome: Box<Finished>,
    },
    /// The token has lost its authority. The outcome is kept in the history of the session, and counts for
    /// nothing.
    Fenced {
        /// How the task stands.
        state: Inspection,
    },
    /// It is larger than what is kept.
    TooLarge {
        /// The most bytes.
        limit: usize,
    },
}

/// What became of a request to declare a task lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum DeclaredLost {
    /// It is lost: declared so now, or by another before.
    Lost {
        /// How it stands.
        state: Inspection,
    },
    /// It is not: renewed, ended, cancelled, or not expired for long enough.
    Changed {
        /// How it stands.
        state: Inspection,
    },
}

/// What became of a request to be given a run again, or to give it to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Regranted {
    /// The same run, under a new token.
    Acquired(Held),
    /// The token that was shown has lost its authority for good.
    Fenced {
        /// How the task stands.
        state: Inspection,
    },
}

/// What is to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum CancelScope {
    /// One run, and no later one.
    Run {
        /// The task.
        #[serde(flatten)]
        key: TaskKey,
        /// The run.
        run: u32,
    },
    /// The latest run of a task, as it is now.
    Task(TaskKey),
    /// Whatever runs in a session now.
    Session(SessionKey),
}

/// A request to cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// How insistently.
    #[serde(default)]
    pub mode: CancelMode,
    /// Why.
    pub reason: Arc<str>,
    /// Who.
    pub requested_by: Arc<str>,
    /// After how long it is done by force; never if left out.
    #[serde(default)]
    pub force_after: Option<Seconds>,
}

/// What became of a request to cancel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CancelAnswer {
    /// So many runs were asked to stop, or have ended by it.
    Requested {
        /// How many.
        runs: usize,
    },
    /// It had ended.
    AlreadyTerminal {
        /// With this.
        outcome: Box<Finished>,
    },
    /// It is no longer kept.
    Expired,
    /// There is no such task.
    NotFound,
}

/// How a session is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "running", rename_all = "snake_case")]
pub enum Release {
    /// What runs is asked to stop; what has not ended after so long loses its authority.
    Cancel {
        /// How long is waited for.
        wait: Seconds,
    },
    /// It is refused while anything runs, on whichever instance. What is lost does not run, and is not given back
    /// any more.
    #[default]
    Refuse,
}

/// What became of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Released {
    /// Nothing of the session that was seen before can begin any more (I9).
    Released {
        /// The revision now; 0 if there was no such session.
        revision: u64,
        /// Runs that did not end by themselves: their authority was revoked, and what they come to is refused. And
        /// those whose records cannot be read, which were not cancelled: [`Ownership::inspect_session`] names them.
        ///
        /// [`Ownership::inspect_session`]: super::Ownership::inspect_session
        still_running: usize,
    },
    /// Something runs.
    Refused {
        /// How much.
        running: usize,
    },
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Acknowledgement {
    /// The outcome counts as delivered; also when it did before.
    Acknowledged,
    /// The run has not ended.
    NotTerminal,
    /// There is another run by now.
    Superseded,
    /// It is no longer kept.
    Expired,
    /// There is no such task.
    NotFound,
}

/// What became of a request to forget a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Forgotten {
    /// Nothing of it is left, for any replica.
    Forgotten,
    /// Somebody executes it: cancel it first.
    StillRunning {
        /// How it stands.
        state: Inspection,
    },
    /// It is kept until the hook of the host has removed what it keeps of others of the session. It was asked: see why
    /// it does not, and forget the task again.
    HeldUp {
        /// In how many places.
        waiting: usize,
    },
    /// There is no such task.
    NotFound,
}

/// How long what is over is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Outcomes, after they were acknowledged. Default 1 hour.
    pub acknowledged: Seconds,
    /// Outcomes that nobody acknowledged, and tasks that stay lost. Default 7 days.
    pub unacknowledged: Seconds,
    /// Sessions after their last task is gone: until then its tasks are known to be expired. Default 7 days.
    pub sessions: Seconds,
    /// The most sessions that are looked at in one call. Default 100.
    pub batch: usize,
}

impl Default for Retention {
    fn default() -> Self {
        let week = Seconds::new(7 * 86_400);
        Self { acknowledged: Seconds::new(3600), unacknowledged: week, sessions: week, batch: 100 }
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// Tasks that are expired now.
    pub tasks: usize,
    /// Those of them whose outcome nobody acknowledged (P9).
    pub undelivered: usize,
    /// Lost tasks that were given up.
    pub given_up: usize,
    /// Sessions of which nothing is left.
    pub sessions: usize,
    /// Whether there are sessions that were not looked at.
    pub more: bool,
}
