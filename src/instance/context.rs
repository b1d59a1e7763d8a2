//! What an attempt is given: its query, who it is, when to stop, and the one way to have an effect.

use std::fmt;
use std::sync::Arc;

use tenure_actors::{CommitError, ProcessContext};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Instance;
use super::live::LiveRun;
use crate::model::{
    Approval, ApprovalAnswer, Invalid, Payload, Progress, Run, RunId, RunSpec, Timestamp, Token,
};
use crate::store::{RenewRequest, Renewal, StoreError};
use crate::workspace::{Authority, AuthorityLost, GuardedWorkspace};

/// How often the store is asked for one effect whose answers come later than the lease lasts.
const CONFIRMED: usize = 3;

/// One attempt, as its agent sees it. A cheap clone; it may outlive the attempt, and then every commit is
/// refused.
#[derive(Clone)]
pub struct RunContext {
    inner: Arc<Inner>,
}

struct Inner {
    instance: Arc<Instance>,
    held: Held,
    run: Arc<Run>,
    deadline: Option<Instant>,
    /// The most bytes of a checkpoint.
    most_checkpoint: usize,
}

/// A run as an attempt holds it: what lets effects pass while the lease may be relied on and the process's gate
/// is open.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) live: Arc<LiveRun>,
    pub(super) process: ProcessContext,
}

impl Held {
    fn commit_now<R>(&self, effect: impl FnOnce() -> R) -> Result<R, AuthorityError> {
        if self.live.fenced.is_cancelled() {
            return Err(self.fenced());
        }
        if !self.live.is_relied_on() {
            return Err(AuthorityError::Suspended { run_id: self.live.run_id.clone() });
        }
        Ok(self.process.commit(effect)?)
    }

    fn fenced(&self) -> AuthorityError {
        AuthorityError::Fenced { run_id: self.live.run_id.clone(), fence: self.live.token.fence }
    }
}

/// What an attempt writes into its workspace is an effect like any other.
impl Authority for Held {
    fn commit(&self, effect: &mut dyn FnMut()) -> Result<(), AuthorityLost> {
        self.commit_now(effect).map_err(AuthorityLost::new)
    }
}

