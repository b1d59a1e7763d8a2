//! What is derived from runs, after somebody has written to the file by hand (K7).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::clock::SystemClock;
use tenure::model::{CancelMode, InstanceId, Run, RunId, RunStatus, Seconds, Task};
use tenure::ownership::{
    Acquire, Acquired, Cancel, CancelScope, Held, Ownership, OwnershipSettings, Release, Released, Renewed,
    SessionKey, TaskState,
};
use tenure::rules::{self, Moment, Wanted};
use tenure::store::conformance::{claim_request, spec};
use tenure::store::{SqliteOptions, SqliteStore, Store};
use tenure::{Error, RunContext, RunRequest, Settings, Tenure};
use tokio::sync::Semaphore;

use super::{Folder, NOW, begun, ended};

#[tokio::test]
async fn field_k7_a_file_whose_counts_differ_from_its_rows_is_repaired_and_nothing_waits_for_ever() {
    let folder = Folder::new();
    let store = folder.open();
    let task = spec(json!({ "query": "q", "overlap_policy": "queue_next" }));
    let task = Task { spec: task, created_at: NOW, updated_at: NOW, revision: 1, last_event: 0 };
    let queue =
        |stamp| rules::enqueue(&task, Wanted::now(RunId::generate(), NOW), Moment { now: NOW, stamp });
    let (first, second, third) = (queue(11), queue(12), queue(13));
    let waiting = second.run.run_id.clone();
    let left_out = third.run.run_id.clone();
    for answer in store.commit(vec![first.into(), second.into(), third.into()]).await.expect("queued") {
        answer.expect("queued");
    }
    let run = store.claim(claim_request(1, 10)).await.expect("a claim").remove(0);
    let start = begun(&run);
    let end = ended(&start.run);
    store.commit(vec![start.into()]).await.expect("begun");

    let rid = format!("(SELECT rid FROM runs WHERE run_id = '{left_out}')");
    folder
        .sql()
        .execute_batch(&format!(
            "UPDATE lanes SET held = held + 5, total = total + 2;
             UPDATE counters SET n = n + 7 WHERE status = 0;
             INSERT INTO counters (tid, status, n) VALUES (0, 9, 3);
             DELETE FROM lane_runs WHERE rid = {rid};"
        ))
        .expect("damage");
    store.commit(vec![end.into()]).await.expect("ended")[0].as_ref().expect("ended");
    assert!(store.claim(claim_request(2, 10)).await.expect("a claim").is_empty(), "a lane of ghosts is full");

    let found = store.check(false).await.expect("a check");
    let mentions = |what: &str| found.iter().any(|message| message.contains(what));
    assert!(mentions("are counted as queued") && mentions("are counted to take room"), "{found:#?}");
    assert!(mentions(&format!("run \"{left_out}\"")), "{found:#?}");
    let repaired = store.check(true).await.expect("a repair");
    assert!(repaired.starts_with(&found), "what it repaired, and what followed from that: {repaired:#?}");
    assert_eq!(store.check(false).await.expect("a check"), Vec::<String>::new());

    let counts = store.counts(None).await.expect("counts");
    assert!(
        counts.contains(&(RunStatus::Queued, 2)) && counts.contains(&(RunStatus::Completed, 1)),
        "{counts:?}"
    );
    let granted = store.claim(claim_request(3, 10)).await.expect("a claim");
    assert_eq!(
        granted.iter().map(|run| &run.run_id).collect::<Vec<_>>(),
        [&waiting],
        "one at a time, in order"
    );
    let start = begun(&granted[0]);
    let end = ended(&start.run);
    store.commit(vec![start.into(), end.into()]).await.expect("ended");
    let last = store.claim(claim_request(4, 10)).await.expect("a claim");
    assert_eq!(last.iter().map(|run| &run.run_id).collect::<Vec<_>>(), [&left_out]);
}

