//! What becomes of runs that nobody brings to their end: leases that lapsed, deadlines that passed, owners
//! that do not stop.

use std::time::Duration;

use serde_json::json;

use super::cancel::revoke;
use super::change::{Change, Moment};
use super::lease::{Verdict, verdict};
use crate::model::{AttemptStatus, EventKind, Lease, Run, RunError, RunStatus, Timestamp};
use crate::store::RunWrite;

/// When somebody has to look at a run: its lease expires, its deadline passes while no attempt is in
/// progress, its owner is to be stopped by force. Kept by stores as an index.
#[must_use]
pub fn wake_at(run: &Run) -> Option<Timestamp> {
    wake_at_of(run, run.lease)
}

/// The same, with another lease than its own.
pub(crate) fn wake_at_of(run: &Run, lease: Option<Lease>) -> Option<Timestamp> {
    let lease = lease.map(|lease| lease.expires_at);
    let force = run.cancel.as_ref().and_then(|intent| intent.force_at).filter(|_| run.status.is_held());
    let idle = !run.status.is_terminal() && run.status != RunStatus::Running;
    let deadline = run.spec.limits.deadline_at.filter(|_| idle);
    [lease, force, deadline].into_iter().flatten().min()
}

/// What is to be done about a run now, if anything. `grace` is how long an expired lease may still be renewed.
#[must_use]
pub fn sweep(run: &Run, grace: Duration, moment: Moment) -> Option<RunWrite> {
    if run.status.is_terminal() {
        return None;
    }
    let come = |instant: Option<Timestamp>| instant.is_some_and(|instant| instant <= moment.now);
    let forced = run.status.is_held() && come(run.cancel.as_ref().and_then(|intent| intent.force_at));
    let lapsed =
        run.lease.is_some_and(|lease| matches!(verdict(&lease, moment.now, grace), Verdict::Lapsed(_)));
    let late = come(run.spec.limits.deadline_at) && (lapsed || run.status != RunStatus::Running);

    let mut change = Change::of(run, None, moment);
    if lapsed {
        change.unless_renewed();
    }
    if forced || (lapsed && run.cancel.is_some()) {
        // Its owner is deaf or dead, and somebody wants it cancelled: cancelled, not lost (X9).
        let reason = run.cancel.as_ref().map(|intent| json!({ "reason": intent.reason, "forced": forced }));
        revoke(&mut change, reason.unwrap_or_default());
    } else if late {
        out_of_time(&mut change);
    } else if lapsed {
        owner_is_gone(run, &mut change, moment);
    } else {
        return None;
    }
    Some(change.done())
}

fn out_of_time(change: &mut Change) {
    let error = RunError::new("timeout", "the deadline of the run has passed");
    change.attempt_ends(AttemptStatus::Timeout, Some(error.clone()));
    change.run().error = Some(error.clone());
    change.run().fence += 1;
    // What was declared lost has no arrow to timeout: it fails, and says why.
    let (status, kind) = match change.run().status {
        RunStatus::Lost => (RunStatus::Failed, EventKind::Failed),
        _ => (RunStatus::Timeout, EventKind::Timeout),
    };
    change.ungrant().to(status);
    change.event_with(kind, None, json!({ "error": error, "reason": "deadline" }));
}

fn owner_is_gone(run: &Run, change: &mut Change, moment: Moment) {
    let error = RunError::new("lost", "the lease expired: its owner is gone or was cut off");
    let owner = run.lease.map(|lease| lease.owner);
    change.attempt_ends(AttemptStatus::Lost, Some(error.clone()));
    if run.status == RunStatus::Running {
        change.run().lost_token = run.token();
        change.event_as(EventKind::Lost, RunStatus::Lost, owner, json!({ "reason": "lease expired" }));
    }
    change.ungrant().run().interruptions += 1;
    if run.spec.is_owned() {
        // It is its host's to say what becomes of it: it stays lost until it is reinstated, superseded, or given
        // up with its session.
        change.to(RunStatus::Lost);
        return;
    }
    if change.run().interruptions > run.spec.retry_policy.max_interruptions {
        change.run().error = Some(error.clone());
        change.run().lost_token = None;
        change.to(RunStatus::Failed);
        change.event_with(
            EventKind::Failed,
            owner,
            json!({ "error": error, "reason": "interruptions spent" }),
        );
    } else {
        change.run().due_at = moment.now;
        change.to(RunStatus::Queued);
        change.event_with(EventKind::Recovered, owner, json!({ "reason": "lease expired" }));
    }
}
