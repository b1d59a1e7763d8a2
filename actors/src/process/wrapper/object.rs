//! The life of an object: after its start it waits for the child's own word, that it was told to stop or that its id is
//! free, and then it closes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Ending, Life, Refusal, contained, refuse};
use crate::child::Child;
use crate::contain;
use crate::error::CloseFailure;
use crate::event::Cause;
use crate::exit::ExitReason;
use crate::process::held::Held;
use crate::process::{ErasedProcess, ProcessContext};

pub(super) struct Stay {
    /// Here before it begins, and between its start and its close.
    pub(super) object: Option<Arc<dyn ErasedProcess>>,
    pub(super) ending: Ending,
    pub(super) started: Cause,
    pub(super) limit: Duration,
}

/// An object that is cut off where none of its code runs goes here: then the end is told.
impl Drop for Stay {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        if let Err(panic) = contain::call(move || drop(object)) {
            self.ending.child.fail("drop", &panic);
        }
    }
}

impl Life for Stay {
    fn child(&self) -> &Arc<Child> {
        &self.ending.child
    }

    async fn live(&mut self) {
        // Boxed, as all that is over when its start is: the future of this stays that large.
        if !Box::pin(start(self)).await {
            return;
        }
        let child = &self.ending.child;
        child.told_to_go().await;
        if child.kill_reason().is_none()
            && let Some(object) = self.object.take()
        {
            let exit = end(child, object).await;
            child.finish(exit).await;
        }
    }
}

/// Answers whether it has started, and has to be closed when its time comes.
async fn start(life: &mut Stay) -> bool {
    let Some(object) = life.object.take() else { return false };
    let child = Arc::clone(&life.ending.child);
    let context = ProcessContext::new(Arc::clone(&child));
    let starting = Arc::clone(&object);
    let held = Held::new(object, &*child);
    let attempt = async { contained(&child, contain::call(|| starting.start(context))).await };
    let begun = Instant::now();
    let outcome = timeout(life.limit, attempt).await;
    let Some(object) = held.take() else { return false };
    let Some(refusal) = Refusal::of(outcome, begun, life.limit) else {
        if !child.settle_started(life.started) {
            // It held its thread until it was abandoned: closed, not registered (contract, R12). The caller
            // is answered with the state's drop.
            clean_up(&child, object).await;
            return false;
        }
        life.object = Some(object);
        life.ending.answer(Ok(()));
        return true;
    };
    child.fail("start", &refusal.text());
    child.revoke();
    let cleanup = clean_up(&child, object).await;
    refuse(&mut life.ending, refusal, cleanup).await;
    false
}

/// Closes what does not count as started, within the bound of that.
async fn clean_up(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> Option<CloseFailure> {
    let bound = child.core.limits.cleanup_bound;
    // Dropped when this returns: what is cut off is told before what its drop does.
    let mut closing = pin!(close(child, object));
    match timeout(bound, closing.as_mut()).await {
        Ok(closed) => closed.err(),
        Err(_) => {
            let late = CloseFailure::TimedOut(bound);
            child.fail("close", &late);
            Some(late)
        }
    }
}

async fn end(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> ExitReason {
    if child.is_removed() {
        // It was removed: its terminal path is done and `close` is not called (contract, G5), not even when a
        // close told it to stop before its actor got here.
        drop(Held::new(object, &**child));
        return ExitReason::Removed;
    }
    child.revoke();
    let Err(failure) = close(child, object).await else {
        return ExitReason::Stopped;
    };
    match failure {
        CloseFailure::Failed(error) => ExitReason::Failed(error),
        CloseFailure::Panicked(panic) => ExitReason::Panicked(panic.0),
        CloseFailure::TimedOut(_) => ExitReason::Abandoned,
    }
}

/// Closes an object and lets go of it. Tells of a failure.
async fn close(child: &Arc<Child>, object: Arc<dyn ErasedProcess>) -> Result<(), CloseFailure> {
    let held = Held::new(Arc::clone(&object), &**child);
    let failure = match contained(child, contain::call(move || object.close())).await {
        Ok(Ok(())) => {
            let gone = held.let_go().map_err(CloseFailure::Panicked);
            return gone.inspect_err(|failure| child.fail("close", failure));
        }
        Ok(Err(error)) => CloseFailure::Failed(error.into()),
        Err(panic) => CloseFailure::Panicked(panic),
    };
    child.fail("close", &failure);
    // After that, as it happened: its drop may panic as well.
    drop(held);
    Err(failure)
}
