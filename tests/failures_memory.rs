//! Runs that fail, each with a long error, leave nothing in the memory of their host. The only test of its process, for
//! it measures that.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "support/kit.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod kit;

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tenure::clock::SystemClock;
use tenure::model::{RunStatus, TaskSpec};
use tenure::store::{SqliteOptions, SqliteStore};
use tenure::{AgentError, RunContext, RunRequest, Settings, Tenure};

use crate::kit::{as_many, name, task};

/// How many are on their way at once.
const AT_ONCE: usize = 64;

/// The length of an error, in bytes.
const LONG: usize = 10_000;

/// How many the page of the field's faults asks for.
fn runs() -> usize {
    as_many(200_000, 6_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn field_g13_failing_runs_do_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteOptions::new(folder.path().join("tenure.db"), Arc::new(SystemClock)))
        .unwrap();
    let settings = Settings { concurrency: AT_ONCE, ..Settings::default() };
    let tenure = Tenure::open(Arc::new(store), settings).await.unwrap();
    let fails = |_: RunContext| async { Err(AgentError::new("exception", "x".repeat(LONG))) };
    tenure.register_agent("agent", fails).unwrap();
    let task = task(json!({ "overlap_policy": "allow_parallel" }));
    tenure.create_task(TaskSpec::parse(&task.to_string()).unwrap()).await.unwrap();
    // Caches that have an end fill first.
    fail(&tenure, runs() / 3).await;
    let before = resident();
    fail(&tenure, runs() - runs() / 3).await;
    let after = resident();
    assert!(after < before + before / 5, "the process grew from {before} to {after} bytes");
    tenure.shutdown().await.unwrap();
}

async fn fail(tenure: &Tenure, many: usize) {
    let one = async |_| {
        let run = tenure.run_now(&name("t"), RunRequest::default()).await.unwrap();
        let ended = tenure.wait(&run.run_id, None).await.unwrap().run;
        assert_eq!(ended.status, RunStatus::Failed);
    };
    stream::iter(0..many).for_each_concurrent(AT_ONCE, one).await;
}

/// How much memory the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}
