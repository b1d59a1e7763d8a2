//! When schedules are due.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample;
use tenure::model::{Cron, Schedule, Timestamp};
use tenure::rules::Plan;

use crate::zones::{ZONES, at, changes, cron};

/// The due times of a schedule from one instant up to another.
fn due(schedule: &Schedule, from: &str, to: &str) -> Vec<String> {
    let plan = Plan::of(schedule).unwrap();
    let (mut now, to) = (at(from), at(to));
    let mut found = Vec::new();
    while let Some(next) = plan.next_after(None, now).filter(|next| *next < to) {
        assert!(next > now);
        found.push(next.to_string());
        now = next;
    }
    found
}

#[test]
fn field_s20_around_every_change_of_2026_in_every_zone() {
    let mut table = String::new();
    let day = std::time::Duration::from_secs(86_400);
    let policies = [
        ("shift auto", ""),
        ("skip first", r#","dst_gap":"skip","dst_fold":"first""#),
        ("shift both", r#","dst_fold":"both""#),
    ];
    for zone in ZONES {
        for change in changes(zone, at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")) {
            let local = |instant: Timestamp| {
                instant.to_jiff().in_tz(zone).unwrap().strftime("%d %H:%M:%S%:z").to_string()
            };
            let before = Timestamp::from_ms(change.ms() - 1000);
            writeln!(table, "{zone} {change}: {} then {}", local(before), local(change)).unwrap();
            for (expression, half_a_day) in [
                ("30 1 * * *", 2),
                ("30 2 * * *", 2),
                ("15 0 * * *", 2),
                ("0 3 * * *", 2),
                ("40 * * * *", 8),
                ("*/20 * * * *", 8),
            ] {
                for (policy, more) in policies {
                    let plan = Plan::of(&cron(expression, zone, more)).unwrap();
                    let mut now = change.minus(day / half_a_day);
                    let end = change.plus(day / half_a_day);
                    let mut line = format!("  {expression:14} {policy}:");
                    while let Some(next) = plan.next_after(None, now).filter(|next| *next < end) {
                        if half_a_day == 2 || next.since(change.minus(day / 10)) < day / 5 {
                            write!(line, " {}", local(next)).unwrap();
                        }
                        now = next;
                    }
                    writeln!(table, "{line}").unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn field_s17_a_daily_job_keeps_its_wall_time_in_spring() {
    let schedule = cron("4 16 * * *", "America/New_York", "");
    assert_eq!(due(&schedule, "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z"), ["2026-03-08T20:04:00.000Z"]);
}

#[test]
fn field_s18_a_weekly_noon_job_runs_once_in_autumn() {
    let schedule = cron("0 12 * * 1", "Europe/Amsterdam", "");
    assert_eq!(due(&schedule, "2026-10-26T00:00:00Z", "2026-10-27T00:00:00Z"), ["2026-10-26T11:00:00.000Z"]);
}

#[test]
fn field_s21_a_time_that_does_not_exist_is_due_after_the_gap_or_not_at_all() {
    let next = |more: &str| {
        let plan = Plan::of(&cron("30 2 * * *", "Europe/Paris", more)).unwrap();
        plan.next_after(None, at("2026-03-28T12:00:00Z")).unwrap().to_string()
    };
    assert_eq!(next(""), "2026-03-29T01:00:00.000Z");
    assert_eq!(next(r#","dst_gap":"skip""#), "2026-03-30T00:30:00.000Z");
}

#[test]
fn field_s23_frequent_crons_run_in_both_repeated_hours_and_daily_ones_once() {
    let in_the_two_hours = |expression: &str| {
        let schedule = cron(expression, "America/New_York", "");
        due(&schedule, "2026-11-01T04:59:59Z", "2026-11-01T07:00:00Z").len()
    };
    assert_eq!((in_the_two_hours("*/15 * * * *"), in_the_two_hours("30 1 * * *")), (8, 1));
}

#[test]
fn task_t38_intervals_count_from_the_due_time_before() {
    let interval = |more: &str| -> Plan {
        let json = format!(r#"{{"type":"interval","seconds":90{more}}}"#);
        Plan::of(&serde_json::from_str(&json).unwrap()).unwrap()
    };
    let plan = interval("");
    let last = at("2026-01-01T00:00:00Z");
    for (now, next) in [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"),
        ("2026-01-01T00:01:29.999Z", "2026-01-01T00:01:30Z"),
        ("2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"),
        ("2036-01-01T00:00:00.001Z", "2036-01-01T00:01:30Z"),
        // The clock went back: nothing is due twice.
        ("2025-01-01T00:00:00Z", "2026-01-01T00:01:30Z"),
    ] {
        assert_eq!(plan.next_after(Some(last), at(now)), Some(at(next)), "after {now}");
    }
    assert_eq!(plan.next_after(None, at("2026-01-01T00:00:10Z")), Some(at("2026-01-01T00:01:40Z")));
    let bounded = interval(r#","start_at":"2026-01-02T00:00:00Z","end_at":"2026-01-02T00:03:00Z""#);
    let next = |now: &str| bounded.next_after(None, at(now));
    assert_eq!(next("2026-01-01T00:00:00Z"), Some(at("2026-01-02T00:00:00Z")));
    assert_eq!(next("2026-01-02T00:00:00Z"), Some(at("2026-01-02T00:01:30Z")));
    assert_eq!(next("2026-01-02T00:01:30Z"), None, "nothing is due at the end or after it");
    let end_of_time = Timestamp::from_ms(i64::MAX);
    assert_eq!(plan.next_after(Some(last), end_of_time), None);
    assert_eq!(Plan::of(&cron("* * * * *", "UTC", "")).unwrap().next_after(None, end_of_time), None);
}

#[test]
fn starts_and_ends_bound_crons_too() {
    let more = r#","start_at":"2026-01-02T00:00:00Z","end_at":"2026-01-04T00:00:00Z""#;
    let found = due(&cron("@daily", "UTC", more), "2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    assert_eq!(found, ["2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"]);
}

#[test]
fn counting_agrees_with_listing_also_where_the_clocks_change() {
    for zone in ZONES {
        for (expression, more) in [
            ("*/7 * * * *", ""),
            ("30 0-3 * * *", ""),
            ("30 0-3 * * *", r#","dst_fold":"both""#),
            ("15,45 * * * *", r#","dst_gap":"skip","dst_fold":"first""#),
        ] {
            let plan = Plan::of(&cron(expression, zone, more)).unwrap();
            let first = plan.next_after(None, at("2026-02-20T00:00:00Z")).unwrap();
            let mut all = vec![first];
            while all.last().unwrap() < &at("2026-04-20T00:00:00Z") {
                let last = *all.last().unwrap();
                all.push(plan.next_after(Some(last), last).unwrap());
                if all.len() % 97 == 0 {
                    assert_eq!(
                        plan.count(first, *all.last().unwrap()),
                        all.len() as u64,
                        "{expression} {zone}"
                    );
                }
            }
            let until = *all.last().unwrap();
            assert_eq!(plan.count(first, until), all.len() as u64, "{expression} {zone} {until}");
            assert_eq!(plan.newest(first, until, 40), all[all.len() - 40..], "{expression} {zone}");
            assert_eq!(plan.newest(first, until, u64::MAX), all, "{expression} {zone}");
        }
    }
}

proptest! {
    /// Text that looks like an expression is refused, or fires after any instant that is asked about.
    #[test]
    fn task_t37_whatever_is_taken_fires_again_and_again(
        seconds in "|0 |\\*/[1-9] ",
        minute in "\\*|\\*/[1-9]|[1-5]?[0-9]|[0-9],[1-5][0-9]|[0-9]-[1-5][0-9]/[1-9]",
        hour in "\\*|\\*/[1-9]|1?[0-9]|2[0-3]|[0-4]-1[0-9]|[0-3],[0-3]",
        day in "\\*|\\*/[1-9]|[1-9]|[12][0-9]|30|31|[1-9]W|2[0-9]W|L|LW|\\?",
        month in "\\*|[1-9]|1[0-2]|JAN-JUN|\\*/[2-4]|feb",
        weekday in "\\*|[0-7]|MON-FRI|[0-7]L|[0-7]#[1-5]|FRI-SUN|\\*/[2-7]",
        zone in sample::select(&ZONES[..]),
        now in 0_i64..4_102_444_800_000,
        policies in sample::select(&["", r#","dst_gap":"skip","dst_fold":"first""#, r#","dst_fold":"both""#][..]),
    ) {
        let expression = format!("{seconds}{minute} {hour} {day} {month} {weekday}");
        if let Err(error) = Cron::parse(&expression) {
            prop_assert!(error.expected.contains("a day that some year has"), "{error}");
        } else {
            let plan = Plan::of(&cron(&expression, zone, policies)).unwrap();
            let mut now = Timestamp::from_ms(now);
            let first = plan.next_after(None, now).unwrap();
            for number in 1..=5 {
                let next = plan.next_after(Some(now), now);
                prop_assert!(next.is_some_and(|next| next > now), "{expression} in {zone} after {now}");
                now = next.unwrap();
                prop_assert_eq!(plan.count(first, now), number, "{} in {} up to {}", expression, zone, now);
            }
        }
    }

    /// No text makes the reader panic.
    #[test]
    fn whatever_is_no_expression_is_refused(text in any::<String>(), column in 0_usize..30) {
        let mut mixed = "*/5 0-3 1,L * MON#2".to_owned();
        mixed.insert_str(column.min(mixed.len()), &text);
        for text in [text.as_str(), mixed.as_str()] {
            if let Err(error) = Cron::parse(text) {
                prop_assert!(error.column >= 1 && !error.expected.is_empty());
            }
        }
    }
}
