//! Programs tell how far they are, as long as their attempt may.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::agents::progress::{ProgressError, tell};
use tenure::model::{CancelMode, EventKind, RunStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::stage::{Canary, Held, Stage};

/// A program that says how its progress can be told, and waits.
const TELLS: &str = "echo $TENURE_PROGRESS >&9; echo $TENURE_PROGRESS_TOKEN >&9; sleep 1000";

struct Told {
    address: String,
    token: String,
    _held: Held,
}

async fn told(canary: &Canary) -> Told {
    let mut held = canary.held().await;
    Told { address: held.line().await, token: held.line().await, _held: held }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_on_descriptor_3_are_progress() {
    let canary = Canary::new().await;
    let stage = Stage::open().await;
    let script = "echo nonsense { >&3; head -c 200000 /dev/zero | tr '\\0' x >&3; echo >&3; \
                  echo '40 indexed 400 files' >&3; echo go >&9; sleep 1000";
    stage.agent(canary.bash(script));
    let run = stage.start(json!({})).await;
    assert_eq!(canary.held().await.line().await, "go");
    let event = stage.event_if(&run, |event| event.data["percent"] == 40).await;
    assert_eq!(event.data["message"], "indexed 400 files");
    let progress = stage.tenure.run(&run.run_id).await.unwrap().progress.unwrap();
    assert_eq!((progress.percent, &*progress.message), (Some(40), "indexed 400 files"));
    stage.cancel(&run, CancelMode::Cooperative).await;
    assert_eq!(stage.settled(&run).await.status, RunStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_by_token_until_the_attempt_is_over() {
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash(TELLS));
    let run = stage.start(json!({})).await;
    let Told { address, token, _held: held } = told(&canary).await;
    tell(&address, &token, Some(40), "indexed 400 files").await.unwrap();
    stage.event(&run, EventKind::Progress).await;
    let progress = stage.tenure.run(&run.run_id).await.unwrap().progress.unwrap();
    assert_eq!((progress.percent, &*progress.message), (Some(40), "indexed 400 files"));
    let refused = tell(&address, &token, Some(101), "").await;
    assert!(matches!(refused, Err(ProgressError::Refused(_))), "{refused:?}");
    let refused = tell(&address, "another", None, "x").await;
    assert!(matches!(refused, Err(ProgressError::Refused(_))), "{refused:?}");
    stage.cancel(&run, CancelMode::Cooperative).await;
    stage.settled(&run).await;
    held.gone().await;
    let refused = tell(&address, &token, Some(50), "too late").await;
    assert!(matches!(&refused, Err(ProgressError::Refused(why)) if why.contains("over")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_an_attempt_that_lost_its_authority_is_refused_by_the_store() {
    let stage = Stage::open_with(|settings| {
        // No heartbeat tells this host of the force before the store does.
        settings.heartbeat = Some(Duration::from_secs(20));
        settings.poll = Duration::from_secs(20);
    })
    .await;
    let canary = Canary::new().await;
    stage.agent(canary.bash(TELLS));
    let run = stage.start(json!({})).await;
    let Told { address, token, .. } = told(&canary).await;
    stage.cancel(&run, CancelMode::Force).await;
    let refused = tell(&address, &token, Some(50), "too late").await;
    assert!(matches!(refused, Err(ProgressError::Refused(_))), "{refused:?}");
    assert_eq!(stage.tenure.run(&run.run_id).await.unwrap().progress, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_or_nonsense_holds_up_nobody() {
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash(TELLS));
    let run = stage.start(json!({})).await;
    let Told { address, token, _held } = told(&canary).await;
    let path = address.strip_prefix("unix:").unwrap();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(path).await.unwrap());
    }
    for nonsense in
        ["\n", "GET / HTTP/1.1\r\n", "{}\n", "{\"token\": 1}\n", &format!("{}\n", "x".repeat(100_000))]
    {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // It may be refused before all of it is said.
        drop(stream.write_all(nonsense.as_bytes()).await);
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).await.is_ok() {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert!(answer["refused"].as_str().unwrap().contains("expected"), "{answer}");
        }
    }
    tell(&address, &token, None, "still here").await.unwrap();
    drop(silent);
    stage.cancel(&run, CancelMode::Cooperative).await;
    stage.settled(&run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_told() {
    for address in ["", "unix:", "http://127.0.0.1", "nonsense"] {
        let refused = tell(address, "t", None, "x").await;
        assert!(matches!(refused, Err(ProgressError::Address(_))), "{refused:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let gone = format!("unix:{}", folder.path().join("gone").display());
    let refused = tell(&gone, "t", None, "x").await;
    assert!(matches!(refused, Err(ProgressError::Unreachable(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_private_and_goes_with_the_host() {
    use std::os::unix::fs::PermissionsExt;
    let (stage, canary) = (Stage::open().await, Canary::new().await);
    stage.agent(canary.bash(TELLS));
    let run = stage.start(json!({})).await;
    let Told { address, .. } = told(&canary).await;
    let socket = std::path::PathBuf::from(address.strip_prefix("unix:").unwrap());
    let folder = socket.parent().unwrap().to_owned();
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    stage.cancel(&run, CancelMode::Cooperative).await;
    stage.settled(&run).await;
    stage.tenure.shutdown().await.unwrap();
    let Stage { tenure, directory, .. } = &stage;
    directory.close();
    assert!(!folder.exists(), "{tenure:?}", tenure = tenure.instance_id());
}
