//! What the log tells of an outage of the store.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tenure::Settings;
use tenure::testkit::{Gate, Script, TestHost};
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing_subscriber::fmt::MakeWriter;

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_when_it_begins_once_a_minute_and_when_it_is_over() {
    let log = Log::default();
    let _heard = log.listen();
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
    let told = log.lines();
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

/// What is logged by this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// A second subscriber is there as well: where there is just one, what another thread comes upon first is taken for
    /// what nobody hears of, as nobody does there.
    fn listen(&self) -> (DefaultGuard, Dispatch) {
        let second = Dispatch::new(NoSubscriber::default());
        let log = tracing_subscriber::fmt().with_env_filter("info,ractor=off").with_writer(self.clone());
        (set_default(log.with_ansi(false).with_target(false).without_time().finish()), second)
    }

    /// What was told, but of what went as it should.
    fn lines(&self) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().clone()).unwrap();
        let told = log.lines().map(|line| line.trim().to_owned());
        told.filter(|line| line.starts_with("WARN ") || line.contains("the store")).collect()
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
