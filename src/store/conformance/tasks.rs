//! Tasks: changed only as they were seen, found by name.

use super::support::{changed, keep, put, spec, task_event, task_id};
use super::{Fixture, list};
use crate::model::{EventKind, SchedulePlace, ScheduleState, Subject, Task};
use crate::rules;
use crate::store::{Decision, PageRequest, Refusal, ScheduleWrite, TaskChange, TaskWrite};
use serde_json::json;

list! {
    a_task_is_stored_with_its_schedule,
    a_task_is_made_once,
    a_change_at_another_revision_is_stale_and_tells_the_revision,
    a_change_of_a_task_that_does_not_exist_is_refused,
    a_decision_that_needs_a_task_is_refused_when_it_changed,
    a_decision_that_needs_no_task_is_refused_when_there_is_one,
    of_two_changes_on_one_revision_one_is_made,
    a_deleted_task_is_gone_and_its_runs_stay,
    a_task_can_be_made_again_after_it_was_deleted,
    a_change_keeps_the_schedule_that_was_not_written,
    the_events_of_a_task_are_its_own,
    a_task_that_is_made_again_numbers_its_events_anew,
    field_s08_of_many_upserts_one_schedule_remains,
    tasks_are_listed_by_name,
}

fn same(one: &Task, other: &Task) -> bool {
    let text = |task: &Task| (serde_json::to_string(task).unwrap(), task.last_event);
    text(one) == text(other)
}

async fn a_task_is_stored_with_its_schedule(f: Fixture) {
    let fields = json!({
        "schedule": { "type": "cron", "expression": "*/5 * * * *", "timezone": "Europe/Berlin" },
        "timeout_seconds": 1.5, "priority": -3, "concurrency_key": "k", "concurrency_limit": 4,
        "retry_policy": { "max_retries": 3, "jitter": 0.25, "retry_on": ["exception", "rate_limit"] },
    });
    let task = f.task(fields).await;
    let (stored, schedule) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert!(same(&stored, &task), "{stored:?}");
    let place = SchedulePlace::Idle;
    assert_eq!(schedule, ScheduleState { task_id: task_id("t"), version: 1, last_due: None, place });
    assert!(f.store.task(&task_id("none")).await.unwrap().is_none());
}

async fn a_task_is_made_once(f: Fixture) {
    let task = f.task(json!({})).await;
    let other = Task { spec: spec(json!({ "query": "another" })), ..task.clone() };
    let decision = Decision { task: Some(put(&other, None)), ..Decision::default() };
    let stale = Refusal::StaleTask { task_id: task_id("t"), revision: Some(1) };
    assert_eq!(f.commit(decision).await, Err(stale));
    let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert!(same(&stored, &task));
}

async fn a_change_at_another_revision_is_stale_and_tells_the_revision(f: Fixture) {
    let first = f.task(json!({})).await;
    let second = f.change(&first, |spec| spec.priority = 2).await;
    let late = changed(&first, |spec| spec.priority = 9);
    for expect in [0, 1, 3] {
        let decision = Decision { task: Some(put(&late, Some(expect))), ..Decision::default() };
        let stale = Refusal::StaleTask { task_id: task_id("t"), revision: Some(2) };
        assert_eq!(f.commit(decision).await, Err(stale));
    }
    let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert!(same(&stored, &second));
}

async fn a_change_of_a_task_that_does_not_exist_is_refused(f: Fixture) {
    let task = Task {
        spec: spec(json!({})),
        created_at: f.now().await,
        updated_at: f.now().await,
        revision: 2,
        last_event: 0,
    };
    for change in [put(&task, Some(1)).change, TaskChange::Delete, TaskChange::Keep] {
        let write = TaskWrite { change, ..put(&task, Some(1)) };
        let decision = Decision { task: Some(write), ..Decision::default() };
        let stale = Refusal::StaleTask { task_id: task_id("t"), revision: None };
        assert_eq!(f.commit(decision).await, Err(stale));
    }
    assert!(f.store.task(&task_id("t")).await.unwrap().is_none());
}

