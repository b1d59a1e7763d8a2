//! Tests of background work: hosts on a store in memory and a clock that the test moves, agents that do as they
//! are told, and what became of it as text.
//!
//! ```
//! use std::time::Duration;
//! use tenure::testkit::{Script, TestHost};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() { // a test has #[tokio::test(start_paused = true)]
//! let host = TestHost::open("2026-01-01T00:00:00Z").await;
//! let writer = host.agent("writer", Script::new().answers("written"));
//! host.task(r#"{ "task_id": "diary", "agent_id": "writer", "query": "what happened today?",
//!                "schedule": { "type": "cron", "expression": "@daily" } }"#).await;
//! host.advance(Duration::from_secs(365 * 86_400)).await; // milliseconds later
//! assert_eq!(writer.calls().len(), 365);
//! let diary = host.see("diary").await;
//! diary.run(1).assert_status("completed").assert_attempts("completed");
//! assert!(diary.to_string().contains("run#365 completed"));
//! # }
//! ```
//!
//! | part | for |
//! |---|---|
//! | [`TestHost`] | hosts, several on one store; moving the clock; cutting a host off, or killing it |
//! | [`Script`], [`ScriptedAgent`] | agents that answer, fail, panic, hang, wait, ask, and what they were asked |
//! | [`Gate`] | holding attempts where a test wants them |
//! | [`Seen`], [`SeenRun`] | what became of a task: assertions that tell the whole story when they fail |
//!
//! # Time
//!
//! The kit needs tokio's paused clock on a current-thread runtime. The store's clock follows it, so that
//! schedules, leases, retries, timeouts and limits move together. [`TestHost::advance`] lets every timer in
//! between fire in its order; [`TestHost::drain`] waits until nothing is left to do at this instant. What the
//! kit cannot steer: threads and real I/O, under which a paused clock may jump.
#![allow(clippy::panic, reason = "an assertion that fails panics")]

mod gate;
mod history;
mod host;
mod link;
mod script;
mod seen;

pub use gate::Gate;
pub use host::TestHost;
pub use script::{Call, Effect, Script, ScriptedAgent};
pub use seen::{Seen, SeenRun};
