//! What answers look like, whole. It is 2026-11-29, 22:00 in UTC; the clocks here show an hour more.

use jiff::tz::{Offset, TimeZone};
use serde_json::{Value, json};

use super::*;

fn look() -> Look {
    Look {
        now: "2026-11-29T22:00:00Z".parse().unwrap(),
        zone: TimeZone::fixed(Offset::constant(1)),
        utc: false,
        straight: false,
        width: None,
        colours: false,
    }
}

fn run(run_id: &str, status: &str) -> Value {
    json!({
        "run_id": run_id, "task_id": "nightly-report", "agent_id": "reporter", "status": status, "attempt": 1,
        "max_attempts": 3, "trigger_type": "schedule", "queued_at": "2026-11-29T21:58:00.000Z",
        "due_at": "2026-11-29T21:58:00.000Z", "started_at": "2026-11-29T21:58:00.250Z",
        "finished_at": "2026-11-29T21:58:12.550Z", "fence": 1, "session_id": "background:reporter:nightly-report",
        "workspace_path": "background/reporter/nightly-report/r1", "query_snapshot": "Write the report.",
    })
}

fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut value, more) {
        fields.extend(more);
    }
    value
}

fn runs() -> Vec<Value> {
    vec![
        with(run("r1", "completed"), json!({ "result_preview": "All is well.\nNothing to do." })),
        with(run("r2", "failed"), json!({ "error": { "class": "exit_3", "message": "no such disk" } })),
        with(
            run("r3", "running"),
            json!({ "finished_at": null, "progress": { "percent": 40, "message": "indexed" } }),
        ),
        with(
            run("r4", "queued"),
            json!({ "started_at": null, "finished_at": null, "attempt": 0, "waiting": {
            "reason": { "reason": "lane_full", "lane": "task:x", "holders": ["r3"] },
                "since": "2026-11-29T21:59:00Z" } }),
        ),
        with(run("r5", "skipped"), json!({ "started_at": null, "blocked_by": "r3" })),
        with(run("r6", "cancelled"), json!({ "cancel_reason": "wrong input" })),
        with(
            run("r7", "retrying"),
            json!({ "error": { "class": "exception", "message": "reset" },
            "due_at": "2026-11-29T22:00:30Z", "finished_at": null }),
        ),
        with(run("r8", "awaiting_approval"), json!({ "approval": { "question": "Send it?" } })),
        with(run("r9", "completed"), json!({ "result_preview": "\u{1b}[2J\u{1b}]0;owned\u{7} \u{202e}txt" })),
    ]
}

#[test]
fn runs_are_a_line_each_and_nothing_in_them_steers_the_terminal() {
    insta::assert_snapshot!(runs_table(&look(), &runs()));
}

#[test]
fn a_table_is_as_wide_as_the_terminal() {
    let table = runs_table(&Look { width: Some(90), ..look() }, &runs());
    assert!(table.lines().all(|line| line.chars().count() <= 90), "{table}");
    insta::assert_snapshot!(table);
}

#[test]
fn on_a_narrow_terminal_names_of_runs_are_cut_to_what_tells_them_apart() {
    let run = |id: &str| json!({ "run_id": id, "status": "completed", "result_preview": "a long answer" });
    let runs =
        [run("01a22b14e8747242a2e3a604afed9b7b"), run("01a22b14e8747333a2e3a604afed9b7b"), run("other")];
    let table = |width| runs_table(&Look { width, ..look() }, &runs);
    insta::assert_snapshot!(format!("{}\n\n{}\n\n{}", table(Some(80)), table(Some(20)), table(None)));
}

#[test]
fn a_status_has_its_colour_where_there_are_colours() {
    let table = runs_table(&Look { colours: true, ..look() }, &runs()[..2]);
    assert!(table.contains("\u{1b}["), "{table}");
    insta::assert_snapshot!(table.escape_debug().to_string().replace("\\n", "\n"));
}

#[test]
fn times_can_be_told_in_utc() {
    let look = Look { utc: true, zone: TimeZone::UTC, ..look() };
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        runs_table(&look, &runs()[..2]),
        run_record(&look, &runs()[3])
    ));
}

#[test]
fn a_run_is_told_in_full() {
    let approved = with(
        runs()[7].clone(),
        json!({ "metadata": { "team": "ops" }, "idempotency_key": "once", "retry_of": "r0", "lease_owner": "i1" }),
    );
    let cancelled = with(
        runs()[5].clone(),
        json!({ "cancel_requested_at": "2026-11-29T21:58:05Z", "cancelled_by": "http",
            "deadline_at": "2026-11-30T22:00:00Z" }),
    );
    let told: Vec<String> =
        [&runs()[0], &runs()[3], &approved, &cancelled].map(|run| run_record(&look(), run)).into();
    insta::assert_snapshot!(told.join("\n\n---\n\n"));
}

