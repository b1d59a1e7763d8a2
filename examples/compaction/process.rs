//! The process: an object of the plugin's own type, whose work is a second process that it starts.
//!
//! ```text
//! compact:trip:1          this object: found by later actions, holds the operation and the authority
//! compact:trip:1:worker   an asynchronous function: asks, commits, tells, gives up both ids
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tenure::actors::rules::Patience;
use tenure::actors::{CommitError, ManagedProcess, ProcessContext, ProcessResult, ProcessSpec};
use tokio::sync::{mpsc, watch};

use crate::client;
use crate::session::{Conflict, Reconciled, Session};

pub(crate) struct CompactionProcess {
    session: Arc<Session>,
    provider: SocketAddr,
    notices: mpsc::UnboundedSender<String>,
    on_close: OnClose,
    phase: watch::Sender<Phase>,
    cancel: watch::Sender<Option<String>>,
}

/// What becomes of a call to the provider when the application closes or is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnClose {
    /// Its connection is closed at once.
    HangUp,
    /// It is left to end, for a provider that takes no cancellation. Its answer comes too late.
    LetItEnd,
}

#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Starting,
    WaitingForProvider,
    Receiving {
        percent: u8,
    },
    Done(Reconciled),
    GivenUp(Conflict),
    Cancelled {
        reason: String,
    },
    Failed {
        error: String,
    },
    /// The application closed first.
    Closed,
    /// The application closed first, and the result came all the same.
    Dropped(CommitError),
}

impl CompactionProcess {
    pub(crate) fn new(
        session: Arc<Session>,
        provider: SocketAddr,
        notices: mpsc::UnboundedSender<String>,
        on_close: OnClose,
    ) -> Self {
        let (phase, cancel) = (watch::Sender::new(Phase::Starting), watch::Sender::new(None));
        Self { session, provider, notices, on_close, phase, cancel }
    }

    // --- what other actions call; from any thread, at any time --------------------------------------------

    /// How far it is.
    pub(crate) fn snapshot(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Asks it to end without a result; the first reason stands.
    pub(crate) fn request_cancel(&self, reason: &str) {
        self.cancel.send_if_modified(|cancel| {
            let is_first = cancel.is_none();
            cancel.get_or_insert_with(|| reason.to_owned());
            is_first
        });
    }

    /// Completes when it is in a phase like this.
    pub(crate) async fn reached(&self, is_like_this: impl Fn(&Phase) -> bool) {
        // The sender is our own, so it is there as long as we wait.
        let _ = self.phase.subscribe().wait_for(is_like_this).await;
    }

    // --- the work ---------------------------------------------------------------------------------------

    /// From the first question to the end. The terminal order is: commit, notice, ids, operation.
    async fn work(&self, context: &ProcessContext) {
        let end = self.summarise_and_commit(context).await;
        let notice = format!("{}: {end}", context.id());
        let is_over = matches!(end, Phase::Closed | Phase::Dropped(_));
        self.phase.send_replace(end);
        if !is_over {
            // A notice is an effect too. Refused it is nobody's loss: its user has moved on.
            let _ = context.commit_named("a notice", || self.notices.send(notice));
        }
    }

    async fn summarise_and_commit(&self, context: &ProcessContext) -> Phase {
        let summarised = self.session.read();
        self.enter(context, None, Phase::WaitingForProvider);
        let received = |percent| self.enter(context, Some(percent), Phase::Receiving { percent });
        let answer = tokio::select! {
            // In this order, so that a cancellation during the start is seen before the provider is asked.
            biased;
            reason = self.cancel_requested() => return Phase::Cancelled { reason },
            () = context.cancelled(), if self.on_close == OnClose::HangUp => return Phase::Closed,
            answer = client::summarise(self.provider, &summarised.messages, received) => answer,
        };
        let summary = match answer {
            Ok(summary) => summary,
            Err(error) => return Phase::Failed { error: error.to_string() },
        };
        match context.commit_named("a summary", || self.session.reconcile(&summarised, &summary)) {
            Ok(Ok(reconciled)) => Phase::Done(reconciled),
            Ok(Err(conflict)) => Phase::GivenUp(conflict),
            Err(refused) => Phase::Dropped(refused),
        }
    }

    fn enter(&self, context: &ProcessContext, percent: Option<u8>, phase: Phase) {
        context.progress(percent, phase.to_string());
        self.phase.send_replace(phase);
    }

    async fn cancel_requested(&self) -> String {
        let mut cancel = self.cancel.subscribe();
        let reason = cancel.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }
}

impl ManagedProcess for CompactionProcess {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        let (registry, id) = (context.generation().registry(), format!("{}:worker", context.id()));
        let patience = match self.on_close {
            OnClose::HangUp => Patience::default(),
            OnClose::LetItEnd => Patience::Unlimited,
        };
        let worker = ProcessSpec::function("worker", move |worker: ProcessContext| async move {
            let _ids = GivenUpAtTheEnd([worker, context.clone()]);
            self.work(&context).await;
            Ok(())
        });
        registry.start(id, worker.patience(patience)).await?;
        Ok(())
    }

    // No `close`: when the application closes the worker is told so too, and what it commits is refused.
}

/// Gives up the ids, also when the worker panics or is cut off; the operation is released after them.
struct GivenUpAtTheEnd([ProcessContext; 2]);

impl Drop for GivenUpAtTheEnd {
    fn drop(&mut self) {
        for process in &self.0 {
            process.remove_self();
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::WaitingForProvider => f.write_str("waiting for the provider"),
            Self::Receiving { percent } => write!(f, "receiving, {percent}%"),
            Self::Done(reconciled) => reconciled.fmt(f),
            Self::GivenUp(conflict) => conflict.fmt(f),
            Self::Cancelled { reason } => write!(f, "cancelled by {reason}"),
            Self::Failed { error } => write!(f, "failed, {error}"),
            Self::Closed => f.write_str("closed"),
            Self::Dropped(refused) => write!(f, "dropped, {refused}"),
        }
    }
}
