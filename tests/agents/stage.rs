//! A host with a workspace and one configured agent, in real time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::agents::{AgentDefinition, Directory};
use tenure::clock::SystemClock;
use tenure::model::{
    AgentId, CancelMode, Event, EventKind, Run, RunError, RunResult, Subject, TaskId, TaskSpec,
};
use tenure::rules::CancelRequest;
use tenure::store::{MemoryStore, Store};
use tenure::{RunRequest, Settings, Tenure, WorkspaceFolder};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here takes: what does not happen fails, and does not hang.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) tenure: Tenure,
    pub(crate) directory: Arc<Directory>,
    folder: TempDir,
}

impl Stage {
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    pub(crate) async fn open_with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::open_on(Arc::new(MemoryStore::new(Arc::new(SystemClock))), change).await
    }

    pub(crate) async fn open_on(store: Arc<dyn Store>, change: impl FnOnce(&mut Settings)) -> Self {
        let folder = TempDir::new().unwrap();
        let mut settings = Settings {
            workspace: Some(WorkspaceFolder::at(folder.path().join("root"))),
            progress_every: Duration::from_millis(1),
            ..Settings::default()
        };
        change(&mut settings);
        let tenure = Tenure::open(store, settings).await.unwrap();
        let directory = Directory::open(tenure.clone()).await.unwrap();
        Self { tenure, directory, folder }
    }

    /// A host whose agent `agent` is defined like this.
    pub(crate) async fn with(definition: Value) -> Self {
        let stage = Self::open().await;
        stage.agent(definition);
        stage
    }

    pub(crate) async fn bash(script: &str) -> Self {
        Self::with(bash(script)).await
    }

    pub(crate) fn agent(&self, definition: Value) {
        let definition = AgentDefinition::from_value(definition).unwrap();
        self.directory.set_file([(name("agent"), definition)].into()).unwrap();
    }

    /// A run of a task with these fields over those that it needs.
    pub(crate) async fn start(&self, fields: Value) -> Run {
        let mut all = json!({ "task_id": "t", "agent_id": "agent", "query": "q", "metadata": { "n": 1.10 } });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let spec = TaskSpec::parse(&all.to_string()).unwrap();
        let task_id: TaskId = spec.task_id.clone();
        self.tenure.put_task(spec).await.unwrap();
        self.tenure.run_now(&task_id, RunRequest::default()).await.unwrap()
    }

    pub(crate) async fn settled(&self, run: &Run) -> Run {
        let state = self.tenure.wait(&run.run_id, Some(LONG)).await.unwrap();
        assert!(state.settled, "it settles in time: {:?}", state.run);
        state.run
    }

    pub(crate) async fn run(&self, fields: Value) -> Run {
        let run = self.start(fields).await;
        self.settled(&run).await
    }

    pub(crate) async fn cancel(&self, run: &Run, mode: CancelMode) -> Run {
        let (reason, requested_by) = ("enough".into(), "a person".into());
        let request = CancelRequest { mode, reason, requested_by, force_after: None };
        self.tenure.cancel_run(&run.run_id, &request).await.unwrap()
    }

    pub(crate) fn path(&self, run: &Run, path: &str) -> PathBuf {
        self.folder.path().join("root").join(&*run.spec.workspace_path).join(path)
    }

    pub(crate) fn file(&self, run: &Run, path: &str) -> Vec<u8> {
        std::fs::read(self.path(run, path)).unwrap()
    }

    /// The first event of this kind of a run.
    pub(crate) async fn event(&self, run: &Run, kind: EventKind) -> Event {
        self.event_if(run, |event| event.event == kind).await
    }

    pub(crate) async fn event_if(&self, run: &Run, wanted: impl Fn(&Event) -> bool) -> Event {
        let mut events = self.tenure.follow(Subject::Run(run.run_id.clone()), 0);
        let found = async {
            loop {
                let event = events.next().await.unwrap();
                if wanted(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(LONG, found).await.expect("it is told in time")
    }
}

pub(crate) fn name(agent_id: &str) -> AgentId {
    AgentId::new(agent_id).unwrap()
}

pub(crate) fn bash(script: &str) -> Value {
    json!({ "kind": "command", "command": ["bash", "-c", script] })
}

/// A retry that comes at once.
pub(crate) fn retries(most: u32) -> Value {
    json!({ "max_retries": most, "initial_delay_seconds": 0.001, "jitter": 0 })
}

pub(crate) fn bytes(run: &Run) -> (String, Vec<u8>) {
    match &run.result {
        Some(RunResult::Inline(payload)) => (payload.media_type.to_string(), payload.bytes.to_vec()),
        other => panic!("no result that is kept with its run: {other:?} {:?}", run.error),
    }
}

pub(crate) fn text(run: &Run) -> String {
    let (media_type, bytes) = bytes(run);
    assert_eq!(media_type, "text/plain; charset=utf-8");
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
pub(crate) fn error(run: &Run) -> &RunError {
    run.error.as_ref().unwrap_or_else(|| panic!("no error of {run:?}"))
}

/// Tells whether anything of a tree lives: every process of it holds the connection.
pub(crate) struct Canary(TcpListener);

/// What a program does first: all that it starts holds descriptor 9 as well.
const HOLD: &str = "exec 9<>/dev/tcp/127.0.0.1/$CANARY; echo $$ >&9; ";

impl Canary {
    pub(crate) async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// A program that holds it.
    pub(crate) fn bash(&self, script: &str) -> Value {
        let port = self.0.local_addr().unwrap().port().to_string();
        let mut definition = bash(&format!("{HOLD}{script}"));
        definition["env"] = json!({ "CANARY": port });
        definition
    }

    /// The connection, once the program has it.
    pub(crate) async fn held(&self) -> Held {
        let accepted = tokio::time::timeout(LONG, self.0.accept()).await.expect("it starts in time");
        let mut held = Held(BufReader::new(accepted.unwrap().0));
        assert!(held.line().await.trim().parse::<u32>().is_ok());
        held
    }
}

pub(crate) struct Held(BufReader<TcpStream>);

impl Held {
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(LONG, self.0.read_line(&mut line)).await;
        read.expect("it is written in time").unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until nothing of the tree is left.
    pub(crate) async fn gone(mut self) {
        let mut rest = Vec::new();
        // Reset, if somebody died with something unread: gone as well.
        let ended = tokio::time::timeout(LONG, self.0.read_to_end(&mut rest)).await;
        drop(ended.expect("nothing of the tree is left"));
    }
}

/// Runs a test in an OS process of its own with these variables. False in that process, where the test goes on.
pub(crate) fn with_environment(test: &str, variables: &[(&str, &str)]) -> bool {
    const INSIDE: &str = "STAGE_INSIDE";
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return false;
    }
    let this = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(this);
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, test).envs(variables.iter().copied());
    let ended = command.output().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{told}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(told.contains("1 passed"), "the test is found by its name: {told}");
    true
}
