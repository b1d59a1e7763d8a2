//! Times of day and days of the week.

use jiff::civil::{Time, Weekday};

/// A time of day: `9:00`, `09:00:30`, `9am`, `9:30pm`, `noon`, `midnight`.
pub(super) fn time(word: &str) -> Option<Time> {
    let word = word.to_ascii_lowercase();
    match word.as_str() {
        "noon" => return Some(Time::constant(12, 0, 0, 0)),
        "midnight" => return Some(Time::midnight()),
        _ => {}
    }
    let half = |suffix| word.strip_suffix(suffix);
    match (half("am"), half("pm")) {
        (Some(digits), _) => twelve(digits, 0),
        (_, Some(digits)) => twelve(digits, 12),
        // A bare number is no time of day: it may be anything.
        _ if word.contains(':') => parts(&word).and_then(|[h, m, s]| Time::new(h, m, s, 0).ok()),
        _ => None,
    }
}

fn twelve(digits: &str, later: i8) -> Option<Time> {
    let [hour, minute, second] = parts(digits)?;
    (1..=12).contains(&hour).then_some(())?;
    Time::new(hour % 12 + later, minute, second, 0).ok()
}

/// Hours, minutes and seconds; what is left out is 0.
fn parts(digits: &str) -> Option<[i8; 3]> {
    let mut found = [0; 3];
    let parts: Vec<&str> = digits.split(':').collect();
    if parts.len() > 3 {
        return None;
    }
    for (n, part) in parts.iter().enumerate() {
        let fits = (1..=2).contains(&part.len()) && (n == 0 || part.len() == 2);
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        found[n] = part.parse().ok().filter(|_| fits && digits)?;
    }
    Some(found)
}

/// A day of the week, in full or by its first three letters.
pub(super) fn weekday(word: &str) -> Option<Weekday> {
    let word = word.to_ascii_lowercase();
    let days = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let found = days.into_iter().find(|(name, _)| *name == word || name[..3] == word);
    found.map(|(_, weekday)| weekday)
}
