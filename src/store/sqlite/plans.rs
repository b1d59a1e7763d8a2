//! How the statements on the way of claims, writes and reads are planned: each by an index, none by reading a
//! table from end to end.

use std::sync::Arc;

use rusqlite::Connection;

use super::{SqliteOptions, claim, commit, hot, lanes, list, open, parts, prune, read, row, write, writer};
use crate::clock::ManualClock;
use crate::model::{AgentId, RunStatus, TaskId, Timestamp};
use crate::store::RunFilter;

fn plan(conn: &Connection, sql: &str) -> String {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
    let given = explain.parameter_count();
    let steps = explain
        .query_map(rusqlite::params_from_iter(vec![1; given]), |row| row.get::<_, String>(3))
        .expect(sql);
    steps.map(|step| step.expect("a step")).collect::<Vec<_>>().join("; ")
}

fn store() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(0)));
    let conn = open::writer(&SqliteOptions::new(folder.path().join("plans.db"), clock)).expect("a store");
    (folder, conn)
}

/// Each with what its plan must name.
fn statements() -> Vec<(String, &'static str)> {
    let run = |from: &str, whose: &str| format!("SELECT {} {from} {} {whose}", hot::columns(), row::SPECS);
    let task = |from: &str| format!("SELECT {} {from}", read::TASK);
    let mut all: Vec<(String, &'static str)> = vec![
        (claim::READY.to_owned(), "runs_waiting (place=? AND lane=? AND aid=?)"),
        (claim::DUE.to_owned(), "runs_waiting (place=? AND lane<?)"),
        (run(claim::GRANTED_FROM, claim::GRANTED), "runs_wake (wake_at>?)"),
        (claim::load(), "INTEGER PRIMARY KEY (rowid=?)"),
        (commit::find(), "sqlite_autoindex_runs_1 (run_id=?)"),
        (commit::KEY.to_owned(), "PRIMARY KEY (tid=? AND key=?)"),
        (lanes::BEST_BLOCKED.to_owned(), "runs_waiting (place=? AND lane=? AND aid=?)"),
        (lanes::NEXT_BLOCKED_AGENT.to_owned(), "runs_waiting (place=? AND lane=? AND aid>?)"),
        (lanes::PAUSED_IN_LANES.to_owned(), "runs_waiting (place=? AND lane=?)"),
        (lanes::UNPAUSE.to_owned(), "runs_waiting (place=? AND lane=?)"),
        (lanes::MEMBERS.to_owned(), "lanes_of_run (rid=?)"),
        (prune::ENDED.to_owned(), "runs_ended (status=?"),
        (prune::OCCURRENCES.to_owned(), "occurrences_recorded (recorded_at<?)"),
        (prune::TASK_EVENTS.to_owned(), "task_events_at (at<?)"),
        (prune::TASK_EVENT_ENTRIES.to_owned(), "task_events_at (at<?)"),
        (read::NEXT_SCHEDULE.to_owned(), "schedules_due (fire_at>?)"),
        (read::NEXT_RUN.to_owned(), "runs_waiting (place=? AND lane>?)"),
        (read::NEXT_WAKE.to_owned(), "runs_wake (wake_at>?)"),
        (read::ANY_READY.to_owned(), "runs_waiting (place=? AND lane=?)"),
        (task(read::DUE_SCHEDULES), "schedules_due (fire_at>? AND fire_at<?)"),
        (run(read::DUE_FROM, read::DUE_RUNS), "runs_wake (wake_at>? AND wake_at<?)"),
        (read::run_by_id(), "sqlite_autoindex_runs_1 (run_id=?)"),
        (read::run_by_its_key(), "PRIMARY KEY (tid=? AND key=?)"),
        (read::LANE_RUNS.to_owned(), "PRIMARY KEY (lid=?)"),
        (read::LANE_SCHEDULED.to_owned(), "lanes_scheduled (lid=?)"),
        (format!("SELECT e.cursor {}", read::EVENTS_OF_TASK), "PRIMARY KEY (tid=? AND seq>?)"),
        (commit::PUT_BELOW[0].to_owned(), "PRIMARY KEY (tid=? AND seq>?)"),
        (commit::PUT_BELOW[1].to_owned(), "PRIMARY KEY (tid=? AND seq>?)"),
        (prune::OLD_MARKS.to_owned(), "INTEGER PRIMARY KEY (rowid<?)"),
        (format!("SELECT prev {}", read::EVENT_AT), "INTEGER PRIMARY KEY (rowid=?)"),
        (parts::PARTS_OF_TASK.to_owned(), "parts_of_task (tid=?)"),
        (parts::UNUSED.to_owned(), "runs_of_task (tid=?)"),
        (format!("SELECT cursor {}", read::EVENTS_ALL), "INTEGER PRIMARY KEY (rowid>?)"),
        (task(list::TASKS), "sqlite_autoindex_tasks_1 (task_id>?)"),
        (list::OWN.to_owned(), "sqlite_autoindex_runs_1 (run_id=?)"),
        (list::OCCURRENCES.to_owned(), "PRIMARY KEY (tid=? AND due_at<?)"),
        (writer::REVOKED.to_owned(), "INTEGER PRIMARY KEY (rowid>?)"),
    ];
    all.extend(
        write::UPDATES.iter().flatten().map(|sql| ((*sql).to_owned(), "INTEGER PRIMARY KEY (rowid=?)")),
    );
    all.extend(list::floors());
    all.extend(prune::REMOVE.iter().map(|sql| ((*sql).to_owned(), "?)")));
    all
}

