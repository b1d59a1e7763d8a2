//! What only a store in a file has to keep: its schema, its file when that is damaged, full or read-only, other
//! programs that write to it. What it has in common with other stores is in `conformance.rs`.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that fails panics")]

#[path = "support/copied.rs"]
mod copied;
#[path = "sqlite_store/damage.rs"]
mod damage;
#[path = "sqlite_store/disk.rs"]
mod disk;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use tenure::clock::ManualClock;
use tenure::model::{
    EventKind, InstanceId, NewEvent, Payload, Run, RunId, RunResult, RunStatus, Subject, Task, Timestamp,
};
use tenure::rules::{self, Moment, Outcome, Wanted};
use tenure::store::conformance::{claim_request, spec};
use tenure::store::{
    Decision, PageRequest, RefusedKind, RunFilter, RunWrite, SqliteOptions, SqliteStore, Store, StoreError,
    TaskChange, TaskWrite,
};

const NOW: Timestamp = Timestamp::from_ms(1_769_850_000_000);

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("tenure.db")
    }

    fn options(&self) -> SqliteOptions {
        options(&self.file())
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.options()).expect("a store")
    }

    fn sql(&self) -> Connection {
        Connection::open(self.file()).expect("a database")
    }

    fn refusal(&self) -> (RefusedKind, String) {
        refusal(SqliteStore::open(self.options()))
    }
}

fn options(path: &Path) -> SqliteOptions {
    let clock = Arc::new(ManualClock::at(NOW));
    SqliteOptions { poll: Duration::from_millis(5), ..SqliteOptions::new(path, clock) }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> (RefusedKind, String) {
    match answer {
        Err(StoreError::Refused { kind, message }) => (kind, message),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

fn task(query: &str) -> Task {
    let spec = spec(json!({ "query": query, "overlap_policy": "allow_parallel" }));
    Task { spec, created_at: NOW, updated_at: NOW, revision: 1, last_event: 0 }
}

fn queued(query: &str) -> RunWrite {
    let moment = Moment { now: NOW, stamp: 7 };
    rules::enqueue(&task(query), Wanted::now(RunId::generate(), NOW), moment)
}

async fn enqueue(store: &SqliteStore, n: usize) -> Vec<RunId> {
    let writes: Vec<RunWrite> = (0..n).map(|_| queued("do it")).collect();
    let ids = writes.iter().map(|write| write.run.run_id.clone()).collect();
    for answer in store.commit(writes.into_iter().map(Into::into).collect()).await.expect("an answer") {
        answer.expect("queued");
    }
    ids
}

async fn all(store: &SqliteStore) -> Vec<Run> {
    let page = PageRequest { limit: 10_000, cursor: None };
    store.runs(RunFilter::default(), page).await.expect("a page").items
}

// --- schema ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_fresh_file_is_given_the_schema_and_an_opened_one_keeps_it() {
    let folder = Folder::new();
    let store = folder.open();
    let ids = enqueue(&store, 3).await;
    store.close().await.expect("closed");
    let applied = |conn: &Connection| -> Vec<(i64, String, i64)> {
        let mut rows = conn.prepare("SELECT version, name, applied_at FROM schema_migrations").expect("rows");
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    };
    let first = applied(&folder.sql());
    let names = ["0001_first", "0002_agents", "0003_listings"];
    let expected = (1..).zip(names).map(|(version, name)| (version, name.to_owned(), NOW.ms()));
    assert_eq!(first, expected.collect::<Vec<_>>());
    let store = folder.open();
    assert_eq!(all(&store).await.len(), ids.len());
    assert_eq!(applied(&folder.sql()), first);
    let id: i64 = folder.sql().query_row("PRAGMA application_id", [], |row| row.get(0)).expect("an id");
    assert_eq!(id, 0x7465_6e75);
}

#[test]
fn a_fresh_file_may_be_opened_by_many_at_once() {
    let folder = Folder::new();
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        let open = || {
            barrier.wait();
            SqliteStore::open(folder.options()).map(drop)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().expect("no panic").expect("opened");
        }
    });
    let n: i64 =
        folder.sql().query_row("SELECT count(*) FROM schema_migrations", [], |r| r.get(0)).expect("n");
    assert_eq!(n, 3, "each migration is applied once");
}

