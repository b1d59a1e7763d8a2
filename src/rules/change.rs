//! Makes the write of one run: the next version of it, its attempt and its events together.

use serde_json::Value;

use super::transition::lawful;
use crate::model::{
    Attempt, AttemptStatus, EventKind, InstanceId, NewEvent, Run, RunError, RunStatus, Timestamp, Token,
};
use crate::store::{Expect, RunWrite};

/// When a decision is made, and a number drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The store's clock.
    pub now: Timestamp,
    /// Drawn for the decision: its writes are recognised by it.
    pub stamp: u64,
}

/// The run has moved on: what was to be decided no longer arises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run is {0}")]
pub struct Moved(pub RunStatus);

/// A write in the making.
pub(super) struct Change {
    before: RunStatus,
    now: Timestamp,
    write: RunWrite,
}

impl Change {
    /// Begins with the run as it stands, under a token if the write needs a grant.
    pub(super) fn of(run: &Run, token: Option<Token>, moment: Moment) -> Self {
        let expect = Expect::At { version: run.version, token, unrenewed: None };
        let mut run = run.clone();
        let before = run.status;
        run.version += 1;
        run.stamp = moment.stamp;
        Self { before, now: moment.now, write: RunWrite { expect, run, attempt: None, events: Vec::new() } }
    }

    /// The write holds only if the lease of the run is not renewed before it is made.
    pub(super) fn unless_renewed(&mut self) -> &mut Self {
        if let Expect::At { unrenewed, .. } = &mut self.write.expect {
            *unrenewed = self.write.run.lease.map(|lease| lease.expires_at);
        }
        self
    }

    pub(super) fn run(&mut self) -> &mut Run {
        &mut self.write.run
    }

    pub(super) fn to(&mut self, status: RunStatus) -> &mut Self {
        self.write.run.status = status;
        if status.is_terminal() {
            self.write.run.finished_at = Some(self.now);
        }
        self
    }

    /// Takes the run from its holder. A revocation raises the fence besides, so that a sink that was shown the
    /// new one refuses the old one.
    pub(super) fn ungrant(&mut self) -> &mut Self {
        self.write.run.lease = None;
        self
    }

    /// The latest attempt ends. Nothing happens if none is in progress.
    pub(super) fn attempt_ends(&mut self, status: AttemptStatus, error: Option<RunError>) -> &mut Self {
        if self.before == RunStatus::Running
            && let Some(attempt) = self.write.run.current_attempt()
        {
            self.write.attempt = Some(Attempt { status, finished_at: Some(self.now), error, ..attempt });
        }
        self
    }

    pub(super) fn attempt_begins(&mut self) -> &mut Self {
        self.write.attempt = self.write.run.current_attempt();
        self
    }

    pub(super) fn event(&mut self, kind: EventKind, by: Option<InstanceId>) -> &mut Self {
        self.event_with(kind, by, Value::Null)
    }

    pub(super) fn event_with(&mut self, kind: EventKind, by: Option<InstanceId>, data: Value) -> &mut Self {
        let status = self.write.run.status;
        self.event_as(kind, status, by, data)
    }

    /// An event of a state that the run only passes through.
    pub(super) fn event_as(
        &mut self,
        kind: EventKind,
        status: RunStatus,
        by: Option<InstanceId>,
        data: Value,
    ) -> &mut Self {
        let run = &mut self.write.run;
        run.last_event += 1;
        self.write.events.push(NewEvent {
            sequence: run.last_event,
            kind,
            at: self.now,
            status: Some(status),
            attempt: run.attempt,
            fence: run.fence,
            instance: by,
            data: (!data.is_null()).then(|| data.to_string().into()),
        });
        self
    }

    pub(super) fn done(self) -> RunWrite {
        debug_assert!(
            lawful(self.before, self.write.run.status),
            "{} to {}",
            self.before,
            self.write.run.status
        );
        self.write
    }
}