#[test]
fn field_g01_every_hot_statement_goes_by_an_index() {
    let (_folder, conn) = store();
    let odd = statements().into_iter().filter_map(|(sql, index)| {
        let plan = plan(&conn, &sql);
        let good = plan.contains(index) && !plan.contains("SCAN");
        (!good).then(|| format!("{sql}\n    expected {index}\n    found    {plan}\n"))
    });
    let odd: Vec<String> = odd.collect();
    assert!(odd.is_empty(), "{}", odd.join("\n"));
}

#[test]
fn field_g01_an_index_is_named_by_what_it_holds_whatever_was_counted() {
    let (_folder, conn) = store();
    // Statistics of a file in which nothing was ready do not lead to other plans.
    conn.execute_batch("ANALYZE").expect("statistics");
    for (sql, index) in statements() {
        let plan = plan(&conn, &sql);
        assert!(plan.contains(index) && !plan.contains("SCAN"), "{sql}\nfound {plan}");
    }
}

#[test]
fn field_d03_a_listing_of_few_is_read_from_their_index() {
    let (_folder, conn) = store();
    conn.execute_batch(
        "INSERT INTO task_names VALUES (1, 't'); INSERT INTO agent_names VALUES (1, 'a');
         INSERT INTO runs (rid, run_id, tid, aid, status, place, priority, due_at, lanes, flags, queued_at, body)
             VALUES (1, 'r', 1, 1, 5, 0, 0, 0, 0, 0, 0, x'');
         INSERT INTO counters VALUES (0, 6, 5), (1, 6, 5), (0, 2, 5), (1, 2, 5), (0, 5, 1000000);",
    )
    .expect("counters");
    let planned = |filter: RunFilter| {
        let query = list::Query::of(&conn, &filter, i64::MAX, false).expect("a query");
        plan(&conn, &query.expect("something to find").page())
    };
    let of = |statuses: &[RunStatus], task: bool| {
        let task_id = task.then(|| TaskId::new("t").expect("an id"));
        planned(RunFilter { statuses: statuses.to_vec(), task_id, ..RunFilter::default() })
    };
    assert!(of(&[RunStatus::Failed], false).contains("runs_ended (status=?"));
    assert!(of(&[RunStatus::Failed], true).contains("runs_ended (status=?"));
    assert!(of(&[RunStatus::Running], true).contains("runs_wake"));
    assert!(of(&[], true).contains("runs_of_task (tid=? AND rowid<?)"));
    let agent = RunFilter { agent_id: AgentId::new("a").ok(), ..RunFilter::default() };
    assert!(planned(agent).contains("runs_of_agent (aid=? AND rowid<?)"));
    let session = |session: &str| RunFilter { session_id: Some(session.into()), ..RunFilter::default() };
    assert!(planned(session("s")).contains("runs_of_session (session=? AND rowid<?)"));
    // One that a run has for itself is found by the run.
    let own = planned(session("background:r"));
    assert!(own.contains("runs_of_session (session=? AND rowid<?)") && !own.contains("SCAN r"), "{own}");
    // Of many the newest are found soon from the end.
    assert!(of(&[RunStatus::Completed], false).contains("INTEGER PRIMARY KEY (rowid<?)"));
}
