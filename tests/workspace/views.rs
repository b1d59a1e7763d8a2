//! Views: the shapes that HTTP, the command line and files show.

use tenure::model::{
    Attempt, AttemptStatus, Event, InstanceId, RunError, Task, TaskSpec, WaitReason, Waiting,
};
use tenure::view::{AttemptView, EventView, RunView, TaskView};

use crate::records::{at, ended, event, metadata, run, run_id};

fn shown(view: impl serde::Serialize) -> String {
    serde_json::to_string_pretty(&view).unwrap()
}

#[test]
fn task_s2_a_run_shows_every_field_of_the_contract() {
    insta::assert_snapshot!(shown(RunView::from(&run(7))));
}

#[test]
fn task_s2_an_ended_run_shows_how_it_ended() {
    insta::assert_snapshot!(shown(RunView::from(&ended(9))));
}

#[test]
fn task_t05_a_waiting_run_shows_why_and_since_when() {
    let reason = WaitReason::LaneFull { lane: "task:nightly".into(), holders: vec![run_id("r0")] };
    let view = RunView::from(&run(1)).waiting(Some(Waiting { reason, since: at(0) }));
    let shown = serde_json::to_value(view).unwrap();
    let expected = serde_json::json!({
        "reason": { "reason": "lane_full", "lane": "task:nightly", "holders": ["r0"] },
        "since": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(shown["waiting"], expected);
}

#[test]
fn task_t03_attempts_never_exceed_what_is_shown_as_their_most() {
    let mut many = run(1);
    many.interruptions = u32::MAX;
    assert_eq!(RunView::from(&many).max_attempts, u32::MAX);
    // Two retries, the first attempt, and the one that was interrupted.
    assert_eq!(RunView::from(&run(1)).max_attempts, 4);
}

#[test]
fn task_s1_a_task_is_its_record_with_metadata_digit_for_digit() {
    let json = format!(
        r#"{{"task_id": "nightly", "agent_id": "writer", "query": " report\n", "timeout_seconds": 2.5,
            "schedule": {{"type": "cron", "expression": "30 2 * * *"}}, "metadata": {}}}"#,
        metadata().as_json()
    );
    let spec: TaskSpec = serde_json::from_str(&json).unwrap();
    let task = Task { spec, created_at: at(0), updated_at: at(1), revision: 2, last_event: 3 };
    insta::assert_snapshot!(shown(TaskView::from(&task)));
}

#[test]
fn task_s10_an_attempt_shows_its_error_and_how_long_it_took() {
    let attempt = Attempt {
        attempt_id: run_id("r1").attempt(2),
        number: 2,
        status: AttemptStatus::Failed,
        instance: InstanceId::from_bits(7),
        fence: 3,
        started_at: at(0),
        finished_at: Some(at(1250)),
        error: Some(RunError::new("exception", "no answer")),
    };
    insta::assert_snapshot!(shown(AttemptView::new(&run_id("r1"), &attempt)));
    let begun = Attempt { finished_at: None, ..attempt };
    assert_eq!(AttemptView::new(&run_id("r1"), &begun).duration_seconds, None);
}

#[test]
fn task_s8_an_event_shows_its_ids_and_what_is_particular() {
    insta::assert_snapshot!(shown(EventView::from(&event(4))));
    let bare = Event { occurrence: None, data: serde_json::Value::Null, ..event(1) };
    let shown = serde_json::to_value(EventView::from(&bare)).unwrap();
    let left_out = ["data", "occurrence_id", "due_at"].map(|name| shown.get(name).is_none());
    assert_eq!(left_out, [true; 3]);
}
