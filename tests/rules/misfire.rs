//! What becomes of occurrences that are due.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tenure::model::{Schedule, SchedulePlace, ScheduleState, SkipReason, TaskId, Timestamp};
use tenure::rules::{Fate, Firing, Look, MOST_RECORDS, Plan, begin, failing, fire, replace};

use crate::zones::{at, cron};

fn schedule(json: &str) -> Schedule {
    serde_json::from_str(json).unwrap()
}

fn task(name: &str) -> TaskId {
    TaskId::new(name.to_owned()).unwrap()
}

/// A schedule, its place, and the clock.
struct Scene {
    schedule: Schedule,
    plan: Plan,
    state: ScheduleState,
}

impl Scene {
    fn new(schedule: Schedule, task_id: &str, now: &str) -> Self {
        let plan = Plan::of(&schedule).unwrap();
        let state = begin(&schedule, &task(task_id), 1, at(now)).unwrap();
        Self { schedule, plan, state }
    }

    fn look(&mut self, look: Look<'_>) -> Firing {
        let firing = fire(&self.plan, &self.schedule, &self.state, look);
        assert_eq!(firing.next.version, self.state.version + 1);
        assert!(firing.due.is_sorted_by_key(|due| due.due_at));
        if let SchedulePlace::Waiting { due_at, fire_at } = firing.next.place {
            assert!(fire_at > look.now && fire_at >= due_at, "it would fire again at once");
        }
        self.state = firing.next.clone();
        firing
    }

    fn at(&mut self, now: &str) -> Firing {
        self.look(Look::at(at(now)))
    }
}

/// The fates of what is due, counted, with the last in full.
fn summary(firing: &Firing) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for due in &firing.due {
        let fate = match &due.fate {
            Fate::Runs { .. } => "run",
            Fate::Coalesced { .. } => "coalesced",
            Fate::Skipped(SkipReason::Missed) => "missed",
            Fate::Skipped(SkipReason::PastWindow) => "past window",
            Fate::Skipped(SkipReason::PastLimit) => "past limit",
            Fate::Skipped(SkipReason::Paused) => "paused",
            Fate::Skipped(SkipReason::Overlap { .. }) => unreachable!("the caller's to decide"),
        };
        *counts.entry(fate).or_default() += due.count;
    }
    let counts: Vec<String> = counts.iter().map(|(fate, count)| format!("{count} {fate}")).collect();
    format!("{:44} next {}", counts.join(", "), next(&firing.next))
}

fn next(state: &ScheduleState) -> String {
    match &state.place {
        SchedulePlace::Idle => "never".to_owned(),
        SchedulePlace::Waiting { due_at, .. } => due_at.to_string(),
        SchedulePlace::Failing { retry_at, .. } => format!("try at {retry_at}"),
    }
}

