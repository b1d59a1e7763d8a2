//! Supervised scenarios by their transcripts (contract: transcript). Each is a snapshot.

use std::time::Duration;

use tenure_actors::CloseReason;
use tenure_actors::testkit::{Scenario, Script};

const WORKED_EXAMPLE: &str = include_str!("worked_example.txt");

fn two_processes(name: &str) -> Scenario {
    Scenario::new(name).patience(500).close_deadline(Duration::from_secs(2))
}

/// Ends 5 ms after it was told to.
fn index() -> Script {
    Script::new().after_stop(5)
}

#[test]
fn worked_example() {
    let transcript = two_processes("close while two processes run, one commits late").run(async |stage| {
        let fetch = Script::new().at(60).commit("3 rows").after_stop(21);
        stage.registry().start("feed/42", fetch.function("fetch")).await?;
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(40).await;
        stage.close_as(CloseReason::Superseded).await?;
        Ok(())
    });
    assert_eq!(transcript.to_string(), WORKED_EXAMPLE.trim_end());
    insta::assert_snapshot!(transcript);
}
