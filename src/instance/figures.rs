//! What a host counts, through the `metrics` facade: nothing is kept unless the program set a recorder.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::rules::Outcome;

/// Runs that were granted.
pub(super) fn claimed(runs: usize) {
    counter!("tenure_claims_total").increment(u64::try_from(runs).unwrap_or(u64::MAX));
}

/// A schedule that was to be fired here, and that another host fired first.
pub(super) fn forestalled() {
    counter!("tenure_firings_forestalled_total").increment(1);
}

/// An attempt that ended.
pub(super) fn ended(outcome: &Outcome, took: Duration) {
    counter!("tenure_attempts_total", "outcome" => word(outcome)).increment(1);
    histogram!("tenure_attempt_seconds").record(took.as_secs_f64());
}

/// A result that came after its attempt had lost its authority, and was refused.
pub(super) fn refused() {
    counter!("tenure_late_results_refused_total").increment(1);
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Completed(_) => "completed",
        Outcome::Failed(_) => "failed",
        Outcome::TimedOut(_) | Outcome::PastDeadline(_) => "timeout",
        Outcome::Cancelled(_) => "cancelled",
        Outcome::Interrupted(_) => "interrupted",
        Outcome::AwaitingApproval { .. } => "awaiting_approval",
    }
}
