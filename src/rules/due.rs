//! When a schedule is due: plain arithmetic over the instants that it names.
//!
//! A cron expression is read in wall time and mapped to instants here, one stretch of equal offset after the
//! other, so that no rule for the hours that do not exist or are there twice is taken from a library:
//!
//! | wall time | `dst_gap` | `dst_fold` | due |
//! |---|---|---|---|
//! | is there once | | | then |
//! | is not there | `shift` | | at the first instant after the gap; not if every hour is named: the next is near |
//! | is not there | `skip` | | never |
//! | is there twice | | `first` | the first time |
//! | is there twice | | `both` | both times |
//! | is there twice | | `auto` | both times if several moments of an hour are named, else the first time |
//!
//! 1. The next due time is after the instant that was asked about, always (T37).
//! 2. It exists as long as the calendar goes on: an expression that names no day is refused when it is stored.
//! 3. Long gaps cost no more than short ones: intervals are divided, days are counted.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::model::{Cron, CronError, DstFold, DstGap, Schedule, Timestamp, Timing};

/// Why a schedule cannot be asked for due times (T36).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DueError {
    /// Its cron expression is none.
    #[error("the cron expression cannot be read: {0}")]
    Cron(#[from] CronError),
    /// Its zone is not known on this machine.
    #[error("the zone \"{0}\" is not known: expected a zone of the IANA database")]
    Zone(String),
}

/// A schedule made ready to be asked often.
#[derive(Debug, Clone)]
pub struct Plan {
    named: Named,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Named {
    Nothing,
    Once(Timestamp),
    Every { ms: i64 },
    Wall(Box<Wall>),
}

impl Plan {
    /// Makes a schedule ready.
    ///
    /// # Errors
    /// [`DueError`] when this version or this machine cannot read what was stored.
    pub fn of(schedule: &Schedule) -> Result<Self, DueError> {
        let named = match &schedule.timing {
            Timing::Manual => Named::Nothing,
            Timing::Once { run_at } => Named::Once(*run_at),
            Timing::Interval { every } => {
                Named::Every { ms: i64::try_from(every.ms()).unwrap_or(i64::MAX).max(1) }
            }
            Timing::Cron { expression } => Named::Wall(Box::new(Wall::of(schedule, expression)?)),
        };
        Ok(Self { named, start: schedule.start_at, end: schedule.end_at })
    }

    /// The first due time after `now`. Intervals count from the due time before, from `start_at`, or, when
    /// there is neither, from `now` (T38).
    #[must_use]
    pub fn next_after(&self, last_due: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let due = match &self.named {
            Named::Nothing => None,
            Named::Once(at) => (last_due.is_none() && *at > now).then_some(*at),
            Named::Every { ms } => self.next_interval(*ms, last_due, now),
            Named::Wall(wall) => {
                let from = self.start.map_or(now, |start| now.max(before(start)));
                wall.next_after(from)
            }
        };
        due.filter(|due| self.end.is_none_or(|end| *due < end))
    }

    /// The first due time of a schedule that is new, which may be past: `once` runs however late it is stored.
    #[must_use]
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match self.named {
            Named::Once(at) => Some(at),
            _ => self.next_after(None, now),
        }
    }

    /// The first due time at or after an instant that was one when it was noted. An interval that has fired
    /// nothing yet has no other anchor.
    #[must_use]
    pub fn from(&self, last_due: Option<Timestamp>, noted: Timestamp) -> Option<Timestamp> {
        match self.named {
            Named::Every { .. } if last_due.is_none() => Some(noted),
            _ => self.next_after(last_due, before(noted)),
        }
    }

    /// How many due times there are from `first`, itself one, up to and with `until`.
    #[must_use]
    pub fn count(&self, first: Timestamp, until: Timestamp) -> u64 {
        let until = self.end.map_or(until, |end| until.min(before(end)));
        if until < first {
            return 0;
        }
        match &self.named {
            Named::Nothing => 0,
            Named::Once(_) => 1,
            Named::Every { ms } => (until.ms().saturating_sub(first.ms()) / ms).unsigned_abs() + 1,
            Named::Wall(wall) => wall.count(before(first), until),
        }
    }

    /// The newest `most` due times from `first`, itself one, up to and with `until`; the oldest first.
    #[must_use]
    pub fn newest(&self, first: Timestamp, until: Timestamp, most: u64) -> Vec<Timestamp> {
        let total = self.count(first, until);
        let mut due = if total <= most { Some(first) } else { self.nth_last(first, until, total, most) };
        let mut found = Vec::with_capacity(usize::try_from(total.min(most)).unwrap_or(0));
        while let Some(at) = due.filter(|at| *at <= until && (found.len() as u64) < most) {
            found.push(at);
            due = self.next_after(Some(at), at);
        }
        found
    }

    /// The due time with `most` from it up to `until`, itself counted.
    fn nth_last(&self, first: Timestamp, until: Timestamp, total: u64, most: u64) -> Option<Timestamp> {
        if let Named::Every { ms } = self.named {
            let ahead = i64::try_from(total - most).unwrap_or(i64::MAX);
            return Some(Timestamp::from_ms(first.ms().saturating_add(ahead.saturating_mul(ms))));
        }
        // The latest instant after which there are still `most`: found by halving.
        let after = |instant: i64| self.next_after(Some(first), Timestamp::from_ms(instant));
        let enough =
            |instant: i64| after(instant).is_some_and(|due| due <= until && self.count(due, until) >= most);
        let (mut low, mut high) = (first.ms(), until.ms());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if enough(middle) { low = middle } else { high = middle }
        }
        after(low)
    }

    fn next_interval(&self, ms: i64, last_due: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        // A grid through the due time before; a new schedule's begins at its start, or one interval from now.
        let (origin, from) = match (last_due, self.start) {
            (Some(last), start) => (last, start.map_or(now, |start| now.max(before(start)))),
            (None, Some(start)) if start > now => return Some(start),
            (None, Some(start)) => (start, now),
            (None, None) => (now, now),
        };
        let passed = from.ms().checked_sub(origin.ms())?;
        let steps = if passed < 0 { 1 } else { passed / ms + 1 };
        Some(Timestamp::from_ms(origin.ms().checked_add(steps.checked_mul(ms)?)?))
    }
}

