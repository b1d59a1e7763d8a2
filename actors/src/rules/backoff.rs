//! How long to wait before a child is started again.

use serde::{Deserialize, Serialize};

use super::{Intensity, InvalidSetting};

/// The settings of a [`Backoff`], not yet checked. Each that is left out takes its default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffSettings {
    /// The first delay, in milliseconds; 100 by default. 0 only together with a `max_ms` of 0: no delay.
    pub min_ms: u64,
    /// The longest delay, in milliseconds; 30,000 by default, at least `min_ms`.
    pub max_ms: u64,
    /// By how much each delay is longer than the one before; 2 by default, at least 1.
    pub factor: f64,
    /// The share by which a delay may be shorter or longer than computed; 0.2 by default, from 0 to 1.
    pub jitter: f64,
    /// How long a child must have run, in milliseconds, for its next delay to be the first again; without
    /// it, the mean of `min_ms` and `max_ms` (PS-51).
    pub reset_after_ms: Option<u64>,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self { min_ms: 100, max_ms: 30_000, factor: 2.0, jitter: 0.2, reset_after_ms: None }
    }
}

/// An exponential delay between a child's restarts, with a ceiling, symmetric jitter and a reset.
///
/// ```
/// use tenure_actors::rules::{Backoff, BackoffSettings};
///
/// let backoff = Backoff::new(BackoffSettings { jitter: 0.0, ..Default::default() })?;
/// assert_eq!([0, 1, 2].map(|attempt| backoff.delay_ms(attempt, 7)), [100, 200, 400]);
/// # Ok::<(), tenure_actors::rules::InvalidSetting>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "BackoffSettings", into = "BackoffSettings")]
pub struct Backoff {
    settings: BackoffSettings,
}

impl Backoff {
    /// A back-off with these settings.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] naming the first of `min_ms`, `factor` and `jitter` that is outside its range.
    pub fn new(settings: BackoffSettings) -> Result<Self, InvalidSetting> {
        check_bounds(settings.min_ms, settings.max_ms)?;
        check_factor(settings.factor)?;
        check_jitter(settings.jitter)?;
        Ok(Self { settings })
    }

    /// No delay at all. Restarts in a row are still counted, and forgotten after a run of 5,000 ms.
    #[must_use]
    pub const fn none() -> Self {
        // The mean of the bounds would be 0: no two restarts would ever be in a row.
        let reset_after_ms = Some(Intensity::DEFAULT_PERIOD_MS);
        Self { settings: BackoffSettings { min_ms: 0, max_ms: 0, factor: 1.0, jitter: 0.0, reset_after_ms } }
    }

    /// The settings it was made with.
    #[must_use]
    pub const fn settings(&self) -> BackoffSettings {
        self.settings
    }

    /// The delay, in milliseconds, before restart number `attempt` of a row; the first is 0.
    ///
    /// It is `min_ms * factor^attempt`, rounded to a millisecond and never above `max_ms`, however large
    /// `attempt` is (PB-09, PB-15). The jitter then moves it by up to its share either way, drawn from `seed`
    /// and `attempt` alone, and never above `max_ms`. Give each child its own seed, so that those that failed
    /// together do not come back together.
    ///
    /// Without jitter no delay is shorter than the one before, for factors of 1 or at least 1.001; between
    /// those, rounding can cost a millisecond. Delays are exact up to 2^53 ms.
    #[must_use]
    pub fn delay_ms(&self, attempt: u32, seed: u64) -> u64 {
        let BackoffSettings { max_ms, jitter, .. } = self.settings;
        let computed_ms = self.without_jitter_ms(attempt);
        if jitter == 0.0 {
            return computed_ms;
        }
        let moved_ms = computed_ms as f64 * (1.0 + jitter * sway(seed, attempt));
        (moved_ms.round() as u64).min(max_ms)
    }

    /// Whether a child that ran for `quiet_ms` milliseconds without failing starts its row of restarts anew
    /// (PS-44). Exactly the reset time is enough.
    #[must_use]
    pub const fn reset(&self, quiet_ms: u64) -> bool {
        quiet_ms >= self.reset_after_ms()
    }

    /// How long a child must have run for its row of restarts to begin anew, in milliseconds.
    #[must_use]
    pub const fn reset_after_ms(&self) -> u64 {
        let BackoffSettings { min_ms, max_ms, .. } = self.settings;
        match self.settings.reset_after_ms {
            Some(reset_after_ms) => reset_after_ms,
            None => u64::midpoint(min_ms, max_ms),
        }
    }

    fn without_jitter_ms(&self, attempt: u32) -> u64 {
        let BackoffSettings { min_ms, max_ms, factor, .. } = self.settings;
        // Nothing times a factor that became infinite is not a number.
        if min_ms == 0 {
            return 0;
        }
        let grown_ms = (min_ms as f64 * power(factor, attempt)).round() as u64;
        grown_ms.clamp(min_ms, max_ms)
    }
}

impl TryFrom<BackoffSettings> for Backoff {
    type Error = InvalidSetting;

    fn try_from(settings: BackoffSettings) -> Result<Self, InvalidSetting> {
        Self::new(settings)
    }
}

impl From<Backoff> for BackoffSettings {
    fn from(backoff: Backoff) -> Self {
        backoff.settings
    }
}

fn check_bounds(min_ms: u64, max_ms: u64) -> Result<(), InvalidSetting> {
    if min_ms == 0 && max_ms > 0 {
        // It would never grow: more likely a slip than a wish.
        let problem = format!("expected at least 1 ms, or 0 with a \"max_ms\" of 0, got 0 with {max_ms}");
        return Err(InvalidSetting::new("min_ms", problem));
    }
    if min_ms > max_ms {
        let problem = format!("expected at most \"max_ms\", which is {max_ms}, got {min_ms}");
        return Err(InvalidSetting::new("min_ms", problem));
    }
    Ok(())
}

fn check_factor(factor: f64) -> Result<(), InvalidSetting> {
    if factor.is_finite() && factor >= 1.0 {
        return Ok(());
    }
    Err(InvalidSetting::new("factor", format!("expected a finite number of at least 1, got {factor}")))
}

fn check_jitter(jitter: f64) -> Result<(), InvalidSetting> {
    if (0.0..=1.0).contains(&jitter) {
        return Ok(());
    }
    Err(InvalidSetting::new("jitter", format!("expected a share from 0 to 1, got {jitter}")))
}

/// `base` to the power of `exponent`, by squaring; infinite where it is too large.
///
/// Not `powi`, whose last digits differ from platform to platform: the same settings give the same delays.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

/// A number from -1 up to 1, the same for the same seed and attempt.
fn sway(seed: u64, attempt: u32) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    let drawn = splitmix64(seed, attempt) >> 11;
    2.0 * (drawn as f64 / STEPS) - 1.0
}

/// Output number `step` of the generator splitmix64 started at `seed`; the first is 0.
fn splitmix64(seed: u64, step: u32) -> u64 {
    let mut z = seed.wrapping_add((u64::from(step) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
