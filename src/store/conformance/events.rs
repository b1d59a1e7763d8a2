//! Events: told with what they tell of, numbered, read on from where a reader was.

use std::time::Duration;

use super::support::{
    A, B, GRACE, LEASE, change_with_events, done, failed, is_fenced, put, run_id, task_event, task_id,
};
use super::{Fixture, list};
use crate::model::{CancelMode, Event, EventKind, Progress, RunId, RunStatus, Subject};
use crate::rules;
use crate::store::{Decision, TaskWrite};
use serde_json::json;

list! {
    events_of_a_run_are_numbered_from_one_without_gaps,
    field_l17_a_lost_run_tells_both_that_it_was_lost_and_what_follows,
    an_event_names_its_run_and_who_did_it,
    events_are_read_on_after_a_number,
    all_events_are_read_on_after_a_cursor_that_rises,
    a_refused_write_tells_nothing,
    an_event_of_a_repeated_write_is_told_once,
    events_of_racing_runs_have_cursors_of_their_own,
    progress_is_kept_and_told,
    the_limit_of_a_read_holds,
    each_is_told_its_own_events,
    nothing_is_told_of_who_does_not_exist,
}

async fn events_of_a_run_are_numbered_from_one_without_gaps(f: Fixture) {
    let policy = json!({ "max_retries": 3, "initial_delay_seconds": 1, "jitter": 0.0 });
    let task = f.task(json!({ "retry_policy": policy })).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.finish(&first, failed()).await;
    f.later(Duration::from_secs(1));
    let second = f.begin(A).await;
    f.later(LEASE + GRACE);
    f.sweep(&second).await.unwrap();
    let third = f.begin(B).await;
    let asked = f.cancel(&third, CancelMode::Cooperative).await;
    let ended = f.finish(&asked, rules::Outcome::Cancelled(None)).await;
    use EventKind::{CancelRequested, Cancelled, Claimed, Lost, Queued, Recovered, Retrying, Started};
    let expected = [
        Queued,
        Claimed,
        Started,
        Retrying,
        Claimed,
        Started,
        Lost,
        Recovered,
        Claimed,
        Started,
        CancelRequested,
        Cancelled,
    ];
    assert_eq!(f.told(&ended).await, expected);
    assert_eq!(ended.last_event, expected.len() as u64);
}

async fn field_l17_a_lost_run_tells_both_that_it_was_lost_and_what_follows(f: Fixture) {
    let task = f.task(json!({ "retry_policy": { "max_interruptions": 0 } })).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.later(LEASE + GRACE);
    let ended = f.sweep(&running).await.unwrap();
    assert_eq!(ended.status, RunStatus::Failed);
    let events = f.events(Subject::Run(run_id("r"))).await;
    let told: Vec<_> = events[3..].iter().map(|event| (event.event, event.status)).collect();
    let expected = [(EventKind::Lost, Some(RunStatus::Lost)), (EventKind::Failed, Some(RunStatus::Failed))];
    assert_eq!(told, expected, "in this order");
}

async fn an_event_names_its_run_and_who_did_it(f: Fixture) {
    let task = f.task(json!({ "session_policy": { "type": "fixed", "session_id": "s" } })).await;
    let mut wanted = f.wanted("r").await;
    wanted.occurrence = Some(wanted.due_at);
    let queued = f.queue_as(&task, wanted).await;
    f.later(Duration::from_millis(7));
    let running = f.begin(A).await;
    let events = f.events(Subject::Run(run_id("r"))).await;
    let cursors: Vec<u64> = events.iter().map(|event| event.cursor).collect();
    assert!(cursors.is_sorted_by(|before, after| before < after), "{cursors:?}");
    let started = &events[2];
    let expected = Event {
        event: EventKind::Started,
        timestamp: f.now().await,
        sequence: 3,
        cursor: cursors[2],
        agent_id: task.spec.agent_id.clone(),
        task_id: task_id("t"),
        run_id: Some(run_id("r")),
        session_id: Some("s".into()),
        status: Some(RunStatus::Running),
        attempt: 1,
        fence: running.fence,
        instance: Some(running.lease.unwrap().owner),
        occurrence: queued.spec.occurrence,
        data: serde_json::Value::Null,
    };
    assert_eq!(*started, expected);
    assert_eq!((events[0].instance, events[0].attempt, events[0].fence), (None, 0, 0));
}

async fn events_are_read_on_after_a_number(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    let of_run = || Subject::Run(run_id("r"));
    let all = f.events(of_run()).await;
    assert_eq!(all.len(), 4);
    for after in 0..6_usize {
        let rest = f.store.events(of_run(), after as u64, 10).await.unwrap();
        assert_eq!(rest, all[after.min(4)..]);
    }
    assert_eq!(f.store.events(of_run(), u64::MAX, 10).await.unwrap(), []);
    assert_eq!(f.store.events(of_run(), 1, 2).await.unwrap(), all[1..3]);
}

