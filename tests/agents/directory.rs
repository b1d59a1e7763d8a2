//! The agents of a host: those of its file, those that were made by requests, those in its code.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::agents::{AgentDefinition, AgentSource, AgentView, Directory};
use tenure::clock::SystemClock;
use tenure::model::{RunStatus, WaitReason};
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Store};
use tenure::{Error, RunContext, Settings, Tenure};

use crate::endpoint::{Endpoint, json_reply, until};
use crate::stage::{Stage, bash, name, text};

fn definition(json: Value) -> AgentDefinition {
    AgentDefinition::from_value(json).unwrap()
}

fn hook(url: &str) -> AgentDefinition {
    definition(json!({ "kind": "http", "url": url }))
}

fn names(views: &[AgentView]) -> Vec<(&str, &str, AgentSource)> {
    views.iter().map(|view| (view.agent_id.as_str(), view.kind.as_str(), view.source)).collect()
}

async fn host(store: Arc<dyn Store>) -> (Tenure, Arc<Directory>) {
    let tenure = Tenure::open(store, Settings::default()).await.unwrap();
    let directory = Directory::open(tenure.clone()).await.unwrap();
    (tenure, directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn task_p14_every_agent_is_shown_with_where_it_comes_from_and_no_secret() {
    let stage = Stage::open().await;
    stage.tenure.register_agent("code", |_: RunContext| async { Ok("x".into()) }).unwrap();
    let mut command = bash("true");
    command["env"] = json!({ "PASSWORD": "hush" });
    stage.agent(command);
    let chat = json!({ "kind": "chat", "base_url": "http://h/v1", "model": "m", "api_key_env": "KEY" });
    stage.directory.allow_variables(["KEY".to_owned()]);
    let made = stage.directory.put(name("made"), definition(chat.clone())).await.unwrap();
    let listed = stage.directory.list();
    let expected = [
        ("agent", "command", AgentSource::File),
        ("code", "function", AgentSource::Host),
        ("made", "chat", AgentSource::Stored),
    ];
    assert_eq!(names(&listed), expected);
    assert_eq!(stage.directory.get(&name("made")), Some(made.clone()));
    assert_eq!(stage.directory.get(&name("nobody")), None);
    let shown = serde_json::to_value(&made).unwrap();
    let mut expected = chat;
    expected["agent_id"] = json!("made");
    expected["source"] = json!("stored");
    assert_eq!(shown, expected);
    let command = serde_json::to_string(&listed[0]).unwrap();
    assert!(command.contains(r#""env":{"PASSWORD":"***"}"#) && !command.contains("hush"), "{command}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_taken_as_a_whole() {
    let stage = Stage::open().await;
    let script = |text: &str| definition(bash(&format!("printf {text}")));
    let set = |agents: &[(&str, AgentDefinition)]| {
        let agents = agents.iter().map(|(id, agent)| (name(id), agent.clone())).collect();
        stage.directory.set_file(agents)
    };
    set(&[("agent", script("one")), ("b", script("b"))]).unwrap();
    assert_eq!(text(&stage.run(json!({})).await), "one");
    set(&[("agent", script("two"))]).unwrap();
    assert_eq!(text(&stage.run(json!({})).await), "two");
    assert_eq!(&*stage.tenure.agents(), [name("agent")]);
    stage.tenure.register_agent("code", |_: RunContext| async { Ok("x".into()) }).unwrap();
    let refused = set(&[("agent", script("three")), ("code", script("x"))]).unwrap_err();
    assert!(refused.to_string().contains("\"agents.code\""), "{refused}");
    assert_eq!(text(&stage.run(json!({})).await), "two", "everything is as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_made_by_a_request_is_refused() {
    let stage = Stage::bash("true").await;
    stage.tenure.register_agent("code", |_: RunContext| async { Ok("x".into()) }).unwrap();
    let directory = &stage.directory;
    let refused = directory.put(name("x"), definition(bash("true"))).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(_)) && refused.to_string().contains("\"kind\""), "{refused}");
    for fixed in ["agent", "code"] {
        let refused = directory.put(name(fixed), hook("http://h")).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(_)), "{refused}");
        let refused = directory.create(name(fixed), hook("http://h")).await.unwrap_err();
        assert!(matches!(&refused, Error::Exists { .. }), "{refused}");
        let refused = directory.remove(&name(fixed)).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(_)), "{refused}");
    }
    directory.create(name("made"), hook("http://h/1")).await.unwrap();
    let refused = directory.create(name("made"), hook("http://h/2")).await.unwrap_err();
    assert!(matches!(&refused, Error::Exists { .. }), "{refused}");
    directory.put(name("made"), hook("http://h/2")).await.unwrap();
    assert_eq!(directory.get(&name("made")).unwrap().definition["url"], "http://h/2");
    directory.remove(&name("made")).await.unwrap();
    let refused = directory.remove(&name("made")).await.unwrap_err();
    assert!(matches!(&refused, Error::NotFound { kind: "agent", .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_makes_an_agent_by_a_request_is_given_no_variable_but_those_that_are_allowed() {
    let stage = Stage::open().await;
    let directory = &stage.directory;
    let chat = json!({ "kind": "chat", "base_url": "http://h/v1", "model": "m", "api_key_env": "KEY" });
    let posting = json!({ "kind": "http", "url": "http://h", "headers_env": { "A": "KEY", "B": "PATH" } });
    let refused = directory.put(name("chat"), definition(chat.clone())).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(_)) && refused.to_string().contains("\"api_key_env\""),
        "{refused}"
    );
    directory.allow_variables(["KEY".to_owned()]);
    directory.put(name("chat"), definition(chat)).await.unwrap();
    let refused = directory.put(name("http"), definition(posting)).await.unwrap_err().to_string();
    assert!(refused.contains("\"headers_env.B\"") && !refused.contains("headers_env.A"), "{refused}");
    // Whoever stored it: a host that does not allow it does not use it.
    directory.allow_variables([]);
    assert_eq!(directory.get(&name("chat")), None);
    assert!(!stage.tenure.agents().contains(&name("chat")));
    directory.allow_variables(["KEY".to_owned()]);
    assert!(stage.tenure.agents().contains(&name("chat")));
    directory.allow_variables([]);
    directory.remove(&name("chat")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_goes_before_the_store_and_gives_way_again() {
    let stage = Stage::open().await;
    stage.directory.put(name("agent"), hook("http://h")).await.unwrap();
    stage.agent(bash("printf file"));
    assert_eq!(names(&stage.directory.list()), [("agent", "command", AgentSource::File)]);
    assert_eq!(text(&stage.run(json!({})).await), "file");
    stage.directory.set_file([].into()).unwrap();
    assert_eq!(names(&stage.directory.list()), [("agent", "http", AgentSource::Stored)]);
    stage.agent(bash("printf file"));
    stage.directory.remove(&name("agent")).await.unwrap();
    assert_eq!(names(&stage.directory.list()), [("agent", "command", AgentSource::File)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_t05_runs_of_a_removed_agent_wait_until_it_is_back() {
    let endpoint = Endpoint::new(vec![json_reply(&json!({ "output": "back" }))]).await;
    let stage = Stage::open().await;
    stage.directory.put(name("agent"), hook(&endpoint.url)).await.unwrap();
    stage.directory.remove(&name("agent")).await.unwrap();
    let run = stage.start(json!({})).await;
    let run = stage.tenure.run(&run.run_id).await.unwrap();
    let why = stage.tenure.waiting(&run).await.unwrap().unwrap();
    let WaitReason::NoAgent { agent_id } = why.reason else { panic!("{why:?}") };
    assert_eq!(agent_id, name("agent"));
    assert_eq!(run.status, RunStatus::Queued);
    stage.directory.put(name("agent"), hook(&endpoint.url)).await.unwrap();
    assert_eq!(text(&stage.settled(&run).await), "back");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_start_of_the_host_has_the_agents_that_were_made() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let (tenure, directory) = host(Arc::clone(&store)).await;
    directory.put(name("made"), hook("http://h")).await.unwrap();
    tenure.shutdown().await.unwrap();
    // What cannot be used is left alone, and can be removed.
    store.put_agent(&name("newer"), Some(r#"{"kind":"quantum"}"#.into())).await.unwrap();
    let program = definition(bash("true"));
    let program = serde_json::to_string(&program).unwrap();
    store.put_agent(&name("program"), Some(program.into())).await.unwrap();
    let (tenure, directory) = host(Arc::clone(&store)).await;
    assert_eq!(names(&directory.list()), [("made", "http", AgentSource::Stored)]);
    assert_eq!(&*tenure.agents(), [name("made")]);
    directory.remove(&name("program")).await.unwrap();
    assert_eq!(store.agents().await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_share_a_store_hear_of_agents_from_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = SqliteOptions {
            poll: Duration::from_millis(10),
            ..SqliteOptions::new(folder.path().join("tenure.db"), Arc::new(SystemClock))
        };
        Arc::new(SqliteStore::open(options).unwrap()) as Arc<dyn Store>
    };
    let (one, other) = (host(open()).await, host(open()).await);
    one.1.put(name("made"), hook("http://h/1")).await.unwrap();
    until(|| other.1.get(&name("made")).is_some()).await;
    assert_eq!(&*other.0.agents(), [name("made")]);
    other.1.put(name("made"), hook("http://h/2")).await.unwrap();
    until(|| one.1.get(&name("made")).is_some_and(|view| view.definition["url"] == "http://h/2")).await;
    one.1.remove(&name("made")).await.unwrap();
    until(|| other.1.get(&name("made")).is_none()).await;
    assert!(other.0.agents().is_empty());
}
