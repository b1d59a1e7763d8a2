//! Times and lengths of time as people write them: `5m`, `1h30m`, `in 10m`, `tomorrow 09:00`, `monday 9:00`,
//! `2026-12-01 09:00`, RFC 3339.
//!
//! Pure: what time it is, and in which zone, is told by the caller.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::{Span, SpanRelativeTo, Timestamp, Zoned};

mod clock;
#[cfg(test)]
mod tests;

use clock::{time, weekday};

/// The longest length of time that is taken: a hundred years.
const MOST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Where a time lies that is not said as a whole: `9:00` is the next nine o'clock, or the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toward {
    /// From now on: for what is to happen.
    Future,
    /// Before now: for what has happened.
    Past,
}

/// Text that says no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    text: String,
    column: usize,
    expected: &'static str,
    examples: &'static [&'static str],
}

const LENGTHS: &[&str] = &["30s", "5m", "1h30m", "2 days"];
const FUTURE: &[&str] = &["in 10m", "tomorrow 09:00", "monday 9:00", "2026-12-01 09:00"];
const PAST: &[&str] = &["2h", "yesterday 18:00", "monday 9:00", "2026-12-01 09:00"];

/// A length of time. A bare number is one of seconds; a day has 24 hours.
pub(crate) fn length(text: &str) -> Result<Duration, Unreadable> {
    let unreadable = |column, expected| Unreadable::new(text, column, expected, LENGTHS);
    let words = text.trim();
    let start = column_of(text, words);
    if words.is_empty() {
        return Err(unreadable(start, "a length of time, found nothing"));
    }
    let bare = words.chars().all(|c| c.is_ascii_digit() || c == '.');
    let spelled = if bare { format!("{words}s") } else { words.to_ascii_lowercase() };
    let span = match spelled.parse::<Span>() {
        Ok(span) if !span.is_negative() => span,
        Ok(_) => return Err(unreadable(start, "a length of time that is not negative")),
        Err(_) => return Err(unreadable(start + first_odd(words), "a number and a unit: s, m, h, d or w")),
    };
    // A month has no length of its own.
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let length =
        length.map_err(|_| unreadable(start, "a length in weeks, days, hours, minutes or seconds"))?;
    let length = Duration::try_from(length).map_err(|_| unreadable(start, "a length of time"))?;
    if length > MOST {
        return Err(unreadable(start, "a length of at most 100 years"));
    }
    Ok(length)
}

/// A length of time that is more than nothing.
pub(crate) fn some_length(text: &str) -> Result<Duration, Unreadable> {
    let length = length(text)?;
    // Less than a millisecond would be taken as nothing further on.
    if length.as_millis() > 0 {
        return Ok(length);
    }
    Err(Unreadable::new(text, 1, "a length of time above 0", LENGTHS))
}

/// An instant. What is said of it by the clock is meant in the zone of `now`.
pub(crate) fn instant(text: &str, now: &Zoned, toward: Toward) -> Result<Timestamp, Unreadable> {
    Reader { text, words: words(text), now, toward }.read()
}

struct Reader<'a> {
    text: &'a str,
    /// Each with its column.
    words: Vec<(usize, &'a str)>,
    now: &'a Zoned,
    toward: Toward,
}

