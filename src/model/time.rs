//! Instants and lengths of time, both in whole milliseconds.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant: whole milliseconds since 1970-01-01 UTC. Shown as RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant that many milliseconds after 1970.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// This much later. Saturates at the end of time.
    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This much earlier. Saturates at the beginning of time.
    #[must_use]
    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier`; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant as the calendar library knows it; instants outside its range are pulled to its ends.
    #[must_use]
    pub fn to_jiff(self) -> jiff::Timestamp {
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        // By its parts: from milliseconds alone the library knows no instant within its last second.
        let nanos = i32::try_from(self.0.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
        jiff::Timestamp::new(self.0.div_euclid(1000), nanos).unwrap_or(end)
    }

    /// The instant of the calendar library, cut to milliseconds.
    #[must_use]
    pub fn from_jiff(instant: jiff::Timestamp) -> Self {
        Self(instant.as_millisecond())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.to_jiff())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<jiff::Timestamp>() {
            Ok(instant) => Ok(Self::from_jiff(instant)),
            Err(_) => Err(de::Error::custom(format!(
                "expected an instant such as \"2026-01-31T09:00:00Z\", found {text:?}"
            ))),
        }
    }
}

/// A length of time. In JSON a number of seconds, with fractions down to a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(u64);

impl Seconds {
    /// The longest: a hundred years of 365 days.
    pub const MAX: Self = Self(100 * 365 * 86_400_000);

    /// That many milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// That many whole seconds.
    #[must_use]
    pub const fn new(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// In milliseconds.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// As a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.duration()
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (whole, 0) => write!(f, "{whole} s"),
            (whole, ms) => write!(f, "{whole}.{ms:03} s"),
        }
    }
}

impl Serialize for Seconds {
    #[allow(clippy::cast_precision_loss, reason = "the longest length is far below 2^53 ms")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1000) {
            serializer.serialize_u64(self.0 / 1000)
        } else {
            serializer.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let ms = (seconds * 1000.0).round();
        #[allow(clippy::cast_precision_loss, reason = "the longest length is far below 2^53 ms")]
        let most = Self::MAX.0 as f64;
        if !(0.0..=most).contains(&ms) {
            return Err(de::Error::custom(format!(
                "expected a number of seconds from 0 to {}, found {seconds}",
                Self::MAX.0 / 1000
            )));
        }
        // A length that was given is never rounded to nothing.
        let ms = if seconds > 0.0 && ms == 0.0 { 1.0 } else { ms };
        Ok(Self(ms as u64))
    }
}