fn created() -> NewEvent {
    NewEvent {
        sequence: 1,
        kind: EventKind::TaskCreated,
        at: NOW,
        status: None,
        attempt: 0,
        fence: 0,
        instance: None,
        data: None,
    }
}

/// What the third migration made, undone.
const BEFORE_LISTINGS: &str = "
    DROP INDEX runs_waiting;
    UPDATE runs SET lane = NULL WHERE place IN (2, 4);
    CREATE INDEX runs_ready ON runs (aid, priority DESC, due_at) WHERE place = 1;
    CREATE INDEX runs_future ON runs (due_at) WHERE place = 2;
    CREATE INDEX runs_blocked ON runs (lane, aid, priority DESC, due_at) WHERE place = 3;
    CREATE INDEX runs_paused ON runs (tid) WHERE place = 4;
    DROP TABLE task_events;
    CREATE UNIQUE INDEX events_of_task ON events (subject, seq) WHERE subject < 0;
    CREATE INDEX events_of_tasks ON events (at) WHERE subject < 0;
    DROP INDEX runs_of_agent;
    DROP INDEX runs_of_session;
    ALTER TABLE runs DROP COLUMN session;
    DROP TABLE marks;
    DELETE FROM schema_migrations WHERE version = 3;";

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_with_what_is_in_it() {
    let folder = Folder::new();
    let store = folder.open();
    let task = |name: &str, session: serde_json::Value| {
        let spec =
            spec(json!({ "task_id": name, "session_policy": session, "overlap_policy": "allow_parallel" }));
        Task { spec, ..task("do it") }
    };
    let tasks = [task("fixed", json!({ "type": "fixed", "session_id": "s" })), task("own", json!("run"))];
    let mut expected: [Vec<RunId>; 2] = Default::default();
    for (task, ids) in tasks.iter().zip(&mut expected) {
        let put = TaskWrite {
            task_id: task.spec.task_id.clone(),
            expect: None,
            change: TaskChange::Put(Box::new(task.clone())),
            events: vec![created()],
        };
        let task_write = Decision { task: Some(put), ..Decision::default() };
        store.commit(vec![task_write]).await.expect("an answer").remove(0).expect("stored");
        // The first is one of its kind, others share what they have in common; the last waits for its time.
        for wait in [0, 0, 60] {
            let due_at = NOW.plus(Duration::from_secs(wait));
            let wanted = Wanted { due_at, not_before: due_at, ..Wanted::now(RunId::generate(), NOW) };
            let write = rules::enqueue(task, wanted, Moment { now: NOW, stamp: 7 });
            ids.insert(0, write.run.run_id.clone());
            store.commit(vec![write.into()]).await.expect("an answer").remove(0).expect("queued");
        }
    }
    store.close().await.expect("closed");
    folder.sql().execute_batch(BEFORE_LISTINGS).expect("an older schema");
    let store = folder.open();
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());
    let listed = async |filter: RunFilter| -> Vec<RunId> {
        let page = store.runs(filter, PageRequest::default()).await.expect("a page");
        page.items.into_iter().map(|run| run.run_id).collect()
    };
    let of = |session: &str| RunFilter { session_id: Some(session.into()), ..RunFilter::default() };
    assert_eq!(listed(of("s")).await, expected[0]);
    for run_id in &expected[1] {
        assert_eq!(listed(of(&format!("background:{run_id}"))).await, std::slice::from_ref(run_id));
    }
    let after = RunFilter { created_after: Some(NOW), ..RunFilter::default() };
    assert_eq!(listed(after).await.len(), 6);
    let agenda = store.agenda().await.expect("an agenda");
    assert_eq!((agenda.run, agenda.ready), (Some(NOW.plus(Duration::from_secs(60))), true));
    assert_eq!(store.claim(claim_request(1, 10)).await.expect("granted").len(), 4);
    for task in &tasks {
        let told = store.events(Subject::Task(task.spec.task_id.clone()), 0, 10).await.expect("events");
        assert_eq!(told.iter().map(|event| event.event).collect::<Vec<_>>(), [EventKind::TaskCreated]);
    }
}

#[test]
fn a_newer_schema_is_refused_with_both_versions() {
    let folder = Folder::new();
    drop(folder.open());
    let newer = "INSERT INTO schema_migrations VALUES (9, '0009_later', 'x', 0)";
    folder.sql().execute_batch(newer).expect("a newer schema");
    let (kind, message) = folder.refusal();
    assert_eq!(kind, RefusedKind::NewerSchema);
    assert!(message.contains("schema version 9") && message.contains("up to 3"), "{message}");
}