impl Reader<'_> {
    fn read(&self) -> Result<Timestamp, Unreadable> {
        let Some((column, first)) = self.words.first().copied() else {
            return Err(self.unreadable(1, "a time, found nothing"));
        };
        let today = self.now.date();
        match first.to_ascii_lowercase().as_str() {
            "now" => return self.end(1, self.now.timestamp()),
            "in" => return self.shifted(1, self.words.len(), true),
            "today" => return self.day(Ok(today), column),
            "tomorrow" => return self.day(today.tomorrow(), column),
            "yesterday" => return self.day(today.yesterday(), column),
            _ => {}
        }
        if let Some(weekday) = weekday(first) {
            return self.weekday(weekday);
        }
        if self.words.last().is_some_and(|(_, word)| word.eq_ignore_ascii_case("ago")) {
            return self.shifted(0, self.words.len() - 1, false);
        }
        let whole = self.text.trim();
        if let Ok(instant) = whole.parse::<Timestamp>() {
            return Ok(instant);
        }
        if let Ok(zoned) = whole.parse::<Zoned>() {
            return Ok(zoned.timestamp());
        }
        self.date_or_time(first, column)
    }

    /// `2026-12-01 09:00`, `2026-12-01T09:00`, `9:00`, or a bare length.
    fn date_or_time(&self, first: &str, column: usize) -> Result<Timestamp, Unreadable> {
        if first.bytes().filter(|byte| *byte == b'-').count() == 2 {
            let with_time = first.contains(['T', 't']);
            let parsed = first.parse::<DateTime>().ok().filter(|_| with_time && self.words.len() == 1);
            return match (parsed, first.parse::<Date>()) {
                (Some(parsed), _) => self.at(parsed.date(), parsed.time(), column),
                (None, Ok(date)) if !with_time => self.day(Ok(date), column),
                _ => Err(self.unreadable(column, "a date such as 2026-12-01, perhaps with a time")),
            };
        }
        if let Some(time) = time(first) {
            self.nothing_after(1)?;
            return self.nearest(time);
        }
        if length(self.text).is_ok() {
            return self.shifted(0, self.words.len(), self.toward == Toward::Future);
        }
        Err(self.unreadable(column, "a length of time, a day, a date or a time of day"))
    }

    /// The day that the first word names, at the time that the others do; its beginning if they do not.
    fn day(&self, date: Result<Date, jiff::Error>, column: usize) -> Result<Timestamp, Unreadable> {
        let date = date.map_err(|_| self.unreadable(column, "a day that the calendar has"))?;
        let time = self.time_after(1)?.unwrap_or(Time::midnight());
        self.at(date, time, column)
    }

    fn weekday(&self, weekday: jiff::civil::Weekday) -> Result<Timestamp, Unreadable> {
        let time = self.time_after(1)?.unwrap_or(Time::midnight());
        let today = self.now.date();
        let (days, again) = match self.toward {
            Toward::Future => (today.weekday().until(weekday), 7),
            Toward::Past => (-i8::abs(weekday.until(today.weekday())), -7),
        };
        self.on_this_side(time, i64::from(days), again)
    }

    /// The next, or last, instant at which clocks show this time.
    fn nearest(&self, time: Time) -> Result<Timestamp, Unreadable> {
        let again = if self.toward == Toward::Future { 1 } else { -1 };
        self.on_this_side(time, 0, again)
    }

    /// So many days from today, or further by `again` days if that is on the wrong side of now.
    fn on_this_side(&self, time: Time, days: i64, again: i64) -> Result<Timestamp, Unreadable> {
        let outside = || self.unreadable(1, "a day that the calendar has");
        let date = |days| self.now.date().checked_add(Span::new().days(days)).map_err(|_| outside());
        let found = self.at(date(days)?, time, 1)?;
        let wrong = match self.toward {
            Toward::Future => found <= self.now.timestamp(),
            Toward::Past => found > self.now.timestamp(),
        };
        if wrong { self.at(date(days + again)?, time, 1) } else { Ok(found) }
    }

    /// Now, and the length that these words say.
    fn shifted(&self, from: usize, to: usize, later: bool) -> Result<Timestamp, Unreadable> {
        let words: Vec<&str> = self.words[from.min(to)..to].iter().map(|(_, word)| *word).collect();
        let column = self.words.get(from).map_or(self.text.chars().count() + 1, |(column, _)| *column);
        let length = length(&words.join(" "))
            .map_err(|error| self.unreadable(column + error.column - 1, error.expected))?;
        let now = self.now.timestamp();
        let shifted = if later { now.checked_add(length) } else { now.checked_sub(length) };
        shifted.map_err(|_| self.unreadable(column, "an instant that the calendar has"))
    }

    /// The time that the word after those says, if there is one; `at` may stand before it.
    fn time_after(&self, seen: usize) -> Result<Option<Time>, Unreadable> {
        let filler = self.words.get(seen).is_some_and(|(_, word)| word.eq_ignore_ascii_case("at"));
        let place = seen + usize::from(filler);
        let Some((column, word)) = self.words.get(place).copied() else {
            if filler {
                return Err(self.unreadable(self.text.chars().count() + 1, "a time of day after \"at\""));
            }
            return Ok(None);
        };
        let found =
            time(word).ok_or_else(|| self.unreadable(column, "a time of day such as 09:00 or 9pm"))?;
        self.nothing_after(place + 1)?;
        Ok(Some(found))
    }

    fn end(&self, seen: usize, found: Timestamp) -> Result<Timestamp, Unreadable> {
        self.nothing_after(seen)?;
        Ok(found)
    }

    fn nothing_after(&self, seen: usize) -> Result<(), Unreadable> {
        match self.words.get(seen) {
            None => Ok(()),
            Some((column, _)) => Err(self.unreadable(*column, "nothing more")),
        }
    }

    /// A time that clocks skip is the one they show instead; of one they show twice it is the first.
    fn at(&self, date: Date, time: Time, column: usize) -> Result<Timestamp, Unreadable> {
        let zoned = date.to_datetime(time).to_zoned(self.now.time_zone().clone());
        let zoned = zoned.map_err(|_| self.unreadable(column, "an instant that the calendar has"))?;
        Ok(zoned.timestamp())
    }

    fn unreadable(&self, column: usize, expected: &'static str) -> Unreadable {
        let examples = if self.toward == Toward::Future { FUTURE } else { PAST };
        Unreadable::new(self.text, column, expected, examples)
    }
}