#[test]
fn attempts_and_files_are_tables() {
    let attempts = [
        json!({ "attempt": 1, "status": "failed", "instance": "0123456789abcdef", "started_at": "2026-11-29T21:58:00Z",
            "finished_at": "2026-11-29T21:58:01.500Z", "error": { "class": "timeout", "message": "after 1.5 s" } }),
        json!({ "attempt": 2, "status": "running", "instance": "fedcba98", "started_at": "2026-11-29T21:59:00Z" }),
    ];
    let files = json!({ "files": [
        { "path": "logs", "is_dir": true, "size": 0, "modified_at": "2026-11-29T21:58:00Z" },
        { "path": "logs/a.log", "is_dir": false, "size": 12345, "modified_at": "2026-11-28T20:00:00Z" },
        { "path": "output.md", "is_dir": false, "size": 7, "modified_at": "2026-11-29T21:59:59.500Z" },
    ] });
    let none = json!({ "files": [] });
    insta::assert_snapshot!(
        [attempts_table(&look(), &attempts), files_table(&look(), &files), files_table(&look(), &none)]
            .join("\n\n")
    );
}

fn task(schedule: Value) -> Value {
    json!({ "task_id": "nightly-report", "agent_id": "reporter", "query": "Write the report.", "schedule": schedule,
        "enabled": true, "updated_at": "2026-11-29T19:30:00Z", "created_at": "2026-10-01T00:00:00Z", "revision": 2,
        "retry_policy": { "max_retries": 3, "initial_delay_seconds": 30, "max_delay_seconds": 300,
            "backoff": "exponential" },
        "overlap_policy": "skip_if_running", "session_policy": { "type": "task" }, "timeout_seconds": 90.5,
        "priority": 0, "metadata": {}, "workspace_policy": { "namespace_template": "background/{run_id}" } })
}

#[test]
fn tasks_are_a_line_each_with_their_schedules() {
    let tasks = [
        task(json!({ "type": "manual", "timezone": "UTC" })),
        task(json!({ "type": "interval", "seconds": 5400, "timezone": "UTC" })),
        task(json!({ "type": "interval", "seconds": 0.5, "timezone": "UTC" })),
        task(json!({ "type": "cron", "expression": "0 2 * * *", "timezone": "UTC" })),
        task(json!({ "type": "cron", "expression": "0 2 * * *", "timezone": "Europe/Berlin" })),
        with(task(json!({ "type": "once", "run_at": "2026-12-01T09:00:00Z" })), json!({ "enabled": false })),
        with(
            task(json!({ "type": "once", "run_at": "2026-12-01T09:00:00Z", "timezone": "Europe/Paris" })),
            json!({ "schedule_state": { "place": { "state": "waiting", "due_at": "2026-12-01T09:00:00Z" } } }),
        ),
    ];
    insta::assert_snapshot!(format!("{}\n\n{}", tasks_table(&look(), &tasks), tasks_table(&look(), &[])));
}

#[test]
fn a_task_is_told_in_full() {
    let task = task(json!({ "type": "cron", "expression": "0 2 * * *", "timezone": "UTC" }));
    let waiting = json!({ "enabled": true, "status_counts": { "completed": 12, "failed": 1, "queued": 0 },
        "schedule_state": { "last_due": "2026-11-29T02:00:00Z",
            "place": { "state": "waiting", "due_at": "2026-11-30T02:00:00Z" } }, "latest_run": runs()[0] });
    let failing = json!({ "enabled": true, "status_counts": {}, "latest_run": null, "schedule_state": { "place": {
        "state": "failing", "error": "the zone is gone", "since": "2026-11-29T02:00:00Z" } } });
    insta::assert_snapshot!(format!(
        "{}\n\n---\n\n{}",
        task_record(&look(), &task, &waiting),
        task_record(&look(), &task, &failing)
    ));
}

