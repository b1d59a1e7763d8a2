//! How the plugin is tested.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure::actors::BoxError;
use tenure::actors::testkit::{Scenario, Stage, Transcript};

use crate::plugin::{Provider, Session, summarise};

/// Answers after as many milliseconds as it is told to, on the clock of the scenario.
struct SlowProvider {
    takes_ms: u64,
}

impl Provider for SlowProvider {
    async fn summarise(&self, text: String) -> String {
        tokio::time::sleep(Duration::from_millis(self.takes_ms)).await;
        format!("{} lines", text.lines().count())
    }
}

/// The application is replaced while the provider works: the summary of the old epoch comes too late, and
/// that of the new epoch counts.
pub(crate) fn replaced_while_the_provider_works() -> Transcript {
    Scenario::new("the application is replaced while the provider works").patience(500).run(story)
}

async fn story(stage: &Stage) -> Result<(), BoxError> {
    let entries = Mutex::new(vec!["one".to_owned(), "two".to_owned()]);
    let session = Arc::new(Session { name: "trip".to_owned(), entries });
    let provider = Arc::new(SlowProvider { takes_ms: 60 });
    summarise(&stage.generation(), &session, &provider).await?;
    assert!(summarise(&stage.generation(), &session, &provider).await.is_err(), "the session is busy");

    stage.at(40).await;
    let report = stage.application().replace().await?;
    assert_eq!((stage.now_ms(), report.commits.dropped), (60, 1));
    assert_eq!(*session.entries.lock(), ["one", "two"]);

    summarise(&stage.generation(), &session, &provider).await?;
    stage.at(150).await;
    assert_eq!(*session.entries.lock(), ["2 lines"]);
    Ok(())
}
