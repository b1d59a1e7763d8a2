//! What an earlier start left behind: it is continued or finished first, and no query is dropped.

use serde_json::Value;

use crate::kit::*;
use crate::run::shell;

/// Queues a run with nobody there to execute it.
fn queued(place: &Place) -> String {
    let queued = place.tenure(&["tasks", "run", "t", "--json"]);
    assert_eq!(queued.code, Some(0), "{queued:?}");
    let run: Value = serde_json::from_str(&queued.out).unwrap();
    run["run_id"].as_str().unwrap().to_owned()
}

fn stored(place: &Place, id: &str) -> Value {
    serde_json::from_str(&place.tenure(&["runs", "show", id, "--json"]).out).unwrap()
}

#[test]
fn what_is_asked_runs_after_a_run_that_was_left_queued() {
    for policy in ["skip_if_running", "queue_next"] {
        let place = shell("cat", &format!("overlap_policy = \"{policy}\""));
        assert_eq!(place.tenure(&["run", "tenure.toml", "-q"]).out, "the query");
        let left = queued(&place);
        let done = place.tenure(&["run", "tenure.toml", "--query", "mine"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.err.contains(&format!("run {left} of an earlier start is finished first")), "{done:?}");
        let (theirs, mine) = (done.out.find("|  the query"), done.out.find("|  mine"));
        assert!(theirs.is_some() && theirs < mine, "{done:?}");
        assert_eq!(stored(&place, &left)["status"], "completed");

        let left = queued(&place);
        let done = place.tenure(&["run", "tenure.toml", "--query", "mine", "--quiet"]);
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "mine", ""));
        assert_eq!(stored(&place, &left)["status"], "completed");
    }
}

#[test]
fn a_run_that_was_left_queued_and_asks_the_same_is_what_is_asked() {
    let place = shell("cat", "");
    assert_eq!(place.tenure(&["run", "tenure.toml", "-q"]).code, Some(0));
    let left = queued(&place);
    assert_eq!(place.tenure(&["tasks", "pause", "t"]).code, Some(0));
    let done = place.tenure(&["run", "tenure.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains(&format!("run {left} of an earlier start is continued")), "{done:?}");
    assert_eq!(done.out.matches("t  run ").count(), 1, "{done:?}");
    assert_eq!(stored(&place, &left)["status"], "completed");
}

#[test]
fn what_is_asked_replaces_what_was_left_where_the_task_says_so() {
    let place = shell("cat", "overlap_policy = \"cancel_previous\"");
    assert_eq!(place.tenure(&["run", "tenure.toml", "-q"]).code, Some(0));
    let left = queued(&place);
    let done = place.tenure(&["run", "tenure.toml", "--query", "mine", "-q"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "mine"), "{done:?}");
    assert_eq!(stored(&place, &left)["status"], "cancelled");
}

#[test]
fn a_run_that_was_answered_goes_on_with_the_command_that_is_hinted_at() {
    let asks = r#"[ -n "$TENURE_APPROVAL" ] || { echo '{"awaiting_approval": {"question": "sure?"}}' >&3; exit; }
        echo "answered: $TENURE_APPROVAL""#;
    let place = shell(asks, "");
    let config = std::fs::read_to_string(place.path("tenure.toml")).unwrap();
    place.write("w.toml", config + "[tasks.u]\nquery = \"q\"\n");
    let asked = place.tenure(&["run", "w.toml", "t", "--query", "delicate"]);
    assert_eq!(asked.code, Some(10), "{asked:?}");
    assert!(asked.err.contains("then `tenure run w.toml t` continues it"), "{asked:?}");
    let id = asked.out.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert!(asked.err.contains(&format!("`tenure runs resume {id} --approve`")), "{asked:?}");
    assert_eq!(place.tenure(&["runs", "resume", &id, "--approve"]).code, Some(0));
    let done = place.tenure(&["run", "w.toml", "t"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains(&format!("run {id} of an earlier start is continued")), "{done:?}");
    let live = done.out.split("\n\n").next().unwrap();
    assert!(live.contains("|  answered: ") && !live.contains("waits for a person"), "{done:?}");
    assert!(done.out.contains("1  queued") && done.out.contains("awaiting approval"), "{done:?}");
    assert_eq!(stored(&place, &id)["attempt"], 2);
}
