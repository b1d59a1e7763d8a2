//! The files of runs on hosts (contract durable-tasks.md, section 9): what the store holds is mirrored, what
//! agents answer and write is kept, and nothing is written without authority.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tenure::clock::RuntimeClock;
use tenure::model::{CancelMode, Payload, Run, RunResult, RunStatus, Subject, TaskSpec, Timestamp};
use tenure::rules::CancelRequest;
use tenure::store::MemoryStore;
use tenure::view::EventView;
use tenure::workspace::WorkspaceError;
use tenure::{Error, RunContext, RunRequest, Settings, Tenure, WorkspaceFolder};
use tokio::sync::mpsc;

/// A store and folders of its own.
struct Place {
    store: Arc<MemoryStore>,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let clock = RuntimeClock::starting_at(Timestamp::from_ms(1_767_225_600_000));
        Self { store: Arc::new(MemoryStore::new(Arc::new(clock))), folder: TempDir::new().unwrap() }
    }

    fn settings(&self, root: &str) -> Settings {
        Settings {
            workspace: Some(WorkspaceFolder::at(self.folder.path().join(root))),
            heartbeat_thread: false,
            seed: Some(1),
            ..Settings::default()
        }
    }

    async fn host(&self) -> Tenure {
        self.host_with(self.settings("root")).await
    }

    async fn host_with(&self, settings: Settings) -> Tenure {
        Tenure::open(self.store.clone(), settings).await.unwrap()
    }

    /// A file of a run, past every host.
    fn path(&self, run: &Run, path: &str) -> PathBuf {
        self.folder.path().join("root").join(&*run.spec.workspace_path).join(path)
    }

    fn text(&self, run: &Run, path: &str) -> String {
        std::fs::read_to_string(self.path(run, path)).unwrap()
    }

    fn record(&self, run: &Run) -> Value {
        serde_json::from_str(&self.text(run, "run.json")).unwrap()
    }
}

fn echo(tenure: &Tenure) {
    tenure
        .register_agent("echo", |context: RunContext| async move { Ok(context.query().to_owned().into()) })
        .unwrap();
}