async fn a_decision_that_needs_a_task_is_refused_when_it_changed(f: Fixture) {
    let task = f.task(json!({})).await;
    let queue = |name: &'static str| {
        let (f, task) = (f.clone(), task.clone());
        async move {
            let runs = vec![rules::enqueue(&task, f.wanted(name).await, f.moment().await)];
            Decision { task: Some(keep(&task)), runs, ..Decision::default() }
        }
    };
    let (in_time, late, gone) = (queue("in-time").await, queue("late").await, queue("gone").await);
    f.commit(in_time).await.unwrap();
    let changed = f.change(&task, |spec| spec.priority = 1).await;
    assert!(matches!(f.commit(late).await, Err(Refusal::StaleTask { revision: Some(2), .. })));
    f.delete(&changed).await;
    assert!(matches!(f.commit(gone).await, Err(Refusal::StaleTask { revision: None, .. })));
    assert_eq!(f.counts(None).await.values().sum::<u64>(), 1);
}

async fn a_decision_that_needs_no_task_is_refused_when_there_is_one(f: Fixture) {
    let task = f.task(json!({})).await;
    let write = TaskWrite { expect: None, ..keep(&task) };
    let decision = Decision { task: Some(write), ..Decision::default() };
    assert!(matches!(f.commit(decision).await, Err(Refusal::StaleTask { revision: Some(1), .. })));
}

async fn of_two_changes_on_one_revision_one_is_made(f: Fixture) {
    let mut task = f.task(json!({})).await;
    for _ in 0..10 {
        let changes = [1, 2].map(|priority| changed(&task, |spec| spec.priority = priority));
        let commits = changes.each_ref().map(|next| {
            f.commit(Decision { task: Some(put(next, Some(task.revision))), ..Decision::default() })
        });
        let answers = futures_util::future::join_all(commits).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
        let made = answers.iter().position(Result::is_ok).unwrap();
        assert!(same(&stored, &changes[made]));
        task = stored;
    }
}

async fn a_deleted_task_is_gone_and_its_runs_stay(f: Fixture) {
    let task = f.task(json!({})).await;
    let queued = f.queue(&task, "r").await;
    f.delete(&task).await;
    assert!(f.store.task(&task_id("t")).await.unwrap().is_none());
    assert!(f.store.tasks(PageRequest::default()).await.unwrap().items.is_empty());
    assert_eq!(f.read(&queued.run_id).await, queued);
    let decision = Decision {
        task: Some(TaskWrite { change: TaskChange::Delete, ..put(&task, Some(1)) }),
        ..Decision::default()
    };
    assert!(matches!(f.commit(decision).await, Err(Refusal::StaleTask { revision: None, .. })));
}

async fn a_task_can_be_made_again_after_it_was_deleted(f: Fixture) {
    let task = f.task(json!({ "query": "old" })).await;
    f.queue(&task, "r").await;
    f.delete(&task).await;
    let again = f.task(json!({ "query": "new" })).await;
    let (stored, schedule) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert!(same(&stored, &again));
    assert_eq!(schedule.version, 1);
    f.sound().await;
}

async fn a_change_keeps_the_schedule_that_was_not_written(f: Fixture) {
    let task = f.task(json!({})).await;
    let (_, before) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    f.change(&task, |spec| spec.query = "another".into()).await;
    let (_, after) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(after, before);
}

