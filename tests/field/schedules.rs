//! S: schedules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use serde_json::json;
use tenure::clock::ManualClock;
use tenure::model::{MisfirePolicy, SchedulePlace, TaskSpec, Timestamp};
use tenure::store::{MemoryStore, PageRequest, Store};
use tenure::testkit::{Gate, Script, TestHost};
use tenure::{Deletion, Settings, Tenure};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn field_s01_a_night_off_is_caught_up_by_policy_and_recorded() {
    for (policy, runs) in [("skip_missed", 0), ("run_once", 1), ("queue_all", 25)] {
        let host = host().await;
        let schedule = json!({ "type": "cron", "expression": "* * * * *", "misfire_policy": policy });
        host.task(task(json!({ "overlap_policy": "allow_parallel", "schedule": schedule }))).await;
        host.shutdown().await.unwrap();
        host.advance(8 * HOUR + 5 * SECOND).await;
        let next = host.another().await;
        let agent = next.agent("agent", Script::new().answers("done"));
        next.drain().await;
        let seen = next.see("t").await;
        assert_eq!(seen.occurrences.iter().map(|occurrence| occurrence.count).sum::<u64>(), 480, "{policy}");
        // The last one is five seconds late only, and no misfire.
        let runs = if policy == "skip_missed" { runs + 1 } else { runs };
        assert_eq!(agent.calls().len(), runs, "{policy}");
        next.advance(MINUTE).await;
        assert_eq!(agent.calls().len(), runs + 1, "{policy}: and it fires again in the next minute");
    }
}

#[tokio::test(start_paused = true)]
async fn field_s02_what_is_skipped_for_its_lateness_is_visible() {
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    let schedule = json!({ "type": "cron", "expression": "@daily", "misfire_policy": "skip_missed",
        "misfire_grace_seconds": 10 });
    host.task(task(json!({ "schedule": schedule }))).await;
    host.advance(DAY - 5 * SECOND).await;
    host.cut_off();
    host.advance(20 * SECOND).await;
    host.reconnect();
    host.advance(DAY).await;
    host.see("t").await.assert_occurrences("skipped: missed, ran");
}

#[tokio::test(start_paused = true)]
async fn field_s03_an_occurrence_in_a_restart_runs_and_says_how_late() {
    let host = host().await;
    host.task(task(json!({ "schedule": cron("0 3 * * *") }))).await;
    host.advance(3 * HOUR - 10 * SECOND).await;
    host.shutdown().await.unwrap();
    host.advance(50 * SECOND).await;
    let next = host.another().await;
    next.agent("agent", Script::new().answers("done"));
    next.drain().await;
    let seen = next.see("t").await;
    seen.assert_occurrences("ran").assert_statuses("completed");
    assert_eq!(seen.run(1).run.spec.late_by_ms, 40_000);
}