/// A task of the agent `echo` that asks "hello", with these further fields.
fn task(fields: &str) -> TaskSpec {
    TaskSpec::parse(&format!(r#"{{"task_id":"t","agent_id":"echo","query":"hello"{fields}}}"#)).unwrap()
}

async fn asked(tenure: &Tenure, fields: &str) -> Run {
    let spec = task(fields);
    tenure.put_task(spec.clone()).await.unwrap();
    tenure.run_now(&spec.task_id, RunRequest::default()).await.unwrap()
}

async fn ended(tenure: &Tenure, fields: &str) -> Run {
    let run = asked(tenure, fields).await;
    tenure.wait(&run.run_id, None).await.unwrap().run
}

/// The events of a run as the store tells them, a line each.
async fn told(tenure: &Tenure, run: &Run) -> String {
    let events = tenure.events(Subject::Run(run.run_id.clone()), 0, 1000).await.unwrap();
    events.iter().map(|event| serde_json::to_string(&EventView::from(event)).unwrap() + "\n").collect()
}

/// What lies in the workspace of a run as its host tells it, without the folders.
async fn listed(tenure: &Tenure, run: &Run) -> Vec<String> {
    let view = tenure.workspace(&run.run_id).await.unwrap();
    view.files.into_iter().filter(|entry| !entry.is_dir).map(|entry| entry.path).collect()
}

fn cancel(mode: CancelMode) -> CancelRequest {
    CancelRequest {
        mode,
        reason: "not needed".into(),
        requested_by: "operator".into(),
        force_after: Some(Duration::from_secs(15)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_leaves_its_record_its_events_and_its_answer() {
    let place = Place::new();
    let tenure = place.host().await;
    echo(&tenure);
    let run = ended(&tenure, "").await;
    assert_eq!(listed(&tenure, &run).await, ["events.jsonl", "output.md", "run.json"]);
    assert_eq!(place.text(&run, "output.md"), "hello");
    assert_eq!(place.record(&run)["status"], "completed");
    assert_eq!(place.record(&run)["version"], run.version);
    let events = place.text(&run, "events.jsonl");
    assert_eq!(events, told(&tenure, &run).await);
    assert_eq!(events.lines().count() as u64, run.last_event);
    assert_eq!(tenure.read_file(&run.run_id, "output.md").await.unwrap(), b"hello");
    assert_eq!(tenure.open_file(&run.run_id, "run.json").await.unwrap().media_type, "application/json");
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_nobody_looks_at_is_mirrored_when_the_host_has_ended() {
    let place = Place::new();
    let tenure = place.host().await;
    let run = asked(&tenure, "").await;
    let run = tenure.cancel_run(&run.run_id, &cancel(CancelMode::Cooperative)).await.unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    let events = told(&tenure, &run).await;
    tenure.shutdown().await.unwrap();
    assert_eq!(place.record(&run)["status"], "cancelled");
    assert_eq!(place.record(&run)["cancelled_by"], "operator");
    assert_eq!(place.text(&run, "events.jsonl"), events);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_the_drain_interrupts_are_mirrored_as_queued_again() {
    let place = Place::new();
    let tenure = place.host().await;
    let (began, mut begun) = mpsc::unbounded_channel();
    tenure
        .register_agent("echo", move |context: RunContext| {
            began.send(()).unwrap();
            async move {
                context.cancelled().await;
                Ok(().into())
            }
        })
        .unwrap();
    let run = asked(&tenure, r#","overlap_policy":"allow_parallel""#).await;
    begun.recv().await.unwrap();
    tenure.shutdown().await.unwrap();
    let run = tenure.run(&run.run_id).await.unwrap();
    assert_eq!(run.status, RunStatus::Queued);
    assert_eq!(place.record(&run)["version"], run.version);
    assert_eq!(place.text(&run, "events.jsonl"), told(&tenure, &run).await);
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_replaced_another_goes_on_mirroring() {
    let place = Place::new();
    let tenure = place.host().await;
    echo(&tenure);
    let before = ended(&tenure, "").await;
    tenure.replace().await.unwrap();
    let after = ended(&tenure, "").await;
    tenure.shutdown().await.unwrap();
    for run in [before, after] {
        assert_eq!(place.record(&run)["status"], "completed");
        assert_eq!(place.text(&run, "events.jsonl"), told(&tenure, &run).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_fenced_out_writes_nothing_any_more() {
    let place = Place::new();
    let tenure = place.host().await;
    let (give, mut given) = mpsc::unbounded_channel();
    tenure
        .register_agent("echo", move |context: RunContext| {
            let workspace = context.workspace().unwrap();
            workspace.write("artifacts/draft.md", b"first").unwrap();
            give.send((context.clone(), workspace)).unwrap();
            async move { std::future::pending().await }
        })
        .unwrap();
    let run = asked(&tenure, "").await;
    let (context, workspace) = given.recv().await.unwrap();
    tenure.cancel_run(&run.run_id, &cancel(CancelMode::Force)).await.unwrap();
    context.cancelled().await;
    let refused = workspace.write("artifacts/draft.md", b"second").unwrap_err();
    assert!(matches!(refused, WorkspaceError::AuthorityLost { .. }), "{refused}");
    assert!(matches!(workspace.append("log", b"x"), Err(WorkspaceError::AuthorityLost { .. })));
    assert!(matches!(workspace.remove_file("artifacts/draft.md"), Err(WorkspaceError::AuthorityLost { .. })));
    assert_eq!(place.text(&run, "artifacts/draft.md"), "first");
    assert_eq!(listed(&tenure, &run).await, ["artifacts/draft.md", "events.jsonl", "run.json"]);
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_cannot_rely_on_its_lease_writes_nothing_until_it_can() {
    let place = Place::new();
    let settings = Settings { heartbeat: Some(Duration::from_secs(3600)), ..place.settings("root") };
    let tenure = place.host_with(settings).await;
    let (give, mut given) = mpsc::unbounded_channel();
    tenure
        .register_agent("echo", move |context: RunContext| {
            give.send((context.clone(), context.workspace().unwrap())).unwrap();
            async move { std::future::pending().await }
        })
        .unwrap();
    let run = asked(&tenure, "").await;
    let (context, workspace) = given.recv().await.unwrap();
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(matches!(workspace.write("a", b"x"), Err(WorkspaceError::AuthorityLost { .. })));
    context.commit(|| ()).await.unwrap();
    workspace.write("a", b"x").unwrap();
    assert_eq!(place.text(&run, "a"), "x");
    tenure.cancel_run(&run.run_id, &cancel(CancelMode::Force)).await.unwrap();
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_kept_by_reference() {
    let place = Place::new();
    let settings = Settings { result_inline: 4, result_limit: 10, ..place.settings("root") };
    let tenure = place.host_with(settings).await;
    echo(&tenure);
    let run = ended(&tenure, "").await;
    let expected = RunResult::File {
        media_type: "text/plain; charset=utf-8".into(),
        size: 5,
        path: "output.md".into(),
        preview: "hello".into(),
    };
    assert_eq!(run.result, Some(expected));
    assert_eq!(tenure.read_file(&run.run_id, "output.md").await.unwrap(), b"hello");
    let long = RunRequest { query: Some("longer than that".into()), ..RunRequest::default() };
    let run = tenure.retry(&run.run_id, long).await.unwrap();
    let run = tenure.wait(&run.run_id, None).await.unwrap().run;
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(&*run.error.clone().unwrap().class, "result_too_large");
    assert_eq!(listed(&tenure, &run).await, ["events.jsonl", "run.json"]);
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_leaves_the_output_that_the_agent_wrote() {
    let place = Place::new();
    let tenure = place.host().await;
    tenure
        .register_agent("echo", |context: RunContext| async move {
            context.workspace().unwrap().write("output.md", b"written bit by bit")?;
            Ok(().into())
        })
        .unwrap();
    let run = ended(&tenure, "").await;
    assert_eq!(place.text(&run, "output.md"), "written bit by bit");
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_what_the_policy_of_the_task_wants_is_mirrored() {
    let place = Place::new();
    let tenure = place.host().await;
    echo(&tenure);
    let without = |flags: &str| format!(r#","workspace_policy":{{{flags}}}"#);
    let run = ended(&tenure, &without(r#""write_run_json":false"#)).await;
    assert_eq!(listed(&tenure, &run).await, ["events.jsonl", "output.md"]);
    let run = ended(&tenure, &without(r#""write_events_jsonl":false"#)).await;
    assert_eq!(listed(&tenure, &run).await, ["output.md", "run.json"]);
    let neither = without(r#""write_run_json":false,"write_events_jsonl":false"#);
    let run = ended(&tenure, &neither).await;
    assert_eq!(listed(&tenure, &run).await, ["output.md"]);
    assert!(tenure.unregister_agent(&run.spec.agent_id));
    let run = asked(&tenure, &neither).await;
    assert_eq!(listed(&tenure, &run).await, Vec::<String>::new());
    assert!(!place.path(&run, "").exists());
    tenure.cancel_run(&run.run_id, &cancel(CancelMode::Cooperative)).await.unwrap();
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retention_removes_the_folders_of_the_runs_that_it_removes() {
    let place = Place::new();
    let settings = Settings { retain_runs: 1, ..place.settings("root") };
    let tenure = place.host_with(settings).await;
    echo(&tenure);
    let older = ended(&tenure, "").await;
    let newer = ended(&tenure, "").await;
    assert!(!listed(&tenure, &older).await.is_empty());
    assert!(tenure.unregister_agent(&older.spec.agent_id));
    // Nobody executes it: while it is waited for, the time of the housekeeper comes.
    let idle = asked(&tenure, "").await;
    assert!(!tenure.wait(&idle.run_id, Some(Duration::from_secs(90))).await.unwrap().settled);
    assert!(matches!(tenure.workspace(&older.run_id).await, Err(Error::NotFound { kind: "run", .. })));
    assert!(!place.path(&older, "").exists());
    assert_eq!(listed(&tenure, &newer).await, ["events.jsonl", "output.md", "run.json"]);
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn files_of_another_instance_are_asked_for_there() {
    let place = Place::new();
    let here = place.host_with(place.settings("here")).await;
    let there = place.host_with(place.settings("root")).await;
    // Queued here, and mirrored as such, before another executes it.
    let run = asked(&here, "").await;
    assert_eq!(listed(&here, &run).await, ["events.jsonl", "run.json"]);
    echo(&there);
    there.wait(&run.run_id, None).await.unwrap();
    match here.workspace(&run.run_id).await.unwrap_err() {
        Error::Elsewhere { run_id, instance } => {
            assert_eq!((run_id, instance), (run.run_id.clone(), there.instance_id()));
        }
        other => panic!("expected the files elsewhere, found: {other}"),
    }
    assert!(matches!(here.read_file(&run.run_id, "output.md").await, Err(Error::Elsewhere { .. })));
    assert_eq!(listed(&there, &run).await, ["events.jsonl", "output.md", "run.json"]);
    there.shutdown().await.unwrap();
    // The same folder, another start.
    let again = place.host().await;
    assert_eq!(listed(&again, &run).await, ["events.jsonl", "output.md", "run.json"]);
    for host in [here, again] {
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_folder_has_the_files_of_all_instances() {
    let place = Place::new();
    let shared = || Settings { workspace_shared: true, ..place.settings("root") };
    let (one, two) = (place.host_with(shared()).await, place.host_with(shared()).await);
    echo(&two);
    let run = asked(&one, "").await;
    one.wait(&run.run_id, None).await.unwrap();
    assert_eq!(listed(&one, &run).await, ["events.jsonl", "output.md", "run.json"]);
    assert_eq!(one.read_file(&run.run_id, "output.md").await.unwrap(), b"hello");
    for host in [one, two] {
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_disturbs_no_run() {
    let place = Place::new();
    let settings = Settings { result_inline: 4, ..place.settings("root") };
    let tenure = place.host_with(settings).await;
    // A file lies where the folders of runs would be made.
    std::fs::write(place.folder.path().join("root/background"), "").unwrap();
    echo(&tenure);
    let run = ended(&tenure, "").await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(run.result, Some(RunResult::Inline(Payload::text("hello"))));
    // Once it is well again the mirror catches up, though nothing of the run changes any more.
    std::fs::remove_file(place.folder.path().join("root/background")).unwrap();
    tenure.shutdown().await.unwrap();
    assert_eq!(place.record(&run)["status"], "completed");
    assert_eq!(place.text(&run, "events.jsonl"), told(&tenure, &run).await);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_folder_keeps_no_files() {
    let place = Place::new();
    let tenure =
        place.host_with(Settings { workspace: None, result_inline: 4, ..place.settings("root") }).await;
    tenure
        .register_agent("echo", |context: RunContext| async move {
            Ok(format!("{}", context.workspace().is_some()).into())
        })
        .unwrap();
    let run = ended(&tenure, "").await;
    assert_eq!(run.result, Some(RunResult::Inline(Payload::text("false"))));
    let refused = tenure.workspace(&run.run_id).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("workspace of run \"{}\" does not exist", run.run_id));
    tenure.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_used_is_told_when_the_host_opens() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("root"), "no folder").unwrap();
    let refused = Tenure::open(place.store.clone(), place.settings("root")).await.err().unwrap();
    assert!(matches!(refused, Error::Workspace(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn paths_that_lead_nowhere_are_refused_by_name() {
    let place = Place::new();
    let tenure = place.host().await;
    echo(&tenure);
    let run = ended(&tenure, "").await;
    let missing = tenure.read_file(&run.run_id, "logs/none").await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { kind: "file", .. }), "{missing}");
    for path in ["../run.json", "/etc/passwd", "", "logs"] {
        let refused = tenure.read_file(&run.run_id, path).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{path}: {refused}");
    }
    tenure.shutdown().await.unwrap();
}

#[test]
fn a_template_stays_out_of_the_hosts_own_folder() {
    let refused = |template: &str| {
        let fields = format!(r#"{{"namespace_template":"{template}"}}"#);
        let json =
            r#"{"task_id":"t","agent_id":"a","query":"q","workspace_policy":"#.to_owned() + &fields + "}";
        TaskSpec::parse(&json).unwrap_err().to_string()
    };
    for template in [".tenure/{run_id}", ".Tenure/{run_id}"] {
        assert!(refused(template).contains("begin with \".tenure\""), "{}", refused(template));
    }
    assert!(refused(&("a/".repeat(16) + "{run_id}")).contains("at most 16 folders, found 17"));
    assert!(refused("a/{task_id}").contains("{run_id}"));
}