/// The last instant before this one.
fn before(instant: Timestamp) -> Timestamp {
    Timestamp::from_ms(instant.ms().saturating_sub(1))
}

/// A cron expression in a zone.
#[derive(Debug, Clone)]
struct Wall {
    cron: Cron,
    zone: TimeZone,
    shift: bool,
    both: bool,
}

/// A stretch of time in which the offset of a zone does not change.
struct Stretch {
    /// The wall time at which the search begins.
    from: DateTime,
    /// What the wall showed when the stretch before ended, if it began with a change of the clocks.
    seen: Option<DateTime>,
    offset: Offset,
    /// When the clocks change next.
    end: Option<jiff::Timestamp>,
}

impl Wall {
    fn of(schedule: &Schedule, expression: &str) -> Result<Self, DueError> {
        let cron = Cron::parse(expression)?;
        let zone = TimeZone::get(&schedule.timezone)
            .map_err(|_| DueError::Zone(schedule.timezone.chars().take(80).collect()))?;
        let often = cron.often();
        let shift = schedule.dst_gap == DstGap::Shift && !often.every_hour;
        let both = match schedule.dst_fold {
            DstFold::Auto => often.within_the_hour,
            DstFold::First => false,
            DstFold::Both => true,
        };
        Ok(Self { cron, zone, shift, both })
    }

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let mut stretch = self.stretch_after(after)?;
        loop {
            if let Some(due) = self.shifted(&stretch) {
                return Some(due);
            }
            let moment = self.cron.at_or_after(self.begin(&stretch))?;
            let due = stretch.offset.to_timestamp(moment).ok()?;
            if stretch.end.is_none_or(|end| due < end) {
                return Some(Timestamp::from_jiff(due));
            }
            stretch = self.following(&stretch)?;
        }
    }

    /// How many due times are after the one instant, up to and with the other.
    fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        let Some(mut stretch) = self.stretch_after(after) else { return 0 };
        let Some(end) = next_second(until) else { return 0 };
        let mut count = 0;
        loop {
            let last = stretch.end.is_none_or(|change| end <= change);
            let to = stretch.offset.to_datetime(if last { end } else { stretch.end.unwrap_or(end) });
            // A moment that is due at the change of the clocks is not counted twice.
            let at_change = self.shifted(&stretch).filter(|due| *due <= until);
            let named = self.cron.at_or_after(stretch.from) == Some(stretch.from);
            count += u64::from(at_change.is_some() && !named);
            count += self.cron.count(self.begin(&stretch), to);
            match self.following(&stretch) {
                Some(next) if !last => stretch = next,
                _ => return count,
            }
        }
    }

    /// Where the search in a stretch begins: what the wall shows a second time may not count.
    fn begin(&self, stretch: &Stretch) -> DateTime {
        match stretch.seen {
            Some(seen) if !self.both => stretch.from.max(seen),
            _ => stretch.from,
        }
    }

    /// The beginning of the stretch, if the wall jumped over a moment that is named.
    fn shifted(&self, stretch: &Stretch) -> Option<Timestamp> {
        let seen = stretch.seen.filter(|seen| self.shift && *seen < stretch.from)?;
        let named = self.cron.at_or_after(seen)?;
        let begin = stretch.offset.to_timestamp(stretch.from).ok()?;
        (named < stretch.from).then(|| Timestamp::from_jiff(begin))
    }

    /// The rest of the stretch after an instant, in whole seconds: nothing finer is named.
    fn stretch_after(&self, after: Timestamp) -> Option<Stretch> {
        let from = next_second(after)?;
        // The instant before: a change of the clocks in that very second is still to come.
        let last = from.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        let offset = self.zone.to_offset(last);
        let end = self.change_after(last);
        let stretch = Stretch { from: offset.to_datetime(from), seen: self.seen_at(last), offset, end };
        if end.is_some_and(|end| end <= from) { self.following(&stretch) } else { Some(stretch) }
    }

    /// What the wall had shown before the latest change of the clocks: an instant may lie in the second pass.
    fn seen_at(&self, instant: jiff::Timestamp) -> Option<DateTime> {
        let next = instant.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
        let change = self.zone.preceding(next).next()?.timestamp();
        let ahead = change.checked_sub(jiff::SignedDuration::from_secs(1)).ok()?;
        let seen = self.zone.to_offset(ahead).to_datetime(change);
        // Jumped over is only what lies after the instant that was asked about.
        let shown = self.zone.to_offset(instant).to_datetime(next);
        (seen >= shown).then_some(seen)
    }

    fn following(&self, stretch: &Stretch) -> Option<Stretch> {
        let change = stretch.end?;
        let offset = self.zone.to_offset(change);
        Some(Stretch {
            from: offset.to_datetime(change),
            seen: Some(stretch.offset.to_datetime(change)),
            offset,
            end: self.change_after(change),
        })
    }

    fn change_after(&self, instant: jiff::Timestamp) -> Option<jiff::Timestamp> {
        self.zone.following(instant).next().map(|change| change.timestamp())
    }
}

/// The first whole second after an instant.
fn next_second(instant: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(instant.ms().div_euclid(1000).checked_add(1)?).ok()
}