#[tokio::test(start_paused = true)]
async fn field_s04_a_weekly_interval_survives_daily_restarts() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    for _ in 0..14 {
        // What every deploy declares.
        host.task(task(json!({ "schedule": every(7 * 86_400) }))).await;
        host.advance(DAY - MINUTE).await;
        host.shutdown().await.unwrap();
        host.advance(MINUTE).await;
        let next = host.another().await;
        next.agent("agent", &agent);
        host = next;
    }
    host.drain().await;
    assert_eq!(agent.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn field_s05_each_run_goes_to_a_host_that_can_execute_it() {
    let a = host().await;
    let b = a.another().await;
    let (left, right) = (a.agent("left", Script::new().echoes()), b.agent("right", Script::new().echoes()));
    a.task(task(json!({ "task_id": "l", "agent_id": "left", "schedule": every(60) }))).await;
    b.task(task(json!({ "task_id": "r", "agent_id": "right", "schedule": every(60) }))).await;
    a.advance(10 * MINUTE).await;
    assert_eq!((left.calls().len(), right.calls().len()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn field_s06_two_schedulers_fire_each_occurrence_once() {
    let a = host().await;
    let b = a.another().await;
    let agent = a.agent("agent", Script::new().answers("done"));
    b.agent("agent", &agent);
    a.task(task(json!({ "schedule": every(60) }))).await;
    a.advance(100 * MINUTE).await;
    a.see("t").await.assert_count("completed", 100).assert_occurrences(&["ran"; 100].join(", "));
    assert_eq!(agent.calls().len(), 100);
}

/// Counts what is counted while it is the recorder of a thread.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counters {
    fn of(&self, name: &str) -> u64 {
        self.0.lock().get(name).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().entry(key.name().to_owned()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn field_s07_the_history_shows_who_fired_and_who_came_second_counts_that() {
    let counted = Counters::default();
    let _counts = metrics::set_default_local_recorder(&counted);
    let a = host().await;
    let b = a.another().await;
    a.task(task(json!({ "schedule": every(60) }))).await;
    a.advance(50 * MINUTE).await;
    let seen = a.see("t").await;
    let hosts = [a.instance_id(), b.instance_id()];
    assert!(seen.occurrences.iter().all(|occurrence| hosts.contains(&occurrence.recorded_by)));
    assert_eq!(seen.occurrences.len(), 50);
    // Now and then the slower one looks when it is over.
    let forestalled = counted.of("tenure_firings_forestalled_total");
    assert!((25..=50).contains(&forestalled), "{forestalled} of 50 were tried by both");
}

#[test]
fn field_s08_concurrent_declarations_leave_one_next_occurrence() {
    with_each_seed(as_many(1000, 50), |seed| async move {
        let settings = Settings { seed: Some(seed), ..TestHost::settings() };
        let a = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
        let b = a.another().await;
        let agent = a.agent("agent", Script::new().answers("done"));
        let declared = |query: &str| task(json!({ "query": query, "schedule": every(60) }));
        a.task(declared("0")).await;
        a.advance(MINUTE - SECOND / 1000 * (seed % 5) as u32).await;
        tokio::join!(
            a.task(declared("1")),
            b.task(declared("2")),
            a.task(declared("1")),
            b.task(declared("2")),
            a.task(declared("1")),
            b.task(declared("2")),
            a.task(declared("1")),
            b.task(declared("2")),
            a.advance(SECOND)
        );
        a.advance(MINUTE).await;
        let seen = a.see("t").await;
        let Some((_, state)) = &seen.task else { panic!("{seen}") };
        assert!(matches!(state.place, SchedulePlace::Waiting { .. }), "seed {seed}: {state:?}");
        assert_eq!((seen.occurrences.len(), agent.calls().len()), (2, 2), "seed {seed}\n{seen}");
    });
}

#[tokio::test(start_paused = true)]
async fn field_s09_a_series_goes_on_whatever_becomes_of_its_runs() {
    let a = host().await;
    let b = a.another().await;
    a.agent("agent", Script::new().hangs());
    a.task(task(json!({ "schedule": every(60), "overlap_policy": "allow_parallel" }))).await;
    a.advance(MINUTE).await;
    a.kill();
    b.advance(9 * MINUTE).await;
    b.see("t").await.assert_occurrences(&["ran"; 10].join(", "));
}

#[tokio::test(start_paused = true)]
async fn field_s10_a_schedule_whose_task_is_deleted_stops() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "schedule": every(60) }))).await;
    host.advance(3 * MINUTE).await;
    host.delete_task(&name("t"), Deletion::Cancel).await.unwrap();
    host.advance(DAY).await;
    assert_eq!(agent.calls().len(), 3);
    assert_eq!(host.tasks(PageRequest::default()).await.unwrap().items.len(), 0);
    host.see("t").await.assert_occurrences("ran, ran, ran");
}

#[tokio::test(start_paused = true)]
async fn field_s12_two_seconds_late_by_default_runs() {
    assert_eq!(spec_of(json!({ "schedule": every(60) })).schedule.misfire_policy, MisfirePolicy::RunOnce);
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "schedule": every(60) }))).await;
    host.advance(59 * SECOND).await;
    host.cut_off();
    host.advance(3 * SECOND).await;
    host.reconnect();
    host.advance(2 * SECOND).await;
    host.see("t").await.assert_occurrences("ran").assert_statuses("completed");
}

