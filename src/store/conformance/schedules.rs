//! Schedules: each occurrence once, whoever asks; moved only as they were seen.

use std::time::Duration;

use super::support::{A, B, keep, task_id, waiting};
use super::{Fixture, list};
use crate::model::{
    InstanceId, Occurrence, OccurrenceOutcome, RunId, RunStatus, SchedulePlace, ScheduleState, SkipReason,
    Task, Timestamp, Trigger,
};
use crate::rules::{self, Wanted};
use crate::store::{Decision, PageRequest, Refusal, ScheduleWrite, TaskWrite};
use futures_util::future::join_all;
use serde_json::json;

list! {
    task_t30_of_two_who_fire_an_occurrence_one_does,
    task_t30_an_occurrence_is_recorded_once,
    task_t30_an_occurrence_survives_its_task,
    task_t30_an_occurrence_within_one_decision_is_recorded_once,
    field_s06_a_hundred_slots_of_two_schedulers_are_a_hundred_occurrences,
    a_schedule_at_another_version_is_stale_and_tells_the_version,
    a_schedule_of_a_task_that_does_not_exist_is_refused,
    what_a_refused_decision_would_have_recorded_is_not_recorded,
    schedules_are_due_by_the_clock_of_the_store_the_longest_overdue_first,
    a_paused_task_is_not_due,
    a_failing_schedule_is_due_when_it_is_tried_again,
    the_schedule_of_a_deleted_task_is_not_due,
    occurrences_are_kept_as_they_were_recorded,
    occurrences_are_listed_newest_first_page_by_page,
}

async fn due_at_now(f: &Fixture, task: &Task) -> ScheduleState {
    let (_, state) = f.store.task(&task.spec.task_id).await.unwrap().unwrap();
    let next = waiting(&task.spec.task_id, state.version + 1, f.now().await);
    let schedule = Some(ScheduleWrite { expect: Some(state.version), state: next.clone() });
    f.commit(Decision { schedule, ..Decision::default() }).await.unwrap();
    next
}

fn occurrence(task: &Task, due_at: Timestamp, now: Timestamp, outcome: OccurrenceOutcome) -> Occurrence {
    let recorded_by = InstanceId::from_bits(A);
    let late_by_ms = u64::try_from(now.since(due_at).as_millis()).unwrap();
    let task_id = task.spec.task_id.clone();
    Occurrence { task_id, due_at, outcome, late_by_ms, recorded_at: now, recorded_by, count: 1 }
}

fn skipped(task: &Task, due_at: Timestamp) -> Occurrence {
    occurrence(task, due_at, due_at, OccurrenceOutcome::Skipped { reason: SkipReason::Missed })
}

/// What a scheduler decides when an occurrence is due: a run for it, a record of it, the next one.
async fn fire(f: &Fixture, task: &Task, state: &ScheduleState, by: u128) -> Decision {
    let SchedulePlace::Waiting { due_at, .. } = state.place else { panic!("nothing is due") };
    let run_id = RunId::new(format!("{}-{by}", due_at.ms())).unwrap();
    let wanted = Wanted {
        trigger: Trigger::Schedule,
        due_at,
        occurrence: Some(due_at),
        ..Wanted::now(run_id.clone(), due_at)
    };
    let next = ScheduleState {
        last_due: Some(due_at),
        ..waiting(&task.spec.task_id, state.version + 1, due_at.plus(Duration::from_secs(60)))
    };
    let ran = OccurrenceOutcome::Ran { run_id };
    let record =
        Occurrence { recorded_by: InstanceId::from_bits(by), ..occurrence(task, due_at, f.now().await, ran) };
    Decision {
        task: Some(keep(task)),
        schedule: Some(ScheduleWrite { expect: Some(state.version), state: next }),
        runs: vec![rules::enqueue(task, wanted, f.moment().await)],
        lanes: Vec::new(),
        occurrences: vec![record],
        ..Decision::default()
    }
}

async fn task_t30_of_two_who_fire_an_occurrence_one_does(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let state = due_at_now(&f, &task).await;
    let decisions = [fire(&f, &task, &state, A).await, fire(&f, &task, &state, B).await];
    let answers = join_all(decisions.map(|decision| f.commit(decision))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(f.counts(None).await, [(RunStatus::Queued, 1)].into());
    let records = f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap();
    assert_eq!(records.items.len(), 1);
    let winner = if answers[0].is_ok() { A } else { B };
    assert_eq!(records.items[0].recorded_by.bits(), winner, "the history says who did it");
}

async fn task_t30_an_occurrence_is_recorded_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let now = f.now().await;
    let first = skipped(&task, now);
    f.commit(Decision { occurrences: vec![first.clone()], ..Decision::default() }).await.unwrap();
    // Nothing but the occurrence stands in the way: the schedule is not written, the run is another.
    let wanted = f.wanted("r").await;
    let second = occurrence(&task, now, now, OccurrenceOutcome::Ran { run_id: wanted.run_id.clone() });
    let decision = Decision {
        runs: vec![rules::enqueue(&task, wanted, f.moment().await)],
        occurrences: vec![second, skipped(&task, now.plus(Duration::from_millis(1)))],
        ..Decision::default()
    };
    let exists = Refusal::OccurrenceExists { task_id: task_id("t"), due_at: vec![now] };
    assert_eq!(f.commit(decision).await, Err(exists));
    assert!(f.counts(None).await.is_empty(), "no run was made");
    let records = f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap();
    assert_eq!(records.items, [first]);
}

