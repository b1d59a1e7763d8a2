//! The events of supervision: one closed enum, in the past tense, that feeds `tracing`, subscriptions, the
//! live tree and the transcript. There is no second truth.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::Serialize;

use crate::exit::{ExitReason, KillReason, first_line};
use crate::id::{Epoch, OperationId, OwnerId, ProcessId, Role, Seq, SessionId};

/// The number of an event within its journal; later events have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EventId(pub(crate) NonZeroU64);

impl EventId {
    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// The event that made something happen, carried inside messages; none while nobody records.
pub type Cause = Option<EventId>;

/// Something that happened, to whom, when and why.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Its number.
    pub id: EventId,
    /// Milliseconds since the journal was opened, on tokio's clock.
    pub at_ms: u64,
    /// Who did it.
    pub actor: ActorName,
    /// What happened.
    pub kind: EventKind,
    /// The events that made it happen.
    pub causes: Vec<EventId>,
}

/// An actor of the tree, as trees, events and transcripts name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum ActorName {
    /// The application: `app`.
    Application,
    /// A generation: `g1`.
    Generation(Epoch),
    /// The registry of a generation: `registry#1`.
    Registry(Epoch),
    /// The operations of a generation: `operations#1`.
    Operations(Epoch),
    /// A process or a service: `fetch#1`, and after a restart or a second start of the kind `fetch#2`.
    Child(ChildName),
}

/// A child of a generation: role and incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct ChildName {
    /// The generation it belongs to.
    pub epoch: Epoch,
    /// The kind of process, or the service.
    pub role: Role,
    /// The how-manieth of its role in this generation.
    pub incarnation: u32,
    /// Start order within the generation.
    pub(crate) seq: Seq,
}

impl ActorName {
    /// The generation this actor belongs to; none for the application.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Application => None,
            Self::Generation(epoch) | Self::Registry(epoch) | Self::Operations(epoch) => Some(*epoch),
            Self::Child(child) => Some(child.epoch),
        }
    }

    /// Where it stands in the tree: parents first, children in start order.
    #[must_use]
    pub fn tree_path(&self) -> (u64, u64) {
        match self {
            Self::Application => (0, 0),
            Self::Generation(epoch) => (epoch.get(), 0),
            Self::Registry(epoch) => (epoch.get(), 1),
            Self::Operations(epoch) => (epoch.get(), 2),
            Self::Child(child) => (child.epoch.get(), 3 + child.seq.0),
        }
    }
}

impl fmt::Display for ActorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application => f.write_str("app"),
            Self::Generation(epoch) => write!(f, "g{epoch}"),
            Self::Registry(_) => f.write_str("registry#1"),
            Self::Operations(_) => f.write_str("operations#1"),
            Self::Child(child) => child.fmt(f),
        }
    }
}

impl fmt::Display for ChildName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.role, self.incarnation)
    }
}

/// The verbs a transcript may use: a closed list (transcript.md, rule 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[allow(missing_docs, reason = "the verbs are the documentation")]
pub enum Verb {
    Open,
    Start,
    Admit,
    Refuse,
    Reserve,
    Release,
    Bind,
    Unbind,
    Seal,
    Submit,
    Commit,
    DropLate,
    Stop,
    Escalate,
    Kill,
    Fail,
    End,
    Retry,
    GiveUp,
    Close,
    Closed,
    Lost,
    Progress,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Start => "start",
            Self::Admit => "admit",
            Self::Refuse => "refuse",
            Self::Reserve => "reserve",
            Self::Release => "release",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Seal => "seal",
            Self::Submit => "submit",
            Self::Commit => "commit",
            Self::DropLate => "drop-late",
            Self::Stop => "stop",
            Self::Escalate => "escalate",
            Self::Kill => "kill",
            Self::Fail => "fail",
            Self::End => "end",
            Self::Retry => "retry",
            Self::GiveUp => "give-up",
            Self::Close => "close",
            Self::Closed => "closed",
            Self::Lost => "lost",
            Self::Progress => "progress",
        })
    }
}

