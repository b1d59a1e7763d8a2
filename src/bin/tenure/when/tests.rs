//! Tables of what people write. It is Wednesday 2026-11-25, 14:00 in Berlin.

use std::fmt::Write as _;

use jiff::Zoned;

use super::{Toward, instant, length, some_length};

fn now() -> Zoned {
    "2026-11-25T14:00:00+01:00[Europe/Berlin]".parse().unwrap()
}

fn instants(toward: Toward, texts: &[&str]) -> String {
    let now = now();
    let mut table = String::new();
    for text in texts {
        let shown = match instant(text, &now, toward) {
            Ok(found) => found.to_zoned(now.time_zone().clone()).strftime("%a %F %T %:z").to_string(),
            Err(error) => without_examples(&error.to_string()),
        };
        writeln!(table, "{text:?} = {shown}").unwrap();
    }
    table
}

fn without_examples(message: &str) -> String {
    message.split("; write for example").next().unwrap_or_default().to_owned()
}

#[test]
fn every_refusal_comes_with_examples() {
    let examples = |message: String| message.split_once("; write for example ").unwrap().1.to_owned();
    assert_eq!(examples(length("x").unwrap_err().to_string()), r#""30s", "5m", "1h30m", "2 days""#);
    let future = instant("x", &now(), Toward::Future).unwrap_err().to_string();
    assert_eq!(examples(future), r#""in 10m", "tomorrow 09:00", "monday 9:00", "2026-12-01 09:00""#);
    let past = instant("x", &now(), Toward::Past).unwrap_err().to_string();
    assert_eq!(examples(past), r#""2h", "yesterday 18:00", "monday 9:00", "2026-12-01 09:00""#);
}

#[test]
fn lengths_are_read_as_people_write_them() {
    let texts = [
        "5m", "1h30m", "1h 30m", "90", "0.5", "1.5h", "2 days", "1d", "1w", "250ms", "PT5M", "1H", " 5m ",
        "0s",
    ];
    let mut table = String::new();
    for text in texts {
        writeln!(table, "{text:?} = {:?}", length(text).unwrap()).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn what_is_no_length_is_refused_with_the_column() {
    let texts = [
        "",
        " ",
        "m",
        "5",
        "5x",
        "1h30",
        "1h 30x",
        "-5m",
        "5m ago",
        "1 month",
        "2 years",
        "five minutes",
        "5m5m",
        "1e9s",
        "999999999999999999999s",
        "200000 weeks",
        "5 m !",
        "\u{1F980}",
        "1..5s",
        "0x10",
        "5m\0",
    ];
    let mut table = String::new();
    for text in texts {
        let shown = length(text)
            .map_or_else(|error| without_examples(&error.to_string()), |length| format!("{length:?}"));
        writeln!(table, "{text:?} = {shown}").unwrap();
    }
    insta::assert_snapshot!(table);
    assert!(some_length("0").is_err() && some_length("1ms").is_ok() && some_length("0.0001s").is_err());
}

#[test]
fn times_to_come_are_read_as_people_write_them() {
    let texts = [
        "now",
        "in 10m",
        "in 1h 30m",
        "10m",
        "today 18:00",
        "today",
        "tomorrow 09:00",
        "tomorrow at 9am",
        "Tomorrow",
        "tomorrow noon",
        "monday 9:00",
        "wed 15:00",
        "wed 13:00",
        "wednesday",
        "Sunday at 23:59:59",
        "18:00",
        "9:00",
        "12am",
        "12pm",
        "2026-12-01",
        "2026-12-01 09:00",
        "2026-12-01T09:00",
        "2026-12-01 at 9:30pm",
        "2026-12-01T09:00:00Z",
        "2026-12-01 09:00:00+05:30",
        "2026-12-01T09:00[Asia/Tokyo]",
        "2027-03-28 02:30",
        "2026-10-25 02:30",
        " in  5m ",
    ];
    insta::assert_snapshot!(instants(Toward::Future, &texts));
}

#[test]
fn times_that_were_are_read_as_people_write_them() {
    let texts = [
        "2h",
        "2h ago",
        "30d",
        "yesterday 18:00",
        "yesterday",
        "today",
        "monday 9:00",
        "wed 15:00",
        "9:00",
        "18:00",
    ];
    insta::assert_snapshot!(instants(Toward::Past, &texts));
}

#[test]
fn what_is_no_time_is_refused_with_the_column() {
    let texts = [
        "",
        "tomorow 09:00",
        "tomorrow 25:00",
        "tomorrow at",
        "tomorrow 9",
        "tomorrow 9:00 sharp",
        "in",
        "in a while",
        "in 5x",
        "in -5m",
        "now then",
        "monday 9:60",
        "13pm",
        "0am",
        "9:0",
        "2026-13-01",
        "2026-02-29 09:00",
        "2026-12-01 9:00Z",
        "2026-12-01T25:00",
        "2026-12-01T09:00 10:00",
        "12-01-2026",
        "in 99 years",
        "in 100000 weeks",
        "\u{1F980} 9:00",
        "::",
        "99999-01-01",
        "2026-12-01T09:00:00Z extra",
        "ago",
        "x ago",
        "9999-12-31 23:59",
    ];
    insta::assert_snapshot!(instants(Toward::Future, &texts));
}
