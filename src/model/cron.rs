//! Cron expressions, in wall time: what a zone makes of them is in [`crate::rules::Plan`].
//!
//! Fields, names, `L`, `W`, `#` and `@daily` are read strictly, so that a bad expression is refused with the
//! place; which days match is the cron library's affair. As in Vixie cron either day field is enough when both
//! are restricted, and one that begins with `*` is no restriction: with `*/2` both must match.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{Date, DateTime};

const MOST_BYTES: usize = 256;

/// Why a text is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} (at column {column})")]
pub struct CronError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What was expected there, with what was found.
    pub expected: String,
}

/// A cron expression that names at least one day of the calendar.
#[derive(Clone)]
pub struct Cron {
    matcher: croner::Cron,
    // A bit for each number that is named.
    hours: u64,
    minutes: u64,
    seconds: u64,
}

/// How often a cron expression is due on a day that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Often {
    /// More than once in an hour.
    pub within_the_hour: bool,
    /// In every hour.
    pub every_hour: bool,
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.matcher.pattern.as_str())
    }
}

impl Cron {
    /// Parses five fields, six with seconds in front, or a nickname.
    ///
    /// # Errors
    /// [`CronError`] with the place, also when the expression names a day that no calendar has.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let plain = check(text)?;
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let matcher = parser.parse(&plain).map_err(|error| CronError {
            column: 1,
            expected: format!("a cron expression, found {text:?}: {error}"),
        })?;
        let bits = |field: &croner::CronComponent| {
            field.values().into_iter().filter(|value| *value < 64).fold(0, |bits, value| bits | (1 << value))
        };
        let pattern = &matcher.pattern;
        let (hours, minutes, seconds) =
            (bits(&pattern.hours), bits(&pattern.minutes), bits(&pattern.seconds));
        let cron = Self { matcher, hours, minutes, seconds };
        if cron.names_a_day() { Ok(cron) } else { Err(no_such_day(text)) }
    }

    /// How often it is due on a day that it names.
    #[must_use]
    pub fn often(&self) -> Often {
        Often {
            within_the_hour: self.minutes.count_ones() * self.seconds.count_ones() > 1,
            every_hour: self.hours.count_ones() == 24,
        }
    }

    /// The first moment at or after this one that it names.
    #[must_use]
    pub fn at_or_after(&self, moment: DateTime) -> Option<DateTime> {
        self.matcher.find_next_occurrence(&moment, true).ok()
    }

    /// How many moments it names from the first up to, but without, the second.
    #[must_use]
    pub fn count(&self, from: DateTime, to: DateTime) -> u64 {
        if to <= from {
            return 0;
        }
        let before = |moment: DateTime| if self.names(moment.date()) { self.times_before(moment) } else { 0 };
        let mut days = 0;
        let mut day = from.date();
        while day < to.date() {
            days += u64::from(self.names(day));
            match day.tomorrow() {
                Ok(tomorrow) => day = tomorrow,
                Err(_) => break,
            }
        }
        (days * self.times_a_day() + before(to)).saturating_sub(before(from))
    }

    fn times_a_day(&self) -> u64 {
        [self.hours, self.minutes, self.seconds].iter().map(|bits| u64::from(bits.count_ones())).product()
    }

    /// How many times of the day are named before that of a moment.
    fn times_before(&self, moment: DateTime) -> u64 {
        let number = |value: i8| value.unsigned_abs().min(63);
        let below = |bits: u64, value: u8| u64::from((bits & ((1 << value) - 1)).count_ones());
        let named = |bits: u64, value: u8| (bits >> value) & 1;
        let [hour, minute, second] = [moment.hour(), moment.minute(), moment.second()].map(number);
        let a_minute = u64::from(self.seconds.count_ones());
        let an_hour = u64::from(self.minutes.count_ones()) * a_minute;
        let in_the_minute = named(self.minutes, minute) * below(self.seconds, second);
        let in_the_hour = below(self.minutes, minute) * a_minute + in_the_minute;
        below(self.hours, hour) * an_hour + named(self.hours, hour) * in_the_hour
    }

    fn names(&self, day: Date) -> bool {
        let pattern = &self.matcher.pattern;
        let (year, month, number) = (
            i32::from(day.year()),
            u32::from(day.month().unsigned_abs()),
            u32::from(day.day().unsigned_abs()),
        );
        let weekday = croner::Weekday::from_days_from_sunday(u32::from(
            day.weekday().to_sunday_zero_offset().unsigned_abs(),
        ));
        pattern.month_match(month).unwrap_or(false)
            && pattern.day_match(year, month, number, weekday).unwrap_or(false)
    }

    /// The calendar repeats after 400 years.
    fn names_a_day(&self) -> bool {
        let pattern = &self.matcher.pattern;
        (2000_i16..2400).any(|year| {
            (1_i8..=12)
                .filter(|month| pattern.month_match(u32::from(month.unsigned_abs())).unwrap_or(false))
                .any(|month| {
                    (1_i8..=31).any(|day| Date::new(year, month, day).is_ok_and(|day| self.names(day)))
                })
        })
    }
}

