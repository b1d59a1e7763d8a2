//! Servers and addresses that a store cannot use, each with what is said of it.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use serde_json::json;
use tenure::model::{RunId, RunStatus, Subject};
use tenure::store::{MongoOptions, MongoStore, RefusedKind, Store as _, StoreError};

use super::{mongo, mongodb_server, runs};

super::list! {
    a_password_is_shown_nowhere,
    an_address_that_makes_no_sense_says_what_was_expected,
    a_server_that_is_not_there_is_a_passing_error,
    a_server_without_transactions_is_refused_and_told_how_to_get_them,
    a_newer_schema_is_refused_with_both_versions,
    what_fails_within_the_server_is_done_once_it_does_not,
    a_commit_that_fails_within_the_server_is_made_again_and_happens_once,
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> (RefusedKind, String) {
    match answer {
        Err(StoreError::Refused { kind, message }) => (kind, message),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

/// Of a server that is not there: who waits less finds out sooner.
fn impatient(url: &str) -> MongoOptions {
    let mut options = MongoOptions::parse(url).unwrap();
    options.patience = Duration::from_millis(300);
    options
}

async fn a_password_is_shown_nowhere() {
    for url in
        ["mongodb://u:hunter2@127.0.0.1:1/d", "mongodb://u:hunter2@127.0.0.1:1/d?authSource=%zzhunter2"]
    {
        let options = impatient(url);
        let failed = MongoStore::connect(options.clone()).await.expect_err("nobody listens there");
        let told = format!("{options:?} {failed} {failed:?}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    for url in ["mongodb://u:hunter2@127.0.0.1:1", "mongodb://:hunter2", "mongodb://u:hun/ter2@h/d"] {
        let error = MongoOptions::parse(url).expect_err("it names no database");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2") && !told.contains("ter2"), "{told}");
    }
}

async fn an_address_that_makes_no_sense_says_what_was_expected() {
    let (kind, message) = refusal(MongoOptions::parse("mongodb://127.0.0.1:1"));
    assert_eq!(kind, RefusedKind::Invalid);
    assert!(message.contains("mongodb://user:password@host:port/database"), "{message}");
    let odd = MongoStore::connect(impatient("mongodb://127.0.0.1:1/d?tls=perhaps")).await;
    let (kind, message) = refusal(odd);
    assert_eq!(kind, RefusedKind::Invalid);
    assert!(message.contains("mongodb://127.0.0.1:1/d"), "{message}");
}

async fn a_server_that_is_not_there_is_a_passing_error() {
    let error = MongoStore::connect(impatient("mongodb://127.0.0.1:1/d")).await;
    let (kind, message) = refusal(error);
    assert_eq!(kind, RefusedKind::Unavailable);
    let reason = message.strip_prefix("\"mongodb://127.0.0.1:1/d\": ").unwrap_or_else(|| panic!("{message}"));
    assert_eq!(
        reason,
        "I/O error: Connection refused (os error 111); see that the server runs and can be reached, and try again"
    );
}

async fn a_server_without_transactions_is_refused_and_told_how_to_get_them() {
    let server = mongodb_server::Server::start(&["--standalone"]).unwrap();
    let options = MongoOptions::parse(&format!("{}/alone", server.url())).unwrap();
    let (kind, message) = refusal(MongoStore::connect(options).await);
    assert_eq!(kind, RefusedKind::Invalid);
    assert!(message.contains("replica set") && message.contains("--replSet"), "{message}");
}

async fn a_newer_schema_is_refused_with_both_versions() {
    let lent = mongo::Lent::new();
    MongoStore::connect(lent.options()).await.unwrap().close().await.unwrap();
    let meta = lent.beside().await.collection::<Document>("meta");
    let schema = async |version: i64| {
        meta.update_one(doc! { "_id": "meta" }, doc! { "$set": { "schema": version } }).await.unwrap();
    };
    schema(999).await;
    let (kind, message) = refusal(MongoStore::connect(lent.options()).await);
    assert_eq!(kind, RefusedKind::NewerSchema);
    assert!(message.contains("schema version 999") && message.contains("up to 1"), "{message}");
}

/// Makes the server fail commands as often as told, with its word for an error within it.
async fn fails(beside: &mongodb::Database, command: &str, times: i32) {
    let data = doc! { "failCommands": [command], "errorCode": 1 };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    beside.client().database("admin").run_command(point).await.unwrap();
}

async fn what_fails_within_the_server_is_done_once_it_does_not() {
    let server = mongodb_server::Server::start(&["--enable-test-commands"]).unwrap();
    let options = MongoOptions::parse(&format!("{}/within", server.url())).unwrap();
    let store = MongoStore::connect(options.clone()).await.unwrap();
    let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
    let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
    let beside = client.database("within");
    for (command, times) in [("insert", 2), ("findAndModify", 1), ("update", 1), ("commitTransaction", 2)] {
        fails(&beside, command, times).await;
        runs::queue(&store, &task, command).await.unwrap();
    }
    let mut options = options;
    // Nothing here takes so long: the server answers that it failed, again and again.
    options.patience = Duration::from_secs(5);
    let store = MongoStore::connect(options).await.unwrap();
    fails(&beside, "insert", i32::MAX).await;
    let (kind, message) = refusal(runs::queue(&store, &task, "never").await);
    assert_eq!(kind, RefusedKind::Unavailable, "{message}");
    fails(&beside, "commitTransaction", i32::MAX).await;
    let unknown = runs::queue(&store, &task, "perhaps").await.unwrap_err();
    assert!(matches!(unknown, StoreError::Unknown { .. }), "{unknown}");
    fails(&beside, "commitTransaction", 0).await;
    // Which is not known until it is looked at: the server only says that it failed, and did nothing.
    let events = store.events(Subject::All, 0, 10).await.unwrap();
    let names: Vec<_> = events.iter().filter_map(|event| event.run_id.as_ref()).map(RunId::as_str).collect();
    assert_eq!(names, ["insert", "findAndModify", "update", "commitTransaction"]);
}

async fn a_commit_that_fails_within_the_server_is_made_again_and_happens_once() {
    let server = mongodb_server::Server::start_odd().unwrap();
    let options = MongoOptions::parse(&format!("{}/commits", server.url())).unwrap();
    let store = MongoStore::connect(options).await.unwrap();
    let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..10 {
        runs::queue(&store, &task, &format!("r{n}")).await.unwrap();
    }
    let claimed = store.claim(runs::claim(20)).await.unwrap();
    assert_eq!(claimed.len(), 10);
    runs::finish(&store, claimed).await;
    let mut counts = store.counts(None).await.unwrap();
    counts.retain(|(_, many)| *many > 0);
    assert_eq!(counts, [(RunStatus::Completed, 10)]);

    // Of a client that does not try again each second transaction fails, with the server's word for its own error.
    let client = mongodb::Client::with_uri_str(server.url()).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    let mut codes = Vec::new();
    for n in 0..4 {
        session.start_transaction().await.unwrap();
        let meta = client.database("commits").collection::<Document>("beside");
        meta.insert_one(doc! { "_id": n }).session(&mut session).await.unwrap();
        codes.extend(session.commit_transaction().await.err().map(|error| error.kind));
    }
    let of_the_server = |kind: &ErrorKind| matches!(kind, ErrorKind::Command(error) if error.code == 1);
    assert_eq!(codes.iter().filter(|kind| of_the_server(kind)).count(), 2, "{codes:?}");
}
