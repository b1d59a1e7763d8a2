//! Two replicas of a web host, and a conversation whose turns land on either: what the brief of ownership asks for.
//! Run it with `cargo run --example two_replicas`.
//!
//! Each replica executes the background tasks that its own turns start; who owns which is in the store they share.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use tenure::model::{Payload, Seconds};
use tenure::ownership::{
    ChildAgent, ChildDone, ChildSession, Host, OwnershipSettings, Release, SessionTasks,
    SessionTasksSettings, StartTask, WhenStopped,
};
use tenure::testkit::TestHost;
use tenure::{AgentError, Error, RunContext};

const CHAT: &str = "chat-7";

/// Takes five minutes, and remembers what it was asked.
struct Researcher;

impl ChildAgent for Researcher {
    fn description(&self) -> String {
        "Looks things up.".to_owned()
    }

    async fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> Result<ChildDone, AgentError> {
        let before = match session {
            Some(ChildSession::Stored(notes)) => notes.preview(),
            _ => String::new(),
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(300)) => {}
            () = context.cancelled() => return Err(AgentError::new("cancelled", "asked to stop")),
        }
        let notes = format!("{before}[{}]", context.query());
        let answer = format!("what was found: {notes}");
        Ok(ChildDone::from(answer).with_session(ChildSession::Stored(Payload::text(notes))))
    }
}

/// A replica: a host on the shared store, and the tasks of its conversations.
fn replica(host: &TestHost) -> SessionTasks {
    let settings = SessionTasksSettings {
        namespace: "production".into(),
        source: "assistant".into(),
        when_stopped: WhenStopped::Keep,
    };
    SessionTasks::new(Host::new(host, OwnershipSettings::default()), settings).agent("researcher", Researcher)
}

fn research(input: &str, call: &str) -> StartTask {
    StartTask {
        agent: "researcher".into(),
        input: input.into(),
        description: "the sources".into(),
        idempotency_key: Some(call.into()),
        supersedes: None,
    }
}

async fn turn(title: &str, tasks: &SessionTasks) -> Result<(), Error> {
    println!("\n{title}\n{}", tasks.status_block(CHAT).await?);
    Ok(())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Error> {
    let host_a = TestHost::open("2026-01-01T00:00:00Z").await;
    let host_b = host_a.another().await;
    let (a, b) = (replica(&host_a), replica(&host_b));

    println!("1. A healthy task is neither lost nor done twice.");
    println!("\nturn 1 on A:\n{}", a.start(CHAT, research("the sources", "turn-1/call-1")).await?);
    host_a.advance(Duration::from_secs(120)).await;
    turn("turn 2 on B, two minutes later:", &b).await?;
    println!("\nthe model on B makes the same call again:");
    println!("{}", b.start(CHAT, research("the sources", "turn-1/call-1")).await?);
    println!("attempts on A and B: {} and {}", host_a.health().executing, host_b.health().executing);

    println!("\n2. Its result is delivered, from whichever replica serves the next turn.");
    host_a.advance(Duration::from_secs(200)).await;
    turn("turn 3 on B; A has served no turn since the first:", &b).await?;
    for task in b.undelivered(CHAT).await? {
        println!("\n{}", b.describe(&task));
        b.acknowledge(CHAT, task.key.task, task.run).await?;
    }

    println!("\n3. B continues what A began: the session of its agent was stored with the outcome.");
    println!("\nturn 4 on B:\n{}", b.continue_task(CHAT, 1, "the counter-evidence").await?);
    let waited = a.wait_for_first(CHAT, &[1], Duration::from_secs(600)).await?;
    println!("\nturn 5 on A waits for it:\n{}", a.describe_wait(&waited));

    println!("\n4. Lost is what is lost.");
    println!("\nturn 6 on A:\n{}", a.start(CHAT, research("the price", "turn-6/call-1")).await?);
    host_a.kill();
    for (title, seconds) in [("at once:", 1), ("after the lease:", 35), ("after the grace:", 20)] {
        host_b.advance(Duration::from_secs(seconds)).await;
        turn(&format!("A is killed; on B {title}"), &b).await?;
    }
    let again = StartTask { supersedes: Some(2), ..research("the price", "turn-7/call-1") };
    println!("\nturn 7 on B does it again:\n{}", b.start(CHAT, again).await?);

    println!("\n5. A deleted conversation runs nothing any more.");
    let host_c = host_b.another().await;
    let c = replica(&host_c);
    c.release(CHAT, Release::Cancel { wait: Seconds::new(10) }).await?;
    turn("released on C:", &b).await?;
    println!("attempts on B: {}", host_b.health().executing);
    Ok(())
}