#[test]
fn an_edited_migration_is_refused_by_name() {
    let folder = Folder::new();
    drop(folder.open());
    folder.sql().execute_batch("UPDATE schema_migrations SET checksum = 'another'").expect("an edit");
    let (kind, message) = folder.refusal();
    assert_eq!(kind, RefusedKind::Corrupt);
    assert!(message.contains("\"0001_first\""), "{message}");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let folder = Folder::new();
    folder.sql().execute_batch("CREATE TABLE theirs (x)").expect("a table");
    let before = fs::read(folder.file()).expect("a file");
    let (kind, message) = folder.refusal();
    assert_eq!(kind, RefusedKind::Invalid);
    assert!(message.contains("another program"), "{message}");
    assert_eq!(fs::read(folder.file()).expect("a file"), before);
}

// --- the file -------------------------------------------------------------------------------------------

#[test]
fn a_path_that_is_no_file_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let cases = [
        (folder.0.path().join("none").join("tenure.db"), "create the folder first"),
        (folder.0.path().to_owned(), "it is a folder"),
        (PathBuf::new(), "use the memory store"),
        (PathBuf::from(":memory:"), "use the memory store"),
    ];
    for (path, expected) in cases {
        let (kind, message) = refusal(SqliteStore::open(options(&path)));
        assert_eq!(kind, RefusedKind::Invalid);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains(&format!("\"{}\"", path.display())), "{message}");
    }
    assert_eq!(fs::read_dir(folder.0.path()).expect("a folder").count(), 0, "nothing was made");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let text = "these are somebody's notes, and no database at all\n".repeat(100);
    fs::write(folder.file(), &text).expect("a file");
    let (kind, message) = folder.refusal();
    assert_eq!(kind, RefusedKind::Corrupt);
    assert!(message.contains("not a database") && message.contains("put back a copy"), "{message}");
    assert_eq!(fs::read_to_string(folder.file()).expect("a file"), text);
}

#[tokio::test]
async fn a_file_that_can_only_be_read_is_refused_at_once() {
    if let Ok(path) = std::env::var(OTHER_USER) {
        let (kind, message) = refusal(SqliteStore::open(options(Path::new(&path))));
        assert_eq!(kind, RefusedKind::ReadOnly);
        assert!(message.contains("can only be read") && message.contains("writable"), "{message}");
        return;
    }
    let folder = Folder::new();
    let store = folder.open();
    enqueue(&store, 1).await;
    store.close().await.expect("closed");
    let before = fs::read(folder.file()).expect("a file");
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o444)).expect("a mode");
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    again_as_somebody_else("a_file_that_can_only_be_read_is_refused_at_once", &folder.file());
    assert_eq!(fs::read(folder.file()).expect("a file"), before);
}

/// What is told when this user may not write these, and not that some disk fails or somebody holds the file.
#[tokio::test]
async fn what_this_user_may_not_write_is_named_when_a_file_cannot_be_opened() {
    if let Ok(path) = std::env::var(OTHER_USER) {
        let path = Path::new(&path);
        let folder = path.parent().expect("a folder");
        let the_folder = format!("the folder \"{}\"", folder.display());
        let closed = folder.join("closed.db");
        let the_file = format!("the file \"{}\"", closed.display());
        for (file, denied) in
            [(&*folder.join("fresh.db"), &the_folder), (path, &the_folder), (&closed, &the_file)]
        {
            let (kind, message) = refusal(SqliteStore::open(options(file)));
            assert_eq!(kind, RefusedKind::ReadOnly, "{message}");
            let expected =
                format!("\"{}\" cannot be opened: this user may not write {denied}; make", file.display());
            assert!(message.contains(&expected), "{message}\nis not\n{expected}");
        }
        return;
    }
    let folder = Folder::new();
    folder.open().close().await.expect("closed");
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    fs::copy(folder.file(), folder.0.path().join("closed.db")).expect("a copy");
    mode(&folder.0.path().join("closed.db"), 0o000);
    mode(&folder.file(), 0o666);
    mode(folder.0.path(), 0o555);
    again_as_somebody_else(
        "what_this_user_may_not_write_is_named_when_a_file_cannot_be_opened",
        &folder.file(),
    );
    mode(folder.0.path(), 0o755);
}

