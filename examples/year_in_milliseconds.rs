//! A year of background work in milliseconds: a daily report, a morning on which it failed at first, and a
//! night in which its host was killed. Run it with `cargo run --example year_in_milliseconds`.
//!
//! What a test of your own tasks looks like: hosts on a store in memory, a clock that you move, agents that do
//! as they are told, and the history of it all as text.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use tenure::testkit::{Gate, Script, TestHost};

const DAY: Duration = Duration::from_secs(86_400);

const REPORT: &str = r#"{
    "task_id": "report", "agent_id": "writer", "query": "what happened yesterday?",
    "schedule": { "type": "cron", "expression": "0 6 * * *", "timezone": "Europe/Berlin" },
    "retry_policy": { "max_retries": 2 }
}"#;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let host = TestHost::open("2026-01-01T00:00:00Z").await;
    let writer = host.agent("writer", Script::new().answers("all is well"));
    host.task(REPORT).await;

    host.advance_to("2026-06-30T12:00:00Z").await;
    println!("by the end of June: {} reports", writer.calls().len());

    // A morning on which the provider is busy at first.
    let busy = Script::new().fails("exception", "the provider is busy").answers("written at last");
    host.agent("writer", busy);
    host.advance(DAY).await;

    // A night in which the host is killed while it writes, and another takes over.
    let gate = Gate::new();
    host.agent("writer", Script::new().waits_at(&gate).answers("never told"));
    host.advance_to("2026-07-02T04:00:00Z").await;
    gate.arrived(1).await;
    let other = host.another().await;
    host.kill();
    let other_writer = other.agent("writer", Script::new().answers("written by another"));

    other.advance_to("2027-01-01T00:00:00Z").await;
    println!("by the end of the year: {} more by the other host", other_writer.calls().len());
    let report = other.see("report").await;
    report.assert_count("completed", 365);
    let history = report.to_string();
    for run in ["run#182 ", "run#183 "] {
        let of_run = history.split("run#").find(|part| format!("run#{part}").starts_with(run));
        println!(
            "\n{run}{}",
            of_run.and_then(|part| part.split_once(' ')).map_or("", |part| part.1).trim_end()
        );
    }
}