async fn task_t30_an_occurrence_survives_its_task(f: Fixture) {
    let task = f.task(json!({})).await;
    let now = f.now().await;
    f.commit(Decision { occurrences: vec![skipped(&task, now)], ..Decision::default() }).await.unwrap();
    f.delete(&task).await;
    let again = f.task(json!({})).await;
    let answer = f.commit(Decision { occurrences: vec![skipped(&again, now)], ..Decision::default() }).await;
    assert!(matches!(answer, Err(Refusal::OccurrenceExists { .. })), "{answer:?}");
    let other = f.task(json!({ "task_id": "other" })).await;
    f.commit(Decision { occurrences: vec![skipped(&other, now)], ..Decision::default() }).await.unwrap();
}

async fn task_t30_an_occurrence_within_one_decision_is_recorded_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let twice = vec![skipped(&task, f.now().await), skipped(&task, f.now().await)];
    let answer = f.commit(Decision { occurrences: twice, ..Decision::default() }).await;
    assert!(matches!(answer, Err(Refusal::OccurrenceExists { .. })), "{answer:?}");
    let records = f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap();
    assert_eq!(records.items, []);
}

async fn field_s06_a_hundred_slots_of_two_schedulers_are_a_hundred_occurrences(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    due_at_now(&f, &task).await;
    for _ in 0..100 {
        let due = f.store.due_schedules(1).await.unwrap();
        let [(task, state)] = &due[..] else { panic!("one schedule is due") };
        let decisions = [fire(&f, task, state, A).await, fire(&f, task, state, B).await];
        let answers = join_all(decisions.map(|decision| f.commit(decision))).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        f.later(Duration::from_secs(60));
    }
    assert_eq!(f.counts(None).await, [(RunStatus::Queued, 100)].into());
}

async fn a_schedule_at_another_version_is_stale_and_tells_the_version(f: Fixture) {
    let task = f.task(json!({})).await;
    let state = due_at_now(&f, &task).await;
    assert_eq!(state.version, 2);
    for expect in [None, Some(1), Some(3)] {
        let write = ScheduleWrite { expect, state: ScheduleState { version: 9, ..state.clone() } };
        let stale = Refusal::StaleSchedule { task_id: task_id("t"), version: Some(2) };
        assert_eq!(f.commit(Decision { schedule: Some(write), ..Decision::default() }).await, Err(stale));
    }
    assert_eq!(f.store.task(&task_id("t")).await.unwrap().unwrap().1, state);
}

async fn a_schedule_of_a_task_that_does_not_exist_is_refused(f: Fixture) {
    let state = waiting(&task_id("none"), 2, f.now().await);
    let write = ScheduleWrite { expect: Some(1), state };
    let answer = f.commit(Decision { schedule: Some(write), ..Decision::default() }).await;
    assert_eq!(answer, Err(Refusal::StaleSchedule { task_id: task_id("none"), version: None }));
    assert!(f.store.due_schedules(10).await.unwrap().is_empty());
}

async fn what_a_refused_decision_would_have_recorded_is_not_recorded(f: Fixture) {
    let task = f.task(json!({})).await;
    let state = due_at_now(&f, &task).await;
    let mut decision = fire(&f, &task, &state, A).await;
    let stale = TaskWrite { expect: Some(7), ..keep(&task) };
    decision.task = Some(stale);
    assert!(matches!(f.commit(decision).await, Err(Refusal::StaleTask { .. })));
    let mut decision = fire(&f, &task, &state, A).await;
    decision.lanes.push(crate::store::LaneExpect { name: "task:t".into(), version: 77 });
    assert!(matches!(f.commit(decision).await, Err(Refusal::StaleLane { version: 0, .. })));
    assert_eq!(f.store.task(&task_id("t")).await.unwrap().unwrap().1, state, "the schedule did not move");
    let records = f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap();
    assert_eq!(records.items, []);
    let decision = fire(&f, &task, &state, A).await;
    f.commit(decision).await.expect("nothing of the refused ones is in the way");
}

async fn schedules_are_due_by_the_clock_of_the_store_the_longest_overdue_first(f: Fixture) {
    for (name, seconds) in [("late", 20), ("later", 30), ("first", 10)] {
        let task = f.task(json!({ "task_id": name })).await;
        let due_at = f.now().await.plus(Duration::from_secs(seconds));
        let schedule = Some(ScheduleWrite { expect: Some(1), state: waiting(&task.spec.task_id, 2, due_at) });
        f.commit(Decision { schedule, ..Decision::default() }).await.unwrap();
    }
    let due = |limit: usize| {
        let f = f.clone();
        async move {
            let due = f.store.due_schedules(limit).await.unwrap();
            due.into_iter().map(|(task, _)| task.spec.task_id.to_string()).collect::<Vec<_>>()
        }
    };
    let mut expected = Vec::<&str>::new();
    assert_eq!(due(10).await, expected);
    f.later(Duration::from_millis(9_999));
    assert_eq!(due(10).await, expected, "not a millisecond early");
    f.later(Duration::from_millis(1));
    for name in ["first", "late", "later"] {
        expected.push(name);
        assert_eq!(due(10).await, expected);
        f.later(Duration::from_secs(10));
    }
    assert_eq!(due(2).await, expected[..2]);
}