fn no_such_day(text: &str) -> CronError {
    CronError { column: 1, expected: format!("a day that some year has, found {text:?}") }
}

struct Field {
    name: &'static str,
    min: u16,
    max: u16,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 6] = [
    Field { name: "seconds", min: 0, max: 59, names: &[] },
    Field { name: "minutes", min: 0, max: 59, names: &[] },
    Field { name: "hours", min: 0, max: 23, names: &[] },
    Field { name: "days of the month", min: 1, max: 31, names: &[] },
    Field { name: "months", min: 1, max: 12, names: MONTHS },
    Field { name: "days of the week", min: 0, max: 7, names: WEEKDAYS },
];
const DAY: usize = 3;
const WEEKDAY: usize = 5;

const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The expression as the library takes it.
fn check(text: &str) -> Result<String, CronError> {
    let at = |column, expected: String| CronError { column, expected };
    if text.len() > MOST_BYTES {
        return Err(at(MOST_BYTES + 1, format!("at most {MOST_BYTES} bytes, found {}", text.len())));
    }
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    if let [word] = fields[..]
        && word.starts_with('@')
    {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let names = || NICKNAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return known
            .map(|(_, plain)| (*plain).to_owned())
            .ok_or_else(|| at(column_of(text, word), format!("one of {}, found {word:?}", names())));
    }
    if !(5..=6).contains(&fields.len()) {
        let found = fields.len();
        let column = fields.get(6).map_or(text.chars().count() + 1, |seventh| column_of(text, seventh));
        return Err(at(column, format!("5 fields, or 6 with seconds in front, found {found}")));
    }
    for (field, number) in fields.iter().zip(6 - fields.len()..) {
        for element in field.split(',') {
            check_element(number, element).map_err(|expected| {
                let name = FIELDS[number].name;
                at(column_of(text, element), format!("{expected} in the {name}, found {element:?}"))
            })?;
        }
    }
    Ok(as_vixie(&fields))
}

/// Where a part of the text begins, in characters from 1.
fn column_of(text: &str, part: &str) -> usize {
    let byte = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.get(..byte).map_or(1, |before| before.chars().count() + 1)
}

/// A day field that begins with `*` is no restriction: the library is told that both must match.
fn as_vixie(fields: &[&str]) -> String {
    let mut fields: Vec<String> = fields.iter().map(|field| field.to_ascii_uppercase()).collect();
    let count = fields.len();
    let is_any = |field: &str| field == "*" || field == "?";
    let (day, weekday) = (&fields[count - 3], &fields[count - 1]);
    let loose = day.starts_with('*') || weekday.starts_with('*');
    if loose && !is_any(day) && !is_any(weekday) {
        fields[count - 1].insert(0, '+');
    }
    fields.join(" ")
}

fn check_element(number: usize, element: &str) -> Result<(), String> {
    let field = &FIELDS[number];
    let (base, step) = match element.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (element, None),
    };
    if let Some(step) = step
        && !digits(step).is_some_and(|step| (1..=field.max).contains(&step))
    {
        return Err(format!("a step of 1 to {} after \"/\"", field.max));
    }
    if base == "*" || (base == "?" && step.is_none() && matches!(number, DAY | WEEKDAY)) {
        return Ok(());
    }
    if let Some((from, to)) = base.split_once('-') {
        // At the end of a range SUN is the seventh day.
        let seventh = to.eq_ignore_ascii_case("SUN");
        let (from, to) = (value(field, from)?, value(field, to)?);
        let to = if number == WEEKDAY && seventh { 7 } else { to };
        return if from <= to { Ok(()) } else { Err("a range that rises".to_owned()) };
    }
    if step.is_some() {
        return Err("\"*\" or a range before \"/\"".to_owned());
    }
    match number {
        DAY if is_special_day(field, base) => Ok(()),
        WEEKDAY if is_special_weekday(field, base) => Ok(()),
        _ => value(field, base).map(drop),
    }
}

fn is_special_day(field: &Field, text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let nearest = text.strip_suffix('W').and_then(digits);
    text == "L" || text == "LW" || nearest.is_some_and(|day| (field.min..=field.max).contains(&day))
}

fn is_special_weekday(field: &Field, text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let (day, which) = match text.split_once('#') {
        Some((day, which)) => (day, which),
        None if text.ends_with('L') => (&text[..text.len() - 1], "L"),
        None => return false,
    };
    value(field, day).is_ok() && matches!(which, "1" | "2" | "3" | "4" | "5" | "L")
}

fn value(field: &Field, text: &str) -> Result<u16, String> {
    let named = field.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    let named = named.and_then(|place| u16::try_from(place).ok()).map(|place| place + field.min);
    named.or_else(|| digits(text)).filter(|value| (field.min..=field.max).contains(value)).ok_or_else(|| {
        let names = match field.names {
            [first, .., last] => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        format!("{} to {}{names}", field.min, field.max)
    })
}

fn digits(text: &str) -> Option<u16> {
    (1..=4).contains(&text.len()).then_some(())?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
