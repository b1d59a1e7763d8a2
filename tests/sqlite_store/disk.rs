//! What is answered, and what is shown, is on the disk (decision 0016); what it is when the disk takes no more.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use futures_util::future::join_all;
use rusqlite::Connection;
use tenure::model::RunId;
use tenure::store::conformance::claim_request;
use tenure::store::{Between, Look, SqliteOptions, SqliteStore, Store as _, StoreError};

use super::{Folder, all, begun, enqueue, options, queued};

/// Holds whoever is about to wait for the disk until he is let.
fn held() -> (Look, tokio::sync::mpsc::UnboundedReceiver<()>, mpsc::Sender<()>) {
    let (ask, asked) = tokio::sync::mpsc::unbounded_channel();
    let (go, word) = mpsc::channel();
    let word = Mutex::new(word);
    let look: Look = Arc::new(move |between| {
        if between == Between::CommitAndDisk && ask.send(()).is_ok() {
            // The test has ended: nobody holds anything any more.
            let _ = word.lock().expect("a word").recv();
        }
    });
    (look, asked, go)
}

#[tokio::test]
async fn nobody_is_answered_or_shown_what_the_disk_was_not_waited_for() {
    let folder = Folder::new();
    let (look, mut asked, go) = held();
    // One reader: what is asked of it after a look is answered after that look.
    let options = SqliteOptions { readers: 1, ..folder.options() };
    let store = SqliteStore::open_looking(options, look).expect("a store");
    let write = queued("do it");
    let run_id = write.run.run_id.clone();
    let mut enqueued = store.commit(vec![write.into()]);
    assert!(futures_util::poll!(&mut enqueued).is_pending());
    asked.recv().await.expect("it is committed");

    let mut shown = store.run(&run_id);
    assert!(futures_util::poll!(&mut shown).is_pending());
    let counted: u64 = store.counts(None).await.expect("counts").iter().map(|(_, n)| n).sum();
    assert_eq!(counted, 1, "what decisions are made on is as it stands");
    let granted = store.claim(claim_request(1, 1)).await.expect("a grant waits for no disk").remove(0);
    assert!(futures_util::poll!(&mut enqueued).is_pending());
    assert!(futures_util::poll!(&mut shown).is_pending(), "it has been looked at, and is not shown");

    go.send(()).expect("somebody waits");
    assert!(enqueued.await.expect("an answer")[0].is_ok());
    assert!(shown.await.expect("an answer").is_some());

    let mut started = store.commit(vec![begun(&granted).into()]);
    assert!(futures_util::poll!(&mut started).is_pending());
    asked.recv().await.expect("it is committed");
    assert!(futures_util::poll!(&mut started).is_pending(), "it has a wait of its own");
    go.send(()).expect("somebody waits");
    assert!(started.await.expect("an answer")[0].is_ok());
}

#[tokio::test]
async fn whoever_comes_while_the_disk_is_waited_for_shares_the_next_wait() {
    let folder = Folder::new();
    let (look, mut asked, go) = held();
    let store = SqliteStore::open_looking(folder.options(), look).expect("a store");
    let mut first = store.commit(vec![queued("do it").into()]);
    assert!(futures_util::poll!(&mut first).is_pending());
    asked.recv().await.expect("it is committed");
    let mut others: Vec<_> = (0..20).map(|_| store.commit(vec![queued("do it").into()])).collect();
    for other in &mut others {
        assert!(futures_util::poll!(other).is_pending());
    }
    // A grant is answered when it is committed, and so are those that were asked before it.
    assert_eq!(store.claim(claim_request(1, 30)).await.expect("a claim").len(), 21);
    go.send(()).expect("somebody waits");
    first.await.expect("an answer");
    asked.recv().await.expect("one wait");
    go.send(()).expect("somebody waits");
    for answer in join_all(others).await {
        assert!(answer.expect("an answer")[0].is_ok());
    }
    assert!(asked.try_recv().is_err(), "and no more");
}