/// What happened.
#[derive(Debug, Clone, Serialize)]
pub enum EventKind {
    /// The application opened a generation.
    Opened {
        /// Its epoch.
        epoch: Epoch,
    },
    /// A generation started a child.
    Started {
        /// The child.
        child: ActorName,
    },
    /// The registry admitted a process: its id is reserved from here on.
    Admitted {
        /// Its id.
        process: ProcessId,
        /// The child it becomes.
        child: ChildName,
    },
    /// A start, a reservation or a shared resource was refused.
    Refused {
        /// What was asked for.
        what: Arc<str>,
        /// Why not.
        why: Arc<str>,
    },
    /// An operation was registered.
    Reserved {
        /// Its id.
        operation: OperationId,
        /// Who interprets it.
        owner: OwnerId,
        /// The session it belongs to.
        session: Option<SessionId>,
    },
    /// An operation was released, or cleared by the close of its generation.
    Released {
        /// Its id.
        operation: OperationId,
        /// Cleared by close, not released by its holder.
        cleared: bool,
    },
    /// A process started and is found under its id.
    Bound {
        /// Its id.
        process: ProcessId,
        /// The child.
        child: ChildName,
    },
    /// An id was given up.
    Unbound {
        /// The id.
        process: ProcessId,
        /// The child that had it.
        child: ChildName,
    },
    /// A removal named an identity that does not own the id.
    UnbindRefused {
        /// The id.
        process: ProcessId,
        /// Who owns it.
        owner: Option<ChildName>,
    },
    /// The epoch was ended: commits and admissions are refused from here on.
    Sealed {
        /// The epoch.
        epoch: Epoch,
    },
    /// A commit was attempted. Recorded only while a recorder is attached.
    Submitted {
        /// What it was, if the process said so.
        what: Option<Arc<str>>,
        /// The epoch it was made in.
        epoch: Epoch,
    },
    /// A commit was applied. Recorded only while a recorder is attached.
    Committed {
        /// The process.
        process: ProcessId,
        /// What it was, if the process said so.
        what: Option<Arc<str>>,
        /// The child that made it.
        child: ChildName,
    },
    /// A commit was refused: its authority had been revoked.
    DroppedLate {
        /// The process.
        process: ProcessId,
        /// The child that made it, and the epoch it was made in.
        child: ChildName,
        /// The epoch that is open now; none between generations.
        current: Option<Epoch>,
        /// The generation was sealed (else only this process had lost its authority).
        sealed: bool,
    },
    /// A child was told to stop.
    StopSent {
        /// The child.
        child: ActorName,
        /// Why.
        reason: StopReason,
    },
    /// A limit was reached and the failure passed to the parent.
    Escalated {
        /// The child whose failure it was.
        child: ActorName,
        /// Which limit.
        limit: Arc<str>,
    },
    /// A child was killed.
    Killed {
        /// The child.
        child: ActorName,
        /// Why.
        reason: KillReason,
    },
    /// Something failed: a start, a close, a restart, an actor.
    Failed {
        /// What was going on: `start`, `close`, `run`, `drop` ...
        stage: &'static str,
        /// The first line of the error.
        error: Arc<str>,
    },
    /// A child ended.
    Ended {
        /// How, as text.
        exit: Arc<str>,
        /// Cut off rather than ended.
        killed: bool,
    },
    /// A child or generation will be started again.
    Retried {
        /// Who.
        child: ActorName,
        /// The how-manieth restart in a row.
        attempt: u32,
        /// Milliseconds until it starts.
        delay_ms: u64,
    },
    /// Something will not be tried again.
    GaveUp {
        /// What.
        what: Arc<str>,
        /// Why.
        why: Arc<str>,
    },
    /// The close of a generation began.
    CloseBegan {
        /// Its epoch.
        epoch: Epoch,
        /// Why.
        reason: CloseReason,
    },
    /// The close of a generation is over.
    Closed {
        /// Why it was closed.
        reason: CloseReason,
        /// Milliseconds it took.
        took_ms: u64,
    },
    /// Something had no way in, or did not go away.
    Lost {
        /// What.
        what: Arc<str>,
        /// Whom it was meant for, or what it belongs to.
        addressee: Arc<str>,
    },
    /// A process reported progress.
    Progressed {
        /// Its text.
        text: Arc<str>,
        /// How far it is, 0 to 100.
        percent: Option<u8>,
    },
}

/// Why a child is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum StopReason {
    /// Its generation closes, or someone closed it by its handle.
    Closed,
    /// Its generation closes because something in it failed.
    SupervisorFailed,
    /// A sibling is restarted and its strategy includes this child.
    SiblingRestarted,
    /// It was told to by name.
    Requested,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::SupervisorFailed => "supervisor failed",
            Self::SiblingRestarted => "sibling restarted",
            Self::Requested => "requested",
        })
    }
}

/// Why a generation closes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub enum CloseReason {
    /// The application opened its successor.
    Superseded,
    /// The application closes.
    ApplicationClosed,
    /// Someone closed the generation, or its registry, by its handle.
    Requested,
    /// Something in it failed that a generation cannot go on without.
    Failed(Arc<str>),
}

impl CloseReason {
    pub(crate) fn stop_reason(&self) -> StopReason {
        match self {
            Self::Superseded | Self::ApplicationClosed | Self::Requested => StopReason::Closed,
            Self::Failed(_) => StopReason::SupervisorFailed,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => f.write_str("superseded"),
            Self::ApplicationClosed => f.write_str("application closed"),
            Self::Requested => f.write_str("requested"),
            Self::Failed(_) => f.write_str("failed"),
        }
    }
}