/// Runs a test of this program in a child that opens this file, as nobody if this user may write everything: no mode
/// would stop it.
fn again_as_somebody_else(test: &str, file: &Path) {
    let (place, program) = copied::for_everybody(&std::env::current_exe().expect("this program"));
    let mut child = Command::new(program);
    child.args(["--exact", test]).env(OTHER_USER, file).current_dir(place.path());
    if fs::metadata(place.path()).expect("a folder").uid() == 0 {
        child.uid(65_534).gid(65_534);
    }
    let output = child.output().expect("a child");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

/// The file that the child of [`again_as_somebody_else`] opens.
const OTHER_USER: &str = "TENURE_TEST_SQLITE_OTHER_USER";

#[tokio::test]
async fn own_f02_a_record_that_cannot_be_read_is_named_and_the_others_are_served() {
    let folder = Folder::new();
    let store = folder.open();
    let ids = enqueue(&store, 3).await;
    let run = "WHERE run_id = ?1";
    let spoilt = [
        format!("UPDATE runs SET body = X'01FF' {run}"),
        format!("UPDATE runs SET body = X'' {run}"),
        format!("UPDATE runs SET part = 999 {run}"),
        format!("UPDATE runs SET part = NULL {run}"),
    ];
    for spoil in spoilt {
        assert_eq!(folder.sql().execute(&spoil, [ids[1].as_str()]).expect("spoilt"), 1);
        let page = store.runs(RunFilter::default(), PageRequest::default()).await.expect("a page");
        assert_eq!(page.items.len(), 2, "{spoil}");
        assert_eq!(page.corrupt.len(), 1);
        assert_eq!(page.corrupt[0].0, ids[1].as_str());
        let why = &page.corrupt[0].1;
        assert!(why.contains("cannot be read") || why.contains("no specification"), "{why}");
        let (kind, _) = refusal(store.run(&ids[1]).await);
        assert_eq!(kind, RefusedKind::Corrupt);
    }
}

#[tokio::test]
async fn field_x01_a_ready_run_that_cannot_be_read_stops_no_claim() {
    let folder = Folder::new();
    let store = folder.open();
    let ids = enqueue(&store, 3).await;
    folder.sql().execute_batch("UPDATE specs SET spec = '{' WHERE rid = 1").expect("spoilt");
    let claimed = store.claim(claim_request(1, 10)).await.expect("a claim");
    let found: Vec<RunId> = claimed.into_iter().map(|run| run.run_id).collect();
    assert_eq!(found, ids[1..]);
    let told = store.check(false).await.expect("a check");
    assert_eq!(told, [format!("run \"{}\" could not be read when it was to be claimed", ids[0])]);
    // Once its record is put right, a repair has it claimed.
    folder
        .sql()
        .execute_batch("UPDATE runs SET part = (SELECT part FROM runs WHERE rid = 2) WHERE rid = 1")
        .expect("put right");
    store.check(true).await.expect("repaired");
    assert_eq!(store.claim(claim_request(1, 10)).await.expect("a claim").len(), 1);
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());
}

#[tokio::test]
async fn a_full_disk_refuses_the_write_as_a_whole_and_reads_go_on() {
    let folder = Folder::new();
    drop(folder.open());
    let store =
        SqliteStore::open(SqliteOptions { most_bytes: Some(600_000), ..folder.options() }).expect("a store");
    let kept = enqueue(&store, 5).await.len();
    let big: Vec<_> = (0..50).map(|n| queued(&format!("{n}{}", "x".repeat(50_000))).into()).collect();
    let error = store.commit(big).await.expect_err("it does not fit");
    assert!(error.is_transient());
    let (kind, message) = refusal::<()>(Err(error));
    assert_eq!(kind, RefusedKind::Full);
    assert!(message.contains("free space"), "{message}");
    assert_eq!(all(&store).await.len(), kept);
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());
    // What fits is still written.
    assert_eq!(store.claim(claim_request(1, 10)).await.expect("a claim").len(), kept);
}

const REFUSE_ODD: &str = "CREATE TRIGGER t BEFORE INSERT ON runs WHEN new.run_id = 'odd'
    BEGIN SELECT raise(ABORT, 'odd'); END";