/// The words of a text, each with the column it begins at.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_whitespace().map(|word| (column_of(text, word), word)).collect()
}

/// Where a part of a text begins in it, counted in characters from 1.
fn column_of(text: &str, part: &str) -> usize {
    let bytes = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.get(..bytes).map_or(1, |before| before.chars().count() + 1)
}

/// How many characters of a length make sense: pairs of a number and a unit.
fn first_odd(text: &str) -> usize {
    const UNITS: &[&str] = &[
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hrs",
        "hour",
        "hours",
        "d",
        "day",
        "days",
        "w",
        "wk",
        "wks",
        "week",
        "weeks",
        "ms",
        "msec",
        "millis",
        "milliseconds",
    ];
    let chars: Vec<char> = text.to_ascii_lowercase().chars().collect();
    let run = |from: usize, is: fn(&char) -> bool| from + chars[from..].iter().take_while(|c| is(c)).count();
    let mut at = 0;
    loop {
        let number = run(at, |c| c.is_ascii_digit() || *c == '.');
        let gap = run(number, |c| c.is_whitespace());
        let unit = run(gap, |c| c.is_ascii_alphabetic());
        let word: String = chars[gap..unit].iter().collect();
        if number == at {
            return at;
        }
        if !UNITS.contains(&word.as_str()) {
            return gap.min(chars.len());
        }
        at = run(unit, |c| c.is_whitespace() || *c == ',');
        if at >= chars.len() {
            return 0;
        }
    }
}

impl Unreadable {
    fn new(text: &str, column: usize, expected: &'static str, examples: &'static [&'static str]) -> Self {
        Self { text: text.chars().take(80).collect(), column, expected, examples }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("\"{example}\"")).collect();
        write!(
            f,
            "{:?}, column {}: expected {}; write for example {}",
            self.text,
            self.column,
            self.expected,
            examples.join(", ")
        )
    }
}

impl std::error::Error for Unreadable {}
