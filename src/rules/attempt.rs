//! The life of an attempt: granted, begun, ended. Every write here shows the token of the grant.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::{Change, Moment, Moved};
use super::retry::{Retry, retry};
use crate::model::{
    Approval, AttemptStatus, EventKind, InstanceId, Lease, Progress, Run, RunError, RunResult, RunStatus,
    Token,
};
use crate::store::RunWrite;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// With a result.
    Completed(RunResult),
    /// With an error.
    Failed(RunError),
    /// Its time ran out.
    TimedOut(RunError),
    /// The run's deadline has passed: there is no other attempt.
    PastDeadline(RunError),
    /// It stopped because it was asked to, with what it had so far (P7).
    Cancelled(Option<RunResult>),
    /// Its host is shut down, replaced, or lost hold of it; why.
    Interrupted(RunError),
    /// It needs a person.
    AwaitingApproval {
        /// The question.
        question: std::sync::Arc<str>,
        /// What belongs to it.
        data: Value,
    },
}

/// Grants a waiting run. Its lanes, its task and its due time are the store's to check, in the same step.
///
/// # Errors
/// [`Moved`] when the run does not wait.
pub fn claim(
    run: &Run,
    owner: InstanceId,
    nonce: u64,
    lease: Duration,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    if !run.status.is_waiting() {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, None, moment);
    let granted = change.run();
    granted.fence += 1;
    granted.lost_token = None;
    granted.claimed_at = Some(moment.now);
    granted.lease =
        Some(Lease { owner, nonce, expires_at: moment.now.plus(lease), heartbeat_at: moment.now });
    change.to(RunStatus::Claimed).event(EventKind::Claimed, Some(owner));
    Ok(change.done())
}

/// Begins the next attempt of a claimed run; it must not be polled before this is durable (I8).
///
/// # Errors
/// [`Moved`] when the run is not claimed.
pub fn start(run: &Run, token: Token, moment: Moment) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Claimed {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, Some(token), moment);
    let begun = change.run();
    begun.attempt += 1;
    begun.attempt_started_at = Some(moment.now);
    begun.started_at = begun.started_at.or(Some(moment.now));
    begun.progress = None;
    let owner = begun.lease.map(|lease| lease.owner);
    change.to(RunStatus::Running).attempt_begins().event(EventKind::Started, owner);
    Ok(change.done())
}

/// Gives back a claimed run whose attempt has not begun: somebody holds what it needs, or the host stops.
/// Nothing is spent.
///
/// # Errors
/// [`Moved`] when the run is not claimed.
pub fn release(
    run: &Run,
    token: Token,
    reason: &str,
    not_before: Duration,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Claimed {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, Some(token), moment);
    let owner = run.lease.map(|lease| lease.owner);
    if run.cancel.is_some() {
        change.ungrant().to(RunStatus::Cancelled).event(EventKind::Cancelled, owner);
        return Ok(change.done());
    }
    change.run().due_at = moment.now.plus(not_before);
    change.ungrant().to(RunStatus::Queued);
    change.event_with(EventKind::Interrupted, owner, json!({ "reason": reason, "started": false }));
    Ok(change.done())
}

/// Ends the attempt in progress. `draw` spreads the delay of a retry.
///
/// # Errors
/// [`Moved`] when no attempt is in progress.
pub fn finish(
    run: &Run,
    token: Token,
    outcome: Outcome,
    draw: u64,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Running {
        return Err(Moved(run.status));
    }
    let mut end = End { change: Change::of(run, Some(token), moment), owner: run.lease.map(|l| l.owner) };
    match outcome {
        Outcome::Completed(result) => end.completed(result),
        Outcome::Cancelled(partial) => {
            end.change.run().result = partial;
            end.cancelled(None);
        }
        // A cancelled run's failure schedules no retry (T43), and nobody is asked or waited for any more.
        Outcome::Failed(error) | Outcome::TimedOut(error) if run.cancel.is_some() => {
            end.cancelled(Some(error))
        }
        Outcome::Interrupted(_) | Outcome::AwaitingApproval { .. } if run.cancel.is_some() => {
            end.cancelled(None)
        }
        Outcome::Failed(error) => end.failed(error, AttemptStatus::Failed, draw, moment),
        Outcome::TimedOut(error) => end.failed(error, AttemptStatus::Timeout, draw, moment),
        Outcome::PastDeadline(error) => end.gives_up(error, AttemptStatus::Timeout, "deadline"),
        // Nobody else could execute it: its host says so at once, and may start it again (rulings).
        Outcome::Interrupted(error) if run.spec.is_owned() => {
            end.gives_up(error, AttemptStatus::Interrupted, "its host executes it")
        }
        Outcome::Interrupted(error) => end.interrupted(error, moment),
        Outcome::AwaitingApproval { question, data } => {
            end.awaits_approval(Approval { question, data, asked_at: moment.now, answer: None })
        }
    }
    end.change.ungrant();
    Ok(end.change.done())
}

