//! A program that writes without end fills the disk up to its limit, and no memory. The only test of its process, for
//! it measures that.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "agents/stage.rs"]
#[allow(dead_code, reason = "shared with other tests, each of which uses some of it")]
mod stage;

use serde_json::json;
use tenure::model::{RunResult, RunStatus};

use crate::stage::{Stage, bash};

const MIB: u64 = 1024 * 1024;

/// The most memory that this process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_writes_hundreds_of_megabytes_fills_no_memory() {
    let stage = Stage::open_with(|settings| {
        let limits = &mut settings.workspace.as_mut().unwrap().settings.limits;
        limits.max_file_bytes = 512 * MIB;
        settings.result_limit = 512 << 20;
    })
    .await;
    stage.agent(bash("true"));
    stage.run(json!({})).await;
    let before = peak();
    stage.agent(bash("head -c 268435456 /dev/zero & head -c 134217728 /dev/zero >&2; wait"));
    let run = stage.run(json!({})).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert!(
        matches!(run.result, Some(RunResult::File { size, .. }) if size == 256 * MIB),
        "{:?}",
        run.result
    );
    assert_eq!(std::fs::metadata(stage.path(&run, "output.md")).unwrap().len(), 256 * MIB);
    let log = std::fs::metadata(stage.path(&run, "logs/attempt-1.stderr.log")).unwrap().len();
    assert!(log < 2 * MIB, "{log}");
    let grown = peak() - before;
    assert!(grown < 24 * MIB, "memory grew by {grown} bytes");
}