fn spec_of(fields: serde_json::Value) -> TaskSpec {
    TaskSpec::parse(&task(fields).to_string()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn field_s13_what_waits_for_a_longer_run_starts_when_that_ends() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(65 * SECOND).answers("done"));
    host.task(task(json!({ "schedule": every(60), "overlap_policy": "queue_next" }))).await;
    host.advance(3 * MINUTE).await;
    let calls = agent.calls();
    assert_eq!(calls[1].at.since(calls[0].at), 65 * SECOND);
    let second = calls[1].run_id.clone();
    let seen = host.see("t").await;
    let run = &seen.runs.iter().find(|run| run.run.run_id == second).unwrap().run;
    assert_eq!(run.started_at.unwrap().since(run.spec.first_due_at), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn field_s14_a_long_jitter_does_not_outlast_short_uptimes() {
    let mut host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let schedule = json!({ "type": "cron", "expression": "@daily", "jitter_seconds": 43_200 });
    host.task(task(json!({ "schedule": schedule }))).await;
    host.shutdown().await.unwrap();
    for _ in 0..5 {
        host.advance(22 * HOUR).await;
        let next = host.another().await;
        next.agent("agent", &agent);
        next.advance(2 * HOUR).await;
        next.shutdown().await.unwrap();
        host = next;
    }
    assert!(agent.calls().len() >= 3, "{} runs in five days", agent.calls().len());
}

#[tokio::test(start_paused = true)]
async fn field_s15_a_clock_that_jumps_is_the_same_as_downtime() {
    let start = Timestamp::from_ms(1_767_225_600_000);
    let clock = Arc::new(ManualClock::at(start));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn tenure::clock::Clock>));
    let settings = Settings { heartbeat_thread: false, ..Settings::default() };
    let tenure = Tenure::open(Arc::clone(&store) as Arc<dyn Store>, settings).await.unwrap();
    tenure.create_task(spec_of(json!({ "schedule": every(3600) }))).await.unwrap();
    tokio::time::advance(5 * SECOND).await;
    clock.set(start.plus(10 * HOUR + MINUTE));
    let mut events = tenure.follow(tenure::model::Subject::All, 0);
    while events.next().await.unwrap().run_id.is_none() {}
    let page = tenure.occurrences(&name("t"), PageRequest::default()).await.unwrap();
    assert_eq!(page.items.len(), 10);
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn field_s16_missed_schedules_are_spread_when_the_scheduler_returns() {
    let host = host().await;
    let schedule = json!({ "type": "cron", "expression": "@hourly", "catch_up_spread_seconds": 600 });
    for n in 0..200 {
        host.task(task(json!({ "task_id": format!("t{n}"), "schedule": schedule }))).await;
    }
    host.shutdown().await.unwrap();
    host.advance(HOUR + 30 * MINUTE).await;
    let next = host.another().await;
    let gate = Gate::new();
    gate.open();
    let agent = next.agent("agent", Script::new().waits_at(&gate).answers("done"));
    let back = next.now().await;
    next.advance(11 * MINUTE).await;
    let mut by_minute = [0; 11];
    for call in agent.calls() {
        by_minute[usize::try_from(call.at.since(back).as_secs() / 60).unwrap()] += 1;
    }
    assert_eq!(by_minute.iter().sum::<usize>(), 200);
    assert!(by_minute[..10].iter().all(|many| (5..=40).contains(many)), "{by_minute:?}");
}