#[tokio::test]
async fn a_write_that_the_file_cannot_take_fails_its_own_call_alone() {
    let folder = Folder::new();
    let store = folder.open();
    folder.sql().execute_batch(REFUSE_ODD).expect("a trigger");
    let mut odd = queued("do it");
    odd.run.run_id = RunId::new("odd").expect("an id");
    let good = queued("do it");
    let (one, two, three) = tokio::join!(
        store.commit(vec![queued("do it").into()]),
        store.commit(vec![odd.into()]),
        store.commit(vec![good.into()]),
    );
    assert_eq!(one.expect("an answer"), [Ok(())]);
    refusal(two);
    assert_eq!(three.expect("an answer"), [Ok(())]);
    assert_eq!(all(&store).await.len(), 2);
}

// --- other programs -------------------------------------------------------------------------------------

#[tokio::test]
async fn field_g11_a_lock_held_by_another_program_costs_waiting_and_no_outcome() {
    let folder = Folder::new();
    let store = folder.open();
    enqueue(&store, 20).await;
    let claimed = store.claim(claim_request(1, 20)).await.expect("a claim");
    let started: Vec<RunWrite> = claimed.iter().map(begun).collect();
    let running: Vec<Run> = started.iter().map(|write| write.run.clone()).collect();
    store.commit(started.into_iter().map(Into::into).collect()).await.expect("started");
    // Another program writes, and is not done when the runs finish.
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET id = 0").expect("the lock");
    let finished = store.commit(running.iter().map(|run| ended(run).into()).collect());
    let leases = running.iter().map(|run| (run.run_id.clone(), run.token().expect("a token"))).collect();
    let instance = InstanceId::from_bits(1);
    let renewal = tenure::store::RenewRequest { instance, leases, lease: Duration::from_secs(30) };
    let renewed = store.renew(renewal);
    let both = async { tokio::join!(finished, renewed) };
    tokio::pin!(both);
    // Polled once: the calls have been made, and wait. Reads do not.
    assert!(futures_util::poll!(&mut both).is_pending());
    assert_eq!(all(&store).await.len(), 20);
    assert!(futures_util::poll!(&mut both).is_pending(), "nothing is answered under a foreign lock");
    other.execute_batch("COMMIT").expect("let go");
    let (finished, renewed) = both.await;
    assert!(finished.expect("outcomes").iter().all(Result::is_ok));
    assert_eq!(renewed.expect("renewals").len(), 20);
    assert_eq!(store.counts(None).await.expect("counts"), [(RunStatus::Completed, 20)]);
}

#[tokio::test]
async fn field_g11_only_past_the_patience_is_a_lock_an_error_and_a_passing_one() {
    let folder = Folder::new();
    drop(folder.open());
    let patience = Duration::from_millis(30);
    let store =
        SqliteStore::open(SqliteOptions { busy_timeout: patience, ..folder.options() }).expect("a store");
    let other = folder.sql();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let error = store.commit(vec![queued("do it").into()]).await.expect_err("locked");
    assert!(error.is_transient());
    let (kind, message) = refusal::<()>(Err(error));
    assert_eq!(kind, RefusedKind::Unavailable);
    assert!(message.contains("locked") && message.contains("try again"), "{message}");
    other.execute_batch("ROLLBACK").expect("let go");
    assert_eq!(all(&store).await.len(), 0, "it did not happen");
    enqueue(&store, 1).await;
}

#[tokio::test]
async fn field_c02_a_change_by_another_program_wakes_watchers_and_names_who_is_cancelled() {
    let folder = Folder::new();
    let (one, two) = (folder.open(), folder.open());
    enqueue(&one, 1).await;
    let run = one.claim(claim_request(1, 1)).await.expect("a claim").remove(0);
    let mut hints = one.watch();
    let request = rules::CancelRequest {
        mode: tenure::model::CancelMode::Cooperative,
        reason: "enough".into(),
        requested_by: "somebody".into(),
        force_after: None,
    };
    let rules::Cancel::Write(write) = rules::cancel(&run, &request, Moment { now: NOW, stamp: 9 }) else {
        panic!("expected a write");
    };
    two.commit(vec![write.into()]).await.expect("asked");
    loop {
        let hint = hints.recv().await.expect("a hint");
        if hint.cancels.contains(&run.run_id) {
            assert!(hint.ready && hint.agenda);
            break;
        }
    }
}