async fn a_paused_task_is_not_due(f: Fixture) {
    let task = f.task(json!({})).await;
    let state = due_at_now(&f, &task).await;
    let paused = f.change(&task, |spec| spec.enabled = false).await;
    assert!(f.store.due_schedules(10).await.unwrap().is_empty());
    assert_eq!(f.store.agenda().await.unwrap().schedule, None, "nobody is woken for it");
    f.change(&paused, |spec| spec.enabled = true).await;
    assert_eq!(f.store.due_schedules(10).await.unwrap()[0].1, state);
}

async fn a_failing_schedule_is_due_when_it_is_tried_again(f: Fixture) {
    let task = f.task(json!({})).await;
    let state = due_at_now(&f, &task).await;
    let now = f.now().await;
    let retry_at = now.plus(Duration::from_secs(5));
    let place = SchedulePlace::Failing { error: "no such zone".into(), since: now, tries: 3, retry_at };
    let failing = ScheduleState { version: 3, place, ..state };
    let schedule = Some(ScheduleWrite { expect: Some(2), state: failing.clone() });
    f.commit(Decision { schedule, ..Decision::default() }).await.unwrap();
    assert!(f.store.due_schedules(10).await.unwrap().is_empty());
    assert_eq!(f.store.agenda().await.unwrap().schedule, Some(retry_at));
    f.later(Duration::from_secs(5));
    assert_eq!(f.store.due_schedules(10).await.unwrap()[0].1, failing);
}

async fn the_schedule_of_a_deleted_task_is_not_due(f: Fixture) {
    let task = f.task(json!({})).await;
    due_at_now(&f, &task).await;
    f.delete(&task).await;
    assert!(f.store.due_schedules(10).await.unwrap().is_empty());
    assert_eq!(f.store.agenda().await.unwrap().schedule, None);
}

async fn occurrences_are_kept_as_they_were_recorded(f: Fixture) {
    let task = f.task(json!({})).await;
    let now = f.now().await;
    let run_id = RunId::new("r").unwrap();
    let outcomes = [
        OccurrenceOutcome::Ran { run_id: run_id.clone() },
        OccurrenceOutcome::Coalesced { into: run_id.clone() },
        OccurrenceOutcome::Skipped { reason: SkipReason::Paused },
        OccurrenceOutcome::Skipped { reason: SkipReason::PastLimit },
        OccurrenceOutcome::Skipped { reason: SkipReason::Overlap { blocked_by: run_id } },
    ];
    let mut records: Vec<Occurrence> = Vec::new();
    for (outcome, n) in outcomes.into_iter().zip(1..) {
        let due_at = now.minus(Duration::from_millis(n));
        records.push(Occurrence { count: n * n, ..occurrence(&task, due_at, now, outcome) });
    }
    f.commit(Decision { occurrences: records.clone(), ..Decision::default() }).await.unwrap();
    let other = f.task(json!({ "task_id": "other" })).await;
    let others = vec![skipped(&other, now)];
    f.commit(Decision { occurrences: others.clone(), ..Decision::default() }).await.unwrap();
    assert_eq!(f.store.occurrences(&task_id("t"), PageRequest::default()).await.unwrap().items, records);
    assert_eq!(f.store.occurrences(&task_id("other"), PageRequest::default()).await.unwrap().items, others);
    assert!(f.store.occurrences(&task_id("none"), PageRequest::default()).await.unwrap().items.is_empty());
}

async fn occurrences_are_listed_newest_first_page_by_page(f: Fixture) {
    let task = f.task(json!({})).await;
    let at = |n: i64| Timestamp::from_ms(n * 1000);
    // Before 1970 too: a cursor is not a number of digits.
    let records = (-3..4).map(|n| skipped(&task, at(n))).collect();
    f.commit(Decision { occurrences: records, ..Decision::default() }).await.unwrap();
    let mut page = PageRequest { limit: 3, cursor: None };
    let mut seen = Vec::new();
    loop {
        let answer = f.store.occurrences(&task_id("t"), page.clone()).await.unwrap();
        seen.extend(answer.items.iter().map(|record| record.due_at.ms() / 1000));
        assert!(seen.len() <= 7, "none is seen twice: {seen:?}");
        let newer = Decision {
            occurrences: vec![skipped(&task, at(100 + seen.len() as i64))],
            ..Decision::default()
        };
        f.commit(newer).await.unwrap();
        page.cursor = answer.next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [3, 2, 1, 0, -1, -2, -3]);
}