/// Why an effect was not had.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The run is somebody else's now, or has ended: nothing of this attempt has an effect any more.
    #[error(
        "run \"{run_id}\" is not held any more under fence {fence}: another attempt, or its end, came first"
    )]
    Fenced {
        /// The run.
        run_id: RunId,
        /// The fence that was held.
        fence: u64,
    },
    /// The lease may have expired while the store could not be asked. It may still be renewed: ask again, or
    /// use [`RunContext::commit`], which asks the store.
    #[error("run \"{run_id}\" cannot rely on its lease: the store was not reached in time; try again")]
    Suspended {
        /// The run.
        run_id: RunId,
    },
    /// The process or its generation was closed.
    #[error(transparent)]
    Revoked(#[from] CommitError),
    /// The store did not say whether the run is still held.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RunContext {
    pub(super) fn new(
        instance: Arc<Instance>,
        held: Held,
        deadline: Option<Instant>,
        most_checkpoint: usize,
    ) -> Self {
        let run = held.live.run();
        Self { inner: Arc::new(Inner { instance, held, run, deadline, most_checkpoint }) }
    }

    // --- what is to be done -----------------------------------------------------------------------------

    /// What the agent is asked, byte for byte.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.inner.run.spec.query
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.inner.run.run_id
    }

    /// What never changes about the run: task, agent, session, trigger, occurrence, limits, metadata.
    #[must_use]
    pub fn spec(&self) -> &RunSpec {
        &self.inner.run.spec
    }

    /// The number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.run.attempt
    }

    /// The session the run belongs to.
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.inner.run.spec.session_id
    }

    /// The token under which this attempt holds the run: shown to effects outside, so that a sink can refuse
    /// what comes from an earlier holder.
    #[must_use]
    pub fn fence(&self) -> Token {
        self.inner.held.live.token
    }

    /// When the attempt was begun, by the store's clock.
    #[must_use]
    pub fn attempt_started_at(&self) -> Option<Timestamp> {
        self.inner.run.attempt_started_at
    }

    /// What a person answered, if an attempt before this one asked.
    #[must_use]
    pub fn approval(&self) -> Option<&ApprovalAnswer> {
        self.inner.run.approval.as_ref().and_then(|Approval { answer, .. }| answer.as_ref())
    }

    // --- when to stop -----------------------------------------------------------------------------------

    /// When the attempt has to have ended.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.deadline
    }

    /// Completes when the attempt is to stop: cancelled, out of time, interrupted, or no longer its own.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn cancelled(&self) {
        self.inner.held.live.stop.cancelled().await;
    }

    /// Whether the attempt is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.inner.held.live.stop.is_cancelled()
    }

    /// A token that is cancelled when the attempt is to stop, for code that takes one. Cancelling it stops
    /// nothing but what listens to it.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.held.live.stop.child_token()
    }

    /// Completes when the host of owned work asks where that is: it is shut down or replaced, or cut off from the
    /// store, before the work has ended. The work says it by [`RunContext::checkpoint`] and returns, within the
    /// patience of the host ([`Settings::patience`](crate::Settings)), and any replica goes on from there at once.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn interrupted(&self) {
        self.inner.held.live.interrupted().await;
    }

    /// Says where owned work is, for who goes on with it if it does not complete: stored with its end as the snapshot
    /// of the run ([`Finished::snapshot`](crate::ownership::Finished)), in the same step in which its lease is given
    /// up. What was said last counts; it costs nothing before that, and is gone with a host that is killed.
    ///
    /// # Errors
    /// [`Invalid`] when it is larger than an outcome may be, or this is the attempt of a task: its next attempt begins
    /// anew.
    pub fn checkpoint(&self, snapshot: Payload) -> Result<(), Invalid> {
        let live = &self.inner.held.live;
        let (size, most) = (snapshot.bytes.len(), self.inner.most_checkpoint);
        if !live.owned {
            let expected = "work that its host owns; the next attempt of a task begins anew";
            return Err(Invalid::one("checkpoint", expected));
        }
        if size > most {
            return Err(Invalid::one("checkpoint", format!("at most {most} bytes, found {size}")));
        }
        live.keep_checkpoint(snapshot);
        Ok(())
    }

    // --- effects ----------------------------------------------------------------------------------------

    /// Runs `effect` if the run is still held: the store is asked, and the process's gate is passed
    /// (design.md, section 3). After the run was taken over or cancelled by force no effect begins.
    ///
    /// The effect runs in this call, on this thread; keep it short. What it does outside of this OS process
    /// should show [`RunContext::fence`]: between the store's answer and the effect the world may change.
    ///
    /// # Errors
    /// [`AuthorityError`]: `effect` was not called.
    ///
    /// Cancel safety: when the future is dropped the effect was had or not.
    pub async fn commit<R>(&self, effect: impl FnOnce() -> R) -> Result<R, AuthorityError> {
        let lease = self.inner.instance.settings().lease;
        for _ in 0..CONFIRMED {
            // An answer may come late, or be read late by an OS process that was stopped: what it says is then over.
            if self.confirm().await?.elapsed() < lease {
                return Ok(self.inner.held.process.commit(effect)?);
            }
        }
        Err(AuthorityError::Suspended { run_id: self.run_id().clone() })
    }

    /// [`RunContext::commit`] without asking the store: on the word of the last heartbeat, while the lease may
    /// be relied on.
    ///
    /// # Errors
    /// [`AuthorityError`]: `effect` was not called.
    pub fn commit_now<R>(&self, effect: impl FnOnce() -> R) -> Result<R, AuthorityError> {
        self.inner.held.commit_now(effect)
    }

    /// Asks the store whether the run is held. Answers when it was asked.
    async fn confirm(&self) -> Result<Instant, AuthorityError> {
        let (instance, live) = (&self.inner.instance, &self.inner.held.live);
        let request = RenewRequest {
            instance: instance.id,
            leases: vec![(live.run_id.clone(), live.token)],
            lease: instance.settings().lease,
        };
        let asked = Instant::now();
        let answers = instance.vitals.watch(instance.store.renew(request)).await?;
        match answers.first() {
            Some(Renewal::Renewed { .. }) => {
                live.renewed(asked, instance.reliance());
                Ok(asked)
            }
            _ => {
                live.fence();
                Err(self.inner.held.fenced())
            }
        }
    }

    /// The files of the run, if this host keeps any. Every write passes what [`RunContext::commit_now`] passes.
    ///
    /// The first call makes the folder; like every call of the workspace it blocks for as long as the disk does.
    /// None also when the folder cannot be made, which is logged, or the attempt is no longer the run's.
    #[must_use]
    pub fn workspace(&self) -> Option<GuardedWorkspace> {
        let files = self.inner.instance.files.as_ref()?;
        match self.inner.held.workspace(&files.root) {
            Ok(workspace) => Some(workspace),
            Err(error) => {
                tracing::warn!(run = %self.run_id(), %error, "an attempt has no workspace");
                None
            }
        }
    }

    /// The settings of the host as they are now.
    #[cfg(feature = "agents")]
    pub(crate) fn settings(&self) -> Arc<crate::settings::Settings> {
        self.inner.instance.settings()
    }

    // --- telling ----------------------------------------------------------------------------------------

    /// Tells how far the attempt is, from 0 to 100, and in words. Stored at most once a second; what is told
    /// in between is replaced and counted, and what was told last is stored when the attempt ends. Also a sign
    /// of life for the stall limit.
    pub fn progress(&self, percent: impl Into<Option<u8>>, message: impl Into<Arc<str>>) {
        let percent = percent.into().map(|percent| percent.min(100));
        let message = message.into();
        self.inner.held.process.progress(percent, Arc::clone(&message));
        // The instant is set when it is stored, by the store's clock.
        self.inner.held.live.tell(Progress { percent, message, at: Timestamp::default() });
    }

    /// The managed process of this attempt, for work that needs the supervision tree.
    #[must_use]
    pub fn process(&self) -> &ProcessContext {
        &self.inner.held.process
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("run_id", self.run_id())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence().fence)
            .finish_non_exhaustive()
    }
}