#[test]
fn task_t32_what_was_missed_by_policy_and_lateness() {
    let mut table = String::new();
    for policy in ["run_once", "skip_missed", "queue_all"] {
        for (what, more) in [
            ("", ""),
            (", limit 3", r#","catch_up_limit":3"#),
            (", window 5 min", r#","catch_up_window_seconds":300"#),
            (", grace 0", r#","misfire_grace_seconds":0"#),
        ] {
            writeln!(table, "{policy}{what}").unwrap();
            for now in [
                "00:01:00",
                "00:01:00.001",
                "00:01:02",
                "00:02:00",
                "00:02:00.001",
                "00:04:30",
                "00:10:00",
                "08:00:00",
            ] {
                for paused in [None, Some(at("2026-01-01T00:01:30Z"))] {
                    let more = format!(r#","misfire_policy":"{policy}"{more}"#);
                    let mut scene = Scene::new(cron("* * * * *", "UTC", &more), "t", "2026-01-01T00:00:00Z");
                    let now_at = at(&format!("2026-01-01T{now}Z"));
                    if paused.is_some_and(|paused| paused > now_at) {
                        continue;
                    }
                    let firing = scene.look(Look { now: now_at, paused_since: paused, recorded: &[] });
                    let paused = if paused.is_some() { "paused from 00:01:30" } else { "" };
                    writeln!(table, "  {now:12} {paused:20} {}", summary(&firing)).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn field_s1_a_night_of_missed_minutes_leaves_480_records_and_fires_in_the_next_minute() {
    for policy in ["run_once", "skip_missed", "queue_all"] {
        let more = format!(r#","misfire_policy":"{policy}""#);
        let mut scene = Scene::new(cron("* * * * *", "UTC", &more), "t", "2026-01-01T00:00:00Z");
        let firing = scene.at("2026-01-01T08:00:30Z");
        assert_eq!(firing.due.len(), 480, "{policy}");
        assert!(firing.due.iter().all(|due| due.count == 1));
        assert_eq!(next(&firing.next), "2026-01-01T08:01:00.000Z");
        let again = scene.at("2026-01-01T08:01:00Z");
        assert_eq!(again.due.len(), 1);
        assert_eq!(again.due[0].fate, Fate::Runs { not_before: at("2026-01-01T08:01:00Z") });
    }
}

#[test]
fn task_t33_ten_years_of_every_second_cost_bounded_time_and_records() {
    for json in [
        r#"{"type":"interval","seconds":1,"misfire_policy":"queue_all"}"#,
        r#"{"type":"cron","expression":"* * * * * *","misfire_policy":"queue_all"}"#,
        r#"{"type":"cron","expression":"* * * * * *","timezone":"Europe/Berlin","misfire_policy":"run_once"}"#,
    ] {
        let mut scene = Scene::new(schedule(json), "t", "2026-01-01T00:00:00Z");
        let firing = scene.at("2036-01-01T00:00:00Z");
        assert_eq!(firing.due.len() as u64, MOST_RECORDS + 1);
        let total: u64 = firing.due.iter().map(|due| due.count).sum();
        assert_eq!(total, 3652 * 86_400, "{json}");
        assert_eq!(firing.due[0].due_at.plus(Duration::from_secs(1)), firing.due[1].due_at);
        let runs = firing.due.iter().filter(|due| matches!(due.fate, Fate::Runs { .. })).count();
        assert!((1..=61).contains(&runs), "{runs}");
    }
}

#[test]
fn field_s12_two_seconds_late_runs_under_every_policy() {
    for policy in ["run_once", "skip_missed", "queue_all"] {
        let more = format!(r#","misfire_policy":"{policy}""#);
        let mut scene = Scene::new(cron("@daily", "UTC", &more), "t", "2026-01-01T12:00:00Z");
        let firing = scene.at("2026-01-02T00:00:02Z");
        assert!(
            matches!(firing.due[..], [ref due] if matches!(due.fate, Fate::Runs { .. }) && due.late_by_ms == 2000)
        );
    }
}

#[test]
fn task_t32_once_always_runs_however_late_and_then_never_again() {
    for policy in ["run_once", "skip_missed", "queue_all"] {
        let json = format!(
            r#"{{"type":"once","run_at":"2026-01-01T00:00:00Z","misfire_policy":"{policy}",
                "catch_up_window_seconds":1}}"#
        );
        let mut scene = Scene::new(schedule(&json), "t", "2020-01-01T00:00:00Z");
        let look = Look {
            now: at("2036-01-01T00:00:00Z"),
            paused_since: Some(at("2021-01-01T00:00:00Z")),
            recorded: &[],
        };
        assert!(matches!(scene.look(look).due[..], [ref due] if matches!(due.fate, Fate::Runs { .. })));
        assert_eq!(scene.state.place, SchedulePlace::Idle);
        assert!(scene.at("2037-01-01T00:00:00Z").due.is_empty());
        // One that was past when it was stored runs as well.
        assert_eq!(
            Scene::new(schedule(&json), "t", "2030-01-01T00:00:00Z").at("2030-01-01T00:00:00Z").due.len(),
            1
        );
    }
}

#[test]
fn task_t33_what_is_caught_up_is_spread_and_stable() {
    let more = r#","misfire_policy":"queue_all","catch_up_limit":10,"catch_up_spread_seconds":100,
        "misfire_grace_seconds":1"#;
    let begins = |name: &str| -> Vec<u64> {
        let mut scene = Scene::new(cron("* * * * *", "UTC", more), name, "2026-01-01T00:00:00Z");
        let now = at("2026-01-01T01:00:30Z");
        let due = scene.look(Look::at(now)).due;
        let runs = due.iter().filter_map(|due| match due.fate {
            Fate::Runs { not_before } => Some(not_before.since(now).as_millis() as u64),
            _ => None,
        });
        runs.collect()
    };
    let begun = begins("t");
    assert_eq!(begun.len(), 10);
    assert!(
        begun.iter().enumerate().all(|(n, ms)| (n as u64 * 10_000..(n as u64 + 1) * 10_000).contains(ms))
    );
    assert_eq!(begins("t"), begun);
    assert_ne!(begins("u"), begun);
}

#[test]
fn field_s16_two_hundred_schedules_do_not_start_in_the_same_second() {
    let mut seconds: BTreeMap<u64, u32> = BTreeMap::new();
    let now = at("2026-01-03T00:00:00.5Z");
    for number in 0..200 {
        let more = r#","catch_up_spread_seconds":100"#;
        let mut scene =
            Scene::new(cron("0 12 * * *", "UTC", more), &format!("task-{number}"), "2026-01-02T00:00:00Z");
        match scene.look(Look::at(now)).due[..] {
            [ref due] => match due.fate {
                Fate::Runs { not_before } => {
                    *seconds.entry(not_before.since(now).as_secs()).or_default() += 1
                }
                _ => unreachable!("run_once"),
            },
            _ => unreachable!("one was missed"),
        }
    }
    assert!(seconds.len() > 70 && *seconds.values().max().unwrap() <= 8, "{seconds:?}");
}

#[test]
fn task_t34_jitter_is_stable_bounded_and_does_not_accumulate() {
    let plain = cron("*/10 * * * *", "UTC", "");
    let jittered = cron("*/10 * * * *", "UTC", r#","jitter_seconds":3600"#);
    let mut scene = Scene::new(jittered.clone(), "t", "2026-01-01T00:00:00Z");
    let mut due_of_plain = at("2026-01-01T00:00:00Z");
    let mut delays = Vec::new();
    for _ in 0..500 {
        due_of_plain = Plan::of(&plain).unwrap().next_after(None, due_of_plain).unwrap();
        let SchedulePlace::Waiting { due_at, fire_at } = scene.state.place else {
            unreachable!("it goes on")
        };
        assert_eq!(due_at, due_of_plain, "the due times are those without jitter");
        assert!(fire_at.since(due_at) < Duration::from_secs(600), "never past the next one");
        delays.push(fire_at.since(due_at).as_secs());
        // Not a millisecond early, and on time whatever the delay was.
        assert!(scene.look(Look::at(Timestamp::from_ms(fire_at.ms() - 1))).due.is_empty());
        let firing = scene.look(Look::at(fire_at));
        assert!(matches!(firing.due[..], [ref due] if due.fate == Fate::Runs { not_before: fire_at }));
    }
    delays.sort_unstable();
    assert!(delays[0] < 20 && delays[250].abs_diff(300) < 60 && delays[499] > 580, "{delays:?}");
    let again = begin(&jittered, &task("t"), 1, at("2026-01-01T00:00:00Z")).unwrap();
    let other = begin(&jittered, &task("u"), 1, at("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(again, begin(&jittered, &task("t"), 1, at("2026-01-01T00:09:59Z")).unwrap());
    assert_ne!(again.place, other.place);
}

#[test]
fn field_s14_a_late_occurrence_is_not_delayed_again() {
    let mut scene =
        Scene::new(cron("@daily", "UTC", r#","jitter_seconds":43200"#), "t", "2026-01-01T00:00:01Z");
    let mut runs = 0;
    // The machine is on for two hours a day, in the evening.
    for day in 2..7 {
        let looked = scene.at(&format!("2026-01-0{day}T20:00:00Z"));
        runs += looked.due.iter().filter(|due| matches!(due.fate, Fate::Runs { .. })).count();
    }
    assert_eq!(runs, 5);
}

#[test]
fn task_t30_a_schedule_goes_on_past_occurrences_that_have_a_record() {
    let mut scene = Scene::new(cron("* * * * *", "UTC", ""), "t", "2026-01-01T00:00:00Z");
    let recorded = [at("2026-01-01T00:01:00Z"), at("2026-01-01T00:02:00Z")];
    let firing =
        scene.look(Look { now: at("2026-01-01T00:02:10Z"), paused_since: None, recorded: &recorded });
    assert!(firing.due.is_empty());
    assert_eq!(next(&firing.next), "2026-01-01T00:03:00.000Z");
}

#[test]
fn a_clock_that_goes_back_fires_nothing_twice() {
    let mut scene = Scene::new(cron("* * * * *", "UTC", ""), "t", "2026-01-01T00:00:00Z");
    assert_eq!(scene.at("2026-01-01T00:01:00Z").due.len(), 1);
    assert!(scene.at("2025-12-31T23:00:00Z").due.is_empty());
    assert_eq!(next(&scene.state), "2026-01-01T00:02:00.000Z");
}

#[test]
fn task_t35_only_other_instants_move_a_schedule() {
    let week = r#"{"type":"interval","seconds":604800"#;
    let old = schedule(&format!("{week}}}"));
    let state = begin(&old, &task("t"), 7, at("2026-01-01T00:00:00Z")).unwrap();
    let now = at("2026-01-05T00:00:00Z");
    for same in
        [r#""#, r#","misfire_policy":"queue_all","catch_up_limit":3"#, r#","misfire_grace_seconds":1"#]
    {
        let new = schedule(&format!("{week}{same}}}"));
        assert_eq!(replace(&old, &new, &state, now).unwrap(), None, "{same}");
    }
    let other =
        replace(&old, &schedule(r#"{"type":"interval","seconds":60}"#), &state, now).unwrap().unwrap();
    assert_eq!((other.version, next(&other).as_str()), (8, "2026-01-05T00:01:00.000Z"));
    let manual = replace(&old, &schedule(r#"{"type":"manual"}"#), &state, now).unwrap().unwrap();
    assert_eq!(manual.place, SchedulePlace::Idle);
}

#[test]
fn field_s4_a_weekly_interval_survives_daily_restarts() {
    let mut scene =
        Scene::new(schedule(r#"{"type":"interval","seconds":604800}"#), "t", "2026-01-01T00:00:00Z");
    let mut runs = 0;
    for day in 1..=15 {
        runs += scene.at(&format!("2026-01-{day:02}T03:00:00Z")).due.len();
    }
    assert_eq!(runs, 2);
}

#[test]
fn task_t36_a_schedule_that_cannot_fire_is_tried_ever_more_rarely_and_loses_nothing() {
    let mut scene = Scene::new(cron("* * * * *", "UTC", ""), "t", "2026-01-01T00:00:00Z");
    scene.at("2026-01-01T00:01:00Z");
    let mut table = String::new();
    let mut now = at("2026-01-01T00:02:00Z");
    for _ in 0..12 {
        scene.state = failing(&scene.state, "the zone \"Mars/Base\" is not known", now);
        let SchedulePlace::Failing { since, tries, retry_at, .. } = &scene.state.place else {
            unreachable!("it is failing")
        };
        writeln!(table, "{tries:2} since {since}, again after {} s", retry_at.since(now).as_secs()).unwrap();
        now = *retry_at;
    }
    writeln!(table, "then {}", summary(&scene.look(Look::at(now)))).unwrap();
    insta::assert_snapshot!(table);
}

#[test]
fn task_t36_not_even_the_first_occurrence_is_lost() {
    for json in [
        r#"{"type":"cron","expression":"* * * * *"}"#,
        r#"{"type":"interval","seconds":60}"#,
        r#"{"type":"once","run_at":"2026-01-01T00:01:00Z"}"#,
    ] {
        let mut scene = Scene::new(schedule(json), "t", "2026-01-01T00:00:00Z");
        for now in ["2026-01-01T00:01:03Z", "2026-01-01T00:01:13Z"] {
            scene.state = failing(&scene.state, "no", at(now));
        }
        let firing = scene.at("2026-01-01T00:01:33Z");
        assert_eq!(firing.due.iter().map(|due| due.due_at).collect::<Vec<_>>(), [at("2026-01-01T00:01:00Z")]);
    }
}
