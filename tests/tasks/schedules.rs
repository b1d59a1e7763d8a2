//! Schedules under hosts: one run for each occurrence, a record for each, places that are kept.

use serde_json::json;
use tenure::Deletion;
use tenure::model::{Event, EventKind, SchedulePlace, TaskPatch, Timestamp};
use tenure::store::{Decision, Store, TaskChange, TaskWrite};
use tenure::testkit::{Script, Seen};

use crate::kit::*;

/// When its occurrences were due, in seconds since the start.
fn due(seen: &Seen) -> Vec<u64> {
    let start = Timestamp::from_ms(1_767_225_600_000);
    seen.occurrences.iter().map(|occurrence| occurrence.due_at.since(start).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn task_t30_each_occurrence_has_one_run_whoever_asks() {
    let a = host().await;
    let (b, c) = (a.another().await, a.another().await);
    let agent = a.agent("agent", Script::new().answers("done"));
    a.task(task(json!({ "schedule": every(60) }))).await;
    a.advance(20 * MINUTE).await;
    let seen = a.see("t").await;
    seen.assert_count("completed", 20).assert_occurrences(&["ran"; 20].join(", "));
    assert_eq!(agent.calls().len(), 20);
    drop((b, c));
}

#[tokio::test(start_paused = true)]
async fn task_t30_an_occurrence_is_remembered_though_its_task_was_deleted() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    let fields = json!({ "schedule": { "type": "once", "run_at": "2026-01-01T01:00:00Z" } });
    host.task(task(fields.clone())).await;
    host.advance(HOUR).await;
    assert_eq!(agent.calls().len(), 1);
    host.delete_task(&name("t"), Deletion::Cancel).await.unwrap();
    host.task(task(fields)).await;
    host.advance(DAY).await;
    assert_eq!(agent.calls().len(), 1, "the same instant of the same task ran before");
    host.see("t").await.assert_occurrences("ran");
}

#[tokio::test(start_paused = true)]
async fn task_t31_each_due_occurrence_leaves_a_record() {
    let host = host().await;
    host.agent("agent", Script::new().takes(150 * SECOND).answers("done"));
    host.task(task(json!({ "schedule": every(60) }))).await;
    host.advance(6 * MINUTE).await;
    let seen = host.see("t").await;
    seen.assert_occurrences(
        "ran, skipped: overlap, skipped: overlap, ran, skipped: overlap, skipped: overlap",
    );
    assert_eq!(due(&seen), [60, 120, 180, 240, 300, 360]);
}

/// What a policy makes of ten minutes in which nobody was there.
async fn after_downtime(policy: &str) -> Seen {
    let host = host().await;
    host.task(task(
        json!({ "overlap_policy": "allow_parallel", "schedule": { "type": "interval", "seconds": 120,
        "misfire_policy": policy } }),
    ))
    .await;
    host.shutdown().await.unwrap();
    host.advance(10 * MINUTE + 90 * SECOND).await;
    let next = host.another().await;
    next.agent("agent", Script::new().answers("done"));
    next.drain().await;
    next.see("t").await
}

#[tokio::test(start_paused = true)]
async fn task_t32_what_was_missed_follows_the_policy() {
    let once = after_downtime("run_once").await;
    once.assert_occurrences("coalesced, coalesced, coalesced, coalesced, ran").assert_statuses("completed");
    assert_eq!(once.run(1).run.spec.late_by_ms, 90_000, "it says how late it is");
    let none = after_downtime("skip_missed").await;
    none.assert_occurrences(&["skipped: missed"; 5].join(", ")).assert_statuses("");
    let all = after_downtime("queue_all").await;
    all.assert_occurrences("ran, ran, ran, ran, ran").assert_count("completed", 5);
}

#[tokio::test(start_paused = true)]
async fn task_t32_a_pause_is_recorded_as_such() {
    let host = host().await;
    host.agent("agent", Script::new().answers("done"));
    let schedule = json!({ "type": "interval", "seconds": 60, "misfire_policy": "skip_missed" });
    host.task(task(json!({ "schedule": schedule }))).await;
    host.pause_task(&name("t")).await.unwrap();
    host.advance(5 * MINUTE).await;
    host.resume_task(&name("t")).await.unwrap();
    host.advance(MINUTE).await;
    let seen = host.see("t").await;
    seen.assert_occurrences(&format!("{}, ran", ["skipped: paused"; 5].join(", ")));
    assert_eq!(due(&seen), [60, 120, 180, 240, 300, 360]);
}

#[tokio::test(start_paused = true)]
async fn task_t32_once_always_runs_however_late() {
    let host = host().await;
    let schedule =
        json!({ "type": "once", "run_at": "2026-01-01T01:00:00Z", "misfire_policy": "skip_missed" });
    host.task(task(json!({ "schedule": schedule }))).await;
    host.shutdown().await.unwrap();
    host.advance(300 * DAY).await;
    let next = host.another().await;
    next.agent("agent", Script::new().answers("done"));
    next.drain().await;
    next.see("t").await.assert_statuses("completed").assert_occurrences("ran");
}

#[tokio::test(start_paused = true)]
async fn task_t33_catching_up_is_bounded_and_spread() {
    let host = host().await;
    host.task(task(
        json!({ "overlap_policy": "allow_parallel", "schedule": { "type": "interval", "seconds": 60,
        "misfire_policy": "queue_all", "catch_up_limit": 10, "catch_up_spread_seconds": 600 } }),
    ))
    .await;
    host.shutdown().await.unwrap();
    host.advance(HOUR + 59 * SECOND).await;
    let next = host.another().await;
    let agent = next.agent("agent", Script::new().answers("done"));
    let back = next.now().await;
    next.advance(10 * MINUTE).await;
    let seen = next.see("t").await;
    assert_eq!(seen.occurrences.iter().map(|o| o.count).sum::<u64>(), 70, "{seen}");
    let caught_up: Vec<_> = agent
        .calls()
        .iter()
        .filter(|call| {
            seen.runs.iter().any(|run| run.run.run_id == call.run_id && run.run.spec.late_by_ms > 0)
        })
        .map(|call| call.at.since(back))
        .collect();
    assert_eq!(caught_up.len(), 10, "{seen}");
    assert!(caught_up.windows(2).any(|two| two[1] - two[0] > 20 * SECOND), "spread: {caught_up:?}");
}

#[tokio::test(start_paused = true)]
async fn task_t34_jitter_is_stable_and_does_not_add_up() {
    let schedule = json!({ "type": "interval", "seconds": 3600, "jitter_seconds": 1800 });
    let mut fired = Vec::new();
    for _ in 0..2 {
        let host = host().await;
        let agent = host.agent("agent", Script::new().answers("done"));
        host.task(task(json!({ "schedule": schedule }))).await;
        let start = host.now().await;
        host.advance(101 * HOUR).await;
        let seen = host.see("t").await;
        let expected: Vec<u64> = (1..=100).map(|n| n * 3600).collect();
        assert_eq!(
            seen.occurrences[..100].iter().map(|o| o.due_at.since(start).as_secs()).collect::<Vec<_>>(),
            expected
        );
        let late: Vec<_> = seen.occurrences[..100].iter().map(|o| o.late_by_ms).collect();
        assert!(late.iter().all(|late| *late <= 1_800_000), "{late:?}");
        assert!(late.iter().any(|late| *late > 900_000) && late.iter().any(|late| *late < 900_000));
        assert!(agent.calls().len() >= 100);
        fired.push(late);
    }
    assert_eq!(fired[0], fired[1]);
}

#[tokio::test(start_paused = true)]
async fn task_t35_changing_anything_but_the_schedule_keeps_its_place() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().echoes());
    host.task(task(json!({ "schedule": every(3600) }))).await;
    host.advance(50 * MINUTE).await;
    host.patch_task(&name("t"), TaskPatch::parse(r#"{"query":"another"}"#).unwrap()).await.unwrap();
    host.advance(10 * MINUTE).await;
    assert_eq!(agent.calls().len(), 1);
    assert_eq!(agent.calls()[0].query, "another");
    assert_eq!(due(&host.see("t").await), [3600]);
}

#[tokio::test(start_paused = true)]
async fn task_t36_a_schedule_that_cannot_fire_says_so_and_others_go_on() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().answers("done"));
    host.task(task(json!({ "task_id": "bad", "schedule": cron("* * * * *") }))).await;
    host.task(task(json!({ "task_id": "good", "schedule": cron("* * * * *") }))).await;
    let store = host.store();
    let (mut bad, _) = store.task(&name("bad")).await.unwrap().unwrap();
    // A zone that this machine does not know any more.
    bad.spec.schedule.timezone = "Mars/Olympus".to_owned();
    bad.revision += 1;
    let write = TaskWrite {
        task_id: name("bad"),
        expect: Some(bad.revision - 1),
        change: TaskChange::Put(Box::new(bad)),
        events: Vec::new(),
    };
    store.commit(vec![Decision { task: Some(write), ..Decision::default() }]).await.unwrap()[0]
        .clone()
        .unwrap();
    host.advance(10 * MINUTE).await;
    assert_eq!(agent.calls().len(), 10);
    let seen = host.see("bad").await;
    let Some((_, state)) = &seen.task else { panic!("{seen}") };
    let SchedulePlace::Failing { error, tries, .. } = &state.place else { panic!("{:?}", state.place) };
    assert!(error.contains("Mars/Olympus"), "{error}");
    assert!((2..=10).contains(tries), "tried ever more rarely: {tries}");
    let told = seen.events.iter().filter(|event| event.event == EventKind::ScheduleFailing);
    let told: Vec<&Event> = told.collect();
    assert_eq!(
        told.len(),
        usize::try_from(*tries).unwrap(),
        "each try that failed is told: {:?}",
        seen.events
    );
    for event in told {
        assert_eq!(json!(event.event), "background_task_schedule_failing");
        assert!(event.data.to_string().contains("Mars/Olympus"), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn task_t38_intervals_do_not_drift() {
    let host = host().await;
    host.agent("agent", Script::new().takes(7 * SECOND).answers("done"));
    host.task(task(json!({ "schedule": every(60) }))).await;
    host.advance(30 * SECOND).await;
    for _ in 0..10 {
        // Nobody fires for a while: what comes after it counts from what was due, not from when it was fired.
        host.cut_off();
        host.advance(65 * SECOND).await;
        host.reconnect();
        host.advance(55 * SECOND).await;
    }
    let seen = host.see("t").await;
    assert_eq!(due(&seen), (1..=20).map(|n| n * 60).collect::<Vec<_>>());
}

/// An hour of seconds; the host is away for one of them.
#[tokio::test(start_paused = true)]
async fn task_t38_an_interval_of_a_second_drifts_by_nothing() {
    let host = host().await;
    host.agent("agent", Script::new().takes(SECOND / 4).answers("done"));
    host.task(task(json!({ "schedule": every(1) }))).await;
    host.advance(HOUR / 2 + SECOND / 2).await;
    host.cut_off();
    host.advance(SECOND).await;
    host.reconnect();
    host.advance(HOUR / 2 - SECOND).await;
    let seen = host.see("t").await;
    assert_eq!(due(&seen), (1..=3600).collect::<Vec<_>>());
    let late: Vec<_> = seen.occurrences.iter().filter(|occurrence| occurrence.late_by_ms > 0).collect();
    assert!(
        late.len() < 5,
        "each is fired at its instant, but for those that nobody was there for: {late:?}"
    );
}