#[test]
fn occurrences_are_told_from_what_is_to_come_down_to_the_past() {
    let past = [
        json!({ "due_at": "2026-11-29T02:00:00Z", "outcome": "ran", "run_id": "r1", "late_by_ms": 3 }),
        json!({ "due_at": "2026-11-28T02:00:00Z", "outcome": "coalesced", "into": "r1", "late_by_ms": 86_400_000 }),
        json!({ "due_at": "2026-11-27T02:00:00Z", "outcome": "skipped", "reason": "past_window", "late_by_ms": 0 }),
        json!({ "due_at": "2026-11-26T02:00:00Z", "outcome": "skipped",
            "reason": { "overlap": { "blocked_by": "r0" } } }),
    ];
    let next = json!([
        { "due_at": "2026-11-30T02:00:00Z", "due_at_local": "2026-11-30T03:00:00+01:00[Europe/Berlin]" },
        { "due_at": "2026-12-01T02:00:00Z", "due_at_local": "2026-12-01T03:00:00+01:00[Europe/Berlin]" },
    ]);
    insta::assert_snapshot!(occurrences_table(&look(), &past, &next));
}

#[test]
fn events_are_a_line_each() {
    let events = [
        json!({ "event": "background_task_created", "timestamp": "2026-11-29T21:58:00.000Z", "task_id": "t",
            "sequence": 1 }),
        json!({ "event": "background_run_retrying", "timestamp": "2026-11-29T21:58:01.125Z", "task_id": "t",
            "run_id": "r1",
            "sequence": 4, "attempt": 1,
            "data": { "delay_seconds": 30, "message": "a\n\u{1b}[1mb", "nothing": null } }),
        json!({ "event": "of_another_version", "data": "text" }),
        json!(null),
    ];
    let mut lines: Vec<String> = events.iter().map(|event| event_line(&look(), event)).collect();
    lines.push(event_line_of_run(&look(), &events[1]));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn agents_are_told_with_what_they_do() {
    let agents = [
        json!({ "agent_id": "a", "kind": "command", "source": "file", "command": ["sh", "-c", "echo hello"],
            "env": { "KEY": "***" }, "working_directory": "here" }),
        json!({ "agent_id": "b", "kind": "chat", "source": "stored", "base_url": "http://host/v1", "model": "m",
            "api_key_env": "KEY", "system_instruction": "Be brief." }),
        json!({ "agent_id": "c", "kind": "http", "source": "stored", "url": "http://host/hook",
            "headers_env": { "Authorization": "TOKEN", "X": "Y" } }),
        json!({ "agent_id": "d", "kind": "function", "source": "host" }),
    ];
    let mut told = vec![agents_table(&look(), &agents)];
    told.extend(agents.iter().map(|agent| agent_record(&look(), agent)));
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn a_tree_is_drawn_as_the_library_draws_it() {
    let child = |role: &str, n: u32, process: Option<&str>, bound: bool, patience: Value| {
        json!({ "name": { "epoch": 2, "role": role, "incarnation": n }, "process": process, "bound": bound,
            "patience": patience })
    };
    let tree = json!({ "generations": [
        { "epoch": 1, "open": false, "registry": true, "operations": false, "active_operations": 0, "children": [] },
        { "epoch": 2, "open": true, "registry": true, "operations": true, "active_operations": 1, "children": [
            child("heartbeat", 1, None, false, json!({ "time": 5000 })),
            child("run", 3, Some("run:r1:1"), true, json!("unlimited")),
            child("run", 4, Some("run:r2:1"), false, json!("kill")),
        ] },
    ] });
    insta::assert_snapshot!(format!("{}\n\n{}", tree_text(&tree), tree_text(&json!({ "generations": [] }))));
}

#[test]
fn what_is_no_answer_of_ours_is_shown_all_the_same() {
    let odd =
        [Value::Null, json!([]), json!({ "schedule": 5, "status": [], "attempt": {}, "queued_at": "never" })];
    for value in &odd {
        let look = look();
        let told = [
            run_record(&look, value),
            task_record(&look, value, value),
            runs_table(&look, std::slice::from_ref(value)),
            tasks_table(&look, std::slice::from_ref(value)),
            agent_record(&look, value),
            status_record(&look, value),
            tree_text(value),
            event_line(&look, value),
        ];
        assert!(told.iter().all(|text| !text.contains('\u{1b}')));
    }
}

#[test]
fn lengths_and_distances_are_told_in_two_units_at_most() {
    let now = look().now;
    let mut table = String::new();
    for seconds in [0, 1, 59, 60, 3599, 3600, 5400, 36_000, 86_400, 90_000, 259_200, 31_536_000] {
        let ago = times::from_now(now, now - jiff::SignedDuration::from_secs(seconds));
        let to_come = times::from_now(now, now + jiff::SignedDuration::from_secs(seconds));
        table.push_str(&format!("{seconds}: {ago}, {to_come}, {}\n", times::length(seconds * 1000)));
    }
    insta::assert_snapshot!(table);
}
