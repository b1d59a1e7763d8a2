//! What the writer does once the disk has refused its log (decision 0016): nothing is written behind a gap.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::probe::Probe;
use super::{SqliteOptions, SqliteStore, disk, open};
use crate::clock::ManualClock;
use crate::model::{AgentId, Timestamp};
use crate::store::{RefusedKind, Store as _, StoreError};

/// A store on a disk that refuses its log each time, and the folder that it is in.
fn store() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(0)));
    let busy_timeout = Duration::from_millis(5);
    let options =
        SqliteOptions { busy_timeout, ..SqliteOptions::new(folder.path().join("tenure.db"), clock) };
    let writer = open::writer(&options).expect("a connection");
    open::log(&writer, &options).expect("a log").expect("its commits do not wait themselves");
    let store = SqliteStore::start(options, Probe::default(), writer, Some(disk::refused_log()));
    (folder, store.expect("a store"))
}

/// What it came to: nothing is answered as kept on such a disk.
async fn put(store: &SqliteStore, agent: &str) -> StoreError {
    let agent = AgentId::new(agent).expect("an id");
    store.put_agent(&agent, Some("{}".into())).await.expect_err("it is not on the disk")
}

/// The agents that are in the file itself, whatever is in its log.
fn in_the_file(folder: &tempfile::TempDir) -> Vec<String> {
    let copy = folder.path().join("copy.db");
    std::fs::copy(folder.path().join("tenure.db"), &copy).expect("a copy");
    let conn = Connection::open(&copy).expect("a database");
    // The schema is in the log at first.
    let Ok(mut select) = conn.prepare("SELECT agent_id FROM agents") else { return Vec::new() };
    let rows = select.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

fn size_of_the_log(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("tenure.db-wal")).expect("a log").len()
}

#[tokio::test]
async fn a_refused_log_is_moved_into_the_file_before_anything_more_is_written() {
    let (folder, store) = store();
    let error = put(&store, "a").await;
    assert!(matches!(error, StoreError::Unknown { .. }), "{error:?}");
    assert_eq!(in_the_file(&folder), Vec::<String>::new());

    let error = put(&store, "b").await;
    assert!(matches!(error, StoreError::Unknown { .. }), "{error:?}");
    assert_eq!(in_the_file(&folder), ["a"]);
}

#[tokio::test]
async fn while_a_refused_log_is_being_read_nothing_is_written_behind_it() {
    let (folder, store) = store();
    put(&store, "a").await;
    let reader = Connection::open(folder.path().join("tenure.db")).expect("a database");
    reader.execute_batch("BEGIN; SELECT count(*) FROM agents;").expect("a look that lasts");
    let size = size_of_the_log(folder.path());

    let error = put(&store, "b").await;
    let StoreError::Refused { kind: RefusedKind::Unavailable, message } = error else { panic!("{error:?}") };
    assert!(message.contains("the disk has refused its log, which is still being read"), "{message}");
    assert_eq!(size_of_the_log(folder.path()), size);

    reader.execute_batch("COMMIT").expect("its end");
    let error = put(&store, "c").await;
    assert!(matches!(error, StoreError::Unknown { .. }), "{error:?}");
    assert_eq!(in_the_file(&folder), ["a"]);
}