async fn the_events_of_a_task_are_its_own(f: Fixture) {
    let task = f.task(json!({})).await;
    let now = f.now().await;
    let mut next = changed(&task, |spec| spec.enabled = false);
    next.last_event = 2;
    let events = vec![task_event(1, EventKind::TaskCreated, now), task_event(2, EventKind::TaskPaused, now)];
    let write = TaskWrite { events, ..put(&next, Some(1)) };
    f.commit(Decision { task: Some(write), ..Decision::default() }).await.unwrap();
    f.queue(&task, "r").await;
    let own = f.events(Subject::Task(task_id("t"))).await;
    let told: Vec<_> = own.iter().map(|event| (event.sequence, event.event, event.run_id.clone())).collect();
    assert_eq!(told, [(1, EventKind::TaskCreated, None), (2, EventKind::TaskPaused, None)]);
    assert!(own.iter().all(|event| event.task_id == task_id("t") && event.agent_id.as_str() == "agent"));
    let (stored, _) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(stored.last_event, 2, "the next event goes on from here");
    let deleted = TaskWrite {
        events: vec![task_event(3, EventKind::TaskDeleted, now)],
        change: TaskChange::Delete,
        ..put(&next, Some(2))
    };
    f.commit(Decision { task: Some(deleted), ..Decision::default() }).await.unwrap();
    let after = f.events(Subject::Task(task_id("t"))).await;
    assert_eq!(after.len(), 3, "a deleted task's are kept");
    assert_eq!(f.store.events(Subject::Task(task_id("t")), 2, 10).await.unwrap(), after[2..]);
    assert_eq!(f.events(Subject::All).await.len(), 4);
}

async fn a_task_that_is_made_again_numbers_its_events_anew(f: Fixture) {
    let task = f.task(json!({})).await;
    let now = f.now().await;
    let told = |kind| vec![task_event(1, kind, now)];
    let change = TaskChange::Delete;
    let deleted = TaskWrite { events: told(EventKind::TaskDeleted), change, ..put(&task, Some(1)) };
    f.commit(Decision { task: Some(deleted), ..Decision::default() }).await.unwrap();
    let again = Task { last_event: 1, ..task };
    let made = TaskWrite { events: told(EventKind::TaskCreated), ..put(&again, None) };
    f.commit(Decision { task: Some(made), ..Decision::default() }).await.unwrap();
    let own = f.events(Subject::Task(task_id("t"))).await;
    assert_eq!(own.iter().map(|event| event.event).collect::<Vec<_>>(), [EventKind::TaskCreated]);
    assert_eq!(own[0].sequence, 1);
    assert_eq!(f.events(Subject::All).await.len(), 2, "what was told of its former self stays among all");
}

async fn field_s08_of_many_upserts_one_schedule_remains(f: Fixture) {
    let task = f.task(json!({})).await;
    let (_, seen) = f.store.task(&task_id("t")).await.unwrap().unwrap();
    let upserts = (0..8).map(|n| {
        let next = changed(&task, |spec| spec.priority = n);
        let state = super::support::waiting(&task_id("t"), seen.version + 1, task.created_at);
        let schedule = Some(ScheduleWrite { expect: Some(seen.version), state });
        f.commit(Decision { task: Some(put(&next, Some(1))), schedule, ..Decision::default() })
    });
    let answers = futures_util::future::join_all(upserts).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let due = f.store.due_schedules(10).await.unwrap();
    assert_eq!(due.len(), 1, "exactly one next slot");
    assert_eq!(due[0].1.version, 2);
}

async fn tasks_are_listed_by_name(f: Fixture) {
    for name in ["b", "a.1", "B", "_", "a-1", "c"] {
        f.task(json!({ "task_id": name })).await;
    }
    let mut page = PageRequest { limit: 4, cursor: None };
    let first = f.store.tasks(page.clone()).await.unwrap();
    page.cursor = first.next;
    assert!(page.cursor.is_some(), "there are more");
    // A task that comes in between is on the page it belongs to, and moves no other.
    f.task(json!({ "task_id": "bb" })).await;
    f.task(json!({ "task_id": "-" })).await;
    let second = f.store.tasks(page).await.unwrap();
    let names: Vec<_> =
        first.items.iter().chain(&second.items).map(|(task, _)| task.spec.task_id.as_str()).collect();
    assert_eq!(names, ["B", "_", "a-1", "a.1", "b", "bb", "c"]);
    assert_eq!(second.next, None);
    assert_eq!((first.corrupt, second.corrupt), (Vec::new(), Vec::new()));
}
