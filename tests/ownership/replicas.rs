//! Replicas of a host with a few child agents.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::model::Payload;
use tenure::ownership::{
    ChildAgent, ChildDone, ChildSession, Host, Inspection, OwnershipSettings, SessionTasks,
    SessionTasksSettings, StartTask, StartedTask, WhenStopped,
};
use tenure::testkit::TestHost;
use tenure::{AgentError, RunContext, Settings, Tenure};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Lease and grace of the usual settings, and a little more.
pub(crate) const LAPSE: Duration = Duration::from_secs(52);

/// The conversation that most tests are about.
pub(crate) const CHAT: &str = "chat";

/// A replica: a host, and its tasks of conversations.
pub(crate) struct Replica {
    pub(crate) host: TestHost,
    pub(crate) tasks: SessionTasks,
    /// Effects that its agents had.
    pub(crate) effects: Arc<AtomicUsize>,
}

impl Replica {
    pub(crate) async fn open() -> Self {
        Self::open_with(settings()).await
    }

    pub(crate) async fn open_with(settings: Settings) -> Self {
        Self::on(TestHost::open_with("2026-01-01T00:00:00Z", settings).await)
    }

    pub(crate) async fn another(&self) -> Self {
        Self::on(self.host.another().await)
    }

    pub(crate) fn on(host: TestHost) -> Self {
        let effects = Arc::new(AtomicUsize::new(0));
        let tasks = tasks(&host, WhenStopped::Keep, &effects);
        Self { host, tasks, effects }
    }

    /// Starts a task of an agent, and answers its number.
    pub(crate) async fn start(&self, agent: &str, input: &str) -> u64 {
        match self.tasks.start(CHAT, ask(agent, input)).await.unwrap() {
            StartedTask::Started { task } => task,
            other => panic!("not started: {other}"),
        }
    }

    pub(crate) async fn see(&self, task: u64) -> Inspection {
        self.tasks.result(CHAT, task).await.unwrap()
    }

    /// The first line of a task as text.
    pub(crate) async fn line(&self, task: u64) -> String {
        let block = self.tasks.status_block(CHAT).await.unwrap();
        let named = format!("- Task {task} ");
        let found = block.lines().find(|line| line.starts_with(&named));
        found.unwrap_or_else(|| panic!("no task {task} in:\n{block}")).trim_start_matches("- ").to_owned()
    }

    /// What a task answered.
    pub(crate) async fn answer(&self, task: u64) -> String {
        let seen = self.see(task).await;
        let finished = seen.state.finished().unwrap_or_else(|| panic!("it has not ended: {seen:?}"));
        finished.result.as_ref().map(Payload::preview).unwrap_or_default()
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }
}

pub(crate) fn settings() -> Settings {
    TestHost::settings()
}

pub(crate) fn tasks(host: &Tenure, when_stopped: WhenStopped, effects: &Arc<AtomicUsize>) -> SessionTasks {
    let settings =
        SessionTasksSettings { namespace: "test".into(), source: "assistant".into(), when_stopped };
    let child = |keeps| Child { keeps, effects: Arc::clone(effects) };
    SessionTasks::new(Host::new(host, OwnershipSettings::default()), settings)
        .agent("stored", child(Keeps::Stored))
        .agent("local", child(Keeps::Local))
        .agent("stubborn", Stubborn)
        .agent("pages", Pages)
}

pub(crate) fn ask(agent: &str, input: &str) -> StartTask {
    StartTask {
        agent: agent.into(),
        input: input.into(),
        description: "a test".into(),
        ..StartTask::default()
    }
}

pub(crate) async fn pass(time: Duration) {
    let _passed = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Where a child keeps its session.
#[derive(Clone, Copy, PartialEq)]
enum Keeps {
    Stored,
    Local,
}

/// Asked `60 found`, it has an effect each second for a minute, then answers `found`, and how often it was asked.
struct Child {
    keeps: Keeps,
    effects: Arc<AtomicUsize>,
}

impl ChildAgent for Child {
    fn description(&self) -> String {
        "Answers after some seconds.".to_owned()
    }

    async fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> Result<ChildDone, AgentError> {
        let asked: u32 = match session {
            None => 1,
            Some(ChildSession::Stored(payload)) => 1 + payload.preview().parse::<u32>().unwrap(),
            Some(ChildSession::Local(object)) => 1 + *object.downcast_ref::<u32>().unwrap(),
        };
        let (seconds, text) = context.query().split_once(' ').unwrap();
        for second in 0..seconds.parse::<u64>().unwrap() {
            tokio::select! {
                () = pass(SECOND) => {}
                () = context.cancelled() => {
                    let partial = Payload::text(format!("{second} s of it"));
                    return Err(AgentError::new("cancelled", "asked to stop").with_partial(partial));
                }
            }
            let _gone = context.commit_now(|| self.effects.fetch_add(1, Ordering::SeqCst));
        }
        let session = match self.keeps {
            Keeps::Stored => ChildSession::Stored(Payload::text(asked.to_string())),
            Keeps::Local => ChildSession::Local(Arc::new(asked) as Arc<dyn Any + Send + Sync>),
        };
        Ok(ChildDone::from(format!("{text}, asked {asked}")).with_session(session))
    }
}

/// Reads a page each second from the one it was asked for, or where it was, to the hundredth.
struct Pages;

impl ChildAgent for Pages {
    async fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> Result<ChildDone, AgentError> {
        let from: u64 = match session {
            Some(ChildSession::Stored(page)) => page.preview().parse()?,
            _ => context.query().parse()?,
        };
        for page in from..100 {
            tokio::select! {
                () = pass(SECOND) => {}
                () = context.interrupted() => {
                    context.checkpoint(Payload::text(page.to_string()))?;
                    return Err(AgentError::new("interrupted", "goes on elsewhere"));
                }
            }
        }
        Ok(format!("read 100 pages from {from}").into())
    }
}

/// Never listens, and answers after as many seconds as it was asked for.
struct Stubborn;

impl ChildAgent for Stubborn {
    async fn run(
        self: Arc<Self>,
        context: RunContext,
        _: Option<ChildSession>,
    ) -> Result<ChildDone, AgentError> {
        pass(SECOND * context.query().parse().unwrap()).await;
        Ok("at last".into())
    }
}
