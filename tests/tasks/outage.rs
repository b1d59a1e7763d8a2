//! What the log tells of an outage of the store.

use serde_json::json;
use tenure::Settings;
use tenure::testkit::{Gate, Script, TestHost};

use crate::kit::*;
use crate::traced::{self, Lines};

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_when_it_begins_once_a_minute_and_when_it_is_over() {
    let log = Lines::default();
    let _heard = listen(&log);
    let settings = Settings {
        poll: SECOND,
        sweep: Some(SECOND),
        lease: HOUR,
        prune_every: 40 * SECOND,
        ..TestHost::settings()
    };
    let host = TestHost::open_with("2026-01-01T00:00:00Z", settings).await;
    let gate = Gate::new();
    host.agent("agent", Script::new().waits_at(&gate).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    gate.arrived(1).await;
    for seconds in [150, 10] {
        host.cut_off();
        gate.open();
        host.advance(seconds * SECOND).await;
        host.reconnect();
        host.advance(3 * SECOND).await;
    }
    host.see("t").await.assert_statuses("completed");
    let told = told(&log);
    let says =
        told.iter().map(|line| line.split('=').next().and_then(|says| says.rsplit_once(' ')).unwrap().0);
    assert_eq!(
        says.collect::<Vec<_>>(),
        [
            "WARN the store fails; it is asked until it answers",
            "WARN the store still fails",
            "WARN the store still fails",
            "INFO the store answers again",
            "WARN the store fails; it is asked until it answers",
            "INFO the store answers again",
        ],
    );
    for what in
        ["nothing is claimed", "outcomes are kept here", "schedules wait", "lost runs are not looked for"]
    {
        assert!(told[1].contains(what), "expected \"{what}\" in {}", told[1]);
    }
}

/// Listens to what is logged by this thread.
fn listen(log: &Lines) -> tracing::subscriber::DefaultGuard {
    let lines = tracing_subscriber::fmt().with_env_filter("info,ractor=off").with_writer(log.clone());
    traced::listen(lines.with_ansi(false).with_target(false).without_time().finish())
}

/// What was told, but of what went as it should.
fn told(log: &Lines) -> Vec<String> {
    let text = log.text();
    let told = text.lines().map(|line| line.trim().to_owned());
    told.filter(|line| line.starts_with("WARN ") || line.contains("the store")).collect()
}

#[tokio::test(start_paused = true)]
async fn own_p2_what_a_replaced_generation_could_not_store_is_stored_by_the_next_one() {
    let host = host().await;
    let agent = host.agent("agent", Script::new().takes(HOUR).answers("done"));
    host.task(task(json!({}))).await;
    host.run("t").await;
    host.advance(SECOND).await;
    host.cut_off();
    let back = async {
        // The old generation has been given up by then.
        host.advance(600 * SECOND).await;
        host.reconnect();
    };
    let (report, ()) = tokio::join!(host.replace(), back);
    report.unwrap();
    assert_eq!(agent.executing(), 0);
    host.advance(2 * HOUR).await;
    host.see("t").await.run(1).assert_status("completed").assert_attempts("interrupted, completed");
    assert_eq!(host.health().unstored, 0);
}
