//! Leases: judged by the store's clock, renewed by their holder, proven by their token (contract
//! ownership.md, group L).

use std::time::Duration;

use super::change::{Change, Moment, Moved};
use crate::model::{EventKind, InstanceId, Lease, Run, RunStatus, Timestamp, Token};
use crate::store::{Renewal, RunWrite};

/// What a lease is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stands, for this long.
    Held(Duration),
    /// It has expired, this long ago; its holder may still renew it (L4).
    Suspect(Duration),
    /// It has expired for at least the grace: whoever says so first ends it (I6).
    Lapsed(Duration),
}

/// What a lease is worth at an instant of the store's clock.
#[must_use]
pub fn verdict(lease: &Lease, now: Timestamp, grace: Duration) -> Verdict {
    if now < lease.expires_at {
        return Verdict::Held(lease.expires_at.since(now));
    }
    let expired_for = now.since(lease.expires_at);
    if expired_for < grace { Verdict::Suspect(expired_for) } else { Verdict::Lapsed(expired_for) }
}

/// Renews the lease of a run in place, if the token is the current one. The expiry never moves back (L5).
pub fn renew(run: &mut Run, token: Token, lease: Duration, now: Timestamp) -> Renewal {
    let current = run.token();
    match &mut run.lease {
        Some(held) if current == Some(token) && run.status.is_held() => {
            held.expires_at = held.expires_at.max(now.plus(lease));
            held.heartbeat_at = now;
            Renewal::Renewed { expires_at: held.expires_at, cancel: run.cancel.clone() }
        }
        _ => Renewal::Fenced { fence: run.fence, status: run.status },
    }
}

/// Gives a lost run back to who proves by the lost token that it was theirs, unless somebody else was granted
/// it meanwhile (S2.3, L9). The same attempt goes on, under a new token.
///
/// # Errors
/// [`Moved`] when the run is no longer to be had: succeeded, ended, or cancelled.
pub fn reinstate(
    run: &Run,
    lost: Token,
    owner: InstanceId,
    nonce: u64,
    lease: Duration,
    moment: Moment,
) -> Result<RunWrite, Moved> {
    let to_be_had = matches!(run.status, RunStatus::Lost | RunStatus::Queued);
    if !to_be_had || run.lost_token != Some(lost) || run.cancel.is_some() {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, None, moment);
    let reinstated = change.run();
    reinstated.fence += 1;
    reinstated.lost_token = None;
    reinstated.lease =
        Some(Lease { owner, nonce, expires_at: moment.now.plus(lease), heartbeat_at: moment.now });
    change.to(RunStatus::Running).attempt_begins().event(EventKind::Reinstated, Some(owner));
    Ok(change.done())
}