struct End {
    change: Change,
    owner: Option<InstanceId>,
}

impl End {
    fn completed(&mut self, result: RunResult) {
        let preview = result.preview();
        let run = self.change.run();
        run.result = Some(result);
        run.error = None;
        let mut data = serde_json::Map::new();
        if !preview.is_empty() {
            data.insert("result_preview".to_owned(), preview.into());
        }
        // It completed before it noticed: accepted, and said so (X3).
        if run.cancel.is_some() {
            data.insert("cancel_requested".to_owned(), true.into());
        }
        let data = if data.is_empty() { Value::Null } else { Value::Object(data) };
        self.change.attempt_ends(AttemptStatus::Completed, None).to(RunStatus::Completed);
        self.change.event_with(EventKind::Completed, self.owner, data);
    }

    fn cancelled(&mut self, error: Option<RunError>) {
        let data = self.change.run().cancel.as_ref().map(|intent| json!({ "reason": intent.reason }));
        self.change.run().error.clone_from(&error);
        self.change.attempt_ends(AttemptStatus::Cancelled, error).to(RunStatus::Cancelled);
        self.change.event_with(EventKind::Cancelled, self.owner, data.unwrap_or_default());
    }

    fn failed(&mut self, error: RunError, how: AttemptStatus, draw: u64, moment: Moment) {
        let run = self.change.run();
        run.failures += 1;
        match retry(&run.spec.retry_policy, run.failures, &error, draw) {
            Retry::Final => self.gives_up(error, how, "not retryable"),
            Retry::Spent => self.gives_up(error, how, "retries spent"),
            Retry::After(delay) => {
                let due_at = moment.now.plus(delay);
                if run.spec.limits.deadline_at.is_some_and(|deadline| deadline <= due_at) {
                    return self.gives_up(error, how, "the next attempt would be past the deadline");
                }
                run.due_at = due_at;
                run.error = Some(error.clone());
                let data = json!({ "error": error, "delay_ms": delay.as_millis() as u64, "due_at": due_at });
                self.change.attempt_ends(how, Some(error)).to(RunStatus::Retrying);
                self.change.event_with(EventKind::Retrying, self.owner, data);
            }
        }
    }

    fn gives_up(&mut self, error: RunError, how: AttemptStatus, why: &str) {
        let (status, kind) = match how {
            AttemptStatus::Timeout => (RunStatus::Timeout, EventKind::Timeout),
            _ => (RunStatus::Failed, EventKind::Failed),
        };
        self.change.run().error = Some(error.clone());
        let data = json!({ "error": error, "reason": why });
        self.change.attempt_ends(how, Some(error)).to(status).event_with(kind, self.owner, data);
    }

    fn interrupted(&mut self, error: RunError, moment: Moment) {
        let run = self.change.run();
        run.interruptions += 1;
        if run.interruptions > run.spec.retry_policy.max_interruptions {
            return self.gives_up(error, AttemptStatus::Interrupted, "interruptions spent");
        }
        run.due_at = moment.now;
        let data = json!({ "reason": error.message });
        self.change.attempt_ends(AttemptStatus::Interrupted, Some(error)).to(RunStatus::Queued);
        self.change.event_with(EventKind::Interrupted, self.owner, data);
    }

    fn awaits_approval(&mut self, approval: Approval) {
        let data = json!({ "question": approval.question, "data": approval.data });
        self.change.run().approval = Some(approval);
        self.change.attempt_ends(AttemptStatus::Completed, None).to(RunStatus::AwaitingApproval);
        self.change.event_with(EventKind::AwaitingApproval, self.owner, data);
    }
}

/// Notes how far the attempt says it is. `coalesced` progress before it was not stored (rulings).
///
/// # Errors
/// [`Moved`] when no attempt is in progress.
pub fn progress(
    run: &Run,
    token: Token,
    progress: Progress,
    coalesced: u64,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::Running {
        return Err(Moved(run.status));
    }
    let mut data = json!({ "percent": progress.percent, "message": progress.message });
    if coalesced > 0 {
        data["coalesced"] = coalesced.into();
    }
    let mut change = Change::of(run, Some(token), moment);
    change.run().progress = Some(progress);
    change.event_with(EventKind::Progress, run.lease.map(|lease| lease.owner), data);
    Ok(change.done())
}
