//! Walks the clock minute by minute and asks for the next due time at each (T37, field S19): two days around
//! every change of the clocks of three years, in twelve zones. With `TENURE_WALK=full` every minute of the
//! three years, which wants an optimised build.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use tenure::model::Timestamp;
use tenure::rules::Plan;

#[path = "support/zones.rs"]
mod zones;

use zones::{ZONES, at, changes, cron};

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// A cron expression, the same in Rust, what it does with the clocks in JSON, and what that means.
struct Case {
    expression: &'static str,
    names: fn(DateTime) -> bool,
    policies: &'static str,
    shift: bool,
    both: bool,
}

const CASES: [Case; 5] = [
    Case {
        expression: "*/15 * * * *",
        names: |wall| wall.minute() % 15 == 0,
        policies: "",
        shift: false,
        both: true,
    },
    Case {
        expression: "30 1 * * *",
        names: |wall| (wall.hour(), wall.minute()) == (1, 30),
        policies: "",
        shift: true,
        both: false,
    },
    Case {
        expression: "15,45 0-3 * * *",
        names: |wall| wall.hour() <= 3 && matches!(wall.minute(), 15 | 45),
        policies: r#","dst_gap":"skip","dst_fold":"first""#,
        shift: false,
        both: false,
    },
    Case {
        expression: "0 0,2 * * *",
        names: |wall| matches!(wall.hour(), 0 | 2) && wall.minute() == 0,
        policies: r#","dst_fold":"both""#,
        shift: true,
        both: true,
    },
    Case {
        expression: "20 * * * *",
        names: |wall| wall.minute() == 20,
        policies: "",
        shift: false,
        both: false,
    },
];

#[test]
fn task_t37_the_next_due_time_is_after_now_and_the_one_that_a_naive_reading_gives() {
    let (from, to) = (at("2025-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"));
    let full = std::env::var("TENURE_WALK").is_ok_and(|walk| walk == "full");
    // Each zone beside the others.
    let asked: u64 = std::thread::scope(|scope| {
        let walks: Vec<_> =
            ZONES.iter().map(|zone| scope.spawn(move || walk_through(zone, from, to, full))).collect();
        walks.into_iter().map(|walk| walk.join().unwrap()).sum()
    });
    assert!(asked > 500_000, "only {asked} instants were asked about");
}

/// Every case in a zone, for the whole time or around its changes. Answers how many instants were asked about.
fn walk_through(zone: &str, from: Timestamp, to: Timestamp, full: bool) -> u64 {
    let mut asked = 0;
    let around = |change: &Timestamp| (change.ms() - DAY, change.ms() + DAY);
    let mut stretches: Vec<(i64, i64)> = changes(zone, from, to).iter().map(around).collect();
    if full || stretches.is_empty() {
        stretches = vec![(from.ms(), if full { to.ms() } else { from.ms() + 2 * DAY })];
    }
    let zone_of = TimeZone::get(zone).unwrap();
    for (number, case) in CASES.iter().enumerate() {
        let plan = Plan::of(&cron(case.expression, zone, case.policies)).unwrap();
        for (begin, end) in &stretches {
            let due = naive(case, &zone_of, *begin, *end + 2 * DAY);
            // Not on the minute, so that all cases together see seconds and milliseconds as well.
            let offset = [0, 1, -1, 30_500, 59_999][number];
            asked += walk(&plan, &due, begin + offset, *end, &format!("{} in {zone}", case.expression));
        }
    }
    asked
}

fn walk(plan: &Plan, due: &BTreeSet<i64>, begin: i64, end: i64, what: &str) -> u64 {
    let mut asked = 0;
    let mut now = begin;
    while now < end {
        let next = plan.next_after(None, Timestamp::from_ms(now)).map(Timestamp::ms);
        let expected = due.range(now + 1..).next().copied();
        assert!(next.is_some_and(|next| next > now), "{what}: no next after {}", Timestamp::from_ms(now));
        assert_eq!(next, expected, "{what}: after {}", Timestamp::from_ms(now));
        now += MINUTE;
        asked += 1;
    }
    asked
}

/// Every due time on the way, by looking at the wall at each minute.
fn naive(case: &Case, zone: &TimeZone, begin: i64, end: i64) -> BTreeSet<i64> {
    let mut due = BTreeSet::new();
    let mut ms = begin.div_euclid(MINUTE) * MINUTE;
    let mut wall_before: Option<DateTime> = None;
    while ms < end {
        let instant = jiff::Timestamp::from_millisecond(ms).unwrap();
        let wall = zone.to_datetime(instant);
        let named = (case.names)(wall) && (case.both || !is_shown_again(zone, wall, instant));
        let jumped = wall_before.is_some_and(|before| minutes_between(before, wall).any(case.names));
        if named || (case.shift && jumped) {
            due.insert(ms);
        }
        wall_before = Some(wall);
        ms += MINUTE;
    }
    due
}

/// Whether the wall has shown this moment before.
fn is_shown_again(zone: &TimeZone, wall: DateTime, instant: jiff::Timestamp) -> bool {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).unwrap() != instant,
        _ => false,
    }
}

/// What the wall jumped over from one minute to the next.
fn minutes_between(from: DateTime, to: DateTime) -> impl Iterator<Item = DateTime> {
    let next = |wall: &DateTime| wall.checked_add(jiff::Span::new().minutes(1)).ok();
    std::iter::successors(next(&from), next).take_while(move |wall| *wall < to)
}
