//! How long things took.

use std::time::Duration;

/// In milliseconds.
pub(crate) fn percentile(delays: &mut [Duration], percent: usize) -> f64 {
    delays.sort_unstable();
    let place = (delays.len() * percent / 100).min(delays.len().saturating_sub(1));
    delays.get(place).map_or(0.0, |delay| delay.as_secs_f64() * 1000.0)
}
