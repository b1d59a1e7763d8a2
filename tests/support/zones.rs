//! Zones with odd clocks, and schedules in them.

use jiff::tz::TimeZone;
use tenure::model::{Schedule, Timestamp};

/// A change of half an hour, of a zone at a quarter past, at midnight, of two hours; and common ones.
pub(crate) const ZONES: [&str; 12] = [
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/Santiago",
    "Antarctica/Troll",
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Africa/Casablanca",
    "Asia/Beirut",
    "America/Havana",
    "Asia/Kolkata",
    "UTC",
];

/// A cron schedule in a zone, with further fields.
pub(crate) fn cron(expression: &str, zone: &str, more: &str) -> Schedule {
    let json = format!(r#"{{"type":"cron","expression":"{expression}","timezone":"{zone}"{more}}}"#);
    serde_json::from_str(&json).unwrap()
}

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::from_jiff(text.parse().unwrap())
}

/// The instants at which the clocks of a zone change, from the first up to the second.
pub(crate) fn changes(zone: &str, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let zone = TimeZone::get(zone).unwrap();
    let changes = zone.following(from.to_jiff()).map(|change| Timestamp::from_jiff(change.timestamp()));
    changes.take_while(|change| *change < to).collect()
}
