//! Cancelling: a waiting run at once, a held one by asking its owner, or by force (contract, section 7).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::change::{Change, Moment};
use crate::model::{AttemptStatus, CancelIntent, CancelMode, EventKind, Run, RunStatus};
use crate::store::RunWrite;

/// Who wants a run cancelled, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// How insistently.
    pub mode: CancelMode,
    /// Why.
    pub reason: Arc<str>,
    /// Who.
    pub requested_by: Arc<str>,
    /// When it is done by force if the owner does not end it by itself; never if left out.
    pub force_after: Option<Duration>,
}

/// What a request to cancel comes to.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "made once and taken apart at once")]
pub enum Cancel {
    /// This is to be written.
    Write(RunWrite),
    /// The owner has been asked already; the first reason is kept (X7).
    AlreadyRequested,
    /// It has ended; the outcome stays (X5).
    AlreadyTerminal,
}

/// Cancels a run: one that nobody holds ends at once; a held one keeps the intent for its owner, or, by
/// force, loses its authority and ends.
#[must_use]
pub fn cancel(run: &Run, request: &CancelRequest, moment: Moment) -> Cancel {
    if run.status.is_terminal() {
        return Cancel::AlreadyTerminal;
    }
    let force = request.mode == CancelMode::Force;
    if run.status.is_held() && !force && run.cancel.is_some() {
        return Cancel::AlreadyRequested;
    }
    let mut change = Change::of(run, None, moment);
    let data =
        json!({ "reason": request.reason, "requested_by": request.requested_by, "mode": request.mode });
    if run.cancel.is_none() {
        change.run().cancel = Some(CancelIntent {
            requested_at: moment.now,
            reason: Arc::clone(&request.reason),
            requested_by: Arc::clone(&request.requested_by),
            force_at: request.force_after.map(|after| moment.now.plus(after)),
        });
        change.event_with(EventKind::CancelRequested, None, data.clone());
    }
    if force || !run.status.is_held() {
        revoke(&mut change, data);
    }
    Cancel::Write(change.done())
}

/// Ends a run whether or not somebody holds it: its holder is fenced out.
pub(super) fn revoke(change: &mut Change, data: serde_json::Value) {
    change.attempt_ends(AttemptStatus::Cancelled, None);
    change.run().fence += 1;
    change.run().lost_token = None;
    change.ungrant().to(RunStatus::Cancelled).event_with(EventKind::Cancelled, None, data);
}
