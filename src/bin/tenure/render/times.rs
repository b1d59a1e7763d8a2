//! Times and lengths of time, told to people.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::{Look, at};

impl Look {
    /// The instant at a path, told from now; empty where there is none.
    pub(super) fn when(&self, value: &Value, path: &str) -> String {
        let Some(instant) = instant(at(value, path)) else { return String::new() };
        if self.utc { exactly(instant) } else { from_now(self.now, instant) }
    }

    /// The same, as clocks show it and told from now.
    pub(super) fn when_exactly(&self, value: &Value, path: &str) -> String {
        let Some(instant) = instant(at(value, path)) else { return String::new() };
        if self.utc {
            return exactly(instant);
        }
        let shown = instant.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
        format!("{shown} ({})", from_now(self.now, instant))
    }

    /// The minute that clocks show: in a zone that is named, or else in that of who looks.
    pub(super) fn minute(&self, value: &Value, path: &str, zone: &str) -> String {
        let Some(instant) = instant(at(value, path)) else { return String::new() };
        if self.utc {
            return exactly(instant);
        }
        let named = if zone == "UTC" { None } else { TimeZone::get(zone).ok() };
        let name = if named.is_some() { format!(" {}", crate::output::plain(zone)) } else { String::new() };
        let shown = instant.to_zoned(named.unwrap_or_else(|| self.zone.clone()));
        format!("{}{name}", shown.strftime("%Y-%m-%d %H:%M"))
    }

    /// The clock alone, for lines that follow each other.
    pub(super) fn clock(&self, value: &Value, path: &str) -> String {
        let Some(instant) = instant(at(value, path)) else { return String::new() };
        if self.utc {
            return exactly(instant);
        }
        instant.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
    }

    /// How long it took from one instant to the other, or takes so far.
    pub(super) fn took(&self, value: &Value, from: &str, to: &str) -> String {
        let Some(from) = instant(at(value, from)) else { return String::new() };
        let to = instant(at(value, to)).unwrap_or(self.now);
        length(to.as_millisecond().saturating_sub(from.as_millisecond()).max(0))
    }
}

/// The instant that this says.
pub(super) fn instant(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// RFC 3339 in UTC with milliseconds, as the interface tells it.
fn exactly(instant: Timestamp) -> String {
    format!("{instant:.3}")
}

/// `3m ago`, `in 5m`, `now`.
pub(super) fn from_now(now: Timestamp, instant: Timestamp) -> String {
    let ms = instant.as_millisecond().saturating_sub(now.as_millisecond());
    match ms {
        -999..=999 => "now".to_owned(),
        ..-999 => format!("{} ago", coarse(ms.unsigned_abs())),
        _ => format!("in {}", coarse(ms.unsigned_abs())),
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The largest unit, and the next one while the number is small.
fn coarse(ms: u64) -> String {
    match ms {
        ..MINUTE => format!("{}s", ms / SECOND),
        MINUTE..HOUR => format!("{}m", ms / MINUTE),
        HOUR..DAY => two(ms, HOUR, "h", MINUTE, "m", 10),
        _ => two(ms, DAY, "d", HOUR, "h", 3),
    }
}

/// Two units; one where there are as many of the larger as this, or none of the smaller.
fn two(ms: u64, large: u64, l: &str, small: u64, s: &str, enough: u64) -> String {
    let (whole, rest) = (ms / large, ms % large / small);
    if whole >= enough || rest == 0 { format!("{whole}{l}") } else { format!("{whole}{l} {rest}{s}") }
}

/// A length of time in milliseconds.
pub(super) fn length(ms: i64) -> String {
    let ms = ms.unsigned_abs();
    match ms {
        ..SECOND => format!("{ms}ms"),
        SECOND..MINUTE => format!("{}.{}s", ms / SECOND, ms % SECOND / 100),
        MINUTE..HOUR => two(ms, MINUTE, "m", SECOND, "s", u64::MAX),
        HOUR..DAY => two(ms, HOUR, "h", MINUTE, "m", u64::MAX),
        _ => two(ms, DAY, "d", HOUR, "h", u64::MAX),
    }
}

/// A number of seconds, as fields tell lengths.
#[allow(clippy::cast_possible_truncation, reason = "what is too long is told as the longest there is")]
pub(super) fn seconds(value: &Value) -> String {
    match value.as_f64() {
        Some(seconds) if seconds.fract() == 0.0 && seconds < 60.0 => format!("{seconds}s"),
        Some(seconds) => length((seconds * 1000.0) as i64),
        None => String::new(),
    }
}