async fn all_events_are_read_on_after_a_cursor_that_rises(f: Fixture) {
    let one = f.task(json!({ "task_id": "one" })).await;
    let two = f.task(json!({ "task_id": "two" })).await;
    let mut seen: Vec<Event> = Vec::new();
    for (task, name) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        f.queue(task, name).await;
        let after = seen.last().map_or(0, |event| event.cursor);
        let new = f.store.events(Subject::All, after, 10).await.unwrap();
        assert_eq!(new.len(), 1);
        seen.extend(new);
    }
    let names: Vec<_> = seen.iter().map(|event| event.run_id.clone().unwrap().to_string()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(f.events(Subject::All).await, seen);
    let mut page = Vec::new();
    while page.len() < 3 {
        let after = page.last().map_or(0, |event: &Event| event.cursor);
        page.extend(f.store.events(Subject::All, after, 1).await.unwrap());
    }
    assert_eq!(page, seen);
    assert_eq!(f.store.events(Subject::All, u64::MAX, 10).await.unwrap(), []);
}

async fn a_refused_write_tells_nothing(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let first = f.begin(A).await;
    f.later(LEASE + GRACE);
    f.sweep(&first).await.unwrap();
    let told = f.events(Subject::All).await;
    let late = f.end_of(&first, done("late")).await;
    assert!(is_fenced(&f.refuses(late).await));
    let stale = TaskWrite {
        events: vec![task_event(1, EventKind::TaskUpdated, f.now().await)],
        ..put(&task, Some(9))
    };
    f.commit(Decision { task: Some(stale), ..Decision::default() }).await.unwrap_err();
    assert_eq!(f.events(Subject::All).await, told);
}

async fn an_event_of_a_repeated_write_is_told_once(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let claimed = f.claim_one(A).await;
    let start = rules::start(&claimed, super::support::token(&claimed), f.moment().await).unwrap();
    let twice = vec![start.clone().into(), start.into()];
    assert_eq!(f.store.commit(twice).await.unwrap(), [Ok(()), Ok(())]);
    use EventKind::{Claimed, Queued, Started};
    assert_eq!(f.told(&claimed).await, [Queued, Claimed, Started]);
}

async fn events_of_racing_runs_have_cursors_of_their_own(f: Fixture) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    let mut commits = Vec::new();
    for n in 0..50 {
        let wanted = f.wanted(&format!("r{n}")).await;
        commits.push(f.commit(rules::enqueue(&task, wanted, f.moment().await)));
    }
    assert!(futures_util::future::join_all(commits).await.iter().all(Result::is_ok));
    let cursors: Vec<u64> = f.events(Subject::All).await.iter().map(|event| event.cursor).collect();
    assert_eq!(cursors.len(), 50);
    assert!(cursors.is_sorted_by(|before, after| before < after) && cursors[0] > 0, "{cursors:?}");
}

async fn progress_is_kept_and_told(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    let running = f.begin(A).await;
    let at = f.now().await;
    let progress = Progress { percent: Some(40), message: "\u{1F600} almost".into(), at };
    let token = super::support::token(&running);
    let write = rules::progress(&running, token, progress.clone(), 3, f.moment().await).unwrap();
    let told = f.apply(write).await;
    assert_eq!(told.progress, Some(progress));
    let events = f.events(Subject::Run(run_id("r"))).await;
    let expected = json!({ "percent": 40, "message": "\u{1F600} almost", "coalesced": 3 });
    assert_eq!((events[3].event, &events[3].data), (EventKind::Progress, &expected));
}

async fn the_limit_of_a_read_holds(f: Fixture) {
    let task = f.task(json!({})).await;
    f.queue(&task, "r").await;
    f.begin(A).await;
    change_with_events(&f, &task, 3).await;
    let of_task = Subject::Task(task_id("t"));
    for (subject, all) in [(Subject::All, 6), (Subject::Run(run_id("r")), 3), (of_task, 3)] {
        for limit in 0..all + 1 {
            let read = f.store.events(subject.clone(), 0, limit).await.unwrap();
            assert_eq!(read.len(), limit.min(all), "{subject:?}");
        }
    }
}

async fn each_is_told_its_own_events(f: Fixture) {
    for (name, run, events) in [("t", "r", 1), ("other", "s", 2), ("third", "q", 1)] {
        let task = f.task(json!({ "task_id": name })).await;
        change_with_events(&f, &task, events).await;
        f.queue(&task, run).await;
    }
    for run in ["q", "s", "r"] {
        let own = f.events(Subject::Run(run_id(run))).await;
        let of: Vec<_> = own.iter().map(|event| event.run_id.as_ref().map(RunId::as_str)).collect();
        assert_eq!(of, [Some(run)]);
    }
    for (name, events) in [("third", 1), ("other", 2), ("t", 1)] {
        let own = f.events(Subject::Task(task_id(name))).await;
        let of: Vec<_> = own.iter().map(|event| event.task_id.as_str()).collect();
        assert_eq!(of, vec![name; events]);
    }
}

async fn nothing_is_told_of_who_does_not_exist(f: Fixture) {
    assert_eq!(f.events(Subject::Run(run_id("none"))).await, []);
    assert_eq!(f.events(Subject::Task(task_id("none"))).await, []);
    assert_eq!(f.events(Subject::All).await, []);
}