/// The other OS process of [`field_k11_two_processes_on_one_file_start_each_run_once`].
const CHILD: &str = "TENURE_TEST_SQLITE_CHILD";

#[tokio::test]
async fn field_k11_two_processes_on_one_file_start_each_run_once() {
    if let Ok(path) = std::env::var(CHILD) {
        let store = SqliteStore::open(options(Path::new(&path))).expect("a store");
        assert_eq!(drain(&store, u128::from(std::process::id())).await.expect("drained"), ());
        return;
    }
    let folder = Folder::new();
    let store = folder.open();
    let ids = enqueue(&store, 300).await;
    let name = "field_k11_two_processes_on_one_file_start_each_run_once";
    let child = || {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", name]).env(CHILD, folder.file()).stdout(Stdio::null());
        child.spawn().expect("a child")
    };
    let mut children = [child(), child()];
    drain(&store, 1).await.expect("drained");
    for child in &mut children {
        assert!(child.wait().expect("an end").success());
    }
    assert_eq!(store.counts(None).await.expect("counts"), [(RunStatus::Completed, 300)]);
    for id in ids {
        assert_eq!(store.attempts(&id).await.expect("attempts").len(), 1, "started once");
        let events = store.events(tenure::model::Subject::Run(id), 0, 10).await.expect("events");
        assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());
}

/// Claims, starts and finishes until nothing is left.
async fn drain(store: &SqliteStore, instance: u128) -> Result<(), StoreError> {
    loop {
        let runs = store.claim(claim_request(instance, 5)).await?;
        if runs.is_empty() {
            return Ok(());
        }
        for run in runs {
            let start = begun(&run);
            let end = ended(&start.run);
            for answer in store.commit(vec![start.into(), end.into()]).await? {
                answer.expect("nobody else has it");
            }
        }
    }
}

fn begun(run: &Run) -> RunWrite {
    rules::start(run, run.token().expect("a token"), Moment { now: NOW, stamp: 3 }).expect("claimed")
}

fn ended(run: &Run) -> RunWrite {
    let outcome = Outcome::Completed(RunResult::Inline(Payload::text("done")));
    rules::finish(run, run.token().expect("a token"), outcome, 0, Moment { now: NOW, stamp: 4 })
        .expect("running")
}

// --- the end --------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_close_moves_the_log_into_the_file_and_later_calls_are_refused() {
    let folder = Folder::new();
    let store = folder.open();
    enqueue(&store, 3).await;
    store.close().await.expect("closed");
    let names = fs::read_dir(folder.0.path()).expect("a folder").map(|e| e.expect("an entry").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["tenure.db"], "neither log nor index is left beside it");
    assert_eq!(refusal(store.now().await).0, RefusedKind::Closed);
    assert_eq!(refusal(store.commit(vec![queued("do it").into()]).await).0, RefusedKind::Closed);
    assert_eq!(refusal(store.counts(None).await).0, RefusedKind::Closed);
    store.close().await.expect("closed as it was");
}

#[tokio::test]
async fn a_store_that_is_dropped_ends_what_waits_and_loses_nothing_that_was_answered() {
    let folder = Folder::new();
    let store = folder.open();
    enqueue(&store, 3).await;
    let mut last = store.commit(vec![queued("do it").into()]);
    assert!(futures_util::poll!(&mut last).is_pending(), "it waits in the mailbox");
    drop(last);
    drop(store);
    let again = folder.open();
    assert!(all(&again).await.len() >= 3);
}

#[tokio::test]
async fn a_result_comes_back_byte_for_byte() {
    let folder = Folder::new();
    let store = folder.open();
    for bytes in [vec![], vec![0, 255, 10], vec![7; 100_000]] {
        let id = enqueue(&store, 1).await.remove(0);
        let run = store.claim(claim_request(1, 1)).await.expect("a claim").remove(0);
        let start = begun(&run);
        let payload = Payload { media_type: "application/octet-stream".into(), bytes: bytes.into() };
        let result = RunResult::Inline(payload);
        let outcome = Outcome::Completed(result.clone());
        let token = run.token().expect("a token");
        let end =
            rules::finish(&start.run, token, outcome, 0, Moment { now: NOW, stamp: 4 }).expect("running");
        store.commit(vec![start.into(), end.into()]).await.expect("done");
        assert_eq!(store.run(&id).await.expect("a run").and_then(|run| run.result), Some(result));
    }
}