impl EventKind {
    pub(crate) fn failed(stage: &'static str, error: &impl ToString) -> Self {
        Self::Failed { stage, error: first_line(&error.to_string()).into() }
    }

    pub(crate) fn ended(exit: &ExitReason) -> Self {
        let killed = matches!(exit, ExitReason::Killed(_) | ExitReason::Abandoned);
        Self::Ended { exit: exit.to_string().into(), killed }
    }

    /// The verb of this event.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Self::Opened { .. } => Verb::Open,
            Self::Started { .. } => Verb::Start,
            Self::Admitted { .. } => Verb::Admit,
            Self::Refused { .. } => Verb::Refuse,
            Self::Reserved { .. } => Verb::Reserve,
            Self::Released { .. } => Verb::Release,
            Self::Bound { .. } => Verb::Bind,
            Self::Unbound { .. } | Self::UnbindRefused { .. } => Verb::Unbind,
            Self::Sealed { .. } => Verb::Seal,
            Self::Submitted { .. } => Verb::Submit,
            Self::Committed { .. } => Verb::Commit,
            Self::DroppedLate { .. } => Verb::DropLate,
            Self::StopSent { .. } => Verb::Stop,
            Self::Escalated { .. } => Verb::Escalate,
            Self::Killed { .. } => Verb::Kill,
            Self::Failed { .. } => Verb::Fail,
            Self::Ended { .. } => Verb::End,
            Self::Retried { .. } => Verb::Retry,
            Self::GaveUp { .. } => Verb::GiveUp,
            Self::CloseBegan { .. } => Verb::Close,
            Self::Closed { .. } => Verb::Closed,
            Self::Lost { .. } => Verb::Lost,
            Self::Progressed { .. } => Verb::Progress,
        }
    }
}

/// The detail of the event: what follows the verb in a transcript line.
impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { epoch } => write!(f, "g{epoch} epoch {epoch}"),
            Self::Started { child } => child.fmt(f),
            Self::Admitted { process, child } => write!(f, "{process} as {child}"),
            Self::Refused { what, why } => write!(f, "{what}, {why}"),
            Self::Reserved { operation, owner, session: Some(session) } => {
                write!(f, "{operation} for {owner}, session {session}")
            }
            Self::Reserved { operation, owner, session: None } => write!(f, "{operation} for {owner}"),
            Self::Released { operation, cleared: false } => operation.fmt(f),
            Self::Released { operation, cleared: true } => write!(f, "{operation}, cleared"),
            Self::Bound { process, child } => write!(f, "{process} to {child}, epoch {}", child.epoch),
            Self::Unbound { process, child } => write!(f, "{process} from {child}"),
            Self::UnbindRefused { process, owner: Some(owner) } => {
                write!(f, "{process} refused, owner is g{} {owner}", owner.epoch)
            }
            Self::UnbindRefused { process, owner: None } => write!(f, "{process} refused, nobody owns it"),
            Self::Sealed { epoch } => write!(f, "epoch {epoch} ended, admission closed"),
            Self::Submitted { what, epoch } => {
                write!(f, "{}, epoch {epoch}", what.as_deref().unwrap_or("an effect"))
            }
            Self::Committed { process, what: Some(what), child } => {
                write!(f, "{process}, {what}, epoch {}", child.epoch)
            }
            Self::Committed { process, what: None, child } => write!(f, "{process}, epoch {}", child.epoch),
            Self::DroppedLate { process, child, current, sealed } => {
                let made = child.epoch;
                write!(f, "{process}, made in {made}, ")?;
                match current {
                    Some(current) if *current != made => write!(f, "current {current}"),
                    _ if *sealed => write!(f, "g{made} sealed"),
                    _ => f.write_str("authority revoked"),
                }
            }
            Self::StopSent { child, reason } => write!(f, "{child}, reason {reason}"),
            Self::Escalated { child, limit } => write!(f, "{child}, {limit}"),
            Self::Killed { child, reason } => write!(f, "{child}, {reason}"),
            Self::Failed { stage, error } => write!(f, "{stage}: {error}"),
            Self::Ended { exit, .. } => f.write_str(exit),
            Self::Retried { child, attempt, delay_ms } => {
                write!(f, "{child}, restart {attempt} in {delay_ms}ms")
            }
            Self::GaveUp { what, why } => write!(f, "{what}, {why}"),
            Self::CloseBegan { epoch, reason } => write!(f, "g{epoch}, reason {reason}"),
            Self::Closed { reason, took_ms } => write!(f, "reason {reason}, took {took_ms}ms"),
            Self::Lost { what, addressee } => write!(f, "{what}, {addressee}"),
            Self::Progressed { text, percent: Some(percent) } => write!(f, "{percent}% {text}"),
            Self::Progressed { text, percent: None } => f.write_str(text),
        }
    }
}