/// The run once it is as it is waited for.
async fn until(store: &dyn Store, run_id: &RunId, is: impl Fn(&Run) -> bool) -> Run {
    let looks = async {
        loop {
            let run = store.run(run_id).await.expect("a look").expect("a run");
            if is(&run) {
                return run;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looks).await.expect("in time")
}

#[tokio::test]
async fn own_f02_a_held_run_that_cannot_be_read_takes_neither_lease_nor_outcome_from_others() {
    let folder = Folder::new();
    let options = SqliteOptions { clock: Arc::new(SystemClock), ..folder.options() };
    let store = Arc::new(SqliteStore::open(options).expect("a store"));
    let settings = Settings { lease: Duration::from_secs(1), ..Settings::default() };
    let tenure = Tenure::open(Arc::clone(&store) as _, settings).await.expect("a host");
    let ends = Arc::new(Semaphore::new(0));
    let may_end = Arc::clone(&ends);
    let work = move |_: RunContext| {
        let may_end = Arc::clone(&may_end);
        async move {
            may_end.acquire().await.expect("it is never closed").forget();
            Ok("done".into())
        }
    };
    tenure.register_agent("agent", work).expect("an agent");
    let mut runs = Vec::new();
    for name in ["first", "spoilt", "last"] {
        let task = tenure.create_task(spec(json!({ "task_id": name }))).await.expect("a task");
        let run = tenure.run_now(&task.spec.task_id, RunRequest::default()).await.expect("a run");
        runs.push(until(&*store, &run.run_id, |run| run.status == RunStatus::Running).await);
    }
    let spoil = "UPDATE runs SET body = X'01FF' WHERE run_id = ?1";
    let sql = folder.sql();
    sql.busy_timeout(Duration::from_secs(5)).expect("patience");
    assert_eq!(sql.execute(spoil, [runs[1].run_id.as_str()]).expect("spoilt"), 1);
    let others = [&runs[0], &runs[2]];
    for run in others {
        let before = run.lease.expect("a lease").expires_at.plus(2 * tenure.settings().lease);
        let held = |run: &Run| run.lease.is_some_and(|lease| lease.expires_at > before);
        assert_eq!(until(&*store, &run.run_id, held).await.attempt, 1);
    }
    ends.add_permits(3);
    for run in others {
        let ended = until(&*store, &run.run_id, |run| run.status.is_terminal()).await;
        assert_eq!((ended.status, ended.attempt), (RunStatus::Completed, 1));
    }
}

/// Tasks 1 to `most` of a session, each owned; the record of the one that is named cannot be read.
async fn owned(own: &Ownership, folder: &Folder, most: u64, spoilt: u64) -> (SessionKey, Vec<Held>) {
    let session = SessionKey::new("test", "host", "s").expect("a session");
    let (owner, ttl) = (InstanceId::from_bits(1), Seconds::new(30));
    let mut held = Vec::new();
    for task in 1..=most {
        let request = Acquire::new(session.task(task), owner, format!("request-{task}"), ttl);
        match own.acquire(&request).await.expect("an answer") {
            Acquired::Acquired(granted) => held.push(granted),
            other => panic!("{other:?}"),
        }
    }
    let spoil = "UPDATE runs SET body = X'01FF' WHERE run_id = ?1";
    let spoilt = folder.sql().execute(spoil, [format!("owned.test.host.s.{spoilt}.1")]);
    assert_eq!(spoilt.expect("spoilt"), 1);
    (session, held)
}

#[tokio::test]
async fn own_f02_a_lease_whose_record_cannot_be_read_keeps_no_other_from_its_renewal() {
    let folder = Folder::new();
    let own = Ownership::new(Arc::new(folder.open()), OwnershipSettings::default());
    let (_, held) = owned(&own, &folder, 5, 3).await;
    let renewed = own.renew(InstanceId::from_bits(1), &held, Seconds::new(30)).await;
    let renewed = renewed.expect("an answer for each");
    let words: Vec<_> = renewed
        .iter()
        .map(|renewed| match renewed {
            Renewed::Renewed { .. } => "renewed",
            Renewed::Unreadable { .. } => "unreadable",
            Renewed::Fenced { .. } | Renewed::Gone => "stop",
        })
        .collect();
    assert_eq!(words, ["renewed", "renewed", "unreadable", "renewed", "renewed"]);
}

/// How the tasks of a session stand, and whether somebody asked for their cancel.
async fn words(own: &Ownership, session: &SessionKey) -> Vec<(String, bool)> {
    let seen = own.inspect_session(session).await.expect("a session").tasks;
    let asked = |state: &TaskState| matches!(state, TaskState::Running { cancel: Some(_), .. });
    seen.iter().map(|task| (task.state.as_str().to_owned(), asked(&task.state))).collect()
}

#[tokio::test]
async fn own_f02_nobody_is_told_that_a_run_was_cancelled_whose_record_cannot_be_read() {
    let folder = Folder::new();
    let own = Ownership::new(Arc::new(folder.open()), OwnershipSettings::default());
    let (session, _) = owned(&own, &folder, 3, 2).await;
    let word = |word: &str, asked| (word.to_owned(), asked);
    let refused = own.release_session(&session, Release::Refuse).await.expect("an answer");
    assert_eq!(refused, Released::Refused { running: 3 });

    let cancel = Cancel {
        mode: CancelMode::Cooperative,
        reason: "asked for".into(),
        requested_by: "a user".into(),
        force_after: None,
    };
    let asked = own.request_cancel(&CancelScope::Session(session.clone()), &cancel).await;
    let Err(Error::Store(error)) = asked else { panic!("it must not be believed: {asked:?}") };
    assert!(error.to_string().contains("run \"owned.test.host.s.2.1\" was not cancelled"), "{error}");
    let others_are = [word("running", true), word("unreadable", false), word("running", true)];
    assert_eq!(words(&own, &session).await, others_are);

    let release = Release::Cancel { wait: Seconds::new(0) };
    for still_running in [3, 1] {
        let released = own.release_session(&session, release).await.expect("an answer");
        let Released::Released { still_running: told, .. } = released else { panic!("{released:?}") };
        assert_eq!(told, still_running, "two that are revoked, and the one that is not known of");
        let others_are = [word("cancelled", false), word("unreadable", false), word("cancelled", false)];
        assert_eq!(words(&own, &session).await, others_are);
    }
}
