//! Whether a failure is tried again, and when (contract, sections 1 and 4).

use std::time::Duration;

use crate::model::{BackoffKind, RetryPolicy, RunError, Seconds};

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Another attempt, after this long.
    After(Duration),
    /// None: the class is not one that is tried again (T12).
    Final,
    /// None: the retries are spent.
    Spent,
}

/// What follows the failure with this number, from 1, under a policy. `draw` is any number; equal draws give
/// equal delays.
#[must_use]
pub fn retry(policy: &RetryPolicy, failures: u32, error: &RunError, draw: u64) -> Retry {
    if !policy.retry_on.iter().any(|class| error.is_of(class)) {
        return Retry::Final;
    }
    if failures > policy.max_retries {
        return Retry::Spent;
    }
    let asked = error.retry_after.map_or(Duration::ZERO, Seconds::duration);
    Retry::After(delay(policy, failures, draw).max(asked))
}

/// The delay after the failure with this number, from 1: the minimum that the policy promises, and up to the
/// jitter's share of it more, also at the cap, so that what failed together does not retry together (G14).
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "lengths are below 2^53 ms and not negative"
)]
pub fn delay(policy: &RetryPolicy, failures: u32, draw: u64) -> Duration {
    let initial = policy.initial_delay_seconds.ms();
    let grown = match policy.backoff {
        BackoffKind::Fixed => initial,
        BackoffKind::Exponential => {
            let doublings = failures.saturating_sub(1).min(63);
            initial.saturating_mul(1_u64 << doublings)
        }
    };
    let promised = grown.min(policy.max_delay_seconds.ms());
    let share = (draw >> 11) as f64 / (1_u64 << 53) as f64;
    let more = promised as f64 * policy.jitter * share;
    Duration::from_millis(promised.saturating_add(more as u64))
}