#[tokio::test]
async fn what_was_answered_is_in_a_file_that_lost_its_power_after_the_wait_for_it() {
    let folder = Folder::new();
    let copies = tempfile::tempdir().expect("a folder");
    let taken = Arc::new(AtomicUsize::new(0));
    let (source, target, counter) = (folder.file(), copies.path().to_owned(), Arc::clone(&taken));
    let look: Look = Arc::new(move |between| {
        if between != Between::CommitAndDisk {
            return;
        }
        // What the disk has of the file after this wait, at the least.
        let n = counter.load(Ordering::SeqCst);
        let copy = target.join(format!("{n}.db"));
        fs::copy(&source, &copy).expect("a copy");
        fs::copy(log(&source), log(&copy)).expect("a copy of the log");
        counter.store(n + 1, Ordering::SeqCst);
    });
    let store = SqliteStore::open_looking(folder.options(), look).expect("a store");
    let callers = (0..16).map(|_| async {
        let mut answered = Vec::new();
        for _ in 0..8 {
            let run_id = enqueue(&store, 1).await.remove(0);
            answered.push((run_id, taken.load(Ordering::SeqCst) - 1));
        }
        answered
    });
    for (run_id, copy) in join_all(callers).await.into_iter().flatten() {
        let path = copies.path().join(format!("{copy}.db"));
        assert!(has(&path, &run_id), "run \"{run_id}\" was answered before wait {copy} had ended");
    }
}

fn log(file: &Path) -> std::path::PathBuf {
    file.with_extension("db-wal")
}

fn has(file: &Path, run_id: &RunId) -> bool {
    let found = Connection::open(file).expect("a database").query_row(
        "SELECT count(*) FROM runs WHERE run_id = ?1",
        [run_id.as_str()],
        |row| row.get::<_, i64>(0),
    );
    found.expect("a count") == 1
}

// --- a disk that takes no more --------------------------------------------------------------------------

/// The file that the child of the next test fills.
const FILLED: &str = "TENURE_TEST_SQLITE_FILLED";

/// Past the limit of a file's size a write ends in the middle, as on a disk that is full.
#[tokio::test]
async fn a_file_that_may_not_grow_refuses_by_name_and_keeps_all_that_was_answered() {
    if let Ok(path) = std::env::var(FILLED) {
        return fill(Path::new(&path)).await;
    }
    let folder = Folder::new();
    drop(folder.open());
    let answered = folder.0.path().join("answered");
    // A shell sets the limit, and has the signal ignored that comes with it.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 3000; exec "$0" "$@""#]);
    shell.arg(std::env::current_exe().expect("this program"));
    shell.args(["--exact", "disk::a_file_that_may_not_grow_refuses_by_name_and_keeps_all_that_was_answered"]);
    let output = shell.env(FILLED, folder.file()).output().expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let sound: String =
        folder.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(sound, "ok");
    let store = folder.open();
    let kept: Vec<RunId> = all(&store).await.into_iter().map(|run| run.run_id).collect();
    let answered = fs::read_to_string(answered).expect("what was answered");
    assert!(answered.lines().count() >= 5, "some were written before it was full: {answered}");
    for run_id in answered.lines() {
        assert!(kept.iter().any(|kept| kept.as_str() == run_id), "run \"{run_id}\" was answered and is gone");
    }
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());
    enqueue(&store, 1).await;
}

/// Writes until nothing fits any more, and says what was answered.
async fn fill(path: &Path) {
    let store = SqliteStore::open(options(path)).expect("a store");
    let mut answered = String::new();
    let error = loop {
        let write = queued(&"x".repeat(50_000));
        let run_id = write.run.run_id.clone();
        match store.commit(vec![write.into()]).await {
            Ok(answers) => {
                assert!(answers[0].is_ok());
                answered = answered + run_id.as_str() + "\n";
            }
            Err(error) => break error,
        }
    };
    assert!(error.is_transient() || matches!(error, StoreError::Unknown { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("\"{}\"", path.display())), "{error}");
    assert!(all(&store).await.len() >= answered.lines().count(), "reads go on");
    fs::write(path.with_file_name("answered"), answered).expect("a small file");
}
