//! What a running process is given: who it is, when to stop, and the one way to have an effect.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::child::Child;
use crate::error::{CommitError, Refused};
use crate::event::{ActorName, Cause, EventKind};
use crate::gate::Pass;
use crate::generation::Generation;
use crate::id::{Epoch, FencingToken, ProcessId};
use crate::operations::OperationLease;
use crate::process::{ProcessHandle, Progress};

/// The authority of one process. A cheap clone; it may outlive the process, and then every commit is refused.
#[derive(Clone)]
pub struct ProcessContext {
    child: Arc<Child>,
}

/// Shown to an asynchronous effect while it is in flight: what an outside sink needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The process that commits.
    pub process: ProcessId,
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// The fencing token of its run, if it has one.
    pub fence: Option<FencingToken>,
}

impl ProcessContext {
    pub(crate) fn new(child: Arc<Child>) -> Self {
        Self { child }
    }

    pub(crate) fn child(&self) -> &Arc<Child> {
        &self.child
    }

    /// The id of this process; a service's is its name.
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.child.id
    }

    /// The generation this process belongs to, by number.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.child.name.epoch
    }

    /// The generation this process belongs to. Its handles answer *closed* after it was closed.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation::new(Arc::clone(&self.child.core))
    }

    /// This process as others see it.
    #[must_use]
    pub fn handle(&self) -> ProcessHandle {
        ProcessHandle::new(Arc::clone(&self.child))
    }

    /// The fencing token under which this process runs.
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.child.fence()
    }

    // --- when to stop -----------------------------------------------------------------------------------

    /// Completes when this process is told to stop.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn cancelled(&self) {
        self.child.told_to_stop().await;
    }

    /// Whether this process was told to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.child.is_told_to_stop() || self.child.exit().is_some()
    }

    /// A token that is cancelled when this process is told to stop, for code that takes one. Cancelling it
    /// stops nothing but what listens to it.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.child.token()
    }

    // --- effects ----------------------------------------------------------------------------------------

    /// Runs `effect` if this process still has its authority: atomically with revocation, so that after a
    /// close has returned no effect of this process begins (design.md, section 3; contract G13, R38, R39).
    ///
    /// The effect runs in this call, on this thread; keep it short, a close waits for it.
    ///
    /// # Errors
    /// [`CommitError::AuthorityRevoked`] when the process or its generation was closed, or the process was
    /// removed or has ended: `effect` was not called. The refusal is counted and makes an event.
    ///
    /// ```
    /// # async fn f(context: tenure_actors::ProcessContext, session: std::sync::Mutex<Vec<String>>) {
    /// if let Err(refused) = context.commit(|| session.lock().unwrap().push("summary".into())) {
    ///     println!("{refused}");
    /// }
    /// # }
    /// ```
    pub fn commit<R>(&self, effect: impl FnOnce() -> R) -> Result<R, CommitError> {
        self.run(None, effect)
    }

    /// [`ProcessContext::commit`] with a few words that events and transcripts show: `3 rows`.
    ///
    /// # Errors
    /// As [`ProcessContext::commit`].
    pub fn commit_named<R>(&self, what: &str, effect: impl FnOnce() -> R) -> Result<R, CommitError> {
        self.run(Some(what), effect)
    }

    /// [`ProcessContext::commit`] of a value, which is given back when the effect is refused.
    ///
    /// # Errors
    /// As [`ProcessContext::commit`], with the value.
    pub fn commit_value<V, R>(&self, value: V, effect: impl FnOnce(V) -> R) -> Result<R, Refused<V>> {
        let submitted = self.submitted(None);
        let pass = match self.enter(submitted) {
            Ok(pass) => pass,
            Err(error) => return Err(Refused { value, error }),
        };
        let begun = Begun { context: self, what: None, submitted };
        let result = effect(value);
        drop(pass);
        begun.applied();
        Ok(result)
    }

    /// [`ProcessContext::commit`] for an effect that awaits. It holds its permit across its awaits, and a
    /// close waits for it within the patience of the process; past that it is cut off at its next await.
    ///
    /// # Errors
    /// As [`ProcessContext::commit`], and [`CommitError::CutOff`] when the effect began and was cut off.
    ///
    /// Cancel safety: dropping the future drops the effect at its await and ends its permit.
    pub async fn commit_async<R, F>(&self, effect: impl FnOnce(Permit) -> F) -> Result<R, CommitError>
    where
        F: Future<Output = R>,
    {
        let submitted = self.submitted(None);
        let pass = self.enter(submitted)?;
        let begun = Begun { context: self, what: None, submitted };
        let permit = Permit { process: self.id().clone(), epoch: self.epoch(), fence: self.fence() };
        let result = tokio::select! {
            biased;
            result = effect(permit) => result,
            () = self.child.cut_off() => {
                let (process, epoch) = (self.id().clone(), self.epoch());
                return Err(CommitError::CutOff { process, epoch });
            }
        };
        drop(pass);
        begun.applied();
        Ok(result)
    }

    /// On the fast path one addition decides, to a word that no other process writes.
    #[inline]
    fn run<R>(&self, what: Option<&str>, effect: impl FnOnce() -> R) -> Result<R, CommitError> {
        let gate = &self.child.gate;
        if gate.is_watched() {
            return self.run_watched(what, effect);
        }
        match gate.enter() {
            Ok(_pass) => Ok(effect()),
            Err(_) => Err(self.refused(None)),
        }
    }

    /// [`ProcessContext::run`] while a recorder is attached.
    #[cold]
    fn run_watched<R>(&self, what: Option<&str>, effect: impl FnOnce() -> R) -> Result<R, CommitError> {
        let submitted = self.submitted(what);
        let pass = self.enter(submitted)?;
        let begun = Begun { context: self, what, submitted };
        let result = effect();
        drop(pass);
        begun.applied();
        Ok(result)
    }

    fn enter(&self, submitted: Cause) -> Result<Pass<'_>, CommitError> {
        self.child.gate.enter().map_err(|_| self.refused(submitted))
    }

    #[cold]
    fn refused(&self, submitted: Cause) -> CommitError {
        let core = &self.child.core;
        core.counters.dropped();
        let (process, epoch, current) = (self.id().clone(), self.epoch(), core.current_epoch());
        core.journal.announce_from(
            || submitted.into_iter().chain(core.events.sealed()).collect(),
            || {
                let (process, child, sealed) = (process.clone(), self.child.name.clone(), core.is_sealed());
                (ActorName::Generation(epoch), EventKind::DroppedLate { process, child, current, sealed })
            },
        );
        CommitError::AuthorityRevoked { process, epoch, current }
    }

    fn submitted(&self, what: Option<&str>) -> Cause {
        if self.child.gate.is_watched() { self.record_submitted(what) } else { None }
    }

    #[cold]
    fn record_submitted(&self, what: Option<&str>) -> Cause {
        self.child.core.journal.emit(self.child.trail().started, || {
            let (what, epoch) = (what.map(Into::into), self.epoch());
            (self.child.actor_name(), EventKind::Submitted { what, epoch })
        })
    }

    #[cold]
    fn record_committed(&self, what: Option<&str>, submitted: Cause) {
        self.child.core.journal.emit(submitted, || {
            let (process, what, child) = (self.id().clone(), what.map(Into::into), self.child.name.clone());
            (ActorName::Generation(self.epoch()), EventKind::Committed { process, what, child })
        });
    }

    // --- what else a process does -----------------------------------------------------------------------

    /// Reports progress: an event, and the last word of [`ProcessHandle::progress`].
    pub fn progress(&self, percent: impl Into<Option<u8>>, text: impl Into<Arc<str>>) {
        let percent = percent.into().map(|percent: u8| percent.min(100));
        self.child.set_progress(Progress { percent, text: text.into() });
    }

    /// Gives up the id of this process: its terminal path is done. Its authority ends with it, its `close` is
    /// not called, and what still runs of it goes on as a child of the generation.
    ///
    /// During its own start the removal is remembered and honoured when the start has succeeded (contract
    /// G7, R18). Callable from any thread. False if the id had been given up before.
    pub fn remove_self(&self) -> bool {
        self.child.remove()
    }

    /// Leaves a lease with the process: it is released after the process has ended and its id is free, in
    /// whatever way it ends (contract, C3 and C4).
    pub fn hold(&self, lease: OperationLease) {
        self.child.hold(lease);
    }
}

/// An effect that began. However it ends, by a panic or cut off at an await too, it counts as applied, and
/// while a recorder is attached there is an event of it.
struct Begun<'a> {
    context: &'a ProcessContext,
    what: Option<&'a str>,
    submitted: Cause,
}

impl Begun<'_> {
    #[inline]
    fn applied(mut self) {
        if let Some(submitted) = self.submitted.take() {
            self.context.record_committed(self.what, Some(submitted));
        }
    }
}

impl Drop for Begun<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(submitted) = self.submitted.take() {
            let what = self.what.map_or_else(|| "cut off".to_owned(), |what| format!("{what}, cut off"));
            self.context.record_committed(Some(&what), Some(submitted));
        }
    }
}

impl fmt::Debug for ProcessContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessContext({} as {}, epoch {})", self.id(), self.child.name, self.epoch())
    }
}
