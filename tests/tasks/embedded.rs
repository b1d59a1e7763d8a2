//! A host on a file of its own, as a program has it that needs nothing else.

use serde_json::json;
use tenure::model::{RunStatus, TaskSpec};
use tenure::{Error, RunContext, RunRequest, Tenure};

use crate::kit::*;

#[tokio::test]
async fn an_embedded_host_that_is_opened_again_finds_the_runs_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let host = Tenure::embedded(&path).await.unwrap();
    host.register_agent("agent", |context: RunContext| async move {
        Ok(format!("hello, {}", context.query()).into())
    })
    .unwrap();
    host.create_task(TaskSpec::from_value(&task(json!({ "query": "world" }))).unwrap()).await.unwrap();
    let run = host.run_now(&name("t"), RunRequest::default()).await.unwrap();
    let ended = host.wait(&run.run_id, None).await.unwrap().run;
    assert_eq!(ended.status, RunStatus::Completed);
    assert_eq!(host.shutdown().await.unwrap().unstored, 0);
    drop(host);

    let again = Tenure::embedded(&path).await.unwrap();
    let found = again.run(&run.run_id).await.unwrap();
    assert_eq!(found.result.map(|result| result.preview()).as_deref(), Some("hello, world"));
    again.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_embedded_host_does_not_open_on_a_file_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Tenure::embedded(folder.path()).await;
    assert!(matches!(refused, Err(Error::Store(_))), "{:?}", refused.map(|_| "opened"));
}
