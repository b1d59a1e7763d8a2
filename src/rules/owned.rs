//! Runs that their host executes itself: granted when they are made, handed over, lost for good, superseded
//! (contract ownership.md). How they are renewed, cancelled and finished is in the other rules.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::change::{Change, Moment, Moved};
use super::lease::{Verdict, verdict};
use super::sweep::sweep;
use crate::model::{
    AttemptStatus, EventKind, InstanceId, Lease, NewEvent, Place, Run, RunError, RunId, RunSpec, RunStatus,
    Token,
};
use crate::store::{Expect, RunWrite};

/// A run that a host begins to execute.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Its name.
    pub run_id: RunId,
    /// What never changes about it.
    pub spec: RunSpec,
    /// Who executes it.
    pub owner: InstanceId,
    /// The token: above every fence that was granted under the same key before.
    pub token: Token,
    /// How long the lease is.
    pub lease: Duration,
}

/// The run of a grant: running from its first write on, so that nobody ever sees it without a lease.
#[must_use]
pub fn grant(grant: Grant, moment: Moment) -> RunWrite {
    let Grant { run_id, spec, owner, token, lease } = grant;
    let now = moment.now;
    let run = Run {
        run_id,
        status: RunStatus::Running,
        version: 1,
        stamp: moment.stamp,
        due_at: spec.first_due_at,
        spec: Arc::new(spec),
        place: Place::Nowhere,
        attempt: 1,
        failures: 0,
        interruptions: 0,
        fence: token.fence,
        lease: Some(Lease { owner, nonce: token.nonce, expires_at: now.plus(lease), heartbeat_at: now }),
        lost_token: None,
        cancel: None,
        claimed_at: Some(now),
        started_at: Some(now),
        attempt_started_at: Some(now),
        finished_at: None,
        error: None,
        result: None,
        progress: None,
        approval: None,
        blocked_by: None,
        last_event: 1,
    };
    let event = NewEvent {
        sequence: 1,
        kind: EventKind::Started,
        at: now,
        status: Some(RunStatus::Running),
        attempt: 1,
        fence: token.fence,
        instance: Some(owner),
        data: None,
    };
    RunWrite { expect: Expect::Absent, attempt: run.current_attempt(), run, events: vec![event] }
}

/// Gives a run to another owner at once; the token that is shown ends with it (L24).
///
/// # Errors
/// [`Moved`] when the run is not held under that token.
pub fn hand_over(
    run: &Run,
    token: Token,
    to: InstanceId,
    nonce: u64,
    lease: Duration,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Running || run.token() != Some(token) {
        return Err(Moved(run.status));
    }
    let from = run.lease.map(|lease| lease.owner);
    let mut change = Change::of(run, Some(token), moment);
    let given = change.run();
    given.fence += 1;
    given.lease =
        Some(Lease { owner: to, nonce, expires_at: moment.now.plus(lease), heartbeat_at: moment.now });
    change.attempt_begins().event_with(EventKind::HandedOver, Some(to), json!({ "from": from }));
    Ok(change.done())
}

/// What whoever observed a grant makes of it after its lease lapsed: lost, or cancelled if that was asked for.
/// None if the lease was renewed, or expired for less than the grace (I6).
#[must_use]
pub fn lose(run: &Run, fence: u64, grace: Duration, moment: Moment) -> Option<RunWrite> {
    let lapsed =
        run.lease.is_some_and(|lease| matches!(verdict(&lease, moment.now, grace), Verdict::Lapsed(_)));
    if run.fence != fence || !lapsed {
        return None;
    }
    sweep(run, grace, moment)
}

/// Lets another run take the place of one that was lost: who held it cannot be reinstated any more (S2.4, U6).
///
/// # Errors
/// [`Moved`] when it is not lost, or another has taken its place already.
pub fn supersede(run: &Run, by: &RunId, moment: Moment) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Lost || run.blocked_by.is_some() {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, None, moment);
    let lost = change.run();
    lost.fence += 1;
    lost.lost_token = None;
    lost.blocked_by = Some(by.clone());
    change.event_with(EventKind::Superseded, None, json!({ "by": by }));
    Ok(change.done())
}

/// Ends a run that was lost and that nobody will bring to its end.
///
/// # Errors
/// [`Moved`] when it is not lost.
pub fn give_up(run: &Run, why: &str, moment: Moment) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Lost {
        return Err(Moved(run.status));
    }
    let error = RunError::new("lost", format!("its owner is gone: {why}"));
    let mut change = Change::of(run, None, moment);
    change.attempt_ends(AttemptStatus::Lost, None);
    let lost = change.run();
    lost.fence += 1;
    lost.lost_token = None;
    lost.error = Some(error.clone());
    change.to(RunStatus::Failed);
    change.event_with(EventKind::Failed, None, json!({ "error": error, "reason": why }));
    Ok(change.done())
}

/// What a task, or a session, tells of an outcome that came too late: it counts for nothing, and is not forgotten
/// (S2.4, X4, field L16). `sequence` is the number of its next own event.
#[must_use]
pub fn archive(sequence: u64, run: &Run, token: Token, outcome: &Value, moment: Moment) -> NewEvent {
    let data = json!({
        "run_id": run.run_id,
        "held": token.fence,
        "superseded_by": run.blocked_by,
        "outcome": outcome,
    });
    NewEvent {
        sequence,
        kind: EventKind::OutcomeRefused,
        at: moment.now,
        status: Some(run.status),
        attempt: run.attempt,
        fence: run.fence,
        instance: None,
        data: Some(data.to_string().into()),
    }
}
